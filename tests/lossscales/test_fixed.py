"""The fixed loss scale."""

import numpy as np
import pytest

from scalekeeper import FixedLossScale, InvalidSpecError


def test_call_gives_a_float32_scalar():
    """Calling it gives the value as a float32 scalar."""
    scale = FixedLossScale(128)()
    assert (scale, scale.dtype) == (128.0, np.dtype("float32"))


def test_a_nonfinite_step_is_applied_as_in_tensorflow():
    """By default every step is applied, and nothing is computed from the gradients."""
    loss_scale = FixedLossScale(128)
    assert loss_scale.update([np.array([np.nan])]) == (None, True)
    assert loss_scale.needs == frozenset()


@pytest.mark.parametrize(("gradient", "expected"), [(1.0, True), (np.nan, False), (-np.inf, False)])
def test_skip_nonfinite(gradient, expected):
    """With skip_nonfinite a step with a non-finite gradient is skipped, and the scale stays."""
    loss_scale = FixedLossScale(128, skip_nonfinite=True)
    assert bool(loss_scale.update([np.array([gradient])])[1]) is expected
    assert loss_scale() == 128.0


def test_no_state():
    """There is nothing to save but the parameters."""
    assert FixedLossScale(128).state() == {}


@pytest.mark.parametrize(
    "value", [True, "128", None, float("nan"), float("inf"), -float("inf"), 0, -1, 0.999, 1e39, 10**400]
)
def test_bad_values_are_refused(value):
    """The value is a number of at least 1 that float32 can hold."""
    with pytest.raises(InvalidSpecError) as caught:
        FixedLossScale(value)
    assert [problem.path for problem in caught.value.problems] == [("loss_scale_value",)]


def test_the_value_is_required():
    """There is no default, as in TensorFlow."""
    with pytest.raises(InvalidSpecError, match="FixedLossScale needs 'loss_scale_value'"):
        FixedLossScale()
