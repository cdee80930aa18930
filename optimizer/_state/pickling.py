"""Copies of a LossScaleOptimizer, by ``copy`` and by ``pickle``.

Keras's optimizers hold TensorFlow objects that some versions cannot copy, and other versions copy only part of the
state. So a copy is constructed anew: from the class and configuration of the inner optimizer, the policy, and the whole
training state. A slot belongs to a variable. In another process the variables come with the first step; until then, the
copy keeps the slots as a pending state.
"""

from typing import Any, Dict, Mapping, Sequence, Tuple

import copy
import dataclasses
import types

import numpy as np
import tensorflow as tf

from ...registry.errors import Problem, StateMismatchError, UnsupportedOperationError
from ...serialization._keras_introspection import numbers_chosen_names, package_of
from ...serialization._matching import match_owners
from ...serialization._variables import owners_of
from ...serialization.keras._optimizer_config import unknown_entries
from ...serialization.training_state import TrainingState, state_dict_of, state_of_dict
from .._keras.config_objects import json_values
from .._keras.keras_dispatch import KERAS_PACKAGES
from .._step.replicas import can_merge_replicas
from .incomplete_configs import attributes_to_copy
from .state_transfer import create_slots, pending_state, set_pending_state, take_state


def deep_copy(optimizer: Any, memo: Dict[int, Any]) -> Any:
    """Copy an optimizer with its state, for the same variables, or for their copies if they are copied too."""
    twin = memo[id(optimizer)] = _construct(*copy.deepcopy(_parts(optimizer), memo))
    twin.__setstate__(state_dict_of(optimizer._give_state()))
    variables = [memo.get(id(variable), variable) for variable in optimizer._known_variables()]
    create_slots(twin, variables)
    if pending_state(twin) is not None:
        fill_pending_slots(twin, variables)
    return twin


def reduce(optimizer: Any) -> Tuple[Any, ...]:
    """Return what ``__reduce_ex__`` returns: how to construct the optimizer, and its state."""
    return _construct, _parts(optimizer), state_dict_of(optimizer._give_state())


def set_state(optimizer: Any, given: Dict[str, Any]) -> None:
    """Restore a pickled state; its slots wait until their variables are known."""
    state = state_of_dict(given)
    take_state(optimizer, state, (), {})
    if state.slots or state.scalars:
        set_pending_state(optimizer, state)


def fill_pending_slots(optimizer: Any, variables: Sequence[Any]) -> None:
    """Restore the slots of these variables from the pending state; the slots exist already."""
    if tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context():
        if not can_merge_replicas():
            raise UnsupportedOperationError(
                "a copied optimizer restores its slots in the first step, which is not possible in replicas that XLA "
                "compiles: before it, call "
                "optimizer.load_state_dict(optimizer.state_dict(), model.trainable_variables)"
            )
        tf.distribute.get_replica_context().merge_call(lambda strategy: _fill(optimizer, variables))
    else:
        _fill(optimizer, variables)


def _fill(optimizer: Any, variables: Sequence[Any]) -> None:
    pending = pending_state(optimizer)
    if pending is None:
        return
    shapes = {owner: tuple(variable.shape) for owner, variable in zip(owners_of(variables), variables)}
    matching = match_owners(shapes, pending.owners, is_whole=None, has_numbers=numbers_chosen_names())
    if pending.owners and not matching.pairs:
        problems = [Problem((owner,), "the copied optimizer has no such variable", "missing") for owner in shapes]
        raise StateMismatchError(problems)
    set_pending_state(optimizer, None)
    slots = {owner: pending.slots[theirs] for owner, theirs in matching.pairs.items() if theirs in pending.slots}
    with tf.init_scope():  # the first step may be being traced
        now = optimizer._give_state()
        state = dataclasses.replace(now, slots={**now.slots, **slots}, scalars=pending.scalars or now.scalars)
        take_state(optimizer, state, optimizer._known_variables(), {owner: owner for owner in now.owners})
    _keep_rest(optimizer, pending, matching.unused)


def _keep_rest(optimizer: Any, pending: TrainingState, unused: Sequence[str]) -> None:
    """Keep the slots of other variables: a training may use one part of its variables first, and then another."""
    owners = {owner: shape for owner, shape in pending.owners.items() if owner in unused}
    if owners:
        slots = {owner: each for owner, each in pending.slots.items() if owner in owners}
        set_pending_state(optimizer, dataclasses.replace(pending, owners=owners, slots=slots, scalars={}))


def _parts(optimizer: Any) -> Tuple[Any, ...]:
    """Return the arguments of ``_construct``; classes are pickled by name."""
    inner, held = optimizer.inner_optimizer, optimizer._graph_policy
    options = optimizer._monitor.config()
    given = optimizer.get_config()
    options.update({} if given.get("name") is None else {"name": given["name"]})
    # Keras wraps the lists that are attributes of an optimizer, and these cannot be pickled.
    options.update(json_values(optimizer._further_arguments(given, unknown_entries(given))))
    # A policy with an update of its own may hold what cannot be copied; its variables are in the state.
    policy_parts = (held.constructed_from, None) if held.is_pure else (type(held.policy), held.policy.get_config())
    config = {**_without_numpy(inner.get_config()), **_own_schedule(inner)}
    with tf.init_scope():
        attributes = attributes_to_copy(inner, config)
    return (optimizer._public_class, type(inner), config, *policy_parts, options, attributes)


def _own_schedule(inner: Any) -> Dict[str, Any]:
    """Return a learning-rate schedule of the user's class: Keras may not find the class that a configuration names."""
    rate = getattr(inner, "_hyper", {}).get("learning_rate", vars(inner).get("_learning_rate"))
    is_own = hasattr(rate, "get_config") and package_of(type(rate)) not in KERAS_PACKAGES
    return {"learning_rate": rate} if is_own else {}


def _without_numpy(config: Dict[str, Any]) -> Dict[str, Any]:
    """Replace NumPy scalars by Python numbers: up to 2.10, a constructor takes NumPy scalars for variables."""
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in config.items()}


def _construct(
    cls: Any,
    inner_class: Any,
    inner_config: Any,
    policy: Any,
    policy_config: Any,
    options: Any,
    attributes: Mapping[str, Any] = types.MappingProxyType({}),
) -> Any:
    loss_scale = policy if policy_config is None else policy.from_config(policy_config)
    with tf.init_scope():
        inner = inner_class.from_config(inner_config)
        for name, value in attributes.items():
            setattr(inner, name, value)
        return cls(inner, loss_scale, **options)
