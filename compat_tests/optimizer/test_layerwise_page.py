"""The example of docs/layerwise.md: layers that scale the gradient as it flows back bring back what one scale loses."""

import os
import re
import runpy

import numpy as np
import pytest
import tensorflow as tf

from scalekeeper.optimizer import LossScaleOptimizer
from scalekeeper_test_support.installed_keras import global_policy, set_global_policy

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "layerwise.md")
# of each layer's weight and bias: each layer makes the gradient 2**14 times smaller, on the way back
TRUE = [2.0**-42] * 2 + [2.0**-28] * 2 + [2.0**-14] * 2 + [1.0] * 2
LARGEST = 2.0**15  # the scale that float16 holds for the last of them


@pytest.fixture
def halves():
    """Two times two float16 layers of one weight, 2**-14, and a bias, 1; each one's output is 1 in float16."""
    before = global_policy()
    set_global_policy("mixed_float16")
    options = {"kernel_initializer": tf.keras.initializers.Constant(2.0**-14), "bias_initializer": "ones"}
    made = [tf.keras.Sequential([tf.keras.layers.Dense(1, **options) for _ in range(2)]) for _ in range(2)]
    set_global_policy(before)
    return made


def compute_loss(outputs, targets):
    return tf.reduce_sum(tf.cast(outputs, tf.float32) - targets)


def with_one_scale(halves, scale):
    first, last = halves
    last(first(tf.ones((1, 1))))  # makes the variables
    variables = first.trainable_variables + last.trainable_variables
    with tf.GradientTape() as tape:
        loss = compute_loss(last(first(tf.ones((1, 1)))), tf.zeros((1, 1))) * scale
    return [each.numpy().item() / scale for each in tape.gradient(loss, variables)]


def test_one_scale_is_not_enough(halves):
    """With the largest that fits, the first layer's gradients are zero; with twice that, the last one's overflow."""
    assert with_one_scale(halves, LARGEST) == [0.0] * 2 + TRUE[2:]
    assert with_one_scale(halves, 2 * LARGEST)[-1] == np.inf


def example_with(halves, folder):
    """Return what the page's example defines, around these models; from a file, where AutoGraph finds its source."""
    with open(PAGE, encoding="utf-8") as stream:
        (example,) = re.findall("```python\n(.*?)```", stream.read(), flags=re.DOTALL)
    (folder / "example.py").write_text(example, encoding="utf-8")
    optimizer = LossScaleOptimizer(tf.keras.optimizers.SGD(2.0**42), LARGEST)
    given = {"first": halves[0], "last": halves[1], "optimizer": optimizer, "compute_loss": compute_loss}
    return runpy.run_path(str(folder / "example.py"), given)


def test_the_pages_example_brings_gradients_back(halves, tmp_path):
    """SGD with a learning rate of 2**42 moves the first layer's weight and bias by 1, and the rest as it should."""
    names = example_with(halves, tmp_path)
    assert float(names["step"](tf.ones((1, 1)), tf.zeros((1, 1)))) == 1.0
    after = [each.numpy().item() for each in names["model"].trainable_variables]
    moved = np.subtract([2.0**-14, 1.0] * 4, after)
    np.testing.assert_allclose(moved, [2.0**42 * gradient for gradient in TRUE], rtol=1e-6)


def test_the_pages_layer_survives_its_configuration(halves, tmp_path):
    """Name and factor come back from what it says of itself."""
    layer = example_with(halves, tmp_path)["ScaleGradient"](2.0**3, name="behind")
    again = type(layer).from_config(layer.get_config())
    assert (again.factor, again.name) == (8.0, "behind")
