"""The picture of a diagnosis."""

import numpy as np
import pytest

from scalekeeper import ArgumentError
from scalekeeper.diagnosis._magnitudes import Magnitudes
from scalekeeper.diagnosis._plot import _LOWEST, shares
from scalekeeper.diagnosis._recording import ACTIVATIONS, LayerRecord, RunRecord, ScaleFacts
from scalekeeper.diagnosis._result import diagnosis_of


def diagnosis(number=2):
    run = RunRecord()
    for index in range(number):
        layer = LayerRecord(f"_layer$_{index}", "Dense", True, "float16", "float32")
        layer.counted(ACTIVATIONS).observe(np.ones(3, np.float32))
        run.layers[layer.path] = layer
    run.batches, run.largest_gradients = 1, [0.1]
    return diagnosis_of(run, None, (), ScaleFacts(), None, ())


def test_columns():
    """Each column has the share of one power of two; what is beyond the edges counts for them."""
    counted = Magnitudes()
    counted.observe(np.array([1.5, 1.5, 3.0, 2.0**-60], np.float32))
    found = shares(counted.spread(), 4.0)
    assert (found[2 - _LOWEST], found[3 - _LOWEST], found[0]) == (0.5, 0.25, 0.25)
    assert sum(found) == 1


@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_file(tmp_path, ending, start):
    """A PNG or SVG file is written, whatever characters the names have."""
    diagnosis().plot(tmp_path / f"picture.{ending}")
    assert (tmp_path / f"picture.{ending}").read_bytes().startswith(start)


def test_no_layers(tmp_path):
    """A diagnosis without figures has a picture too."""
    diagnosis(0).plot(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 0


def test_other_endings(tmp_path):
    """They are an error before anything is written."""
    with pytest.raises(ArgumentError):
        diagnosis().plot(tmp_path / "picture.pdf")
    assert list(tmp_path.iterdir()) == []
