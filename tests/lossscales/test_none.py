"""No loss scale."""

import numpy as np
import pytest

from scalekeeper import InvalidSpecError, NoLossScale

NAN, GOOD = [np.array([np.nan])], [np.array([1.0])]


def decisions(policy, *steps):
    return [bool(policy.update(grads)[1]) for grads in steps]


def test_by_default_it_does_nothing_at_no_cost():
    """Scale 1, every step applied, no look at the gradients, no state."""
    policy = NoLossScale()
    assert decisions(policy, NAN, GOOD) == [True, True]
    assert (float(policy()), policy.needs, policy.state()) == (1.0, frozenset(), {})


def test_it_skips_if_asked_to():
    """And keeps no state for that."""
    policy = NoLossScale(skip_nonfinite=True)
    assert decisions(policy, NAN, NAN, GOOD) == [False, False, True]
    assert policy.state() == {}


def test_after_so_many_skips_in_a_row_it_applies():
    """Until a good step comes."""
    policy = NoLossScale(True, 2)
    assert decisions(policy, NAN, NAN, NAN, NAN, GOOD, NAN) == [False, False, True, True, True, False]
    assert policy.state() == {"bad_steps": 1}


def test_counting_skips_without_skipping_is_refused():
    """The message says what to set."""
    with pytest.raises(InvalidSpecError, match="apply_after_skips: .*set skip_nonfinite to true"):
        NoLossScale(apply_after_skips=2)
