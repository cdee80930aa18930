"""A policy at work in NumPy, with no TensorFlow: its state, its step, and the operations of that step."""

from typing import TYPE_CHECKING, Any, Dict, FrozenSet, Mapping, Tuple

import numpy as np

from .report import Report, State

if TYPE_CHECKING:
    from .contract import LossScale


class NumpyOps:
    """The operations a pure step may use. Every backend has these names, with the same results."""

    float32 = np.float32
    int64 = np.int64
    minimum = staticmethod(np.minimum)
    maximum = staticmethod(np.maximum)
    isfinite = staticmethod(np.isfinite)
    logical_and = staticmethod(np.logical_and)
    logical_or = staticmethod(np.logical_or)
    logical_not = staticmethod(np.logical_not)

    @staticmethod
    def where(condition: Any, if_true: Any, if_false: Any) -> Any:
        return np.where(condition, if_true, if_false)[()]


OPS = NumpyOps()


def advance(loss_scale: "LossScale", state: State, report: Report) -> Tuple[State, Any]:
    """One step, as a function: the next state, and whether the step is applied.

    >>> import numpy as np
    >>> from scalekeeper import DynamicLossScale, Report
    >>> from scalekeeper.lossscales import advance
    >>> policy = DynamicLossScale(initial_loss_scale=8)
    >>> state, applied = advance(policy, policy.initial_state(), Report(finite=np.bool_(False)))
    >>> float(state["current_loss_scale"]), bool(applied)
    (4.0, False)
    """
    with np.errstate(all="ignore"):  # overflow is what a policy is about
        following = loss_scale.next_state(state, report, OPS)
        should_apply = loss_scale.should_apply(state, report, OPS)
    if following is not state:
        _require_same_types(following, state)
    return following, should_apply


def measure(grads: Any, needs: FrozenSet[str]) -> Report:
    """The report of gradients that are NumPy arrays, or turn into such; None among them stands for no gradient."""
    arrays = [np.asarray(grad) for grad in grads if grad is not None]
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
    """Remembers a policy's state between steps."""

    def __init__(self, loss_scale: "LossScale", state: State) -> None:
        self._loss_scale = loss_scale
        self._state = state

    def read(self) -> State:
        return self._state

    def plain(self) -> Dict[str, Any]:
        return {name: value.item() for name, value in self._state.items()}

    def write(self, state: State) -> None:
        self._state = state

    def scale(self) -> Any:
        return self._loss_scale.scale(self._state, OPS)

    def update(self, grads: Any) -> Tuple[None, Any]:
        self._state, should_apply = advance(self._loss_scale, self._state, measure(grads, self._loss_scale.needs))
        return None, should_apply


def _require_same_types(following: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """A graph's state can't change its names or types; a simulation must not either."""
    if following.keys() != state.keys():
        raise TypeError(f"a step turned the state {sorted(state)} into {sorted(following)}")
    for name, value in following.items():
        kind = state[name].dtype
        if value.dtype != kind:
            raise TypeError(f"a step turned {name!r} from {kind} into {value.dtype}: write constants as ops.{kind}(…)")
