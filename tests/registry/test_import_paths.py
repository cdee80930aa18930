"""Import paths in a specification: nothing is imported that the caller did not allow."""

import sys

import pytest

from scalekeeper import InvalidSpecError, PluginLoadError, resolve

MODULE = """
import collections
from subprocess import Popen
from scalekeeper import DynamicLossScale as Foreign

class Mine(Foreign):
    pass

class NoScale:
    pass

value = 5
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package on the path that has never been imported."""
    (tmp_path / "their_package").mkdir()
    (tmp_path / "their_package" / "__init__.py").write_text("")
    (tmp_path / "their_package" / "scales.py").write_text(MODULE)
    (tmp_path / "their_package_evil.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in [name for name in sys.modules if name.startswith("their_package")]:
        del sys.modules[name]


@pytest.mark.usefixtures("package")
class TestAllowed:
    """Import paths that an allow-list admits."""

    @pytest.mark.parametrize("allowed", ["their_package.scales:Mine", "their_package.*", "their_package.scales.*"])
    def test_exact_names_and_packages(self, allowed):
        """An exact name, its module's package, or any package above."""
        assert type(resolve("their_package.scales:Mine", allow=[allowed])).__name__ == "Mine"

    def test_in_a_mapping_with_parameters(self):
        """As any other name."""
        spec = {"name": "their_package.scales:Mine", "increment_period": 7}
        assert resolve(spec, allow=["their_package.*"]).params.increment_period == 7

    def test_parameters_are_checked(self):
        """As any other name's."""
        with pytest.raises(InvalidSpecError, match="increment_period"):
            resolve({"name": "their_package.scales:Mine", "increment_period": 0}, allow=["their_package.*"])

    def test_a_name_that_the_package_only_imported_needs_an_exact_permission(self):
        """their_package.* speaks for their_package's own classes, not for what it happens to import."""
        for path in ("their_package.scales:Popen", "their_package.scales:Foreign"):
            with pytest.raises(InvalidSpecError, match="which is not allowed"):
                resolve(path, allow=["their_package.*"])
        assert resolve("their_package.scales:Foreign", allow=["their_package.scales:Foreign"])() == 32768.0

    @pytest.mark.parametrize("name", ["NoScale", "value"])
    def test_what_is_no_loss_scale(self, name):
        """It is not called, whatever was allowed."""
        with pytest.raises(InvalidSpecError, match="not a loss scale|only a class"):
            resolve("their_package.scales:" + name, allow=["their_package.scales:" + name])

    @pytest.mark.parametrize("path", ["their_package.scales:Absent", "their_package.absent:Mine"])
    def test_what_is_not_there(self, path):
        """One clear error with the reason."""
        with pytest.raises(PluginLoadError, match="could not be loaded: (AttributeError|ModuleNotFoundError)"):
            resolve(path, allow=["their_package.*"])


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("path", "allow"),
    [
        ("their_package.scales:Mine", []),
        ("their_package.scales:Mine", ["their_package.scales:Other"]),
        ("their_package.scales:Mine", ["their_package.scale.*"]),
        ("their_package_evil:Mine", ["their_package.*"]),
        ("their_package:Mine", ["their_package.scales.*"]),
    ],
)
def test_what_is_not_allowed_is_not_imported(path, allow):
    """The refusal says how to allow it, and the module was never touched."""
    with pytest.raises(InvalidSpecError, match="is not allowed. To allow it"):
        resolve(path, allow=allow)
    assert not [name for name in sys.modules if name.startswith("their_package")]


@pytest.mark.parametrize(
    "path",
    [
        "os:",
        ":system",
        "os:path.join",
        "..os:x",
        "os..path:x",
        "os:system ",
        " os:x",
        "о:x",
        "os:x:y",
        "os/path:x",
        "a-b:c",
    ],
)
def test_what_is_no_import_path(path):
    """Tricks with dots, blanks, slashes and look-alike letters are not import paths at all."""
    with pytest.raises(InvalidSpecError, match="is not an import path"):
        resolve(path, allow=["os.*"])


@pytest.mark.parametrize("pattern", ["*", ".*", "*.x", "os", "os.", "os.*.*", "*:*", "os:*", "оs.*", "", None, 5])
def test_what_can_not_be_allowed(pattern):
    """A bare * and everything like it is refused before anything is looked at."""
    with pytest.raises(ValueError, match="can't be allowed"):
        resolve("os:x", allow=[pattern])
