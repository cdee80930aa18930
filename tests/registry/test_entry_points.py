"""Plugins of other packages, as really installed distributions on the path of a fresh process."""

import json
import os
import subprocess
import sys

import pytest

GOOD = """
from scalekeeper import DynamicLossScale, register

@register("by_decorator")
class Good(DynamicLossScale):
    pass

not_a_scale = dict
"""


@pytest.fixture
def install(tmp_path):
    """Write a distribution with one module and its entry points, and return a way to run code beside it."""

    def write(name, module, entry_points):
        info = tmp_path / f"{name}-1.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
        (info / "entry_points.txt").write_text("[scalekeeper.loss_scales]\n" + entry_points)
        (tmp_path / (name + ".py")).write_text(module)

    return write


@pytest.fixture
def run(tmp_path):
    def run_code(code):
        environment = dict(os.environ, PYTHONPATH=str(tmp_path))
        return subprocess.check_output([sys.executable, "-c", code], env=environment, text=True).strip()

    return run_code


def listing(run):
    rows = json.loads(run("from scalekeeper.cli import main; main(['list', '--json'])"))
    return {(row["name"], row["origin"]): row for row in rows}


def test_a_plugin_is_loaded_when_it_is_asked_for(install, run):
    """Not before: resolving a built-in name imports no one's package."""
    install("good", GOOD, "theirs = good:Good\n")
    code = """
import sys, scalekeeper
scalekeeper.resolve("dynamic")
before = "good" in sys.modules
print(before, type(scalekeeper.resolve("theirs")).__name__, "good" in sys.modules)
"""
    assert run(code) == "False Good True"


def test_the_listing_says_where_it_comes_from(install, run):
    """Distribution and version, for the announced name."""
    install("good", GOOD, "theirs = good:Good\n")
    assert listing(run)["theirs", "good 1.5"]["error"] is None


def test_a_plugin_that_also_registers_itself_is_one_plugin(install, run):
    """The decorator and the entry point name the same class: no quarrel."""
    install("good", GOOD, "by_decorator = good:Good\n")
    assert run("import scalekeeper; print(type(scalekeeper.resolve('by_decorator')).__name__)") == "Good"


@pytest.mark.parametrize(
    "module", ["import no_such_module", "raise ValueError('broken')", "import sys; sys.exit(3)", "def ("]
)
def test_a_broken_plugin_breaks_only_itself(install, run, module):
    """It is listed with its error; the others work; asking for it says what is wrong."""
    install("broken", module, "bad = broken:Bad\n")
    install("good", GOOD, "theirs = good:Good\n")
    rows = listing(run)
    assert rows["bad", "broken 1.5"]["error"].startswith("loss scale 'bad' of package broken 1.5 could not be loaded: ")
    assert rows["theirs", "good 1.5"]["error"] is None
    code = """
import scalekeeper
print(type(scalekeeper.resolve("theirs")).__name__, type(scalekeeper.resolve("dynamic")).__name__)
try:
    scalekeeper.resolve("bad")
except scalekeeper.PluginLoadError as error:
    print("PluginLoadError")
"""
    assert run(code).split() == ["Good", "DynamicLossScale", "PluginLoadError"]


def test_a_plugin_that_is_no_loss_scale(install, run):
    """The object of an entry point must have the contract."""
    install("good", GOOD, "theirs = good:not_a_scale\n")
    assert "dict is not a loss scale" in listing(run)["theirs", "good 1.5"]["error"]


def test_a_built_in_name_stays_built_in(install, run):
    """A package can't take over "dynamic" by being installed; the listing says that it tried."""
    install("good", GOOD, "dynamic = good:Good\n")
    assert run("import scalekeeper; print(type(scalekeeper.resolve('dynamic')).__name__)") == "DynamicLossScale"
    rows = listing(run)
    assert rows["dynamic", "built in"]["error"] is None
    assert "is taken" in rows["dynamic", "good 1.5"]["error"]


def test_two_packages_with_one_name(install, run):
    """Neither wins by chance: the error names both."""
    install("good", GOOD, "theirs = good:Good\n")
    install("other", GOOD.replace("by_decorator", "by_other"), "theirs = other:Good\n")
    code = (
        "import scalekeeper\ntry:\n scalekeeper.resolve('theirs')\nexcept scalekeeper.PluginLoadError as e:\n print(e)"
    )
    message = run(code)
    assert "good 1.5" in message
    assert "other 1.5" in message


def test_an_unknown_name_lists_announced_ones(install, run):
    """A miss names what other packages offer too."""
    install("good", GOOD, "theirs = good:Good\n")
    code = "import scalekeeper\ntry:\n scalekeeper.resolve('their')\nexcept ValueError as e:\n print(e)"
    message = run(code)
    assert "did you mean 'theirs'? Valid: adaptive_window, dynamic, " in message
    assert ", static, theirs, tolerant." in message
