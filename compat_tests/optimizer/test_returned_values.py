"""The results of ``apply_gradients``, ``minimize`` and ``apply``: in eager mode, from a tf.function, to a session."""

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper_test_support.installed_keras import IS_KERAS_3, upstream


def wrapped(optimizers, is_ours=True):
    inner = optimizers.SGD(1.0)
    parameters = {"initial_loss_scale": 8.0}
    return (
        scalekeeper.LossScaleOptimizer(inner, {"name": "dynamic", **parameters})
        if is_ours
        else upstream(inner, parameters)
    )


def apply(optimizer, variable):
    return optimizer.apply_gradients([(tf.constant(1.0), variable)])


def minimize(optimizer, variable):
    return optimizer.minimize(lambda: 1.0 * variable, [variable])


def scaled_apply(optimizer, variable):
    optimizer.scale_loss(tf.constant(1.0))
    return optimizer.apply([tf.constant(8.0)], [variable])


STEPS = {"apply_gradients": apply, "minimize": minimize, **({"apply": scaled_apply} if IS_KERAS_3 else {})}


def in_a_function(optimizer, variable, step):
    step(optimizer, variable)  # creates the variables
    return tf.function(lambda: step(optimizer, variable), autograph=False)()


def kind(run, *arguments):
    """The type of what a function returns, or of what it raises; variables of different kinds are all variables."""
    try:
        result = run(*arguments)
    except TypeError as error:
        return type(error)
    return "variable" if hasattr(result, "assign") else type(result)


@pytest.mark.parametrize("name", sorted(STEPS))
def test_a_step_returns_what_it_returns_in_tensorflows_class(optimizers, name):
    """The type in eager mode and from a tf.function is that of the installed version's own class."""
    step, other = STEPS[name], STEPS["apply_gradients" if IS_KERAS_3 and name == "minimize" else name]
    ours, own = wrapped(optimizers), wrapped(optimizers, is_ours=False)
    assert kind(step, ours, tf.Variable(1.0)) == kind(other, own, tf.Variable(1.0))
    ours, own = wrapped(optimizers), wrapped(optimizers, is_ours=False)
    assert kind(in_a_function, ours, tf.Variable(1.0), step) == kind(in_a_function, own, tf.Variable(1.0), other)


@pytest.mark.parametrize("name", sorted(STEPS))
def test_a_step_in_a_function_is_taken_whatever_it_returns(optimizers, name):
    """A tf.function that returns the result, or ignores it, takes one step at each call."""
    optimizer, variable, step = wrapped(optimizers), tf.Variable(1.0), STEPS[name]
    step(optimizer, variable)
    traced = tf.function(lambda: (step(optimizer, variable), None)[1], autograph=False)
    traced()
    traced()
    assert float(variable.numpy()) == -2.0
    if not hasattr(optimizer.inner_optimizer, "get_slot"):  # the result of others is an operation, as in Keras's class
        result = tf.function(lambda: step(optimizer, variable), autograph=False)()
        assert float(variable.numpy()) == -3.0
        assert result is None or int(result) == int(optimizer.iterations.numpy()) == 4


@pytest.mark.parametrize("name", sorted(STEPS))
def test_branches_of_a_conditional_may_return_a_step(optimizers, name):
    """``tf.cond`` in a tf.function takes the step as one branch, and something else of the same kind as the other."""
    optimizer, variable, step = wrapped(optimizers), tf.Variable(1.0), STEPS[name]
    step(optimizer, variable)
    is_operation = hasattr(optimizer.inner_optimizer, "get_slot")

    @tf.function
    def maybe(condition):
        tf.cond(condition, lambda: _result(step(optimizer, variable)), lambda: tf.no_op() if is_operation else None)

    def _result(result):
        return result if is_operation else None

    maybe(tf.constant(False))
    maybe(tf.constant(True))
    assert float(variable.numpy()) == -1.0


@pytest.mark.parametrize("name", sorted(STEPS))
def test_a_session_runs_what_a_step_returns(optimizers, name):
    """In a graph of TensorFlow 1 the result is an operation: a session that runs it takes the step."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        optimizer, variable = wrapped(optimizers), tf.Variable(1.0)
        step = STEPS[name](optimizer, variable)
        assert isinstance(step, tf.Operation)
        session.run(tf.compat.v1.global_variables_initializer())
        for _ in range(2):
            session.run(step)
        assert session.run([variable, optimizer.loss_scale]) == [-1.0, np.float32(8.0)]


@pytest.mark.parametrize(("is_traced", "is_autograph"), [(False, False), (True, False), (True, True)])
def test_the_decision_is_returned_as_a_tensor(optimizers, is_traced, is_autograph):
    """With ``return_decision``, ``apply_gradients`` returns whether it applied, in every mode and with any policy."""
    for policy, expected in (({"name": "dynamic"}, [True, False, True]), (16.0, [True, True, True])):
        optimizer, variable = scalekeeper.LossScaleOptimizer(optimizers.SGD(1.0), policy), tf.Variable(0.0)

        def step(grad, optimizer=optimizer, variable=variable):
            return optimizer.apply_gradients([(grad, variable)], return_decision=True)

        step, found = tf.function(step, autograph=is_autograph) if is_traced else step, []
        for grad in (1.0, float("inf"), 1.0):
            decision = step(tf.constant(grad))
            assert tf.is_tensor(decision)
            found.append(bool(decision.numpy()))
        assert found == expected
    assert not optimizer.apply_gradients([], return_decision=True).numpy()


def test_a_session_takes_the_step_of_a_decision(optimizers):
    """In a graph of TensorFlow 1, fetching the decision takes the step."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        optimizer, variable = wrapped(optimizers), tf.Variable(0.0)
        grad = tf.compat.v1.placeholder(tf.float32, [])
        decision = optimizer.apply_gradients([(grad, variable)], return_decision=True)
        session.run(tf.compat.v1.global_variables_initializer())
        found = [(session.run(decision, {grad: value}), session.run(variable)) for value in (1.0, float("inf"), 1.0)]
    assert found == [(True, -1.0), (False, -1.0), (True, -2.0)]
