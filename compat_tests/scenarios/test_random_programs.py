"""Random programs with layers of equal shapes, renamed, reordered, frozen, numbered anew: no value is swapped."""

import os
import tempfile

import hypothesis
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from scalekeeper_test_support import program_scenarios as scenarios
from scalekeeper_test_support.random_architectures import has_one_order, is_decidable, two_programs

pytestmark = pytest.mark.slow


class Conv2d(tf.keras.layers.Dense):
    """A layer of a second class, of which Keras makes the name ``conv2d``."""


CLASSES = {"dense": tf.keras.layers.Dense, "conv2d": Conv2d}
FORMATS = scenarios.formats("checkpoint", "h5", "keras", "saved_model", "npz")


def momentum():
    return scenarios.wrapped(tf.keras.optimizers.SGD(0.1, momentum=0.9))


def build(side, kind, frozen):
    """Make the layers in one order and call them in another, after others that only count."""
    for stem, count in side.offset.items():
        for _ in range(count):
            CLASSES[stem](scenarios.WIDTH)
    by_identity = {layer.identity: layer for layer in side.layers}
    made = {}
    for identity in side.made:
        layer = by_identity[identity]
        named = {} if layer.name is None else {"name": layer.name}
        made[identity] = CLASSES[layer.stem](scenarios.WIDTH, trainable=identity not in frozen, **named)
    parts = {f"layer{layer.identity}": made[layer.identity] for layer in side.layers}
    return scenarios.program(scenarios.model_of(kind, parts), parts, momentum())


@hypothesis.settings(max_examples=int(os.environ.get("SCALEKEEPER_EXAMPLES", "20")), deadline=None)
@hypothesis.given(
    two_programs(),
    st.sampled_from(["sequential", "functional", "subclassed"]),
    st.sampled_from(FORMATS),
    st.sets(st.integers(0, 11), max_size=3),
    st.sets(st.integers(0, 11), max_size=3),
)
def test_no_value_of_a_random_program_is_swapped(both, kind, form, frozen, frozen_later):
    """Restored state equals the original to the bit, or is refused, however the program has changed."""
    first, second = both
    hypothesis.assume(is_decidable(first, second))
    hypothesis.assume(kind != "subclassed" or form != "h5")  # Keras writes no such file
    # at least one layer is trained
    hypothesis.assume(not {each.identity for each in first.layers} <= frozen)
    hypothesis.assume(not {each.identity for each in second.layers} <= frozen_later)
    with tempfile.TemporaryDirectory() as folder:
        result = scenarios.run(
            lambda: build(first, kind, frozen), lambda: build(second, kind, frozen_later), form, folder
        )
    hypothesis.event(result.outcome)
    assert result.outcome not in scenarios.BAD, result
    if first.layers == second.layers and frozen == frozen_later and has_one_order(first, second):
        assert result.outcome == "equal", result
