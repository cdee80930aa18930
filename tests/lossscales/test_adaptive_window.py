"""The loss scale with an adaptive window, in numbers that can be checked by hand."""

import numpy as np
import pytest

from scalekeeper import AdaptiveWindowLossScale, InvalidSpecError
from scalekeeper.lossscales.adaptive_window import windows_between


def run(loss_scale, steps):
    for step in steps:
        loss_scale.update([np.array([np.nan if step == "x" else 1.0])])
    return loss_scale.state()


def made(**arguments):
    return AdaptiveWindowLossScale(initial_loss_scale=1024, minimum_window=2, maximum_window=4, **arguments)


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ((20, 1000), [20, 30, 40, 50, 100, 200, 500, 1000]),
        ((2, 4), [2, 3, 4]),
        ((60, 150), [60, 150]),
        ((1, 3), [1, 1, 2, 2, 3]),
    ],
)
def test_the_windows(bounds, expected):
    """MindFormers' list for its own bounds; never below the minimum for others."""
    assert windows_between(*bounds) == expected


def test_three_raises_lengthen_the_window():
    """Two steps each for three raises, and three for the next."""
    loss_scale = made(initial_window=2)
    assert run(loss_scale, "." * 6)["window_place"] == 1
    assert run(loss_scale, "..")["current_loss_scale"] == 8192
    assert run(loss_scale, ".")["current_loss_scale"] == 16384


def test_three_drops_shorten_it_to_one_step():
    """From the middle of the list; after that every good step raises the scale."""
    loss_scale = made(initial_window=3)
    state = run(loss_scale, "x.x.x")
    assert (state["current_loss_scale"], state["window_place"], state["drops"]) == (128, -1, 0)
    assert run(loss_scale, "..")["current_loss_scale"] == 512


def test_a_raise_forgets_the_drops():
    """Two drops, a raise, two drops: the window stays."""
    assert run(made(initial_window=3), "xx...xx")["window_place"] == 1


def test_the_first_window_of_the_list_is_not_shortened():
    """As in the original."""
    assert run(made(initial_window=2), "xxx")["window_place"] == 0


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"initial_window": 21}, "initial_window"),
        ({"minimum_window": 20, "maximum_window": 20}, "maximum_window"),
        ({"minimum": 2.0**20}, "initial_loss_scale"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, field):
    """The parameter to change is named."""
    with pytest.raises(InvalidSpecError) as caught:
        AdaptiveWindowLossScale(**arguments)
    assert [problem.path for problem in caught.value.problems] == [(field,)]
