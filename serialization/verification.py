"""``verify``: whether two files, of any writer, hold the same model and the same training state."""

from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

import contextlib
import dataclasses
import importlib.util
import itertools
import math
import re

import numpy as np
from pydantic import BaseModel

from ..registry._argument_checks import path_of
from ..registry._plugins import loss_scales
from ..registry.errors import ArgumentError, ModelDiffersError, ScalekeeperError
from . import formats
from ._file_resources import keep_files_open
from ._matching import Shape, match_owners
from ._optimizer_weight_lists import Expected, decode_weights
from ._variables import by_owner, weights_of
from .keras._optimizer_config import OptimizerConfig, decode_config, inner_class
from .keras._slots import slots_of_class
from .models import load_model, training_state_of
from .optimizer_adapter import OptimizerFactory
from .probe import probe_of, require_same
from .restore import adapter_of
from .training_state import TrainingState, Value, slots_in_memory

CONFIGURATION, WEIGHT, SLOT, STATE, OUTPUT = "configuration", "weight", "slot", "state", "output"
_TITLES = {CONFIGURATION: "setting", WEIGHT: "weight", SLOT: "slot", STATE: "number", OUTPUT: "output"}
_ABSENT = "not in the file"
# settings without an effect on training, and those that only count beside use_ema
_IGNORED = ("name", "jit_compile", "is_legacy_optimizer", "ema_momentum", "ema_overwrite_frequency")


class Difference(BaseModel):
    """Something that differs between two files."""

    kind: str  # configuration, weight, slot, state or output
    name: str
    first: str
    second: str
    largest: Optional[float] = None  # the largest difference of two numbers at the same position


class Verification(BaseModel):
    """The result of :func:`verify`. ``str`` of it is a table.

    Attributes:
        first: The first file.
        second: The second file.
        compared: ``configuration``, ``weight``, ``slot``, ``state``, ``output`` → how many were compared.
        differences: The differences, each with ``kind``, ``name``, ``first``, ``second`` and ``largest``.
        notes: The parts that could not be compared, in sentences.

    Example:
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> for name, scale in (("a.npz", 8), ("b.npz", 16)):
        ...     optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1), scale)
        ...     scalekeeper.save_state(optimizer, name)
        >>> result = scalekeeper.verify("a.npz", "b.npz")
        >>> result.equal, [each.name for each in result.differences]
        (False, ['loss scale'])
    """

    first: str
    second: str
    compared: Dict[str, int]  # kind → how many were compared
    differences: List[Difference]
    notes: List[str]  # what could not be compared, in sentences

    @property
    def equal(self) -> bool:
        """Whether something was compared, and nothing differs."""
        return bool(self.compared) and not self.differences

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        count = len(self.differences)
        return "equal" if self.equal else f"{count} difference{'s' * (count != 1)}"

    @property
    def scope(self) -> str:
        """The compared things, in words."""
        counts = (f"{count} {_TITLES[kind]}{'s' * (count > 1)}" for kind, count in self.compared.items())
        return f"compared: {', '.join(counts) or 'nothing'}"

    def __str__(self) -> str:
        lines = [f"{self.first} and {self.second}: {self.verdict} ({self.scope})"]
        for each in self.differences:
            largest = "" if each.largest is None else f", largest difference {each.largest:.3g}"
            lines.append(f"  {each.kind} {each.name}: {each.first} | {each.second}{largest}")
        return "\n".join(lines + [f"  note: {note}" for note in self.notes])


def verify(
    first: Any,
    second: Any,
    *,
    make_optimizer: OptimizerFactory,
    tolerance: float = 0.0,
    outputs: bool = True,
    custom_objects: Optional[Mapping[str, Any]] = None,
) -> Verification:
    """Compare two files; see ``scalekeeper.verify``, which passes ``make_optimizer``."""
    call = "verify(first_path, second_path)"
    paths = path_of(first, call), path_of(second, call)
    result = Verification(first=paths[0], second=paths[1], compared={}, differences=[], notes=[])
    comparison = _Comparison(result, tolerance)
    one, other = (formats.read(path) for path in paths)
    # a checkpoint does not name the class of its optimizer, which the other file may do
    if one.optimizer_config is None and other.optimizer_config is not None:
        one = formats.read(paths[0], inner_class(other.optimizer_config))
    elif other.optimizer_config is None and one.optimizer_config is not None:
        other = formats.read(paths[1], inner_class(one.optimizer_config))
    comparison.configurations(one, other)
    models = _models(paths, (one, other), outputs, result.notes, custom_objects, make_optimizer)
    comparison.scalars(one, other)
    states = [_state_of(model, state) for model, state in zip(models, (one, other))]
    with keep_files_open():
        comparison.arrays(*states)
    if all(model is not None for model in models):
        comparison.outputs(*models)
    return result


def _models(
    paths: Tuple[str, str],
    states: Tuple[TrainingState, TrainingState],
    outputs: bool,
    notes: List[str],
    custom_objects: Optional[Mapping[str, Any]],
    make_optimizer: OptimizerFactory,
) -> List[Any]:
    """Return the models of both files; None for both if one cannot be built."""
    nothing: List[Any] = [None, None]
    if not outputs or not all(state.model_config is not None and state.variables for state in states):
        return nothing
    if importlib.util.find_spec("tensorflow") is None:
        notes.append("The outputs were not compared: TensorFlow is not installed.")
        return nothing
    found: List[Any] = []
    for path in paths:
        try:
            model = load_model(path, custom_objects, probe=False, allow_partial=True, make_optimizer=make_optimizer)
        except Exception as error:  # Keras raises many types for files of another Keras
            reason = next(iter(str(error).splitlines()), "")
            notes.append(f"The outputs were not compared: the installed Keras cannot build {path} ({reason[:200]}).")
            return nothing
        found.append(model)
    return found


def _state_of(model: Any, state: TrainingState) -> TrainingState:
    """Return the state by the names of the model, if there is one: .keras files have numbers for names."""
    if model is None or adapter_of(model) is None:
        return _named(state)
    state, names = training_state_of(model), _layer_names(model)
    return dataclasses.replace(
        state,
        variables={names.get(owner, owner): value for owner, value in state.variables.items()},
        slots={names.get(owner, owner): each for owner, each in state.slots.items()},
    )


def _layer_names(model: Any) -> Dict[str, str]:
    """Return owner → name with the layer's own name: up to 2.3, a second model in a process gets numbers after it."""
    owners = {id(variable): owner for owner, variable in by_owner(weights_of(model)).items()}
    names: Dict[str, str] = {}
    for layer in model.layers:
        for variable in weights_of(layer):
            owner = owners[id(variable)]
            scope, _, rest = owner.partition("/")
            if re.fullmatch(re.escape(layer.name) + r"_[0-9]+", scope):
                names[owner] = f"{layer.name}/{rest}"
    return names if len({*names.values()}) == len(names) else {}


def _named(state: TrainingState) -> TrainingState:
    """Return the state with names for numbers, if scalekeeper's record has the names of the trained variables."""
    shapes = {owner: value.shape for owner, value in state.variables.items()}
    pairs = match_owners(state.owners, shapes).pairs if state.owners and shapes else {}
    names = {numbered: name for name, numbered in pairs.items()}
    variables = {names.get(owner, owner): value for owner, value in state.variables.items()}
    slots = {names.get(owner, owner): each for owner, each in state.slots.items()}
    named = dataclasses.replace(state, variables=variables, slots=slots)
    class_name = inner_class(state.optimizer_config)
    known = slots_of_class(class_name) if class_name and state.weight_list else []
    for count in range(len(known), 0, -1):
        expected = {owner: dict.fromkeys(known[:count], shape) for owner, shape in state.owners.items()}
        scale = {"good_steps": "i", "current_loss_scale": "f"}
        with contextlib.suppress(ArgumentError):  # another number of slots
            decoded = decode_weights(
                [value.read() for value in state.weight_list],
                Expected(state.owners, expected, [], scale),
                "interleaved",
            )
            return dataclasses.replace(named, slots=slots_in_memory(decoded.slots), weight_list=[])
    return named


class _Comparison:
    """Fills a result with differences."""

    def __init__(self, result: Verification, tolerance: float) -> None:
        self._result, self._tolerance = result, tolerance

    def configurations(self, one: TrainingState, other: TrainingState) -> None:
        """Compare class and arguments of the optimizer, and the policy."""
        declared = [self._declared(state) for state in (one, other)]
        if None in declared:
            missing = [path for path, each in zip((self._result.first, self._result.second), declared) if each is None]
            self._result.notes.append(f"The configurations were not compared: {missing[0]} holds none.")
            return
        left, right = (each for each in declared if each is not None)
        self._same(CONFIGURATION, "optimizer", left.class_name, right.class_name)
        arguments = left.arguments, right.arguments
        for name in dict.fromkeys([*left.arguments, *right.arguments]):
            values = [each.get(name) for each in arguments]
            is_one_sided = not all(name in each for each in arguments)
            if name in _IGNORED or (is_one_sided and not any(values)):
                continue
            if name == "learning_rate" and not any(isinstance(value, Mapping) for value in values):
                continue  # the last one is in the state
            self._same(CONFIGURATION, name, *(each.get(name, _ABSENT) for each in arguments))
        self._same(CONFIGURATION, "loss scale", _policy(left.policy), _policy(right.policy))

    def _declared(self, state: TrainingState) -> Optional[OptimizerConfig]:
        try:
            found = None if state.optimizer_config is None else decode_config(state.optimizer_config)
        except ScalekeeperError as error:
            self._result.notes.append(f"A configuration cannot be read: {error}.")
            return None
        return found if found is None or state.loss_scale is None else found._replace(policy=state.loss_scale)

    def scalars(self, one: TrainingState, other: TrainingState) -> None:
        """Compare iterations, learning rate, loss scale and counters."""
        for name in ("iterations", "learning_rate", "skipped_steps"):
            values = getattr(one, name), getattr(other, name)
            if None not in values:
                self._same(STATE, name, *values)
            elif name == "iterations" and values != (None, None):
                self._same(STATE, name, *(_ABSENT if value is None else value for value in values))
        for title, left, right in (
            ("loss scale", one.loss_scale_state, other.loss_scale_state),
            ("skips", one.skips, other.skips),
        ):
            for name in dict.fromkeys([*left, *right]):
                self._same(STATE, f"{title}: {name}", left.get(name, _ABSENT), right.get(name, _ABSENT))

    def arrays(self, one: TrainingState, other: TrainingState) -> None:
        """Compare weights and slots, by the variables that belong together."""
        left, right = _shapes(one), _shapes(other)
        if any(owner.rpartition("/")[2].isdigit() for owner in left):  # numbers are matched with names, not the reverse
            pairs = {value: key for key, value in match_owners(right, left, one.is_ordered).pairs.items()}
        else:
            pairs = match_owners(left, right, other.is_ordered).pairs
        have_weights = bool(one.variables) and bool(other.variables)
        if not have_weights:
            self._result.notes.append("The weights were not compared: not both files hold them.")
        for owner in left if have_weights else one.slots:
            if owner not in pairs:
                self._count(WEIGHT)
                self._differ(Difference(kind=WEIGHT, name=owner, first=str(left.get(owner)), second=_ABSENT))
        for owner in right if have_weights else other.slots:
            if owner not in pairs.values():
                self._count(WEIGHT)
                self._differ(Difference(kind=WEIGHT, name=owner, first=_ABSENT, second=str(right.get(owner))))
        for owner, twin in pairs.items() if have_weights else ():
            self._array(WEIGHT, owner, one.variables.get(owner), other.variables.get(twin))
        if bool(one.weight_list) != bool(other.weight_list):
            self._result.notes.append(
                "The slots were not compared: a file has no names for them, and only a model that the installed Keras "
                "builds tells which is which."
            )
            return
        for owner, twin in pairs.items():
            slots, others = one.slots.get(owner, {}), other.slots.get(twin, {})
            for name in dict.fromkeys([*slots, *others]):
                self._array(SLOT, f"{owner}: {name}", slots.get(name), others.get(name))
        for index, values in enumerate(itertools.zip_longest(one.weight_list, other.weight_list)):
            self._array(SLOT, f"number {index} of the optimizer's variables", *values)

    def _array(self, kind: str, name: str, one: Optional[Value], other: Optional[Value]) -> None:
        if one is None or other is None or one.shape != other.shape:
            texts = [_ABSENT if each is None else str(each.shape) for each in (one, other)]
            self._count(kind)
            self._differ(Difference(kind=kind, name=name, first=texts[0], second=texts[1]))
            return
        self._count(kind)
        arrays = [np.asarray(each.read()).astype(np.float64) for each in (one, other)]
        if ((arrays[0] == arrays[1]) | (np.isnan(arrays[0]) & np.isnan(arrays[1]))).all():
            return
        gaps = np.abs(arrays[0] - arrays[1])
        largest = math.inf if np.isnan(gaps).any() else float(gaps.max())
        if largest > self._tolerance:
            index = np.unravel_index(int(np.argmax(gaps)), gaps.shape)
            first, second = (f"{array[index]:.9g}" for array in arrays)
            self._differ(Difference(kind=kind, name=name, first=first, second=second, largest=largest))

    def outputs(self, one: Any, other: Any) -> None:
        """Compare what the models compute."""
        probe = probe_of(one)
        if "none" in probe:
            self._result.notes.append(f"The outputs were not compared: {probe['none']}.")
            return
        self._count(OUTPUT, len(probe["outputs"]))
        try:
            require_same(other, probe, self._result.second)
        except ModelDiffersError as error:
            name = "the model" if error.layer is None else f"of the layer {error.layer!r}"
            second = "another one" if error.difference is not None else str(error)
            self._differ(
                Difference(kind=OUTPUT, name=name, first="as computed", second=second, largest=error.difference)
            )

    def _same(self, kind: str, name: str, one: Any, other: Any) -> None:
        self._count(kind)
        if not _are_equal(one, other):
            largest = abs(one - other) if _is_number(one) and _is_number(other) else None
            self._differ(Difference(kind=kind, name=name, first=_shown(one), second=_shown(other), largest=largest))

    def _count(self, kind: str, count: int = 1) -> None:
        self._result.compared[kind] = self._result.compared.get(kind, 0) + count

    def _differ(self, difference: Difference) -> None:
        self._result.differences.append(difference)


def _shapes(state: TrainingState) -> Dict[str, Shape]:
    """Return the shapes of the variables; in a file without weights, of those that were trained."""
    shapes = {owner: value.shape for owner, value in state.variables.items()} or dict(state.owners)
    return shapes or {owner: next(iter(each.values())).shape for owner, each in state.slots.items() if each}


def _policy(policy: Optional[Mapping[str, Any]]) -> Any:
    """Return class and parameters of a policy, with the defaults of those that are not written."""
    if policy is None:
        return None
    config = dict(policy["config"])
    cls = loss_scales.class_named(policy["class_name"])
    with contextlib.suppress(ScalekeeperError):  # such as for a parameter of a newer version
        config = config if cls is None else cls.from_config(config).get_config()
    return {"class_name": policy["class_name"], "config": config}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _are_equal(one: Any, other: Any) -> bool:
    """Return whether two values mean the same: a float32 number has other digits in some files."""
    if _is_number(one) and _is_number(other):
        return one == other or bool(np.float32(one) == np.float32(other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        keys = {*one, *other} - {"module", "registered_name", "name"}
        return all(_are_equal(one.get(key), other.get(key)) for key in keys)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_are_equal, one, other))
    return bool(one == other)


def _shown(value: Any) -> str:
    if isinstance(value, Mapping) and "class_name" in value:
        return f"{value['class_name']}({', '.join(_parameters(value.get('config')))})"
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _parameters(config: Any) -> Iterator[str]:
    for name, value in config.items() if isinstance(config, Mapping) else ():
        yield f"{name}={_shown(value)}"
