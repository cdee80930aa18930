"""The source of a conversion: what a file holds, with names for everything, and the same for a target."""

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

import dataclasses
import importlib

import numpy as np

from ..registry.errors import ConversionError, TranslationError, UnreadableFileError
from ._rebuilt_models import model_from_config, named_after
from ._variables import owners_of, weights_of
from .formats import Format
from .keras._model_config import translate_compile_config, translate_model_config
from .keras._optimizer_config import EncodedConfig, OptimizerConfig, decode_config, encode_config, inner_config
from .keras.profile import KerasProfile, OptimizerVariables
from .keras.target import ConversionTarget, conversion_target, layer_arguments
from .optimizer_adapter import OptimizerFactory
from .restore import restore_state
from .training_state import TrainingState, Writer, own_version, with_rate_in_momentum


class LoadedSource(NamedTuple):
    """The training state and the model of a file. With a model, slots are named after its variables."""

    path: str
    codec: Format
    state: TrainingState
    declaration: Optional[OptimizerConfig]  # None: the file does not tell the optimizer's class
    model: Any = None  # with the file's weights, if the conversion needs it
    notes: Sequence[str] = ()
    keras_version: Optional[str] = None  # of the Keras that wrote the file

    @property
    def class_name(self) -> Optional[str]:
        """The class of the inner optimizer."""
        return None if self.declaration is None else self.declaration.class_name

    @property
    def may_skip_steps(self) -> bool:
        """Whether the policy skips steps; a fixed one has no state and skips none."""
        policy = None if self.declaration is None else self.declaration.policy
        return bool(self.state.loss_scale_state) or (policy is not None and policy["class_name"] != "FixedLossScale")

    def encoded_for(self, target: ConversionTarget) -> Optional[EncodedConfig]:
        """Return the optimizer's configuration for a target."""
        return None if self.declaration is None else encode_config(target.keras, self.declaration)


def open_source(path: str, codec: Format) -> LoadedSource:
    """Read a source; its arrays stay in the file."""
    state = with_rate_in_momentum(codec.read(path))
    if state.optimizer_config is None and state.iterations is None and not state.slots:
        raise UnreadableFileError(f"{path}: holds no optimizer, so there is no training state to convert")
    declaration = None
    if state.optimizer_config is not None:
        declaration = decode_config(state.optimizer_config)
        if state.loss_scale is not None:  # the record has the policy in full
            declaration = declaration._replace(policy=state.loss_scale)
        declaration = _with_rate(declaration, state.learning_rate)
    return LoadedSource(path, codec, state, declaration, keras_version=state.writer.keras)


def _with_rate(declaration: OptimizerConfig, rate: Optional[float]) -> OptimizerConfig:
    """Return the configuration with the last learning rate, if the configuration has another one."""
    declared_rate = declaration.arguments.get("learning_rate", declaration.arguments.get("lr"))
    if rate is None or not isinstance(declared_rate, (int, float)) or np.float32(rate) == np.float32(declared_rate):
        return declaration
    return declaration._replace(arguments={**declaration.arguments, "learning_rate": rate})


def with_model(
    source: LoadedSource, make_optimizer: OptimizerFactory, custom_objects: Optional[Mapping[str, Any]] = None
) -> LoadedSource:
    """Build the model with the installed Keras, and name the optimizer's state after the model's variables."""
    path, before = source.path, source.state
    if before.model_config is None:
        raise TranslationError(
            f"{path}: holds no layers, so it cannot become a whole model; build the model in code, compile it with a "
            "LossScaleOptimizer, call scalekeeper.restore(model, path) and save it with scalekeeper.save_model"
        )
    if source.declaration is None:
        raise UnreadableFileError(f"{path}: holds no configuration of the optimizer")
    _require_tensorflow(path)
    model = model_from_config(before.model_config, custom_objects, before.writer.keras)
    before = named_after(model, before)
    optimizer = make_optimizer(_config_of_slots(source.declaration), custom_objects)
    model.compile(optimizer=optimizer, loss="mse")
    report = restore_state(model, before, path, partial=True)  # what is missing is judged below
    state = dataclasses.replace(
        with_rate_in_momentum(optimizer._give_state()),
        iterations=before.iterations,
        learning_rate=before.learning_rate,
        loss_scale=source.declaration.policy,
        loss_scale_state=before.loss_scale_state,
        skipped_steps=before.skipped_steps,
        skips=before.skips,
        model_config=before.model_config,
        training_config=before.training_config,
        variables=before.variables,
        probe=before.probe,
    )
    if not before.slots and not before.weight_list:
        state.slots = {}  # those of the new optimizer are not the file's
    absent = sorted({*owners_of(weights_of(model))} & {*report.missing})
    if absent:
        raise UnreadableFileError(f"{path}: lacks weights of the model: {', '.join(absent)}")
    unused = [name for name in report.unused if not name.startswith("loss scale: ")]
    if unused:
        raise TranslationError(f"{path}: the installed model and optimizer have no variables for {', '.join(unused)}")
    return source._replace(state=state, model=model, notes=list(before.notes))


def _require_tensorflow(path: str) -> None:
    try:
        importlib.import_module("tensorflow")
    except ImportError as error:
        raise ConversionError(f"{path}: converting it needs TensorFlow, which cannot be imported: {error}") from error


def _config_of_slots(declaration: OptimizerConfig) -> Dict[str, Any]:
    """Return the configuration of an optimizer that can hold the slots.

    Its loss scale does not matter, and its class may be unknown here. The inner optimizer is the one that a conversion
    for the installed TensorFlow would choose: the experimental RMSprop of TF 2.10 would round the slots.
    """
    inner = encode_config(conversion_target().keras, declaration._replace(policy=None)).config
    fixed = {"class_name": "FixedLossScale", "config": {"loss_scale_value": 1.0}}
    return {"inner_optimizer": inner, "loss_scale": fixed}


def state_for_writing(source: LoadedSource, encoded: Optional[EncodedConfig]) -> TrainingState:
    """Return the state as a record holds it: scalekeeper is its writer, the optimizer is configured for the target."""
    config = source.state.optimizer_config if encoded is None else encoded.config
    writer = Writer("npz", scalekeeper=own_version())
    return dataclasses.replace(source.state, writer=writer, optimizer_config=config, listed=[])


class ModelPayload(NamedTuple):
    """A model with its training state for a target, ready to be written."""

    target: ConversionTarget
    encoded: EncodedConfig
    class_name: str  # of the inner optimizer
    state: TrainingState  # the optimizer's, by the names of the model's variables
    model: Any  # with its weights
    model_config: Dict[str, Any]
    training_config: Dict[str, Any]
    dropped: List[str]

    @classmethod
    def of(
        cls,
        source: LoadedSource,
        target: ConversionTarget,
        encoded: Optional[EncodedConfig],
        *,
        with_modules: bool,
        custom_objects: Optional[Mapping[str, Any]] = None,
    ) -> "ModelPayload":
        """Return the payload of a source with a model; ``with_modules`` for formats that name modules of classes."""
        assert encoded is not None
        assert source.class_name is not None
        assert source.state.model_config is not None
        rules = target.keras.model_config_rules
        training, dropped = translate_compile_config(source.state.training_config, rules, with_modules)
        model_config = translate_model_config(
            source.state.model_config,
            rules,
            layer_arguments(target.target),
            frozenset(custom_objects or ()),
            where=str(target.keras),
            package=target.keras.package if with_modules else None,
            keras_version=source.keras_version,
            has_scalekeeper=not target.is_plain,
        )
        state = state_for_writing(source, encoded)
        return cls(target, encoded, source.class_name, state, source.model, model_config, training, dropped)

    @property
    def profile(self) -> KerasProfile:
        """The Keras generation of the optimizer on the target."""
        return self.encoded.profile

    @property
    def has_state(self) -> bool:
        return self.state.iterations is not None

    @property
    def _learning_rate(self) -> Optional[float]:
        """The learning rate if it is a variable; None for a schedule."""
        rate = inner_config(self.encoded.config)["config"].get("learning_rate")
        return float(rate) if isinstance(rate, (int, float)) else None

    @property
    def variables(self) -> OptimizerVariables:
        """The variables of the optimizer. The loss scale is the initial one if the file has no state."""
        state, loss_scale = self.state, None
        if self.encoded.has_wrapper:
            policy = state.loss_scale or {"config": {}}
            initial = float(policy["config"].get("initial_loss_scale", 1))
            loss_scale = {"current_loss_scale": initial, **state.loss_scale_state}
        return OptimizerVariables(
            self.class_name,
            state.iterations or 0,
            self._learning_rate,
            state.scalars,
            state.slots,
            list(state.owners),
            loss_scale,
        )
