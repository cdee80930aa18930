"""Recommendation of a loss scale from the trace of an earlier run."""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import math

import numpy as np

from ..registry._plugins import loss_scales
from ._result import Simulation
from ._simulator import simulate
from ._summary_table import percent, scale_text
from ._traces import Trace, checked_limit, require_trace

HEADROOM = 2.0
SHORT = 1000  # steps: a dynamic policy does not grow in fewer
_BITS_A_LOST_STEP_IN_A_THOUSAND = 1.0
_CLEARLY_BETTER = 1.0  # bits: prefer the defaults to a smaller gain
_HIGHEST = 2.0**24  # float16 gradients gain nothing above
_PERIODS = (500, 2000, 10_000)

Progress = Callable[[str, int, int], None]


class Candidate(NamedTuple):
    """A policy and its simulation on the trace."""

    loss_scale: Dict[str, Any]
    simulation: Simulation

    @property
    def score(self) -> float:
        """The mean of log2 of the scale, minus 1 for each skipped step in a thousand."""
        mean = self.simulation.mean_log2_scale
        if mean is None or self.simulation.first_spoiled is not None:
            return -math.inf
        return mean - _BITS_A_LOST_STEP_IN_A_THOUSAND * 1000 * self.simulation.share_lost


class Recommendation(NamedTuple):
    """A fixed loss scale (or None) and a policy, each with its reason, and warnings.

    Attributes:
        fixed_scale: The fixed loss scale; None if none suits.
        fixed_reason: The reason for it.
        loss_scale: The spec of the policy, for :func:`scalekeeper.resolve`.
        policy_reason: The reason for it.
        warnings: The limits of the recommendation.
        candidates: The policies that were simulated, each with its ``loss_scale`` and ``simulation``.

    Example:
        >>> import scalekeeper
        >>> found = scalekeeper.recommend(scalekeeper.Trace([0.5, 1.0, 0.25] * 1000))
        >>> print(found.yaml)
        loss_scale:
          name: dynamic
        ...
    """

    fixed_scale: Optional[float]
    fixed_reason: str
    loss_scale: Dict[str, Any]
    policy_reason: str
    warnings: Tuple[str, ...]
    candidates: Tuple[Candidate, ...]

    @property
    def policy(self) -> str:
        """The name and parameters of the policy in one line."""
        parameters = ", ".join(f"{name}={_yaml(value)}" for name, value in self.loss_scale.items() if name != "name")
        name = str(self.loss_scale["name"])
        return f"{name} ({parameters})" if parameters else name

    @property
    def yaml(self) -> str:
        """The YAML for a document, with the fixed scale as a comment."""
        lines = ["loss_scale:", *(f"  {name}: {_yaml(value)}" for name, value in self.loss_scale.items())]
        if self.fixed_scale is not None:
            fixed = f"{{name: fixed, loss_scale_value: {_yaml(self.fixed_scale)}, skip_nonfinite: true}}"
            lines += ["# or, without any adapting:", f"# loss_scale: {fixed}"]
        return "\n".join(lines) + "\n"


def recommend(
    trace: Trace,
    limit: Optional[float] = None,
    *,
    headroom: float = HEADROOM,
    progress: Optional[Progress] = None,
) -> Recommendation:
    """Recommend a fixed loss scale and a policy for runs like that of the trace.

    The fixed scale is the largest power of two at which no step overflows, even with gradients that are ``headroom``
    times as large. The policy is the best of several that are simulated on the trace.

    Args:
        trace: The gradients of a run.
        limit: The largest representable gradient. Defaults to the limit of the trace.
        headroom: The safety factor of the fixed scale.
        progress: Called with the name of a candidate, the steps before it, and its steps that are done.

    Returns:
        The recommendation with its reasons and warnings.

    Raises:
        ArgumentTypeError: ``trace`` is not a :class:`Trace`.

    Example:
        >>> import scalekeeper
        >>> found = scalekeeper.recommend(scalekeeper.Trace([0.5, 1.0, 0.25] * 1000))
        >>> found.fixed_scale, found.loss_scale["name"]
        (16384.0, 'dynamic')
    """
    require_trace(trace, "recommend(trace)")
    limit = trace.limit if limit is None else checked_limit(limit)
    fixed, fixed_reason = _fixed_scale(trace, limit, headroom)
    start = _start(trace, limit, fixed)
    candidates = _simulated(trace, limit, start, progress)
    best, policy_reason = _best(candidates)
    return Recommendation(
        fixed, fixed_reason, dict(best.loss_scale), policy_reason, tuple(_warnings(trace)), tuple(candidates)
    )


def _fixed_scale(trace: Trace, limit: float, headroom: float) -> Tuple[Optional[float], str]:
    unknown = np.isinf(trace.largest)
    hopeless = unknown & (trace.scale <= 1)
    sizes = trace.sizes(limit)[~hopeless]
    if not len(trace):
        return None, "The trace has no steps."
    if hopeless.all():
        return None, "Every step was not finite at a scale of 1 already: what spoils the gradients is not the scale."
    if unknown.all():
        lowest = float(trace.scale.min())
        return None, (
            f"Every step overflowed, at scales from {scale_text(lowest)} up: so nothing is known of their size. Record "
            "again with a lower scale."
        )
    largest = float(sizes.max())
    if largest == 0:
        return None, "All gradients are 0: every scale fits, and none helps. See first why nothing is learned."
    scale = _power_of_two(limit / largest / headroom)
    if scale < 1:
        scale = _power_of_two(limit / largest)
    if scale < 1:
        lost = percent(float(np.count_nonzero(sizes > limit)) / len(trace))
        return None, (
            f"The largest gradient, {_size(largest)}, does not fit below {limit:g} even with a scale of 1, at which "
            f"{lost} % of the steps overflow."
        )
    scale = min(scale, _HIGHEST)
    of_known = float(trace.largest[~unknown].max())
    what = f"The largest gradient is {_size(of_known)}"
    if largest > of_known:
        at = float(trace.scale[unknown & ~hopeless].min())
        what += f", and a step of unknown size overflowed at a scale of {scale_text(at)}"
    room = limit / largest / scale
    return scale, (
        f"{what}: at a scale of {scale_text(scale)} none of {len(trace):,} steps overflows, nor would any with "
        f"gradients up to {_factor(room)} times as large."
    )


def _start(trace: Trace, limit: float, fixed: Optional[float]) -> float:
    """Return the initial scale of the candidates: the fixed one, or one below all scales that overflowed."""
    if fixed is not None:
        return fixed
    unknown = np.isinf(trace.largest)
    if len(trace) and unknown.all() and trace.scale.min() > 1:
        return max(1.0, _power_of_two(float(trace.scale.min()) * (1 - 2.0**-30)))
    sizes = trace.sizes(limit)
    if unknown.all() or not sizes.max() > 0:
        return 2.0**15
    return max(1.0, min(_HIGHEST, _power_of_two(limit / float(np.median(sizes[sizes > 0])) / HEADROOM)))


def _simulated(trace: Trace, limit: float, start: float, progress: Optional[Progress]) -> List[Candidate]:
    specs: List[Dict[str, Any]] = [{"name": "dynamic"}]
    specs += [{"name": "dynamic", "initial_loss_scale": start, "increment_period": period} for period in _PERIODS]
    specs += [{"name": name} for name in _others()]
    found = []
    for number, spec in enumerate(specs):
        report = _reporter(progress, spec["name"], number * len(trace) / len(specs), len(specs))
        found.append(Candidate(spec, simulate(spec, trace, limit, progress=report)))
    return found


def _reporter(progress: Optional[Progress], name: str, before: float, parts: int) -> Optional[Callable[[int], None]]:
    if progress is None:
        return None
    report = progress
    return lambda done: report(name, int(before), done // parts)


def _others() -> List[str]:
    """Return the names of the other built-in policies that adapt to the gradients and need no parameters."""
    return [
        row.name
        for row in loss_scales.listing()
        if row.plugin is not None
        and row.origin == "built in"
        and row.plugin.needs_nothing
        and row.name not in ("dynamic", "none", "scheduled")
        and not row.name.startswith("fixed")
    ]


def _best(candidates: Sequence[Candidate]) -> Tuple[Candidate, str]:
    default = candidates[0]
    best = max(candidates, key=lambda candidate: candidate.score)
    if not best.score > default.score + _CLEARLY_BETTER:
        return default, f"With its defaults it {_result_text(default)}; nothing that was tried is clearly better."
    reason = f"It {_result_text(best)}; dynamic with its defaults {_result_text(default)}."
    return best, f"{reason} (A step in a thousand that is lost is taken to weigh as much as half the scale.)"


def _result_text(candidate: Candidate) -> str:
    simulation = candidate.simulation
    mean = "no scale" if simulation.mean_log2_scale is None else f"a mean scale of 2^{simulation.mean_log2_scale:.1f}"
    return (
        f"loses {simulation.steps_lost:,} of {simulation.steps:,} steps ({percent(simulation.share_lost)} %) at {mean}"
    )


def _warnings(trace: Trace) -> List[str]:
    found = []
    if len(trace) < SHORT:
        found.append(
            f"{len(trace):,} steps are few: what is said here holds for these only. Record {SHORT:,} or more, and best "
            "a whole run: gradients are large at its beginning and small at its end."
        )
    unknown = np.isinf(trace.largest)
    hopeless = int(np.count_nonzero(unknown & (trace.scale <= 1)))
    if hopeless:
        found.append(
            f"{hopeless:,} steps were not finite at a scale of 1 or below: no scale helps there. Look at the data and "
            "the learning rate."
        )
    others = int(np.count_nonzero(unknown)) - hopeless
    if others:
        found.append(
            f"Of {others:,} steps only this is known: they overflowed at the scale of the recording. They are taken to "
            "fit just below it; to know more, record with a lower scale."
        )
    return found


def _power_of_two(bound: float) -> float:
    """Return the largest power of two that is at most the bound."""
    return math.ldexp(1.0, math.frexp(bound)[1] - 1)


def _yaml(value: Any) -> str:
    return f"{int(value)}" if isinstance(value, float) and value.is_integer() else f"{value}"


def _size(value: float) -> str:
    return f"{value:.3g}"


def _factor(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else "1000"
