"""Simulation of a policy with every combination of some parameters."""

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import functools
import itertools

import numpy as np

from ..lossscales.contract import LossScale
from ..registry._merging import as_mapping, node_of
from ..registry.errors import ArgumentTypeError, InvalidSpecError, Problem, shown
from ._simulator import simulate, simulated_policy
from ._traces import Trace, require_trace

MOST_COMBINATIONS = 10_000

Progress = Callable[[int], None]


class SweepPoint(NamedTuple):
    """One combination of parameters and the result of its simulation.

    Attributes:
        values: The parameters of this combination.
        policy: The policy with them.
        summary: The results, as :meth:`Simulation.summary` returns them.

    Example:
        >>> import scalekeeper
        >>> trace = scalekeeper.Trace([1.0, 4.0, 1.0, 1.0])
        >>> point = scalekeeper.sweep("dynamic", trace, {"increment_period": [2]}).points[0]
        >>> point.values, point.steps_lost
        ({'increment_period': 2}, 1)
    """

    values: Dict[str, Any]
    policy: LossScale
    summary: Dict[str, Any]

    @property
    def steps_lost(self) -> int:
        """The number of skipped steps."""
        return int(self.summary["steps_lost"])

    @property
    def mean_log2_scale(self) -> Optional[float]:
        """The mean of log2 of the loss scale; None if it is not finite, or without steps."""
        mean: Optional[float] = self.summary["mean_log2_scale"]
        return mean

    @property
    def is_usable(self) -> bool:
        """Whether no step was applied with non-finite gradients, and there is a mean."""
        return self.summary["first_spoiled"] is None and self.mean_log2_scale is not None


class Sweep(NamedTuple):
    """The results of all combinations.

    Attributes:
        axes: The values of each parameter.
        points: The combinations; the values of the last parameter vary fastest.

    Example:
        >>> import scalekeeper
        >>> trace = scalekeeper.Trace([1.0, 4.0, 1.0, 1.0])
        >>> found = scalekeeper.sweep("dynamic", trace, {"increment_period": [2, 100]})
        >>> found.axes, len(found.points)
        ({'increment_period': (2, 100)}, 2)
    """

    axes: Dict[str, Tuple[Any, ...]]
    points: Tuple[SweepPoint, ...]

    @property
    def best_by_steps_lost(self) -> Optional[SweepPoint]:
        """The usable combination that skips the fewest steps; of several, that with the highest mean scale."""
        return self._best(lambda point: (-point.steps_lost, point.mean_log2_scale))

    @property
    def best_by_mean_scale(self) -> Optional[SweepPoint]:
        """The usable combination with the highest mean loss scale; of several, that which skips the fewest steps."""
        return self._best(lambda point: (point.mean_log2_scale, -point.steps_lost))

    def _best(self, key: Callable[[SweepPoint], Any]) -> Optional[SweepPoint]:
        return max((point for point in self.points if point.is_usable), key=key, default=None)


def sweep(
    policy: Any,
    trace: Trace,
    axes: Mapping[str, Sequence[Any]],
    limit: Optional[float] = None,
    *,
    progress: Optional[Progress] = None,
) -> Sweep:
    """Simulate a policy with every combination of some parameters, without TensorFlow.

    Args:
        policy: A name, a number or a mapping with a name, as for :func:`scalekeeper.resolve`.
        trace: The gradients of a run, as for :func:`scalekeeper.simulate`.
        axes: Parameter → its values. ``"name"`` varies the policy itself.
        limit: The largest representable gradient. Defaults to the limit of the trace.
        progress: Called now and then with the number of steps that are done, of all combinations together.

    Returns:
        The results of all combinations, and the best of them.

    Raises:
        ArgumentTypeError: ``trace`` is not a :class:`scalekeeper.Trace`, or ``axes`` is not a mapping.
        InvalidSpecError: The policy, an axis or a combination is not valid. Nothing has been simulated.

    Example:
        >>> import scalekeeper
        >>> trace = scalekeeper.Trace([1.0, 4.0, 1.0, 1.0])
        >>> found = scalekeeper.sweep("dynamic", trace, {"increment_period": [2, 100], "backoff_factor": [0.5, 0.25]})
        >>> [point.steps_lost for point in found.points]
        [1, 1, 1, 1]
        >>> found.best_by_mean_scale.values
        {'increment_period': 2, 'backoff_factor': 0.5}
    """
    require_trace(trace, "sweep(policy, trace, axes)")
    base = as_mapping(node_of(policy), ("loss_scale",))
    if base is None:
        message = f"a sweep needs a name, a number or a mapping with a name, not {shown(policy)}"
        raise InvalidSpecError([Problem((), message, "not_a_spec")])
    spec = base.plain()
    values = {name: tuple(given) for name, given in checked_axes(axes).items()}
    policies = [(each, simulated_policy({**spec, **each})) for each in combinations(values)]
    return simulated(values, policies, trace, limit, progress)


def checked_axes(axes: Mapping[str, Sequence[Any]]) -> Mapping[str, Sequence[Any]]:
    """Return the axes, or raise an error if they are not valid."""
    if not isinstance(axes, Mapping):
        raise ArgumentTypeError(f"axes is {shown(axes)}; expected a mapping such as {{'increment_period': [100, 500]}}")
    problems = []
    if not axes:
        problems.append(Problem((), "a sweep needs a parameter and its values", "axes"))
    axes, count = {name: _plain(values) for name, values in axes.items()}, 1
    for name, values in axes.items():
        if isinstance(values, (str, bytes)) or not hasattr(values, "__len__") or not len(values):
            problems.append(Problem((name,), f"{shown(values)} is not a list of values", "axes"))
            continue
        count *= len(values)
        given = list(itertools.islice(values, MOST_COMBINATIONS))
        repeated = [value for at, value in enumerate(given) if value in given[:at]]
        if repeated:
            problems.append(Problem((name,), f"{shown(repeated[0])} is there twice", "axes"))
    if count > MOST_COMBINATIONS:
        problems.append(Problem((), f"{count:,} combinations are more than {MOST_COMBINATIONS:,}", "axes"))
    if problems:
        raise InvalidSpecError(problems)
    return axes


def _plain(values: Any) -> Any:
    """Return arrays and numbers of NumPy, and lists of them, as plain values."""
    if isinstance(values, (np.ndarray, np.generic)):
        return values.tolist()
    if isinstance(values, (list, tuple)):
        return [_plain(value) for value in values]
    return values


def combinations(axes: Mapping[str, Sequence[Any]]) -> List[Dict[str, Any]]:
    """Return every combination of the values; those of the last axis vary fastest."""
    return [dict(zip(axes, values)) for values in itertools.product(*axes.values())]


def simulated(
    axes: Mapping[str, Sequence[Any]],
    policies: Sequence[Tuple[Dict[str, Any], Any]],
    trace: Trace,
    limit: Optional[float],
    progress: Optional[Progress],
) -> Sweep:
    """Simulate the policies of all combinations."""
    points = []
    for number, (values, policy) in enumerate(policies):
        report = functools.partial(_report, progress, number * len(trace))
        summary = simulate(policy, trace, limit, progress=report).summary()
        points.append(SweepPoint(values, policy, summary))
    return Sweep({name: tuple(given) for name, given in axes.items()}, tuple(points))


def _report(progress: Optional[Progress], before: int, done: int) -> None:
    if progress is not None:
        progress(before + done)
