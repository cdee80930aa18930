"""The check of the bounds of the loss scale."""

from typing import Any, Callable, Iterator, List, Mapping, Optional, Tuple

import itertools

import numpy as np

from ..registry.field_types import FLOAT32_TINY
from ._check import check, require
from ._steps import BAD, bad_reports, good_reports, mixed_reports, scales_of, states_after
from ._subject import Subject

_BAD_STEPS, _GOOD_STEPS = 1_000, 5_000  # in NumPy: enough to halve any float32 to 0, and to pass usual periods
_FEW_BAD, _FEW_GOOD = 160, 50  # with TensorFlow's interface, where a step is a hundred times slower
_FLOOR = "Put a floor under it, such as ops.maximum(scale, ops.float32(1)): a smaller one is 0 on some devices"
_CEILING = "Let it grow only while the product is finite: ops.where(ops.isfinite(product), product, scale)"


@check()
def bounds(subject: Subject) -> None:
    """After long runs of non-finite or finite steps, the scale is a normal float32 within its bounds, and recovers."""
    runs = _pure_runs(subject) if subject.is_pure else _updated_runs(subject)
    parameters = getattr(subject.make(), "params", None)
    lowest, highest = (getattr(parameters, name, None) for name in ("minimum", "maximum"))
    for name, scales in runs:
        known = None
        for number, scale in enumerate(scales):
            if scale is not known:  # most steps keep the object
                _require_usable(scale, lowest, highest, f"after step {number} of {name}")
            known = scale
    _require_recovery({name: [float(scale) for scale in scales] for name, scales in runs})


def _require_usable(scale: Any, lowest: Optional[float], highest: Optional[float], when: str) -> None:
    require(
        getattr(scale, "dtype", None) == np.float32 and np.ndim(scale) == 0,
        f"the scale is {scale!r} {when}",
        "Give a float32 scalar: np.float32(…) in initial_state, ops.float32(…) for constants",
    )
    require(scale == scale and scale >= np.float32(FLOAT32_TINY), f"the scale is {float(scale):g} {when}", _FLOOR)
    require(scale < np.inf, f"the scale is {float(scale):g} {when}", _CEILING)
    for bound, holds in ((lowest, np.greater_equal), (highest, np.less_equal)):
        require(
            bound is None or holds(scale, np.float32(bound)),
            f"the scale is {float(scale):g} {when}, beyond the policy's own bound, {bound}",
            "Keep to minimum and maximum with ops.maximum and ops.minimum",
        )


def _require_recovery(scales: Mapping[str, List[float]]) -> None:
    """Require that a scale that grows in a long run of finite steps also grows after a long run of non-finite ones."""
    good, both = scales["finite steps"], scales["non-finite steps, then finite ones"]
    bad_steps = len(both) - len(good)
    lowest = both[bad_steps]
    # lowered by the non-finite steps, not by the number of steps
    is_lowered = lowest < min(both[0], good[min(bad_steps, len(good) - 1)])
    require(
        max(good) == good[0] or not is_lowered or max(both[bad_steps:]) > lowest,
        f"good steps take the scale from {good[0]:g} to {max(good):g} at the start, and leave it at {lowest:g} after a "
        "long run of bad ones",
        "Forget non-finite steps when finite ones come, and compare counters with >=, not with ==",
    )


def _pure_runs(subject: Subject) -> List[Tuple[str, List[Any]]]:
    needs = subject.make().needs
    good, bad = good_reports(needs), bad_reports(needs)

    def scales(reports: Any) -> List[Any]:
        policy = subject.make()
        start = policy.initial_state()
        return scales_of(policy, [start, *states_after(policy, start, reports)])

    return _runs(scales, good, bad, mixed_reports(needs, 1000), _GOOD_STEPS, _BAD_STEPS)


def _updated_runs(subject: Subject) -> List[Tuple[str, List[Any]]]:
    good = [each for each in subject.gradients(_FEW_GOOD) if np.isfinite(each).all()]
    bad = [good[0] * np.float32(each) for each in BAD]

    def scales(several: Any) -> List[Any]:
        policy = subject.make()
        found = [np.asarray(policy())[()]]
        for gradient in several:
            policy.update([gradient])
            found.append(np.asarray(policy())[()])
        return found

    return _runs(scales, good, bad, subject.gradients(_FEW_GOOD), _FEW_GOOD, _FEW_BAD)


def _runs(
    scales: Callable[[Any], List[Any]],
    good: List[Any],
    bad: List[Any],
    mixed: List[Any],
    good_steps: int,
    bad_steps: int,
) -> List[Tuple[str, List[Any]]]:
    several = {
        "finite steps": _repeated(good, good_steps),
        "non-finite steps, then finite ones": itertools.chain(_repeated(bad, bad_steps), _repeated(good, good_steps)),
        "finite and non-finite steps in turn": _repeated([good[0], bad[0], good[1], bad[1]], good_steps // 5),
        "two non-finite steps after each finite one": _repeated([good[0], bad[0], bad[1]], good_steps // 5),
        "finite and non-finite steps at random": iter(mixed),
    }
    return [(name, scales(steps)) for name, steps in several.items()]


def _repeated(steps: List[Any], count: int) -> Iterator[Any]:
    return itertools.islice(itertools.cycle(steps), count)
