"""Copies of an optimizer: what they share with it, and what not."""

import copy
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper import LossScaleOptimizer, UnsupportedOperationError
from scalekeeper_test_support.installed_keras import OPTIMIZERS

NAN = float("nan")


class Derived(LossScaleOptimizer):
    """A class of the user's own."""


@pytest.fixture(params=sorted(OPTIMIZERS))
def optimizer(request):
    """SGD with momentum, of each kind that Keras has."""
    return LossScaleOptimizer(OPTIMIZERS[request.param].SGD(0.5, momentum=0.5), "dynamic", stop_after_skips=7)


@pytest.fixture
def variable():
    return tf.Variable([1.0, 2.0], name="v")


def step(optimizer, gradient, variable):
    optimizer.apply_gradients([(tf.constant([gradient, gradient]), variable)])


def test_a_deep_copy_goes_its_own_way(optimizer, variable):
    """Scale, slots and iterations of a copy are its own: a non-finite step of one leaves the other alone."""
    step(optimizer, 1.0, variable)
    twin = copy.deepcopy(optimizer)
    step(twin, NAN, variable)
    assert twin.loss_scale.state() == {"current_loss_scale": 16384.0, "good_steps": 0}
    assert optimizer.loss_scale.state() == {"current_loss_scale": 32768.0, "good_steps": 1}
    assert (twin.telemetry.skipped, optimizer.telemetry.skipped) == (1, 0)
    step(optimizer, 1.0, variable)
    momentum = [each.get_slot(variable, "momentum").numpy().tolist() for each in (twin, optimizer)]
    assert momentum == [[-0.5, -0.5], [-0.75, -0.75]]


class Halving(tf.keras.optimizers.schedules.LearningRateSchedule):
    """A schedule that Keras does not find by its name."""

    def __call__(self, step):
        return 0.5 ** tf.cast(step, "float32")

    def get_config(self):
        return {}


@pytest.mark.parametrize("make", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
def test_a_copy_has_the_schedule_of_the_user(kind, make, variable):
    """A copy goes on with a schedule of a class that is not registered with Keras."""
    twin = make(LossScaleOptimizer(OPTIMIZERS[kind].SGD(Halving()), "dynamic"))
    for gradient in (1.0, 1.0, 1.0):
        step(twin, gradient, variable)
    assert variable.numpy().tolist() == [1.0 - 1.75, 2.0 - 1.75]


def test_a_deep_copy_has_weights_at_once(optimizer, variable):
    """It is made for the variables of the one that it is copied from."""
    step(optimizer, 1.0, variable)
    for one, other in zip(optimizer.get_weights(), copy.deepcopy(optimizer).get_weights()):
        np.testing.assert_array_equal(one, other)


def test_a_shallow_copy_shares_everything(optimizer, variable):
    """As with any object."""
    step(optimizer, 1.0, variable)
    twin = copy.copy(optimizer)
    assert twin.inner_optimizer is optimizer.inner_optimizer
    step(twin, NAN, variable)
    assert optimizer.loss_scale.state() == {"current_loss_scale": 16384.0, "good_steps": 0}


def test_options_are_copied(optimizer):
    """Constructor arguments, and a custom class, are kept."""
    made = Derived(type(optimizer.inner_optimizer)(0.5), 64, "advance", watch=["zero_share"])
    for twin in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert isinstance(twin, Derived)
        assert twin.skipped_steps == "advance"
        assert twin.loss_scale.get_config() == {"loss_scale_value": 64.0}
        assert twin.telemetry.zero_share is not None
    assert pickle.loads(pickle.dumps(optimizer)).get_config()["stop_after_skips"] == 7


def test_optimizers_that_share_a_policy_share_the_copy(optimizer):
    """Copied together, they have one scale, as before; copied alone, each has its own."""
    pair = [optimizer, LossScaleOptimizer(type(optimizer.inner_optimizer)(1.0), optimizer.loss_scale)]
    for one, other in (copy.deepcopy(pair), pickle.loads(pickle.dumps(pair))):
        assert one.loss_scale is other.loss_scale
        assert one.loss_scale is not optimizer.loss_scale


def test_slots_wait_for_their_variables(optimizer):
    """A first step with some of the variables takes over their slots; the others are kept until theirs comes."""
    one, other = tf.Variable([1.0, 2.0], name="one"), tf.Variable([1.0, 2.0], name="other")
    optimizer.apply_gradients([(tf.constant([1.0, 1.0]), one), (tf.constant([4.0, 4.0]), other)])
    twin = pickle.loads(pickle.dumps(optimizer))
    if not hasattr(optimizer.inner_optimizer, "_create_slots"):  # others take all of their variables at once
        twin.build([one, other])
    step(twin, 0.0, one)
    assert twin.state_dict()["slots"]["other"]["momentum"].tolist() == [-2.0, -2.0]
    step(twin, 0.0, other)
    assert twin.get_slot(one, "momentum").numpy().tolist() == [-0.25, -0.25]
    assert twin.get_slot(other, "momentum").numpy().tolist() == [-1.0, -1.0]


def test_variables_of_another_model_are_refused(optimizer, variable):
    """Kept state is not dropped silently."""
    step(optimizer, 1.0, variable)
    twin = pickle.loads(pickle.dumps(optimizer))
    with pytest.raises(scalekeeper.InvalidSpecError, match="w: the copied optimizer has no such variable"):
        twin.apply_gradients([(tf.constant([[1.0]]), tf.Variable([[1.0]], name="w"))])


def test_another_state_takes_the_place_of_what_was_kept(optimizer, variable):
    """A state that is loaded before the first step wins."""
    step(optimizer, 1.0, variable)
    twin = pickle.loads(pickle.dumps(optimizer))
    state = optimizer.state_dict()
    state["slots"]["v"]["momentum"] = np.float32([8.0, 8.0])
    twin.load_state_dict(state, [variable])
    step(twin, 0.0, variable)
    assert twin.get_slot(variable, "momentum").numpy().tolist() == [4.0, 4.0]


@pytest.mark.slow
def test_a_copy_reaches_another_process(optimizer, variable, tmp_path):
    """Unpickled where nothing of scalekeeper was imported, it goes on."""
    step(optimizer, 1.0, variable)
    step(optimizer, NAN, variable)
    path = tmp_path / "optimizer.pickle"
    path.write_bytes(pickle.dumps(optimizer))
    lines = [
        "import pickle, sys",
        "optimizer = pickle.load(open(sys.argv[1], 'rb'))",
        "import tensorflow as tf",
        "variable = tf.Variable([1.0, 2.0], name='v')",
        "optimizer.apply_gradients([(tf.constant([0.0, 0.0]), variable)])",
        "print(variable.numpy().tolist(), optimizer.loss_scale.state())",
    ]
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", "\n".join(lines), str(path)],
        capture_output=True,
        env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3"),
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "[0.75, 1.75] {'current_loss_scale': 16384.0, 'good_steps': 1}"


class InTensorFlowsStyle(scalekeeper.LossScale):
    """Holds its state in a variable of its own."""

    def __init__(self, start=8.0):
        super().__init__()
        self.start = start
        self.current = tf.Variable(start, trainable=False)

    def __call__(self):
        return self.current.read_value()

    def update(self, grads):
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(grad)) for grad in grads])
        return self.current.assign(tf.where(finite, self.current * 2.0, self.current / 4.0)), finite

    def get_config(self):
        return {"start": self.start}


def test_a_policy_with_a_state_in_its_own_way(variable):
    """One in TensorFlow's own style is made anew of its configuration, and its variables get their values."""
    optimizer = LossScaleOptimizer(tf.keras.optimizers.SGD(0.5), InTensorFlowsStyle(start=16.0))
    step(optimizer, 1.0, variable)
    step(optimizer, 1.0, variable)
    twin = copy.deepcopy(optimizer)
    step(twin, NAN, variable)
    assert (float(optimizer.loss_scale()), float(twin.loss_scale())) == (64.0, 16.0)


class Decaying(tf.keras.optimizers.SGD):
    """An optimizer that leaves arguments out of its configuration, as AdamWeightDecay of Transformers does."""

    def __init__(self, learning_rate=0.5, exclude=None, rate=0.0, transform=None, **kwargs):
        super().__init__(learning_rate, **kwargs)
        self._exclude, self.rate, self.transform = exclude, rate, transform
        self.prefixes = {} if exclude is None else {name: len(name) for name in exclude}


def test_arguments_that_a_configuration_lacks():
    """They keep their values in a copy, with what the constructor has made of them."""
    optimizer = LossScaleOptimizer(Decaying(0.25, exclude=["bias", "norm"], rate=0.125, momentum=0.5))
    for twin in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        inner = twin.inner_optimizer
        assert (list(inner._exclude), inner.rate, dict(inner.prefixes)) == (
            ["bias", "norm"],
            0.125,
            {"bias": 4, "norm": 4},
        )
        assert inner.get_config() == optimizer.inner_optimizer.get_config()


def test_an_argument_that_cannot_be_copied():
    """An object that the configuration lacks makes a copy impossible; the error names the attribute."""
    optimizer = LossScaleOptimizer(Decaying(transform=object()))
    with pytest.raises(UnsupportedOperationError, match="transform"):
        copy.deepcopy(optimizer)
    with pytest.raises(UnsupportedOperationError, match="transform"):
        pickle.dumps(optimizer)
