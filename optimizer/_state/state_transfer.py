"""An optimizer's whole state, given out and taken back in words that belong to no version of Keras."""

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import sys

import numpy as np
import tensorflow as tf

from ...registry._compat import metadata
from ...registry.errors import InvalidSpecError, Problem
from ...serialization._optimizer_weight_lists import Decoded, Expected
from ...serialization._variable_io import assign, value_of
from ...serialization._variable_matching import owners_of
from ...serialization.keras._slot_names import inner_config
from ...serialization.training_state import Contents, Value, Writer
from .._keras.policy_config import json_values
from .._step import gate


def slots_of(optimizer: Any, variables: Sequence[Any]) -> Dict[str, Dict[str, Any]]:
    """Owner → slot → the optimizer's variable; the slots in the order in which the optimizer has them."""
    if not variables:
        return _slots_by_name(optimizer)
    places = {id(weight): place for place, weight in enumerate(optimizer.weights)}
    slots = {}
    for owner, variable in zip(owners_of(variables), variables):
        found = {name: _slot(optimizer, variable, name) for name in optimizer.get_slot_names()}
        present = {name: slot for name, slot in found.items() if slot is not None}
        if present:
            slots[owner] = dict(sorted(present.items(), key=lambda item: places.get(id(item[1]), len(places))))
    return slots


def _slots_by_name(optimizer: Any) -> Dict[str, Dict[str, Any]]:
    """The same for an optimizer whose slots were made behind our back, if they are named as OptimizerV2 does."""
    slots: Dict[str, Dict[str, Any]] = {}
    names = set(optimizer.get_slot_names())
    for weight in optimizer.weights:
        *owner, slot = owners_of([weight])[0].split("/")
        if slot in names:
            slots.setdefault("/".join(owner), {})[slot] = weight
    return slots


def _slot(optimizer: Any, variable: Any, name: str) -> Any:
    try:
        return optimizer.get_slot(variable, name)
    except KeyError:  # of a variable that the optimizer has not met
        return None


def scalars_of(optimizer: Any, slots: Mapping[str, Mapping[str, Any]]) -> Dict[str, Any]:
    """The inner optimizer's variables beside its iterations, its learning rate and its slots, by name."""
    inner = optimizer.inner_optimizer
    known = {id(inner.iterations), *(id(slot) for each in slots.values() for slot in each.values())}
    found = {owners_of([weight])[0].split("/")[-1]: weight for weight in optimizer.weights if id(weight) not in known}
    # Nadam's product of momenta, which it has under another name in each generation, and does not always list
    products = [getattr(inner, name, None) for name in ("_u_product", "_m_cache")]
    product = next((each for each in products if hasattr(each, "assign")), None)
    if product is not None:
        found = {name: weight for name, weight in found.items() if weight is not product}
        found["momentum_cache"] = product
    return found


def learning_rate_of(optimizer: Any) -> Optional[float]:
    """The inner optimizer's learning rate; None for a schedule."""
    rate = json_values(optimizer._serialized_inner())["config"].get("learning_rate")
    return None if isinstance(rate, Mapping) else rate


def loss_scale_variables(policy: Any) -> Dict[str, Any]:
    """The variables of a policy of any kind, by name."""
    if gate.has_pure_step(policy):
        return gate.state_variables(policy)
    theirs = getattr(policy, "_weights", None)  # of TensorFlow's own LossScale
    if isinstance(theirs, Mapping):
        return {name if isinstance(name, str) else name[0]: variable for name, variable in theirs.items()}
    return {name: value for name, value in vars(policy).items() if isinstance(value, tf.Variable)}


def state_numbers(policy: Any) -> Dict[str, Any]:
    """The values of these variables."""
    return {name: value_of(variable).item() for name, variable in loss_scale_variables(policy).items()}


def contents_of(optimizer: Any) -> Contents:
    """Everything that an optimizer would need to go on from here."""
    variables = optimizer._known_variables()
    slots = slots_of(optimizer, variables)
    kept = optimizer._kept() or Contents(Writer("npz"))  # of variables that it has not met again
    owners = {owner: tuple(variable.shape) for owner, variable in zip(owners_of(variables), variables)}
    here = {owner: {name: _lazily(variable) for name, variable in each.items()} for owner, each in slots.items()}
    scalars = {name: _lazily(variable) for name, variable in scalars_of(optimizer, slots).items()}
    return Contents(
        writer=Writer("npz", **versions()),
        optimizer_config=json_values(optimizer._serialized_inner()),
        owners={**owners, **kept.owners},
        slots={**here, **kept.slots},
        scalars={**scalars, **kept.scalars},
        has_bare_momentum=has_bare_momentum(optimizer),
        iterations=int(value_of(optimizer.inner_optimizer.iterations)),
        learning_rate=learning_rate_of(optimizer),
        loss_scale=optimizer._policy_config(),
        loss_scale_state=state_numbers(optimizer.loss_scale),
        skipped_steps=optimizer.skipped_steps,
        skips=optimizer._skips.state(),
    )


def _lazily(variable: Any) -> Value:
    return Value(tuple(variable.shape), tf.as_dtype(variable.dtype).name, lambda: value_of(variable))


def versions() -> Dict[str, str]:
    """Who is writing."""
    # where Keras is a package of its own, TensorFlow's view of it may have no version
    own = sys.modules[tf.keras.Model.__module__.split(".")[0]]
    keras = getattr(tf.keras, "__version__", getattr(own, "__version__", None))
    return {"keras": keras, "tensorflow": tf.__version__, "scalekeeper": metadata.version("scalekeeper")}


class Taken(NamedTuple):
    """What a restore did to an optimizer, by names that a person can read."""

    matched: List[str]
    missing: List[str]
    unused: List[str]
    notes: List[str]


def take(
    optimizer: Any, contents: Contents, variables: Sequence[Any], pairs: Mapping[str, str], is_strict: bool = False
) -> Taken:
    """Put a file's state into an optimizer of these variables; ``pairs`` says which owner of theirs is which there.

    Everything is checked before anything changes. A strict one refuses a state that has too little or too much.
    """
    plan = _Plan()
    make_slots(optimizer, variables)
    slots = slots_of(optimizer, variables)
    owned = _without_idle(slots, optimizer._serialized_inner())
    given = _without_idle(contents.slots, contents.optimizer_config)
    for owner, each in owned.items():
        theirs = given.get(pairs.get(owner, ""), {})
        for name, variable in each.items():
            value = theirs.get(name)
            if value is not None and name == "momentum":
                value = _with_rate(value, contents, optimizer)
            plan.add(f"{owner}: {name}", variable, value)
    used = {(pairs.get(owner), name) for owner, each in owned.items() for name in each}
    plan.unused += [f"{owner}: {name}" for owner, each in given.items() for name in each if (owner, name) not in used]
    others = scalars_of(optimizer, slots)
    for name, variable in others.items():
        plan.add(name, variable, contents.scalars.get(name))
    plan.unused += [name for name in contents.scalars if name not in others]
    iterations = None if contents.iterations is None else Value.of(contents.iterations)
    plan.add("iterations", optimizer.inner_optimizer.iterations, iterations)
    state = loss_scale_variables(optimizer.loss_scale)
    for name, variable in state.items():
        known = contents.loss_scale_state.get(name)
        plan.add(f"loss scale: {name}", variable, None if known is None else Value.of(known))
    plan.unused += [f"loss scale: {name}" for name in contents.loss_scale_state if name not in state]
    if is_strict:
        plan.require_all()
    optimizer._forget_kept()
    plan.carry_out()
    _take_rate(optimizer, contents.learning_rate, plan)
    if contents.skipped_steps is not None:
        optimizer.skipped_steps = contents.skipped_steps
        plan.matched.append("skipped_steps")
    optimizer._skips.load(contents.skips)
    if contents.skips:
        plan.matched.append("skips")
    return Taken(plan.matched, plan.missing, plan.unused, plan.notes)


def has_bare_momentum(optimizer: Any) -> bool:
    """Whether it is RMSprop as 2.10 had it among experimental ones: the learning rate is not in its momentum."""
    classes = type(optimizer.inner_optimizer).__mro__
    return any(cls.__name__ == "RMSprop" and "optimizer_experimental" in cls.__module__ for cls in classes)


def _with_rate(value: Value, contents: Contents, optimizer: Any) -> Value:
    """A momentum as this optimizer has it: with the learning rate in it, or without."""
    if contents.has_bare_momentum == has_bare_momentum(optimizer):
        return value
    rate = learning_rate_of(optimizer) if contents.learning_rate is None else contents.learning_rate
    if not rate:
        raise ValueError(
            "RMSprop's momentum can't be moved between 2.10's experimental optimizers and others with a learning-rate "
            "schedule, as the one has the learning rate in it and the other not: compile with a number"
        )

    def read() -> Any:
        exact = np.asarray(value.read(), np.float64)  # so that there and back again is the same to the bit
        return exact * np.float32(rate) if contents.has_bare_momentum else exact / np.float32(rate)

    return value._replace(read=read)


def _without_idle(slots: Mapping[str, Mapping[str, Any]], config: Any) -> Dict[str, Dict[str, Any]]:
    """Leave out a momentum that is never read: without momentum, some versions of SGD have a slot for it, some not."""
    is_idle = not inner_config(config or {}).get("config", {}).get("momentum", True)
    return {
        owner: {name: slot for name, slot in each.items() if not (is_idle and name == "momentum")}
        for owner, each in slots.items()
    }


def _take_rate(optimizer: Any, rate: Optional[float], plan: "_Plan") -> None:
    if rate is None:
        return
    if learning_rate_of(optimizer) is None:
        plan.notes.append(f"the file's learning rate, {rate:g}, was left alone: the optimizer has a schedule")
    else:
        optimizer.inner_optimizer.learning_rate = rate
        plan.matched.append("learning_rate")


def make_slots(optimizer: Any, variables: Sequence[Any]) -> None:
    """Make the inner optimizer's variables where these ones live, if they are not there yet."""
    if not variables:
        return
    strategy = getattr(tensorflow_variable(variables[0]), "distribute_strategy", None)
    with tf.init_scope(), (strategy or tf.distribute.get_strategy()).scope():
        optimizer._make_variables(variables)
    optimizer._remember(variables)


def tensorflow_variable(variable: Any) -> Any:
    """TensorFlow's variable inside a Keras 3 variable; TensorFlow's own has a method of that name."""
    return variable if callable(variable.value) else variable.value


class _Plan:
    """What is to be assigned, and what can't be."""

    def __init__(self) -> None:
        self.matched: List[str] = []
        self.missing: List[str] = []
        self.unused: List[str] = []
        self.notes: List[str] = []
        self._values: List[Tuple[Any, Value]] = []

    def add(self, name: str, variable: Any, value: Optional[Value]) -> None:
        if value is None:
            self.missing.append(name)
        elif tuple(variable.shape) != tuple(value.shape):
            raise ValueError(
                f"{name}: the file has an array of shape {tuple(value.shape)} where the optimizer has one of "
                f"{tuple(variable.shape)}: the file belongs to another model"
            )
        else:
            self.matched.append(name)
            self._values.append((variable, value))

    def require_all(self) -> None:
        problems = [Problem((name,), "not in the given state", "missing") for name in self.missing]
        problems += [Problem((name,), "the optimizer has no place for it", "unused", True) for name in self.unused]
        if problems:
            raise InvalidSpecError(problems)

    def carry_out(self) -> None:
        for variable, value in self._values:
            assign(variable, value.read())


def expected_of(optimizer: Any) -> Expected:
    """What a list of weights may hold."""
    variables = optimizer._known_variables()
    slots = slots_of(optimizer, variables)
    kinds = {
        name: tf.as_dtype(variable.dtype).as_numpy_dtype(0).dtype.kind
        for name, variable in optimizer._ordered_state().items()
    }
    return Expected(
        owners={owner: tuple(next(iter(each.values())).shape) for owner, each in slots.items()},
        slots={
            owner: {name: tuple(variable.shape) for name, variable in each.items()} for owner, each in slots.items()
        },
        scalars=list(scalars_of(optimizer, slots)),
        state=kinds,
    )


def contents_of_list(decoded: Decoded) -> Contents:
    """What a list of weights holds."""
    return Contents(
        writer=Writer("list"),
        slots={
            owner: {name: Value.of(value) for name, value in slots.items()} for owner, slots in decoded.slots.items()
        },
        scalars={name: Value.of(value) for name, value in decoded.scalars.items()},
        iterations=decoded.iterations,
        learning_rate=decoded.learning_rate,
        loss_scale_state=decoded.state,
    )
