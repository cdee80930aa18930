"""A fit with our wrapper leaves the same bits as one with TensorFlow's own class."""

import numpy as np
import pytest
import tensorflow as tf

from scalekeeper.optimizer import LossScaleOptimizer
from scalekeeper_test_support.installed_keras import (
    HAS_LOSS_SCALE_OBJECTS,
    OPTIMIZERS,
    UPSTREAM,
    InexpressibleError,
    global_policy,
    inner_of,
    layer_policy,
    number,
    set_global_policy,
    state_of,
    upstream,
    variables_of,
)

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("mixed_float16")]

INNER = {
    "sgd": lambda optimizers: optimizers.SGD(0.05),
    "momentum": lambda optimizers: optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    "adam": lambda optimizers: optimizers.Adam(0.01),
    "rmsprop": lambda optimizers: optimizers.RMSprop(0.01),
}
KINDS_AND_INNER = [("default", inner) for inner in sorted(INNER)]
if "legacy" in OPTIMIZERS:
    KINDS_AND_INNER += [("legacy", "adam"), ("legacy", "momentum")]
# it starts where the gradients overflow, so that steps are skipped, and its short period makes it grow again
DYNAMIC = {"initial_loss_scale": 2.0**24, "increment_period": 3, "multiplier": 2.0}
FIXED = 128.0
THEIR_POLICIES = getattr(tf, "mixed_precision", tf.train).experimental


def theirs_with(inner, policy):
    if policy == "dynamic":
        return upstream(inner, DYNAMIC)
    try:
        return upstream(inner, FIXED)
    except InexpressibleError:
        # a dynamic scale that never gets to grow is a fixed one, as these data do not overflow with it
        return upstream(inner, {"initial_loss_scale": FIXED, "increment_period": 10**6})


def our_policy(name):
    return FIXED if name == "fixed" else {"name": "dynamic", **DYNAMIC}


def fitted(optimizer, run_eagerly, **layer_options):
    """Everything that three epochs leave behind: losses, weights, optimizer weights, iterations."""
    policy = global_policy()
    tf.keras.backend.clear_session()
    set_global_policy(policy)  # which Keras 3 clears too
    tf.random.set_seed(1)
    random = np.random.RandomState(1)
    inputs = random.normal(size=(16, 3)).astype(np.float32)
    targets = random.normal(size=(16, 1)).astype(np.float32)
    layers = [
        tf.keras.layers.Dense(4, activation="tanh", input_shape=(3,), **layer_options),
        tf.keras.layers.Dense(1, **layer_options),
        tf.keras.layers.Activation("linear", dtype="float32"),
    ]
    model = tf.keras.Sequential(layers)
    # the initial weights by hand, as an optimizer may use up random seeds of its own
    model.set_weights([random.normal(size=weight.shape) for weight in model.get_weights()])
    model.compile(optimizer, loss="mse", run_eagerly=run_eagerly)
    history = model.fit(inputs, targets, batch_size=4, epochs=3, shuffle=False, verbose=0).history
    assert model.optimizer is optimizer
    inner = inner_of(optimizer) if isinstance(optimizer, UPSTREAM) else optimizer
    return {
        "loss": history["loss"],
        "weights": model.get_weights(),
        "optimizer weights": [np.asarray(variable.numpy()) for variable in variables_of(inner)],
        "iterations": number(optimizer.iterations),
    }


@pytest.mark.parametrize("policy", ["fixed", "dynamic"])
@pytest.mark.parametrize(("kind", "inner"), KINDS_AND_INNER)
def test_fit_equals_tensorflow_s_own_class(kind, inner, policy, run_eagerly):
    """Three epochs with the same data leave equal losses, weights, slots, scale and iterations, bit for bit."""

    def made():
        return INNER[inner](OPTIMIZERS[kind])

    their_optimizer = theirs_with(made(), policy)
    our_optimizer = LossScaleOptimizer(made(), our_policy(policy))
    theirs, ours = fitted(their_optimizer, run_eagerly), fitted(our_optimizer, run_eagerly)
    np.testing.assert_equal(ours, theirs)
    assert len(ours["optimizer weights"]) >= 1
    assert np.isfinite(ours["loss"]).all()
    if policy == "dynamic":
        assert state_of(our_optimizer) == state_of(their_optimizer)
        scale = state_of(our_optimizer)["current_loss_scale"]
        assert scale < DYNAMIC["initial_loss_scale"], "no step was skipped: the data do not test anything"
    else:
        assert state_of(our_optimizer)["current_loss_scale"] == FIXED


@pytest.mark.skipif(not hasattr(THEIR_POLICIES, "DynamicLossScale"), reason="this TensorFlow has no LossScale objects")
@pytest.mark.parametrize("policy", ["fixed", "dynamic"])
def test_tensorflow_s_own_policy_inside_our_class(policy):
    """A LossScale object of TensorFlow's inside our wrapper gives the same bits as inside its own."""

    def made():
        return INNER["adam"](tf.keras.optimizers)

    is_fixed = policy == "fixed"
    their_policy = THEIR_POLICIES.FixedLossScale(FIXED) if is_fixed else THEIR_POLICIES.DynamicLossScale(**DYNAMIC)
    our_optimizer = LossScaleOptimizer(made(), their_policy)
    their_optimizer = theirs_with(made(), policy)
    np.testing.assert_equal(fitted(our_optimizer, False), fitted(their_optimizer, False))
    assert number(our_optimizer.loss_scale()) == state_of(their_optimizer)["current_loss_scale"]


@pytest.mark.parametrize(("kind", "inner"), KINDS_AND_INNER)
def test_a_scale_of_one_equals_the_bare_optimizer(kind, inner, run_eagerly):
    """With a fixed scale of 1 the wrapper adds nothing: fit gives the bits of the inner optimizer alone."""
    # `compile` wraps a bare optimizer by the policy of the model, not of its layers; up to 2.3, by that of any of them
    set_global_policy("float32")
    options = {"loss_scale": None} if HAS_LOSS_SCALE_OBJECTS else {}
    policy = layer_policy("mixed_float16", **options)
    bare = fitted(INNER[inner](OPTIMIZERS[kind]), run_eagerly, dtype=policy)
    ours = fitted(LossScaleOptimizer(INNER[inner](OPTIMIZERS[kind]), 1), run_eagerly, dtype=policy)
    np.testing.assert_equal(ours, bare)
