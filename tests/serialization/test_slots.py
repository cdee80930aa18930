"""Which slot a name stands for, in every Keras generation."""

import pytest

from scalekeeper.serialization.keras._optimizer_config import inner_class
from scalekeeper.serialization.keras._slots import (
    attribute_names,
    class_of_parts,
    ending_part,
    owner_and_slot,
    scalar_name,
    slot_of_part,
)

OWNERS = ["tiny/d1/kernel", "d1/kernel", "d1/bias", "kernel"]


@pytest.mark.parametrize(
    ("name", "class_name", "expected"),
    [
        ("Adam/d1/kernel/m", "Adam", ("d1/kernel", "m")),
        ("Adam/d1/kernel/vhat", "Adam", ("d1/kernel", "vhat")),
        ("training/LossScaleOptimizer/SGD/d1/bias/momentum", "SGD", ("d1/bias", "momentum")),
        ("RMSprop/tiny/d1/kernel/rms", "RMSprop", ("tiny/d1/kernel", "rms")),
        ("m/d1/kernel", "Adam", ("d1/kernel", "m")),
        ("Adam/v/d1/kernel", "Adam", ("d1/kernel", "v")),
        ("m/d1/kernel", "SGD", ("d1/kernel", "momentum")),
        ("velocity/d1/kernel", "RMSprop", ("d1/kernel", "rms")),
        ("average_gradient/d1/bias", "RMSprop", ("d1/bias", "mg")),
        ("u/d1/kernel", "Adamax", ("d1/kernel", "v")),
        ("adam/d1_kernel_momentum", "Adam", ("d1/kernel", "m")),
        ("loss_scale_optimizer/adam/tiny_d1_kernel_velocity", "Adam", ("tiny/d1/kernel", "v")),
        ("rmsprop/d1_kernel_velocity", "RMSprop", ("d1/kernel", "rms")),
        ("sgd/d1_kernel_momentum", "SGD", ("d1/kernel", "momentum")),
        ("adadelta/d1_bias_accumulated_delta_var", "Adadelta", ("d1/bias", "accum_var")),
        ("adam/d1_kernel_gradient_accumulator", "Adam", ("d1/kernel", "gradient_accumulator")),
        ("Mine/d1/kernel/wobble", "Mine", ("d1/kernel", "wobble")),
        ("Adam/iter", "Adam", None),
        ("iteration", "Adam", None),
        ("adam/learning_rate", "Adam", None),
        ("Nadam/momentum_cache", "Nadam", None),
    ],
)
def test_owner_and_slot(name, class_name, expected):
    """Names of legacy, new and Keras 3's optimizers give the same owner and slot; what is not a slot gives none."""
    assert owner_and_slot(name, class_name, OWNERS) == expected


def test_an_equal_word_is_another_slot_in_another_class():
    """A momentum is Adam's m and RMSprop's momentum; a velocity is Adam's v and RMSprop's rms."""
    words = ("momentum", "velocity")
    assert [slot_of_part(word, "Adam") for word in words] == ["m", "v"]
    assert [slot_of_part(word, "RMSprop") for word in words] == ["momentum", "rms"]
    assert slot_of_part("velocity", "SGD") is None


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["m"], "SGD"),
        (["momentum", "momentum"], "SGD"),
        (["m", "v", "m", "v"], "Adam"),
        (["momentum", "velocity", "momentum", "velocity"], "Adam"),
        (["m", "v", "vhat"], "Adam"),
        (["velocity", "velocity"], "RMSprop"),
        (["velocity", "momentum"], "RMSprop"),
        (["velocity", "average_gradient"], "RMSprop"),
        (["m", "u"], "Adamax"),
        (["momentum", "norm"], "Adamax"),
        (["accumulator"], "Adagrad"),
        (["accumulator", "linear"], "Ftrl"),
        (["average", "m"], "SGD"),
        (["wobble"], None),
        ([], None),
    ],
)
def test_the_order_of_words_tells_the_class(words, expected):
    """A file that does not name the class shows it by what its variables are called, and which comes first."""
    assert class_of_parts(words) == expected


def test_attributes_are_those_of_the_first_known_class():
    """A custom class has what its base has."""
    assert attribute_names(["MyAdam", "Adam", "Optimizer"])["m"] == ("_momentums", "momentums")
    assert set(attribute_names(["Mine", "object"])) == {"average", "gradient_accumulator"}


def test_ending_part():
    """The longest word counts."""
    assert ending_part("tiny_d1_kernel_velocity_hat") == "velocity_hat"
    assert ending_part("tiny_d1_kernel_accumulated_grad") == "accumulated_grad"
    assert ending_part("iteration") is None


@pytest.mark.parametrize(
    "config",
    [
        {"class_name": "Adam", "config": {}},
        {"class_name": "LossScaleOptimizer", "config": {"optimizer": {"class_name": "Adam", "config": {}}}},
        {
            "class_name": "LossScaleOptimizerV3",
            "config": {"inner_optimizer": {"class_name": "Custom>Adam", "config": {}}},
        },
    ],
)
def test_inner_class(config):
    """The class of the innermost optimizer, in the words of any version."""
    assert inner_class(config) == "Adam"


@pytest.mark.parametrize("config", [None, {}, {"class_name": 3}, [], {"config": {"optimizer": "sgd"}}])
def test_inner_class_of_nothing(config):
    """A configuration without a class gives none."""
    assert inner_class(config) is None


def test_an_endless_config_ends():
    """A document can't do that, a mapping in memory can."""
    config = {"class_name": "LossScaleOptimizer", "config": {}}
    config["config"]["optimizer"] = config
    assert inner_class(config) == "LossScaleOptimizer"


def test_nadams_product_has_one_name():
    """Legacy, new and Keras 3."""
    assert {scalar_name(name) for name in ("Nadam/momentum_cache", "_u_product", "_m_cache")} == {"momentum_cache"}
