"""Which TensorFlow a document is checked against."""

import json
import os

import pytest

from scalekeeper import UnknownTargetError, registry
from scalekeeper.registry import known_targets, target


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("2.0", "2.0"),
        ("2.0.4", "2.0"),
        ("2.15.1", "2.15"),
        ("2.16", "2.16-keras3"),
        ("2.21", "2.21-keras3"),
        ("2.21.0-tf_keras", "2.21-tf_keras"),
        ("2.18-keras3", "2.18-keras3"),
        ("tf_keras", "2.21-tf_keras"),
        ("keras3", "2.21-keras3"),
    ],
)
def test_spellings(given, expected):
    """Patch versions do not matter; from 2.16 on, Keras 3 is meant unless tf_keras is said."""
    assert target(given).name == expected


@pytest.mark.parametrize(
    "given", ["", "2", "2.22", "1.15", "2.0-keras3", "2.21-", "2.21-x", "2.-1", "keras3-2", "2.x", "../2.0", "2.0.x"]
)
def test_unknown_targets(given):
    """The error says which there are."""
    with pytest.raises(UnknownTargetError, match="valid: 2.0 to 2.21"):
        target(given)


def test_every_target_has_a_table_that_names_its_tensorflow():
    """28 tables: 2.0 to 2.15, and 2.16 to 2.21 with both Kerases; each made on the version in its name."""
    assert len(known_targets()) == 28
    for each in known_targets():
        assert each.table["tensorflow"].startswith(each.name.split("-")[0] + ".")
        assert {"sgd", "adam", "rmsprop"} <= set(each.table["optimizers"])
        assert {"exponential_decay", "cosine_decay"} <= set(each.table["schedules"])
    keras = {each.name: each.table["keras"] for each in known_targets()}
    assert keras["2.21-keras3"].startswith("3.")
    assert keras["2.21-tf_keras"].startswith("2.21.")


def test_equal_tables_are_stored_once():
    """Each file of the package has another table, and each belongs to a target."""
    folder = os.path.join(os.path.dirname(registry.__file__), "_signatures")
    tables = {}
    for file in os.listdir(folder):
        if file.endswith(".json"):
            with open(os.path.join(folder, file), encoding="utf-8") as stream:
                tables[file[: -len(".json")]] = json.load(stream)
    index = tables.pop("targets")
    assert set(index) == {each.name for each in known_targets()}
    assert {entry["table"] for entry in index.values()} == set(tables)
    texts = {json.dumps(table, sort_keys=True) for table in tables.values()}
    assert len(texts) == len(tables)
