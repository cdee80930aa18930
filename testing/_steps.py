"""Steps to try a policy with: gradients of every size, bad ones among them, and what a policy makes of them."""

from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence

import numpy as np

from ..lossscales._numpy_state import OPS, measure
from ..lossscales.contract import has_pure_step
from ..lossscales.report import Report, State

Array = Any

BAD = (np.inf, np.nan, -np.inf)
_SIZE = 4  # elements of a gradient: a share of zeros is then the same number in every arithmetic


class Moment(NamedTuple):
    """One step: the scale before it, the state after it, and whether it was applied; all as text, so NaN is itself."""

    scale: str
    state: Dict[str, str]
    applied: bool

    def __str__(self) -> str:
        applied = "applied" if self.applied else "skipped"
        state = ", ".join(f"{name}={value}" for name, value in self.state.items())
        return f"scale {self.scale}, {applied}, then {state or 'no state'}"


def gradients(count: int, seed: int = 7) -> List[Array]:
    """Quiet stretches, single bad steps and bursts of them; zeros, and the ends of float32."""
    random = np.random.RandomState(seed)
    sizes = np.exp2(random.normal(-3, 4, [count, _SIZE])).astype(np.float32)
    sizes[random.rand(count, _SIZE) < 0.1] = 0
    is_bad = random.rand(count) < 0.12
    is_bad[40:45] = is_bad[150:153] = True
    is_bad[60:90] = False
    sizes[is_bad] = random.choice(BAD, [int(is_bad.sum()), 1])
    # nothing smaller than 2**-126: whether that counts as zero depends on the device, and not on the policy
    for place, size in zip((10, 11, 100), (0.0, 2.0**-126, 3e38)):
        sizes[place : place + 1] = size
    return list(sizes)


def shown(gradient: Array) -> str:
    """The gradient of a step, for a message."""
    return "[" + ", ".join(f"{number:g}" for number in np.ravel(gradient)) + "]"


def good_reports(needs: Iterable[str], count: int = 16) -> List[Report]:
    """What a policy that needs this is told of good steps."""
    return [measure([each], frozenset(needs)) for each in gradients(4 * count, 11) if np.isfinite(each).all()][:count]


def bad_reports(needs: Iterable[str]) -> List[Report]:
    """What it is told of bad ones."""
    return [measure([np.full(_SIZE, each, np.float32)], frozenset(needs)) for each in BAD]


def mixed_reports(needs: Iterable[str], count: int = 300) -> List[Report]:
    """What it is told of both."""
    return [measure([each], frozenset(needs)) for each in gradients(count)]


def plain(state: State) -> Dict[str, Any]:
    """A state as ``state()`` gives it."""
    return {name: value.item() for name, value in state.items()}


def exact(values: Any) -> Dict[str, str]:
    """Plain values as text, in which NaN equals itself and -0.0 does not equal 0.0."""
    return {name: repr(value) for name, value in values.items()}


def scales_of(policy: Any, states: Iterable[State]) -> List[Any]:
    """The scale of each of these states, in NumPy."""
    with np.errstate(all="ignore"):
        return [policy.scale(state, OPS) for state in states]


def states_after(policy: Any, state: State, reports: Iterable[Report]) -> List[State]:
    """The state after each of these steps, by the pure step."""
    found = []
    with np.errstate(all="ignore"):  # once, and not at each of ten thousand steps
        for report in reports:
            state = policy.next_state(state, report, OPS)
            found.append(state)
    return found


def moments(policy: Any, several: Sequence[Array], step: Optional[Any] = None) -> List[Moment]:
    """What a policy does with these gradients, by ``update``, or by a function that takes the step."""
    found = []
    for gradient in several:
        with np.errstate(all="ignore"):
            # above 2**126, TensorFlow's graph uses 2**126, whose reciprocal is still a normal number
            scale = repr(min(float(policy()), 2.0**126))
            _, applied = step(gradient) if step else policy.update([gradient])
        found.append(Moment(scale, exact(state_of(policy)), bool(applied)))
    return found


def state_of(policy: Any) -> Dict[str, Any]:
    """The state as far as the policy gives it out; one in TensorFlow's style has its scale only."""
    return dict(policy.state()) if has_pure_step(policy) else {"scale": float(policy())}
