"""What a loss-scale policy is: parameters, a state, and a pure step."""

from typing import Any, Callable, ClassVar, Dict, FrozenSet, Mapping, Optional, Tuple, Type, TypeVar

import inspect
import numbers

import numpy as np

from ..registry._parameters import checked
from ..registry.errors import ArgumentTypeError, Problem, StateMismatchError, shown, unknown
from ..registry.field_types import StrictModel
from ._numpy_state import NumpyState
from .report import Report, State

Self = TypeVar("Self", bound="LossScale")


class LossScaleParams(StrictModel):
    """Base of every policy's ``Params``: frozen, strict, no unknown names."""


class LossScale:
    """A loss-scale policy: ``Params``, ``initial_state`` and the pure ``next_state``.

    ``next_state`` gets the state, the :class:`Report` of a step and ``ops``, the operations that NumPy, TensorFlow and
    Keras share; it returns the next state and touches nothing else. The same lines run in a simulation without
    TensorFlow and inside TensorFlow's graph. Python's operators work on both; constants are written as
    ``ops.float32(2)``, so that both compute in float32.

    ``needs`` names the fields of the report that the policy reads. Only these are computed, so a policy that does not
    look at the gradients does not pay for looking.

    Calling the object gives the current scale, and ``update(gradients)`` takes a step, as with TensorFlow's own
    ``LossScale``. A class that overrides just those two, in TensorFlow's style, is a policy too.

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
    tensorflow_parameters: ClassVar[Tuple[str, ...]] = ()  # those that TensorFlow's class of the same name has
    params: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        names = list(self.Params.model_fields)
        if len(args) > len(names):
            raise ArgumentTypeError(f"{type(self).__name__} takes {names}, but {len(args)} values were given")
        values = dict(zip(names, args))
        if values.keys() & kwargs.keys():
            raise ArgumentTypeError(f"{type(self).__name__} got {sorted(values.keys() & kwargs.keys())} twice")
        values.update(kwargs)
        self._begin(checked(self.Params, values, type(self).__name__))

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # set in every class: what a subclass inherits would be its parent's
        takes = cls.Params if cls.__init__ is LossScale.__init__ else cls.__init__
        parameters = list(inspect.signature(takes).parameters.values())
        cls.__signature__ = inspect.Signature(parameters if takes is cls.Params else parameters[1:])  # type: ignore

    @classmethod
    def from_params(cls: Type[Self], params: LossScaleParams) -> Self:
        """Make a policy from parameters that are validated already."""
        if cls.__init__ is not LossScale.__init__:
            return cls(**dict(params))
        loss_scale = cls.__new__(cls)
        loss_scale._begin(params)
        return loss_scale

    def _begin(self, params: LossScaleParams) -> None:
        self.params = params
        self._memory: Optional[Any] = None

    # The policy

    @property
    def needs(self) -> FrozenSet[str]:
        """The fields of the report that this policy reads."""
        return frozenset({"finite"})

    def initial_state(self) -> Dict[str, Any]:
        """Name → NumPy scalar, whose type is the type of that piece of state for ever."""
        return {}

    def scale(self, state: State, ops: Any) -> Any:
        """The loss scale that a state stands for, as a float32 scalar."""
        return state["current_loss_scale"]

    def should_apply(self, state: State, report: Report, ops: Any) -> Any:
        """Whether the step with this report is applied, or skipped. Python's own True: always."""
        return report.finite

    def next_state(self, state: State, report: Report, ops: Any) -> State:
        """The state after a step with this report."""
        raise NotImplementedError(
            f"{type(self).__name__} has neither next_state (the pure step) nor update and __call__ of its own"
        )

    # TensorFlow's contract

    def __call__(self) -> Any:
        """The current scale, as a float32 scalar."""
        return self._remembered().scale()

    def numpy(self) -> Any:
        """The current scale as NumPy has it. Newer TensorFlows have a number in ``loss_scale``: this reads as one."""
        return np.float32(self())

    def __float__(self) -> float:
        return float(self())

    def update(self, grads: Any) -> Tuple[Any, Any]:
        """Take one step with these (unscaled) gradients. Returns ``(update_op, should_apply)``."""
        update_op, should_apply = self._remembered().update(grads)
        return update_op, should_apply

    def get_config(self) -> Dict[str, Any]:
        """The parameters as plain values; ``from_config`` takes them back."""
        return dict(self.params.model_dump())

    @classmethod
    def from_config(cls: Type[Self], config: Mapping[str, Any]) -> Self:
        """Make a policy from what ``get_config`` gave."""
        return cls(**config)

    # State

    def state(self) -> Dict[str, Any]:
        """The current state as plain numbers."""
        return dict(self._remembered().plain())

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from what ``state`` gave. A state that does not fit is refused whole."""
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
        """Hold the state elsewhere from now on, such as in TensorFlow's variables, and go on from where it is.

        ``make_memory(policy, state)`` gives an object with the methods of ``NumpyState``.
        """
        self._memory = make_memory(self, self._remembered().read())
        return self._memory

    def _remembered(self) -> Any:
        if self._memory is None:
            self._memory = NumpyState(self, self.initial_state())
        return self._memory

    # Copies, by ``copy`` and by ``pickle``: with a state of their own, in NumPy, wherever this one's is

    def __getstate__(self) -> Dict[str, Any]:
        memory = vars(self).get("_memory")
        return {**vars(self), "_memory": None if memory is None else memory.plain()}

    def __setstate__(self, given: Dict[str, Any]) -> None:
        vars(self).update(given, _memory=None)
        if given["_memory"] is not None:
            kinds = self.initial_state()
            values = {name: kinds[name].dtype.type(value) for name, value in given["_memory"].items()}
            self._memory = NumpyState(self, values)

    def __repr__(self) -> str:
        fields = ", ".join("{}={!r}".format(*field) for field in self.get_config().items())
        return f"{type(self).__name__}({fields})"


def has_pure_step(policy: Any) -> bool:
    """Whether a policy is stepped by ``next_state``; one in TensorFlow's style has an ``update`` of its own."""
    return isinstance(policy, LossScale) and type(policy).update is LossScale.update


def _fits(value: Any, kind: "np.dtype[Any]") -> bool:
    """Whether a value is a finite number of this type (a float may be rounded to it, an integer may not)."""
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
