"""Put what a file holds into a model that was built in code, and say what was found."""

from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from ..registry.errors import NothingRestoredError
from ._file_cache import kept_open
from ._optimizer_weight_lists import Expected, decoded
from ._variable_io import assign
from ._variable_matching import Matching, match_owners, owners_of
from .formats.detection import read
from .training_state import Contents, Value


class RestoreReport(NamedTuple):
    """What a restore found in a file and did with it; printed, it is a table."""

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
    """Put weights and optimizer state from any file into a model, and report what was found, matched, missing, unused.

    The file is an H5 model, a SavedModel, a ``.keras`` file, a checkpoint, or what ``save_state`` wrote, by any version
    of TensorFlow. The model is built and, for its optimizer's state to be restored, compiled with a
    :class:`LossScaleOptimizer`. Variables are matched by name and structure, slots by the variable they belong to. A
    restore that matches nothing is an error.
    """
    inner = getattr(getattr(model, "optimizer", None), "inner_optimizer", None)
    contents = read(path, None if inner is None else type(inner).__name__)
    report = restore_contents(model, contents, str(path))
    if verbose:
        print(report)
    return report


@kept_open()
def restore_contents(model: Any, contents: Contents, path: str, with_weights: bool = True) -> RestoreReport:
    """The same from what was read already; or for the optimizer alone, of a model whose weights are there."""
    live = _owners(model.weights)
    shapes = {owner: tuple(variable.shape) for owner, variable in live.items()}
    if contents.variables:
        in_file = {owner: value.shape for owner, value in contents.variables.items()}
        matching = match_owners(shapes, in_file, contents.is_ordered)
    else:
        matching = _match_trained(model, contents)._replace(missing=[], unused=[])
    matched: List[str] = []
    missing, unused, notes = list(matching.missing), list(matching.unused), list(contents.notes)
    if not matching.pairs and (contents.variables or contents.owners):
        raise _nothing_restored(RestoreReport(path, found_in(contents), matched, missing, unused, notes))
    if with_weights and contents.variables:
        matched += matching.pairs
    optimizer: Any = getattr(model, "optimizer", None)
    if hasattr(optimizer, "_take"):
        # before the weights: it refuses what does not fit, and then nothing has changed
        _name_the_list(contents, model, matching, optimizer)
        taken = optimizer._take(contents, model.trainable_variables, _pairs_of_slots(contents, model, matching))
        matched, missing, unused = matched + taken.matched, missing + taken.missing, unused + taken.unused
        notes += taken.notes
    elif _holds_an_optimizer(contents):
        notes.append("the optimizer's state was left alone: the model is not compiled with a LossScaleOptimizer")
    if with_weights and contents.variables:
        for owner, theirs in matching.pairs.items():
            assign(live[owner], contents.variables[theirs].read())
    report = RestoreReport(path, found_in(contents), matched, missing, unused, notes)
    if not matched:
        raise _nothing_restored(report)
    return report


def _nothing_restored(report: RestoreReport) -> NothingRestoredError:
    return NothingRestoredError(
        f"{report}\nNothing in the file fits this model: build the model that the file was saved from"
    )


def _match_trained(model: Any, contents: Contents) -> Matching:
    """By the list of trained variables that ours adds to a file."""
    trained = _owners(model.trainable_variables)
    return match_owners({owner: tuple(each.shape) for owner, each in trained.items()}, contents.owners)


def _pairs_of_slots(contents: Contents, model: Any, matching: Matching) -> Dict[str, str]:
    """A .keras file numbers the variables of its layers, while the slots that ours adds have their owners' names."""
    if contents.owners and not contents.slots.keys() <= contents.variables.keys():
        return _match_trained(model, contents).pairs
    return matching.pairs


def _owners(variables: Sequence[Any]) -> Dict[str, Any]:
    return dict(zip(owners_of(variables), variables))


def _name_the_list(contents: Contents, model: Any, matching: Matching, optimizer: Any) -> None:
    """Where a file has the optimizer's variables in a list without names: they follow the file's own order."""
    if not contents.weight_list:
        return
    expected: Expected = optimizer._expected(model.trainable_variables)
    in_file = {theirs: ours for ours, theirs in matching.pairs.items()}
    owners = contents.variables if contents.is_ordered else in_file
    order = [owner for owner in owners if in_file.get(owner) in expected.slots]
    in_order = expected._replace(slots={owner: expected.slots[in_file[owner]] for owner in order})
    named = decoded([value.read() for value in contents.weight_list], in_order)
    contents.slots = {
        owner: {name: Value.of(value) for name, value in slots.items()} for owner, slots in named.slots.items()
    }
    contents.scalars.update({name: Value.of(value) for name, value in named.scalars.items()})
    contents.iterations = named.iterations if contents.iterations is None else contents.iterations
    contents.learning_rate = named.learning_rate if contents.learning_rate is None else contents.learning_rate
    contents.loss_scale_state = contents.loss_scale_state or named.state


def _holds_an_optimizer(contents: Contents) -> bool:
    return bool(contents.slots or contents.weight_list or contents.iterations is not None)


def found_in(contents: Contents) -> List[str]:
    """What a file holds, in a few words each."""
    slots = sum(len(each) for each in contents.slots.values())
    parts: Sequence[Tuple[Any, str]] = (
        (contents.variables, f"{len(contents.variables)} variables"),
        (slots, f"{slots} slots"),
        (contents.iterations is not None, f"iterations {contents.iterations}"),
        (contents.loss_scale_state, f"loss scale {_written(contents.loss_scale_state)}"),
    )
    return [words for is_there, words in parts if is_there]


def _written(state: Dict[str, Any]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in state.items())
