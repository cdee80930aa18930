"""none with apply_after_skips beside the real optax.apply_if_finite."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest


def theirs(gradients, errors):
    """Whether each step was applied: whether the inner transformation's own counter moved."""
    counting = optax.GradientTransformation(
        lambda params: jnp.int32(0), lambda updates, state, params=None: (updates, state + 1)
    )
    transformation = optax.apply_if_finite(counting, errors)
    start = transformation.init(jnp.float32(0))

    def step(state, gradient):
        _, following = transformation.update(gradient, state)
        return following, following.inner_state != state.inner_state

    applied = jax.jit(lambda: jax.lax.scan(step, start, jnp.asarray(gradients)))()[1]
    return [bool(each) for each in np.asarray(applied)]


@pytest.mark.parametrize("errors", [0, 1, 3])
def test_the_real_apply_if_finite(sequence, ours, errors):
    """The same decision at each of 5,000 steps."""
    _, gradients = sequence
    spec = {"name": "none", "skip_nonfinite": True, "apply_after_skips": errors}
    actual = [applied for _, applied in ours(spec, gradients)]
    assert actual == theirs(gradients, errors)
    assert sum(applied for applied, gradient in zip(actual, gradients) if not np.isfinite(gradient)) > 0
