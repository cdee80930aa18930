"""Optimizer configurations of every Keras are decoded, and their arguments are translated for another one."""

import json
import os
import re

import numpy as np
import pytest

from scalekeeper import TranslationError
from scalekeeper.registry import known_targets
from scalekeeper.serialization.keras._optimizer_config import (
    Constructor,
    OptimizerConfig,
    decode_config,
    translated_arguments,
)
from scalekeeper.serialization.keras.profile import KERAS_3, LEGACY, NEW, UNKNOWN

with open(os.path.join(os.path.dirname(__file__), "data", "optimizer_configs.json"), encoding="utf-8") as stream:
    CONFIGS = json.load(stream)

FIXED = {"class_name": "FixedLossScale", "config": {"loss_scale_value": 128.0}}


def dynamic(multiplier=2.0):
    config = {"initial_loss_scale": 1024.0, "increment_period": 3, "multiplier": multiplier}
    return {"class_name": "DynamicLossScale", "config": config}


# policy, family, skipped_steps and name of each
EXPECTED = {
    "2.0 fixed": (FIXED, LEGACY, None, None),
    "2.0 dynamic": (dynamic(), LEGACY, None, None),
    "2.0 custom": ({"class_name": "MyLossScale", "config": {"start": 1024.0}}, LEGACY, None, None),
    "2.4 experimental dynamic": (dynamic(), LEGACY, None, None),
    "2.4 fixed": (FIXED, LEGACY, None, None),
    "2.4 dynamic": (dynamic(), LEGACY, None, None),
    "2.10 experimental dynamic": (dynamic(), NEW, None, None),
    "2.15 legacy dynamic": (dynamic(), LEGACY, None, None),
    "2.15 dynamic": (dynamic(), NEW, None, None),
    "tf_keras dynamic": (dynamic(), NEW, None, None),
    "Keras 3 fixed": (FIXED, KERAS_3, None, None),
    "Keras 3 dynamic": (dynamic(), KERAS_3, None, "loss_scale_optimizer"),
    "ours, 2.3, multiplier 4": (dynamic(4.0), LEGACY, "hold", None),
    "ours, Keras 3, multiplier 4": (dynamic(4.0), KERAS_3, "advance", "loss_scale_optimizer"),
}
OPTIMIZER_V2 = {"learning_rate", "momentum", "nesterov", "name", "clipnorm", "clipvalue", "decay", "lr"}
NEW_OPTIMIZER = {
    *("learning_rate", "momentum", "nesterov", "name", "clipnorm", "clipvalue", "global_clipnorm"),
    *("weight_decay", "use_ema", "ema_momentum", "ema_overwrite_frequency", "jit_compile"),
}
KERAS_3_OPTIMIZER = NEW_OPTIMIZER - {"jit_compile"} | {"loss_scale_factor", "gradient_accumulation_steps"}
ACCEPTED = {"OptimizerV2": OPTIMIZER_V2, "new": NEW_OPTIMIZER, "Keras 3": KERAS_3_OPTIMIZER}
DECAY = {"initial_learning_rate", "decay_steps", "decay_rate", "staircase", "name"}
COSINE = {"initial_learning_rate", "decay_steps", "alpha", "name"}


# the arguments of a bare optimizer, its inner form, do not name its class
FORMS = [(name, "outer") for name in sorted(CONFIGS)]
FORMS += [(name, "inner") for name in sorted(CONFIGS) if CONFIGS[name]["class_name"] != "SGD"]


def schedules(name):
    return {"InverseTimeDecay": DECAY, "ExponentialDecay": DECAY, "CosineDecay": COSINE}.get(name)


def arguments(given, accepted=NEW_OPTIMIZER, class_name="SGD", defaults=None, family=UNKNOWN):
    return translated_arguments(class_name, given, family, Constructor(accepted, defaults or {}, schedules))


def test_every_config_has_an_expectation():
    """None is forgotten."""
    assert set(EXPECTED) == set(CONFIGS)


@pytest.mark.parametrize(("writer", "form"), FORMS)
def test_every_writer_is_read(writer, form):
    """The inner optimizer, its arguments, the policy and the family, from either form of each version's config."""
    config = CONFIGS[writer]
    policy, family, skipped_steps, name = EXPECTED[writer]
    if form == "inner":
        config = config["config"]
    found = decode_config(config)
    assert found.class_name == "SGD"
    assert found.arguments["learning_rate"] == pytest.approx(1e-4)
    assert found.arguments["momentum"] == 0.9
    assert (found.policy, found.family, found.skipped_steps, found.name) == (policy, family, skipped_steps, name)


@pytest.mark.parametrize("target", sorted(ACCEPTED))
@pytest.mark.parametrize("writer", sorted(CONFIGS))
def test_every_writer_reaches_every_generation(writer, target):
    """The remaining arguments are those that the constructor accepts, and those that change training."""
    config = decode_config(CONFIGS[writer])
    found = arguments(config.arguments, ACCEPTED[target], config.class_name, family=config.family)
    assert set(found) <= ACCEPTED[target]
    assert found["learning_rate"] == pytest.approx(1e-4)
    assert (found["momentum"], found["nesterov"]) == (0.9, False)
    assert "decay" not in found


def test_a_bare_optimizer_has_no_policy():
    """Nor has its family to be known."""
    found = decode_config({"class_name": "Adam", "config": {"learning_rate": 0.5}})
    assert found == OptimizerConfig("Adam", {"learning_rate": 0.5}, None, None, None, UNKNOWN)


def test_a_wrapper_without_any_word_for_its_scale():
    """A loss_scale_factor inside is its scale; without one, the scale is dynamic with its defaults."""
    inner = CONFIGS["Keras 3 fixed"]
    found = decode_config({"inner_optimizer": inner})
    assert found.policy == FIXED
    assert "loss_scale_factor" not in found.arguments
    assert decode_config({"inner_optimizer": {"class_name": "SGD", "config": {}}}).policy == {
        "class_name": "DynamicLossScale",
        "config": {"multiplier": 2.0},
    }


@pytest.mark.parametrize(
    ("class_name", "registered_name", "expected"),
    [
        ("Custom>Adam", None, "Adam"),
        ("keras>Adam", None, "Adam"),
        ("Custom>Mine", None, "Custom>Mine"),
        ("Mine", "Custom>Mine", "Mine"),
        ("Mine", "Package>Mine", "Package>Mine"),
        ("Adam", "Package>Adam", "Package>Adam"),
        ("Package>Mine", None, "Package>Mine"),
        ("Adam", "Adam", "Adam"),
    ],
)
def test_names_of_classes(class_name, registered_name, expected):
    """Keras's own lose what is put before them; those of users keep the name they are registered under."""
    config = {"class_name": class_name, "config": {}, "registered_name": registered_name}
    assert decode_config({"inner_optimizer": config}).class_name == expected


def test_families_of_optimizers_that_do_not_tell():
    """A user's optimizer may have no telling argument: then the wrapper tells."""
    inner = {"class_name": "Mine", "config": {"learning_rate": 0.5}}
    newer = {"inner_optimizer": inner, "dynamic": True, "initial_scale": 8.0, "dynamic_growth_steps": 3}
    seen = [
        decode_config({"class_name": "LossScaleOptimizerV3", "config": newer}).family,
        decode_config({"class_name": "LossScaleOptimizerV1", "config": newer}).family,
        decode_config({"class_name": "LossScaleOptimizer", "config": newer}).family,
        decode_config({"optimizer": inner, "loss_scale": FIXED}).family,
        decode_config(
            {"class_name": "LossScaleOptimizer", "config": {"inner_optimizer": inner}, "module": "keras.optimizers"}
        ).family,
        decode_config({"inner_optimizer": inner}).family,
    ]
    assert seen == [NEW, LEGACY, LEGACY, LEGACY, KERAS_3, UNKNOWN]


def test_an_object_in_a_config():
    """It is handed on as it is."""
    optimizer = object()
    found = decode_config({"inner_optimizer": optimizer, "dynamic": False, "initial_scale": 128.0})
    assert found.optimizer is optimizer
    assert found.policy == FIXED


def test_configs_that_are_none():
    """Errors that say what is missing."""
    with pytest.raises(TranslationError, match="holds no optimizer"):
        decode_config({"class_name": "LossScaleOptimizer", "config": {"dynamic": True}})
    with pytest.raises(TranslationError, match="initial_scale is missing"):
        decode_config({"inner_optimizer": {"class_name": "SGD", "config": {}}, "dynamic": False})


# Arguments


def test_lr_is_the_learning_rate():
    """And wins over it, as in the constructors that have both."""
    assert arguments({"lr": 0.5, "learning_rate": 0.25}) == {"learning_rate": 0.5}


@pytest.mark.parametrize("given", [{"learning_rate": 0.5, "decay": 0.25}, {"lr": 0.5, "decay": np.float32(0.25)}])
def test_decay_becomes_a_schedule(given):
    """Where the constructor has no decay; where it has, it stays."""
    words = {"initial_learning_rate": 0.5, "decay_steps": 1, "decay_rate": 0.25}
    assert arguments(given) == {"learning_rate": {"class_name": "InverseTimeDecay", "config": words}}
    assert arguments(given, OPTIMIZER_V2) == {"learning_rate": 0.5, "decay": 0.25}


def test_decay_of_the_default_rate():
    """A configuration without a learning rate means the constructor's."""
    found = arguments({"decay": 0.25}, defaults={"learning_rate": 0.01})
    assert found["learning_rate"]["config"]["initial_learning_rate"] == 0.01


def test_decay_of_a_schedule():
    """Both together have no words where there is no decay."""
    rate = {"class_name": "ExponentialDecay", "config": {"initial_learning_rate": 0.5}}
    with pytest.raises(TranslationError, match="decay=0.25 together with a learning-rate schedule"):
        arguments({"learning_rate": rate, "decay": 0.25})
    assert arguments({"learning_rate": rate, "decay": 0.0}) == {"learning_rate": rate}


def test_nadams_own_decay():
    """It is the momentum's: 0.004 unless schedule_decay was given, and 1 for new optimizers, without a word for it."""
    assert arguments({"decay": 0.004}, OPTIMIZER_V2, "Nadam") == {}
    assert arguments({"decay": 0.5}, OPTIMIZER_V2, "Nadam") == {"schedule_decay": 0.5}
    assert arguments({}, OPTIMIZER_V2, "Nadam", family=NEW) == {"schedule_decay": 1.0}
    assert arguments({"decay": 1.0}, class_name="Nadam") == {}
    for decay in (0.004, 0.5):
        with pytest.raises(TranslationError, match=f"decay={decay} of the momentum"):
            arguments({"decay": decay}, class_name="Nadam")


NEUTRAL = {
    "weight_decay": None,
    "clipnorm": None,
    "clipvalue": None,
    "global_clipnorm": None,
    "gradient_accumulation_steps": None,
    "loss_scale_factor": None,
    "jit_compile": True,
    "is_legacy_optimizer": False,
    "name": "sgd",
    "use_ema": False,
    "ema_momentum": 0.5,
    "ema_overwrite_frequency": 7,
}


def test_what_says_nothing_is_left_out():
    """Where the constructor does not have it."""
    assert arguments({"learning_rate": 0.5, **NEUTRAL}, {"learning_rate"}) == {"learning_rate": 0.5}


def test_what_the_constructor_has_stays():
    """An argument is kept with any value; but not null for no clipping, which the oldest constructors refuse."""
    found = arguments(NEUTRAL, set(NEUTRAL))
    assert found == {name: value for name, value in NEUTRAL.items() if not name.endswith(("norm", "value"))}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("weight_decay", 0.5),
        ("clipnorm", 0.0),
        ("clipvalue", 1.0),
        ("global_clipnorm", 1.0),
        ("gradient_accumulation_steps", 2),
        ("loss_scale_factor", 8.0),
        ("use_ema", True),
        ("surprise", 3),
    ],
)
def test_what_changes_training_is_an_error(name, value):
    """It says what was found, what is accepted, and what to do."""
    with pytest.raises(TranslationError) as caught:
        arguments({"learning_rate": 0.5, name: value}, {"learning_rate", "momentum"})
    message = str(caught.value)
    assert f"{name}={value!r}" in message
    assert "learning_rate, momentum" in message


def test_an_error_says_where_an_argument_is_known():
    """From the tables of signatures."""
    with pytest.raises(TranslationError, match="weight_decay=0.5.* TensorFlow 2.11 to"):
        arguments({"weight_decay": 0.5}, OPTIMIZER_V2)


def test_all_problems_are_said_at_once():
    """Not one after the other."""
    with pytest.raises(TranslationError) as caught:
        arguments({"weight_decay": 0.5, "use_ema": True}, OPTIMIZER_V2)
    assert "weight_decay=0.5" in str(caught.value)
    assert "use_ema=True" in str(caught.value)


def test_an_argument_at_its_default():
    """An argument that came later, with a default that changes nothing, may be left out: Ftrl's beta since 2.4."""
    assert arguments({"beta": np.float32(0.0)}, {"learning_rate"}, "Ftrl") == {}
    with pytest.raises(TranslationError, match="beta=0.5"):
        arguments({"beta": 0.5}, {"learning_rate"}, "Ftrl")


def test_arguments_of_a_user_s_class():
    """They are left alone, but for the words of Keras's own optimizers."""
    given = {"surprise": 3, "weight_decay": None, "decay": 0.0, "learning_rate": np.float32(0.5)}
    assert arguments(given, {"learning_rate"}, "Package>Mine") == {"surprise": 3, "learning_rate": 0.5}
    with pytest.raises(TranslationError, match="weight_decay=0.5"):
        arguments({"weight_decay": 0.5}, {"learning_rate"}, "Package>Mine")


def test_numbers_are_python_s():
    """So that JSON can hold them: upstream's configurations have NumPy's after training."""
    given = {"learning_rate": np.float32(0.5), "momentum": np.float64(0.25), "nesterov": np.bool_(True)}
    found = arguments(given)
    assert json.loads(json.dumps(found)) == {"learning_rate": 0.5, "momentum": 0.25, "nesterov": True}


# Schedules

WRAPPED = {"module": "keras.optimizers.schedules", "registered_name": None}


def test_schedules_lose_their_wrapping():
    """The class and the arguments remain; a name that is null is its default."""
    config = {"initial_learning_rate": np.float32(0.5), "decay_steps": 10, "decay_rate": 0.5, "name": None}
    rate = {"class_name": "ExponentialDecay", "config": config, **WRAPPED}
    assert arguments({"learning_rate": rate}) == {
        "learning_rate": {
            "class_name": "ExponentialDecay",
            "config": {"initial_learning_rate": 0.5, "decay_steps": 10, "decay_rate": 0.5},
        }
    }


def test_cosine_decay_with_and_without_warmup():
    """A warmup without a target says nothing; one with a target is an error where the schedule has no such argument."""
    config = {"initial_learning_rate": 0.5, "decay_steps": 10, "alpha": 0.0, "name": "CosineDecay"}
    warmup = {"warmup_target": None, "warmup_steps": 5}
    found = arguments({"learning_rate": {"class_name": "CosineDecay", "config": {**config, **warmup}, **WRAPPED}})
    assert found == {"learning_rate": {"class_name": "CosineDecay", "config": config}}
    warmup["warmup_target"] = 0.75
    with pytest.raises(TranslationError) as caught:
        arguments({"learning_rate": {"class_name": "CosineDecay", "config": {**config, **warmup}}})
    assert re.search("warmup_target=0.75 of CosineDecay.* TensorFlow 2.13 to", str(caught.value))


def test_a_schedule_that_is_not_there():
    """An error that says where it is."""
    rate = {"class_name": "LinearCosineDecay", "config": {}}
    with pytest.raises(TranslationError, match="LinearCosineDecay.* TensorFlow 2.0 to"):
        arguments({"learning_rate": rate})


def test_a_user_s_schedule():
    """It is left alone, under its registered name."""
    rate = {"class_name": "Warm", "config": {"steps": 3}, "module": "mine", "registered_name": "Package>Warm"}
    assert arguments({"learning_rate": rate}) == {
        "learning_rate": {"class_name": "Package>Warm", "config": {"steps": 3}}
    }


# The tables


def test_defaults_of_every_optimizer_reach_every_other_version():
    """From every version to every other that has a class of the name, defaults need no more than translating."""
    tables = {}
    for target in known_targets():
        for entry in target.table["optimizers"].values():
            class_name = entry["class"].rpartition(".")[2]
            key = tuple(sorted((each, repr(value)) for each, value in entry["arguments"].items()))
            tables.setdefault(class_name, {}).setdefault(key, entry["arguments"])
    for class_name, distinct in tables.items():
        for source in distinct.values():
            for destination in distinct.values():
                if class_name == "Nadam" and "decay" in source and "decay" not in destination:
                    continue  # another rule
                found = arguments(dict(source, learning_rate=0.5), set(destination), class_name)
                assert set(found) <= set(destination), class_name
                assert found["learning_rate"] == 0.5
