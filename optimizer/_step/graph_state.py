"""A loss-scale policy in the graph: its state in TensorFlow variables, and its step as operations."""

from typing import Any, Callable, Dict, FrozenSet, Mapping, Sequence, Set, Tuple

import sys
import threading

import tensorflow as tf

from ...lossscales._numpy_state import flat_gradients
from ...lossscales._step_contract import (
    BUGS,
    broken_call,
    require_decision,
    require_next_state,
    require_scale,
    unpacked_update,
)
from ...lossscales.contract import LossScale, has_pure_step
from ...lossscales.report import Report, State
from ...registry.errors import ArgumentError
from .control_flow import without_autograph
from .gradient_stats import FIELDS, measure_gradients
from .replicas import can_merge_replicas, combine_shares, shares_of_replica
from .tensorflow_ops import OPS
from .unscale import usable_scale

MakeVariables = Callable[[State], Mapping[str, Any]]
_BUGS = (*BUGS, tf.errors.OpError)
# Code that moves a policy's state holds this lock, so threads that share a policy move its state once.
hold_lock = threading.RLock()


class GraphState(tf.Module):  # type: ignore[misc]
    """The state of a policy with a pure step: one variable for each entry, under its name in a checkpoint.

    It has the members of ``NumpyState``. Inside the scope of a strategy the variables are mirrored.
    """

    was_read = False
    _graph_element: Any = None

    def __init__(self, loss_scale: LossScale, state: State, make_variables: MakeVariables) -> None:
        super().__init__(name="loss_scale")
        self._loss_scale = self._no_dependency(loss_scale) if is_tracked_by_state(loss_scale) else loss_scale
        self._names = tuple(state)
        self._checked: Set[str] = set()
        self._is_eager = tf.executing_eagerly()
        for name in state:
            if hasattr(type(self), name):  # a checkpoint finds a variable by the attribute that holds it
                raise ArgumentError(
                    f"{type(loss_scale).__name__} has a state entry named {name!r}, which is reserved: rename it"
                )
        for name, variable in make_variables(state).items():
            setattr(self, name, variable)

    @property
    def state_variables(self) -> Dict[str, Any]:
        return {name: getattr(self, name) for name in self._names}

    def read(self) -> State:
        return {name: variable.read_value() for name, variable in self.state_variables.items()}

    def plain(self) -> Dict[str, Any]:
        return {name: _value(variable).item() for name, variable in self.state_variables.items()}

    def known(self) -> Dict[str, Any]:
        """Return the state as numbers; empty in a graph, where it has no value."""
        return self.plain() if self._is_eager and tf.executing_eagerly() else {}

    def write(self, state: Mapping[str, Any]) -> None:
        for name, value in state.items():
            if tf.executing_eagerly():
                self.state_variables[name].assign(value)
            else:
                tf.keras.backend.set_value(self.state_variables[name], value)

    def scale(self) -> Any:
        state = self.read()
        try:
            scale = self._loss_scale.scale(state, OPS)
        except _BUGS as error:
            raise broken_call(self._loss_scale, "scale", error, state) from error
        self._check("scale", require_scale, scale)
        return usable_scale(scale)

    def graph_element(self) -> Any:
        """Return the loss scale as a tensor of the current graph of TensorFlow 1; None in a function or eager mode.

        It is the same tensor each time, so that a session can fetch it after its graph is finalized. None, too, if the
        graph is finalized and has no such tensor.
        """
        if tf.executing_eagerly():
            return None
        graph = tf.compat.v1.get_default_graph()
        if graph.building_function:
            return None
        if self._graph_element is None or self._graph_element.graph is not graph:
            self._graph_element = None if graph.finalized else self._loss_scale()
        return self._graph_element

    def step(self, report: Report) -> Tuple[Any, Any]:
        """Return the operation that updates the state, and whether the gradients are applied."""
        state = self.read()
        should_apply = self._should_apply(state, report)
        try:
            following = self._loss_scale.next_state(state, report, OPS)
        except _BUGS as error:
            raise broken_call(self._loss_scale, "next_state", error, state) from error
        if following is state:
            return tf.no_op(), should_apply
        self._check("next_state", require_next_state, following, state)
        try:
            updates = [self.state_variables[name].assign(following[name]) for name in self._names]
        except _BUGS:  # a later step in eager mode, which is not checked before
            require_next_state(self._loss_scale, following, state)
            raise
        return tf.group(*updates), should_apply

    def should_apply(self, report: Report) -> Any:
        """Return whether the gradients of a report are applied, and leave the state as it is."""
        return self._should_apply(self.read(), report)

    def _should_apply(self, state: State, report: Report) -> Any:
        try:
            should_apply = self._loss_scale.should_apply(state, report, OPS)
        except _BUGS as error:
            raise broken_call(self._loss_scale, "should_apply", error, state) from error
        self._check("should_apply", require_decision, should_apply)
        return should_apply

    def _check(self, method: str, require: Callable[..., None], *results: Any) -> None:
        """Check what a method returned: while it is traced, and the first time in eager mode."""
        if method in self._checked and tf.executing_eagerly():
            return
        require(self._loss_scale, *results)
        if tf.executing_eagerly():
            self._checked.add(method)

    @without_autograph
    def update(self, grads: Any) -> Tuple[Any, Any]:
        """Take one step by the gradients of all replicas, in the context of one replica or of all of them."""
        grads = tuple(each for grad in flat_gradients(grads) for each in tf.nest.flatten(grad))
        if not tf.distribute.has_strategy():
            return self.step(Report(**self._measured(grads)))
        if tf.distribute.in_cross_replica_context():
            strategy = tf.distribute.get_strategy()
            return self._step_of_all(strategy, strategy.extended.call_for_each_replica(self._shares, args=(grads,)))
        context = tf.distribute.get_replica_context()
        shares = self._shares(grads)
        if can_merge_replicas():
            return tuple(context.merge_call(self._step_of_all, args=(shares,)))
        return self._step_by_sums(context.strategy.extended._replica_ctx_all_reduce(tf.distribute.ReduceOp.SUM, shares))

    def _measured(self, grads: Sequence[Any]) -> Dict[str, Any]:
        needs = self._loss_scale.needs
        return measure_gradients(grads, needs) if needs else {}

    def _shares(self, grads: Sequence[Any]) -> Any:
        """Return this replica's share of the report on all gradients; zeros if the policy needs no report."""
        shares = shares_of_replica(tf.distribute.get_replica_context(), self._measured(grads))
        return tf.zeros([]) if shares is None else shares

    def _step_of_all(self, strategy: Any, shares: Any) -> Tuple[Any, Any]:
        return self._step_by_sums(strategy.reduce(tf.distribute.ReduceOp.SUM, shares, axis=None))

    def _step_by_sums(self, sums: Any) -> Tuple[Any, Any]:
        fields = {name: None for name in FIELDS if name in self._loss_scale.needs}
        return self.step(Report(**combine_shares(fields, sums if fields else None)))


class HeldPolicy:
    """The code that the policies in optimizers share."""

    def note_unscaling(self, optimizer: Any, method: str) -> None:
        """Record that a method of an optimizer unscales gradients, where that is allowed once in a step."""

    def in_step(self, optimizer: Any) -> Any:
        """Return the policy for one ``apply_gradients`` of an optimizer."""
        return self


class GraphPolicy(HeldPolicy):
    """A policy with a pure step, as an optimizer uses it.

    Attributes:
        policy: The policy itself.
        constructed_from: The constructor's argument: the policy, or the ``SharedLossScale`` that has it.
        is_pure: Whether ``decide`` depends on the report alone, and not on the gradients.
        scale: Returns the current loss scale, as far as gradients can be divided by it.
        state: The policy's variables.
    """

    is_pure = True

    def __init__(self, policy: LossScale, state: GraphState) -> None:
        self.policy, self.state = policy, state
        self.constructed_from: Any = policy
        # A class may override __call__ and keep the pure step.
        self.scale: Callable[[], Any] = state.scale if type(policy).__call__ is LossScale.__call__ else policy

    @property
    def needs(self) -> FrozenSet[str]:
        """The fields of the report that the policy reads."""
        return self.policy.needs

    @property
    def variables(self) -> Dict[str, Any]:
        """The variables of the state, by name."""
        return self.state.state_variables

    @property
    def trackable(self) -> Any:
        """The object that a checkpoint tracks."""
        return self.state

    def decide(self, grads: Sequence[Any], report: Mapping[str, Any]) -> Tuple[Any, Any]:
        """Return the operation that updates the state, and whether the gradients are applied."""
        return self.state.step(Report(**report))


class OpaquePolicy(HeldPolicy):
    """A policy that implements ``__call__`` and ``update`` itself, in TensorFlow's style."""

    is_pure = False
    needs: FrozenSet[str] = frozenset()
    variables: Mapping[str, Any] = {}

    def __init__(self, policy: Any) -> None:
        self.policy = policy

    def scale(self) -> Any:
        """Return the current loss scale, as far as gradients can be divided by it."""
        return usable_scale(self.policy())

    @property
    def trackable(self) -> Any:
        """The object that a checkpoint tracks: TensorFlow's own ``LossScale``, or a module with the variables."""
        if hasattr(self.policy, "_track_trackable") and not is_tracked_by_state(self.policy):
            return self.policy
        module = tf.Module(name="loss_scale")
        for name, value in vars(self.policy).items():
            if isinstance(value, tf.Variable):
                setattr(module, name, value)
        return module

    def decide(self, grads: Sequence[Any], report: Mapping[str, Any]) -> Tuple[Any, Any]:
        """Return the operation that updates the state, and whether the gradients are applied."""
        return unpacked_update(self.policy, self.policy.update(list(grads)))


def is_tracked_by_state(policy: Any) -> bool:
    """Return whether a checkpoint has the object that holds the state of a policy, and not the policy itself.

    TensorFlow's own ``LossScale``, and a policy that is a ``tf.Module``, too, are tracked like any other object.
    """
    return isinstance(policy, LossScale) and not isinstance(policy, tf.Module)


def make_variable(name: str, value: Any) -> Any:
    """Create a variable for one entry of a state."""
    variable = tf.Variable(value, name=name, dtype=value.dtype, trainable=False)
    if not tf.executing_eagerly():
        # In the graph mode of TF 1, Keras's session initializes only variables that its backend tracks. The public
        # module does not export track_variable.
        backend = sys.modules[tf.keras.backend.get_value.__module__]
        if hasattr(backend, "track_variable"):
            backend.track_variable(variable)
    return variable


def make_variables(state: State) -> Dict[str, Any]:
    """Create a variable for each entry of a state."""
    return {name: make_variable(name, value) for name, value in state.items()}


def hold_in_graph(policy: Any, make_variables: MakeVariables = make_variables) -> Any:
    """Move the state of a policy into variables, unless it is there, and return what an optimizer uses of it.

    Args:
        policy: The policy. Optimizers that share a policy share its state.
        make_variables: Makes the variables for a state, by name.

    Returns:
        A :class:`GraphPolicy`, or an :class:`OpaquePolicy` for a policy with an ``update`` of its own.
    """
    if not has_pure_step(policy):
        return OpaquePolicy(policy)
    state = policy._memory
    if not isinstance(state, GraphState):
        state = policy.move_state(lambda policy, state: GraphState(policy, state, make_variables))
    return GraphPolicy(policy, state)


def _value(variable: Any) -> Any:
    """Return the value of a variable; in the graph mode of TF 1, from Keras's session."""
    return variable.numpy() if tf.executing_eagerly() else tf.keras.backend.get_value(variable)


def _current_scale(loss_scale: LossScale, dtype: Any = None, name: Any = None, as_ref: bool = False) -> Any:
    scale = tf.convert_to_tensor(loss_scale())
    return scale if dtype is None else tf.cast(scale, dtype)


# ``tensor * optimizer.loss_scale`` works, as where TensorFlow's own class has a tensor of that name.
tf.register_tensor_conversion_function(LossScale, _current_scale)
