"""``inspect``: the contents of a file, its writer, the state that it lacks, and how to use it."""

from typing import Any, Dict, List, Optional, Tuple

import os

from pydantic import BaseModel, ConfigDict

from ..registry._argument_checks import path_of
from ..registry._documents import load_document
from ..registry._optimizer_spec import OptimizerSpec
from ..registry.errors import ScalekeeperError, UnreadableFileError
from . import formats
from ._matching import Shape, match_owners
from .keras._optimizer_config import OptimizerConfig, decode_config
from .keras._slots import slots_of_class
from .training_state import TrainingState

_NO_STATE = "weights, slots, iterations and the loss scale's state: a configuration holds no state"
_DOCUMENTS = (".yaml", ".yml", ".json")
_DOCUMENT, _DOCUMENT_TITLE = "document", "document of scalekeeper"  # YAML or JSON; not a format of training state


class LossScaleFound(BaseModel):
    """A loss scale in a file."""

    name: str  # the policy's class, as written
    parameters: Dict[str, Any]
    state: Dict[str, float]  # empty: the file has none


class Inspection(BaseModel):
    """The description of a file.

    Attributes:
        path: The file.
        format: The name of its format, or ``"document"``.
        kind: The format in words.
        written_by: ``keras``, ``tensorflow``, ``scalekeeper`` → version, if the file holds it.
        model: The class of the model, if the file describes its layers.
        optimizer: The class of the inner optimizer.
        settings: The arguments of the inner optimizer, as written.
        loss_scale: The loss scale with ``name``, ``parameters`` and ``state``; None if the file holds none.
        iterations: The iterations of the optimizer.
        learning_rate: The last learning rate.
        skipped_steps: Whether a skipped step advances ``iterations``: ``"advance"`` or ``"hold"``.
        skips: The counters of skipped steps: ``total``, ``in_a_row``, ``last``, ``overflows``; empty if no step was
            skipped.
        variables: The shapes of the model's variables, by name.
        slots: The shapes of the slots, by variable and slot.
        unnamed: The shapes of the optimizer's variables, if the file has no names for them.
        missing: State that is not in the file and cannot be restored.
        use: The line of code that uses the file.
        notes: Remarks, in sentences.

    Example:
        >>> import scalekeeper
        >>> found = scalekeeper.inspect("examples/train.yaml")
        >>> found.format, found.loss_scale.name
        ('document', 'DynamicLossScale')
    """

    model_config = ConfigDict(protected_namespaces=())

    path: str
    format: str  # the name of a format, or "document"
    kind: str  # the same for people
    written_by: Dict[str, str]  # keras, tensorflow, scalekeeper → version, as far as the file records them
    model: Optional[str]  # the class of the model, if the file describes its layers
    optimizer: Optional[str]  # the class of the inner optimizer
    settings: Dict[str, Any]  # its arguments, as written
    loss_scale: Optional[LossScaleFound]
    iterations: Optional[int]
    learning_rate: Optional[float]  # the last one
    skipped_steps: Optional[str]  # whether skipped steps count: advance or hold
    skips: Dict[str, Any]  # counters of skipped steps: total, in_a_row, last, overflows; empty: no step was skipped
    variables: Dict[str, Shape]  # shapes of the model's variables, by name
    slots: Dict[str, Dict[str, Shape]]  # shapes, by variable and slot
    unnamed: List[Shape]  # shapes of the optimizer's variables, if the file has no names for them
    missing: List[str]  # what is not in the file and cannot be restored
    use: str  # the line of code that uses the file
    notes: List[str]


def inspect(path: Any) -> Inspection:
    """Describe what is inside a file. No array is read, nothing in the file is run.

    Only checkpoints and SavedModels need TensorFlow.

    Args:
        path: An H5 file, ``.keras`` file, SavedModel, checkpoint, ``.npz`` state, JSON configuration or document.

    Returns:
        The description.

    Raises:
        MissingFileError: There is no such file.
        UnreadableFileError: The file is corrupt or has an unknown format.

    Example:
        >>> import scalekeeper
        >>> scalekeeper.inspect("examples/train.yaml").optimizer
        'adam'
    """
    path = path_of(path, "inspect(path)")
    codec = formats.detect(path)
    if codec is None:
        return _inspect_document(path)
    state = codec.read(path)
    declaration, notes = _declared(state)
    slots = _slots(state) or _slots_in_list(state, declaration)
    names = _names(state)
    return Inspection(
        path=path,
        format=codec.name,
        kind=codec.describe(state),
        written_by={name: version for name, version in state.writer._asdict().items() if name != "format" and version},
        model=_model_class(state),
        optimizer=declaration.class_name if declaration else None,
        settings=declaration.arguments if declaration else {},
        loss_scale=_loss_scale(state, declaration),
        iterations=state.iterations,
        learning_rate=state.learning_rate,
        skipped_steps=state.skipped_steps,
        skips=state.skips,
        variables={names.get(owner, owner): value.shape for owner, value in state.variables.items()},
        slots=slots,
        unnamed=[] if slots else [value.shape for value in state.weight_list],
        missing=_missing(state, declaration) if codec.holds_state else [_NO_STATE],
        use=codec.usage(path, state),
        notes=[*state.notes, *notes],
    )


def _inspect_document(path: str) -> Inspection:
    """Describe a document, which declares an optimizer and holds no state."""
    try:
        document = load_document(path)
    except ScalekeeperError as error:
        if not os.path.getsize(path) or os.path.splitext(path)[1].lower() not in _DOCUMENTS:
            raise UnreadableFileError(formats.no_known_format(path)) from error
        raise UnreadableFileError(
            f"{path}: text, but neither a Keras configuration nor a valid document:\n{error}"
        ) from error
    policy = document.loss_scale
    settings = {name: _plain(value) for name, value in document.optimizer.arguments.items()}
    return Inspection(
        path=path,
        format=_DOCUMENT,
        kind=_DOCUMENT_TITLE,
        written_by={},
        model=None,
        optimizer=document.optimizer.name,
        settings=settings,
        loss_scale=LossScaleFound(name=type(policy).__name__, parameters=policy._parameters(), state={}),
        iterations=None,
        learning_rate=None,
        skipped_steps=None if document.skipped_steps == "native" else document.skipped_steps,
        skips={},
        variables={},
        slots={},
        unnamed=[],
        missing=["weights and state: a document only declares an optimizer"],
        use=f"optimizer = scalekeeper.build({path!r})",
        notes=[],
    )


def _plain(value: Any) -> Any:
    """Return a learning-rate schedule of a document in the form of a configuration."""
    if isinstance(value, OptimizerSpec):
        return {"class_name": value.name, "config": {name: _plain(each) for name, each in value.arguments.items()}}
    return value


def _declared(state: TrainingState) -> Tuple[Optional[OptimizerConfig], List[str]]:
    """Return what the optimizer's configuration declares, and notes on what is wrong with it."""
    if state.optimizer_config is None:
        return None, []
    try:
        return decode_config(state.optimizer_config), []
    except ScalekeeperError as error:
        return None, [f"The optimizer's configuration cannot be read: {error}."]


def _loss_scale(state: TrainingState, declaration: Optional[OptimizerConfig]) -> Optional[LossScaleFound]:
    policy = state.loss_scale or (declaration.policy if declaration else None)
    if policy is None and not state.loss_scale_state:
        return None
    numbers = {name: float(value) for name, value in state.loss_scale_state.items()}
    if policy is None:  # a checkpoint stores no classes
        return LossScaleFound(name="", parameters={}, state=numbers)
    return LossScaleFound(name=policy["class_name"], parameters=policy["config"], state=numbers)


def _model_class(state: TrainingState) -> Optional[str]:
    name = (state.model_config or {}).get("class_name")
    return name if isinstance(name, str) else None


def _missing(state: TrainingState, declaration: Optional[OptimizerConfig]) -> List[str]:
    """Return what the file lacks, in a few words each."""
    scale = _loss_scale(state, declaration)
    found: List[str] = []
    if not state.variables:
        found.append("the weights of the model")
    if state.model_config is None:
        found.append("the layers of the model: build it in code")
    if state.iterations is None:
        found.append("the optimizer's iterations")
    if declaration is None and (state.iterations is not None or state.optimizer_config is None):
        found.append("the optimizer's class and settings: create it in code")
    if not state.slots and len(state.weight_list) < 2 and _should_have_slots(declaration):
        found.append("the optimizer's slots: it starts them at zero")
    if scale is None:
        found.append("a loss scale")
    elif not scale.name:
        found.append("the loss scale's class and parameters: create it in code")
    elif not scale.state and scale.name != "FixedLossScale":
        found.append("the loss scale's state: it starts at its initial scale")
    return found


def _names(state: TrainingState) -> Dict[str, str]:
    """Return number → name of a variable, if scalekeeper's record has the names of trained variables."""
    shapes = {owner: value.shape for owner, value in state.variables.items()}
    pairs = match_owners(state.owners, shapes).pairs if state.owners and shapes else {}
    return {numbered: name for name, numbered in pairs.items()}


def _slots(state: TrainingState) -> Dict[str, Dict[str, Shape]]:
    """Return the shapes of slots with names, in the order of the variables."""
    names = _names(state)
    shapes = {
        names.get(owner, owner): {name: value.shape for name, value in slots.items()}
        for owner, slots in state.slots.items()
    }
    order = [*(names.get(owner, owner) for owner in state.variables), *state.owners, *shapes]
    return {owner: shapes[owner] for owner in dict.fromkeys(order) if owner in shapes}


def _slots_in_list(state: TrainingState, declaration: Optional[OptimizerConfig]) -> Dict[str, Dict[str, Shape]]:
    """Return the shapes of slots without names, if every variable has as many and their shapes agree."""
    owners = state.owners or {owner: value.shape for owner, value in state.variables.items()}
    shapes = [value.shape for value in state.weight_list]
    known = slots_of_class(declaration.class_name) if declaration else []
    for names in (known[:count] for count in range(len(known), 0, -1)):
        in_turn = [shape for shape in owners.values() for _ in names]
        in_blocks = [shape for _ in names for shape in owners.values()]
        counters = len(shapes) - len(in_turn)  # iterations, and from Keras 3 on the learning rate
        if counters in (1, 2) and not any(shapes[:counters]) and shapes[counters:] in (in_turn, in_blocks):
            return {owner: dict.fromkeys(names, shape) for owner, shape in owners.items()}
    return {}


def _should_have_slots(declaration: Optional[OptimizerConfig]) -> bool:
    if declaration is None:
        return True
    needs = slots_of_class(declaration.class_name)
    return bool(needs) and (needs != ["momentum"] or bool(declaration.arguments.get("momentum", 1)))
