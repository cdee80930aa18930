"""Who imports whom."""

import ast
import os

import pytest

import scalekeeper

HOME = os.path.dirname(scalekeeper.__file__)
MAY_IMPORT = {
    "registry": set(),
    "lossscales": {"registry"},
    "optimizer": {"registry", "lossscales", "serialization", "simulation"},
    "serialization": {"registry", "lossscales"},
    "simulation": {"registry", "lossscales", "serialization"},
    "testing": {"registry", "lossscales", "optimizer", "serialization"},
    "cli": {"registry", "lossscales", "optimizer", "serialization", "simulation", "testing"},
}


def imported_rooms(path, room):
    """Yield the other rooms that a file imports, anywhere in it."""
    depth = os.path.relpath(path, HOME).count(os.sep)
    with open(path, encoding="utf-8") as stream:
        tree = ast.parse(stream.read())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            if node.level == depth + 1:
                yield from [node.module.split(".")[0]] if node.module else [alias.name for alias in node.names]
            assert not (node.module or "").startswith("scalekeeper"), "rooms import each other relatively"
        elif isinstance(node, ast.Import):
            assert not any(alias.name.startswith("scalekeeper") for alias in node.names)


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_a_room_imports_only_what_it_may(room):
    """The table in docs/architecture.md holds."""
    for folder, _, names in os.walk(os.path.join(HOME, room)):
        for name in names:
            if name.endswith(".py"):
                found = set(imported_rooms(os.path.join(folder, name), room))
                assert found <= MAY_IMPORT[room], (name, found)


def test_every_room_is_in_the_table():
    """A new room gets a line."""
    rooms = {name for name in os.listdir(HOME) if os.path.isfile(os.path.join(HOME, name, "__init__.py"))}
    assert rooms == set(MAY_IMPORT)
