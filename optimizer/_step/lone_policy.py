"""A policy without an optimizer in TensorFlow.

In eager mode without a strategy its state stays in NumPy, and the results are tensors. In a graph, in a ``tf.function``
and under a strategy the state moves into variables on first use, and to be tracked by a checkpoint.
"""

from typing import Any, Dict, Tuple

import concurrent.futures
import contextlib
import numbers

import numpy as np
import tensorflow as tf

from ...lossscales._numpy_state import flat_gradients
from ...lossscales.contract import LossScale
from ...lossscales.report import Report
from .control_flow import without_autograph
from .gradient_stats import measure_gradients
from .graph_state import GraphState, hold_in_graph, hold_lock


def scale(policy: LossScale) -> Any:
    """Return the current loss scale as a tensor."""
    memory = _memory(policy)
    memory.was_read = True
    return tf.convert_to_tensor(memory.scale())


def update(policy: LossScale, grads: Any) -> Tuple[Any, Any]:
    """Take one step; return the operation that updates the state, and whether to apply the gradients."""
    memory = _memory(policy)
    if isinstance(memory, GraphState):
        return memory.update(grads)
    flat = [each for grad in flat_gradients(grads) for each in tf.nest.flatten(grad)] if policy.needs else []
    if all(isinstance(grad, (numbers.Number, np.ndarray, np.generic)) for grad in flat):
        update_op, should_apply = memory.update(flat)
    else:
        measured = measure_gradients(flat, policy.needs)
        update_op, should_apply = memory.step(Report(**{name: value.numpy() for name, value in measured.items()}))
    return update_op, should_apply if should_apply is True else tf.constant(bool(should_apply))


def state_variables(policy: LossScale) -> Dict[str, Any]:
    """Return the variables of the state, by name; move it there first."""
    if not policy.initial_state():
        return {}
    return dict(_in_variables(policy).state_variables)


def variable_attributes(policy: LossScale) -> Dict[str, Any]:
    """Return the variables that are attributes of the policy, by name."""
    return {name: value for name, value in vars(policy).items() if isinstance(value, tf.Variable)}


def _memory(policy: LossScale) -> Any:
    memory = policy._remembered()
    if isinstance(memory, GraphState) or (tf.executing_eagerly() and not tf.distribute.has_strategy()):
        return memory
    return _in_variables(policy)


@without_autograph
def _in_variables(policy: LossScale) -> Any:
    """Return the state of a policy in variables, which belong to no function, and to all replicas of a strategy."""
    if not isinstance(policy._memory, GraphState):
        strategy = tf.distribute.get_strategy()
        with tf.init_scope():
            is_in_replica = tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context()
        if is_in_replica:
            # Variables for all replicas can't be created in the context of one, and here replicas may not meet.
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                pool.submit(_move, policy, strategy).result()
        else:
            _move(policy, strategy)
    return policy._memory


def _move(policy: LossScale, strategy: Any) -> None:
    with hold_lock, tf.init_scope(), contextlib.ExitStack() as stack:
        if tf.distribute.get_strategy() is not strategy:  # outside of the function that is traced
            stack.enter_context(strategy.scope())
        hold_in_graph(policy)
