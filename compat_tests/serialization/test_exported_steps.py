"""A training step in a SavedModel, with the optimizer inside."""

import numpy as np
import tensorflow as tf

from scalekeeper import LossScaleOptimizer
from scalekeeper_test_support.installed_keras import OPTIMIZERS


class Trained(tf.Module):
    """One variable, its optimizer, and the step."""

    def __init__(self, optimizer):
        super().__init__()
        self.variable = tf.Variable([1.0, 2.0])
        self.optimizer = optimizer
        self.optimizer.apply_gradients([(tf.zeros(2), self.variable)])

    @tf.function(input_signature=[tf.TensorSpec([2])])
    def step(self, gradient):
        self.optimizer.apply_gradients([(gradient, self.variable)])
        return tf.identity(self.variable)


def test_a_step_can_be_exported(tmp_path):
    """All that it uses is in the file: it trains on, and skips a non-finite step."""
    for kind, optimizers in OPTIMIZERS.items():
        path = str(tmp_path / kind)
        tf.saved_model.save(Trained(LossScaleOptimizer(optimizers.SGD(0.5))), path)
        loaded = tf.saved_model.load(path)
        np.testing.assert_allclose(loaded.step(tf.constant([1.0, 1.0])).numpy(), [0.5, 1.5])
        np.testing.assert_allclose(loaded.step(tf.constant([np.nan, 1.0])).numpy(), [0.5, 1.5])
