"""Optimizer configurations are encoded for every target; golden files of TensorFlow's own class are the oracle."""

import json
import os

import pytest

from scalekeeper import TranslationError
from scalekeeper.registry import target as target_named
from scalekeeper.registry._targets import known_targets
from scalekeeper.serialization.keras._optimizer_config import decode_config, encode_config
from scalekeeper.serialization.keras.target import KerasTarget
from scalekeeper_test_support.golden import archives, matrix

TARGETS = {
    "tf20": "2.0",
    "tf21": "2.1",
    "tf22": "2.2",
    "tf23": "2.3",
    "tf24": "2.4",
    "tf210": "2.10",
    "tf215L": "2.15",
    "tf215": "2.15",
    "tfkL": "tf_keras",
    "tfk": "tf_keras",
    "k3": "keras3",
}


def encoded(target, config):
    return encode_config(KerasTarget(target_named(target)), config)


@pytest.fixture(scope="module", params=TARGETS)
def written(request):
    """A flavour, and case → the configuration that TensorFlow's own class gave there."""
    producer = matrix.Producer(matrix.OWN, request.param)
    with archives.unpacked(producer) as folder:
        configs = {}
        for case in matrix.cases(producer):
            with open(os.path.join(folder, case.folder, "config.json"), encoding="utf-8") as stream:
                configs[case] = json.load(stream)
    return request.param, configs


def test_it_is_what_that_version_writes(written):
    """To the letter, but for a module that both names lead to, and an argument that Keras leaves out of its own."""
    flavour, configs = written
    for case, config in configs.items():
        said = encoded(TARGETS[flavour], decode_config(config))
        inner = config["config"].get("inner_optimizer", config)
        if flavour == "tf215":
            inner["module"] = "keras.optimizers"
        if flavour == "tfk" and case.optimizer == "adam":
            inner["config"]["adaptive_epsilon"] = False
        assert said.config == config
        assert said.dropped == []
        assert said.has_wrapper == ("LossScaleOptimizer" in config["class_name"])


@pytest.mark.parametrize("target", [each.name for each in known_targets()])
def test_there_and_back_again(written, target):
    """A configuration encoded for another target and back is equal."""
    flavour, configs = written
    for case, config in configs.items():
        if case.policy not in ("fixed", "dynamic"):
            continue
        there = encoded(target, decode_config(config)).config
        back = encoded(TARGETS[flavour], decode_config(there)).config
        assert decode_config(back).policy == decode_config(config).policy
        first, second = (decode_config(each).arguments for each in (config, back))
        for name in matrix_hyperparameters(case):
            assert second[name] == pytest.approx(first[name], rel=1e-7)


def matrix_hyperparameters(case):
    names = {"sgd": ["momentum"], "adam": ["beta_1", "beta_2", "epsilon"], "rmsprop": ["rho", "momentum", "epsilon"]}
    return ["learning_rate", *names[case.optimizer]]


def dynamic(**config):
    sgd = {"class_name": "SGD", "config": {"learning_rate": 0.5, "momentum": 0.9, "nesterov": False, "decay": 0.0}}
    words = {"initial_loss_scale": 8.0, "increment_period": 2, "multiplier": 2.0, **config}
    return {"optimizer": sgd, "loss_scale": {"class_name": "DynamicLossScale", "config": words}}


@pytest.mark.parametrize("target", ["2.4", "2.10", "2.15", "tf_keras", "keras3"])
def test_what_has_no_words_is_a_loss_and_in_full_it_is_not(target):
    """Keras has no multiplier from 2.4 on; scalekeeper reads it nevertheless."""
    declaration = decode_config(dynamic(multiplier=4.0))
    said = encoded(target, declaration)
    assert len(said.dropped) == 1
    assert said.dropped[0].startswith("multiplier=4.0 of the loss scale")
    assert decode_config(said.full_config).policy == declaration.policy


@pytest.mark.parametrize("target", ["2.3", "2.15", "keras3"])
def test_a_parameter_of_ours_is_a_loss_unless_it_says_nothing(target):
    """TensorFlow's classes have no floor to set: one of 4 is lost, the floor of 1 is theirs too."""
    said = encoded(target, decode_config(dynamic(minimum=4.0)))
    assert [loss.partition(" of the loss scale")[0] for loss in said.dropped] == ["minimum=4.0"]
    assert decode_config(said.full_config).policy["config"]["minimum"] == 4.0
    assert encoded(target, decode_config(dynamic(minimum=1.0, maximum=None))).dropped == []


@pytest.mark.parametrize("target", ["2.3", "2.15", "keras3"])
def test_a_fixed_scale_that_skips_is_a_loss(target):
    """TensorFlow's own fixed scale applies every step."""
    config = dynamic()
    config["loss_scale"] = {"class_name": "FixedLossScale", "config": {"loss_scale_value": 8.0, "skip_nonfinite": True}}
    assert [loss.partition(" of the loss scale")[0] for loss in encoded(target, decode_config(config)).dropped] == [
        "skip_nonfinite=True"
    ]


def test_a_policy_of_ones_own_leaves_the_optimizer_bare():
    """As plain Keras then reads it; and in full it is there."""
    config = dynamic()
    config["loss_scale"] = {"class_name": "Own", "config": {"start": 4.0}}
    said = encoded("2.15", decode_config(config))
    assert said.config["class_name"] == "SGD"
    assert not said.has_wrapper
    assert "the loss scale Own" in said.dropped[0]
    assert decode_config(said.full_config).policy["class_name"] == "Own"


def test_legacy_decay_becomes_a_schedule_where_there_is_none():
    """On Keras 3; on 2.15 the legacy optimizer takes it as it is."""
    config = dynamic()
    config["optimizer"]["config"]["decay"] = 0.25
    inner = encoded("keras3", decode_config(config)).config["config"]["inner_optimizer"]["config"]
    assert inner["learning_rate"]["class_name"] == "InverseTimeDecay"
    assert inner["learning_rate"]["config"]["decay_rate"] == 0.25
    assert encoded("2.15", decode_config(config)).config["config"]["inner_optimizer"]["config"]["decay"] == 0.25


def test_an_optimizer_that_is_not_there_is_an_error():
    """It says which target, and what that one has."""
    with pytest.raises(TranslationError, match=r"TensorFlow 2.0.4.* has no optimizer 'Lion'; it has .*Adam"):
        encoded("2.0", decode_config({"class_name": "Lion", "config": {"learning_rate": 0.1}}))
