"""Every example of docs/reference/ that needs TensorFlow does what it shows."""

import pytest

from scalekeeper_test_support.reference_examples import examples, failures, folder_with_examples

pytestmark = pytest.mark.slow("py38-tf23", "py313-tf221-keras3")


@pytest.mark.parametrize("name", [name for name, (_, needs_tensorflow) in examples().items() if needs_tensorflow])
def test_example(name, tmp_path):
    """It needs nothing but what it imports, and a folder with `examples/`."""
    with folder_with_examples(str(tmp_path)):
        assert failures(name, examples()[name][0]) == ""
