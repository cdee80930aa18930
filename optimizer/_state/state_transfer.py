"""The training state of a LossScaleOptimizer in its variables: given out and taken over, in every Keras generation."""

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

import dataclasses
import sys
import warnings

import numpy as np
import tensorflow as tf

from ...registry._compat import metadata
from ...registry.errors import ArgumentError, AssumedOrderWarning, Problem, StateMismatchError
from ...serialization._keras_introspection import numbers_chosen_names
from ...serialization._keras_saving import KEY
from ...serialization._matching import ORDER, Matching, match_owners
from ...serialization._optimizer_weight_lists import Expected, decode_weights
from ...serialization._variables import (
    assign_all,
    lazy_slots,
    lazy_values,
    owners_of,
    shapes_by_owner,
    value_of,
    values_of,
)
from ...serialization.keras._optimizer_config import inner_class, inner_config
from ...serialization.optimizer_adapter import Transfer
from ...serialization.training_state import (
    LOSS_SCALE,
    SCALAR,
    SLOT,
    TrainingState,
    Value,
    Writer,
    record_of,
    scaled_momentum,
    slots_in_memory,
    state_of_dict,
)
from .._keras.config_objects import json_values
from .inventory import (
    ITERATIONS,
    MOMENTUM_CACHE,
    RATE,
    Inventory,
    checkpoint_names,
    identity,
    inventory,
    iterations_of,
    nested_adapters,
    rate_of,
)

PENDING = "_scalekeeper_pending"


def installed_versions() -> Dict[str, str]:
    """Return the versions of Keras, TensorFlow and scalekeeper."""
    # Where Keras is a package of its own, tf.keras may lack a version.
    package = sys.modules[tf.keras.Model.__module__.split(".")[0]]
    keras = getattr(tf.keras, "__version__", getattr(package, "__version__", None))
    return {"keras": keras, "tensorflow": tf.__version__, "scalekeeper": metadata.version("scalekeeper")}


# The variables of the inner optimizer and of the policy, by what they are


def create_slots(optimizer: Any, variables: Sequence[Any]) -> None:
    """Create the inner optimizer's variables for these ones, under their strategy, if they do not exist."""
    if not variables:
        return
    strategy = getattr(tensorflow_variable(variables[0]), "distribute_strategy", None)
    with tf.init_scope(), (strategy or tf.distribute.get_strategy()).scope():
        optimizer._make_variables(variables)
    optimizer._remember(variables)


def slots_of(optimizer: Any, variables: Sequence[Any]) -> Dict[str, Dict[str, Any]]:
    """Return owner → slot → the optimizer's variable, the slots in the order in which the optimizer lists them."""
    return inventory(optimizer, variables, with_strangers=not variables).slots


def learning_rate_of(optimizer: Any) -> Optional[float]:
    """Return the inner optimizer's learning rate; None for a schedule.

    The configuration of a user's own class may repeat the argument instead of the variable's value.
    """
    variable = rate_of(optimizer.inner_optimizer)
    if variable is not None:
        return float(value_of(variable))
    rate = json_values(optimizer._serialized_inner())["config"].get("learning_rate")
    return None if isinstance(rate, Mapping) else rate


def has_bare_momentum(optimizer: Any) -> bool:
    """Return whether it is an experimental RMSprop of 2.9 or 2.10, whose momentum has no learning rate in it.

    In 2.11, where the new optimizers are the default ones, the module has the same name and the momentum has it.
    """
    if hasattr(tf.keras.optimizers.SGD, "update_step"):
        return False
    classes = type(optimizer.inner_optimizer).__mro__
    return any(cls.__name__ == "RMSprop" and "optimizer_experimental" in cls.__module__ for cls in classes)


def loss_scale_variables(optimizer: Any) -> Dict[str, Any]:
    """Return the variables of the policy, by name."""
    policy = optimizer._graph_policy
    if policy.is_pure:
        return dict(policy.variables)
    return variables_of_policy(policy.policy)


def variables_of_policy(policy: Any) -> Dict[str, Any]:
    """Return the variables of a loss scale that keeps them itself, such as TensorFlow's own, by name."""
    weights = getattr(policy, "_weights", None)
    if isinstance(weights, Mapping):
        return {name if isinstance(name, str) else name[0]: variable for name, variable in weights.items()}
    return {name: value for name, value in vars(policy).items() if isinstance(value, tf.Variable)}


def tensorflow_variable(variable: Any) -> Any:
    """Return the TensorFlow variable inside a Keras 3 variable, or the variable itself."""
    return variable if callable(variable.value) else variable.value  # in TensorFlow, ``value`` is a method


def numpy_values(variables: Sequence[Any]) -> List[Any]:
    """Return the values of variables as NumPy arrays."""
    return [np.asarray(variable.numpy()) for variable in variables]


# A state whose slots wait for their variables


def pending_state(optimizer: Any) -> Optional[TrainingState]:
    """Return the state of variables that a copied optimizer has not seen yet, if there is one."""
    state: Optional[TrainingState] = vars(optimizer).get(PENDING)
    return state


def set_pending_state(optimizer: Any, state: Optional[TrainingState]) -> None:
    """Keep a state until its variables are known; None drops it."""
    vars(optimizer).pop(PENDING, None)
    if state is not None:
        # In __dict__, because Keras saves what it finds in an attribute.
        vars(optimizer)[PENDING] = state


# Giving


def state_values(optimizer: Any) -> Dict[str, Any]:
    """Return the state of the policy as plain numbers."""
    variables = loss_scale_variables(optimizer)
    return {name: value.item() for name, value in zip(variables, values_of(variables.values()))}


def give_state(optimizer: Any) -> TrainingState:
    """Return the training state of an optimizer and its loss scale; arrays are read when they are needed."""
    variables = optimizer._known_variables()
    found = inventory(optimizer, variables, with_strangers=True)
    pending = pending_state(optimizer) or TrainingState(Writer("npz"))
    here, scalars = lazy_slots(found.slots), lazy_values(found.others)
    strangers = {owner: next(iter(each.values())).shape for owner, each in here.items()}
    return TrainingState(
        writer=Writer("npz", **installed_versions()),
        optimizer_config=json_values(optimizer._serialized_inner()),
        owners={**strangers, **shapes_by_owner(variables), **pending.owners},
        slots={**here, **pending.slots},
        scalars={**scalars, **pending.scalars},
        listed=_meanings(optimizer, found, optimizer._listed_variables()),
        has_bare_momentum=has_bare_momentum(optimizer),
        iterations=int(values_of([iterations_of(optimizer.inner_optimizer)])[0]),
        learning_rate=learning_rate_of(optimizer),
        loss_scale=optimizer._policy_config(),
        loss_scale_state=state_values(optimizer),
    )


def _meanings(optimizer: Any, found: Inventory, variables: Sequence[Any]) -> List[Tuple[str, ...]]:
    """Return what each of these variables is."""
    inner = optimizer.inner_optimizer
    meanings: Dict[int, Tuple[str, ...]] = {identity(iterations_of(inner)): (ITERATIONS,)}
    meanings.update({identity(rate): (RATE,) for rate in [rate_of(inner)] if rate is not None})
    meanings.update({identity(each): (LOSS_SCALE, name) for name, each in loss_scale_variables(optimizer).items()})
    meanings.update({identity(each): (SCALAR, name) for name, each in found.others.items()})
    for owner, slots in found.slots.items():
        meanings.update({identity(slot): (SLOT, owner, name) for name, slot in slots.items()})
    return [meanings.get(identity(variable), ()) for variable in variables]


def state_for_keras(optimizer: Any, file_format: str) -> Dict[str, Any]:
    """Return what a file of Keras's own ``model.save`` holds of the state, beside the inner optimizer's configuration.

    Keras calls this through ``get_config``.
    """
    if not tf.executing_eagerly():
        return {}
    if file_format == "keras" and not hasattr(optimizer, "save_own_variables"):
        warnings.warn(
            "Keras writes no iterations and slots of a legacy optimizer to a .keras file: save the model with "
            "scalekeeper.save_model or scalekeeper.ModelCheckpoint, or as H5",
            stacklevel=3,
        )
    return {KEY: {**record_of(give_state(optimizer)), "optimizer": None}}


def expected_weights(optimizer: Any) -> Expected:
    """Return what a list of weights for this optimizer may hold."""
    found = inventory(optimizer, optimizer._known_variables(), with_strangers=True)
    listed, inner = {identity(weight) for weight in optimizer.weights}, optimizer._variables_of_inner()
    slots: Dict[str, Dict[str, Tuple[int, ...]]] = {}
    for owner, each in found.slots.items():
        for name, variable in each.items():
            if identity(variable) in listed:
                slots.setdefault(owner, {})[name] = tuple(variable.shape)
    state = {
        name: tf.as_dtype(variable.dtype).as_numpy_dtype(0).dtype.kind
        for name, variable in _in_order_of_keras_3(optimizer._graph_policy.variables).items()
    }
    return Expected(
        owners={owner: next(iter(each.values())) for owner, each in slots.items()},
        slots=slots,
        scalars=[name for name, each in found.others.items() if identity(each) in listed or name == MOMENTUM_CACHE],
        state=state,
        listed=list(zip(_meanings(optimizer, found, inner), (tuple(each.shape) for each in inner))),
    )


def _in_order_of_keras_3(state: Mapping[str, Any]) -> Dict[str, Any]:
    first = [name for name in ("good_steps", "current_loss_scale") if name in state]
    return {name: state[name] for name in (*first, *(each for each in state if each not in first))}


# Taking


def take_state(
    optimizer: Any,
    state: TrainingState,
    variables: Sequence[Any],
    pairs: Mapping[str, str],
    is_strict: bool = False,
    check: Optional[Callable[[Transfer], None]] = None,
) -> Transfer:
    """Restore a training state into an optimizer, by the pairs of variable → its name in the state.

    Everything is checked before anything changes; ``is_strict`` refuses a state that lacks something or has too much,
    and ``check`` may refuse what it likes.
    """
    create_slots(optimizer, variables)
    state = _with_own_names(optimizer, state)
    _create_nested_slots(optimizer, state, variables, pairs)
    plan = _plan(optimizer, state, inventory(optimizer, variables, with_strangers=not variables), pairs)
    if is_strict:
        plan.require_complete()
    if check is not None:
        check(plan.transfer())
    set_pending_state(optimizer, None)
    plan.assign_all()
    _take_learning_rate(optimizer, state, plan)
    plan.matched += optimizer._take_skips(state)
    return plan.transfer()


def _create_nested_slots(
    optimizer: Any, state: TrainingState, variables: Sequence[Any], pairs: Mapping[str, str]
) -> None:
    """Create the variables of optimizers inside that a state has; some optimizers create them in the first step."""
    for path, nested in nested_adapters(optimizer).items():
        of_owner = {
            owner: any(_is_in(path, name) for name in state.slots.get(pairs.get(owner, ""), ()))
            for owner in owners_of(variables)
        }
        if any(of_owner.values()):
            create_slots(nested, [each for each, has_slot in zip(variables, of_owner.values()) if has_slot])
        elif any(_is_in(path, name) for name in state.scalars) and hasattr(nested.inner_optimizer, "_create_hypers"):
            nested.inner_optimizer._create_hypers()


def _with_own_names(optimizer: Any, state: TrainingState) -> TrainingState:
    """Return a state in which optimizers inside have the names of attributes, and not those of a checkpoint's children.

    Optimizers with slots are not tracked by their attributes, so classes choose the names of these children.
    """
    names = {child: path for child, path in checkpoint_names(optimizer).items() if child != path}
    known = {name.rpartition(".")[0] for each in (*state.slots.values(), state.scalars) for name in each}
    names = {child: path for child, path in names.items() if path not in known}
    if not names.keys() & known:
        return state

    def renamed(values: Mapping[str, Value]) -> Dict[str, Value]:
        split = ((name.rpartition("."), value) for name, value in values.items())
        return {names.get(path, path) + dot + last: value for (path, dot, last), value in split}

    slots = {owner: renamed(each) for owner, each in state.slots.items()}
    return dataclasses.replace(state, slots=slots, scalars=renamed(state.scalars))


def _is_in(path: str, name: str) -> bool:
    return name.rpartition(".")[0] == path


def take_state_dict(optimizer: Any, given: Mapping[str, Any], variables: Optional[Sequence[Any]]) -> None:
    """Restore what ``state_dict`` returned; see ``LossScaleOptimizer.load_state_dict``."""
    state = state_of_dict(given)
    variables = list(optimizer._known_variables() if variables is None else variables)
    if state.slots and not variables:
        raise ArgumentError(
            "the optimizer has taken no step, so pass its variables: load_state_dict(state, model.trainable_variables)"
        )
    matching = match_owners(shapes_by_owner(variables), state.owners, is_whole=None, has_numbers=numbers_chosen_names())
    problems = [Problem((owner,), "the state has no such variable", "missing") for owner in matching.missing]
    problems += [Problem((owner,), "the optimizer has no such variable", "unused") for owner in matching.unused]
    if problems:
        raise StateMismatchError(problems)
    take_state(optimizer, state, variables, matching.pairs, is_strict=True)
    assumed = _assumed_layers(matching, shapes_by_owner(variables))
    if assumed:
        message = (
            f"{', '.join(assumed)}: Keras has numbered these layers, and a state has no attributes or connections. "
            "They were taken by their numbers. If the program creates them in another order than the one that gave the "
            "state, they are exchanged: name the layers, or use save_state and restore(model, path)"
        )
        warnings.warn(message, AssumedOrderWarning, stacklevel=3)


def _assumed_layers(matching: Matching, shapes: Mapping[str, Tuple[int, ...]]) -> List[str]:
    """Return the layers of equal shapes that only the numbers of Keras tell apart."""
    layers: Dict[str, List[Tuple[int, ...]]] = {}
    for owner, rule in matching.rules.items():
        if rule == ORDER:
            layers.setdefault(owner.rpartition("/")[0], []).append(shapes[owner])
    own = list(layers.values())
    return [layer for layer, each in layers.items() if own.count(each) > 1]


def take_weights(optimizer: Any, weights: Sequence[Any], layout: Optional[str]) -> None:
    """Restore a list of weights; see ``LossScaleOptimizer.set_weights``."""
    expected = expected_weights(optimizer)
    named = decode_weights(weights, expected, layout)
    state = TrainingState(
        writer=Writer("list"),
        slots=slots_in_memory(named.slots),
        scalars={name: Value.of(value) for name, value in named.scalars.items()},
        iterations=named.iterations,
        learning_rate=named.learning_rate,
        loss_scale_state=named.state,
    )
    take_state(optimizer, state, optimizer._known_variables(), {owner: owner for owner in expected.slots})


class _Plan:
    """The assignments of a restore, and what cannot be assigned."""

    def __init__(self) -> None:
        self.matched: List[str] = []
        self.missing: List[str] = []
        self.unused: List[str] = []
        self.notes: List[str] = []
        self.missing_slots: List[str] = []
        self._values: List[Tuple[Any, Any]] = []

    def transfer(self) -> Transfer:
        return Transfer(self.matched, self.missing, self.unused, self.notes, self.missing_slots)

    def add_slot(self, owner: str, slot: str, variable: Any, value: Any) -> None:
        """Plan to assign a slot."""
        name = f"{owner}: {slot}"
        self.add(name, variable, value)
        if value is None:
            self.missing_slots.append(name)

    def add(self, name: str, variable: Any, value: Any) -> None:
        """Plan to assign a value or a number; None if the state has none."""
        shape = tuple(value.shape) if isinstance(value, Value) else ()
        if value is None:
            self.missing.append(name)
        elif tuple(variable.shape) != shape:
            message = (
                f"the file has an array of shape {shape} where the optimizer has one of "
                f"{tuple(variable.shape)}: the file belongs to another model"
            )
            raise StateMismatchError([Problem((name,), message, "shape")])
        else:
            self.matched.append(name)
            self._values.append((variable, value))

    def require_complete(self) -> None:
        problems = [Problem((name,), "not in the given state", "missing") for name in self.missing]
        problems += [Problem((name,), "not a variable of the optimizer", "unused", True) for name in self.unused]
        if problems:
            raise StateMismatchError(problems)

    def assign_all(self) -> None:
        assign_all(self._values)


def _plan(optimizer: Any, state: TrainingState, here: Inventory, pairs: Mapping[str, str]) -> _Plan:
    """Find a value for each variable of the optimizer and of its policy."""
    plan = _Plan()
    is_unused_here = _unused_slots(optimizer._serialized_inner())
    is_unused_there = _unused_slots(state.optimizer_config)
    for owner, each in here.slots.items():
        values = state.slots.get(pairs.get(owner, ""), {})
        for name, variable in each.items():
            slot = values.get(name)
            if slot is not None and name == "momentum":
                slot = _convert_momentum(slot, state, optimizer)
            if slot is not None or not is_unused_here(name, variable.shape):
                plan.add_slot(owner, name, variable, slot)
    used = {(pairs.get(owner), name) for owner, each in here.slots.items() for name in each}
    plan.unused += [
        f"{owner}: {name}"
        for owner, each in state.slots.items()
        for name, slot in each.items()
        if (owner, name) not in used and not is_unused_there(name, slot.shape)
    ]
    holds_all = state.writer.scalekeeper is not None
    shared = _iterations_inside(optimizer) if holds_all else {}
    for name, variable in here.others.items():
        value: Any = state.scalars.get(name)
        if value is None and name == MOMENTUM_CACHE:
            value = _product_of_momenta(state, plan)
        elif value is None and identity(variable) in shared.values():  # a state has a shared variable once
            value = state.iterations
        plan.add(name, variable, value)
    # in a checkpoint, hyperparameters are variables, too; the configuration decides about them
    arguments = _arguments(optimizer)
    unused = (name for name in state.scalars if name not in here.others and name not in arguments)
    plan.unused += [name for name in unused if not _is_shared_count(optimizer, state, name)]
    plan.add("iterations", iterations_of(optimizer.inner_optimizer), state.iterations)
    loss_scale = loss_scale_variables(optimizer)
    for name, variable in loss_scale.items():
        plan.add(f"loss scale: {name}", variable, state.loss_scale_state.get(name))
    plan.unused += [f"loss scale: {name}" for name in state.loss_scale_state if name not in loss_scale]
    return plan


def _arguments(optimizer: Any) -> Set[str]:
    """Return the arguments in the configurations of an optimizer and of those inside it."""
    found = set(inner_config(optimizer._serialized_inner())["config"])
    for path, nested in nested_adapters(optimizer).items():
        found.update(f"{path}.{name}" for name in inner_config(nested._serialized_inner())["config"])
    return found


def _iterations_inside(optimizer: Any) -> Dict[str, int]:
    """Return name → identity of the iterations of optimizers inside, which some share from the first step on."""
    nested = nested_adapters(optimizer)
    return {f"{path}.{ITERATIONS}": identity(iterations_of(each.inner_optimizer)) for path, each in nested.items()}


def _is_shared_count(optimizer: Any, state: TrainingState, name: str) -> bool:
    """Return whether an entry is the iterations of an optimizer inside, which shares those of the outer one."""
    own = identity(iterations_of(optimizer.inner_optimizer))
    is_shared = _iterations_inside(optimizer).get(name) == own
    return is_shared and state.iterations == int(state.scalars[name].read())


def _convert_momentum(value: Value, state: TrainingState, optimizer: Any) -> Value:
    """Return a momentum as this optimizer keeps it: including the learning rate, or not."""
    if state.has_bare_momentum == has_bare_momentum(optimizer):
        return value
    rate = learning_rate_of(optimizer) if state.learning_rate is None else state.learning_rate
    if not rate:
        message = (
            "RMSprop's momentum can't be moved between the experimental optimizers of 2.10 and others with a "
            "learning-rate schedule, because only one of them includes the learning rate: compile with a number"
        )
        raise StateMismatchError([Problem(("momentum",), message, "learning_rate")])
    return scaled_momentum(value, rate, divide=not state.has_bare_momentum)


def _product_of_momenta(state: TrainingState, plan: _Plan) -> Optional[float]:
    """Return Nadam's product of momenta after the iterations of a state, rounded as TF 2.11 to 2.15 compute it.

    These versions do not write it to files.
    """
    config = inner_config(state.optimizer_config or {})
    if state.iterations is None or inner_class(state.optimizer_config) != "Nadam":
        return None
    arguments = config.get("config", {})
    speed = np.float32(arguments.get("decay", 1.0))  # of the legacy optimizers; the others have no such argument
    beta, product, warming = np.float32(arguments.get("beta_1", 0.9)), np.float32(1), np.float32(1)
    for step in range(1, state.iterations + 1):
        if product == 0:
            break
        if warming > np.finfo(np.float32).eps / 2:  # one power at a time: TensorFlow rounds those of a vector otherwise
            warming = np.float32(value_of(tf.pow(np.float32(0.96), speed * np.float32(step))))
        product = product * (beta * (np.float32(1) - np.float32(0.5) * warming))
    plan.notes.append("Nadam's product of momenta is not in the file: it was computed from the iterations.")
    return float(product)


def _unused_slots(config: Any) -> Callable[[str, Any], bool]:
    """Return a function that tells whether a slot of this name and shape is never read, so that some versions lack it.

    It is SGD's momentum if that is zero, and Adafactor's placeholder for a variable that it does not factor.
    """
    inner = inner_config(config or {})
    has_momentum = inner.get("config", {}).get("momentum", True)
    is_adafactor = inner_class(config or {}) == "Adafactor"
    return lambda name, shape: (
        (name == "momentum" and not has_momentum) or (is_adafactor and name in ("r", "c") and len(shape) == 0)
    )


def _take_learning_rate(optimizer: Any, state: TrainingState, plan: _Plan) -> None:
    rate = state.learning_rate
    if rate is None:
        arguments = inner_config(state.optimizer_config or {}).get("config", {})
        is_schedule = isinstance(arguments.get("learning_rate"), Mapping)
        if state.iterations is not None and not is_schedule and learning_rate_of(optimizer) is not None:
            plan.missing.append("learning_rate")
    elif learning_rate_of(optimizer) is None:
        plan.notes.append(f"the file's learning rate, {rate:g}, was left alone: the optimizer has a schedule")
    else:
        optimizer.inner_optimizer.learning_rate = rate
        plan.matched.append("learning_rate")
