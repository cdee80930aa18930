"""Every example in a docstring does what it shows."""

import doctest
import importlib
import os
import pkgutil

import pytest

import scalekeeper
from scalekeeper.registry import loss_scales

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(scalekeeper.__path__, "scalekeeper.")
    if not module.name.endswith("__main__") and not module.name.startswith("scalekeeper.optimizer.")
)
WITH_EXAMPLES = {
    "scalekeeper.serialization.keras.target",
    "scalekeeper.lossscales.adaptive_window",
    "scalekeeper.lossscales.contract",
    "scalekeeper.lossscales.dynamic",
    "scalekeeper.lossscales.fixed",
    "scalekeeper.lossscales.log_max",
    "scalekeeper.lossscales.none",
    "scalekeeper.lossscales._numpy_state",
    "scalekeeper.lossscales.scheduled",
    "scalekeeper.lossscales.tolerant",
    "scalekeeper.registry._documents",
    "scalekeeper.registry._schema",
    "scalekeeper.registry._plugins",
    "scalekeeper.registry._targets",
    "scalekeeper.serialization._variable_order",
    "scalekeeper.serialization.keras._changed_meanings",
    "scalekeeper.serialization.keras._optimizer_config",
    "scalekeeper.serialization.keras.profile",
    "scalekeeper.simulation._recommendation",
    "scalekeeper.simulation._simulator",
    "scalekeeper.simulation._sweep",
    "scalekeeper.simulation._synthetic_traces",
    "scalekeeper.simulation._trace_writer",
    "scalekeeper.simulation._traces",
    "scalekeeper.testing._check_runner",
}


@pytest.fixture(autouse=True)
def _in_the_root(monkeypatch):
    """Examples name files of the checkout, and what they register is gone afterwards."""
    monkeypatch.chdir(ROOT)
    assert "dynamic" in loss_scales.names()  # the built-in ones are registered before the copy is made
    monkeypatch.setattr(loss_scales, "_names", dict(loss_scales._names))


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    """The examples of a module pass, and it has some where it should."""
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0
    assert (result.attempted > 0) is (name in WITH_EXAMPLES)
