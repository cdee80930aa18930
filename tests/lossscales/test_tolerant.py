"""The tolerant loss scale, in numbers that can be checked by hand."""

import numpy as np
import pytest

from scalekeeper import InvalidSpecError, TolerantLossScale


def after(loss_scale, steps):
    """Scale, good steps, steps and overflows since it changed, after each step; ``x`` is a bad one."""
    states = []
    for step in steps:
        loss_scale.update([np.array([np.inf if step == "x" else 1.0])])
        states.append(tuple(loss_scale.state().values()))
    return states


def test_a_share_below_the_tolerance_is_put_up_with():
    """One non-finite step of three is less than a half, two of four are not; then both counters start anew."""
    loss_scale = TolerantLossScale(initial_loss_scale=8, tolerance=0.5)
    assert after(loss_scale, "..xx.") == [(8, 1, 1, 0), (8, 2, 2, 0), (8, 0, 3, 1), (4, 0, 0, 0), (4, 1, 1, 0)]


def test_growth_starts_the_steps_anew_but_not_the_overflows():
    """As in fairseq: the overflow before the growth counts against the few steps after it."""
    loss_scale = TolerantLossScale(initial_loss_scale=8, increment_period=3, tolerance=0.5)
    assert after(loss_scale, "..x...x")[2:] == [(8, 0, 3, 1), (8, 1, 4, 1), (8, 2, 5, 1), (16, 0, 0, 1), (8, 0, 0, 0)]


def test_without_tolerance_every_bad_step_backs_off():
    """The default, down to the floor."""
    loss_scale = TolerantLossScale(initial_loss_scale=2, minimum=0.75)
    assert [state[0] for state in after(loss_scale, "xxx")] == [1, 0.75, 0.75]


@pytest.mark.parametrize("tolerance", [-0.1, 1.1, True, "0.5", None])
def test_a_tolerance_is_a_share(tolerance):
    """From 0 to 1."""
    with pytest.raises(InvalidSpecError, match="tolerance"):
        TolerantLossScale(tolerance=tolerance)
