"""What a file would hold less of after its conversion, in sentences."""

from typing import Iterator, List, Optional

from ...registry.errors import TranslationError
from ..keras._config_encoder import Said, said_to
from ..keras._optimizer_config import KERAS_3, LEGACY, NEW
from ..training_state import Contents
from .loaded_source import Run
from .target import FIRST_WITH_NEW_WORDS, Aim

_FORMATS = {"h5": "H5", "keras": "a .keras file", "saved_model": "a SavedModel"}
_REMEDY = "a checkpoint keeps it"


def losses_of(run: Run, wanted: str, aim: Aim) -> List[str]:
    """Everything that would be lost. An optimizer that the target can't have is an error, not a loss."""
    said = None if run.declaration is None else said_to(aim, run.declaration)
    return [*_by_format(run, wanted), *(_by_plain_keras(run, wanted, aim, said) if aim.is_plain else ())]


def _by_format(run: Run, wanted: str) -> Iterator[str]:
    contents = run.contents
    if wanted == "config":
        if contents.variables:
            yield "the weights of the model: a configuration holds none"
        if contents.iterations is not None or contents.slots or contents.loss_scale_state:
            yield "iterations, slots and the loss scale's state: a configuration holds none"
    elif wanted == "npz" and contents.variables:
        yield "the model, its layers and its weights: a training state is the optimizer's"
    elif wanted == "checkpoint":
        if contents.model_config is not None:
            yield "the layers of the model: a checkpoint holds values only"
        if run.declaration is not None:
            yield "classes and arguments of the optimizer and its loss scale: a checkpoint holds values only"


def _by_plain_keras(run: Run, wanted: str, aim: Aim, said: Optional[Said]) -> Iterator[str]:
    """What Keras does not read by itself."""
    contents = run.contents
    if wanted == "npz":
        raise TranslationError("plain Keras reads no training state of this package: choose a checkpoint")
    if said is not None:
        yield from said.losses
    if wanted == "config":
        return
    family = LEGACY if said is None else said.family
    if wanted == "checkpoint":
        yield from _of_checkpoints(contents, aim)
    else:
        yield from _of_models(contents, wanted, family, str(aim.target), said is not None and said.has_wrapper)
    native = aim.skipped_steps
    if _may_skip(run) and contents.skipped_steps not in (None, native):
        words = {"hold": "do not count", "advance": "count"}
        yield (
            f"that skipped steps {words[str(contents.skipped_steps)]} in iterations: with {aim.target} they "
            f"{words[str(native)]}"
        )


def _may_skip(run: Run) -> bool:
    """Whether the loss scale is one that skips steps: a fixed one has no state, and skips none."""
    policy = None if run.declaration is None else run.declaration.policy
    return bool(run.contents.loss_scale_state) or (policy is not None and policy["class_name"] != "FixedLossScale")


def _of_checkpoints(contents: Contents, aim: Aim) -> Iterator[str]:
    others = set(contents.loss_scale_state) - {"current_loss_scale", "good_steps"}
    if others and aim.target.version >= FIRST_WITH_NEW_WORDS:
        yield f"{', '.join(sorted(others))} of the loss scale: {aim.target} has no such loss scale"


def _of_models(contents: Contents, wanted: str, family: str, target: str, has_wrapper: bool) -> Iterator[str]:
    """What ``load_model`` leaves out, as measured: see docs/compatibility.md."""
    holds_all = wanted == "keras" and family == KERAS_3
    is_read_from_h5 = family == LEGACY or (family == NEW and not has_wrapper)
    holds_slots = holds_all or (wanted == "h5" and is_read_from_h5) or (wanted == "keras" and family == NEW)
    if (contents.slots or contents.iterations) and not holds_slots:
        yield f"iterations and slots: {target} reads none from {_FORMATS[wanted]} with such an optimizer; {_REMEDY}"
    if contents.loss_scale_state and not holds_all:
        state = ", ".join(f"{name} {value:g}" for name, value in contents.loss_scale_state.items())
        yield f"the loss scale's state ({state}): {target} reads none from {_FORMATS[wanted]}; {_REMEDY}"
