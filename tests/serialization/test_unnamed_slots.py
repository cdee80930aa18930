"""Which slots an optimizer lists, in which order, and which variables were trained."""

import numpy as np
import pytest

from scalekeeper.serialization._unnamed_slots import _Layout, _trained
from scalekeeper.serialization.keras.keras2_new_optimizers import KERAS_2_NEW_OPTIMIZERS
from scalekeeper.serialization.keras.keras3 import KERAS_3_PROFILE
from scalekeeper.serialization.training_state import TrainingState, Value, Writer

KERNEL, BIAS = (3, 4), (4,)
SHAPES = {"a/0": KERNEL, "a/1": BIAS}


def names(profile, class_name, **arguments):
    return [f"{owner}:{slot}" for owner, slot, _ in _Layout(profile, class_name, arguments).slots(SHAPES)]


@pytest.mark.parametrize(
    ("class_name", "arguments", "keras_2", "keras_3"),
    [
        ("SGD", {"momentum": 0.0}, ["a/0:momentum", "a/1:momentum"], []),
        ("SGD", {"momentum": 0.5}, ["a/0:momentum", "a/1:momentum"], ["a/0:momentum", "a/1:momentum"]),
        ("Nadam", {}, ["a/0:m", "a/0:v", "a/1:m", "a/1:v"], ["a/0:m", "a/0:v", "a/1:m", "a/1:v"]),
        ("RMSprop", {"centered": True}, ["a/0:rms", "a/1:rms", "a/0:mg", "a/1:mg"], None),
        (
            "Adafactor",
            {},
            ["a/0:r", "a/0:c", "a/0:v", "a/1:v"],
            ["a/0:r", "a/0:c", "a/0:v", "a/1:r", "a/1:c", "a/1:v"],
        ),
        ("SGD", {"momentum": 0, "use_ema": True}, None, ["a/0:average", "a/1:average"]),
    ],
)
def test_the_slots_that_an_optimizer_lists(class_name, arguments, keras_2, keras_3):
    """Slots and order are those that were measured on TensorFlow 2.15 and on Keras 3."""
    assert keras_2 is None or names(KERAS_2_NEW_OPTIMIZERS, class_name, **arguments) == keras_2
    assert keras_3 is None or names(KERAS_3_PROFILE, class_name, **arguments) == keras_3


def test_a_class_of_the_user_is_unknown():
    """Nothing is assumed about its slots."""
    assert _Layout(KERAS_3_PROFILE, "Mine", {}).slots(SHAPES) is None


def state_of(shapes, frozen=None):
    """Return a state with a list of momenta of these shapes, and a configuration unless ``frozen`` is None."""
    layers = [{"class_name": "Dense", "config": {"name": name, "trainable": name != frozen}} for name in "abc"]
    config = None if frozen is None else {"class_name": "Functional", "config": {"layers": layers}}
    values = [Value.of(np.int64(2)), *(Value.of(np.zeros(shape)) for shape in shapes)]
    return TrainingState(Writer("keras", keras="2.15.0"), model_config=config, weight_list=values)


@pytest.mark.parametrize(
    ("listed", "frozen", "expected"),
    [
        ([KERNEL, KERNEL], "b", ["a/0", "c/0"]),  # as in the configuration
        ([KERNEL, KERNEL, KERNEL], "b", ["a/0", "b/0", "c/0"]),  # frozen after the training
        ([KERNEL, KERNEL, KERNEL], None, ["a/0", "b/0", "c/0"]),
        ([KERNEL, KERNEL], None, None),  # any two of three
        ([KERNEL], "b", None),
    ],
)
def test_the_trained_variables(listed, frozen, expected):
    """The configuration decides, or the shapes if they allow one answer; otherwise there is none."""
    possible = {"a/0": KERNEL, "b/0": KERNEL, "c/0": KERNEL}
    layout = _Layout(KERAS_2_NEW_OPTIMIZERS, "SGD", {"momentum": 0.5})
    assert _trained(state_of(listed, frozen), layout, possible) == expected
