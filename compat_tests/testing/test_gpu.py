"""``python -m scalekeeper.testing.gpu``: the script for a person with a GPU, tried without one on small arrays."""

import json

import numpy as np
import pytest
import tensorflow as tf

from scalekeeper.testing import gpu
from scalekeeper_test_support.installed_keras import global_policy
from scalekeeper_test_support.repository import load_script

pytestmark = pytest.mark.long


def test_what_is_measured(tmp_path):
    """The file has times of every step, of two models whose losses fall, and becomes a line of docs/performance.md.

    The dtype policy is as it was.
    """
    before = global_policy().name
    path = tmp_path / "gpu.json"
    gpu.main(["--tiny", "--output", str(path)])
    with open(str(path), encoding="utf-8") as stream:
        measured = json.load(stream)
    assert measured["environment"]["tensorflow"] == tf.__version__
    rows = [(row["set"], row["optimizer"]) for row in measured["steps"]]
    assert rows == [(name, inner) for name in ("many", "mix", "big") for inner in ("SGD", "Adam")]
    assert all(row[who] > 0 for row in measured["steps"] for who in ("bare", "own", "ours"))
    assert [row["model"] for row in measured["fit"]] == ["convolutional", "transformer"]
    for row in measured["fit"]:
        assert row["loss_scale"] == 2.0**15
        assert row["losses"] == sorted(row["losses"], reverse=True)
        assert np.isfinite(row["losses"]).all()
    assert measured["replicas"] == {"replicas": 0}
    line = load_script("benchmarks/render.py").gpu_reports_table([measured]).splitlines()[2]
    assert line.startswith(f"| none | {tf.__version__}, Keras ")
    assert global_policy().name == before == "float32"
