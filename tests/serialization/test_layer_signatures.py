"""The table of layers of every TensorFlow."""

import pytest

from scalekeeper.registry._targets import known_targets
from scalekeeper.serialization.keras.target import layer_arguments


@pytest.mark.parametrize("target", known_targets(), ids=lambda target: target.name)
def test_every_target_is_in_it(target):
    """With the layers that all have, and their arguments."""
    accepted = layer_arguments(target)
    assert {"units", "activation", "use_bias", "name", "dtype"} <= {*accepted("Dense"), "name", "dtype"}
    assert "units" in accepted("Dense")
    assert "filters" in accepted("Conv2D")
    assert accepted("NoSuchLayer") is None


def test_what_came_and_went():
    """MultiHeadAttention came with 2.4; policies in the place of a dtype came with 2.1."""
    found = {target.name: layer_arguments(target) for target in known_targets()}
    assert [name for name in ("2.3", "2.4") if found[name]("MultiHeadAttention")] == ["2.4"]
    assert [name for name in ("2.0", "2.1", "2.21-keras3") if found[name]("Policy")] == ["2.1", "2.21-keras3"]
    assert "lora_rank" in found["2.21-keras3"]("Dense")
    assert "lora_rank" not in found["2.21-tf_keras"]("Dense")
