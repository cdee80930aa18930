"""The base class of loss-scale policies: parameters, state and a pure step; and steps within a minimum and maximum."""

from typing import Any, Callable, ClassVar, Dict, FrozenSet, List, Mapping, Optional, Tuple, Type, TypeVar

import functools
import inspect
import numbers

import numpy as np

from .._built_in_plugins import loaders
from ..registry._parameters import checked
from ..registry.errors import (
    ArgumentTypeError,
    InvalidSpecError,
    InvalidSpecTypeError,
    Problem,
    StateMismatchError,
    shown,
    unknown,
)
from ..registry.field_types import StrictModel, broken_rule
from ._number import NOT_CONVERTED, ScaleNumber
from ._numpy_state import NumpyState
from ._step_contract import checked_initial_state
from ._tensorflow_import import loaded_tensorflow
from .report import Report, State

Self = TypeVar("Self", bound="LossScale")
# problems for which Python, and TensorFlow's own classes, raise TypeError
_CALL_PROBLEMS = frozenset({"extra_forbidden", "missing", "float_type", "int_type"})

# the parameters that TensorFlow's DynamicLossScale has as attributes
TENSORFLOW_PARAMETERS = ("initial_loss_scale", "increment_period", "multiplier")
# the name of the function that imports the module for policies with TensorFlow
TENSORFLOW_HALF = "scalekeeper.policies_in_tensorflow"
# entry of a state → its name in the repr of TensorFlow's class
_SHOWN_AS = {"good_steps": "num_good_steps"}
# attributes that TensorFlow sets in an object when it first tracks it
_SET_BY_TRACKABLE = frozenset(
    "_self_" + name
    for name in (
        "name_based_restores",
        "saveable_object_factories",
        "setattr_tracking",
        "unconditional_checkpoint_dependencies",
        "unconditional_deferred_dependencies",
        "unconditional_dependency_names",
        "update_uid",
    )
)


class LossScaleParams(StrictModel):
    """Base class of the ``Params`` of a policy: frozen, strict, no unknown names.

    It is a model of pydantic. Give each field a type, a default and, with ``pydantic.Field``, a description.

    Example:
        >>> from pydantic import Field
        >>> from scalekeeper import LossScale, LossScaleParams
        >>> class WarmUp(LossScale):
        ...     class Params(LossScaleParams):
        ...         steps: int = Field(1000, ge=1, description="Steps before the scale grows.")
        >>> WarmUp.Params(steps=10).steps
        10
    """


class Parameter:
    """A parameter as an attribute of the policy. An attribute that a class or an object sets takes precedence."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, policy: Any, cls: Any = None) -> Any:
        return self if policy is None else getattr(policy.params, self._name)


class LossScale(ScaleNumber):
    """A loss-scale policy: ``Params``, ``initial_state`` and the pure ``next_state``.

    ``next_state`` takes the state, the :class:`Report` of a step and ``ops``, the operations that NumPy, TensorFlow and
    Keras share. It returns the next state and has no side effects. The same code runs in a simulation without
    TensorFlow and in a TensorFlow graph. Python operators work in both; write constants as ``ops.float32(2)``, so that
    both compute in float32.

    ``needs`` names the fields of the report that the policy reads. Only these are computed.

    Calling the object returns the current loss scale, and ``update(gradients)`` takes a step, as in TensorFlow's
    ``LossScale``. A class that overrides only these two methods is a policy too. In arithmetic, comparisons with
    numbers, conversions and formats, the object stands for its current loss scale.

    Args:
        *args: Values of the parameters, in the order of ``Params``.
        **kwargs: Values of the parameters by name.

    Attributes:
        Params: The class of the parameters, a subclass of :class:`LossScaleParams`.
        params: The parameters of this object.

    Raises:
        ArgumentTypeError: More values are given than there are parameters, or one is given twice.
        InvalidSpecError: A value is not valid; ``problems`` lists why.
        InvalidSpecTypeError: A name is unknown, or a value is missing or not a number. It is also an InvalidSpecError.

    Example:
        >>> import numpy as np
        >>> from scalekeeper import LossScale
        >>> class Halving(LossScale):
        ...     class Params(LossScale.Params):
        ...         start: float = 1024.0
        ...     def initial_state(self):
        ...         return {"current_loss_scale": np.float32(self.params.start)}
        ...     def next_state(self, state, report, ops):
        ...         scale = state["current_loss_scale"]
        ...         return {"current_loss_scale": ops.where(report.finite, scale, scale / ops.float32(2))}
        >>> loss_scale = Halving(start=8)
        >>> update_op, should_apply = loss_scale.update([np.float32("nan")])
        >>> bool(should_apply), float(loss_scale())
        (False, 4.0)
    """

    Params: ClassVar[Type[LossScaleParams]] = LossScaleParams
    tensorflow_parameters: ClassVar[Tuple[str, ...]] = ()  # those of TensorFlow's class of the same name
    params: Any
    _memory: Optional[Any] = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        names = list(self.Params.model_fields)
        if len(args) > len(names):
            raise ArgumentTypeError(f"{type(self).__name__} takes {names}, but {len(args)} values were given")
        values = dict(zip(names, args))
        if values.keys() & kwargs.keys():
            raise ArgumentTypeError(f"{type(self).__name__} got {sorted(values.keys() & kwargs.keys())} twice")
        values.update(kwargs)
        try:
            params = checked(self.Params, values, type(self).__name__)
        except InvalidSpecError as error:
            if any(problem.kind in _CALL_PROBLEMS for problem in error.problems):
                raise InvalidSpecTypeError(error.problems) from None
            raise
        self._begin(params)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # set in every class, because a subclass would inherit that of its parent
        takes = cls.Params if cls.__init__ is LossScale.__init__ else cls.__init__
        parameters = list(inspect.signature(takes).parameters.values())
        cls.__signature__ = inspect.Signature(parameters if takes is cls.Params else parameters[1:])  # type: ignore
        for name in TENSORFLOW_PARAMETERS:
            if name in cls.Params.model_fields and not hasattr(cls, name):
                setattr(cls, name, Parameter(name))

    @classmethod
    def from_params(cls: Type[Self], params: LossScaleParams) -> Self:
        """Return a policy with parameters that are already validated.

        Args:
            params: An object of ``Params``.
        """
        if cls.__init__ is not LossScale.__init__:
            return cls(**dict(params))
        loss_scale = cls.__new__(cls)
        loss_scale._begin(params)
        return loss_scale

    def _begin(self, params: LossScaleParams) -> None:
        self.params = params
        self._memory = None

    # The policy

    @property
    def needs(self) -> FrozenSet[str]:
        """The fields of the report that this policy reads."""
        return frozenset({"finite"})

    def initial_state(self) -> Dict[str, Any]:
        """Return the initial state: name → NumPy scalar. A step must keep names and types."""
        return {}

    def scale(self, state: State, ops: Any) -> Any:
        """Return the loss scale of a state as a float32 scalar.

        Args:
            state: The state.
            ops: The operations of the backend.
        """
        return state["current_loss_scale"]

    def should_apply(self, state: State, report: Report, ops: Any) -> Any:
        """Return whether a step is applied, as a boolean of ``ops``; or ``True`` if every step is.

        Args:
            state: The state before the step.
            report: The fields of the report that ``needs`` names; the others are None.
            ops: The operations of the backend.
        """
        return report.finite

    def next_state(self, state: State, report: Report, ops: Any) -> State:
        """Return the state after a step.

        Args:
            state: The state before the step.
            report: The fields of the report that ``needs`` names; the others are None.
            ops: The operations of the backend, such as :class:`scalekeeper.lossscales.NumpyOps`.

        Returns:
            A new mapping with the same names and types.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has neither next_state (the pure step) nor update and __call__ of its own"
        )

    # TensorFlow's contract

    def __call__(self) -> Any:
        """Return the current loss scale as a float32 scalar: a tensor if TensorFlow is loaded, otherwise of NumPy."""
        if loaded_tensorflow() is not None:
            return loaders[TENSORFLOW_HALF]().scale(self)
        memory = self._remembered()
        memory.was_read = True
        return memory.scale()

    def update(self, grads: Any) -> Tuple[Any, Any]:
        """Take one step; in a graph, in a ``tf.function`` and under a strategy, with the state in variables.

        Args:
            grads: The unscaled gradients: one, or a nest of lists, tuples and dictionaries; None: no gradient.

        Returns:
            ``(update_op, should_apply)``: the operation that updates the state in a graph of TensorFlow 1, which is
            None in eager mode; and whether to apply the gradients, True or a boolean scalar.
        """
        if loaded_tensorflow() is not None:
            update_op, should_apply = loaders[TENSORFLOW_HALF]().update(self, grads)
        else:
            update_op, should_apply = self._remembered().update(grads)
        return update_op, should_apply

    setattr(update, NOT_CONVERTED, {})

    def get_config(self) -> Dict[str, Any]:
        """Return the parameters as plain values, for ``from_config``.

        A class that TensorFlow has, too, leaves out the parameters that TensorFlow lacks, if they have their defaults.
        """
        return without_added_defaults(self, self.params.model_dump())

    def _parameters(self) -> Dict[str, Any]:
        """Return all parameters as plain values; the result of ``get_config`` if a class has its own."""
        has_own_config = type(self).get_config is not LossScale.get_config
        return dict(self.get_config() if has_own_config else self.params.model_dump())

    @classmethod
    def from_config(cls: Type[Self], config: Mapping[str, Any]) -> Self:
        """Return a policy from the result of ``get_config``.

        Args:
            config: The result of ``get_config``.

        Raises:
            ArgumentTypeError: ``config`` is not a mapping.
        """
        if not isinstance(config, Mapping):
            raise ArgumentTypeError(f"{cls.__name__}.from_config expects what get_config returned, got {shown(config)}")
        return cls(**config)

    # State

    def state(self) -> Dict[str, Any]:
        """Return the current state as Python numbers."""
        return dict(self._remembered().plain())

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a result of ``state``.

        Args:
            state: The result of ``state`` of an object of the same class.

        Raises:
            StateMismatchError: A name or value does not fit; the current state is then unchanged.
        """
        if not isinstance(state, Mapping):
            raise StateMismatchError([Problem((), f"expected what state() returned, got {shown(state)}", "type")])
        kinds = {name: value.dtype for name, value in self.initial_state().items()}
        problems = [Problem((name,), "not in the given state", "missing") for name in kinds if name not in state]
        values = {}
        for name, value in state.items():
            if name not in kinds:
                problems.append(Problem((name,), unknown("state", name, sorted(kinds)), "extra_forbidden", True))
            elif not _fits(value, kinds[name]):
                problems.append(Problem((name,), f"{shown(value)} does not fit a {kinds[name]}", "type"))
            else:
                values[name] = kinds[name].type(value)
        if problems:
            raise StateMismatchError(problems)
        self._remembered().write(values)

    def move_state(self, make_memory: Callable[["LossScale", State], Any]) -> Any:
        """Move the current state to another backend, such as TensorFlow variables.

        Args:
            make_memory: A function of the policy and its state that returns an object with the methods of
                ``NumpyState``.

        Returns:
            That object.
        """
        state = checked_initial_state(self) if self._memory is None else self._memory.read()
        self._memory = make_memory(self, state)
        return self._memory

    @property
    def _was_read(self) -> bool:
        """Whether a program has asked for the loss scale, and not only the optimizer that has the policy."""
        # a class with its own __call__ is asked in the same way by the optimizer
        return self._has_own_call() or self._remembered().was_read

    def _has_own_call(self) -> bool:
        return type(self).__call__ is not LossScale.__call__

    def _as_graph_element(self) -> Any:
        """Return the tensor that a session of TensorFlow 1 fetches for this object, if there is one."""
        # a class with its own constructor and __call__ has no memory
        element = getattr(vars(self).get("_memory"), "graph_element", None)
        return None if element is None else element()

    def _remembered(self) -> Any:
        if self._memory is None:
            self._memory = NumpyState(self, checked_initial_state(self))
        return self._memory

    # Copies by ``copy`` and ``pickle`` have their own state, in NumPy

    def __getstate__(self) -> Dict[str, Any]:
        memory = vars(self).get("_memory")
        kept = {name: value for name, value in vars(self).items() if name not in _SET_BY_TRACKABLE}
        return {**kept, "_memory": None if memory is None else memory.plain()}

    def __setstate__(self, given: Dict[str, Any]) -> None:
        vars(self).update(given, _memory=None)
        if given["_memory"] is not None:
            kinds = self.initial_state()
            values = {name: kinds[name].dtype.type(value) for name, value in given["_memory"].items()}
            self._memory = NumpyState(self, values)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._shown_state() + self._shown_parameters())})"

    def _shown_state(self) -> List[str]:
        """Return the entries of the state for ``repr``: none if the state has no value here, as in a graph."""
        memory = vars(self).get("_memory")
        if memory is not None:
            state = memory.known()
        else:
            state = self.initial_state() if has_pure_step(self) and "params" in vars(self) else {}
        numbers = {name: np.float32(value) if isinstance(value, float) else value for name, value in state.items()}
        return [f"{_SHOWN_AS.get(name, name)}={value}" for name, value in numbers.items()]

    def _shown_parameters(self) -> List[str]:
        if type(self).get_config is LossScale.get_config and "params" not in vars(self):
            return []  # a class with its own constructor
        return ["{}={!r}".format(*item) for item in self.get_config().items()]


def without_added_defaults(policy: Any, config: Optional[Mapping[str, Any]] = None) -> Dict[str, Any]:
    """Return a configuration without the defaults of parameters that TensorFlow's class of the same name lacks.

    Args:
        policy: The policy that the configuration belongs to.
        config: The configuration; what ``get_config`` of the policy returns if it is None.
    """
    config = policy.get_config() if config is None else config
    native = getattr(policy, "tensorflow_parameters", ())
    added = {name: field for name, field in policy.Params.model_fields.items() if name not in native} if native else {}
    return {name: value for name, value in config.items() if name not in added or value != added[name].get_default()}


def has_pure_step(policy: Any) -> bool:
    """Return whether ``next_state`` defines the step of a policy, and not an ``update`` method."""
    return isinstance(policy, LossScale) and type(policy).update is LossScale.update


def _fits(value: Any, kind: "np.dtype[Any]") -> bool:
    """Return whether a value is a finite number of this type; floats may be rounded, integers may not."""
    if kind.kind == "b" or isinstance(value, (bool, np.bool_)):
        return kind.kind == "b" and isinstance(value, (bool, np.bool_))
    if not isinstance(value, numbers.Real):
        return False
    number: Any = value
    if kind.kind == "f":
        limit = float(np.finfo(kind).max)
        return bool(-limit <= number <= limit)
    limits = np.iinfo(kind)
    return bool(limits.min <= number <= limits.max and number == int(number))


# Steps within a minimum and maximum, for policies that have these parameters


def require_bounds(initial: float, minimum: float, maximum: Optional[float]) -> None:
    """Raise an error unless the initial scale is between minimum and maximum."""
    ceiling = float("inf") if maximum is None else maximum
    if minimum > ceiling:
        raise broken_rule("minimum", f"{minimum:g} is above the maximum, {ceiling:g}")
    if not minimum <= initial <= ceiling:
        bounds = f"between the minimum, {minimum:g}, and the maximum, {ceiling:g}"
        message = f"the initial scale, {initial:g}, is not {bounds}: give one that is"
        raise broken_rule("initial_loss_scale", message)


def grown(scale: Any, factor: float, maximum: Optional[float], ops: Any) -> Any:
    """Return the scale times a factor, at most the maximum; without a maximum, keep a scale that would overflow."""
    product = scale * ops.float32(factor)
    if maximum is not None:
        return ops.minimum(product, ops.float32(maximum))
    return ops.where(scale <= ops.float32(_largest_to_grow(factor)), product, scale)


@functools.lru_cache(maxsize=64)
def _largest_to_grow(factor: float) -> float:
    """Return the largest float32 whose product with a factor, rounded to float32, is finite; -1 if there is none."""
    with np.errstate(over="ignore"):
        multiplier, largest = np.float32(factor), np.finfo(np.float32).max
        if np.isinf(multiplier):
            return -1.0
        number = np.float32(np.nextafter(largest / multiplier, np.float32(np.inf)))
        while not np.isfinite(number * multiplier):
            number = np.nextafter(number, np.float32(0))
    return float(number)


def shrunk(scale: Any, divisor: float, minimum: float, ops: Any) -> Any:
    """Return the scale divided by a divisor, at least the minimum."""
    # not scale / divisor, which a graph optimizer replaces by this product, and which may differ in the last bit
    return ops.maximum(scale * (ops.float32(1) / ops.float32(divisor)), ops.float32(minimum))
