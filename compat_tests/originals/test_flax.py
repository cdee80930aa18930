"""dynamic/flax beside the real flax.training.dynamic_scale.DynamicScale."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.training.dynamic_scale import DynamicScale

from scalekeeper import resolve


def theirs(dynamic_scale, gradients, room):
    """The scale before each step, and whether its gradient was finite: all steps in one compiled loop."""

    def step(dynamic_scale, gradient):
        is_bad = ~jnp.isfinite(gradient) | (dynamic_scale.scale > room)
        gradient = jnp.where(is_bad, jnp.inf, gradient)
        gradient_function = dynamic_scale.value_and_grad(lambda weight: weight * gradient)
        following, finite, _, _ = gradient_function(jnp.float32(1))
        return following, (dynamic_scale.scale, finite)

    scales, finite = jax.jit(lambda start: jax.lax.scan(step, start, jnp.asarray(gradients)))(dynamic_scale)[1]
    return [(float(scale), bool(is_finite)) for scale, is_finite in zip(np.asarray(scales), np.asarray(finite))]


def started(**arguments):
    """With arrays for what changes, so that a compiled loop can carry it."""
    made = DynamicScale(**arguments)
    return made.replace(fin_steps=jnp.int32(made.fin_steps), scale=jnp.float32(made.scale))


def test_the_real_dynamic_scale(sequence, ours):
    """The same scale and the same decision at each of 5,000 steps; its interval is one less than our period."""
    number, gradients = sequence
    spec = {"name": "dynamic/flax", "increment_period": 9 + number}
    assert ours(spec, gradients) == theirs(started(growth_interval=8 + number), gradients, 2.0**26)


def test_up_to_the_largest_number(ours):
    """Growth that would go beyond float32 ends at its largest number."""
    gradients, policy = np.ones(300, np.float32), {"name": "dynamic/flax", "increment_period": 2}
    scales = [scale for scale, _ in theirs(started(growth_interval=1), gradients, np.inf)]
    loss_scale = resolve(policy)
    actual = []
    for _ in gradients:
        actual.append(float(loss_scale()))
        loss_scale.update([1.0])
    assert actual == scales
    assert actual[-1] == float(np.finfo(np.float32).max)


@pytest.mark.parametrize(
    ("theirs_name", "expected"),
    [
        ("scale", "initial_loss_scale"),
        ("growth_factor", "multiplier"),
        ("minimum_scale", "minimum"),
    ],
)
def test_the_defaults_are_those_of_the_class(theirs_name, expected):
    """Taken from the installed library; the interval has one more step than it says."""
    params = resolve("dynamic/flax").params
    assert float(getattr(DynamicScale(), theirs_name)) == getattr(params, expected)
    assert DynamicScale().growth_interval + 1 == params.increment_period
