"""LossScaleOptimizer: the public class, and what it does with every Keras."""

from typing import Any, Callable, ClassVar, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

import dataclasses
import inspect
import numbers

import tensorflow as tf

from ..registry._argument_checks import described
from ..registry._documents import ADVANCE, NATIVE
from ..registry._monitor_options import Monitoring
from ..registry._parameters import checked
from ..registry.errors import ArgumentError, TooManySkipsError, TranslationError, WrongArgumentError, shown
from ..serialization._keras_introspection import named_parameters
from ..serialization._keras_saving import format_in_progress
from ..serialization._optimizer_weight_lists import Expected
from ..serialization._variables import value_of
from ..serialization.keras._optimizer_config import decode_config, encode_wrapper
from ..serialization.keras.profile import KerasProfile
from ..serialization.optimizer_adapter import Transfer
from ..serialization.training_state import IN_A_ROW, LAST, TOTAL, TrainingState, state_dict_of
from ._keras.aggregation import Aggregation, Pairs
from ._keras.config_objects import (
    create_inner_optimizer,
    decode_policy,
    encode_policy,
    json_values,
    policy_from_arguments,
)
from ._keras.keras_dispatch import concrete_class, keras_of, keras_of_class, own_classes
from ._state import checkpoint_tracking, pickling, state_transfer
from ._state.skip_counters import StepMonitor, require_valid_choice
from ._state.state_transfer import create_slots, tensorflow_variable
from ._state.telemetry import Telemetry
from ._step.control_flow import without_autograph
from ._step.gate import Step, gated_step, require_strategy_of, require_supported_strategy
from ._step.graph_state import hold_in_graph, hold_lock, is_tracked_by_state
from ._step.replicas import can_merge_replicas
from ._step.unscale import (
    GET_SCALED_LOSS,
    GET_UNSCALED_GRADIENTS,
    SCALING_METHODS,
    scale_loss,
    unscale_gradients,
    warn_of_forgotten_scaling,
)
from .shared_loss_scale import SharedLossScale

__all__ = ["LossScaleOptimizer"]


class _SignatureOfInit:
    """The signature of a class whose ``__new__`` takes any arguments and leaves them to ``__init__``."""

    def __get__(self, instance: Any, owner: Any) -> inspect.Signature:
        signature = inspect.signature(owner.__init__)
        return signature.replace(parameters=list(signature.parameters.values())[1:], return_annotation=owner)


class LossScaleOptimizer:
    """An optimizer that scales the loss so that float16 gradients neither vanish nor overflow.

    Calling the class returns an object of a subclass that also derives from Keras's own ``LossScaleOptimizer``, because
    Keras tests for that class. The subclass depends on the inner optimizer.

    Args:
        optimizer: Any Keras optimizer, which becomes the inner optimizer.
        loss_scale: A spec for :func:`scalekeeper.resolve`: ``"dynamic"``, a number, a mapping, a registered name, the
            class of a policy or a policy, or a ``LossScale`` object of TensorFlow. Or a :class:`SharedLossScale`. A
            bool is taken for ``dynamic``, and a number or None after it for ``initial_scale``, as in TensorFlow 2.4
            and later.
        skipped_steps: Whether a skipped step advances ``iterations``: ``"advance"``, ``"hold"``, or ``"native"`` for
            what TensorFlow's own class does in the installed version.
        dynamic_growth_steps: The finite steps in a row after which a dynamic loss scale grows.
        inner_optimizer: Another name for ``optimizer``.
        dynamic: Whether the loss scale is dynamic or fixed. TensorFlow 2.4 and later have this argument, the next one
            and ``dynamic_growth_steps``, instead of ``loss_scale``.
        initial_scale: The initial or fixed loss scale.
        name: The name of the optimizer, where Keras gives it one.
        stop_after_skips: Raise an error after this many skipped steps in a row.
        attribute_overflows: Count for each variable how often its gradient was non-finite.
        watch: Statistics to measure of the gradients of every step: ``"largest_magnitude"``, ``"zero_share"``.

    Attributes:
        inner_optimizer: The wrapped optimizer.
        learning_rate: The learning rate of the inner optimizer.

    Raises:
        ArgumentError: If an argument has a value that is not allowed.
        WrongArgumentError: If not exactly one Keras optimizer is given, or ``dynamic`` is not a bool.
        InvalidSpecError: If ``loss_scale`` or the last three arguments are invalid.
        StrategyError: Under a ``tf.distribute`` strategy that loss scaling does not support.

    Versions:
        TensorFlow 2.0 to 2.21, with all optimizers of their Keras. Members that some versions lack list their
        versions. Keras 3 adds the variables ``dynamic_scale`` and ``step_counter``.

    Example:
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.5), "dynamic")
        >>> variable = tf.Variable(1.0)
        >>> with tf.GradientTape() as tape:
        ...     loss = optimizer.get_scaled_loss(variable * 2)
        >>> grads = optimizer.get_unscaled_gradients(tape.gradient(loss, [variable]))
        >>> applied = optimizer.apply_gradients(zip(grads, [variable]), return_decision=True)
        >>> bool(applied), float(variable.numpy()), optimizer.loss_scale.state()
        (True, 0.0, {'current_loss_scale': 32768.0, 'good_steps': 1})

        In ``fit``, the optimizer scales and unscales by itself:

        >>> model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
        >>> model.compile(scalekeeper.LossScaleOptimizer(tf.keras.optimizers.Adam(1e-3), "dynamic"), "mse")
    """

    __module__ = "scalekeeper"  # its public address
    __signature__ = _SignatureOfInit()  # what help() shows

    inner_optimizer: Any
    _profile: ClassVar[Optional[KerasProfile]] = None  # the Keras generation; None: of the public class
    _public_class: ClassVar[Any] = None  # the class that was called to construct an object

    def __new__(cls, optimizer: Any = None, *args: Any, **kwargs: Any) -> Any:
        return super().__new__(concrete_class(cls, _one_optimizer(optimizer, kwargs.get("inner_optimizer"))))

    def __init__(
        self,
        optimizer: Any = None,
        loss_scale: Any = "dynamic",
        skipped_steps: str = NATIVE,
        dynamic_growth_steps: Optional[int] = None,
        *,
        inner_optimizer: Any = None,
        dynamic: Optional[bool] = None,
        initial_scale: Optional[float] = None,
        name: Optional[str] = None,
        stop_after_skips: Optional[int] = None,
        attribute_overflows: bool = False,
        watch: Sequence[str] = (),
    ) -> None:
        if isinstance(loss_scale, bool):  # the arguments of TensorFlow 2.4 and later, in their order
            dynamic, loss_scale = _only(loss_scale, dynamic, "dynamic"), "dynamic"
            if not isinstance(skipped_steps, str):
                initial_scale, skipped_steps = _only(skipped_steps, initial_scale, "initial_scale"), NATIVE
        optimizer = _one_optimizer(optimizer, inner_optimizer)
        if isinstance(optimizer, (LossScaleOptimizer, *own_classes(optimizer))):
            raise WrongArgumentError(
                f"{type(optimizer).__name__} is a LossScaleOptimizer already: give its inner optimizer instead"
            )
        require_valid_choice(skipped_steps)
        if tf.distribute.has_strategy():
            require_supported_strategy()
        shared = loss_scale if isinstance(loss_scale, SharedLossScale) else None
        if shared is not None:
            loss_scale = shared.loss_scale
        policy = policy_from_arguments(loss_scale, dynamic, initial_scale, dynamic_growth_steps)
        options = {"stop_after_skips": stop_after_skips, "attribute_overflows": attribute_overflows}
        monitoring = checked(Monitoring, {**options, "watch": _names(watch)}, "LossScaleOptimizer")
        self._wrap(optimizer, name)
        # A checkpoint has the state below the child loss_scale. Keras would track a policy that is set as an attribute.
        if is_tracked_by_state(policy):
            vars(self)["_policy"] = policy
        else:
            self._policy = policy
        with hold_lock:  # optimizers that share a policy share its state, also if several threads construct them
            held = self._hold(policy)
        self._graph_policy = held if shared is None else shared._hold(held)
        self._monitor = StepMonitor(monitoring, skipped_steps, self._advances_natively)

    def _is_complete(self) -> bool:
        """Return whether the constructor has finished; Keras's own constructor calls methods before that."""
        return "_monitor" in vars(self)

    # Implemented by each adapter

    @property
    def _advances_natively(self) -> bool:
        """Whether a skipped step advances ``iterations`` in Keras's own class."""
        return self._profile is not None and self._profile.native_skipped_steps == ADVANCE

    def _wrap(self, optimizer: Any, name: Optional[str]) -> None:
        """Call the constructor of Keras's own class with the inner optimizer."""
        raise NotImplementedError

    def _hold(self, policy: Any) -> Any:
        """Move the policy's state into variables that Keras saves, and return what ``hold_in_graph`` returned."""
        held = hold_in_graph(policy)
        if not hasattr(self, "_track_trackable"):  # in Keras 3.0, where a checkpoint can't hold an optimizer
            return held
        is_stateless = held.is_pure and not held.variables
        # since 2.4, TensorFlow's own class has no such child for a fixed scale
        if not is_stateless or "loss_scale" in self._unconditional_dependency_names:  # type: ignore[attr-defined]
            self._track_trackable(held.trackable, "loss_scale", overwrite=True)
        return held

    def _make_variables(self, variables: Sequence[Any]) -> None:
        """Create the inner optimizer's variables, if they do not exist."""
        raise NotImplementedError

    def _aggregated(self, pairs: Pairs) -> Optional[Aggregation]:
        """Aggregate unscaled gradients over replicas and workers, with the inner optimizer's own methods.

        They are called before the decision, which has to consider the gradients that are applied, and outside of the
        conditional, so that all replicas and workers take part.

        Returns:
            None if nothing is to be aggregated, or if the inner optimizer does it only while it applies the gradients.
        """
        return None

    def _apply_inner(self, pairs: Pairs, name: Optional[str], aggregate: bool) -> Any:
        """Apply unscaled gradients with the inner optimizer."""
        raise NotImplementedError

    def _unscaled_pairs(self, pairs: List[Tuple[Any, Any]]) -> List[Tuple[Any, Any]]:
        """Return the pairs with unscaled gradients; Keras 3 may hand over scaled ones."""
        return pairs

    def _require_can_apply(self, aggregate: bool) -> None:
        """Raise :class:`ArgumentError` for arguments that the inner optimizer does not support."""

    def _can_be_made_outside(self) -> bool:
        """Return whether replicas can use variables that were created outside of their strategy's scope."""
        return can_merge_replicas()

    def _returned(self, step: Any) -> Any:
        """Return what ``apply_gradients`` returns for the operation of a step, or for None in eager mode."""
        return step

    def _step_counter(self) -> Any:
        """Return the TensorFlow variable that counts the inner optimizer's steps."""
        return tensorflow_variable(self.inner_optimizer.iterations)

    def _counter_to_advance(self) -> Any:
        """Return the variable that a skipped step may advance; None if it must not."""
        return self.inner_optimizer.iterations

    # The loss scale

    @property
    def loss_scale(self) -> Any:
        """The policy. Calling it returns the current loss scale; in arithmetic, it works as that number.

        From TensorFlow 2.4 on, TensorFlow's own class has a tensor here.
        """
        if not tf.executing_eagerly() and hasattr(self._policy, "_as_graph_element"):
            self._policy._as_graph_element()  # before the graph of a session is finalized
        return self._policy

    @property
    def dynamic(self) -> bool:
        """Whether the loss scale can change."""
        return bool(self._graph_policy.variables) or not self._graph_policy.is_pure

    @property
    def initial_scale(self) -> Any:
        """The loss scale of the first step."""
        config = self._policy.get_config()
        return config.get("initial_loss_scale", config.get("loss_scale_value"))

    @property
    def dynamic_growth_steps(self) -> Any:
        """The finite steps in a row after which a dynamic loss scale grows; None for a policy without such a number."""
        return self._policy.get_config().get("increment_period")

    @property
    def dynamic_counter(self) -> Any:
        """The variable that counts finite steps in a row; None for a policy without one."""
        return self._graph_policy.variables.get("good_steps")

    def _mark(self, *called: str) -> None:
        """Record which of the methods that scale and unscale a program has called."""
        # in __dict__, because Keras tracks what is assigned to an attribute
        vars(self).setdefault("_scalekeeper_called", set()).update(called)

    def _warn_if_not_scaled(self) -> None:
        """Warn once if a program applies gradients and has not called the methods that scale and unscale."""
        called = vars(self).setdefault("_scalekeeper_called", set())
        if len(called) == len(SCALING_METHODS):
            return
        is_read = getattr(self._policy, "_was_read", True)  # a program may scale with the loss scale itself
        has_effect = self.dynamic or self.initial_scale not in (None, 1)
        if has_effect and not is_read:
            warn_of_forgotten_scaling([name for name in SCALING_METHODS if name not in called])
        called.update(SCALING_METHODS)

    def __repr__(self) -> str:
        name = self._public_class.__name__
        if not self._is_complete():  # the constructor raised an error
            return f"<{name} that was not made>"
        parameters = ", ".join("{}={!r}".format(*item) for item in self._policy_config()["config"].items())
        # Reading ``iterations`` creates the variable up to TF 2.10; avoid that side effect.
        has_iterations = getattr(self.inner_optimizer, "_iterations", None) is not None
        with tf.init_scope():  # may be called while a step is traced
            parts = [
                type(self.inner_optimizer).__name__,
                f"{type(self._policy).__name__}({parameters})",
                f"iterations={int(value_of(self.inner_optimizer.iterations)) if has_iterations else 0}",
                *(f"{name}={value!r}" for name, value in state_transfer.state_values(self).items()),
            ]
        return f"{name}({', '.join(parts)})"

    @without_autograph
    def get_scaled_loss(self, loss: Any) -> Any:
        """Multiply the loss by the current loss scale.

        Args:
            loss: A tensor, or a callable that returns one.

        Returns:
            The scaled loss, or a callable that returns it. A float16 loss becomes float32, where it cannot overflow.

        Raises:
            WrongArgumentError: If the loss is None.
        """
        if loss is None:
            raise WrongArgumentError(
                "get_scaled_loss expects a loss, as a tensor or a function that returns one, got None: does the "
                "function that computes it return it?"
            )
        self._mark(GET_SCALED_LOSS)
        if callable(loss):
            return lambda: scale_loss(loss(), self._graph_policy.scale())
        return scale_loss(loss, self._graph_policy.scale())

    @without_autograph
    def get_unscaled_gradients(self, grads: Sequence[Any]) -> List[Any]:
        """Divide gradients by the current loss scale.

        Args:
            grads: The gradients of a scaled loss; None stays None, and ``tf.IndexedSlices`` stay sparse.

        Returns:
            The unscaled gradients.

        Raises:
            WrongArgumentError: If ``grads`` is not a list of gradients.
        """
        _require_gradients(grads)
        self._graph_policy.note_unscaling(self, GET_UNSCALED_GRADIENTS)
        self._mark(GET_UNSCALED_GRADIENTS)
        return unscale_gradients(grads, self._graph_policy.scale())

    # A step

    @without_autograph
    def apply_gradients(
        self,
        grads_and_vars: Any,
        name: Optional[str] = None,
        experimental_aggregate_gradients: bool = True,
        skip_gradients_aggregation: bool = False,
        return_decision: bool = False,
    ) -> Any:
        """Apply unscaled gradients, unless the policy skips the step, and update the loss scale.

        Args:
            grads_and_vars: Pairs of an unscaled gradient and a variable.
            name: The name of the operation, where the inner optimizer takes one.
            experimental_aggregate_gradients: False if the gradients are summed over the replicas already.
            skip_gradients_aggregation: True for the same; the argument of later versions.
            return_decision: Whether to return the decision.

        Returns:
            The operation that does it; None in eager mode. A ``tf.function`` runs it anyway, and there the new
            optimizers of Keras 2 return None. Keras 3 returns the variable that counts steps, in both cases. With
            ``return_decision``, a boolean tensor on every version: whether the gradients were applied.

        Raises:
            ArgumentError: If no variable has a gradient, or the inner optimizer does not support the arguments.
            WrongArgumentError: If ``grads_and_vars`` does not hold pairs.
            StrategyError: If the optimizer was created under another strategy, or this is not a replica context.
            TooManySkipsError: In eager mode, after ``stop_after_skips`` skipped steps in a row.
            UnsupportedOperationError: Outside of a step of its :class:`SharedLossScale`, or twice in one.
        """
        if name is not None and not isinstance(name, str):
            raise WrongArgumentError(f"{_PAIRS}, got two arguments: write zip(gradients, variables)")
        policy = self._graph_policy.in_step(self)
        require_strategy_of(self._first_variables(), self._can_be_made_outside())
        pairs = self._unscaled_pairs(_as_pairs(grads_and_vars))
        aggregate = experimental_aggregate_gradients and not skip_gradients_aggregation
        self._require_can_apply(aggregate)
        if not pairs:  # all layers are frozen: no step is taken, and the loss scale stays
            nothing = None if tf.executing_eagerly() else tf.no_op()
            return tf.constant(False) if return_decision else self._returned(nothing)
        indices = _indices_with_gradient(pairs)
        self._warn_if_not_scaled()
        variables = [variable for _, variable in pairs]
        self._remember(variables, [grad for grad, _ in pairs])
        with tf.init_scope():  # variables cannot be created inside the conditional
            self._make_variables(variables)
        if state_transfer.PENDING in vars(self):
            pickling.fill_pending_slots(self, variables)
        own_grads, also_checked = None, None
        aggregation = self._aggregated([pairs[index] for index in indices]) if aggregate else None
        if aggregation is not None:
            own_grads, also_checked = [pairs[index][0] for index in indices], aggregation.also_checked
            pairs, aggregate = _with_gradients(pairs, aggregation.pairs), False
            indices = _indices_with_gradient(pairs)
            variables = [variable for _, variable in pairs]
        counters, group = self._monitor.counters, None
        if counters.attributes_overflows:
            with tf.init_scope():
                group = counters.group_of([variables[index] for index in indices])

        def apply(grads: List[Any]) -> Any:
            by_index = dict(zip(indices, grads))
            unscaled = [(by_index.get(index), variable) for index, variable in enumerate(variables)]
            return self._apply_inner(unscaled, name, aggregate)

        def skip(nonfinite: Any) -> Any:
            return self._monitor.skip(self._step_counter(), self._counter_to_advance(), self._policy, group, nonfinite)

        grads = [pairs[index][0] for index in indices]
        watched, attributes_overflows = self._monitor.watched, counters.attributes_overflows
        step = gated_step(
            Step(policy, grads, apply, skip, watched, attributes_overflows, own_grads, also_checked, return_decision)
        )
        if self._monitor.options.stop_after_skips is not None and tf.executing_eagerly():
            self.raise_if_stuck()
        return step if return_decision else self._returned(step)

    def _first_variables(self) -> List[Any]:
        """Return the variables that show in whose scope the optimizer, its policy and the inner optimizer were made."""
        variables = [*self._graph_policy.variables.values(), self._monitor.advance.variable]
        iterations = getattr(self.inner_optimizer, "_iterations", None)  # up to 2.10 created when it is first read
        return variables if iterations is None else [*variables, iterations]

    def _remember(self, variables: Sequence[Any], grads: Sequence[Any] = ()) -> None:
        """Record that the optimizer trains these variables, or raise an error if they are not variables."""
        # In __dict__, because Keras saves what it finds in an attribute.
        known = self.__dict__.setdefault("_scalekeeper_variables", {})
        new = {id(variable): variable for variable in variables if id(variable) not in known}
        if new:
            _require_variables(new.values(), grads)
            known.update(new)

    def _known_variables(self) -> List[Any]:
        """Return the variables that the optimizer trains, as far as it has seen them."""
        return list(self.__dict__.get("_scalekeeper_variables", {}).values())

    # Skipped steps

    @property
    def skipped_steps(self) -> str:
        """Whether a skipped step advances ``iterations``: ``"advance"`` or ``"hold"``."""
        return self._monitor.advance.choice

    @skipped_steps.setter
    def skipped_steps(self, choice: str) -> None:
        self._monitor.advance.choice = choice

    @property
    def telemetry(self) -> Telemetry:
        """The steps, skipped steps and watched statistics up to now, read from the device when this is accessed."""
        monitor, counters = self._monitor, self._monitor.read(self._step_counter())
        watched = {name: float(value_of(variable)) for name, variable in monitor.watched.items()}
        return Telemetry(
            steps=counters["steps"],
            skipped=counters[TOTAL],
            skipped_in_a_row=counters[IN_A_ROW],
            last_skipped_step=counters[LAST] or None,
            loss_scale=self._scale_value(),
            overflows=monitor.counters.overflows() if monitor.options.attribute_overflows else {},
            last_overflows=monitor.counters.last_overflows(),
            largest_magnitude=watched.get("largest_magnitude"),
            zero_share=watched.get("zero_share"),
        )

    def raise_if_stuck(self, after: Optional[int] = None) -> None:
        """Raise an error if the last steps were all skipped.

        Args:
            after: How many skipped steps in a row are too many; None for ``stop_after_skips``. If that is None too,
                nothing is raised.

        Raises:
            TooManySkipsError: If the last ``after`` steps, or more, were all skipped.
            WrongArgumentError: If ``after`` is not a number.
        """
        after = self._monitor.options.stop_after_skips if after is None else after
        if after is None:
            return
        if isinstance(after, bool) or not isinstance(after, numbers.Real):
            raise WrongArgumentError(f"raise_if_stuck expects a number of skipped steps, got {shown(after)}")
        counters = self._monitor.read(self._step_counter())
        if counters[IN_A_ROW] >= after:
            variables = self._monitor.counters.last_overflows()
            raise TooManySkipsError(counters[IN_A_ROW], counters["steps"], self._scale_value(), variables)

    def _scale_value(self) -> float:
        scale = self._graph_policy.scale()
        return float(scale if tf.executing_eagerly() else tf.keras.backend.get_value(scale))

    # Documented members that not every Keras has

    @property
    def lr(self) -> Any:
        """The inner optimizer's learning rate."""
        return self.inner_optimizer.learning_rate

    @lr.setter
    def lr(self, value: Any) -> None:
        self.inner_optimizer.learning_rate = value

    def get_slot(self, var: Any, slot_name: str) -> Any:
        """Return the inner optimizer's slot variable of this name for a model variable.

        Args:
            var: The model variable.
            slot_name: The name of the slot, such as ``"momentum"``.
        """
        return self.inner_optimizer.get_slot(var, slot_name)

    def add_slot(self, var: Any, slot_name: str, initializer: Any = "zeros") -> Any:
        """Add a slot variable for a model variable to the inner optimizer.

        Args:
            var: The model variable.
            slot_name: The name of the slot.
            initializer: The initializer, or its name.

        Returns:
            The slot variable.
        """
        return self.inner_optimizer.add_slot(var, slot_name, initializer)

    def add_weight(self, *args: Any, **kwargs: Any) -> Any:
        """Add a variable to the inner optimizer.

        Args:
            *args: The name, and what else ``add_weight`` of the inner optimizer takes.
            **kwargs: ``shape``, ``dtype`` and ``initializer``.

        Returns:
            The variable.
        """
        return self.inner_optimizer.add_weight(*args, **kwargs)

    # Configuration

    def get_config(self) -> Dict[str, Any]:
        """Return the inner optimizer and the policy as plain values that JSON can hold; ``from_config`` takes them."""
        assert self._profile is not None
        name = getattr(self, "name", None) if self._profile.writes_wrapper_name else None
        config = encode_wrapper(self._profile, json_values(self._serialized_inner()), self._policy_config(), name)
        file_format = format_in_progress()
        if file_format is not None:  # Keras's own model.save asks, which would lose the state
            config[self._profile.inner_key].update(state_transfer.state_for_keras(self, file_format))
        return {**config, **self._monitor.config()}

    def _policy_config(self) -> Dict[str, Any]:
        return encode_policy(self._policy, keras_of(self.inner_optimizer))

    def _serialized_inner(self) -> Any:
        return keras_of(self.inner_optimizer).optimizers.serialize(self.inner_optimizer)

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Optional[Mapping[str, Any]] = None) -> Any:
        """Create an optimizer from a configuration.

        Args:
            config: The result of ``get_config``, of this class or of TensorFlow's class, on any version.
            custom_objects: Classes by name, which the configuration may refer to.

        Returns:
            The optimizer.

        Raises:
            TranslationError: If the configuration has no equivalent in the installed Keras.
            TypeError: If it has an entry that the constructor of this class does not take.
        """
        custom_objects = custom_objects or {}
        declaration = decode_config(config)
        if declaration.policy is None:
            raise TranslationError(
                f"{declaration.class_name} has no loss scale: create that optimizer, and wrap it in LossScaleOptimizer"
            )
        keras = keras_of_class(cls)
        families = None if cls._profile is None else (cls._profile.family,)
        inner = create_inner_optimizer(declaration, keras, families, custom_objects)
        options: Dict[str, Any] = {} if declaration.name is None else {"name": declaration.name}
        options.update(declaration.monitoring or {})
        options.update(cls._further_arguments(config.get("config", config), declaration.unknown))
        skipped_steps = declaration.skipped_steps or NATIVE
        return cls(inner, decode_policy(declaration.policy, keras, custom_objects), skipped_steps, **options)

    @classmethod
    def _further_arguments(cls, config: Mapping[str, Any], unknown: Mapping[str, Any]) -> Dict[str, Any]:
        """Return the values in a configuration for the constructor of a subclass.

        Unknown entries are among them, as it may take any keyword; if it does not, it raises an error.
        """
        known = named_parameters(LossScaleOptimizer)
        added = [name for name in named_parameters(cls._public_class or cls) if name not in known]
        return {**{name: config[name] for name in added if name in config}, **unknown}

    # Training state

    def state_dict(self) -> Dict[str, Any]:
        """Return everything that is needed to continue training: plain values and NumPy arrays, by name.

        It holds the inner optimizer's configuration, iterations and slots by variable, the policy and its state, and
        whether a skipped step advances ``iterations``. It is the same on every version; ``scalekeeper.save_state``
        writes it to a file.
        """
        return state_dict_of(self._give_state())

    def load_state_dict(self, given: Mapping[str, Any], variables: Optional[Sequence[Any]] = None) -> None:
        """Continue from a state.

        Args:
            given: The result of ``state_dict``, on this version or another.
            variables: The variables that the optimizer trains. Not needed after it has taken a step.

        Raises:
            ArgumentError: If the variables are neither given nor known.
            StateMismatchError: If the state does not fit. The optimizer is unchanged.
        """
        state_transfer.take_state_dict(self, given, variables)

    def set_weights(self, weights: Sequence[Any], layout: Optional[str] = None) -> None:
        """Restore a list of weights that ``get_weights`` or ``variables`` of any version returned.

        Args:
            weights: The list. Shapes, dtypes and signs tell what each weight is.
            layout: The order of the slots, where that is ambiguous: ``"blocks"`` (2.0 to 2.10: one slot of all
                variables, then the next) or ``"interleaved"`` (Keras 3: all slots of one variable, then of the next).

        Raises:
            ArgumentError: If the list does not fit the optimizer, or fits in both layouts and ``layout`` is not given.
            WrongArgumentError: If ``weights`` is not a list.
        """
        if not hasattr(weights, "__len__") or isinstance(weights, (str, Mapping)):
            raise WrongArgumentError(f"set_weights expects a list that get_weights returned, got {shown(weights)}")
        if len(weights) or self.weights:  # type: ignore[attr-defined]
            state_transfer.take_weights(self, weights, layout)

    # Training state in files: the interface of ``serialization.optimizer_adapter``

    def _all_slots(self) -> List[Tuple[str, Any]]:
        """Return name and variable of all slots, whatever model variables they belong to."""
        return [item for slots in self.inner_optimizer._slots.values() for item in slots.items()]

    def _listed_variables(self) -> List[Any]:
        """Return the variables that Keras writes to files, in order."""
        return list(self.weights)  # type: ignore[attr-defined]

    def _variables_of_inner(self) -> List[Any]:
        """Return the variables that the inner optimizer lists."""
        return list(self.inner_optimizer.weights)

    def _adapter_of_nested(self, optimizer: Any) -> Any:
        """Return the adapter of an optimizer that the inner optimizer holds."""
        from ._keras.bare_optimizer import adapter_of_optimizer

        return adapter_of_optimizer(optimizer)

    def _give_state(self) -> TrainingState:
        state = state_transfer.give_state(self)
        return dataclasses.replace(state, skipped_steps=self.skipped_steps, skips=self._monitor.counters.state())

    def _take_skips(self, state: TrainingState) -> List[str]:
        """Take what a state tells about skipped steps; return the names of what was taken."""
        if state.skipped_steps is not None:
            self.skipped_steps = state.skipped_steps
        self._monitor.counters.load(state.skips)
        return [name for name in ("skipped_steps", "skips") if getattr(state, name)]

    def _take_state(
        self,
        state: TrainingState,
        variables: Sequence[Any],
        pairs: Mapping[str, str],
        check: Optional[Callable[[Transfer], None]] = None,
    ) -> Transfer:
        return state_transfer.take_state(self, state, variables, pairs, check=check)

    def _expected_weights(self, variables: Optional[Sequence[Any]] = None) -> Expected:
        if variables is not None:
            create_slots(self, variables)
        return state_transfer.expected_weights(self)

    # Copies: called by ``copy`` and ``pickle``

    def __copy__(self) -> Any:
        """Return another object that shares everything with this one."""
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        return twin

    def __deepcopy__(self, memo: Dict[int, Any]) -> Any:
        return pickling.deep_copy(self, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return pickling.reduce(self)

    def __setstate__(self, given: Dict[str, Any]) -> None:
        pickling.set_state(self, given)

    # Checkpoints: called by TensorFlow

    @property
    def _checkpoint_dependencies(self) -> Any:
        """The children in a checkpoint, up to TF 2.8."""
        listed = super()._checkpoint_dependencies  # type: ignore[misc]
        more = checkpoint_tracking.written_children(self).items()
        return [*listed, *(type(listed[0])(name=name, ref=child) for name, child in more)]

    def _list_extra_dependencies_for_serialization(self, *args: Any) -> Dict[str, Any]:
        """Return the children that only a SavedModel has, up to TF 2.8."""
        children = super()._list_extra_dependencies_for_serialization(*args)  # type: ignore[misc]
        listed = self._monitor.children(is_saved_model=False)
        more = self._monitor.children(is_saved_model=True)
        return {**children, **{name: child for name, child in more.items() if name not in listed}}

    def _trackable_children(self, *save_type: Any, **kwargs: Any) -> Dict[str, Any]:
        """Return the children in a checkpoint or SavedModel, from TF 2.8 on."""
        children = super()._trackable_children(*save_type, **kwargs)  # type: ignore[misc]
        given = save_type[0] if save_type else kwargs.get("save_type")
        if getattr(given, "value", given) == "savedmodel":  # in 2.8 it is not a string
            return {**children, **self._monitor.children(is_saved_model=True)}
        return {**children, **checkpoint_tracking.written_children(self)}

    def _lookup_dependency(self, name: str, *cached: Any, **more: Any) -> Any:
        """Return the child of this name that a checkpoint is restored into."""
        if not self._is_complete():
            return super()._lookup_dependency(name, *cached, **more)  # type: ignore[misc]
        checkpoint_tracking.begin_restore(self, name)
        found = super()._lookup_dependency(name, *cached, **more)  # type: ignore[misc]
        return checkpoint_tracking.find_child(self, name, found)

    def _single_restoration_from_checkpoint_position(self, checkpoint_position: Any, **queue: Any) -> Any:
        """Restore the children at a position of a checkpoint, up to TF 2.9."""
        restored = super()._single_restoration_from_checkpoint_position(checkpoint_position, **queue)  # type: ignore[misc]
        checkpoint_tracking.restore_other_children(self, checkpoint_position)
        return restored


def _one_optimizer(optimizer: Any, inner_optimizer: Any) -> Any:
    given = [each for each in (optimizer, inner_optimizer) if each is not None]
    if len(given) != 1:
        raise WrongArgumentError("give one optimizer: as the first argument, as optimizer=, or as inner_optimizer=")
    return given[0]


def _only(by_position: Any, by_name: Any, name: str) -> Any:
    if by_name is not None:
        raise WrongArgumentError(f"got {name} by position and by name: give it once")
    return by_position


_PAIRS = "apply_gradients expects one list of (gradient, variable) pairs"


def _as_pairs(grads_and_vars: Any) -> List[Tuple[Any, Any]]:
    try:
        return [(grad, variable) for grad, variable in grads_and_vars]
    except (TypeError, ValueError):
        raise WrongArgumentError(f"{_PAIRS}, got {shown(grads_and_vars)}: write zip(gradients, variables)") from None


def _require_variables(variables: Iterable[Any], grads: Sequence[Any]) -> None:
    """Raise :class:`WrongArgumentError` unless these are variables."""
    wrong = [variable for variable in variables if not hasattr(variable, "assign")]
    if wrong:
        is_swapped = any(hasattr(grad, "assign") for grad in grads)
        got = "(variable, gradient) pairs" if is_swapped else f"{described(wrong[0])} in the place of a variable"
        raise WrongArgumentError(f"{_PAIRS}, got {got}: write zip(gradients, variables)")


def _require_gradients(grads: Any) -> None:
    """Raise :class:`WrongArgumentError` for what cannot be a list of gradients."""
    if grads is None or isinstance(grads, (str, Mapping)):
        raise WrongArgumentError(f"get_unscaled_gradients expects a list of gradients, got {described(grads)}")
    if isinstance(grads, (list, tuple)) and any(isinstance(grad, (str, tuple)) for grad in grads):
        raise WrongArgumentError(
            "get_unscaled_gradients expects a list of gradients, got pairs or text in it: give the gradients alone, "
            "and apply_gradients(zip(gradients, variables)) the result"
        )


def _names(watch: Any) -> List[Any]:
    """Return the names of statistics as a list; one name alone is one statistic."""
    if isinstance(watch, str):
        return [watch]
    if not isinstance(watch, Iterable):
        raise WrongArgumentError(f"watch expects a list of names such as ['zero_share'], got {shown(watch)}")
    return [*watch]


def _with_gradients(pairs: Pairs, aggregated: Pairs) -> Pairs:
    """Return all pairs with the aggregated gradients; the aggregated pairs alone if they are for other variables."""
    given = [variable for grad, variable in pairs if grad is not None]
    if len(aggregated) != len(given) or any(one is not other for one, (_, other) in zip(given, aggregated)):
        return aggregated
    remaining = iter(aggregated)
    return [pair if pair[0] is None else next(remaining) for pair in pairs]


def _indices_with_gradient(pairs: Sequence[Tuple[Any, Any]]) -> List[int]:
    indices = [index for index, (grad, _) in enumerate(pairs) if grad is not None]
    if not indices:
        names = [getattr(variable, "name", repr(variable)) for _, variable in pairs]
        raise ArgumentError(f"No gradients provided for any variable: {names}.")
    return indices
