"""What is inside a file, for a person or a program: who wrote it, what it holds, what it lacks, how to use it."""

from typing import Any, Dict, List, Optional, Tuple

import os

from pydantic import BaseModel, ConfigDict

from ..registry._documents import load_document
from ..registry._optimizer_spec import OptimizerSpec
from ..registry.errors import ScalekeeperError, UnreadableFileError
from ._variable_matching import Shape, match_owners
from .formats.detection import DOCUMENT, format_of, read
from .keras._optimizer_config import Declaration, declared
from .keras._slot_names import slots_of_class
from .training_state import Contents

CONFIG = "config"
_KINDS = {
    "h5": "H5 file",
    "keras": ".keras file",
    "saved_model": "SavedModel",
    "checkpoint": "TensorFlow checkpoint",
    "npz": "training state of scalekeeper",
    CONFIG: "configuration in JSON",
    DOCUMENT: "document of scalekeeper",
}


class LossScaleFound(BaseModel):
    """A loss scale in a file."""

    name: str  # the policy's class, as written
    parameters: Dict[str, Any]
    state: Dict[str, float]  # empty: the file has none


class Inspection(BaseModel):
    """What is inside a file."""

    model_config = ConfigDict(protected_namespaces=())

    path: str
    format: str  # h5, keras, saved_model, checkpoint, npz, config or document
    kind: str  # the same in words
    written_by: Dict[str, str]  # keras, tensorflow, scalekeeper → version, as far as the file says
    model: Optional[str]  # the class of the model, if its layers are described
    optimizer: Optional[str]  # the class of the inner optimizer
    settings: Dict[str, Any]  # its arguments, as written
    loss_scale: Optional[LossScaleFound]
    iterations: Optional[int]
    learning_rate: Optional[float]  # as the optimizer had it last
    skipped_steps: Optional[str]  # whether a skipped step counts: advance or hold
    skips: Dict[str, Any]  # counters of skipped steps: total, in_a_row, last, overflows; empty if it has none
    variables: Dict[str, Shape]  # the model's, by name: shapes
    slots: Dict[str, Dict[str, Shape]]  # by variable and slot: shapes
    unnamed: List[Shape]  # shapes of the optimizer's variables, where the file has them without names
    missing: List[str]  # what is not in the file, and so can't be restored
    use: str  # the line that uses it
    notes: List[str]


def inspect(path: Any) -> Inspection:
    """Look into a file of any kind: H5, ``.keras``, SavedModel, checkpoint, configuration, document, ``.npz`` state.

    No array is read, nothing in the file is run, and only checkpoints and SavedModels need TensorFlow.
    """
    path = os.fspath(path)
    kind = format_of(path)
    if kind == DOCUMENT:
        return _of_document(path)
    contents = read(path)
    declaration, notes = _declared(contents)
    slots = _slots(contents) or _slots_in_list(contents, declaration)
    names = _names(contents)
    return Inspection(
        path=path,
        format=kind,
        kind=_in_words(kind, contents),
        written_by={
            name: version for name, version in contents.writer._asdict().items() if name != "format" and version
        },
        model=_model_class(contents),
        optimizer=declaration.class_name if declaration else None,
        settings=declaration.arguments if declaration else {},
        loss_scale=_loss_scale(contents, declaration),
        iterations=contents.iterations,
        learning_rate=contents.learning_rate,
        skipped_steps=contents.skipped_steps,
        skips=contents.skips,
        variables={names.get(owner, owner): value.shape for owner, value in contents.variables.items()},
        slots=slots,
        unnamed=[] if slots else [value.shape for value in contents.weight_list],
        missing=_missing(contents, declaration),
        use=_use(path, kind, contents),
        notes=[*contents.notes, *notes],
    )


def _of_document(path: str) -> Inspection:
    """A document declares an optimizer, and holds no state."""
    try:
        document = load_document(path)
    except ScalekeeperError as error:
        raise UnreadableFileError(
            f"{path}: text, but neither a configuration of Keras nor a document that can be used:\n{error}"
        ) from error
    policy = document.loss_scale
    settings = {name: _plain(value) for name, value in document.optimizer.arguments.items()}
    return Inspection(
        path=path,
        format=DOCUMENT,
        kind=_KINDS[DOCUMENT],
        written_by={},
        model=None,
        optimizer=document.optimizer.name,
        settings=settings,
        loss_scale=LossScaleFound(name=type(policy).__name__, parameters=policy.get_config(), state={}),
        iterations=None,
        learning_rate=None,
        skipped_steps=None if document.skipped_steps == "native" else document.skipped_steps,
        skips={},
        variables={},
        slots={},
        unnamed=[],
        missing=["everything but what it declares: a document holds no weights and no state"],
        use=f"optimizer = scalekeeper.build({path!r})",
        notes=[],
    )


def _plain(value: Any) -> Any:
    """A learning-rate schedule of a document as configurations have it."""
    if isinstance(value, OptimizerSpec):
        return {"class_name": value.name, "config": {name: _plain(each) for name, each in value.arguments.items()}}
    return value


def _declared(contents: Contents) -> Tuple[Optional[Declaration], List[str]]:
    """What the optimizer's configuration declares; and what is wrong with it."""
    if contents.optimizer_config is None:
        return None, []
    try:
        return declared(contents.optimizer_config), []
    except ScalekeeperError as error:
        return None, [f"The optimizer's configuration can't be read: {error}."]


def _loss_scale(contents: Contents, declaration: Optional[Declaration]) -> Optional[LossScaleFound]:
    policy = contents.loss_scale or (declaration.policy if declaration else None)
    if policy is None and not contents.loss_scale_state:
        return None
    state = {name: float(value) for name, value in contents.loss_scale_state.items()}
    if policy is None:  # a checkpoint names no classes
        return LossScaleFound(name="", parameters={}, state=state)
    return LossScaleFound(name=policy["class_name"], parameters=policy["config"], state=state)


def _model_class(contents: Contents) -> Optional[str]:
    name = (contents.model_config or {}).get("class_name")
    return name if isinstance(name, str) else None


def _in_words(kind: str, contents: Contents) -> str:
    words = _KINDS[kind]
    if kind == "h5":
        return words + (" with a model" if contents.model_config else " with weights only")
    if kind == "saved_model" and contents.model_config is None:
        return words + " that was exported, not saved by Keras"
    return words


def _missing(contents: Contents, declaration: Optional[Declaration]) -> List[str]:
    """What can't be restored, because it is not there."""
    scale, is_config = _loss_scale(contents, declaration), contents.writer.format == CONFIG
    if is_config:
        return ["weights, slots, iterations and the loss scale's state: a configuration holds no state"]
    found: List[str] = []
    if not contents.variables:
        found.append("the weights of the model")
    if contents.model_config is None:
        found.append("the layers of the model: build it in code")
    if contents.iterations is None:
        found.append("the optimizer's iterations")
    if declaration is None and (contents.iterations is not None or contents.optimizer_config is None):
        found.append("the optimizer's class and settings: make it in code")
    if not contents.slots and len(contents.weight_list) < 2 and _should_have_slots(declaration):
        found.append("the optimizer's slots: it starts them at zero")
    if scale is None:
        found.append("a loss scale")
    elif not scale.name:
        found.append("the loss scale's class and parameters: make it in code")
    elif not scale.state and scale.name != "FixedLossScale":
        found.append("the loss scale's state: it starts at its initial scale")
    return found


def _names(contents: Contents) -> Dict[str, str]:
    """What a variable is called that has only a number in the file, where ours has added the names of those trained."""
    shapes = {owner: value.shape for owner, value in contents.variables.items()}
    pairs = match_owners(contents.owners, shapes).pairs if contents.owners and shapes else {}
    return {numbered: name for name, numbered in pairs.items()}


def _slots(contents: Contents) -> Dict[str, Dict[str, Shape]]:
    """Those with names, in the order of the variables."""
    names = _names(contents)
    shapes = {
        names.get(owner, owner): {name: value.shape for name, value in slots.items()}
        for owner, slots in contents.slots.items()
    }
    order = [*(names.get(owner, owner) for owner in contents.variables), *contents.owners, *shapes]
    return {owner: shapes[owner] for owner in dict.fromkeys(order) if owner in shapes}


def _slots_in_list(contents: Contents, declaration: Optional[Declaration]) -> Dict[str, Dict[str, Shape]]:
    """Whose slots the arrays without names are: if every variable has as many, and their shapes agree."""
    owners = contents.owners or {owner: value.shape for owner, value in contents.variables.items()}
    shapes = [value.shape for value in contents.weight_list]
    known = slots_of_class(declaration.class_name) if declaration else []
    for names in (known[:count] for count in range(len(known), 0, -1)):
        in_turn = [shape for shape in owners.values() for _ in names]
        in_blocks = [shape for _ in names for shape in owners.values()]
        counters = len(shapes) - len(in_turn)  # iterations, and from Keras 3 on the learning rate
        if counters in (1, 2) and not any(shapes[:counters]) and shapes[counters:] in (in_turn, in_blocks):
            return {owner: dict.fromkeys(names, shape) for owner, shape in owners.items()}
    return {}


def _should_have_slots(declaration: Optional[Declaration]) -> bool:
    if declaration is None:
        return True
    needs = slots_of_class(declaration.class_name)
    return bool(needs) and (needs != ["momentum"] or bool(declaration.arguments.get("momentum", 1)))


def _use(path: str, kind: str, contents: Contents) -> str:
    if kind == CONFIG:
        what = "optimizer = scalekeeper.LossScaleOptimizer.from_config"
        if contents.model_config is not None:
            return f"model = tf.keras.models.model_from_json(open({path!r}).read())"
        is_wrapped = "class_name" not in (contents.optimizer_config or {})
        return f"{what}(json.load(open({path!r})){'' if is_wrapped else '[' + repr('config') + ']'})"
    if contents.model_config is not None and contents.variables:
        return f"model = scalekeeper.load_model({path!r})"
    return f"scalekeeper.restore(model, {path!r})  # of a model that is built and compiled in code"
