"""Which TensorFlow a document is checked against."""

import json
import os
import subprocess
import sys

import pytest

from scalekeeper import UnknownTargetError, UntestedVersionWarning, registry
from scalekeeper.registry import _targets, known_targets, target
from scalekeeper_test_support.dependencies import bound, declared


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


@pytest.mark.parametrize(
    ("version", "legacy", "expected"),
    [
        ("2.0.4", False, "2.0"),
        ("2.15.1", True, "2.15"),
        ("2.16.2", False, "2.16-keras3"),
        ("2.21.7", True, "2.21-tf_keras"),
        ("2.21.0-rc1", False, "2.21-keras3"),
    ],
)
def test_a_tested_tensorflow_is_its_own_target(version, legacy, expected):
    """Patch releases and release candidates are not warned of."""
    assert _targets._target_of_version(version, legacy).name == expected


@pytest.mark.parametrize("version", ["1.15.5", "unknown", ""])
def test_a_version_before_2_0_has_no_target(version):
    """Neither has a build that does not tell its version."""
    assert _targets._target_of_version(version, False) is None


@pytest.mark.parametrize("version", ["2.22.0rc0", "2.23.0-dev20261026", "2.100.0", "3.0.0"])
@pytest.mark.parametrize(("legacy", "expected"), [(False, "2.21-keras3"), (True, "2.21-tf_keras")])
def test_a_newer_tensorflow_is_treated_as_the_newest_target(monkeypatch, version, legacy, expected):
    """With a warning that names both versions."""
    monkeypatch.setattr(_targets, "_warned", [])
    with pytest.warns(UntestedVersionWarning, match=f"not tested beyond TensorFlow 2.21, and TensorFlow {version} "):
        assert _targets._target_of_version(version, legacy).name == expected


def test_a_newer_tensorflow_is_warned_of_once(tmp_path):
    """In a process that finds TensorFlow 2.22 among the installed packages, and checks two documents for it."""
    package = tmp_path / "tensorflow-2.22.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: tensorflow\nVersion: 2.22.0\n")
    program = "from scalekeeper import load_document as f; [print(f({'optimizer': 'adam'}).target.name) for _ in 'ab']"
    variables = {**os.environ, "PYTHONPATH": str(tmp_path), "TF_USE_LEGACY_KERAS": ""}
    command = [sys.executable, "-W", "always", "-c", program]
    ended = subprocess.run(command, env=variables, capture_output=True, text=True)
    assert ended.stdout.split() == ["2.21-keras3", "2.21-keras3"]
    assert ended.stderr.count("UntestedVersionWarning: scalekeeper is not tested beyond TensorFlow 2.21") == 1


def test_the_extra_installs_a_tested_tensorflow():
    """Its upper bound is the version after the newest target."""
    major, minor = known_targets()[-1].version
    assert bound(declared()["tensorflow"], "<").release == (major, minor + 1)
