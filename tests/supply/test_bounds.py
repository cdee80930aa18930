"""Each dependency has a lowest and a newest version, and the matrix runs the tests with both."""

import os

import pytest

from scalekeeper_test_support.dependencies import bound, declared, installed, lowest, unmet
from scalekeeper_test_support.page_commands import env_list
from scalekeeper_test_support.repository import ROOT
from scalekeeper_test_support.tensorflow_versions import TENSORFLOWS

ENVIRONMENT = os.environ.get("SCALEKEEPER_ENVIRONMENT", "")
NAMES = sorted(declared())
OF_THE_MATRIX = "tensorflow"  # which has an environment for each series


def applies(name):
    marker = declared()[name].marker
    return marker is None or marker.evaluate()


@pytest.mark.parametrize("name", NAMES)
def test_a_dependency_has_two_bounds(name):
    """One lower bound and one upper bound, and nothing else."""
    requirement = declared()[name]
    assert sorted(clause.operator for clause in requirement.specifier) == ["<", ">="]
    assert bound(requirement, ">=") < bound(requirement, "<")


@pytest.mark.parametrize("name", NAMES)
def test_the_upper_bound_is_the_beginning_of_a_series(name):
    """The next major version; TensorFlow takes things away in minor ones."""
    assert len(bound(declared()[name], "<").release) == (2 if name == OF_THE_MATRIX else 1)


def test_the_lowest_versions_are_the_lower_bounds():
    """lowest.txt has all of them, and nothing else."""
    bounds = {name: bound(requirement, ">=") for name, requirement in declared().items() if name != OF_THE_MATRIX}
    assert lowest() == bounds


def test_both_ends_are_in_the_matrix():
    """The environment of the lowest versions and that of the newest, and the first and the last TensorFlow."""
    with open(os.path.join(ROOT, "tox.ini"), encoding="utf-8") as stream:
        text = stream.read()
    assert {"py37-lowest", "py313-core"} <= set(env_list())
    assert "lowest: -r tests/supply/lowest.txt" in text
    series = [tuple(map(int, version.split(".")[:2])) for version in TENSORFLOWS]
    requirement = declared()[OF_THE_MATRIX]
    assert min(series) == bound(requirement, ">=").release
    major, minor = bound(requirement, "<").release
    assert max(series) == (major, minor - 1)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_installed_is_within_the_bounds(name):
    """Of what is installed at all; a hard dependency always is."""
    version = installed(name)
    if version is None:
        assert name in (OF_THE_MATRIX, "matplotlib") or not applies(name)
    else:
        assert declared()[name].specifier.contains(version, prereleases=True) or not applies(name)


def test_what_is_installed_goes_together():
    """All that our dependencies need is there, in a version that they can do with."""
    assert unmet(NAMES) == []


@pytest.mark.skipif("-lowest" not in ENVIRONMENT, reason="only where the lowest versions are installed")
def test_the_lowest_versions_are_installed():
    """Exactly these: no requirement of another one has raised any."""
    assert {name: installed(name) for name in lowest()} == lowest()


@pytest.mark.skipif(not ENVIRONMENT.startswith("py313-core"), reason="only where the newest versions are installed")
def test_the_newest_series_are_installed():
    """The last ones below the upper bounds, so that no bound is wider than what was tested."""
    names = [name for name in NAMES if name != OF_THE_MATRIX and applies(name)]
    expected = {name: bound(declared()[name], "<").major - 1 for name in names}
    assert {name: installed(name).major for name in names} == expected
