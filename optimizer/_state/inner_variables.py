"""The variables of the inner optimizer and of the policy, by what they are: slots, scalars, learning rate, state."""

from typing import Any, Dict, List, Mapping, Optional, Sequence

import numpy as np
import tensorflow as tf

from ...serialization._variables import owners_of
from .._keras.policy_config import json_values


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
    if not variables:
        return _slots_by_name(optimizer)
    positions = {id(weight): position for position, weight in enumerate(optimizer.weights)}
    names = optimizer.get_slot_names()
    slots = {}
    for owner, variable in zip(owners_of(variables), variables):
        found = {name: _slot(optimizer, variable, name) for name in names}
        present = {name: slot for name, slot in found.items() if slot is not None}
        if present:
            slots[owner] = dict(sorted(present.items(), key=lambda item: positions.get(id(item[1]), len(positions))))
    return slots


def _slots_by_name(optimizer: Any) -> Dict[str, Dict[str, Any]]:
    """Return the slots of an optimizer whose variables are not known, if they are named as OptimizerV2 names them."""
    slots: Dict[str, Dict[str, Any]] = {}
    names = set(optimizer.get_slot_names())
    for weight in optimizer.weights:
        *owner, slot = _path(weight)
        if slot in names:
            slots.setdefault("/".join(owner), {})[slot] = weight
    return slots


def _path(variable: Any) -> List[str]:
    path: str = getattr(variable, "path", variable.name)
    return path.split(":")[0].split("/")


def _slot(optimizer: Any, variable: Any, name: str) -> Any:
    try:
        return optimizer.get_slot(variable, name)
    except KeyError:  # a variable that the optimizer has not seen
        return None


def scalars_of(optimizer: Any, slots: Mapping[str, Mapping[str, Any]]) -> Dict[str, Any]:
    """Return the inner optimizer's variables other than iterations, learning rate and slots, by name."""
    inner = optimizer.inner_optimizer
    known = {id(inner.iterations), *(id(slot) for each in slots.values() for slot in each.values())}
    found = {_path(weight)[-1]: weight for weight in optimizer.weights if id(weight) not in known}
    # Nadam's momentum product has another name in each generation, and is not always listed.
    products = [getattr(inner, name, None) for name in ("_u_product", "_m_cache")]
    product = next((each for each in products if hasattr(each, "assign")), None)
    if product is not None:
        found = {name: weight for name, weight in found.items() if weight is not product}
        found["momentum_cache"] = product
    return found


def learning_rate_of(optimizer: Any) -> Optional[float]:
    """Return the inner optimizer's learning rate; None for a schedule."""
    rate = json_values(optimizer._serialized_inner())["config"].get("learning_rate")
    return None if isinstance(rate, Mapping) else rate


def has_bare_momentum(optimizer: Any) -> bool:
    """Return whether it is an experimental RMSprop of 2.10, whose momentum does not include the learning rate."""
    classes = type(optimizer.inner_optimizer).__mro__
    return any(cls.__name__ == "RMSprop" and "optimizer_experimental" in cls.__module__ for cls in classes)


def loss_scale_variables(optimizer: Any) -> Dict[str, Any]:
    """Return the variables of the policy, by name."""
    policy = optimizer._graph_policy
    if policy.is_pure:
        return dict(policy.variables)
    weights = getattr(policy.policy, "_weights", None)  # of TensorFlow's own LossScale
    if isinstance(weights, Mapping):
        return {name if isinstance(name, str) else name[0]: variable for name, variable in weights.items()}
    return {name: value for name, value in vars(policy.policy).items() if isinstance(value, tf.Variable)}


def tensorflow_variable(variable: Any) -> Any:
    """Return the TensorFlow variable inside a Keras 3 variable, or the variable itself."""
    return variable if callable(variable.value) else variable.value  # in TensorFlow, ``value`` is a method


def numpy_values(variables: Sequence[Any]) -> List[Any]:
    """Return the values of variables as NumPy arrays."""
    return [np.asarray(variable.numpy()) for variable in variables]
