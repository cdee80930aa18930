"""What the tests of Keras share: a mixed_float16 policy that is always restored, and a model of one weight.

The one weight starts at 1, the input is 1 and the loss is the output times a number, so that number is the gradient.
With powers of two throughout, every expected weight is exact and can be checked by hand.
"""

from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

# The experimental API is what these tests hold the wrapper to: a Keras without it needs tests of its own.
if not (
    hasattr(getattr(getattr(tf.keras, "mixed_precision", None), "experimental", None), "LossScaleOptimizer")
    and hasattr(tf.train.experimental, "DynamicLossScale")
):
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(autouse=True)
def restored_policy():
    """The global policy of layers, put back whatever a test sets it to."""
    mixed_precision = tf.keras.mixed_precision.experimental
    before = mixed_precision.global_policy()
    yield
    mixed_precision.set_policy(before)


@pytest.fixture
def mixed_float16(restored_policy):
    """Layers compute in float16 and keep float32 weights, and `compile` wants a loss scale."""
    tf.keras.mixed_precision.experimental.set_policy("mixed_float16")


@pytest.fixture(params=[False, True], ids=["tf_function", "eager"])
def run_eagerly(request):
    """Keras's two ways to run a training step outside TF1 graph mode."""
    return request.param


class OneWeight(NamedTuple):
    """A model whose only weight starts at 1."""

    model: tf.keras.Model

    def compile(self, optimizer, gradient, run_eagerly=False):
        """Give the weight this gradient at every step: the loss is linear."""
        self.model.compile(
            optimizer,
            loss=lambda wanted, output: tf.cast(output, tf.float32) * gradient,
            run_eagerly=run_eagerly,
        )
        return self

    def fit(self, inputs=(1.0,), epochs=1, callbacks=(), **options):
        """Train one step for each input in each epoch; an input multiplies the gradient of its step."""
        inputs = np.array(inputs, np.float32).reshape(-1, 1)
        return self.model.fit(
            inputs, inputs, batch_size=1, epochs=epochs, callbacks=list(callbacks), shuffle=False, verbose=0, **options
        )

    @property
    def weight(self):
        return float(self.model.get_weights()[0].item())


@pytest.fixture
def one_weight():
    """Make a model of one weight under the policy that is set by then."""

    def make(**layer_options):
        layer = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", input_shape=(1,), **layer_options)
        return OneWeight(tf.keras.Sequential([layer]))

    return make
