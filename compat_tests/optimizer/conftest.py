"""What the tests of Keras share: a mixed_float16 policy that is always restored, and a model of one weight.

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
    """The global policy of layers, put back whatever a test sets it to."""
    before = global_policy()
    yield
    set_global_policy(before)


@pytest.fixture
def mixed_float16(restored_policy):
    """Layers compute in float16 and keep float32 weights, and `compile` wants a loss scale."""
    set_global_policy("mixed_float16")


@pytest.fixture(params=[False, True], ids=["tf_function", "eager"])
def run_eagerly(request):
    """Keras's two ways to run a training step outside TF1 graph mode."""
    return request.param


@pytest.fixture(params=sorted(OPTIMIZERS))
def optimizers(request):
    """Keras's optimizers, of each kind that it has."""
    return OPTIMIZERS[request.param]


class OneWeight(NamedTuple):
    """A model whose only weight starts at 1."""

    model: tf.keras.Model

    def compile(self, optimizer, gradient, run_eagerly=False, **options):
        """Give the weight this gradient at every step: the loss is linear."""
        self.model.compile(
            optimizer,
            loss=lambda wanted, output: tf.cast(output, tf.float32) * gradient,
            run_eagerly=run_eagerly,
            **options,
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
