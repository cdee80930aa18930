"""Whether a skipped step advances the iterations is state: it can be changed, and travels with a checkpoint."""

import numpy as np
import pytest
import tensorflow as tf

from scalekeeper import LossScaleOptimizer
from scalekeeper_test_support.installed_keras import COUNTS_SKIPPED_STEPS, IS_KERAS_3, OPTIMIZERS, number

NATIVE, OTHER = ("advance", "hold") if COUNTS_SKIPPED_STEPS else ("hold", "advance")
NAME = "skipped_steps_advance"
KINDS = pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
CHOICES = pytest.mark.parametrize(("choice", "iterations"), [("advance", 3), ("hold", 2)])


def wrapped(kind="default", **options):
    return LossScaleOptimizer(OPTIMIZERS[kind].SGD(0.25, momentum=0.5), "dynamic", **options)


def traced_step(optimizer, variable):
    """A traced step with a gradient of one's choice, and the list of times that it was traced."""
    traces = []

    @tf.function
    def step(gradient):
        traces.append(1)
        optimizer.apply_gradients([(gradient, variable)])

    return step, traces


def keys_in(path):
    return {name for name, _ in tf.train.list_variables(path)}


def key_of(name):
    return f"optimizer/{name}/.ATTRIBUTES/VARIABLE_VALUE"


@pytest.mark.each_environment
@KINDS
@pytest.mark.parametrize(("given", "resolved"), [("native", NATIVE), ("advance", "advance"), ("hold", "hold")], ids=str)
def test_the_choice_is_told(kind, given, resolved):
    """The property tells what will happen: native is what TensorFlow's own class does here."""
    assert wrapped(kind, skipped_steps=given).skipped_steps == resolved


@KINDS
def test_a_configuration_tells_what_is_not_native(kind):
    """A configuration omits the behaviour of the installed version, so that plain TensorFlow reads it."""
    optimizer = wrapped(kind)
    assert "skipped_steps" not in optimizer.get_config()
    optimizer.skipped_steps = OTHER
    assert optimizer.get_config()["skipped_steps"] == OTHER
    assert LossScaleOptimizer.from_config(optimizer.get_config()).skipped_steps == OTHER
    optimizer.skipped_steps = "native"
    assert "skipped_steps" not in optimizer.get_config()
    assert optimizer.skipped_steps == NATIVE


@KINDS
def test_another_word_is_refused(kind):
    """The error names the words that are possible, and nothing changes."""
    optimizer = wrapped(kind)
    with pytest.raises(ValueError, match="skipped_steps is 'sometimes'; valid: native, advance, hold"):
        optimizer.skipped_steps = "sometimes"
    assert optimizer.skipped_steps == NATIVE


@KINDS
@CHOICES
def test_a_traced_step_follows_a_change(kind, choice, iterations):
    """The choice is read when a step is skipped: no step is traced anew."""
    optimizer, variable = wrapped(kind, skipped_steps="hold" if choice == "advance" else "advance"), tf.Variable(1.0)
    step, traces = traced_step(optimizer, variable)
    step(tf.constant(1.0))
    before = len(traces)  # more than one, as the first makes variables
    optimizer.skipped_steps = choice
    step(tf.constant(np.inf))
    step(tf.constant(1.0))
    assert number(optimizer.inner_optimizer.iterations) == iterations
    assert len(traces) == before


@KINDS
@CHOICES
def test_an_eager_step_follows_a_change(kind, choice, iterations):
    """The same without tracing."""
    optimizer, variable = wrapped(kind), tf.Variable(1.0)
    optimizer.skipped_steps = choice
    for gradient in (1.0, np.inf, 1.0):
        optimizer.apply_gradients([(tf.constant(gradient), variable)])
    assert number(optimizer.inner_optimizer.iterations) == iterations


@KINDS
def test_a_checkpoint_holds_it_if_it_is_not_native(tmp_path, kind):
    """A file is TensorFlow's own as long as the choice is, and has one key more otherwise."""
    optimizer = wrapped(kind)
    root = tf.train.Checkpoint(optimizer=optimizer)
    native = keys_in(root.write(str(tmp_path / "native")))
    optimizer.skipped_steps = OTHER
    assert keys_in(root.write(str(tmp_path / "other"))) - native == {key_of(NAME)}


@KINDS
@pytest.mark.parametrize("written", [NATIVE, OTHER])
@pytest.mark.parametrize("before", [NATIVE, OTHER])
def test_a_restored_step_is_not_traced_anew(tmp_path, kind, written, before):
    """A checkpoint sets the choice that it was written with, whatever it was before, in steps traced already."""
    source = wrapped(kind, skipped_steps=written)
    traced_step(source, tf.Variable(1.0))[0](tf.constant(1.0))
    path = tf.train.Checkpoint(optimizer=source).write(str(tmp_path / "file"))
    optimizer, variable = wrapped(kind, skipped_steps=before), tf.Variable(1.0)
    step, traces = traced_step(optimizer, variable)
    step(tf.constant(1.0))
    count = len(traces)
    tf.train.Checkpoint(optimizer=optimizer).restore(path)
    assert optimizer.skipped_steps == written
    step(tf.constant(np.inf))
    assert number(optimizer.inner_optimizer.iterations) == (2 if written == "advance" else 1)
    assert len(traces) == count


@KINDS
def test_a_restore_before_the_first_step_counts_too(tmp_path, kind):
    """The choice is there when the optimizer's other variables are still to come."""
    path = tf.train.Checkpoint(optimizer=wrapped(kind, skipped_steps=OTHER)).write(str(tmp_path / "file"))
    optimizer, variable = wrapped(kind), tf.Variable(1.0)
    tf.train.Checkpoint(optimizer=optimizer).restore(path)
    assert optimizer.skipped_steps == OTHER
    optimizer.apply_gradients([(tf.constant(np.inf), variable)])
    assert number(optimizer.inner_optimizer.iterations) == (1 if OTHER == "advance" else 0)


@KINDS
def test_a_bare_optimizers_checkpoint_says_nothing_of_it(tmp_path, kind):
    """Without loss scaling no step was skipped: the choice stays as it is."""
    if IS_KERAS_3:
        pytest.skip("a bare optimizer has its variables elsewhere there")
    bare, variable = OPTIMIZERS[kind].SGD(0.25, momentum=0.5), tf.Variable(1.0)
    bare.apply_gradients([(tf.constant(1.0), variable)])
    path = tf.train.Checkpoint(optimizer=bare).write(str(tmp_path / "file"))
    for choice in ("advance", "hold"):
        optimizer = wrapped(kind, skipped_steps=choice)
        tf.train.Checkpoint(optimizer=optimizer).restore(path)
        assert optimizer.skipped_steps == choice


@KINDS
@CHOICES
def test_under_a_strategy(kind, choice, iterations):
    """Under MirroredStrategy the choice is the same on all replicas, and can be changed between steps."""
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    with strategy.scope():
        variable = tf.Variable(1.0)
        optimizer = wrapped(kind, skipped_steps="hold" if choice == "advance" else "advance")
    run = getattr(strategy, "run", None) or strategy.experimental_run_v2

    @tf.function
    def step(gradient):
        run(lambda value: optimizer.apply_gradients([(value, variable)]), args=(gradient,))

    step(tf.constant(1.0))
    optimizer.skipped_steps = choice
    step(tf.constant(np.inf))
    step(tf.constant(1.0))
    assert number(optimizer.inner_optimizer.iterations) == iterations
    assert optimizer.skipped_steps == choice


@pytest.mark.skipif(IS_KERAS_3, reason="it has no graph mode")
@CHOICES
def test_in_a_graph(choice, iterations):
    """In TF1's graph mode the choice is a variable of the graph, which Keras's session initializes."""
    kind = "legacy" if "legacy" in OPTIMIZERS else "default"  # of the others, none works in a graph
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.Variable(1.0)
        factor = tf.compat.v1.placeholder(tf.float32, [])
        optimizer = wrapped(kind)
        updates = optimizer.get_updates(variable * factor, [variable])
        session.run(tf.compat.v1.global_variables_initializer())
        optimizer.skipped_steps = choice
        for value in (1.0, float("inf"), 1.0):
            session.run(updates, {factor: value})
        assert optimizer.skipped_steps == choice
        assert session.run(optimizer.inner_optimizer.iterations) == iterations


@pytest.mark.skipif(IS_KERAS_3, reason="it has no graph mode")
def test_a_checkpoint_in_a_graph(tmp_path):
    """A checkpoint carries the choice from graph to graph."""
    kind = "legacy" if "legacy" in OPTIMIZERS else "default"
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        optimizer = wrapped(kind, skipped_steps=OTHER)
        session.run(tf.compat.v1.global_variables_initializer())
        path = tf.train.Checkpoint(optimizer=optimizer).write(str(tmp_path / "file"))
        assert key_of(NAME) in keys_in(path)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        optimizer = wrapped(kind)
        session.run(tf.compat.v1.global_variables_initializer())
        assert optimizer.skipped_steps == NATIVE
        tf.train.Checkpoint(optimizer=optimizer).restore(path).run_restore_ops(session)
        assert optimizer.skipped_steps == OTHER
