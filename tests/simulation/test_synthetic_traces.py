"""Gradients as a rule makes them up."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalekeeper import InvalidSpecError
from scalekeeper.simulation import MODELS, overflowing_above, parse_model, simulate, synthetic


@given(st.floats(1e-20, 1e20), st.floats(1, 1e6))
def test_overflowing_above_a_scale(scale, limit):
    """At it nothing overflows, at the next larger float32 everything does."""
    trace = overflowing_above(scale, 3, limit)
    above = np.nextafter(np.float32(scale), np.float32(np.inf))
    assert trace.overflows_at(scale).tolist() == [False] * 3
    assert trace.overflows_at(above).tolist() == [True] * 3


def test_a_dynamic_scale_finds_the_one_above_which_it_overflows():
    """From 32768 in five halvings down to 1000, which is not a power of two."""
    result = simulate("dynamic", overflowing_above(1000, 100))
    assert (result.steps_lost, result.last) == (6, 512.0)


@pytest.mark.parametrize("model", sorted(MODELS))
def test_a_seed_gives_the_same_trace(model):
    """And another one another."""
    first, again, other = (synthetic(model, 100, seed=seed).largest for seed in (1, 1, 2))
    assert first.tobytes() == again.tobytes() != other.tobytes()


def test_a_lognormal_trace_has_its_median_and_spread():
    """Measured over many steps."""
    log2 = np.log2(synthetic("lognormal", 100_000, median=0.25, spread=2).largest)
    assert abs(np.median(log2) + 2) < 0.05
    assert abs(log2.std() - 2) < 0.05


def test_a_decaying_trace_halves():
    """After so many steps."""
    largest = synthetic("decaying", 301, median=8, spread=0, halving=100).largest
    assert largest[[0, 100, 200, 300]].tolist() == [8, 4, 2, 1]


def test_spikes_are_rare_and_high():
    """A share of them, so many times as large."""
    largest = synthetic("spikes", 100_000, median=1, spread=0, share=0.01, height=64).largest
    assert set(largest.tolist()) == {1.0, 64.0}
    assert 800 < np.count_nonzero(largest == 64) < 1200


def test_a_drifting_median_wanders():
    """From step to step a little, over many steps far."""
    log2 = np.log2(synthetic("drifting", 10_000, spread=0, drift=0.01).largest)
    assert np.abs(np.diff(log2)).max() < 0.1
    assert log2.max() - log2.min() > 0.5


@given(st.sampled_from(sorted(MODELS)), st.floats(2.0**-126, 2.0**126), st.floats(0, 20), st.integers(0, 2**63 - 1))
def test_every_model_gives_magnitudes(model, median, spread, seed):
    """Finite and above 0, whatever its parameters."""
    largest = synthetic(model, 20, median=median, spread=spread, seed=seed).largest
    assert np.isfinite(largest).all()
    assert (largest > 0).all()


def test_it_says_how_it_was_made():
    """With every parameter."""
    assert synthetic("lognormal", 1, seed=3).facts == {
        "synthetic": {"model": "lognormal", "seed": 3, "median": 0.01, "spread": 1.0}
    }


def test_a_model_on_the_command_line():
    """A name, and numbers."""
    assert parse_model("spikes") == ("spikes", {})
    assert parse_model("spikes:share=1e-2, seed=7") == ("spikes", {"share": 0.01, "seed": 7})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("spike", "unknown model 'spike'; did you mean 'spikes'? Valid: lognormal, decaying, spikes, drifting."),
        ("spikes:share", "'share' is not key=value; a model is NAME or NAME:key=value,key=value"),
        ("spikes:share=1,share=2", "share: given twice"),
        ("spikes:shares=1", "shares: unknown parameter 'shares' of spikes; did you mean 'share'? Valid: "),
        ("spikes:share=2", "share: 2 must be less than or equal to 1"),
        ("spikes:share=x", "share: 'x' must be a number"),
        ("spikes:seed=1.5", "seed: 1.5 must be "),
        ("spikes:median=nan", "median: nan must be "),
    ],
)
def test_what_is_no_model_is_refused(text, message):
    """With what is allowed."""

    def made():
        name, parameters = parse_model(text)
        return synthetic(name, 10, **parameters)

    with pytest.raises(InvalidSpecError) as caught:
        made()
    assert str(caught.value).startswith(message.rstrip("."))


@pytest.mark.parametrize("steps", [0, -1, 10**12, True, 1.5])
def test_the_number_of_steps_is_bounded(steps):
    """So that no memory is taken for what can't be."""
    with pytest.raises(InvalidSpecError, match="must be between 1 and 20000000"):
        synthetic("lognormal", steps)
    with pytest.raises(InvalidSpecError, match="must be between 1 and 20000000"):
        overflowing_above(1024, steps)
