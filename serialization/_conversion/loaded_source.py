"""A training run on its way: what is in the source, with names for everything."""

from typing import Any, Mapping, NamedTuple, Optional, Sequence

import importlib

import numpy as np

from ...registry.errors import ConversionError, TranslationError, UnreadableFileError
from .._rmsprop_momentum import with_rates
from .._variable_matching import owners_of
from ..formats.detection import format_of, read
from ..keras._config_encoder import said_to
from ..keras._optimizer_config import Declaration, declared
from ..models import model_of_config
from ..restore import restore_contents
from ..training_state import Contents
from .target import aim


class Run(NamedTuple):
    """What a file holds. With a model, slots are named after its variables."""

    path: str
    format: str
    contents: Contents
    declaration: Optional[Declaration]  # None: the file does not say the optimizer's class
    model: Any = None  # with the file's weights, where the model is needed
    notes: Sequence[str] = ()


def opened(path: str) -> Run:
    """Read a source; its arrays stay in the file."""
    kind = format_of(path)
    contents = with_rates(read(path))
    if contents.optimizer_config is None and contents.iterations is None and not contents.slots:
        raise UnreadableFileError(f"{path}: no optimizer is in it, so there is no training state to convert")
    declaration = None
    if contents.optimizer_config is not None:
        declaration = declared(contents.optimizer_config)
        if contents.loss_scale is not None:  # in our record, in full
            declaration = declaration._replace(policy=contents.loss_scale)
        declaration = _with_rate(declaration, contents.learning_rate)
    return Run(path, kind, contents, declaration)


def _with_rate(declaration: Declaration, rate: Optional[float]) -> Declaration:
    """With the learning rate that the optimizer had last, should its configuration have another."""
    declared_rate = declaration.arguments.get("learning_rate", declaration.arguments.get("lr"))
    if rate is None or not isinstance(declared_rate, (int, float)) or np.float32(rate) == np.float32(declared_rate):
        return declaration
    return declaration._replace(arguments={**declaration.arguments, "learning_rate": rate})


def with_model(run: Run, custom_objects: Optional[Mapping[str, Any]]) -> Run:
    """Build the model with the installed TensorFlow, and give the optimizer's state its variables' names."""
    if run.contents.model_config is None:
        raise TranslationError(
            f"{run.path}: holds no layers, and so can't become a whole model: build the model in code, compile it with "
            "a LossScaleOptimizer, call scalekeeper.restore(model, path), and save it with scalekeeper.save_model"
        )
    if run.declaration is None:
        raise UnreadableFileError(f"{run.path}: its optimizer's configuration is not in it")
    _require_tensorflow(run.path)
    model = model_of_config(run.contents.model_config, custom_objects)
    optimizer = _optimizer(run, custom_objects)
    model.compile(optimizer=optimizer, loss="mse")
    report = restore_contents(model, run.contents, run.path)
    state = with_rates(optimizer._contents())
    source = run.contents
    state.iterations = source.iterations
    state.learning_rate = source.learning_rate
    state.loss_scale, state.loss_scale_state = run.declaration.policy, source.loss_scale_state
    state.skipped_steps, state.skips = source.skipped_steps, source.skips
    state.model_config, state.training_config = source.model_config, source.training_config
    state.variables = source.variables
    if not source.slots and not source.weight_list:
        state.slots = {}  # those of a new optimizer, which are not the file's
    absent = sorted({*owners_of(model.weights)} & {*report.missing})
    if absent:
        raise UnreadableFileError(f"{run.path}: not all of the model's weights are in it: {', '.join(absent)}")
    unused = [name for name in report.unused if not name.startswith("loss scale: ")]
    if unused:
        raise TranslationError(f"{run.path}: the installed model and optimizer have no place for {', '.join(unused)}")
    return run._replace(contents=state, model=model, notes=list(source.notes))


def _require_tensorflow(path: str) -> None:
    try:
        importlib.import_module("tensorflow")
    except ImportError as error:
        raise ConversionError(f"{path}: it takes TensorFlow to convert it, which can't be imported: {error}") from error


def _optimizer(run: Run, custom_objects: Optional[Mapping[str, Any]]) -> Any:
    """One that can hold the slots; its loss scale does not matter here, and may be of a class that is not there.

    It is one of the kind that a conversion for the installed TensorFlow would choose: the experimental RMSprop of 2.10
    would round what it is given.
    """
    assert run.declaration is not None
    cls: Any = importlib.import_module("...optimizer", __package__).LossScaleOptimizer
    inner = said_to(aim(), run.declaration._replace(policy=None)).config
    scale = {"class_name": "FixedLossScale", "config": {"loss_scale_value": 1.0}}
    return cls.from_config({"inner_optimizer": inner, "loss_scale": scale}, custom_objects)
