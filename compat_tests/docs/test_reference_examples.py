"""docs/reference/: every example that needs TensorFlow does what it shows, and the optimizer is as described."""

import inspect

import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper_test_support.reference_examples import examples, failures, folder_with_examples
from scalekeeper_test_support.repository import load_script

pytestmark = pytest.mark.slow("py38-tf23", "py313-tf221-keras3")


@pytest.mark.parametrize("name", [name for name, (_, needs_tensorflow) in examples().items() if needs_tensorflow])
def test_example(name, tmp_path):
    """It needs nothing but what it imports, and a folder with `examples/`."""
    with folder_with_examples(str(tmp_path)):
        assert failures(name, examples()[name][0]) == ""


def test_the_signature_of_the_optimizer():
    """`help` shows the parameters that are documented, also of the class that a call returns and of a subclass."""

    class Patient(scalekeeper.LossScaleOptimizer):
        def __init__(self, optimizer, patience=1, **options):
            super().__init__(optimizer, **options)

    entry = load_script("docs/making/reference.py").entries()["LossScaleOptimizer"]
    documented = [name for name, _ in entry.definition.docstring.sections["Args"]]
    optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1))
    for cls in (scalekeeper.LossScaleOptimizer, type(optimizer)):
        assert list(inspect.signature(cls).parameters) == documented
    assert inspect.signature(scalekeeper.LossScaleOptimizer).parameters["loss_scale"].default == "dynamic"
    assert list(inspect.signature(Patient).parameters) == ["optimizer", "patience", "options"]


def test_the_optimizer_has_the_members_of_the_page():
    """Those that the page gives no versions for exist on every version."""
    entry = load_script("docs/making/reference.py").entries()["LossScaleOptimizer"]
    optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1))
    names = {member.node.name for member, versions in entry.members if not versions}
    names |= {name for name, _ in entry.definition.docstring.sections["Attributes"]}
    assert {name for name in names if not hasattr(type(optimizer), name) and not hasattr(optimizer, name)} == set()
