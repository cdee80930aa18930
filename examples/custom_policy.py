"""Define a loss-scale policy, register it under a name and use it from a YAML file.

python examples/custom_policy.py  # TensorFlow 2.0 to 2.21
"""

import os

import numpy as np
import tensorflow as tf

import scalekeeper


@scalekeeper.register("patient")
class PatientLossScale(scalekeeper.LossScale):
    """Backs off only at the second bad step in a row, never below 1, and never grows."""

    class Params(scalekeeper.LossScaleParams):
        start: float = 1024.0

    def initial_state(self):
        return {"current_loss_scale": np.float32(self.params.start), "bad_steps": np.int64(0)}

    def next_state(self, state, report, ops):
        bad_steps = ops.where(report.finite, ops.int64(0), state["bad_steps"] + ops.int64(1))
        is_due = bad_steps >= ops.int64(2)
        scale = state["current_loss_scale"]
        return {
            "current_loss_scale": ops.where(is_due, ops.maximum(scale * ops.float32(0.5), ops.float32(1)), scale),
            "bad_steps": ops.where(is_due, ops.int64(0), bad_steps),
        }


optimizer = scalekeeper.build(os.path.join(os.path.dirname(os.path.abspath(__file__)), "patient.yaml"))
variable = tf.Variable(1.0)


@tf.function
def step(gradient):
    with tf.GradientTape() as tape:
        loss = optimizer.get_scaled_loss(gradient * variable)
    optimizer.apply_gradients(zip(optimizer.get_unscaled_gradients(tape.gradient(loss, [variable])), [variable]))


for gradient in (1.0, np.nan, 1.0, np.inf, np.nan, 1.0):
    step(tf.constant(gradient, tf.float32))
    print(f"gradient {gradient:4}: variable {variable.numpy():.3f}, {optimizer.loss_scale.state()}")
