"""Features of inner optimizers: clipping, weight decay, averages, accumulation; and what can't be wrapped."""

import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper import LossScaleOptimizer
from scalekeeper.registry.errors import ArgumentError
from scalekeeper_test_support.installed_keras import (
    COUNTS_SKIPPED_STEPS,
    HAS_LOSS_SCALE_OBJECTS,
    HAS_NEW_OPTIMIZERS,
    IS_KERAS_3,
    OPTIMIZERS,
    UPSTREAM,
    apply_unscaled,
    set_global_policy,
    state_of,
    upstream,
    variables_of,
)

only_new = pytest.mark.skipif(not HAS_NEW_OPTIMIZERS, reason="OptimizerV2 has no such arguments")
only_keras_3 = pytest.mark.skipif(not IS_KERAS_3, reason="a feature of Keras 3")
DYNAMIC = {"name": "dynamic", "initial_loss_scale": 1024, "increment_period": 3}


def make(name, kind="default", loss_scale="dynamic", **arguments):
    return LossScaleOptimizer(getattr(OPTIMIZERS[kind], name)(**arguments), loss_scale)


def after_steps(optimizer, gradients):
    """The variable after these gradients, one step each, in a traced function; some may not be finite."""
    variable = tf.Variable([1.0, -2.0])

    @tf.function(input_signature=[tf.TensorSpec([2])])
    def step(gradient):
        optimizer.apply_gradients([(gradient, variable)])

    for gradient in gradients:
        step(tf.constant(gradient, tf.float32))
    return variable.numpy().tolist()


GOOD = [[3.0, -4.0], [0.3, 0.4], [-1.0, 2.0], [0.0, 8.0]]
WITH_BAD = [[np.nan, 1.0], GOOD[0], GOOD[1], [np.inf, 0.0], [1.0, -np.inf], GOOD[2], GOOD[3]]


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
@pytest.mark.parametrize("clipping", [{"clipnorm": 1.0}, {"clipvalue": 0.5}, {"global_clipnorm": 1.0}])
def test_every_kind_of_clipping(kind, clipping):
    """Good steps clip as the bare optimizer does, whatever the scale; bad ones leave no trace."""
    if "global_clipnorm" in clipping and not hasattr(tf.keras.optimizers.SGD(), "global_clipnorm"):
        pytest.skip("TensorFlow up to 2.3 has no global_clipnorm")
    if not hasattr(tf.keras.optimizers.SGD(), "global_clipnorm"):
        pytest.skip("TensorFlow up to 2.3 clips in minimize, which test_documented_examples.py shows")
    bare = OPTIMIZERS[kind].SGD(learning_rate=0.5, **clipping)
    expected = after_steps(bare, GOOD)
    assert after_steps(make("SGD", kind, 4096.0, learning_rate=0.5, **clipping), GOOD) == expected
    assert after_steps(make("SGD", kind, "dynamic", learning_rate=0.5, **clipping), WITH_BAD) == expected
    assert expected != after_steps(OPTIMIZERS[kind].SGD(learning_rate=0.5), GOOD)


@only_new
def test_weight_decay():
    """A skipped step does not decay the weights; the others do as in the bare optimizer."""
    arguments = {"learning_rate": 0.5, "weight_decay": 0.25}
    expected = after_steps(tf.keras.optimizers.SGD(**arguments), GOOD)
    assert after_steps(make("SGD", **arguments), WITH_BAD) == expected
    assert expected != after_steps(tf.keras.optimizers.SGD(learning_rate=0.5), GOOD)


@only_new
def test_moving_averages():
    """With use_ema, the average is that of the good steps, and finalize_variable_values puts it in place."""
    arguments = {"learning_rate": 0.5, "use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": None}
    finals = []
    sgd = tf.keras.optimizers.SGD
    ours = LossScaleOptimizer(sgd(**arguments), "dynamic", skipped_steps="hold")
    for optimizer, gradients in ((sgd(**arguments), GOOD), (ours, WITH_BAD)):
        variable = tf.Variable([1.0, -2.0])
        for gradient in gradients:
            optimizer.apply_gradients([(tf.constant(gradient), variable)])
        before = variable.numpy().tolist()
        optimizer.finalize_variable_values([variable])
        finals.append((before, variable.numpy().tolist()))
    assert finals[1] == finals[0]
    assert finals[1][1] != finals[1][0]


@only_keras_3
@pytest.mark.parametrize("choice", ["native", "hold", "advance"])
def test_gradient_accumulation_loses_no_micro_batch(choice):
    """An update is the mean of as many finite micro-batches as asked for: a bad one is taken again by the next."""
    inner = tf.keras.optimizers.SGD(1.0, gradient_accumulation_steps=2)
    optimizer, variable = LossScaleOptimizer(inner, DYNAMIC, choice), tf.Variable(0.0)
    values = []
    for gradient in (2.0, np.inf, 4.0, np.nan, 1.0, 3.0):
        optimizer.apply_gradients([(tf.constant(gradient), variable)])
        values.append(float(variable.numpy()))
    assert values == [0.0, 0.0, -3.0, -3.0, -3.0, -5.0]
    assert optimizer.loss_scale.state() == {"current_loss_scale": 256.0, "good_steps": 2}
    assert int(optimizer.iterations) == 2


@pytest.mark.skipif(not hasattr(tf.keras.optimizers, "MultiOptimizer"), reason="this Keras does not have the class")
def test_around_a_multi_optimizer():
    """Keras lets no LossScaleOptimizer, its own or ours, into a MultiOptimizer; around one, it works."""
    first, second = tf.keras.Variable(1.0, name="first"), tf.keras.Variable(1.0, name="second")

    def multi(one, other):
        return tf.keras.optimizers.MultiOptimizer(lambda variable: one if variable is first else other)

    sgd = tf.keras.optimizers.SGD
    optimizer = LossScaleOptimizer(multi(sgd(0.5), sgd(0.25)), "dynamic")
    for gradient in (np.nan, 1.0):
        optimizer.apply_gradients([(tf.constant(gradient), first), (tf.constant(1.0), second)])
    assert (float(first), float(second)) == (0.5, 0.75)
    for wrapper in (upstream(sgd(0.5)), LossScaleOptimizer(sgd(0.5), "dynamic")):
        with pytest.raises(ValueError, match="LossScaleOptimizer"):
            multi(wrapper, sgd(0.25)).build([first, second])


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
def test_every_shipped_optimizer_takes_a_step(kind):
    """A non-finite step changes nothing, a finite one changes the variable, and the configuration is restored."""
    base = OPTIMIZERS[kind].Optimizer
    untested = {"Optimizer", "LossScaleOptimizer", "MultiOptimizer"}
    names = [
        name
        for name, cls in sorted(vars(OPTIMIZERS[kind]).items())
        if isinstance(cls, type) and issubclass(cls, base) and name not in untested
    ]
    assert len(names) >= 8
    variable_class = tf.keras.Variable if IS_KERAS_3 else tf.Variable
    for name in names:
        optimizer = make(name, kind, learning_rate=0.5)
        variable = variable_class(np.array([[1.0, -2.0], [0.5, 3.0]], np.float32))
        before = variable.numpy().copy()
        optimizer.apply_gradients([(tf.constant([[1.0, np.nan], [1.0, 1.0]]), variable)])
        np.testing.assert_array_equal(variable.numpy(), before, err_msg=name)
        for _ in range(2):
            optimizer.apply_gradients([(tf.constant([[1.0, 2.0], [3.0, 4.0]]), variable)])
        assert np.isfinite(variable.numpy()).all(), name
        assert (variable.numpy() != before).any(), name
        keras = OPTIMIZERS["default"]
        if isinstance(keras.deserialize(keras.serialize(optimizer.inner_optimizer)), str):
            continue  # tf_keras does not know its own Adafactor by name
        again = type(optimizer).from_config(optimizer.get_config())
        assert (type(again.inner_optimizer), type(again)) == (type(optimizer.inner_optimizer), type(optimizer)), name
        # Muon treats matrices in another way than the rest, and has None for the slots that these do not need
        slots = [optimizer.get_slot(variable, slot) for slot in optimizer.get_slot_names()]
        own = {id(each) for each in variables_of(optimizer)}
        assert all(id(slot) in own for slot in slots if slot is not None), name


SLOTS = {
    "SGD": ({"momentum": 0.9}, {"momentum"}),
    "Adam": ({"amsgrad": True}, {"m", "v", "vhat"}),
    "RMSprop": ({"momentum": 0.5, "centered": True}, {"rms", "momentum", "mg"}),
    "Adagrad": ({}, {"accumulator"}),
    "Adadelta": ({}, {"accum_grad", "accum_var"}),
    "Adamax": ({}, {"m", "v"}),
    "Nadam": ({}, {"m", "v"}),
    "Ftrl": ({}, {"accumulator", "linear"}),
}


@pytest.mark.parametrize("name", sorted(SLOTS))
def test_slots_have_the_documented_names(name):
    """On every version, and each is a variable of the shape of its own."""
    arguments, expected = SLOTS[name]
    optimizer, variables = make(name, **arguments), [tf.Variable(tf.ones([3])), tf.Variable(tf.ones([2, 2]))]
    optimizer.apply_gradients([(tf.ones([3]), variables[0]), (tf.ones([2, 2]), variables[1])])
    assert set(optimizer.get_slot_names()) == expected
    for slot in expected:
        assert [tuple(optimizer.get_slot(each, slot).shape) for each in variables] == [(3,), (2, 2)]


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
def test_the_words_of_newer_versions(kind):
    """inner_optimizer, dynamic, initial_scale, dynamic_growth_steps and dynamic_counter, in and out, everywhere."""
    inner = OPTIMIZERS[kind].SGD(1.0)
    optimizer = LossScaleOptimizer(inner_optimizer=inner, initial_scale=64.0, dynamic_growth_steps=5)
    assert optimizer.inner_optimizer is inner
    assert (optimizer.dynamic, optimizer.initial_scale, optimizer.dynamic_growth_steps) == (True, 64.0, 5)
    optimizer.apply_gradients([(tf.constant(1.0), tf.Variable(0.0))])
    assert int(optimizer.dynamic_counter.numpy()) == 1
    fixed = LossScaleOptimizer(OPTIMIZERS[kind].SGD(1.0), dynamic=False, initial_scale=32.0)
    assert (fixed.dynamic, fixed.initial_scale, fixed.dynamic_growth_steps, fixed.dynamic_counter) == (
        False,
        32.0,
        None,
        None,
    )
    assert isinstance(fixed.loss_scale, scalekeeper.FixedLossScale)


@pytest.mark.parametrize(
    "arguments",
    [(True,), (True, 64.0), (False, 64.0), (True, 64.0, 5), (True, None, 5), (True, None, None), (False, 64.0, None)],
)
def test_the_order_of_newer_versions(arguments):
    """A bool after the optimizer is ``dynamic``; ``initial_scale`` and the period follow, as in the class of 2.4."""
    optimizer = LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), *arguments)
    names = ("dynamic", "initial_scale", "dynamic_growth_steps")
    expected = LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), **dict(zip(names, arguments)))
    assert optimizer._policy_config() == expected._policy_config()
    assert optimizer.skipped_steps == expected.skipped_steps
    if not (HAS_LOSS_SCALE_OBJECTS or IS_KERAS_3):
        theirs = UPSTREAM(tf.keras.optimizers.SGD(1.0), *arguments)
        assert (theirs.dynamic, float(theirs.initial_scale)) == (optimizer.dynamic, float(optimizer.initial_scale))
        assert theirs.dynamic_growth_steps == optimizer.dynamic_growth_steps


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"loss_scale": False}, "dynamic=False.*initial_scale"),
        ({"loss_scale": True, "dynamic": False}, "dynamic by position and by name"),
        ({"loss_scale": True, "skipped_steps": 8.0, "initial_scale": 8.0}, "initial_scale by position and by name"),
        ({"loss_scale": "dynamic", "skipped_steps": 8.0}, "skipped_steps is 8.0"),
        ({"loss_scale": np.True_}, "not a loss scale"),
    ],
)
def test_wrong_arguments_by_position(arguments, error):
    """They raise an error that names them."""
    with pytest.raises(ValueError, match=error):
        LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), **arguments)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"loss_scale": 8.0, "initial_scale": 64.0}, "loss_scale and initial_scale"),
        ({"dynamic": False}, "dynamic=False.*initial_scale"),
        ({"dynamic": False, "initial_scale": 8.0, "dynamic_growth_steps": 3}, "dynamic=False.*dynamic_growth_steps"),
    ],
)
def test_contradicting_arguments(arguments, named):
    """They raise an error that names them."""
    with pytest.raises(ArgumentError, match=named):
        LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), **arguments)


def test_no_optimizer_or_two():
    """TypeError that says how to give one."""
    for arguments in ({}, {"optimizer": tf.keras.optimizers.SGD(), "inner_optimizer": tf.keras.optimizers.SGD()}):
        with pytest.raises(TypeError, match="give one optimizer"):
            LossScaleOptimizer(**arguments)


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
def test_wrapping_what_is_wrapped(kind):
    """Neither ours nor TensorFlow's own wrapper is wrapped again."""
    for wrapped in (make("SGD", kind), upstream(OPTIMIZERS[kind].SGD(1.0))):
        with pytest.raises(ValueError, match="already"):
            LossScaleOptimizer(wrapped, "dynamic")


def test_a_subclass_of_ones_own():
    """It is an instance of itself, of scalekeeper's class and of Keras's class, and its methods win."""

    class Counting(LossScaleOptimizer):
        steps = 0

        def apply_gradients(self, *args, **kwargs):
            self.steps += 1
            return super().apply_gradients(*args, **kwargs)

    for kind in OPTIMIZERS.values():
        optimizer, variable = Counting(kind.SGD(1.0), "dynamic"), tf.Variable(1.0)
        optimizer.apply_gradients([(tf.constant(0.5), variable)])
        assert (optimizer.steps, variable.numpy()) == (1, 0.5)
        assert isinstance(optimizer, Counting)
        assert isinstance(optimizer, type(upstream(kind.SGD(1.0))))


@only_keras_3
def test_scaled_gradients_to_apply():
    """Keras 3's own words: scale_loss and apply; and apply after get_unscaled_gradients takes unscaled ones."""
    optimizer, variable = make("SGD", loss_scale=8.0, learning_rate=1.0), tf.keras.Variable(0.0)
    assert float(optimizer.scale_loss(tf.constant(3.0))) == 24.0
    optimizer.apply([tf.constant(8.0)], [variable])
    assert float(variable) == -1.0
    optimizer.apply([tf.constant(8.0)])  # Keras 3 remembers the variables
    assert float(variable) == -2.0
    optimizer.apply(optimizer.get_unscaled_gradients([tf.constant(16.0)]), [variable])
    assert float(variable) == -4.0
    with pytest.raises(ValueError, match="call apply instead"):
        optimizer.stateless_apply([], [], [])


@only_keras_3
def test_floor_and_ceiling_that_keras_3_lacks():
    """B13: Keras's own scale reaches 0 and infinity, and stays there; ours stops at 1 and at the last finite one."""
    scales = {}
    for name, gradient, period in (("down", np.nan, 2000), ("up", 0.0, 1)):
        given = {"initial_loss_scale": 2.0**15, "increment_period": period}
        own, ours = upstream(tf.keras.optimizers.SGD(1.0), given), make("SGD", loss_scale={"name": "dynamic", **given})
        variables = [tf.Variable(0.0), tf.Variable(0.0)]
        for _ in range(200):
            own.apply_gradients([(tf.constant(gradient), variables[0])])
            ours.apply_gradients([(tf.constant(gradient), variables[1])])
        scales[name] = [state_of(each)["current_loss_scale"] for each in (own, ours)]
    assert scales == {"down": [0.0, 1.0], "up": [np.inf, 2.0**127]}


@only_keras_3
def test_growth_after_a_restored_counter():
    """B14: a counter beyond a smaller period grows the scale at the next good step; in Keras's own class, never."""
    given = {"initial_loss_scale": 8.0, "increment_period": 3}
    own, ours = upstream(tf.keras.optimizers.SGD(1.0), given), make("SGD", loss_scale={"name": "dynamic", **given})
    scales = []
    for optimizer, counter in ((own, lambda: own.step_counter), (ours, lambda: ours.step_counter)):
        variable = tf.Variable(0.0)
        optimizer.build([variable])
        counter().assign(7)
        for _ in range(5):
            apply_unscaled(optimizer, [(tf.constant(0.0), variable)])
        scales.append(state_of(optimizer)["current_loss_scale"])
    assert scales == [8.0, 32.0]


@pytest.mark.slow("py313-tf221-keras3")
@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="beside the newest TensorFlow only")
@only_keras_3
def test_another_backend():
    """An error at construction, which says what to set."""
    code = (
        "import keras, scalekeeper\n"
        "try:\n"
        "    scalekeeper.LossScaleOptimizer(keras.optimizers.SGD(), 'dynamic')\n"
        "except ValueError as error:\n"
        "    print(error)\n"
    )
    environment = dict(os.environ, KERAS_BACKEND="jax")
    printed = subprocess.check_output([sys.executable, "-c", code], env=environment, stderr=subprocess.DEVNULL)
    assert b"Keras runs on jax" in printed
    assert b"KERAS_BACKEND to tensorflow" in printed


@pytest.mark.slow("py313-tf221-tfkeras")
def test_two_kerases_in_one_process():
    """Where Keras 3 and tf_keras are both installed, each optimizer gets the class of its own Keras."""
    keras, tf_keras = sys.modules.get("keras"), pytest.importorskip("tf_keras", reason="tf_keras is not installed")
    keras = keras or pytest.importorskip("keras")
    seen = []
    for package in (keras, tf_keras):
        optimizer, variable = LossScaleOptimizer(package.optimizers.SGD(0.5), "dynamic"), tf.Variable(1.0)
        for gradient in (np.nan, 1.0):
            optimizer.apply_gradients([(tf.constant(gradient), variable)])
        seen.append((variable.numpy(), isinstance(optimizer, package.mixed_precision.LossScaleOptimizer)))
        assert isinstance(optimizer, LossScaleOptimizer)
    assert seen == [(0.5, True), (0.5, True)]


@pytest.mark.slow("py313-tf221-tfkeras")
@pytest.mark.parametrize("is_keras_3_first", [True, False])
def test_two_kerases_share_the_variables_of_a_policy(is_keras_3_first):
    """A policy of optimizers of both Kerases has one state, which the variables that Keras 3 saves hold."""
    tf_keras = pytest.importorskip("tf_keras", reason="tf_keras is not installed")
    keras = pytest.importorskip("keras")
    policy, variables, optimizers = scalekeeper.DynamicLossScale(8.0, 3), {}, {}
    for package in (keras, tf_keras) if is_keras_3_first else (tf_keras, keras):
        optimizers[package] = LossScaleOptimizer(package.optimizers.SGD(0.5), policy)
        variables[package] = tf.Variable(1.0)
    for package, gradient in ((tf_keras, np.inf), (keras, np.nan), (tf_keras, 1.0)):
        optimizers[package].apply_gradients([(tf.constant(gradient), variables[package])])
    ours = optimizers[keras]
    assert (ours.dynamic_scale.numpy(), ours.step_counter.numpy()) == (2.0, 1)
    assert policy.state() == {"current_loss_scale": 2.0, "good_steps": 1}
    ours.dynamic_scale.assign(64.0)
    assert float(optimizers[tf_keras].loss_scale) == 64.0


def test_the_policy_reads_as_a_number():
    """Newer versions have a number in ``loss_scale``: code that takes it for one works."""
    optimizer = make("SGD", loss_scale=DYNAMIC)
    assert float(optimizer.loss_scale) == 1024.0
    assert float(tf.convert_to_tensor(optimizer.loss_scale)) == 1024.0
    assert float(tf.constant(2.0) * optimizer.loss_scale) == 2048.0
    assert optimizer.loss_scale.numpy() == np.float32(1024.0)


def test_mixed_precision_compile_keeps_it():
    """Keras does not wrap it again under mixed_float16, and model.optimizer.loss_scale is the policy."""
    set_global_policy("mixed_float16")
    try:
        model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(1,))])
        optimizer = make("SGD")
        model.compile(optimizer, loss="mse")
        assert model.optimizer is optimizer
        assert model.optimizer.loss_scale.state()["current_loss_scale"] == 2.0**15
    finally:
        set_global_policy("float32")


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
def test_a_second_wrapper(kind):
    """Where the wrapper takes the inner one's place in a checkpoint, as in Keras 2 from 2.3 on, the error says so."""
    inner = OPTIMIZERS[kind].SGD(0.5)
    first = LossScaleOptimizer(inner, 8)
    if IS_KERAS_3 or not COUNTS_SKIPPED_STEPS:  # up to 2.2
        assert LossScaleOptimizer(inner, 16).inner_optimizer is first.inner_optimizer
    else:
        with pytest.raises(ValueError, match="already.* wrapped|wrapped by a LossScaleOptimizer already"):
            LossScaleOptimizer(inner, 16)


@pytest.mark.long
@pytest.mark.skipif(not tf.__version__.startswith("2.9."), reason="the first experimental optimizers")
def test_experimental_optimizers_of_29_are_refused():
    """They keep their variables in no list; the error names what to use instead."""
    with pytest.raises(TypeError, match=r"use tf\.keras\.optimizers, or TensorFlow 2\.10"):
        scalekeeper.LossScaleOptimizer(tf.keras.optimizers.experimental.Adam(), "dynamic")
