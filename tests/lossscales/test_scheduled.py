"""The loss scale that follows a schedule."""

import numpy as np
import pytest

from scalekeeper import InvalidSpecError, ScheduledLossScale


def scales(steps, **arguments):
    loss_scale, found = ScheduledLossScale(**arguments), []
    for _ in range(steps):
        found.append(float(loss_scale()))
        loss_scale.update([np.array([1.0])])
    return found


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("piecewise", [4, 4, 64, 64, 64, 64, 16, 16]),
        ("linear", [4, 34, 64, 52, 40, 28, 16, 16]),
        ("exponential", [4, 16, 64, None, 32, None, 16, 16]),
    ],
)
def test_by_hand(schedule, expected):
    """4 at step 0, 64 at step 2, 16 at step 6, and there it stays."""
    found = scales(8, values=[4, 64, 16], boundaries=[2, 6], schedule=schedule)
    assert [value if wanted is not None else None for value, wanted in zip(found, expected)] == expected


def test_exponential_is_close_to_the_true_one():
    """Within 1 % everywhere."""
    found = scales(1000, values=[3.0, 70000.0], boundaries=[1000], schedule="exponential")
    np.testing.assert_allclose(found, 3.0 * (70000.0 / 3.0) ** (np.arange(1000) / 1000), rtol=0.01)


def test_one_value_needs_no_boundary():
    """It is a fixed scale that skips."""
    assert scales(2, values=[5], boundaries=[]) == [5, 5]


@pytest.mark.parametrize("skips", [True, False])
def test_every_step_counts(skips):
    """A non-finite step is skipped if asked for, and moves the schedule on."""
    loss_scale = ScheduledLossScale([4, 8], [1], skip_nonfinite=skips)
    assert bool(loss_scale.update([np.array([np.nan])])[1]) is not skips
    assert (float(loss_scale()), loss_scale.state()) == (8.0, {"steps": 1})


@pytest.mark.parametrize(
    ("values", "boundaries", "path"),
    [
        ([1, 2], [1, 2], ("boundaries",)),
        ([1, 2, 3], [2, 2], ("boundaries",)),
        ([], [], ("values",)),
        ([1, 0], [2], ("values", 1)),
        ([1, 2], [0], ("boundaries", 0)),
    ],
)
def test_what_does_not_fit_is_refused(values, boundaries, path):
    """With the place of the fault."""
    with pytest.raises(InvalidSpecError) as caught:
        ScheduledLossScale(values, boundaries)
    assert [problem.path for problem in caught.value.problems] == [path]
