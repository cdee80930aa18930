"""Slots in a list without names, as plain Keras writes them to ``.keras`` files: which variable each belongs to.

The configuration in the file determines the slots of each variable and their order. The trained variables follow from
the layers that are frozen there, or, without a configuration, from the shapes if only one answer fits. Anything
else is left undecided: the slots are then missing, and a note says why.
"""

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from ..registry.errors import ArgumentError
from ._keras_introspection import all_layers
from ._optimizer_weight_lists import decode_weights
from ._variable_order import is_only_order
from ._variables import by_owner, weights_of
from .keras._optimizer_config import inner_class, inner_config
from .keras.profile import KerasProfile, keras_number, profile_of_inner, profiles
from .optimizer_adapter import OptimizerAdapter
from .training_state import SCALAR, SLOT, TrainingState, Value, slots_in_memory

Shape = Tuple[int, ...]
TRAINED = "optimizer"  # the key of a caller's mapping for the trained variables
_MOMENTUM_CACHE = "momentum_cache"
_UNDECIDED = (
    "The optimizer's slots in the file have no names, and several variables fit them: {}. Freeze the same layers as "
    "when it was saved, or save it with scalekeeper.save_model, which records what each slot belongs to."
)
_UNPROVEN = (
    "The optimizer's slots in the file have no names, and the file does not tell the order of {}. If the program makes "
    'them in the same order as when it was saved, pass mapping={{"optimizer": model.trainable_variables}}; otherwise '
    "list the variables in the order of that time."
)
_BY_ORDER = (
    "The optimizer's slots in the file have no names. They were taken in the order of the model's trainable variables, "
    "as Keras does; a training loop with another order is not recorded in the file."
)

_BY_ORDER_OF_OWN_LOOP = (
    "The model was compiled without a loss, so another loop than that of Keras has trained it. The optimizer's slots "
    "in the file have no names, and were taken in the order of the model's trainable variables. If the loop gave them "
    'in another order, pass mapping={"optimizer": [variables in that order]}.'
)


class _Layout(NamedTuple):
    """How the optimizer of a file lists its variables."""

    profile: KerasProfile
    class_name: str
    arguments: Mapping[str, Any]

    @property
    def before(self) -> int:
        """The number of variables before the slots."""
        rate = self.arguments.get("learning_rate", 0.0)
        return 1 + (self.profile.lists_learning_rate and not isinstance(rate, Mapping))

    @property
    def after(self) -> List[str]:
        """The variables after the slots."""
        return [_MOMENTUM_CACHE] if self.class_name == "Nadam" and self.profile.lists_scalars else []

    def slots(self, shapes: Mapping[str, Shape]) -> Optional[List[Tuple[str, str, Shape]]]:
        """Return owner, slot and shape of each slot in order, for trained variables; None if it is unknown."""
        found = {owner: self._slots_of(shape) for owner, shape in shapes.items()}
        known = {owner: slots for owner, slots in found.items() if slots is not None}
        if len(known) < len(shapes):
            return None
        order = self.profile.ordered_slots(known, self.class_name, list(shapes))
        return [(owner, slot, known[owner][slot]) for owner, slot in order]

    def fits(self, values: Sequence[Value], slots: Sequence[Tuple[str, str, Shape]]) -> bool:
        """Return whether a list holds these slots."""
        shapes = [*[()] * self.before, *(shape for _, _, shape in slots), *[()] * len(self.after)]
        return [value.shape for value in values] == shapes

    def trained_shapes(self, values: Sequence[Value]) -> Optional[List[Shape]]:
        """Return the shapes of the trained variables by the slots in a list; None if they are unknown."""
        whole, single = self._slots_of((2, 2)), self._slots_of((2,))
        if whole is None or single is None or len(whole) != len(single) or not whole:
            return None
        slot = next(name for name, shape in whole.items() if shape == (2, 2))
        count, rest = divmod(len(values) - self.before - len(self.after), len(whole))
        if rest or count < 0:
            return None
        owners = list(map(str, range(count)))
        order = self.profile.ordered_slots(dict.fromkeys(owners, whole), self.class_name, owners)
        found = {owner: values[self.before + index].shape for index, (owner, name) in enumerate(order) if name == slot}
        return [found[owner] for owner in owners]

    def _slots_of(self, shape: Shape) -> Optional[Dict[str, Shape]]:
        return self.profile.listed_slots(self.class_name, self.arguments, shape)


class Order(NamedTuple):
    """The known facts about the order of a model's variables.

    Attributes:
        trained: The owners of the trained variables in order, as the caller says; None if the caller does not.
        may_be_same: Whether the variables of the model may have the order of those in the file.
        is_rebuilt: Whether Keras has rebuilt the model from the file.
    """

    trained: Optional[Sequence[str]] = None
    may_be_same: bool = True
    is_rebuilt: bool = False


def name_weight_list(
    state: TrainingState, model: Any, pairs: Mapping[str, str], optimizer: OptimizerAdapter, order: Order
) -> List[str]:
    """Name the variables in the list of a training state, or note why that is not possible.

    Args:
        state: The state, which is changed.
        model: The model that it is for.
        pairs: Owner in the model → owner in the file.
        optimizer: The adapter of the model's optimizer.
        order: The known facts about the order of the model's variables.

    Returns:
        Assumptions that something in the file contradicts, in sentences.

    Raises:
        ArgumentError: The caller has listed the trained variables, and the file has their names.
    """
    if order.trained is not None and (state.owners or not state.weight_list):
        raise ArgumentError(f"mapping: leave out {TRAINED!r}, as the file records which variable each slot belongs to")
    if not state.weight_list:
        return []
    if order.trained is None:
        possible = dict(state.owners) or _possible(state, model, pairs)
    else:
        possible = {pairs[owner]: state.variables[pairs[owner]].shape for owner in order.trained if owner in pairs}
    is_known = bool(state.owners) or order.trained is not None or len(set(possible.values())) == len(possible)
    if not is_known and not order.may_be_same:
        state.notes.append(_UNDECIDED.format(", ".join(possible)))
        return []
    if not is_known and not order.is_rebuilt and not _is_proven(state, possible):
        state.notes.append(_UNPROVEN.format(", ".join(possible)))
        return []
    choices = [
        (layout, _trained(state, layout, possible) if order.trained is None else list(possible))
        for layout in _layouts(state, optimizer)
    ]
    decided = [(layout, trained) for layout, trained in choices if trained is not None]
    if not decided:
        state.notes.append(_UNDECIDED.format(", ".join(possible)))
    elif not any(
        _take_layout(state, layout, {owner: possible[owner] for owner in trained}) for layout, trained in decided
    ):
        trained = decided[0][1]
        if not _take_like_live(state, model, pairs, optimizer, trained):
            _take_by_search(state, model, pairs, optimizer, trained)
    if not decided or is_known:
        return []
    if state.training_config is not None and not state.training_config.get("loss"):
        return [_BY_ORDER_OF_OWN_LOOP]
    state.notes.append(_BY_ORDER)
    return []


def _is_proven(state: TrainingState, possible: Mapping[str, Shape]) -> bool:
    """Return whether the file proves the order of the variables."""
    if state.is_ordered or not state.positions:
        return True
    return is_only_order([state.positions[owner] for owner in possible], list(possible.values()))


def _layouts(state: TrainingState, optimizer: OptimizerAdapter) -> List[_Layout]:
    """Return how the optimizer of the file may list its variables; the file may lack its configuration."""
    major = keras_number(state.writer.keras)[:1]
    known = [each for each in profiles() if not each.has_slots and (not major or (each.keras_major,) == major)]
    given = inner_config(state.optimizer_config or optimizer._give_state().optimizer_config)
    class_name, arguments = str(inner_class(given)), given.get("config") if isinstance(given, Mapping) else None
    arguments = arguments if isinstance(arguments, Mapping) else {}
    profile = profile_of_inner({"class_name": class_name, "config": arguments})
    known.sort(key=lambda each: each is not profile)
    return [_Layout(each, class_name, arguments) for each in known]


def _take_layout(state: TrainingState, layout: _Layout, trained: Mapping[str, Shape]) -> bool:
    """Name the variables if the list has this layout; return whether it has."""
    slots = layout.slots(trained)
    if slots is None or not layout.fits(state.weight_list, slots):
        return False
    values = state.weight_list[layout.before :]
    for (owner, slot, _), value in zip(slots, values):
        state.slots.setdefault(owner, {})[slot] = value
    state.scalars.update(zip(layout.after, values[len(slots) :]))
    return True


# The trained variables


def _possible(state: TrainingState, model: Any, pairs: Mapping[str, str]) -> Dict[str, Shape]:
    """Return owner in the file → shape of the variables that can be trained, in order."""
    in_model = {owner: own for own, owner in pairs.items()}
    order = list(state.variables) if state.is_ordered else [*in_model]
    variables, trainable = by_owner(weights_of(model)), _can_be_trained(model)
    return {
        owner: state.variables[owner].shape
        for owner in order
        if owner not in in_model or id(variables[in_model[owner]]) in trainable
    }


def _can_be_trained(model: Any) -> Set[int]:
    """Return the ids of the variables that are trained unless a layer is frozen."""
    lists = ("_trainable_weights", "_trainable_variables")  # of Keras 2 and of Keras 3, whether frozen or not
    found = {id(each) for layer in all_layers(model) for name in lists for each in vars(layer).get(name) or ()}
    return found | {id(each) for each in model.trainable_variables}


def _trained(state: TrainingState, layout: _Layout, possible: Mapping[str, Shape]) -> Optional[List[str]]:
    """Return the variables that were trained; None if the file does not tell."""
    if state.owners:  # as scalekeeper has recorded them
        return list(possible)
    frozen = _frozen(state.model_config)
    declared = None if frozen is None else [each for each in possible if not frozen & set(each.split("/"))]
    shapes = layout.trained_shapes(state.weight_list)
    if shapes is None or (declared is not None and [possible[owner] for owner in declared] == shapes):
        return declared
    return _only_embedding(shapes, possible)


def _frozen(config: Any) -> Optional[Set[str]]:
    """Return the names of the layers that are frozen in a model's configuration; None without such a list."""
    inside = config.get("config") if isinstance(config, Mapping) else None
    layers = inside.get("layers") if isinstance(inside, Mapping) else None
    if not isinstance(layers, list) or not isinstance(inside, Mapping):
        return None
    found: Set[str] = set()
    for layer in layers:
        arguments = layer.get("config") if isinstance(layer, Mapping) else None
        if isinstance(arguments, Mapping):
            nested = _layer_names(layer) if arguments.get("trainable") is False else _frozen(layer) or set()
            found |= nested
    return found


def _layer_names(config: Mapping[str, Any]) -> Set[str]:
    """Return the name of a layer, and of the layers in it."""
    inside = config.get("config")
    if not isinstance(inside, Mapping):
        return set()
    layers = inside.get("layers")
    names = {str(inside.get("name"))}
    return names.union(*map(_layer_names, layers)) if isinstance(layers, list) else names


def _only_embedding(shapes: Sequence[Shape], possible: Mapping[str, Shape]) -> Optional[List[str]]:
    """Return the variables with these shapes, in order, if there is only one choice."""
    owners = list(possible)
    first = _greedy(shapes, owners, possible)
    last = _greedy(shapes[::-1], owners[::-1], possible)
    return first if first is not None and last is not None and first == last[::-1] else None


def _greedy(shapes: Sequence[Shape], owners: Sequence[str], possible: Mapping[str, Shape]) -> Optional[List[str]]:
    """Return the earliest variables that have these shapes; the choice is unique if the latest are the same."""
    found: List[str] = []
    for owner in owners:
        if len(found) < len(shapes) and possible[owner] == shapes[len(found)]:
            found.append(owner)
    return found if len(found) == len(shapes) else None


# Optimizers whose slots are not known


def _take_like_live(
    state: TrainingState, model: Any, pairs: Mapping[str, str], optimizer: OptimizerAdapter, trained: Sequence[str]
) -> bool:
    """Name the variables like those of the model's optimizer if it is of the same Keras and trains the same ones."""
    expected = optimizer._expected_weights(model.trainable_variables)
    profile: Any = getattr(optimizer, "_profile", None)
    is_same_keras = profile is not None and (profile.keras_major,) == keras_number(state.writer.keras)[:1]
    live = [owner for owner in expected.owners if owner in pairs]
    if not is_same_keras or [pairs[owner] for owner in live] != list(trained):
        return False
    if [value.shape for value in state.weight_list] != [shape for _, shape in expected.listed]:
        return False
    for (meaning, _), value in zip(expected.listed, state.weight_list):
        if meaning[:1] == (SLOT,):
            state.slots.setdefault(pairs[meaning[1]], {})[meaning[2]] = value
        elif meaning[:1] == (SCALAR,):
            state.scalars[meaning[1]] = value
    return True


def _take_by_search(
    state: TrainingState, model: Any, pairs: Mapping[str, str], optimizer: OptimizerAdapter, trained: Sequence[str]
) -> None:
    """Name the variables by shape, type and sign, if that is possible in one way only."""
    expected = optimizer._expected_weights(model.trainable_variables)
    in_model = {owner: own for own, owner in pairs.items()}
    order = [owner for owner in trained if in_model.get(owner) in expected.slots]
    in_order = expected._replace(slots={owner: expected.slots[in_model[owner]] for owner in order})
    try:
        named = decode_weights([value.read() for value in state.weight_list], in_order)
    except ArgumentError as error:
        state.notes.append(f"The optimizer's slots in the file have no names: {error}")
        return
    state.slots = slots_in_memory(named.slots)
    state.scalars.update({name: Value.of(value) for name, value in named.scalars.items()})
    state.iterations = named.iterations if state.iterations is None else state.iterations
    state.learning_rate = named.learning_rate if state.learning_rate is None else state.learning_rate
    state.loss_scale_state = state.loss_scale_state or named.state
