"""The ``repr`` of an optimizer."""

import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper_test_support.installed_keras import COUNTS_SKIPPED_STEPS, OPTIMIZERS


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
def test_policy_and_state_are_shown(kind):
    """The inner optimizer, what the policy was told, and where it is, before and after a skipped step."""
    optimizer = scalekeeper.LossScaleOptimizer(OPTIMIZERS[kind].Adam(0.1), {"name": "dynamic", "maximum": 2.0**20})
    policy = "DynamicLossScale(initial_loss_scale=32768.0, increment_period=2000, multiplier=2.0, maximum=1048576.0)"
    beginning = f"LossScaleOptimizer(Adam, {policy}, iterations=0, current_loss_scale=32768.0, good_steps=0)"
    assert repr(optimizer) == str(optimizer) == beginning
    optimizer.apply_gradients([(tf.constant(float("nan")), tf.Variable(1.0))])
    count = 1 if COUNTS_SKIPPED_STEPS else 0
    assert repr(optimizer) == (
        f"LossScaleOptimizer(Adam, {policy}, iterations={count}, current_loss_scale=16384.0, good_steps=0)"
    )


def test_a_fixed_scale_has_no_state():
    """Its value is a parameter."""
    optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1), 128)
    assert repr(optimizer) == "LossScaleOptimizer(SGD, FixedLossScale(loss_scale_value=128.0), iterations=0)"


def test_looking_makes_no_variable():
    """``repr`` does not create ``iterations``, which TensorFlow up to 2.10 creates on first use."""
    optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1), 128)
    before = getattr(optimizer.inner_optimizer, "_iterations", None)
    repr(optimizer)
    assert getattr(optimizer.inner_optimizer, "_iterations", None) is before


def test_a_step_that_is_being_traced_may_look():
    """The state is that of the time of tracing."""
    optimizer, variable, seen = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1), 128), tf.Variable(1.0), []

    @tf.function
    def step():
        optimizer.apply_gradients([(tf.constant(1.0), variable)])
        seen.append(repr(optimizer))

    step()
    assert set(seen) == {"LossScaleOptimizer(SGD, FixedLossScale(loss_scale_value=128.0), iterations=0)"}


class Failing(scalekeeper.LossScaleOptimizer):
    """Keeps what was made of it when its constructor ends with an error."""

    kept = None

    def __init__(self, *args, **kwargs):
        Failing.kept = self
        super().__init__(*args, **kwargs)


def test_one_that_was_not_made_can_be_printed():
    """In a traceback with values, for one."""
    with pytest.raises(ValueError, match="skipped_steps"):
        Failing(tf.keras.optimizers.SGD(0.1), 128, "sometimes")
    assert repr(Failing.kept) == "<Failing that was not made>"
