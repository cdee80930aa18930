"""Fixtures of the optimizer's tests: a mixed_float16 dtype policy that is always restored, and a model of one weight.

The one weight starts at 1, the input is 1 and the loss is the output times a number, so that number is the gradient.
With powers of two throughout, every expected weight is exact and can be checked by hand.
"""

from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from scalekeeper_test_support.installed_keras import OPTIMIZERS, global_policy, set_global_policy


@pytest.fixture(autouse=True)
def restored_policy():
    """Restore the global dtype policy after each test."""
    before = global_policy()
    yield
    set_global_policy(before)


@pytest.fixture
def mixed_float16(restored_policy):
    """Make layers compute in float16 with float32 weights."""
    set_global_policy("mixed_float16")


@pytest.fixture(params=[False, True], ids=["tf_function", "eager"])
def run_eagerly(request):
    """Run a training step traced and eagerly."""
    return request.param


@pytest.fixture(params=sorted(OPTIMIZERS))
def optimizers(request):
    """Each module of optimizers that the installed Keras has."""
    return OPTIMIZERS[request.param]


class OneWeight(NamedTuple):
    """A model whose only weight starts at 1."""

    model: tf.keras.Model

    def compile(self, optimizer, gradient, run_eagerly=False, **options):
        """Give the weight this gradient at every step: the loss is linear."""

        def linear(wanted, output):
            return tf.cast(output, tf.float32) * gradient

        self.model.compile(optimizer, loss=linear, run_eagerly=run_eagerly, **options)
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
    """Return a function that creates a model of one weight under the current dtype policy."""

    def make(**layer_options):
        layer = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", input_shape=(1,), **layer_options)
        return OneWeight(tf.keras.Sequential([layer]))

    return make
