"""Policies that are not ours: with a pure step, in TensorFlow's style, and derived from TensorFlow's class."""

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper import LossScale
from scalekeeper.optimizer import LossScaleOptimizer
from scalekeeper_test_support.installed_keras import IS_KERAS_3, LOSS_SCALE_CLASSES, variables_of


class WithPureStep(LossScale):
    """Counts non-finite steps, and halves at each."""

    class Params(LossScale.Params):
        start: float = 64.0

    def initial_state(self):
        return {"current_loss_scale": np.float32(self.params.start), "overflows": np.int64(0)}

    def next_state(self, state, report, ops):
        scale, overflows = state["current_loss_scale"], state["overflows"]
        return {
            "current_loss_scale": ops.where(report.finite, scale, scale * ops.float32(0.5)),
            "overflows": ops.where(report.finite, overflows, overflows + ops.int64(1)),
        }


class InTensorFlowsStyle(LossScale):
    """The same with a variable of its own, __call__ and update."""

    def __init__(self, start=64.0):
        self.start = start
        self.current_loss_scale = tf.Variable(start, trainable=False)

    def __call__(self):
        return tf.convert_to_tensor(self.current_loss_scale)

    def update(self, grads):
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(grad)) for grad in grads])
        factor = tf.where(finite, 1.0, 0.5)
        return self.current_loss_scale.assign(self.current_loss_scale * factor), finite

    def get_config(self):
        return {"start": self.start}


class DerivedFromTensorFlows(LOSS_SCALE_CLASSES.LossScale):
    """The same, derived from TensorFlow's own class."""

    def __init__(self, start=64.0):
        super().__init__()
        self.start = start
        self.scale = self._add_weight("current_loss_scale", start)

    def __call__(self):
        return tf.convert_to_tensor(self.scale)

    def update(self, grads):
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(grad)) for grad in grads])
        return self.scale.assign(self.scale * tf.where(finite, 1.0, 0.5)), finite

    def get_config(self):
        return {"start": self.start}


CLASSES = [WithPureStep, InTensorFlowsStyle, DerivedFromTensorFlows]


@pytest.mark.parametrize("cls", CLASSES)
def test_registered_and_used_by_name(cls):
    """A good step is applied at the old scale, a bad one is skipped and halves it, in a graph."""
    with scalekeeper.temporary_registration("mine", cls):
        optimizer = LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), {"name": "mine", "start": 16.0})
    variable = tf.Variable(0.0)

    @tf.function
    def step(gradient):
        scaled = optimizer.get_scaled_loss(gradient)
        optimizer.apply_gradients(zip(optimizer.get_unscaled_gradients([scaled]), [variable]))

    observed = []
    for gradient in (1.0, np.inf, 2.0):
        step(tf.constant(gradient))
        observed.append((float(variable.numpy()), float(optimizer.loss_scale())))
    assert observed == [(-1.0, 16.0), (-1.0, 8.0), (-3.0, 8.0)]


@pytest.mark.parametrize("cls", CLASSES)
def test_its_state_is_in_a_checkpoint(cls, tmp_path):
    """A plain tf.train.Checkpoint saves and restores it."""

    def make():
        optimizer = LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), cls(start=16.0))
        return optimizer, tf.Variable(0.0)

    optimizer, variable = make()
    for gradient in (np.nan, np.nan, 1.0):
        optimizer.apply_gradients([(tf.constant(gradient), variable)])
    path = tf.train.Checkpoint(optimizer=optimizer, variable=variable).save(str(tmp_path / "checkpoint"))
    again, other = make()
    tf.train.Checkpoint(optimizer=again, variable=other).restore(path)
    assert (float(again.loss_scale()), float(other.numpy())) == (4.0, -1.0)
    if cls is WithPureStep:
        assert again.loss_scale.state() == {"current_loss_scale": 4.0, "overflows": 2}


@pytest.mark.parametrize("make_inner", [lambda: tf.keras.optimizers.SGD(0.5, momentum=0.5), tf.keras.optimizers.Adam])
def test_slots_are_in_a_checkpoint_once(make_inner, tmp_path):
    """A checkpoint of an optimizer with slots can be written, and brings iterations, slots and scale back."""

    def make():
        return LossScaleOptimizer(make_inner(), "dynamic"), tf.Variable([1.0, 2.0])

    optimizer, variable = make()
    for gradient in ([1.0, 3.0], [np.nan, 0.0], [2.0, 1.0]):
        optimizer.apply_gradients([(tf.constant(gradient), variable)])
    path = tf.train.Checkpoint(optimizer=optimizer, variable=variable).save(str(tmp_path / "checkpoint"))
    again, other = make()
    again.apply_gradients([(tf.constant([0.0, 0.0]), other)])
    tf.train.Checkpoint(optimizer=again, variable=other).restore(path)
    assert again.loss_scale.state() == optimizer.loss_scale.state() == {"current_loss_scale": 16384.0, "good_steps": 1}
    for expected, actual in zip(optimizer.get_weights(), again.get_weights()):
        np.testing.assert_array_equal(expected, actual)


@pytest.mark.parametrize("cls", CLASSES)
def test_its_configuration_comes_back(cls):
    """With custom_objects, as in TensorFlow."""
    optimizer = LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), cls(start=16.0))
    again = LossScaleOptimizer.from_config(optimizer.get_config(), custom_objects={cls.__name__: cls})
    assert (type(again.loss_scale), float(again.loss_scale())) == (cls, 16.0)


def test_an_unknown_class_says_what_to_do():
    """Without custom_objects: which are known, and both remedies."""
    config = LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), WithPureStep()).get_config()
    with pytest.raises(
        ValueError, match="unknown loss scale class 'WithPureStep'.*Register it, or pass custom_objects"
    ):
        LossScaleOptimizer.from_config(config)


def test_a_policy_object_goes_on_from_its_state():
    """A state that was loaded before the optimizer took the policy is not lost."""
    policy = scalekeeper.DynamicLossScale()
    policy.load_state({"current_loss_scale": 512.0, "good_steps": 7})
    optimizer = LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), policy)
    optimizer.apply_gradients([(tf.constant(1.0), tf.Variable(0.0))])
    assert policy.state() == {"current_loss_scale": 512.0, "good_steps": 8}
    policy.load_state({"current_loss_scale": 4.0, "good_steps": 0})
    assert float(optimizer.loss_scale()) == 4.0


def test_two_optimizers_with_one_policy():
    """They share the scale: what one of them meets, both know, and both save."""
    policy = scalekeeper.DynamicLossScale(initial_loss_scale=64)
    optimizers = [LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), policy) for _ in range(2)]
    variables = [tf.Variable(0.0), tf.Variable(0.0)]
    for gradient in (np.nan, 1.0):
        optimizers[0].apply_gradients([(tf.constant(gradient), variables[0])])
    optimizers[1].apply_gradients([(tf.constant(np.inf), variables[1])])
    assert [each.loss_scale.state() for each in optimizers] == [{"current_loss_scale": 16.0, "good_steps": 0}] * 2
    saved = [[float(each.numpy()) for each in variables_of(optimizer)] for optimizer in optimizers]
    assert [16.0 in values for values in saved] == [IS_KERAS_3] * 2  # only Keras 3 has the scale in its variables
