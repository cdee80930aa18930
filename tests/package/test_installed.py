"""The contents of an installation."""

import sys

import pytest

from scalekeeper.registry._compat import metadata

FILES = [str(path).replace("\\", "/") for path in metadata.files("scalekeeper")]


def test_only_scalekeeper_lands_in_site_packages():
    """No generic name such as "registry" or "cli" at the top, and no tests."""
    tops = {path.split("/")[0] for path in FILES if not path.startswith("..")}
    assert {top for top in tops if not top.startswith("scalekeeper")} == set()


def test_every_room_and_its_data_are_there():
    """Rooms, the mark for type checkers, the demo's document, and 11 tables of signatures."""
    for room in (
        "",
        "registry/",
        "lossscales/",
        "optimizer/",
        "serialization/",
        "simulation/",
        "testing/",
        "cli/",
        "cli/_demo/",
        "optimizer/_keras/",
        "serialization/formats/",
        "serialization/keras/",
    ):
        assert f"scalekeeper/{room}__init__.py" in FILES
    assert {"scalekeeper/py.typed", "scalekeeper/cli/_demo/document.yaml"} <= set(FILES)
    assert len([path for path in FILES if path.startswith("scalekeeper/registry/_signatures/2.")]) == 11


@pytest.mark.parametrize(
    "room", ["registry", "lossscales", "diagnosis", "optimizer", "serialization", "simulation", "testing", "cli", "api"]
)
def test_a_room_has_one_name_only(room):
    """Importing a room by its folder's name, from the root of the checkout, fails instead of making a second copy."""
    import subprocess

    result = subprocess.run([sys.executable, "-c", f"import {room}; {room}.x"], stderr=subprocess.PIPE, text=True)
    assert result.returncode == 1


def test_the_license_is_said():
    """In the metadata, and as a file."""
    assert metadata.metadata("scalekeeper")["License"] == "Apache-2.0"
    assert any(path.endswith("LICENSE") for path in FILES)
