"""Steps for checks: gradients of every size, also non-finite ones, and the results of a policy."""

from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence

import numpy as np

from ..lossscales._numpy_state import OPS, measure
from ..lossscales.contract import has_pure_step
from ..lossscales.report import Report, State

Array = Any

BAD = (np.inf, np.nan, -np.inf)
_SIZE = 4  # elements of a gradient: a share of zeros is then the same number in every arithmetic


class StepResult(NamedTuple):
    """The result of one step: the scale before it, the state after it, and whether it was applied; NaN as text."""

    scale: str
    state: Dict[str, str]
    applied: bool

    def __str__(self) -> str:
        applied = "applied" if self.applied else "skipped"
        state = ", ".join(f"{name}={value}" for name, value in self.state.items())
        return f"scale {self.scale}, {applied}, then {state or 'no state'}"


def gradients(count: int, seed: int = 7) -> List[Array]:
    """Return gradients with runs of finite steps, single non-finite ones and bursts, zeros, and float32's limits."""
    random = np.random.RandomState(seed)
    sizes = np.exp2(random.normal(-3, 4, [count, _SIZE])).astype(np.float32)
    sizes[random.rand(count, _SIZE) < 0.1] = 0
    is_bad = random.rand(count) < 0.12
    is_bad[40:45] = is_bad[150:153] = True
    is_bad[60:90] = False
    sizes[is_bad] = random.choice(BAD, [int(is_bad.sum()), 1])
    # nothing below 2**-126, which is zero on some devices
    for index, size in zip((10, 11, 100), (0.0, 2.0**-126, 3e38)):
        sizes[index : index + 1] = size
    return list(sizes)


def shown(gradient: Array) -> str:
    """Return a gradient as text for a message."""
    return "[" + ", ".join(f"{number:g}" for number in np.ravel(gradient)) + "]"


def good_reports(needs: Iterable[str], count: int = 16) -> List[Report]:
    """Return reports of finite steps with the fields of ``needs``."""
    return [measure([each], frozenset(needs)) for each in gradients(4 * count, 11) if np.isfinite(each).all()][:count]


def bad_reports(needs: Iterable[str]) -> List[Report]:
    """Return reports of non-finite steps."""
    return [measure([np.full(_SIZE, each, np.float32)], frozenset(needs)) for each in BAD]


def mixed_reports(needs: Iterable[str], count: int = 300) -> List[Report]:
    """Return reports of finite and non-finite steps."""
    return [measure([each], frozenset(needs)) for each in gradients(count)]


def plain(state: State) -> Dict[str, Any]:
    """Return a state as Python numbers, as ``state()`` does."""
    return {name: value.item() for name, value in state.items()}


def exact(values: Any) -> Dict[str, str]:
    """Return plain values as text, so that NaN equals NaN and -0.0 differs from 0.0."""
    return {name: repr(value) for name, value in values.items()}


def scales_of(policy: Any, states: Iterable[State]) -> List[Any]:
    """Return the loss scale of each state, in NumPy."""
    with np.errstate(all="ignore"):
        return [policy.scale(state, OPS) for state in states]


def states_after(policy: Any, state: State, reports: Iterable[Report]) -> List[State]:
    """Return the state after each step, by ``next_state``."""
    found = []
    with np.errstate(all="ignore"):  # once, because it is slow
        for report in reports:
            state = policy.next_state(state, report, OPS)
            found.append(state)
    return found


def step_results(policy: Any, several: Sequence[Array], step: Optional[Any] = None) -> List[StepResult]:
    """Return the results of steps with these gradients, by ``update`` or another function."""
    found = []
    for gradient in several:
        with np.errstate(all="ignore"):
            # the optimizer clamps the scale to 2**126, whose reciprocal is a normal number
            scale = repr(min(float(policy()), 2.0**126))
            _, applied = step(gradient) if step else policy.update([gradient])
        found.append(StepResult(scale, exact(state_of(policy)), bool(applied)))
    return found


def state_of(policy: Any) -> Dict[str, Any]:
    """Return the state of a policy, or only its scale if it has no pure step."""
    return dict(policy.state()) if has_pure_step(policy) else {"scale": float(policy())}
