"""``restore``: load a file into a model that was built in code, and report what was found."""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ..registry.errors import NothingRestoredError
from . import formats
from ._file_resources import keep_files_open
from ._optimizer_weight_lists import decode_weights
from ._matching import Matching, match_owners
from ._variables import assign_all, by_owner, shapes_by_owner
from .optimizer_adapter import OptimizerAdapter
from .training_state import TrainingState, Value, slots_in_memory


class RestoreReport(NamedTuple):
    """What :func:`restore` found in a file and did with it. ``str`` of it is a table."""

    path: str
    found: List[str]
    matched: List[str]
    missing: List[str]
    unused: List[str]
    notes: List[str]

    def __str__(self) -> str:
        lines = [f"{self.path}: {', '.join(self.found) or 'nothing'}"]
        for title, names in (("restored", self.matched), ("not in the file", self.missing), ("unused", self.unused)):
            if names:
                lines.append(f"  {title} ({len(names)}): {', '.join(names)}")
        return "\n".join(lines + [f"  note: {note}" for note in self.notes])


def restore(model: Any, path: Any, *, verbose: bool = False) -> RestoreReport:
    """Load weights and optimizer state from a file of any version into a model.

    Variables are matched by name and structure, slots by the variable they belong to.

    Args:
        model: A built model. Its optimizer's state is restored if it is compiled with a :class:`LossScaleOptimizer`.
        path: An H5 file, a ``.keras`` file, a SavedModel, a checkpoint, or a file of :func:`save_state`.
        verbose: Whether to print the report.

    Returns:
        What was found, matched, missing and unused.

    Raises:
        NothingRestoredError: Nothing in the file matches the model.
        UnreadableFileError: The file is corrupt or has an unknown format.
        MissingFileError: There is no such file.
    """
    inner = getattr(getattr(model, "optimizer", None), "inner_optimizer", None)
    state = formats.read(path, None if inner is None else type(inner).__name__)
    report = restore_state(model, state, str(path))
    if verbose:
        print(report)
    return report


@keep_files_open()
def restore_state(model: Any, state: TrainingState, path: str, with_weights: bool = True) -> RestoreReport:
    """Load a training state into a model; without weights, into its optimizer alone."""
    live = by_owner(model.weights)
    matching = _match(model, live, state)
    with_weights = with_weights and bool(state.variables)
    matched = list(matching.pairs) if with_weights else []
    missing, unused, notes = list(matching.missing), list(matching.unused), list(state.notes)
    if not matching.pairs and (state.variables or state.owners):
        raise _nothing_restored(RestoreReport(path, contents_of(state), [], missing, unused, notes))
    optimizer = adapter_of(model)
    if optimizer is not None:
        # before the weights: the optimizer refuses what does not fit, and then nothing has changed
        _name_weight_list(state, model, matching, optimizer)
        transfer = optimizer._take_state(state, model.trainable_variables, _slot_pairs(state, model, matching))
        matched, missing, unused = matched + transfer.matched, missing + transfer.missing, unused + transfer.unused
        notes += transfer.notes
    elif state.slots or state.weight_list or state.iterations is not None:
        notes.append("the optimizer's state was ignored: the model is not compiled with a LossScaleOptimizer")
    if with_weights:
        assign_all((live[owner], state.variables[in_file]) for owner, in_file in matching.pairs.items())
    report = RestoreReport(path, contents_of(state), matched, missing, unused, notes)
    if not matched:
        raise _nothing_restored(report)
    return report


def adapter_of(model: Any) -> Optional[OptimizerAdapter]:
    """Return the optimizer of a compiled model if it gives and takes training state; None otherwise."""
    optimizer: Any = getattr(model, "optimizer", None)
    return optimizer if hasattr(optimizer, "_take_state") else None


def _nothing_restored(report: RestoreReport) -> NothingRestoredError:
    return NothingRestoredError(
        f"{report}\nNothing in the file matches this model: build the model that the file was saved from"
    )


def _match(model: Any, live: Dict[str, Any], state: TrainingState) -> Matching:
    if not state.variables:
        return _match_trained(model, state)._replace(missing=[], unused=[])
    shapes = {owner: tuple(variable.shape) for owner, variable in live.items()}
    in_file = {owner: value.shape for owner, value in state.variables.items()}
    return match_owners(shapes, in_file, state.is_ordered)


def _match_trained(model: Any, state: TrainingState) -> Matching:
    """Match by the list of trained variables in scalekeeper's record."""
    return match_owners(shapes_by_owner(model.trainable_variables), state.owners)


def _slot_pairs(state: TrainingState, model: Any, matching: Matching) -> Dict[str, str]:
    """Return owner in the model → owner of slots. In a .keras file variables have numbers, added slots have names."""
    if state.owners and not state.slots.keys() <= state.variables.keys():
        return _match_trained(model, state).pairs
    return matching.pairs


def _name_weight_list(state: TrainingState, model: Any, matching: Matching, optimizer: OptimizerAdapter) -> None:
    """Name the values of a list without names, which has the order of the file's variables."""
    if not state.weight_list:
        return
    expected = optimizer._expected_weights(model.trainable_variables)
    in_model = {owner: own for own, owner in matching.pairs.items()}
    owners = state.variables if state.is_ordered else in_model
    order = [owner for owner in owners if in_model.get(owner) in expected.slots]
    in_order = expected._replace(slots={owner: expected.slots[in_model[owner]] for owner in order})
    named = decode_weights([value.read() for value in state.weight_list], in_order)
    state.slots = slots_in_memory(named.slots)
    state.scalars.update({name: Value.of(value) for name, value in named.scalars.items()})
    state.iterations = named.iterations if state.iterations is None else state.iterations
    state.learning_rate = named.learning_rate if state.learning_rate is None else state.learning_rate
    state.loss_scale_state = state.loss_scale_state or named.state


def contents_of(state: TrainingState) -> List[str]:
    """Return what a training state holds, in a few words each."""
    slots = sum(len(each) for each in state.slots.values())
    numbers = ", ".join(f"{name} {value:g}" for name, value in state.loss_scale_state.items())
    parts: Sequence[Tuple[Any, str]] = (
        (state.variables, f"{len(state.variables)} variables"),
        (slots, f"{slots} slots"),
        (state.iterations is not None, f"iterations {state.iterations}"),
        (state.loss_scale_state, f"loss scale {numbers}"),
    )
    return [text for is_there, text in parts if is_there]
