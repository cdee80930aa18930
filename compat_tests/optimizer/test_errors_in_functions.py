"""Errors that are raised while a function is traced."""

import pytest
import tensorflow as tf

from scalekeeper import ArgumentError, LossScaleOptimizer, WrongArgumentError


@pytest.mark.parametrize(
    ("pairs", "error", "built_in"),
    [
        (lambda variable: [(None, variable)], ArgumentError, ValueError),
        (lambda variable: [variable], WrongArgumentError, TypeError),
    ],
)
def test_a_traced_function_raises_the_class_that_an_eager_step_raises(pairs, error, built_in):
    """AutoGraph passes the error on in its own class, so that ``except ValueError`` catches it as well."""
    optimizer = LossScaleOptimizer(tf.keras.optimizers.SGD(0.5))
    variable = tf.Variable(1.0)

    def step():
        if variable is not None:  # AutoGraph converts the function
            optimizer.apply_gradients(pairs(variable))

    for function in (step, tf.function(step)):
        with pytest.raises(built_in) as caught:
            function()
        assert type(caught.value) is error
