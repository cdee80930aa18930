"""One profile per Keras generation: look-ups, configurations both ways, and the layouts of files."""

import numpy as np
import pytest

from scalekeeper import TranslationError
from scalekeeper.registry import known_targets, target
from scalekeeper.registry.errors import NameTakenError
from scalekeeper.serialization.keras._optimizer_config import (
    config_with_policy,
    decode_config,
    encode_config,
    encode_wrapper,
    has_loss_scale,
    inner_class,
    wrapper_class_names,
)
from scalekeeper.serialization.keras.profile import (
    OptimizerVariables,
    Reader,
    lists_learning_rate,
    profile,
    profile_for,
    profile_of_checkpoint,
    profiles,
    profiles_on,
    register_profile,
    skipped_steps_of_keras,
)
from scalekeeper.serialization.keras.target import KerasTarget

NAMES = ["tf_2_0_to_2_3", "optimizer_v2", "keras2_new_optimizers", "keras3"]
TARGETS = {"tf_2_0_to_2_3": "2.3", "optimizer_v2": "2.10", "keras2_new_optimizers": "2.15", "keras3": "keras3"}
FIXED = {"class_name": "FixedLossScale", "config": {"loss_scale_value": 128.0}}
PARAMETERS = {"initial_loss_scale": 1024.0, "increment_period": 3, "multiplier": 2.0}
DYNAMIC = {"class_name": "DynamicLossScale", "config": PARAMETERS}
DYNAMIC_4 = {"class_name": "DynamicLossScale", "config": {**PARAMETERS, "multiplier": 4.0}}
CUSTOM = {"class_name": "Custom", "config": {"start": 8.0}}
INNER = {"class_name": "SGD", "config": {"learning_rate": 0.5}}


# Look-ups


def test_the_four_generations():
    """The newest one is asked first."""
    assert [each.name for each in profiles()] == NAMES[::-1]


def test_a_name_is_registered_once():
    """A second profile of a name would hide the first."""
    with pytest.raises(NameTakenError):
        register_profile(profile("keras3"))


def test_profiles_are_immutable():
    """A generation does not change while a program runs."""
    with pytest.raises(AttributeError, match="inner_key"):
        profile("keras3").inner_key = "other"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("2.0", ["tf_2_0_to_2_3"]),
        ("2.3", ["tf_2_0_to_2_3"]),
        ("2.4", ["optimizer_v2"]),
        ("2.10", ["optimizer_v2"]),
        ("2.11", ["keras2_new_optimizers", "optimizer_v2"]),
        ("tf_keras", ["keras2_new_optimizers", "optimizer_v2"]),
        ("keras3", ["keras3"]),
    ],
)
def test_generations_of_a_target(name, expected):
    """Legacy optimizers exist beside the new ones until the end of Keras 2."""
    assert [each.name for each in profiles_on(target(name))] == expected
    assert profile_for(target(name)).name == expected[0]
    assert profile_for(target(name), "legacy").name == expected[-1]


def test_every_target_has_a_generation():
    """None of the tables of signatures is left out."""
    assert all(profiles_on(each) for each in known_targets())


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.2.4-tf", "hold"),
        ("2.3.0-tf", "hold"),
        ("2.4.0", "advance"),
        ("2.15.0", "advance"),
        ("3.0.0", "hold"),
        ("4.1", "hold"),
        ("2.2.4", None),
        ("1.9", None),
        ("three", None),
        ("", None),
        (None, None),
    ],
)
def test_what_a_skipped_step_did(version, expected):
    """By the Keras that a file names."""
    assert skipped_steps_of_keras(version) == expected


@pytest.mark.parametrize(("version", "expected"), [("2.15.0", False), ("3.2", True), ("4.0", True), (None, False)])
def test_where_the_learning_rate_is_listed(version, expected):
    """Among an optimizer's variables from Keras 3 on."""
    assert lists_learning_rate(version) is expected


@pytest.mark.parametrize(
    ("children", "expected"),
    [
        (("iter", "learning_rate"), "optimizer_v2"),
        (("_iterations", "_variables"), "keras2_new_optimizers"),
        (("_iterations", "_variables", "_trainable_variables"), "keras3"),
    ],
)
def test_generation_of_a_checkpoint(children, expected):
    """By the children of the inner optimizer; a tree of a model proves none."""
    assert profile_of_checkpoint(children).name == expected
    assert profile_of_checkpoint(("layer", "kernel")) is None


# Configurations


@pytest.mark.parametrize("policy", [FIXED, DYNAMIC, DYNAMIC_4, CUSTOM], ids=["fixed", "dynamic", "dynamic4", "custom"])
@pytest.mark.parametrize("name", NAMES)
def test_get_config_there_and_back(name, policy):
    """A configuration that scalekeeper encodes for itself is decoded to the same policy in every generation."""
    decoded = decode_config(encode_wrapper(profile(name), INNER, policy, "wrapper"))
    assert decoded.policy == policy
    assert (decoded.class_name, decoded.arguments) == ("SGD", {"learning_rate": 0.5})
    assert decoded.name == ("wrapper" if name == "keras3" else None)


NEWER_FIXED = {"dynamic": False, "initial_scale": 128.0, "dynamic_growth_steps": None}
NEWER_DYNAMIC = {"dynamic": True, "initial_scale": 1024.0, "dynamic_growth_steps": 3}


@pytest.mark.parametrize(
    ("name", "fixed", "dynamic"),
    [
        ("tf_2_0_to_2_3", {"loss_scale": FIXED}, {"loss_scale": DYNAMIC}),
        ("optimizer_v2", NEWER_FIXED, NEWER_DYNAMIC),
        ("keras2_new_optimizers", NEWER_FIXED, NEWER_DYNAMIC),
        ("keras3", {"loss_scale": FIXED}, {"initial_scale": 1024.0, "dynamic_growth_steps": 3}),
    ],
)
def test_keys_for_scalekeeper(name, fixed, dynamic):
    """The generation's own keys where they suffice; Keras 3 has none for a fixed scale of a wrapper."""
    for policy, expected in ((FIXED, fixed), (DYNAMIC, dynamic)):
        encoded = profile(name).encode_loss_scale(policy, Reader.SCALEKEEPER)
        assert (encoded.wrapper, encoded.inner, encoded.dropped) == (expected, {}, [])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tf_2_0_to_2_3", ({"loss_scale": FIXED}, {}, [])),
        ("optimizer_v2", (NEWER_FIXED, {}, [])),
        ("keras2_new_optimizers", (NEWER_FIXED, {}, [])),
        ("keras3", (None, {"loss_scale_factor": 128.0}, [])),
    ],
)
def test_a_fixed_scale_for_plain_keras(name, expected):
    """Keras 3 has it among the arguments of an optimizer without a wrapper."""
    assert tuple(profile(name).encode_loss_scale(FIXED, Reader.PLAIN_KERAS)) == expected


@pytest.mark.parametrize("name", NAMES)
def test_what_plain_keras_does_not_get(name):
    """Only the first generation keeps every policy; a parameter that is missing is an error."""
    for policy in (CUSTOM, DYNAMIC_4):
        encoded = profile(name).encode_loss_scale(policy, Reader.PLAIN_KERAS)
        assert bool(encoded.dropped) is (name != "tf_2_0_to_2_3")
    assert profile(name).encode_loss_scale(DYNAMIC_4, Reader.PLAIN_KERAS).wrapper is not None
    if name != "tf_2_0_to_2_3":
        incomplete = {"class_name": "DynamicLossScale", "config": {"initial_loss_scale": 8.0}}
        with pytest.raises(TranslationError, match="increment_period"):
            profile(name).encode_loss_scale(incomplete, Reader.PLAIN_KERAS)


@pytest.mark.parametrize("writer", NAMES)
@pytest.mark.parametrize("reader", NAMES)
def test_from_every_generation_to_every_other(writer, reader):
    """A fixed and a dynamic scale pass through the target's own configuration unchanged."""
    for policy in (FIXED, DYNAMIC):
        config = decode_config(encode_wrapper(profile(writer), INNER, policy))
        encoded = encode_config(KerasTarget(target(TARGETS[reader])), config)
        assert encoded.dropped == []
        assert encoded.profile in profiles_on(target(TARGETS[reader]))
        assert encoded.full_config is encoded.config
        assert decode_config(encoded.config).policy == policy


def test_names_of_wrappers():
    """The names of Keras's classes in every generation."""
    assert wrapper_class_names() == ["LossScaleOptimizer", "LossScaleOptimizerV1", "LossScaleOptimizerV3"]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"class_name": "LossScaleOptimizerV3", "config": {}}, True),
        ({"class_name": "Package>MyLossScaleOptimizer", "config": {}}, True),
        ({"class_name": "SGD", "config": {"loss_scale_factor": 8.0}}, True),
        ({"class_name": "SGD", "config": {"loss_scale_factor": None}}, False),
        ({"class_name": "Lookahead", "config": {"optimizer": INNER}}, False),
        (None, False),
    ],
)
def test_which_configurations_have_a_loss_scale(config, expected):
    """A class that wraps an optimizer for another purpose has none."""
    assert has_loss_scale(config) is expected


def test_a_policy_replaces_that_of_a_configuration():
    """A wrapper is replaced, with any keys; an optimizer without a wrapper gets one."""
    wrapper = {"class_name": "LossScaleOptimizer", "config": {"inner_optimizer": INNER, **NEWER_FIXED}}
    assert config_with_policy(wrapper, CUSTOM) == {"inner_optimizer": INNER, "loss_scale": CUSTOM}
    assert config_with_policy(wrapper, None) == wrapper["config"]
    assert config_with_policy(INNER, CUSTOM) == {"inner_optimizer": INNER, "loss_scale": CUSTOM}
    assert inner_class(wrapper) == "SGD"


# Layouts

VARIABLES = OptimizerVariables(
    "Adam",
    7,
    0.5,
    {"extra": 3.0},
    {"d/kernel": {"m": 1.0, "v": 2.0}, "d/bias": {"m": 10.0, "v": 20.0}},
    ["d/kernel", "d/bias"],
    {"good_steps": 4, "current_loss_scale": 16.0},
)
LEGACY_H5 = {
    "Adam/iter:0": 7,
    "Adam/extra:0": 3.0,
    "Adam/d/kernel/m:0": 1.0,
    "Adam/d/bias/m:0": 10.0,
    "Adam/d/kernel/v:0": 2.0,
    "Adam/d/bias/v:0": 20.0,
}
H5 = {
    "tf_2_0_to_2_3": LEGACY_H5,
    "optimizer_v2": LEGACY_H5,
    "keras2_new_optimizers": {
        "iteration:0": 7,
        "m/d/kernel:0": 1.0,
        "v/d/kernel:0": 2.0,
        "m/d/bias:0": 10.0,
        "v/d/bias:0": 20.0,
        "extra:0": 3.0,
    },
    "keras3": {
        "loss_scale_optimizer/iteration": 0,
        "loss_scale_optimizer/learning_rate": 0.0,
        "loss_scale_optimizer/step_counter": 4,
        "loss_scale_optimizer/dynamic_scale": 16.0,
        "adam/iteration": 7,
        "adam/learning_rate": 0.5,
        "loss_scale_optimizer/adam/d_kernel_momentum": 1.0,
        "loss_scale_optimizer/adam/d_kernel_velocity": 2.0,
        "loss_scale_optimizer/adam/d_bias_momentum": 10.0,
        "loss_scale_optimizer/adam/d_bias_velocity": 20.0,
        "adam/extra": 3.0,
    },
}


@pytest.mark.parametrize("name", NAMES)
def test_variables_of_an_h5_file(name):
    """Names, values and their order are the generation's own."""
    assert list(profile(name).h5_variables(VARIABLES)) == list(H5[name].items())


def test_a_bare_optimizer_of_keras_3_in_h5():
    """Without a wrapper its slots stand under its own name."""
    names = [name for name, _ in profile("keras3").h5_variables(VARIABLES._replace(loss_scale_state=None))]
    assert names[:3] == ["adam/iteration", "adam/learning_rate", "adam/d_kernel_momentum"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tf_2_0_to_2_3", None),
        ("optimizer_v2", None),
        ("keras2_new_optimizers", ([], [7, 1.0, 2.0, 10.0, 20.0])),
        ("keras3", ([0, 0.0, 4, 16.0], [7, 0.5, 1.0, 2.0, 10.0, 20.0, 3.0])),
    ],
)
def test_variables_of_a_keras_zip(name, expected):
    """Wrapper and inner optimizer as numbered lists; legacy optimizers have none."""
    assert profile(name).keras_zip_variables(VARIABLES) == expected


def test_dtypes_of_counters():
    """Iterations are int64, and scales are float32, as TensorFlow has them."""
    outer, inner = profile("keras3").keras_zip_variables(VARIABLES)
    assert [type(each) for each in outer] == [np.int64, np.float32, np.int64, np.float32]
    assert [type(each) for each in inner[:2]] == [np.int64, np.float32]


def test_frames_of_weight_lists():
    """The variables before and after the slots."""
    state = {"good_steps": "i", "current_loss_scale": "f"}
    frames = {
        name: [tuple(map(list, each)) for each in profile(name).weight_list_frames(["x"], state)] for name in NAMES
    }
    assert frames["optimizer_v2"] == frames["tf_2_0_to_2_3"] == [(["iterations", "x"], [])]
    assert frames["keras2_new_optimizers"] == [(["iterations"], []), (["iterations"], ["x"])]
    bare, wrapped = frames["keras3"]
    assert bare == (["iterations", "learning rate"], ["x"])
    assert wrapped[0][2:] == ["good_steps", "current_loss_scale", "iterations", "learning rate"]


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("tf_2_0_to_2_3", (2, 2), "base_optimizer"),
        ("tf_2_0_to_2_3", (2, 3), None),
        ("optimizer_v2", (2, 10), None),
        ("keras2_new_optimizers", (2, 15), None),
        ("keras3", (2, 21), "inner_optimizer"),
    ],
)
def test_the_inner_optimizer_in_a_checkpoint(name, version, expected):
    """It is a child of the wrapper up to 2.2 and in Keras 3; a fixed scale has a child up to 2.2 only."""
    assert profile(name).inner_child(version) == expected
    assert profile(name).writes_loss_scale_child(version, has_state=False) is (version < (2, 3))


@pytest.mark.parametrize(
    ("name", "modules", "keras_zip", "group", "functional"),
    [
        ("2.3", False, False, "_layer_checkpoint_dependencies", "Model"),
        ("2.11", False, False, "_layer_checkpoint_dependencies", "Model"),
        ("2.12", True, False, "_layer_checkpoint_dependencies", "Functional"),
        ("2.13", True, True, "_layer_checkpoint_dependencies", "Functional"),
        ("2.15", True, True, "layers", "Functional"),
        ("keras3", True, True, "layers", "Functional"),
    ],
)
def test_models_of_a_target(name, modules, keras_zip, group, functional):
    """Capabilities of a target's Keras."""
    keras = KerasTarget(target(name))
    assert (keras.writes_modules, keras.reads_keras_zip, keras.keras_zip_layers_group) == (modules, keras_zip, group)
    assert keras.model_config_rules.functional_class_name == functional
    assert keras.skipped_steps == ("hold" if name == "keras3" else "advance")
    assert keras.package == "keras"
    assert KerasTarget(target("tf_keras")).package == "tf_keras"
