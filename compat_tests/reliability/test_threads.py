"""A short version of threads.py, and what threads that share something get."""

import json
import subprocess
import sys
import threading
import time

import pytest
import tensorflow as tf
from tensorflow.python.util import lazy_loader

import scalekeeper
from scalekeeper import DynamicLossScale, LossScaleOptimizer
from scalekeeper.optimizer._keras import keras_dispatch
from scalekeeper_test_support.installed_keras import IS_KERAS_3, MODEL_SUFFIXES
from scalekeeper_test_support.repository import load_script

pytestmark = pytest.mark.slow

threads = load_script("compat_tests/reliability/threads.py")


# what is done in how many threads: the slow ones in few
SHORT = {
    "building from documents": 8,
    "registering": 4,
    "training with minimize": 4,
    "training in a tf.function": 2,
    "saving and loading": 2,
}


@pytest.mark.parametrize("what", sorted(SHORT))
def test_threads_come_to_what_they_come_to_alone(what):
    """Different optimizers and models in several threads at once: the same to the bit, and no error."""
    row = threads.measured(what, rounds=1, threads=SHORT[what])
    assert (row["differ from the same alone"], row["errors"]) == (0, 0)


def test_one_class_for_all_threads(monkeypatch):
    """Objects that were made at the same time are of one class, though it is made when it is first needed."""
    make = keras_dispatch.types.new_class

    def slowly(*arguments):
        time.sleep(0.02)
        return make(*arguments)

    monkeypatch.setattr(keras_dispatch, "_concrete_classes", {})
    monkeypatch.setattr(keras_dispatch.types, "new_class", slowly)
    found = threads.together(*[lambda: type(LossScaleOptimizer(tf.keras.optimizers.SGD(0.5)))] * 4)
    assert set(found) == {found[0]}
    assert issubclass(found[0], LossScaleOptimizer)


def test_optimizers_that_share_a_policy_share_its_state(tmp_path):
    """Made at the same time, they hold the same variables: what one of them learns is in the checkpoints of all."""

    class Slow(DynamicLossScale):
        def initial_state(self):
            time.sleep(0.02)
            return super().initial_state()

    policy = Slow(initial_loss_scale=64)
    made = threads.together(*[lambda: LossScaleOptimizer(tf.keras.optimizers.SGD(0.5), policy)] * 4)
    made[0].apply_gradients([(tf.constant(float("nan")), tf.Variable(1.0))])
    name = "dynamic_scale" if IS_KERAS_3 else "current_loss_scale"
    for number, optimizer in enumerate(made):
        path = tf.train.Checkpoint(optimizer=optimizer).write(str(tmp_path / str(number)))
        (key,) = [each for each, _ in tf.train.list_variables(path) if name in each]
        assert tf.train.load_variable(path, key) == 32.0


def test_clipping_belongs_to_every_thread():
    """Two threads compute gradients with one optimizer at the same time: both are clipped after they are unscaled."""
    optimizer = LossScaleOptimizer(tf.keras.optimizers.SGD(1.0, clipvalue=0.5), 8.0)
    variables = [tf.Variable(0.0), tf.Variable(0.0)]
    optimizer.apply_gradients([(tf.constant(0.0), variable) for variable in variables])
    meeting = threading.Barrier(2)

    def minimize(variable):
        def loss():
            meeting.wait()
            return variable * 10.0

        optimizer.minimize(loss, [variable])

    for turn in (1, 2):
        found = threads.together(*(lambda variable=variable: minimize(variable) for variable in variables))
        assert not any(isinstance(each, BaseException) for each in found)
        assert [variable.numpy() for variable in variables] == [-0.5 * turn] * 2


def test_what_is_registered_with_keras_meanwhile_stays():
    """Making an optimizer of a configuration does not undo what another thread tells Keras at the same time."""
    known = tf.keras.utils.get_custom_objects()

    class Slow(tf.keras.optimizers.SGD):
        @classmethod
        def from_config(cls, config, custom_objects=None):
            known["Meanwhile"] = dict  # as another thread may, just now
            return super().from_config(config)

    known["Slow"] = Slow
    try:
        config = LossScaleOptimizer(Slow(0.5), "dynamic").get_config()
        assert type(LossScaleOptimizer.from_config(config).inner_optimizer) is Slow
        assert known.get("Meanwhile") is dict
    finally:
        for name in ("Slow", "Meanwhile"):
            known.pop(name, None)


@pytest.mark.long
@pytest.mark.skipif(
    not hasattr(lazy_loader, "KerasLazyLoader"), reason="TensorFlow looks for Keras when it is imported"
)
def test_one_thread_at_a_time_has_tensorflow_look_for_its_keras():
    """Threads whose first use of the package, and of Keras, is at the same time: none sees half of it."""
    command = [sys.executable, "-W", "ignore", threads.__file__, "--first-use", "--slowly"]
    printed = subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL)
    assert json.loads(printed.splitlines()[-1]) == {"differ": 0, "errors": 0}


def test_one_thread_at_a_time_loads_a_model(tmp_path):
    """Keras up to 2.3 builds the models of all threads in one graph: load_model waits for the one before it."""
    inside, most = [], []

    class Slow(tf.keras.layers.Dense):
        @classmethod
        def from_config(cls, config):
            inside.append(cls)
            time.sleep(0.05)
            most.append(len(inside))
            inside.pop()
            return super().from_config(config)

    model = tf.keras.Sequential([tf.keras.layers.InputLayer((2,)), Slow(1)])
    model.compile(LossScaleOptimizer(tf.keras.optimizers.SGD(0.5), "dynamic"), "mse")
    path = str(tmp_path / ("model" + MODEL_SUFFIXES[0]))
    scalekeeper.save_model(model, path)
    found = threads.together(*[lambda: scalekeeper.load_model(path, {"Slow": Slow})] * 3)
    assert [len(each.weights) for each in found] == [2, 2, 2]
    assert most == [1] * 3


def test_threads_that_take_turns_can_share_an_optimizer():
    """With a lock around each step, every step of two threads counts."""
    optimizer = LossScaleOptimizer(tf.keras.optimizers.SGD(0.0), "dynamic")
    variable, turn = tf.Variable(0.0), threading.Lock()

    def steps():
        for number in range(10):
            with turn:
                optimizer.apply_gradients([(tf.constant(float("nan") if number % 2 else 0.0), variable)])

    threads.together(steps, steps)
    assert (optimizer.telemetry.steps, optimizer.telemetry.skipped) == (20, 10)
