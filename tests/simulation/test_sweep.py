"""Sweeps: every combination of some parameters, and the best of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalekeeper import FixedLossScale, InvalidSpecError, Trace, recommend, simulate, sweep
from scalekeeper.registry.errors import ArgumentError, ArgumentTypeError
from scalekeeper.simulation import _sweep_plot, overflowing_above, synthetic
from scalekeeper.simulation._sweep_plot import plot_sweep

TRACE = synthetic("drifting", 600)


@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=3, unique=True),
    st.lists(st.sampled_from([0.5, 0.25, 0.75]), min_size=1, max_size=3, unique=True),
)
def test_every_combination_is_simulated(periods, factors):
    """Each point is what simulate says of it, in order; the best ones are the best."""
    found = sweep("dynamic", TRACE, {"increment_period": periods, "backoff_factor": factors})
    assert found.axes == {"increment_period": tuple(periods), "backoff_factor": tuple(factors)}
    expected = []
    for period in periods:
        for factor in factors:
            spec = {"name": "dynamic", "increment_period": period, "backoff_factor": factor}
            expected.append((period, factor, simulate(spec, TRACE).summary()))
    assert [(*point.values.values(), point.summary) for point in found.points] == expected
    fewest = min(summary["steps_lost"] for *_, summary in expected)
    highest = max(summary["mean_log2_scale"] for *_, summary in expected)
    assert found.best_by_steps_lost.steps_lost == fewest
    assert found.best_by_mean_scale.mean_log2_scale == highest
    ties = [summary["mean_log2_scale"] for *_, summary in expected if summary["steps_lost"] == fewest]
    assert found.best_by_steps_lost.mean_log2_scale == max(ties)


@pytest.mark.parametrize(
    ("policy", "axes", "expected"),
    [
        ("dynamic", {"name": ["dynamic", "log_max"]}, ["DynamicLossScale", "LogMaxLossScale"]),
        (64, {"loss_scale_value": [8, 16]}, ["FixedLossScale"] * 2),
        ({"name": "dynamic/apex", "minimum": 2}, {"maximum": [None, 2**20]}, ["DynamicLossScale"] * 2),
    ],
)
def test_what_can_be_swept(policy, axes, expected):
    """A name, a number or a mapping; also the name of the policy, and values such as None."""
    found = sweep(policy, TRACE.first(10), axes)
    assert [type(point.policy).__name__ for point in found.points] == expected


def test_what_spoils_the_weights_is_never_the_best():
    """A fixed scale that applies what is not finite loses no step."""
    trace = Trace([10.0] * 5)
    found = sweep(65536, trace, {"skip_nonfinite": [False, True]})
    assert [point.steps_lost for point in found.points] == [0, 5]
    assert found.best_by_steps_lost.values == {"skip_nonfinite": True}
    alone = sweep(65536, trace, {"skip_nonfinite": [False]})
    assert (alone.best_by_steps_lost, alone.best_by_mean_scale) == (None, None)
    empty = sweep("dynamic", Trace([]), {"minimum": [1]})
    assert (empty.points[0].mean_log2_scale, empty.best_by_mean_scale) == (None, None)


def test_progress_counts_all_combinations():
    """It never goes back, and ends below the steps of all."""
    seen = []
    sweep("dynamic", TRACE, {"increment_period": [5, 6, 7]}, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[0] == 0
    assert 2 * len(TRACE) <= seen[-1] <= 3 * len(TRACE)


@pytest.mark.parametrize(
    ("policy", "axes", "expected"),
    [
        ("dynamic", {}, "a sweep needs a parameter"),
        ("dynamic", {"minimum": []}, "minimum: .. is not a list of values"),
        ("dynamic", {"minimum": "12"}, "minimum: '12' is not a list of values"),
        ("dynamic", {"minimum": 5}, "minimum: 5 is not a list of values"),
        ("dynamic", {"minimum": [1, 1.0]}, "minimum: 1.0 is there twice"),
        (
            "dynamic",
            {"minimum": range(1, 102), "multiplier": range(2, 102)},
            "10,100 combinations are more than 10,000",
        ),
        ("dynamic", {"minimum": range(10**9)}, "1,000,000,000 combinations are more"),
        ("dynamic", {"minimum": [1, 0]}, "minimum: 0 must be"),
        ("dynamic", {"minimun": [1]}, "unknown parameter 'minimun' of dynamic; did you mean 'minimum'"),
        ("dynamo", {"minimum": [1]}, "unknown loss scale 'dynamo'"),
        (FixedLossScale(8), {"skip_nonfinite": [True]}, "a sweep needs a name, a number or a mapping"),
        (None, {"skip_nonfinite": [True]}, "a sweep needs a name, a number or a mapping"),
        ({"minimum": 1}, {"multiplier": [2]}, "needs a 'name'"),
    ],
)
def test_wrong_sweeps(policy, axes, expected):
    """One error, before anything is simulated."""
    with pytest.raises(InvalidSpecError, match=expected):
        sweep(policy, TRACE, axes, progress=lambda done: pytest.fail("simulated"))


@pytest.mark.parametrize("axes", [None, "minimum=1,2", [("minimum", [1])]])
def test_axes_that_are_no_mapping(axes):
    """A TypeError that shows what to write."""
    with pytest.raises(ArgumentTypeError, match="expected a mapping such as"):
        sweep("dynamic", TRACE, axes)


def test_values_of_numpy():
    """Arrays, numbers of NumPy and lists of either are plain values."""
    found = sweep("dynamic", TRACE, {"increment_period": np.array([5, 50]), "multiplier": [np.float32(2), 4]})
    plain = sweep("dynamic", TRACE, {"increment_period": [5, 50], "multiplier": [2.0, 4]})
    assert found.axes == plain.axes
    assert [(each.values, each.summary) for each in found.points] == [
        (each.values, each.summary) for each in plain.points
    ]
    assert [type(value) for value in found.points[0].values.values()] == [int, float]
    scheduled = {"name": "scheduled", "values": [1, 2], "boundaries": [2]}
    found = sweep(scheduled, TRACE, {"values": [np.array([1, 2]), np.array([3, 4])]})
    assert [point.values for point in found.points] == [{"values": [1, 2]}, {"values": [3, 4]}]


@pytest.mark.parametrize("ending", ["png", "svg"])
@pytest.mark.parametrize(
    "axes",
    [
        {"increment_period": [5]},
        {"increment_period": [5, 50, 500]},
        {"increment_period": [5, 50], "backoff_factor": [0.5, 0.25, None]},
        {"increment_period": [5], "minimum": range(1, 50)},
    ],
    ids=["one", "curves", "map", "large"],
)
def test_a_plot(tmp_path, axes, ending):
    """Curves of one parameter, a heat map of two, with their names and values; the same bytes each time."""
    found = sweep("dynamic", TRACE.first(100), axes)
    paths = [tmp_path / f"{number}.{ending}" for number in range(2)]
    for path in paths:
        plot_sweep(found, path, "a title of $5")
    data = paths[0].read_bytes()
    assert data == paths[1].read_bytes()
    assert data[:4] == b"\x89PNG" if ending == "png" else b"<svg" in data
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in paths)


def test_ticks_of_values_that_differ_little(tmp_path, monkeypatch):
    """Each tick has its whole number: none is the distance from an offset beside the axis."""
    figures = []
    monkeypatch.setattr(
        _sweep_plot, "write_figure", lambda figure, *_: figures.append(figure) or figure.savefig(tmp_path / "a.png")
    )
    found = sweep("dynamic", overflowing_above(20_000, 3_000), {"increment_period": [100, 500, 2000]})
    plot_sweep(found, tmp_path / "a.png")
    scales = figures[0].axes[1]
    assert scales.get_ylim()[0] > 13.9
    assert scales.yaxis.get_offset_text().get_text() == ""


def test_a_plot_without_figures(tmp_path):
    """A sweep without steps has no mean scale to draw."""
    plot_sweep(sweep("dynamic", Trace([]), {"minimum": [1, 2], "multiplier": [2, 3]}), tmp_path / "a.png")
    plot_sweep(sweep("dynamic", Trace([]), {"minimum": [1, 2]}), tmp_path / "b.png")
    assert len(list(tmp_path.iterdir())) == 2


def test_plots_that_are_not_possible(tmp_path):
    """Three parameters, and other endings."""
    three = sweep("dynamic", TRACE.first(5), {"minimum": [1], "multiplier": [2], "hysteresis": [1]})
    with pytest.raises(ArgumentError, match="one or two parameters, and the sweep has 3"):
        plot_sweep(three, tmp_path / "a.png")
    with pytest.raises(ArgumentError, match=r"must end with \.png or \.svg"):
        plot_sweep(sweep("dynamic", TRACE.first(5), {"minimum": [1]}), tmp_path / "a.html")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (
            lambda trace: simulate("dynamic", trace),
            r"^simulate expects a Trace, got \[1.0\]: call simulate\(",
        ),
        (lambda trace: recommend(trace), r"^recommend expects a Trace, got \[1.0\]: call recommend\(trace\)"),
        (lambda trace: sweep("dynamic", trace, {"minimum": [1]}), r"^sweep expects a Trace, got \[1.0\]: call sweep\("),
    ],
)
def test_a_list_is_not_a_trace(call, expected):
    """The error names the function that was called, and how to make a trace of numbers."""
    with pytest.raises(ArgumentTypeError, match=expected + r".*; Trace\(\[1.0, …\]\) makes one of numbers$"):
        call([1.0])
