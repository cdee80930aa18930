"""check_inner_optimizer without TensorFlow: what it takes, and that its checks have sentences."""

import re
import subprocess
import sys

import pytest

from scalekeeper import InvalidSpecError
from scalekeeper.testing import INNER_OPTIMIZER_CHECKS, check_inner_optimizer, inner_optimizer_checks


class Optimizer:
    """An object that looks like an optimizer."""

    def apply_gradients(self, grads_and_vars):
        """Do nothing."""


def test_every_check_has_a_sentence():
    """One line, which says what must hold."""
    for check in INNER_OPTIMIZER_CHECKS:
        assert re.fullmatch(r"[^\n]{30,130}\.", check.sentence), check
        assert check.needs_tensorflow
    assert len({check.name for check in INNER_OPTIMIZER_CHECKS}) == len(INNER_OPTIMIZER_CHECKS)


@pytest.mark.parametrize("given", [Optimizer(), "adam", 3, None], ids=["object", "name", "number", "none"])
def test_an_optimizer_or_a_name_is_refused(given):
    """The error says to pass a function."""
    with pytest.raises(InvalidSpecError, match="expected a function that returns a new optimizer .*lambda"):
        check_inner_optimizer(given)
    with pytest.raises(InvalidSpecError, match="lambda"):
        inner_optimizer_checks(given)


def test_an_unknown_check_is_refused():
    """With what was perhaps meant; the checks of policies are not among them."""
    with pytest.raises(InvalidSpecError, match="unknown check 'iteration'; did you mean 'iterations'"):
        check_inner_optimizer(Optimizer, leave_out=["iteration"])
    with pytest.raises(InvalidSpecError, match="unknown check 'bounds'"):
        inner_optimizer_checks(Optimizer, leave_out="bounds")


def test_without_tensorflow_no_check_is_run():
    """Every outcome says why, and nothing counts as passed."""
    code = (
        "import sys; sys.modules['tensorflow'] = None\n"
        "from scalekeeper.testing import check_inner_optimizer\n"
        "report = check_inner_optimizer(lambda: None)\n"
        "assert not report.passed and not report.failed, report\n"
        "assert {each.message[:16] for each in report.not_run} == {'needs TensorFlow'}, report\n"
        "print(report.policy)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "inner optimizer"
