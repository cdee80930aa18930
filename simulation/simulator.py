"""A policy's pure step, run over a trace.

Two ways give the same, bit for bit: ``every_step`` asks the policy at each step, and is the truth. ``by_events`` is for
policies that look at nothing but whether gradients are finite; for these a state and that one bit decide everything,
so what they lead to is remembered, and stretches in which nothing happens are jumped over.
"""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from ..lossscales.contract import LossScale
from ..lossscales.numpy_state import OPS, advance
from ..lossscales.report import Report, State
from ..registry.errors import InvalidSpecError, Problem, shown
from ..registry.plugins import loss_scales
from .results import Simulation
from .traces import Trace, overflowing

Progress = Callable[[int], None]
Array = Any

_STEPS_A_REPORT = 50_000
_MOST_REMEMBERED = 100_000  # states; a policy that counts steps never comes to the same one twice
_ALIKE = 8  # steps in a row, overflows or not, before it is worth looking for the next one that is not like them
_WORTH_A_JUMP = 16
_FIRST_LOOK, _WIDER = 64, 4  # how far ahead to look at first, and how much further each time

_GOOD, _BAD = np.bool_(True), np.bool_(False)


class _Output(NamedTuple):
    scale: Array
    applied: Array
    overflowed: Array


def simulate(
    policy: Any, trace: Trace, limit: Optional[float] = None, *, progress: Optional[Progress] = None
) -> Simulation:
    """Run a policy over a trace, from its initial state; no TensorFlow is needed.

    ``policy`` is whatever ``resolve`` takes. A step overflows when its largest gradient times the scale is above
    ``limit``, by default the trace's own. ``progress`` is told now and then how many steps are done.

    >>> import scalekeeper
    >>> trace = scalekeeper.Trace([1.0, 4.0, 1.0, 1.0])
    >>> result = scalekeeper.simulate({"name": "dynamic", "increment_period": 2}, trace)
    >>> result.scale.tolist(), result.steps_lost
    ([32768.0, 32768.0, 16384.0, 16384.0], 1)
    """
    policy = simulated_policy(policy)
    reads_only_finite = policy.needs <= {"finite"}
    return _run(by_events if reads_only_finite else every_step, policy, trace, limit, progress)


def simulate_every_step(policy: Any, trace: Trace, limit: Optional[float] = None) -> Simulation:
    """The same without any short cut."""
    return _run(every_step, simulated_policy(policy), trace, limit, None)


def simulated_policy(spec: Any) -> LossScale:
    """The policy of a specification, if it is one that can be simulated: it has a pure step."""
    policy = loss_scales.resolve(spec)
    if not isinstance(policy, LossScale) or type(policy).next_state is LossScale.next_state:
        message = f"{shown(policy)} can't be simulated: it has no pure step (next_state)"
        raise InvalidSpecError([Problem((), message, "no_pure_step")])
    return policy


def _run(
    way: Callable[..., State], policy: LossScale, trace: Trace, limit: Optional[float], progress: Optional[Progress]
) -> Simulation:
    limit = trace.limit if limit is None else float(limit)
    if not 0 < limit < np.inf:
        raise InvalidSpecError([Problem(("limit",), f"{shown(limit)} must be a finite number above 0", "value")])
    steps = len(trace)
    output = _Output(np.empty(steps, np.float32), np.empty(steps, bool), np.empty(steps, bool))
    with np.errstate(all="ignore"):  # overflow is what a policy is about
        state = way(policy, trace, limit, output, progress or _tell_nobody)
    for array in output:
        array.setflags(write=False)
    return Simulation(policy, output.scale, output.applied, output.overflowed, dict(state), limit)


def _tell_nobody(done: int) -> None:
    """The progress of a short simulation."""


# Every step


def every_step(policy: LossScale, trace: Trace, limit: float, output: _Output, progress: Progress) -> State:
    """Fill the output by asking the policy at each step; returns the last state."""
    needs = policy.needs
    state: State = policy.initial_state()
    sizes, largest = trace.sizes(limit).tolist(), trace.largest
    share = np.zeros(len(trace), np.float32) if trace.zero_share is None else trace.zero_share
    finite: Any = None
    magnitude: Any = None
    zeros: Any = None
    for step, size in enumerate(sizes):
        scale = policy.scale(state, OPS)
        number = float(scale)
        overflows = not 0 < number < np.inf or size * number > limit
        if "finite" in needs:
            finite = _BAD if overflows else _GOOD
        if "largest_magnitude" in needs:
            # an unknown size is taken as one that is just too large for the scale at which it overflowed
            magnitude = np.float32(np.inf if overflows else min(float(largest[step]), size))
        if "zero_share" in needs:
            zeros = share[step]
        state, applied = advance(policy, state, Report(finite, magnitude, zeros))
        output.scale[step], output.applied[step], output.overflowed[step] = scale, applied, overflows
        if step % _STEPS_A_REPORT == 0:
            progress(step)
    return state


# From event to event


class _Node:
    """A state, its scale, and what a finite step and an overflow lead to from here, once that was asked for."""

    __slots__ = ("after", "applied", "number", "scale", "state")

    def __init__(self, policy: LossScale, state: State) -> None:
        self.state = state
        self.scale = policy.scale(state, OPS)
        self.number = float(self.scale)
        self.after: List[Optional[_Node]] = [None, None]
        self.applied = [False, False]


class _Graph:
    """The states that a policy has come to, as far as they are remembered."""

    def __init__(self, policy: LossScale) -> None:
        self.policy = policy
        self._nodes: Dict[Tuple[Any, ...], _Node] = {}
        self._reports = [Report(*[fact if "finite" in policy.needs else None]) for fact in (_GOOD, _BAD)]

    def at(self, state: State) -> _Node:
        """The node of a state."""
        key = tuple(state.values())
        node = self._nodes.get(key)
        if node is None:
            if len(self._nodes) >= _MOST_REMEMBERED:
                self._nodes.clear()
            node = self._nodes[key] = _Node(self.policy, state)
        return node

    def step(self, node: _Node, overflows: bool) -> _Node:
        """The node after a step: the pure step, asked once."""
        following = node.after[overflows]
        if following is None:
            state, applied = advance(self.policy, node.state, self._reports[overflows])
            following = node.after[overflows] = self.at(state)
            node.applied[overflows] = bool(applied)
        return following


def by_events(policy: LossScale, trace: Trace, limit: float, output: _Output, progress: Progress) -> State:
    """Fill the output by going from one event to the next; returns the last state."""
    graph = _Graph(policy)
    node = graph.at(policy.initial_state())
    if not node.state:  # nothing can ever change
        return _without_a_state(graph, node, trace.sizes(limit), limit, output)
    sizes = trace.sizes(limit)
    size_of, steps = sizes.tolist(), len(trace)
    views: List[Any] = [memoryview(array) for array in output]  # faster, one by one
    scale_at, applied_at, overflowed_at = views
    step, alike, overflowed_before = 0, 0, False
    next_report = 0
    while step < steps:
        number = node.number
        overflows = not 0 < number < np.inf or size_of[step] * number > limit
        following = graph.step(node, overflows)
        scale_at[step], applied_at[step], overflowed_at[step] = number, node.applied[overflows], overflows
        step += 1
        alike = alike + 1 if overflows is overflowed_before else 0
        overflowed_before = overflows
        if alike >= _ALIKE and following is node:  # and so it stays until a step is not like this one
            end = _until(sizes, step, steps, number, limit, not overflows)
            _fill(output, step, end, node, overflows)
            step = end
        elif alike >= _ALIKE and not overflows:
            quiet = min(policy.quiet_steps(following.state), steps - step)
            if quiet > _WORTH_A_JUMP:
                graph.step(following, False)  # whether it is applied
                end = _until(sizes, step, step + quiet, following.number, limit, True)
                _fill(output, step, end, following, False)
                following = graph.at(policy.after_quiet_steps(following.state, end - step))
                step = end
        node = following
        if step >= next_report:
            progress(step)
            next_report = step + _STEPS_A_REPORT
    return node.state


def _fill(output: _Output, start: int, end: int, node: _Node, overflows: bool) -> None:
    output.scale[start:end] = node.scale
    output.applied[start:end] = node.applied[overflows]
    output.overflowed[start:end] = overflows


def _until(sizes: Array, start: int, stop: int, scale: float, limit: float, overflows: bool) -> int:
    """The first step from ``start`` on that overflows (or does not); ``stop`` if none before it does."""
    width = _FIRST_LOOK
    while start < stop:
        end = min(start + width, stop)
        found = overflowing(sizes[start:end], scale, limit) == overflows
        first = int(found.argmax())
        if found[first]:
            return start + first
        start, width = end, width * _WIDER
    return stop


def _without_a_state(graph: _Graph, node: _Node, sizes: Array, limit: float, output: _Output) -> State:
    overflowed = overflowing(sizes, node.number, limit)
    for overflows in (False, True):
        graph.step(node, overflows)
        output.applied[overflowed == overflows] = node.applied[overflows]
    output.scale[:], output.overflowed[:] = node.scale, overflowed
    return node.state
