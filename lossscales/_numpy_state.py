"""The NumPy backend of a policy: operations, step and state."""

from typing import TYPE_CHECKING, Any, Callable, Dict, FrozenSet, List, Mapping, Tuple

import bisect
import collections.abc
import functools
import math

import numpy as np

from ._step_contract import BUGS, broken_call, require_decision, require_next_state, require_scale
from .report import Report, State

if TYPE_CHECKING:
    from .contract import LossScale


_FLOAT32_MAX = np.finfo(np.float32).max
LOWEST_LOG, HIGHEST_LOG = -126.0, float(np.float32(127.99))  # where 2 ** x is a normal float32
_TRUE, _FALSE = np.bool_(True), np.bool_(False)
_BOOLEANS = frozenset({np.bool_, bool})
# scalars of one type have a fast path: NumPy functions need ten times as long to inspect their arguments
_SCALARS = frozenset({np.float32, np.int64, np.bool_})


class NumpyOps:
    """The operations of a pure step. Every backend has the same names and gives the same results to the bit.

    A step may also use Python operators. A compiler may fuse a product and a sum, or add three numbers in another
    order, and then round differently. Wrap every float operation but the last of several in a row in
    ``ops.rounded(…)``.

    Attributes:
        float32: Return a number as a float32 constant.
        int64: Return a number as an int64 constant.
        sqrt: Return the square root of a float32.

    Example:
        >>> import numpy as np
        >>> from scalekeeper.lossscales import NumpyOps
        >>> ops = NumpyOps()
        >>> float(ops.where(np.bool_(True), ops.float32(2), ops.float32(1)))
        2.0
    """

    # for constants; cached, because creating them would take most of the time of a step
    float32 = staticmethod(functools.lru_cache(maxsize=1024, typed=True)(np.float32))
    int64 = staticmethod(functools.lru_cache(maxsize=1024, typed=True)(np.int64))
    sqrt = staticmethod(np.sqrt)

    @staticmethod
    def where(condition: Any, if_true: Any, if_false: Any) -> Any:
        """Return the first value where a condition is true, and the second elsewhere.

        Args:
            condition: A boolean.
            if_true: The first value.
            if_false: The second value, of the same type.
        """
        kind = type(if_true)
        if kind in _SCALARS and kind is type(if_false) and type(condition) in _BOOLEANS:
            return if_true if condition else if_false
        return np.where(condition, if_true, if_false)[()]

    @staticmethod
    def either(condition: Any, if_true: Callable[[], State], if_false: Callable[[], State]) -> State:
        """Return the state of one of two functions. NumPy calls only that one; a graph runs both.

        Args:
            condition: A boolean.
            if_true: The function that returns the state if it is true.
            if_false: The function that returns the state if it is false, with the same names and types.
        """
        return if_true() if condition else if_false()

    @staticmethod
    def minimum(one: Any, other: Any) -> Any:
        """Return the smaller of two values; NaN if one of them is NaN.

        Args:
            one: A number.
            other: A number of the same type.
        """
        kind = type(one)
        if kind in _SCALARS and kind is type(other):
            return other if other < one or other != other else one  # propagates NaN
        return np.minimum(one, other)

    @staticmethod
    def maximum(one: Any, other: Any) -> Any:
        """Return the larger of two values; NaN if one of them is NaN.

        Args:
            one: A number.
            other: A number of the same type.
        """
        kind = type(one)
        if kind in _SCALARS and kind is type(other):
            return other if other > one or other != other else one
        return np.maximum(one, other)

    @staticmethod
    def isfinite(value: Any) -> Any:
        """Return whether a number is neither NaN nor infinite.

        Args:
            value: A number.
        """
        if type(value) is np.float32:
            return -_FLOAT32_MAX <= value <= _FLOAT32_MAX
        return np.isfinite(value)

    @staticmethod
    def logical_and(one: Any, other: Any) -> Any:
        """Return whether both booleans are true.

        Args:
            one: A boolean.
            other: Another one.
        """
        return one & other if type(one) is type(other) is np.bool_ else np.logical_and(one, other)

    @staticmethod
    def logical_or(one: Any, other: Any) -> Any:
        """Return whether one of two booleans is true.

        Args:
            one: A boolean.
            other: Another one.
        """
        return one | other if type(one) is type(other) is np.bool_ else np.logical_or(one, other)

    @staticmethod
    def logical_not(value: Any) -> Any:
        """Return whether a boolean is false.

        Args:
            value: A boolean.
        """
        if type(value) is np.bool_:
            return _FALSE if value else _TRUE
        return np.logical_not(value)

    @staticmethod
    def rounded(value: Any) -> Any:
        """Return the value, rounded to float32 and not fused with the next operation.

        Args:
            value: The result of a float32 operation.
        """
        return value

    @staticmethod
    def as_float32(value: Any) -> Any:
        """Return an integer as the nearest float32.

        Args:
            value: An integer.
        """
        return np.float32(value)

    @staticmethod
    def log2(value: Any) -> Any:
        """Return the base-2 logarithm of a positive normal float32, within 0.009 and exact at powers of two.

        Libraries round a true logarithm differently. This one is computed in integers from the bits of the number,
        ``m * 2**e`` with ``1 <= m < 2``, as ``e + f + 0.34 * f * (1 - f)``, where ``f = m - 1``.

        Args:
            value: A positive normal float32.
        """
        mantissa, exponent = math.frexp(value)  # from 1/2 to 1
        fraction = int(mantissa * 2**24) - 2**23
        whole = (exponent - 1 << 23) + fraction + _log2_correction(fraction)
        return np.float32(whole * 2.0**-23)

    @staticmethod
    def exp2(value: Any) -> Any:
        """Return 2 to the power of a value clamped to -126 … 127.99, within 1 % and exact at integers.

        Args:
            value: The exponent, a float32.
        """
        exponent, fraction = divmod(int(min(max(float(value), LOWEST_LOG), HIGHEST_LOG) * 2**23), 2**23)
        return np.float32(math.ldexp(2**23 + fraction - _log2_correction(fraction), exponent - 23))

    @staticmethod
    def pick(values: Any, index: Any) -> Any:
        """Return one of several NumPy scalars of one type by its index.

        Args:
            values: The scalars.
            index: The index, an int64.
        """
        return values[index]

    @staticmethod
    def count_reached(thresholds: Any, value: Any) -> Any:
        """Return how many of the thresholds, sorted integers, are at most the value, as int64.

        Args:
            thresholds: Sorted Python integers.
            value: An int64.
        """
        return np.int64(bisect.bisect_right(thresholds, value))


OPS = NumpyOps()


def _log2_correction(fraction: int) -> int:
    """Return the logarithm minus its linear interpolation between powers of two, in units of 2**-23."""
    return (fraction * (2**23 - fraction) >> 23) * 87 >> 8


def advance(loss_scale: "LossScale", state: State, report: Report) -> Tuple[State, Any]:
    """Take one step in NumPy.

    Args:
        loss_scale: The policy. It is not changed.
        state: The state before the step, as from ``initial_state``.
        report: The report on the gradients of the step.

    Returns:
        The next state, and whether the step is applied.

    Raises:
        PolicyContractError: A method of the policy breaks its contract. If the step changed the names or types of the
            state, this is a :class:`StateTypeError`.

    Example:
        >>> import numpy as np
        >>> from scalekeeper import DynamicLossScale, Report
        >>> from scalekeeper.lossscales import advance
        >>> policy = DynamicLossScale(initial_loss_scale=8)
        >>> state, applied = advance(policy, policy.initial_state(), Report(finite=np.bool_(False)))
        >>> float(state["current_loss_scale"]), bool(applied)
        (4.0, False)
    """
    method = "next_state"
    try:
        with np.errstate(all="ignore"):  # overflows are expected
            following = loss_scale.next_state(state, report, OPS)
            method = "should_apply"
            should_apply = loss_scale.should_apply(state, report, OPS)
    except BUGS as error:
        raise broken_call(loss_scale, method, error, state) from error
    if following is not state and not _has_same_types(following, state):
        require_next_state(loss_scale, following, state)
    if should_apply is None:
        require_decision(loss_scale, should_apply)
    return following, should_apply


def current_scale(loss_scale: "LossScale", state: State) -> Any:
    """Return the loss scale of a state in NumPy.

    Raises:
        PolicyContractError: ``scale`` of the policy breaks its contract.
    """
    try:
        scale = loss_scale.scale(state, OPS)
    except BUGS as error:
        raise broken_call(loss_scale, "scale", error, state) from error
    if type(scale) is not np.float32:
        require_scale(loss_scale, scale)
    return scale


def flat_gradients(grads: Any) -> List[Any]:
    """Return the gradients of a nest of lists, tuples, dictionaries and iterators as a list; None: no gradient."""
    if isinstance(grads, collections.abc.Mapping):
        grads = list(grads.values())
    if isinstance(grads, (list, tuple, collections.abc.Iterator, collections.abc.ValuesView)):
        return [grad for each in grads for grad in flat_gradients(each)]
    if isinstance(grads, (str, bytes)):  # which TensorFlow and NumPy convert, and which would count as finite
        from ..registry.errors import ArgumentTypeError, shown

        raise ArgumentTypeError(f"a gradient is {shown(grads)}; expected tensors, arrays, numbers or None")
    return [] if grads is None else [grads]


def measure(grads: Any, needs: FrozenSet[str]) -> Report:
    """Return the report of one gradient or a nest of them, which NumPy can convert to arrays."""
    arrays = [np.asarray(grad) for grad in flat_gradients(grads)]
    measured: Dict[str, Any] = {}
    if "finite" in needs:
        measured["finite"] = np.bool_(all(np.isfinite(array).all() for array in arrays))
    if "largest_magnitude" in needs:
        measured["largest_magnitude"] = np.float32(
            max((np.abs(array).max() for array in arrays if array.size), default=0)
        )
    if "zero_share" in needs:
        size = sum(array.size for array in arrays)
        zeros = size - sum(np.count_nonzero(array) for array in arrays)
        measured["zero_share"] = np.float32(zeros / size if size else 0)
    return Report(**measured)


class NumpyState:
    """The state of a policy between steps, in NumPy.

    Attributes:
        was_read: Whether a program has called the policy for its loss scale.
    """

    was_read = False

    def __init__(self, loss_scale: "LossScale", state: State) -> None:
        self._loss_scale = loss_scale
        self._state = state

    def read(self) -> State:
        return self._state

    def plain(self) -> Dict[str, Any]:
        return {name: value.item() for name, value in self._state.items()}

    def known(self) -> Dict[str, Any]:
        """Return the state as numbers, as far as it has values here."""
        return self.plain()

    def write(self, state: State) -> None:
        self._state = state

    def scale(self) -> Any:
        return current_scale(self._loss_scale, self._state)

    def step(self, report: Report) -> Tuple[None, Any]:
        self._state, should_apply = advance(self._loss_scale, self._state, report)
        return None, should_apply

    def update(self, grads: Any) -> Tuple[None, Any]:
        return self.step(measure(grads, self._loss_scale.needs))


def _has_same_types(following: Any, state: Mapping[str, Any]) -> bool:
    """Return whether a step kept names and types of the state; False also if that needs a closer look."""
    try:
        return following.keys() == state.keys() and all(
            type(following[name]) is type(value) for name, value in state.items()
        )
    except AttributeError:
        return False
