"""The source of a conversion: what a file holds, with names for everything, and the same for a target."""

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

import dataclasses
import functools
import importlib

import numpy as np

from ...registry._compat import metadata
from ...registry.errors import ConversionError, TranslationError, UnreadableFileError
from .._variables import owners_of
from ..formats import Format
from ..keras import _compile_config, _model_config
from ..keras._config_encoder import Said, said_to
from ..keras._layer_signatures import accepted_on
from ..keras._optimizer_config import Declaration, declared
from ..keras._slot_names import inner_config
from ..models import model_from_config
from ..optimizer_adapter import OptimizerFactory
from ..restore import restore_state
from ..training_state import TrainingState, Writer, with_rate_in_momentum
from .target import FIRST_WITH_MODULES, ConversionTarget, conversion_target


class LoadedSource(NamedTuple):
    """What a file holds. With a model, slots are named after its variables."""

    path: str
    codec: Format
    state: TrainingState
    declaration: Optional[Declaration]  # None: the file does not tell the optimizer's class
    model: Any = None  # with the file's weights, if the conversion needs it
    notes: Sequence[str] = ()

    @property
    def class_name(self) -> Optional[str]:
        """The class of the inner optimizer."""
        return None if self.declaration is None else self.declaration.class_name

    def encoded_for(self, target: ConversionTarget) -> Optional[Said]:
        """Return the optimizer's configuration for a target."""
        return None if self.declaration is None else said_to(target, self.declaration)


def open_source(path: str, codec: Format) -> LoadedSource:
    """Read a source; its arrays stay in the file.

    Raises:
        UnreadableFileError: The file holds no training state, or is corrupt.
    """
    state = with_rate_in_momentum(codec.read(path))
    if state.optimizer_config is None and state.iterations is None and not state.slots:
        raise UnreadableFileError(f"{path}: holds no optimizer, so there is no training state to convert")
    declaration = None
    if state.optimizer_config is not None:
        declaration = declared(state.optimizer_config)
        if state.loss_scale is not None:  # the record has the policy in full
            declaration = declaration._replace(policy=state.loss_scale)
        declaration = _with_rate(declaration, state.learning_rate)
    return LoadedSource(path, codec, state, declaration)


def _with_rate(declaration: Declaration, rate: Optional[float]) -> Declaration:
    """Return the declaration with the last learning rate, if the configuration has another one."""
    declared_rate = declaration.arguments.get("learning_rate", declaration.arguments.get("lr"))
    if rate is None or not isinstance(declared_rate, (int, float)) or np.float32(rate) == np.float32(declared_rate):
        return declaration
    return declaration._replace(arguments={**declaration.arguments, "learning_rate": rate})


def with_model(
    source: LoadedSource, make_optimizer: OptimizerFactory, custom_objects: Optional[Mapping[str, Any]] = None
) -> LoadedSource:
    """Build the model with the installed Keras, and name the optimizer's state after the model's variables.

    Raises:
        TranslationError: The file holds no layers, or the installed model has no variables for some of its values.
        UnreadableFileError: The file lacks the optimizer's configuration or some of the weights.
        ConversionError: TensorFlow cannot be imported.
    """
    path, before = source.path, source.state
    if before.model_config is None:
        raise TranslationError(
            f"{path}: holds no layers, so it cannot become a whole model; build the model in code, compile it with a "
            "LossScaleOptimizer, call scalekeeper.restore(model, path) and save it with scalekeeper.save_model"
        )
    if source.declaration is None:
        raise UnreadableFileError(f"{path}: holds no configuration of the optimizer")
    _require_tensorflow(path)
    model = model_from_config(before.model_config, custom_objects)
    optimizer = make_optimizer(_config_of_slots(source.declaration), custom_objects)
    model.compile(optimizer=optimizer, loss="mse")
    report = restore_state(model, before, path)
    state = dataclasses.replace(
        with_rate_in_momentum(optimizer._contents()),
        iterations=before.iterations,
        learning_rate=before.learning_rate,
        loss_scale=source.declaration.policy,
        loss_scale_state=before.loss_scale_state,
        skipped_steps=before.skipped_steps,
        skips=before.skips,
        model_config=before.model_config,
        training_config=before.training_config,
        variables=before.variables,
    )
    if not before.slots and not before.weight_list:
        state.slots = {}  # those of the new optimizer are not the file's
    absent = sorted({*owners_of(model.weights)} & {*report.missing})
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


def _config_of_slots(declaration: Declaration) -> Dict[str, Any]:
    """Return the configuration of an optimizer that can hold the slots.

    Its loss scale does not matter, and its class may be unknown here. The inner optimizer is the one that a conversion
    for the installed TensorFlow would choose: the experimental RMSprop of TF 2.10 would round the slots.
    """
    inner = said_to(conversion_target(), declaration._replace(policy=None)).config
    fixed = {"class_name": "FixedLossScale", "config": {"loss_scale_value": 1.0}}
    return {"inner_optimizer": inner, "loss_scale": fixed}


def state_for_writing(source: LoadedSource, encoded: Optional[Said]) -> TrainingState:
    """Return the state as a record holds it: scalekeeper is its writer, the optimizer is configured for the target."""
    config = source.state.optimizer_config if encoded is None else encoded.config
    return dataclasses.replace(source.state, writer=Writer("npz", scalekeeper=_own_version()), optimizer_config=config)


@functools.lru_cache(maxsize=None)
def _own_version() -> str:
    return metadata.version("scalekeeper")


class ModelPayload(NamedTuple):
    """A model with its training state for a target, ready to be written."""

    target: ConversionTarget
    encoded: Said
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
        encoded: Optional[Said],
        *,
        with_modules: bool,
        custom_objects: Optional[Mapping[str, Any]] = None,
    ) -> "ModelPayload":
        """Return the payload of a source with a model; ``with_modules`` for formats that name modules of classes."""
        assert encoded is not None
        assert source.class_name is not None
        assert source.state.model_config is not None
        training, dropped = _compile_config.translated(source.state.training_config, target, with_modules=with_modules)
        model_config = _model_config.translated(
            source.state.model_config,
            _generation(target),
            accepted_on(target.target),
            frozenset(custom_objects or ()),
            where=str(target.target),
            package=target.package if with_modules else None,
        )
        state = state_for_writing(source, encoded)
        return cls(target, encoded, source.class_name, state, source.model, model_config, training, dropped)

    @property
    def has_state(self) -> bool:
        return self.state.iterations is not None

    @property
    def learning_rate(self) -> Optional[float]:
        """The learning rate if it is a variable; None for a schedule."""
        rate = inner_config(self.encoded.config)["config"].get("learning_rate")
        return float(rate) if isinstance(rate, (int, float)) else None

    @property
    def loss_scale(self) -> float:
        """The current loss scale; the initial one if the file has no state."""
        policy = self.state.loss_scale or {"config": {}}
        initial = policy["config"].get("initial_loss_scale", 1)
        return float(self.state.loss_scale_state.get("current_loss_scale", initial))


def _generation(target: ConversionTarget) -> str:
    if target.is_keras_3:
        return _model_config.KERAS_3
    return _model_config.KERAS_2_NEW if target.target.version >= FIRST_WITH_MODULES else _model_config.KERAS_2
