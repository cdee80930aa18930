"""A policy's pure step, run over a trace.

Three ways give the same, bit for bit: ``every_step`` asks the policy at each step, and is the truth. ``by_events`` is
for policies that look at nothing but whether gradients are finite: a state and that one bit decide everything, so what
they lead to is remembered, and stretches in which nothing happens are jumped over. ``in_a_loop`` is for all others:
their step is written out as a loop (``straight.py``).
"""

from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

import itertools

import numpy as np

from ..lossscales._numpy_state import OPS, advance
from ..lossscales.contract import LossScale
from ..lossscales.report import Report, State
from ..registry._plugins import loss_scales
from ..registry.errors import InvalidSpecError, Problem, shown
from ._result import Simulation
from ._step_codegen import straight_loop
from ._traces import Trace, overflowing

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
    return _run(by_events if policy.needs <= {"finite"} else in_a_loop, policy, trace, limit, progress)


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
    stepper = _Stepper(policy)
    state: State = policy.initial_state()
    sizes = trace.sizes(limit)
    # an unknown size is taken as one that is just too large for the scale at which it overflowed
    magnitudes = _told(policy, "largest_magnitude", np.where(np.isinf(trace.largest), sizes, trace.largest))
    share = 0 if trace.zero_share is None else trace.zero_share
    shares = _told(policy, "zero_share", np.broadcast_to(share, len(trace)))
    good, bad = (fact if "finite" in policy.needs else None for fact in (_GOOD, _BAD))
    too_large = np.float32(np.inf) if "largest_magnitude" in policy.needs else None
    views: List[Any] = [memoryview(array) for array in output]  # faster, one by one
    scale_at, applied_at, overflowed_at = views
    for step, (size, magnitude, zeros) in enumerate(zip(sizes.tolist(), magnitudes, shares)):
        number = float(policy.scale(state, OPS))
        overflows = not 0 < number < np.inf or size * number > limit
        report = Report(bad, too_large, zeros) if overflows else Report(good, magnitude, zeros)
        state, applied = stepper.step(state, report)
        scale_at[step], applied_at[step], overflowed_at[step] = number, bool(applied), overflows
        if step % _STEPS_A_REPORT == 0:
            progress(step)
    return state


def _told(policy: LossScale, name: str, values: Array) -> Iterable[Any]:
    """What a policy is told at each step, as float32 scalars; None where it does not need it."""
    return iter(values.astype(np.float32)) if name in policy.needs else itertools.repeat(None, len(values))


class _Stepper:
    """``advance`` without what need not be done a million times: silencing NumPy, which is done once."""

    def __init__(self, policy: LossScale) -> None:
        self._policy = policy
        self._kinds = [(name, type(value)) for name, value in policy.initial_state().items()]

    def step(self, state: State, report: Report) -> Tuple[State, Any]:
        following = self._policy.next_state(state, report, OPS)
        for name, kind in self._kinds:
            if type(following.get(name)) is not kind or len(following) != len(self._kinds):
                return advance(self._policy, state, report)  # which says what is wrong
        return following, self._policy.should_apply(state, report, OPS)


def in_a_loop(policy: LossScale, trace: Trace, limit: float, output: _Output, progress: Progress) -> State:
    """The same, with the step written out as a loop of its own where that can be done."""
    loop = straight_loop(policy)
    if loop is None:
        return every_step(policy, trace, limit, output, progress)
    sizes = trace.sizes(limit)
    magnitudes = np.where(np.isinf(trace.largest), sizes, trace.largest).astype(np.float32).tolist()
    shares = np.broadcast_to(np.float32(0) if trace.zero_share is None else trace.zero_share, len(trace)).tolist()
    views: List[Any] = [memoryview(array) for array in output]
    return loop(sizes.tolist(), magnitudes, shares, limit, *views, progress, policy.initial_state())


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
        self._stepper = _Stepper(policy)
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
            state, applied = self._stepper.step(node.state, self._reports[overflows])
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
