"""A policy wherever TensorFlow takes a LossScale: checkpoints, optimizers of TensorFlow 1, dtype policies, tapes."""

import copy
import importlib
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper_test_support.installed_keras import HAS_LOSS_SCALE_OBJECTS, IS_KERAS_3, LOSS_SCALE_CLASSES, UPSTREAM

mixed_precision_v1 = getattr(tf.compat.v1, "mixed_precision", None)
V1_OPTIMIZER = (
    tf.compat.v1.train.experimental.MixedPrecisionLossScaleOptimizer
    if HAS_LOSS_SCALE_OBJECTS
    else mixed_precision_v1.MixedPrecisionLossScaleOptimizer
)
POLICY_CLASS = getattr(getattr(tf.keras.mixed_precision, "experimental", None), "Policy", None)
NAN = float("nan")
MAKE = {
    "ours": lambda: scalekeeper.DynamicLossScale(8.0, 2),
    "tensorflow": lambda: LOSS_SCALE_CLASSES.DynamicLossScale(8.0, 2),
}
needs_loss_scale_objects = pytest.mark.skipif(not HAS_LOSS_SCALE_OBJECTS, reason="from 2.4 on Keras takes no LossScale")


class Stateful(scalekeeper.LossScale):
    """A policy in TensorFlow's style: its own constructor, call and update, and a variable under its own name."""

    def __init__(self):
        self.level = tf.Variable(4.0, trainable=False)

    def __call__(self):
        return tf.convert_to_tensor(self.level)

    def update(self, grads):
        return self.level.assign_add(1.0), True

    def get_config(self):
        return {}


def names_in(path):
    return [name.partition("/.ATTRIBUTES")[0] for name, _ in tf.train.list_variables(path) if "/" in name]


def test_it_is_a_loss_scale_of_tensorflow():
    """By isinstance, as TensorFlow tests it; a number, and a policy of another kind, is what it is."""
    dynamic, fixed = scalekeeper.DynamicLossScale(), scalekeeper.FixedLossScale(8)
    assert isinstance(dynamic, LOSS_SCALE_CLASSES.LossScale)
    assert isinstance(dynamic, LOSS_SCALE_CLASSES.DynamicLossScale)
    assert not isinstance(dynamic, LOSS_SCALE_CLASSES.FixedLossScale)
    assert isinstance(fixed, LOSS_SCALE_CLASSES.FixedLossScale)
    assert not isinstance(fixed, LOSS_SCALE_CLASSES.DynamicLossScale)
    assert isinstance(Stateful(), LOSS_SCALE_CLASSES.LossScale)
    assert not isinstance(8.0, LOSS_SCALE_CLASSES.LossScale)
    # Keras copies three parameters of a dynamic one, if it does not use the object itself
    is_dynamic = isinstance(scalekeeper.TolerantLossScale(), LOSS_SCALE_CLASSES.DynamicLossScale)
    assert is_dynamic is HAS_LOSS_SCALE_OBJECTS


@pytest.mark.slow
def test_a_policy_that_was_there_before_tensorflow(tmp_path):
    """It becomes one while the program imports TensorFlow, which importing scalekeeper does not do."""
    script = tmp_path / "early.py"
    script.write_text(
        textwrap.dedent(
            """
            import copy, pickle, sys
            import scalekeeper
            policy = scalekeeper.DynamicLossScale(8.0, 2)
            policy.update([float("nan")])
            text = pickle.dumps(policy)
            assert "tensorflow" not in sys.modules and type(policy()).__module__ == "numpy"
            import tensorflow as tf
            assert not [each for each in sys.meta_path if type(each).__module__.startswith("scalekeeper.")]
            own = sys.modules["tensorflow.python.training.experimental.loss_scale"]
            assert isinstance(policy, own.DynamicLossScale)
            assert "scalekeeper.optimizer" not in sys.modules
            tf.train.Checkpoint(policy=policy)
            assert float(policy()) == float(pickle.loads(text)()) == float(copy.deepcopy(policy)()) == 4.0
            assert policy == 4.0 and policy in {policy}
            assert isinstance(policy(), tf.Tensor)
            """
        )
    )
    subprocess.run([sys.executable, "-W", "ignore", str(script)], check=True)  # a process without TensorFlow


def test_a_checkpoint_holds_the_state(tmp_path):
    """Under the names that TensorFlow's own class has: each restores what the other has saved."""
    saved = {name: make() for name, make in MAKE.items()}
    for policy in saved.values():
        policy.update([tf.constant(NAN)])
        policy.update([tf.constant(1.0)])
    paths = {name: tf.train.Checkpoint(ls=saved[name]).save(str(tmp_path / name)) for name in saved}
    assert names_in(paths["ours"]) == names_in(paths["tensorflow"])
    for path in paths.values():
        for make in MAKE.values():
            restored = make()
            tf.train.Checkpoint(ls=restored).restore(path).assert_consumed()
            assert (float(restored()), repr(restored)) == (4.0, repr(saved["ours"]))


def test_a_checkpoint_before_the_policy(tmp_path):
    """A policy that is assigned after the restore gets its state then."""
    policy = scalekeeper.DynamicLossScale(8.0, 2)
    policy.update([NAN])
    path = tf.train.Checkpoint(ls=policy).save(str(tmp_path / "checkpoint"))
    checkpoint = tf.train.Checkpoint()
    status = checkpoint.restore(path)
    checkpoint.ls = scalekeeper.DynamicLossScale(8.0, 2)
    status.assert_consumed()
    assert checkpoint.ls.state() == {"current_loss_scale": 4.0, "good_steps": 0}


def test_attributes_of_modules_are_tracked(tmp_path):
    """Also a policy with its own variables, and one without a state."""
    module = tf.Module()
    module.policy, module.own, module.fixed = scalekeeper.DynamicLossScale(), Stateful(), scalekeeper.FixedLossScale(8)
    module.own.update([])
    path = tf.train.Checkpoint(module=module).save(str(tmp_path / "checkpoint"))
    expected = ["module/own/level", "module/policy/current_loss_scale", "module/policy/good_steps", "save_counter"]
    assert names_in(path) == expected
    other = tf.Module()
    other.policy, other.own, other.fixed = scalekeeper.DynamicLossScale(), Stateful(), scalekeeper.FixedLossScale(8)
    tf.train.Checkpoint(module=other).restore(path).assert_consumed()
    assert float(other.own()) == 5.0


class ModulePolicy(scalekeeper.DynamicLossScale, tf.Module):
    """A policy that tracks its attributes."""


def test_a_policy_that_is_a_module(tmp_path):
    """It is a policy and a module, alone and in an optimizer."""
    policy = ModulePolicy(8.0, 2)
    assert bool(tf.function(lambda: policy.update(tf.constant(NAN))[1])()) is False
    path = tf.train.Checkpoint(ls=policy).save(str(tmp_path / "checkpoint"))
    policy.load_state({"current_loss_scale": 64.0, "good_steps": 1})
    tf.train.Checkpoint(ls=policy).restore(path).assert_consumed()
    optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.5), policy)
    optimizer.apply_gradients([(tf.constant(NAN), tf.Variable(1.0))])
    assert policy.state() == {"current_loss_scale": 2.0, "good_steps": 0}


def test_copies_of_a_tracked_policy():
    """They have a state of their own, and nothing of TensorFlow's bookkeeping."""
    policy = scalekeeper.DynamicLossScale(8.0, 2)
    tf.train.Checkpoint(ls=policy).save_counter  # noqa: B018
    tf.function(lambda: policy.update(tf.constant(NAN))[1])()
    for twin in (copy.deepcopy(policy), copy.copy(policy), pickle.loads(pickle.dumps(policy))):
        assert twin.state() == {"current_loss_scale": 4.0, "good_steps": 0}
        assert not [name for name in vars(twin) if name.startswith("_self_")]
        twin.update([NAN])
        assert (float(twin()), float(policy())) == (2.0, 4.0)


def v1_training(make, gradients):
    """The weight and the scale after each step of TensorFlow 1's optimizer, in a session."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        policy = make()
        weight, gradient = tf.Variable(1.0), tf.compat.v1.placeholder(tf.float32, [])
        optimizer = V1_OPTIMIZER(tf.compat.v1.train.GradientDescentOptimizer(0.5), policy)
        step = optimizer.minimize(weight * gradient, var_list=[weight])
        scale = policy()
        session.run(tf.compat.v1.global_variables_initializer())
        found = [len(optimizer.variables())]  # in 2.0 without those of the loss scale
        for value in gradients:
            session.run(step, {gradient: value})
            found.append(tuple(map(float, session.run([weight, scale]))))
        assert "initial_loss_scale=8.0" in repr(policy)
        return found


def test_the_optimizer_of_tensorflow_1():
    """In a session: its steps, skipped and applied, are those with TensorFlow's own loss scale."""
    gradients = [0.5, 1.0, NAN, 0.25, float("inf"), 2.0, 1.0]
    ours, own = (v1_training(MAKE[name], gradients) for name in ("ours", "tensorflow"))
    assert ours == own
    assert ours[3] == (0.25, 8.0)


def test_the_optimizer_of_tensorflow_1_with_another_policy():
    """It updates every policy that decides by the gradients: log_max shrinks, and skips what is not finite."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        policy = scalekeeper.LogMaxLossScale()
        weight, gradient = tf.Variable(1.0), tf.compat.v1.placeholder(tf.float32, [])
        optimizer = V1_OPTIMIZER(tf.compat.v1.train.GradientDescentOptimizer(0.5), policy)
        step = optimizer.minimize(weight * gradient, var_list=[weight])
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(step, {gradient: NAN})
        assert session.run(weight) == 1.0
        session.run(step, {gradient: 1.0})
        assert session.run(weight) == 0.5


def test_the_optimizer_of_tensorflow_1_in_a_checkpoint(tmp_path):
    """The loss scale is where TensorFlow's own is."""
    names = {}
    for name, make in MAKE.items():
        optimizer = V1_OPTIMIZER(tf.compat.v1.train.GradientDescentOptimizer(0.5), make())
        names[name] = names_in(tf.train.Checkpoint(optimizer=optimizer).save(str(tmp_path / name)))
    assert names["ours"] == names["tensorflow"]
    assert "optimizer/loss_scale/good_steps" in names["ours"]


@pytest.mark.skipif(IS_KERAS_3, reason="it takes optimizers of TensorFlow 1 and of Keras 2")
def test_graph_rewrite():
    """enable_mixed_precision_graph_rewrite takes a policy."""
    modules = [tf.compat.v1.train.experimental, mixed_precision_v1]
    enable = [getattr(each, "enable_mixed_precision_graph_rewrite", None) for each in modules]
    rewrite = next(each for each in enable if each is not None)
    policy = scalekeeper.DynamicLossScale(8.0, 2)
    try:
        wrapped = rewrite(tf.compat.v1.train.GradientDescentOptimizer(0.5), policy)
    finally:
        disable = [getattr(each, "disable_mixed_precision_graph_rewrite", None) for each in modules]
        next(each for each in disable if each is not None)()
    assert isinstance(wrapped, V1_OPTIMIZER)
    assert wrapped._loss_scale is policy


@needs_loss_scale_objects
@pytest.mark.parametrize("name", sorted(MAKE))
def test_the_loss_scale_optimizer_of_keras(name):
    """Keras's own class, eager and traced, trains with a policy as with TensorFlow's."""
    policy, weight = MAKE[name](), tf.Variable(1.0)
    optimizer = UPSTREAM(tf.keras.optimizers.SGD(0.5), policy)
    step = tf.function(lambda gradient: optimizer.apply_gradients([(gradient, weight)]) and None, autograph=False)
    found = []
    for gradient in (1.0, NAN):
        optimizer.apply_gradients([(tf.constant(gradient), weight)])
        found.append((float(weight.numpy()), float(policy())))
    for gradient in (1.0, 1.0, float("inf")):
        step(tf.constant(gradient))
        found.append((float(weight.numpy()), float(policy())))
    assert found == [(0.5, 8.0), (0.5, 4.0), (0.0, 4.0), (-0.5, 8.0), (-0.5, 4.0)]
    again = UPSTREAM.from_config(optimizer.get_config())
    assert repr(again._loss_scale) == repr(MAKE["tensorflow"]())


@pytest.mark.skipif(POLICY_CLASS is None, reason="from 2.5 on dtype policies have no loss scale")
@pytest.mark.parametrize("name", sorted(MAKE))
def test_a_dtype_policy_of_keras(name):
    """It has the policy, trains with it in fit, and its configuration is that with TensorFlow's own."""
    loss_scale = MAKE[name]()
    policy = POLICY_CLASS("mixed_float16", loss_scale=loss_scale)
    assert policy.loss_scale is loss_scale
    expected = {"initial_loss_scale": 8.0, "increment_period": 2, "multiplier": 2.0}
    if hasattr(policy, "get_config"):  # not in 2.0
        assert policy.get_config()["loss_scale"] == {"class_name": "DynamicLossScale", "config": expected}
        assert POLICY_CLASS.from_config(policy.get_config()).loss_scale.get_config() == expected
    layer = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", input_shape=(1,), dtype=policy)
    model = tf.keras.Sequential([layer])
    if HAS_LOSS_SCALE_OBJECTS:
        before = tf.keras.mixed_precision.experimental.global_policy()
        tf.keras.mixed_precision.experimental.set_policy(policy)
        try:
            model = tf.keras.Sequential([layer])
            model.compile(tf.keras.optimizers.SGD(0.5), lambda wanted, output: tf.cast(output, tf.float32))
            model.fit(np.ones([2, 1], np.float32), np.ones([2, 1], np.float32), batch_size=1, verbose=0)
        finally:
            tf.keras.mixed_precision.experimental.set_policy(before)
        assert (float(loss_scale()), model.get_weights()[0].item()) == (16.0, 0.0)


@pytest.mark.parametrize("is_traced", [False, True], ids=["eager", "tf_function"])
@pytest.mark.parametrize("name", sorted(MAKE))
def test_the_gradient_tape_with_a_loss_scale(name, is_traced):
    """It updates the policy until the gradients are finite."""
    path = "tensorflow.python.training.experimental.loss_scaling_gradient_tape"
    try:
        tape_class = importlib.import_module(path).LossScaleGradientTape
    except ImportError:
        pytest.skip("no such tape in this TensorFlow")
    policy, variable = MAKE[name](), tf.Variable(1.0)

    def gradient():
        with tape_class(policy) as tape:
            loss = variable * 1e38
        return tape.gradient(loss, variable)

    found = (tf.function(gradient, autograph=False) if is_traced else gradient)()
    assert (float(found), float(policy())) == (np.float32(1e38), 2.0)
