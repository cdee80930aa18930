"""LossScaleOptimizer: the one public class, and what it does on every Keras."""

from typing import Any, ClassVar, Dict, List, Mapping, Optional, Sequence, Tuple

import threading

import numpy as np
import tensorflow as tf

from ..registry._monitor_options import monitoring_of
from ..registry.errors import TranslationError
from ..serialization._variable_io import value_of
from ..serialization.keras._optimizer_config import decode_config, encode_wrapper
from ..serialization.keras.profile import KerasProfile
from ._keras.inner_optimizer_factory import create_inner_optimizer
from ._keras.keras_dispatch import concrete_class, keras_of, keras_of_class, own_classes
from ._keras.policy_config import decode_policy, encode_policy, json_values, policy_from_arguments
from ._state.checkpoint_tracking import InCheckpoints
from ._state.iterations_on_skip import SkippedSteps, require_valid
from ._state.pickling import Copied
from ._state.state_dict import KeepsState
from ._state.state_transfer import state_numbers
from ._state.step_monitor import Monitored
from ._step import gate
from ._step.unscale import scaled, unscaled, usable

_one_at_a_time = threading.RLock()


class LossScaleOptimizer(KeepsState, InCheckpoints, Monitored, Copied):
    """An optimizer that scales the loss so that float16 gradients neither vanish nor overflow.

    ``optimizer`` is any Keras optimizer. ``loss_scale`` is what :func:`scalekeeper.resolve` takes: ``"dynamic"``, a
    number, a mapping, a registered name, a policy's class or object, or a ``LossScale`` object of TensorFlow's own.
    ``skipped_steps`` says what a skipped step does to ``iterations``: ``"advance"``, ``"hold"``, or ``"native"``, as
    TensorFlow's own class does on the installed version.

    ``stop_after_skips`` ends a run with an error after so many skipped steps in a row; ``attribute_overflows`` counts
    whose gradients were not finite; ``watch`` names what else is measured of every step's gradients
    (``"largest_magnitude"``, ``"zero_share"``). ``telemetry`` tells all of it.

    The other arguments are those of newer TensorFlows: ``inner_optimizer`` for ``optimizer``; ``dynamic``,
    ``initial_scale`` and ``dynamic_growth_steps`` instead of ``loss_scale``.

    Calling it makes an object of a class that derives from this one and from Keras's own class of the same name, as
    Keras asks for that one. ``optimizer/generations.py`` chooses it.
    """

    __module__ = "scalekeeper"  # its public address

    inner_optimizer: Any
    _profile: ClassVar[Optional[KerasProfile]] = None  # the Keras generation; None: of the public class

    def __new__(cls, optimizer: Any = None, *args: Any, **kwargs: Any) -> Any:
        return super().__new__(concrete_class(cls, _the_one(optimizer, kwargs.get("inner_optimizer"))))

    def __init__(
        self,
        optimizer: Any = None,
        loss_scale: Any = "dynamic",
        skipped_steps: str = gate.NATIVE,
        *,
        inner_optimizer: Any = None,
        dynamic: Optional[bool] = None,
        initial_scale: Optional[float] = None,
        dynamic_growth_steps: Optional[int] = None,
        name: Optional[str] = None,
        stop_after_skips: Optional[int] = None,
        attribute_overflows: bool = False,
        watch: Sequence[str] = (),
    ) -> None:
        optimizer = _the_one(optimizer, inner_optimizer)
        if isinstance(optimizer, (LossScaleOptimizer, *own_classes(optimizer))):
            raise ValueError(f"{type(optimizer).__name__} is a LossScaleOptimizer already: wrap its inner optimizer")
        require_valid(skipped_steps)
        gate.require_supported_strategy()
        policy = policy_from_arguments(loss_scale, dynamic, initial_scale, dynamic_growth_steps)
        monitoring = monitoring_of(
            {"stop_after_skips": stop_after_skips, "attribute_overflows": attribute_overflows, "watch": [*watch]},
            "LossScaleOptimizer",
        )
        self._wrap(optimizer, name)
        self._policy = policy
        with _one_at_a_time:  # optimizers that share a policy share its state, also if they are made at the same time
            self._hold(policy)
        self._monitor(monitoring)
        self._skipping = SkippedSteps(skipped_steps, self._advances_natively)

    # What each generation says in its own file

    @property
    def _advances_natively(self) -> bool:
        """Whether a skipped step counts in TensorFlow's own class."""
        return self._profile is not None and self._profile.native_skipped_steps == gate.ADVANCE

    def _wrap(self, optimizer: Any, name: Optional[str]) -> None:
        """Make Keras's own object of this one, around the inner optimizer."""
        raise NotImplementedError

    def _hold(self, policy: Any) -> None:
        """Put the policy's state into variables that Keras saves."""
        held = gate.hold_in_graph(policy)
        has_none = gate.has_pure_step(policy) and not gate.state_variables(policy)
        # since 2.4, TensorFlow's own class has no such child for a fixed scale
        if not has_none or "loss_scale" in self._unconditional_dependency_names:  # type: ignore[attr-defined]
            self._track_trackable(held, "loss_scale", overwrite=True)  # type: ignore[attr-defined]

    def _make_variables(self, variables: Sequence[Any]) -> None:
        """Make the inner optimizer's variables, if they are not there yet."""
        raise NotImplementedError

    def _apply_inner(self, pairs: List[Tuple[Any, Any]], name: Optional[str], aggregate: bool) -> Any:
        """Have the inner optimizer apply unscaled gradients."""
        raise NotImplementedError

    # The loss scale

    @property
    def loss_scale(self) -> Any:
        """The policy; calling it gives the current scale."""
        return self._policy

    @property
    def dynamic(self) -> bool:
        """Whether the scale can change."""
        return bool(gate.state_variables(self._policy)) or not gate.has_pure_step(self._policy)

    @property
    def initial_scale(self) -> Any:
        """The scale of the first step."""
        config = self._policy.get_config()
        return config.get("initial_loss_scale", config.get("loss_scale_value"))

    @property
    def dynamic_growth_steps(self) -> Any:
        """The finite steps in a row after which a dynamic scale grows; None for a policy without such a number."""
        return self._policy.get_config().get("increment_period")

    @property
    def dynamic_counter(self) -> Any:
        """The variable that counts finite steps in a row; None for a policy without one."""
        return gate.state_variables(self._policy).get("good_steps")

    def __repr__(self) -> str:
        """The inner optimizer, the policy with what is not at its default, and where both are."""
        name = self._public_class.__name__
        if not self._is_complete():  # the constructor was left by an error
            return f"<{name} that was not made>"
        words = ", ".join("{}={!r}".format(*item) for item in self._policy_config()["config"].items())
        with tf.init_scope():  # a step that is being traced may ask
            parts = [
                type(self.inner_optimizer).__name__,
                f"{type(self._policy).__name__}({words})",
                f"iterations={self._iterations_now()}",
                *(f"{name}={value!r}" for name, value in state_numbers(self._policy).items()),
            ]
        return f"{name}({', '.join(parts)})"

    def _iterations_now(self) -> int:
        """Up to 2.10 the variable is made when it is first asked for, which who only looks does not want."""
        is_made = getattr(self.inner_optimizer, "_iterations", None) is not None
        return int(value_of(self.inner_optimizer.iterations)) if is_made else 0

    @gate.as_written
    def get_scaled_loss(self, loss: Any) -> Any:
        """The loss, or what a callable returns, times the current scale."""
        if callable(loss):
            return lambda: scaled(loss(), self._scale())
        return scaled(loss, self._scale())

    @gate.as_written
    def get_unscaled_gradients(self, grads: Sequence[Any]) -> List[Any]:
        """The gradients divided by the current scale; None stays None."""
        return unscaled(grads, self._scale())

    def _scale(self) -> Any:
        """The current scale, which of a policy that holds its state in its own way may be too large to divide by."""
        return self._policy() if gate.has_pure_step(self._policy) else usable(self._policy())

    # A step

    @gate.as_written
    def apply_gradients(
        self,
        grads_and_vars: Any,
        name: Optional[str] = None,
        experimental_aggregate_gradients: bool = True,
        skip_gradients_aggregation: bool = False,
    ) -> Any:
        """Apply unscaled gradients if the policy says so, and update the loss scale.

        ``skip_gradients_aggregation=True`` is how later versions say ``experimental_aggregate_gradients=False``.
        """
        gate.require_supported_strategy()
        if tf.distribute.in_cross_replica_context():
            raise ValueError("apply_gradients must be called in a replica context: inside strategy.run, not around it")
        gate.require_strategy_of(self._variables_from_the_start(), self._can_be_made_outside())
        pairs = self._unscaled_pairs(_pairs(grads_and_vars))
        aggregate = experimental_aggregate_gradients and not skip_gradients_aggregation
        self._require_can_apply(aggregate)
        if not pairs:  # all layers are frozen: there is no step, and nothing to be learnt for the scale
            return None if tf.executing_eagerly() else tf.no_op()
        places = _places_with_gradient(pairs)
        with tf.init_scope():  # before the conditional, where none can be made
            self._make_variables([variable for _, variable in pairs])
            key = self._skips.know([pairs[place][1] for place in places])
        self._remember([variable for _, variable in pairs])
        self._hand_out([variable for _, variable in pairs])

        def apply(grads: List[Any]) -> Any:
            known = dict(zip(places, grads))
            return self._apply_inner(
                [(known.get(place), variable) for place, (_, variable) in enumerate(pairs)], name, aggregate
            )

        step = gate.gated_step(
            self._policy,
            [pairs[place][0] for place in places],
            apply,
            lambda bad: self._count_skipped(key, bad),
            self._watched,
            self._skips.attributes,
        )
        if tf.executing_eagerly():
            self.raise_if_stuck()
        return step

    def _unscaled_pairs(self, pairs: List[Tuple[Any, Any]]) -> List[Tuple[Any, Any]]:
        """What ``apply_gradients`` was given, which is unscaled already but where Keras hands it scaled gradients."""
        return pairs

    def _variables_from_the_start(self) -> List[Any]:
        """Those that tell in whose scope the optimizer, its policy and the inner optimizer were made."""
        iterations = getattr(self.inner_optimizer, "_iterations", None)  # up to 2.10 there once they are asked for
        made = [*gate.state_variables(self._policy).values(), self._skipping.variable]
        return made if iterations is None else [*made, iterations]

    def _can_be_made_outside(self) -> bool:
        """Whether the replicas of a strategy can use what was made outside of its scope."""
        return gate.replicas_can_meet()

    def _require_can_apply(self, aggregate: bool) -> None:
        """Refuse what the inner optimizer can't honour."""

    @property
    def skipped_steps(self) -> str:
        """What a skipped step does to ``iterations``: ``"advance"`` or ``"hold"``."""
        return self._skipping.choice

    @skipped_steps.setter
    def skipped_steps(self, choice: str) -> None:
        self._skipping.choice = choice

    # Names of the documentation that not every Keras has

    @property
    def lr(self) -> Any:
        """The inner optimizer's learning rate."""
        return self.inner_optimizer.learning_rate

    @lr.setter
    def lr(self, value: Any) -> None:
        self.inner_optimizer.learning_rate = value

    def get_slot(self, var: Any, slot_name: str) -> Any:
        """The inner optimizer's slot variable."""
        return self.inner_optimizer.get_slot(var, slot_name)

    def add_slot(self, var: Any, slot_name: str, initializer: Any = "zeros") -> Any:
        """Add a slot variable to the inner optimizer."""
        return self.inner_optimizer.add_slot(var, slot_name, initializer)

    def add_weight(self, *args: Any, **kwargs: Any) -> Any:
        """Add a variable to the inner optimizer."""
        return self.inner_optimizer.add_weight(*args, **kwargs)

    # Configuration

    def get_config(self) -> Dict[str, Any]:
        """The inner optimizer and the policy, as plain values that JSON can hold."""
        assert self._profile is not None
        name = getattr(self, "name", None) if self._profile.writes_wrapper_name else None
        config = encode_wrapper(self._profile, json_values(self._serialized_inner()), self._policy_config(), name)
        return {**config, **self._skipping.in_config(), **self._monitoring.said()}

    def _policy_config(self) -> Dict[str, Any]:
        return encode_policy(self._policy, keras_of(self.inner_optimizer))

    def _serialized_inner(self) -> Any:
        return keras_of(self.inner_optimizer).optimizers.serialize(self.inner_optimizer)

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Optional[Mapping[str, Any]] = None) -> Any:
        """Make an optimizer from what ``get_config`` gave, of this class or of TensorFlow's own, on any version."""
        custom_objects = custom_objects or {}
        declaration = decode_config(config)
        if declaration.policy is None:
            raise TranslationError(
                f"{declaration.class_name} was given without a loss scale: make that optimizer, and wrap it"
            )
        keras = keras_of_class(cls)
        families = None if cls._profile is None else (cls._profile.family,)
        inner = create_inner_optimizer(declaration, keras, families, custom_objects)
        options: Dict[str, Any] = {} if declaration.name is None else {"name": declaration.name}
        options.update(declaration.monitoring or {})
        skipped_steps = declaration.skipped_steps or gate.NATIVE
        return cls(inner, decode_policy(declaration.policy, keras, custom_objects), skipped_steps, **options)


def _the_one(optimizer: Any, inner_optimizer: Any) -> Any:
    given = [each for each in (optimizer, inner_optimizer) if each is not None]
    if len(given) != 1:
        raise TypeError("give one optimizer: as the first argument, as optimizer=, or as inner_optimizer=")
    return given[0]


def _pairs(grads_and_vars: Any) -> List[Tuple[Any, Any]]:
    try:
        return [(grad, variable) for grad, variable in grads_and_vars]
    except (TypeError, ValueError):
        raise TypeError(f"grads_and_vars must hold (gradient, variable) pairs, not {grads_and_vars!r}") from None


def _places_with_gradient(pairs: Sequence[Tuple[Any, Any]]) -> List[int]:
    places = [place for place, (grad, _) in enumerate(pairs) if grad is not None]
    if not places:
        named = [getattr(variable, "name", repr(variable)) for _, variable in pairs]
        raise ValueError(f"No gradients provided for any variable: {named}.")
    return places


def numpy_values(variables: Sequence[Any]) -> List[Any]:
    """What ``get_weights`` returns."""
    return [np.asarray(variable.numpy()) for variable in variables]
