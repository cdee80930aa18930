"""A fixed scale and a policy from a trace, and the reasons."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalekeeper import Trace, load_document, recommend, simulate
from scalekeeper.registry._document_files import source_of
from scalekeeper.registry._documents import Access, check_loss_scale
from scalekeeper.simulation import synthetic

INF = float("inf")
sizes = st.sampled_from([0.0, 1e-6, 0.5, 100.0, 1e6, INF])
traces = st.lists(st.tuples(sizes, st.sampled_from([0.5, 1.0, 512.0, 2.0**20])), max_size=12).map(
    lambda rows: Trace([size for size, _ in rows], [scale for _, scale in rows])
)


def test_the_fixed_scale_leaves_headroom():
    """65504 / 1.5 is 43669: 32768 would fit, 16384 fits with gradients twice as large."""
    found = recommend(Trace([1.5, 0.1] * 1000))
    assert found.fixed_scale == 16384
    assert found.fixed_reason == (
        "The largest gradient is 1.5: at a scale of 16384 none of 2,000 steps overflows, nor would any with gradients "
        "up to 2.67 times as large."
    )
    assert recommend(Trace([1.5]), headroom=1).fixed_scale == 32768
    assert recommend(Trace([1.5]), limit=150).fixed_scale == 32


def test_a_step_of_unknown_size_bounds_the_fixed_scale():
    """It overflowed at 1024, so with headroom 256 it is."""
    found = recommend(Trace([0.001, INF] * 1000, 1024))
    assert found.fixed_scale == 256
    assert "a step of unknown size overflowed at a scale of 1024" in found.fixed_reason
    assert found.warnings[0].startswith("Of 1,000 steps only this is known: they overflowed")


def test_the_fixed_scale_is_never_below_1():
    """Where 1 just fits it is 1, with what headroom there is; where it does not, there is none."""
    assert recommend(Trace([60000.0])).fixed_scale == 1
    assert "up to 1.09 times as large" in recommend(Trace([60000.0])).fixed_reason
    found = recommend(Trace([70000.0, 1, 1, 1]))
    assert found.fixed_scale is None
    assert (
        "does not fit below 65504 even with a scale of 1, at which 25.00 % of the steps overflow" in found.fixed_reason
    )


def test_it_is_bounded_above():
    """Tiny gradients need no scale beyond 2^24."""
    assert recommend(Trace([1e-20] * 10)).fixed_scale == 2.0**24


def test_every_step_overflowed():
    """Nothing is known but from where; the policy starts below that."""
    found = recommend(Trace([INF] * 2000, 1024))
    assert found.fixed_scale is None
    assert found.fixed_reason.startswith("Every step overflowed, at scales from 1024 up: so nothing is known")
    assert (found.loss_scale["name"], found.loss_scale["initial_loss_scale"]) == ("dynamic", 512)


def test_every_step_was_not_finite_at_a_scale_of_1():
    """Then no scale helps, and it says so."""
    found = recommend(Trace([INF] * 2000, 1))
    assert found.fixed_scale is None
    assert "what spoils the gradients is not the scale" in found.fixed_reason
    assert found.warnings[0].startswith("2,000 steps were not finite at a scale of 1 or below: no scale helps")


def test_nothing_but_zeros():
    """Every scale fits."""
    found = recommend(Trace([0.0] * 2000))
    assert (found.fixed_scale, found.warnings) == (None, ())
    assert found.fixed_reason.startswith("All gradients are 0")


@pytest.mark.parametrize("steps", [0, 1, 999])
def test_a_short_trace_is_said_to_be_short(steps):
    """And answered all the same."""
    found = recommend(Trace([1.0] * steps))
    assert found.warnings[0].startswith(f"{steps} steps are few")
    assert found.loss_scale["name"]


def test_defaults_stay_where_nothing_is_clearly_better():
    """On steady gradients that the default scale fits; a scale between two powers of two is better by less than one."""
    found = recommend(Trace([1.0] * 3000))
    assert found.loss_scale == {"name": "dynamic"}
    assert found.policy_reason.startswith("With its defaults it loses ")


def test_a_better_policy_is_named_with_its_figures():
    """With gradients that change by a factor of a thousand in few steps, a short period is better by bits."""
    largest = np.where(np.arange(40_000) % 4000 < 20, 100.0, 0.001)
    found = recommend(Trace(largest))
    assert found.loss_scale != {"name": "dynamic"}
    best = simulate(found.loss_scale, Trace(largest))
    assert f"It loses {best.steps_lost:,} of 40,000 steps" in found.policy_reason
    assert f"at a mean scale of 2^{best.mean_log2_scale:.1f}" in found.policy_reason
    default = found.candidates[0]
    assert default.loss_scale == {"name": "dynamic"}
    chosen = next(each for each in found.candidates if each.loss_scale == found.loss_scale)
    assert chosen.score == max(each.score for each in found.candidates) > default.score


@given(traces)
def test_what_is_recommended_holds(trace):
    """For any trace: at the fixed scale no step overflows that a scale of 1 could save; the snippet is a loss scale."""
    found = recommend(trace)
    if found.fixed_scale is not None:
        overflows = trace.overflows_at(found.fixed_scale)
        assert not (overflows & ~trace.overflows_at(1)).any()
        assert np.log2(found.fixed_scale) % 1 == 0
    spec, policy = check_loss_scale(source_of("snippet.yaml", found.yaml.encode()), Access())
    assert spec == found.loss_scale
    assert policy.get_config() == simulate(found.loss_scale, trace).policy.get_config()


def test_the_snippet_fits_into_a_document(tmp_path):
    """Pasted below an optimizer."""
    found = recommend(synthetic("spikes", 5000))
    (tmp_path / "train.yaml").write_text("optimizer: adam\n" + found.yaml)
    document = load_document(tmp_path / "train.yaml")
    assert document.loss_scale.get_config() == simulate(found.loss_scale, Trace([1])).policy.get_config()
    fixed = found.yaml.splitlines()[-1]
    assert fixed.startswith("# loss_scale: {name: fixed, loss_scale_value: ")
    (tmp_path / "fixed.yaml").write_text("optimizer: adam\n" + fixed[2:])
    assert float(load_document(tmp_path / "fixed.yaml").loss_scale()) == found.fixed_scale
