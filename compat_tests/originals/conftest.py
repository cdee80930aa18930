"""Fixtures of the comparisons with other libraries: sequences of reports, and the policy of scalekeeper."""

import numpy as np
import pytest

from scalekeeper import Report, resolve
from scalekeeper.lossscales import advance
from scalekeeper.lossscales._numpy_state import OPS

SEQUENCES, STEPS = 10, 5000
ROOM = 2.0**26  # above this scale every step overflows, so that the scale neither ends at infinity nor at the floor


def _sequence(seed):
    """Which of 5,000 steps are bad whatever the scale is: quiet stretches, bursts, and single non-finite steps."""
    random, bad = np.random.RandomState(seed), []
    while len(bad) < STEPS:
        kind = random.randint(3)
        length = random.randint(1, 4) if kind == 0 else random.randint(20, 90)
        bad.extend(random.rand(length) < (1.0, 0.0, 0.06)[kind])
    return bad[:STEPS]


@pytest.fixture(params=range(SEQUENCES))
def sequence(request):
    """The number of the sequence, and for each step the gradient that it would have without any scale."""
    random = np.random.RandomState(100 + request.param)
    gradients = random.normal(0, 1, STEPS).astype(np.float32)
    bad = np.array(_sequence(request.param))
    gradients[bad] = random.choice([np.inf, -np.inf, np.nan], bad.sum())
    return request.param, gradients


@pytest.fixture
def ours():
    """A function: (scale before the step, applied) for each step of a policy, for as many gradients."""

    def run(spec, gradients, room=ROOM):
        policy = resolve(spec)
        state, found = policy.initial_state(), []
        for gradient in gradients:
            scale = policy.scale(state, OPS)
            finite = np.bool_(np.isfinite(gradient) and scale <= room)
            state, applied = advance(policy, state, Report(finite=finite))
            found.append((float(scale), bool(applied)))
        changes = np.diff([scale for scale, _ in found])
        assert spec["name"] == "none" or min((changes > 0).sum(), (changes < 0).sum()) >= 20
        return found

    return run
