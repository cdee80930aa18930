"""The checks as tests of pytest."""

import subprocess
import sys

import pytest

from scalekeeper import InvalidSpecError, LossScale
from scalekeeper.testing import CHECKS, loss_scale_checks

IN_TENSORFLOW = [check.name for check in CHECKS if check.needs_tensorflow]
TESTS = """
import sys

sys.modules["tensorflow"] = None

import numpy as np
import scalekeeper
from scalekeeper.testing import loss_scale_checks


@scalekeeper.register("patient")
class PatientLossScale(scalekeeper.LossScale):
    class Params(scalekeeper.LossScaleParams):
        start: float = 1024.0

    def initial_state(self):
        return {"current_loss_scale": np.float32(self.params.start)}

    def next_state(self, state, report, ops):
        scale = state["current_loss_scale"]
        return {"current_loss_scale": ops.where(report.finite, scale, scale * ops.float32(0.5))}


@loss_scale_checks(PatientLossScale, {"name": "patient", "start": 8})
def test_contract(check):
    check()
"""


@loss_scale_checks("dynamic", {"name": "dynamic", "hysteresis": 2}, leave_out=IN_TENSORFLOW)
def test_ours(check):
    """Ours pass; what is left out is skipped, and not green."""
    check()


def test_ids_failures_and_skips(tmp_path):
    """Ids that read well; one failure with its remedy; what needs TensorFlow is skipped with the reason."""
    path = tmp_path / "test_patient.py"
    path.write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-v", "-rs", "-p", "no:cacheprovider", str(path)]
    result = subprocess.run(command, stdout=subprocess.PIPE, cwd=str(tmp_path), text=True)
    assert "::test_contract[PatientLossScale-config_round_trip] PASSED" in result.stdout
    assert "::test_contract[patient(start=8)-state_round_trip] PASSED" in result.stdout
    assert "::test_contract[PatientLossScale-bounds] FAILED" in result.stdout
    (sentence,) = [check.sentence for check in CHECKS if check.name == "bounds"]
    assert f"BrokenContractError: PatientLossScale: {sentence}" in result.stdout
    assert "Put a floor under it, such as ops.maximum(scale, ops.float32(1))" in result.stdout
    assert "needs TensorFlow, which can't be imported" in result.stdout
    assert "2 failed, 18 passed, 18 skipped" in result.stdout


def test_a_class_with_required_parameters_is_refused_at_once():
    """When the tests are collected: one error, and not one for each check."""

    class Needy(LossScale):
        class Params(LossScale.Params):
            start: float

    with pytest.raises(InvalidSpecError, match="Needy has no default for start"):
        loss_scale_checks(Needy)
