"""A fit with our wrapper leaves the same bits as one with TensorFlow's own class."""

import numpy as np
import pytest
import tensorflow as tf

from scalekeeper.optimizer import LossScaleOptimizer

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("mixed_float16")]

INNER = {
    "sgd": lambda: tf.keras.optimizers.SGD(0.05),
    "momentum": lambda: tf.keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    "adam": lambda: tf.keras.optimizers.Adam(0.01),
    "rmsprop": lambda: tf.keras.optimizers.RMSprop(0.01),
}
# it starts where the gradients overflow, so that steps are skipped, and its short period makes it grow again
DYNAMIC = {"initial_loss_scale": 2.0**24, "increment_period": 3, "multiplier": 2.0}


def their_policy(name):
    policies = getattr(tf, "mixed_precision", tf.train).experimental
    return policies.FixedLossScale(128.0) if name == "fixed" else policies.DynamicLossScale(**DYNAMIC)


def our_policy(name):
    return 128.0 if name == "fixed" else {"name": "dynamic", **DYNAMIC}


def fitted(optimizer, run_eagerly):
    """Everything that three epochs leave behind: losses, weights, optimizer weights, scale, iterations."""
    tf.keras.backend.clear_session()
    tf.random.set_seed(1)
    random = np.random.RandomState(1)
    inputs = random.normal(size=(16, 3)).astype(np.float32)
    targets = random.normal(size=(16, 1)).astype(np.float32)
    layers = [
        tf.keras.layers.Dense(4, activation="tanh", input_shape=(3,)),
        tf.keras.layers.Dense(1),
        tf.keras.layers.Activation("linear", dtype="float32"),
    ]
    model = tf.keras.Sequential(layers)
    # the initial weights by hand, as an optimizer may use up random seeds of its own
    model.set_weights([random.normal(size=weight.shape) for weight in model.get_weights()])
    model.compile(optimizer, loss="mse", run_eagerly=run_eagerly)
    history = model.fit(inputs, targets, batch_size=4, epochs=3, shuffle=False, verbose=0).history
    read = tf.keras.backend.get_value
    return {
        "loss": history["loss"],
        "weights": model.get_weights(),
        "optimizer weights": optimizer.get_weights(),
        "scale": float(read(optimizer.loss_scale())),
        "iterations": int(read(optimizer.iterations)),
    }


@pytest.mark.parametrize("policy", ["fixed", "dynamic"])
@pytest.mark.parametrize("inner", sorted(INNER))
def test_fit_equals_tensorflow_s_own_class(inner, policy, run_eagerly):
    """Three epochs with the same data leave equal losses, weights, slots, scale and iterations, bit for bit."""
    theirs_class = tf.keras.mixed_precision.experimental.LossScaleOptimizer
    theirs = fitted(theirs_class(INNER[inner](), their_policy(policy)), run_eagerly)
    ours = fitted(LossScaleOptimizer(INNER[inner](), our_policy(policy)), run_eagerly)
    np.testing.assert_equal(ours, theirs)
    assert len(ours["optimizer weights"]) >= 1
    assert np.isfinite(ours["loss"]).all()
    if policy == "dynamic":
        assert ours["scale"] < DYNAMIC["initial_loss_scale"], "no step was skipped: the data do not test anything"


@pytest.mark.parametrize("policy", ["fixed", "dynamic"])
def test_tensorflow_s_own_policy_inside_our_class(policy):
    """A LossScale object of TensorFlow's inside our wrapper gives the same bits as inside its own."""
    theirs_class = tf.keras.mixed_precision.experimental.LossScaleOptimizer
    theirs = fitted(theirs_class(INNER["adam"](), their_policy(policy)), False)
    ours = fitted(LossScaleOptimizer(INNER["adam"](), their_policy(policy)), False)
    np.testing.assert_equal(ours, theirs)


@pytest.mark.parametrize("inner", sorted(INNER))
def test_a_scale_of_one_equals_the_bare_optimizer(inner, run_eagerly):
    """With a fixed scale of 1 the wrapper adds nothing: fit gives the bits of the inner optimizer alone."""
    bare_policy = tf.keras.mixed_precision.experimental.Policy("mixed_float16", loss_scale=None)
    tf.keras.mixed_precision.experimental.set_policy(bare_policy)

    class Bare(type(INNER[inner]())):
        def loss_scale(self):
            return tf.constant(1.0)

    bare = fitted(Bare.from_config(INNER[inner]().get_config()), run_eagerly)
    ours = fitted(LossScaleOptimizer(INNER[inner](), 1), run_eagerly)
    np.testing.assert_equal(ours, bare)
