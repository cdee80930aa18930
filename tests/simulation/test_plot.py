"""Pictures: what is in them, and that a long run makes no large ones."""

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree

import numpy as np
import pytest

from scalekeeper import ArgumentError, Trace, simulate
from scalekeeper.simulation import overflowing_above, synthetic
from scalekeeper.simulation._plot import outline, overflow_marks, plot

POLICIES = ("dynamic", {"name": "dynamic", "increment_period": 10}, 4096, 65536)


@pytest.fixture(scope="module")
def long_runs():
    """Four policies on many steps."""
    trace = synthetic("drifting", 300_000)
    return [(f"<{number}> $a_b {policy}", simulate(policy, trace)) for number, policy in enumerate(POLICIES)]


def test_a_line_is_drawn_through_its_changes():
    """Not through every step."""
    found = outline(simulate("dynamic", overflowing_above(20_000, 1000)))
    assert (found.steps.tolist(), found.scale.tolist()) == ([0, 1], [32768, 16384])


def test_a_busy_line_is_drawn_as_its_range_and_mean():
    """In each column of the picture the lowest, the highest, and the mean of the logarithm."""
    trace = Trace(np.tile([1.0, 1.0, 1e6], 1000))
    simulation = simulate({"name": "dynamic", "initial_loss_scale": 4, "increment_period": 2, "minimum": 0.25}, trace)
    assert len(simulation.changes) > 300
    found = outline(simulation, columns=10)
    assert len(found.steps) == 10
    for start, low, high, mean in zip(*[found.steps, found.lowest, found.highest, found.scale]):
        part = simulation.scale[start : start + 300]
        assert (part.min(), part.max()) == (low, high)
        assert np.log2(mean) == pytest.approx(np.log2(part).mean())


def test_overflows_are_thinned_out():
    """Up to so many as they are; beyond that, the columns that hold some, and how many."""
    simulation = simulate(1, Trace(np.tile([1.0] * 9 + [1e6], 1000)))
    places, shares = overflow_marks(simulation, columns=2000)
    assert (places[:2].tolist(), len(places), set(shares)) == ([9, 19], 1000, {1.0})
    places, shares = overflow_marks(simulation, columns=10)
    assert (places.tolist(), set(shares)) == (list(range(0, 10_000, 1000)), {0.1})


def test_a_scale_that_no_axis_can_show():
    """0 is drawn at the bottom."""
    simulation = simulate(1, Trace([1.0]))._replace(scale=np.zeros(1, np.float32))
    assert outline(simulation).scale.tolist() == [2.0**-149]


@pytest.mark.parametrize(("ending", "start", "largest"), [("png", b"\x89PNG", 300_000), ("svg", b"<?xml", 500_000)])
def test_pictures_of_long_runs_are_small(tmp_path, long_runs, ending, start, largest):
    """Four policies and 300,000 steps; labels may hold anything."""
    path = tmp_path / f"out.{ending}"
    plot(long_runs, path, "a title")
    data = path.read_bytes()
    assert data.startswith(start)
    assert 10_000 < len(data) < largest


def test_a_png_has_a_line_of_its_colour_for_each_policy(tmp_path, long_runs):
    """Blue, orange, green and pink are in the picture, and not for one policy alone."""
    from matplotlib.image import imread

    def colors(runs):
        plot(runs, tmp_path / "out.png")
        pixels = np.round(imread(tmp_path / "out.png")[..., :3] * 255).astype(int).reshape(-1, 3)
        wanted = {"blue": (0, 114, 178), "orange": (213, 94, 0), "green": (0, 158, 115), "pink": (204, 121, 167)}
        return {name for name, color in wanted.items() if (np.abs(pixels - color).max(axis=1) < 24).sum() > 300}

    assert colors(long_runs) == {"blue", "orange", "green", "pink"}
    assert colors(long_runs[:1]) == {"blue"}


def test_the_same_picture_twice_is_the_same_file(tmp_path, long_runs):
    """So that it can be kept under version control."""
    plot(long_runs, tmp_path / "one.svg")
    plot(long_runs, tmp_path / "two.svg")
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    xml.etree.ElementTree.parse(tmp_path / "one.svg")


def test_a_page_is_one_file_that_needs_no_network(tmp_path, long_runs):
    """Picture, table and data in one; labels are shown, and never run."""
    runs = [*long_runs, ("</script><script>alert(1)</script>", simulate(128, Trace([1e6])))]
    plot(runs, tmp_path / "out.html", "<b>title</b>")
    text = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert text.count("<svg ") == 1
    assert text.count("</script>") == 1
    assert "<b>title" not in text
    assert "&lt;b&gt;title" in text
    links = re.findall(r"""(?:src|href)\s*=\s*["']([^"'#][^"']*)""", text)
    assert [link for link in links if not link.startswith("data:")] == []
    assert text.count("<tr>") == 1 + len(runs)
    assert "the weights are NaN from there on" in text
    data = json.loads(re.search(r"^const data = (.*);$", text, re.MULTILINE).group(1))
    assert [series["label"] for series in data["series"]] == [label for label, _ in runs]
    assert (data["count"], data["series"][2]["lowest"]) == (300_000, [4096])
    assert len(text) < 1_000_000


def test_a_trace_without_steps_has_a_picture(tmp_path):
    """An empty one."""
    runs = [("dynamic", simulate("dynamic", Trace([])))]
    for ending in ("png", "svg", "html"):
        plot(runs, tmp_path / f"out.{ending}")
        assert (tmp_path / f"out.{ending}").stat().st_size > 1000


def test_what_it_can_not_draw_is_refused(tmp_path):
    """Before anything is written."""
    with pytest.raises(ArgumentError):
        plot([], tmp_path / "out.gif")
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_it_says_how_to_get_it(tmp_path):
    """In a process that can't import it."""
    (tmp_path / "matplotlib.py").write_text("raise ImportError('not here')\n")
    search = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    code = "import sys; from scalekeeper.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "simulate", "dynamic", "--plot", str(tmp_path / "out.png")]
    result = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=search))
    message = "Error: plots need matplotlib, which is not installed: pip install matplotlib\n"
    assert (result.returncode, result.stdout, result.stderr) == (1, "", message)
