"""Applying gradients without scaling the loss, or without unscaling the gradients, gives one warning."""

import warnings

import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper_test_support.installed_keras import IS_KERAS_3


def warned(run, is_traced=False):
    """Which methods each warning names."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    found = [each for each in caught if each.category is scalekeeper.ForgottenScalingWarning]
    assert all(each.filename == __file__ for each in found) or is_traced  # where AutoGraph has written the code
    return [str(each.message).split(" so ")[0].split("without ")[1].strip(",") for each in found]


@pytest.fixture
def optimizer(optimizers):
    return scalekeeper.LossScaleOptimizer(optimizers.SGD(1.0), scalekeeper.DynamicLossScale(8.0))


def steps(optimizer, scales, unscales):
    """Train as a program does that calls some of the methods."""
    variable = tf.Variable(1.0)
    for _ in range(3):
        with tf.GradientTape() as tape:
            loss = variable * 2.0
            loss = optimizer.get_scaled_loss(loss) if scales else loss
        grads = tape.gradient(loss, [variable])
        optimizer.apply_gradients(zip(optimizer.get_unscaled_gradients(grads) if unscales else grads, [variable]))


@pytest.mark.parametrize(
    ("scales", "unscales", "message"),
    [
        (False, False, ["get_scaled_loss and get_unscaled_gradients"]),
        (False, True, ["get_scaled_loss"]),
        (True, False, ["get_unscaled_gradients"]),
        (True, True, []),
    ],
)
def test_a_loop_is_warned_once_of_what_it_forgets(optimizer, scales, unscales, message):
    """The warning names the methods that were not called, at the line that applies the gradients, and comes once."""
    assert warned(lambda: steps(optimizer, scales, unscales)) == message


def test_a_traced_loop_is_warned_too(optimizer):
    """A tf.function is warned while it is traced."""
    variable = tf.Variable(1.0)

    @tf.function
    def step():
        optimizer.apply_gradients([(tf.constant(1.0), variable)])

    def run():
        step()
        step()

    assert warned(run, is_traced=True) == ["get_scaled_loss and get_unscaled_gradients"]


def test_a_program_that_scales_with_the_loss_scale_is_not_warned(optimizer):
    """Multiplying by ``loss_scale``, or by its call, and dividing by it is as good as the methods."""

    def by_hand():
        variable = tf.Variable(1.0)
        with tf.GradientTape() as tape:
            loss = variable * 2.0 * optimizer.loss_scale
        optimizer.apply_gradients([(tape.gradient(loss, variable) / optimizer.loss_scale, variable)])

    assert warned(by_hand) == []


def test_a_program_that_holds_the_policy_is_not_warned(optimizers):
    """The policy that was given to the optimizer can be asked for the scale as well."""
    policy = scalekeeper.DynamicLossScale(8.0)
    optimizer, variable = scalekeeper.LossScaleOptimizer(optimizers.SGD(1.0), policy), tf.Variable(1.0)

    def by_hand():
        gradient = tf.constant(1.0) * policy() / policy()
        optimizer.apply_gradients([(gradient, variable)])

    assert warned(by_hand) == []


def test_what_scales_by_itself_is_not_warned(optimizer, one_weight, optimizers):
    """``minimize`` and ``fit`` scale and unscale, and a loss scale of 1 has nothing to forget."""
    variable = tf.Variable(1.0)
    assert warned(lambda: optimizer.minimize(lambda: variable * 2.0, [variable])) == []
    fitted = scalekeeper.LossScaleOptimizer(optimizers.SGD(1.0), scalekeeper.DynamicLossScale(8.0))
    assert warned(lambda: one_weight().compile(fitted, 1.0).fit()) == []
    for loss_scale in ("none", 1.0):
        without = scalekeeper.LossScaleOptimizer(optimizers.SGD(1.0), loss_scale)
        assert warned(lambda without=without: steps(without, False, False)) == []


def test_reading_the_telemetry_does_not_count_as_scaling(optimizer):
    """Looking at the optimizer does not suppress the warning."""
    assert optimizer.telemetry.loss_scale == 8.0
    assert "8.0" in repr(optimizer)
    assert optimizer.loss_scale.state()["current_loss_scale"] == 8.0
    assert warned(lambda: steps(optimizer, False, False)) == ["get_scaled_loss and get_unscaled_gradients"]


def test_a_class_of_the_user_that_computes_its_scale_is_not_warned(optimizers):
    """A policy with its own ``__call__`` is asked by the optimizer too, so nobody can tell whether the program asks."""

    class Eight(scalekeeper.LossScale):
        def __call__(self):
            return tf.constant(8.0)

        def update(self, grads):
            return tf.no_op(), True

    optimizer = scalekeeper.LossScaleOptimizer(optimizers.SGD(1.0), Eight())
    assert warned(lambda: steps(optimizer, False, False)) == []


@pytest.mark.skipif(not IS_KERAS_3, reason="only Keras 3 has scale_loss")
def test_keras_3_applies_scaled_gradients_without_a_warning(optimizers):
    """After ``scale_loss``, and with ``apply``, the gradients are scaled and the optimizer unscales them."""
    variable = tf.Variable(1.0)

    def apply_only():
        optimizer = scalekeeper.LossScaleOptimizer(optimizers.SGD(1.0))
        optimizer.apply([tf.constant(1.0)], [variable])
        optimizer.apply([tf.constant(1.0)], [variable])

    def scale_loss():
        optimizer = scalekeeper.LossScaleOptimizer(optimizers.SGD(1.0))
        optimizer.scale_loss(tf.constant(1.0))
        optimizer.apply_gradients([(tf.constant(1.0), variable)])

    assert warned(apply_only) == []
    assert warned(scale_loss) == []
