"""Simulation of a policy's pure step over a trace."""

from typing import Any, Callable, Iterable, List, NamedTuple, Optional

import itertools

import numpy as np

from ..lossscales._numpy_state import advance, current_scale
from ..lossscales._step_contract import checked_initial_state, require_decision
from ..lossscales.contract import LossScale
from ..lossscales.report import Report, State
from ..registry._argument_checks import unexpected
from ..registry._plugins import loss_scales
from ..registry.errors import InvalidSpecError, Problem, shown
from ._result import Simulation
from ._step_codegen import PROGRESS_INTERVAL, generate_loop
from ._traces import Trace, checked_limit, require_trace

Progress = Callable[[int], None]
Array = Any


class _Output(NamedTuple):
    scale: Array
    applied: Array
    overflowed: Array


def simulate(
    policy: Any, trace: Trace, limit: Optional[float] = None, *, progress: Optional[Progress] = None
) -> Simulation:
    """Run a policy over a trace, starting from its initial state, without TensorFlow.

    Args:
        policy: Anything that :func:`scalekeeper.resolve` accepts.
        trace: The gradients of a run. A step overflows when its largest gradient times the loss scale exceeds
            ``limit``.
        limit: The largest representable gradient. Defaults to the limit of the trace.
        progress: Called now and then with the number of steps that are done.

    Returns:
        The loss scale of every step, whether it was applied and whether it overflowed, and the final state.

    Raises:
        InvalidSpecError: The policy or the limit is not valid, or the policy has no pure step.

    Example:
        >>> import scalekeeper
        >>> trace = scalekeeper.Trace([1.0, 4.0, 1.0, 1.0])
        >>> result = scalekeeper.simulate({"name": "dynamic", "increment_period": 2}, trace)
        >>> result.scale.tolist(), result.steps_lost
        ([32768.0, 32768.0, 16384.0, 16384.0], 1)
    """
    if isinstance(policy, Trace):
        raise unexpected("simulate(policy, trace)", "a policy as the first argument", policy)
    return _run(_fill_by_generated_loop, simulated_policy(policy), trace, limit, progress)


def simulate_every_step(policy: Any, trace: Trace, limit: Optional[float] = None) -> Simulation:
    """Run a policy over a trace by calling ``next_state`` for every step.

    This is the reference for :func:`simulate`, which gives the same result to the bit and is faster.

    Args:
        policy: Anything that :func:`scalekeeper.resolve` accepts.
        trace: The gradients of a run.
        limit: The largest representable gradient. Defaults to the limit of the trace.

    Returns:
        The same as :func:`simulate`.

    Raises:
        InvalidSpecError: The policy or the limit is not valid, or the policy has no pure step.

    Example:
        >>> from scalekeeper import Trace
        >>> from scalekeeper.simulation import simulate_every_step
        >>> simulate_every_step("dynamic", Trace([1.0, float("inf")])).scale.tolist()
        [32768.0, 32768.0]
    """
    return _run(_fill_step_by_step, simulated_policy(policy), trace, limit, None)


def simulated_policy(spec: Any) -> LossScale:
    """Return the policy of a spec, or raise an error if it has no pure step, or its initial state is not valid."""
    policy = loss_scales.resolve(spec)
    if not isinstance(policy, LossScale) or type(policy).next_state is LossScale.next_state:
        message = f"{shown(policy)} can't be simulated: it has no pure step (next_state)"
        raise InvalidSpecError([Problem((), message, "no_pure_step")])
    checked_initial_state(policy)
    return policy


def _run(
    fill: Callable[..., State], policy: LossScale, trace: Trace, limit: Optional[float], progress: Optional[Progress]
) -> Simulation:
    require_trace(trace, "simulate(policy, trace)")
    limit = trace.limit if limit is None else checked_limit(limit)
    steps = len(trace)
    output = _Output(np.empty(steps, np.float32), np.empty(steps, bool), np.empty(steps, bool))
    with np.errstate(all="ignore"):  # overflows are expected
        state = fill(policy, trace, limit, output, progress or (lambda done: None))
    for array in output:
        array.setflags(write=False)
    return Simulation(policy, output.scale, output.applied, output.overflowed, dict(state), limit)


def _magnitudes(trace: Trace, sizes: Array) -> Array:
    """Return the magnitude reported for each step that does not overflow, as float32."""
    return np.where(np.isinf(trace.largest), sizes, trace.largest).astype(np.float32)


def _zero_shares(trace: Trace) -> Array:
    return np.broadcast_to(np.float32(0) if trace.zero_share is None else trace.zero_share, len(trace))


def _fill_by_generated_loop(
    policy: LossScale, trace: Trace, limit: float, output: _Output, progress: Progress
) -> State:
    """Fill the output with the generated loop where there is one; return the final state."""
    loop = generate_loop(policy)
    if loop is None:
        return _fill_step_by_step(policy, trace, limit, output, progress)
    sizes = trace.sizes(limit)
    magnitudes, shares = _magnitudes(trace, sizes).tolist(), _zero_shares(trace).tolist()
    views: List[Any] = [memoryview(array) for array in output]
    return loop(sizes.tolist(), magnitudes, shares, limit, *views, progress, policy.initial_state())


def _fill_step_by_step(policy: LossScale, trace: Trace, limit: float, output: _Output, progress: Progress) -> State:
    """Fill the output by calling ``next_state`` for every step; return the final state."""
    state: State = policy.initial_state()
    sizes, needs = trace.sizes(limit), policy.needs
    magnitudes = _needed("largest_magnitude", policy, _magnitudes(trace, sizes))
    shares = _needed("zero_share", policy, _zero_shares(trace))
    finite, not_finite = (np.bool_(fact) if "finite" in needs else None for fact in (True, False))
    infinite = np.float32(np.inf) if "largest_magnitude" in needs else None
    views: List[Any] = [memoryview(array) for array in output]  # faster than arrays, element by element
    scale_at, applied_at, overflowed_at = views
    for step, (size, magnitude, zeros) in enumerate(zip(sizes.tolist(), magnitudes, shares)):
        scale = float(current_scale(policy, state))
        overflows = not 0 < scale < np.inf or size * scale > limit
        report = Report(not_finite, infinite, zeros) if overflows else Report(finite, magnitude, zeros)
        state, applied = advance(policy, state, report)
        if type(applied) is not np.bool_:
            require_decision(policy, applied)
        scale_at[step], applied_at[step], overflowed_at[step] = scale, bool(applied), overflows
        if step % PROGRESS_INTERVAL == 0:
            progress(step)
    return state


def _needed(field: str, policy: LossScale, values: Array) -> Iterable[Any]:
    """Return a field of the report for each step: float32 scalars, or None where the policy does not need it."""
    return iter(values) if field in policy.needs else itertools.repeat(None, len(values))
