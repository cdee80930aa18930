"""The loss scale by the statistics of the largest gradient."""

import numpy as np
import pytest

from scalekeeper import LogMaxLossScale


def run(loss_scale, *gradients):
    for gradient in gradients:
        loss_scale.update([np.array([gradient], np.float32)])
    return float(loss_scale())


def test_a_steady_gradient_leaves_just_that_room():
    """Always 1/4: the scale that makes it 2**16 is 2**18, from the first step on."""
    assert run(LogMaxLossScale(), 0.25) == 2.0**18
    assert run(LogMaxLossScale(), *[0.25] * 50) == pytest.approx(2.0**18, rel=0.02)


def test_larger_gradients_lower_it_before_anything_overflows():
    """Each step is larger than the one before, and the scaled ones stay below 2**16."""
    loss_scale, scaled = LogMaxLossScale(), []
    run(loss_scale, 1.0, 0.5)
    for exponent in range(12):
        run(loss_scale, 2.0**-exponent, 2.0 ** (exponent / 4))
        scaled.append(2.0 ** ((exponent + 1) / 4) * float(loss_scale()))
    assert max(scaled) < 2.0**16


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_every_overflow_at_least_halves_it(bad):
    """Also after a thousand steady steps, which the statistics would not forget for one: not to the minimum at once."""
    loss_scale = LogMaxLossScale()
    before = run(loss_scale, *[0.25] * 1000)
    scales = [run(loss_scale, bad) for _ in range(3)]
    assert scales[0] <= before / 2
    assert scales[1] <= scales[0] / 2
    assert scales[2] <= scales[1] / 2
    assert scales[0] > before / 64


def test_zero_gradients_say_nothing():
    """Nor do those that are smaller than any normal float32: no state changes."""
    loss_scale = LogMaxLossScale()
    run(loss_scale, 3.0, 5.0)
    before = loss_scale.state()
    run(loss_scale, 0.0, 1e-42)
    assert loss_scale.state() == before


def test_bounds():
    """Tiny gradients lead to the maximum, huge ones to the minimum, exactly."""
    assert run(LogMaxLossScale(maximum=3000.0), 1e-30) == 3000.0
    assert run(LogMaxLossScale(minimum=0.7), 1e30) == np.float32(0.7)


def test_a_million_steps_stay_finite():
    """The powers of beta end at 0, not among the numbers that are no longer normal."""
    loss_scale = LogMaxLossScale(beta1=0.5, beta2=0.5)
    run(loss_scale, *[1.0] * 400)
    assert loss_scale.state()["beta1_power"] == 0
    assert float(loss_scale()) == 2.0**16
