"""Configurations of every version make the same optimizer on this one."""

import copy
import json
import os

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper import LossScale, LossScaleOptimizer, TranslationError
from scalekeeper_test_support.installed_keras import HAS_NEW_OPTIMIZERS, IS_KERAS_3, OPTIMIZERS, number

DATA = os.path.join(os.path.dirname(__file__), "..", "..", "tests", "serialization", "data")
with open(os.path.join(DATA, "optimizer_configs.json"), encoding="utf-8") as stream:
    CONFIGS = json.load(stream)
ONE = {"class_name": "FixedLossScale", "config": {"loss_scale_value": 1.0}}


class MyLossScale(LossScale):
    """Where TensorFlow's own documentation would have a class of the user's."""

    class Params(LossScale.Params):
        start: float

    def initial_state(self):
        return {"current_loss_scale": np.float32(self.params.start)}

    def next_state(self, state, report, ops):
        return state


def expected_policy(dialect):
    if "fixed" in dialect:
        return scalekeeper.FixedLossScale, {"loss_scale_value": 128.0}
    if "custom" in dialect:
        return MyLossScale, {"start": 1024.0}
    multiplier = 4.0 if "multiplier 4" in dialect else 2.0
    given = {"initial_loss_scale": 1024.0, "increment_period": 3, "multiplier": multiplier}
    return scalekeeper.DynamicLossScale, given


def is_new(dialect):
    """Whether Keras 2 makes a new optimizer of it: of a new one where there are any, of one of Keras 3 by default."""
    if dialect.startswith(("2.0", "2.4", "2.15 legacy", "ours, 2.3")):
        return False
    return HAS_NEW_OPTIMIZERS or ("Keras 3" not in dialect and tf.__version__.startswith("2.10."))


def class_for(kind):
    """Return the class of scalekeeper that wraps optimizers of this kind."""
    return type(LossScaleOptimizer(OPTIMIZERS[kind].SGD(1.0), "dynamic"))


class Steps:
    """An optimizer's steps on one variable, which is all that a new optimizer takes: how far each goes."""

    def __init__(self, optimizer):
        self.optimizer, self.variable = optimizer, tf.Variable(0.0)

    def take(self, iterations=None):
        if iterations is not None:
            self.optimizer.iterations.assign(iterations)
        before = float(self.variable.numpy())
        self.optimizer.apply_gradients([(tf.constant(1.0), self.variable)])
        return float(self.variable.numpy()) - before


def check(optimizer, dialect):
    inner, (policy, parameters) = optimizer.inner_optimizer, expected_policy(dialect)
    assert type(inner).__name__ == "SGD"
    settings = json.loads(json.dumps(optimizer.get_config()))
    settings = settings.get("inner_optimizer", settings.get("optimizer"))["config"]
    assert settings["learning_rate"] == pytest.approx(1e-4)
    assert settings["momentum"] == pytest.approx(0.9)
    assert settings["nesterov"] is False
    assert type(optimizer.loss_scale) is policy
    assert {name: optimizer.loss_scale.get_config()[name] for name in parameters} == parameters
    assert Steps(optimizer).take() == pytest.approx(-1e-4)


# the arguments of a bare optimizer, its inner form, do not name its class
FORMS = [(name, form) for name in sorted(CONFIGS) for form in ("outer", "after training")]
FORMS += [(name, "inner") for name in sorted(CONFIGS) if CONFIGS[name]["class_name"] != "SGD"]


@pytest.mark.parametrize(("dialect", "form"), FORMS)
def test_the_public_class_reads_every_dialect(dialect, form):
    """With the inner optimizer's settings and the policy; of the same kind where Keras has both kinds ."""
    config = copy.deepcopy(CONFIGS[dialect])
    if form == "inner":
        config = config["config"]
    elif form == "after training":
        inner = config["config"].get("inner_optimizer", config["config"].get("optimizer", config))["config"]
        inner.update(learning_rate=np.float32(1e-4), momentum=np.float32(0.9))
    given = copy.deepcopy(config)
    optimizer = LossScaleOptimizer.from_config(config, custom_objects={"MyLossScale": MyLossScale})
    check(optimizer, dialect)
    assert config == given
    if not IS_KERAS_3:
        assert hasattr(optimizer.inner_optimizer, "update_step") == is_new(dialect)


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
@pytest.mark.parametrize("dialect", sorted(CONFIGS))
def test_each_kind_of_optimizer_reads_every_dialect(dialect, kind):
    """The class that Keras knows makes the optimizers that it can wrap, whatever the configuration was written for."""
    cls = class_for(kind)
    optimizer = cls.from_config(copy.deepcopy(CONFIGS[dialect]), custom_objects={"MyLossScale": MyLossScale})
    assert type(optimizer) is cls
    assert type(optimizer.inner_optimizer) is OPTIMIZERS[kind].SGD
    check(optimizer, dialect)


def test_what_a_skipped_step_does_is_read():
    """As ours writes it; elsewhere, as the installed version does."""
    for dialect, expected in (("ours, 2.3, multiplier 4", "hold"), ("ours, Keras 3, multiplier 4", "advance")):
        assert LossScaleOptimizer.from_config(CONFIGS[dialect]).get_config()["skipped_steps"] == expected
    assert "skipped_steps" not in LossScaleOptimizer.from_config(CONFIGS["2.4 dynamic"]).get_config()


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
def test_decay_on_every_kind_of_optimizer(kind):
    """The learning rate is divided by 1 + decay × iterations, also where optimizers have no decay."""
    inner = {"class_name": "SGD", "config": {"learning_rate": 0.5, "decay": 0.25, "momentum": 0.0, "nesterov": False}}
    optimizer = class_for(kind).from_config({"optimizer": inner, "loss_scale": ONE})
    again = class_for(kind).from_config(json.loads(json.dumps(optimizer.get_config())))
    for each in (optimizer, again):
        steps = Steps(each)
        moved = [-steps.take(iterations) for iterations in (0, 1, 10)]
        assert moved == pytest.approx([0.5, 0.5 / 1.25, 0.5 / 3.5])


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
def test_nadams_decay(kind):
    """A decay of the momentum is kept by legacy optimizers; others have 1, and refuse what differs."""
    config = {"optimizer": {"class_name": "Nadam", "config": {"learning_rate": 0.5, "decay": 1.0}}, "loss_scale": ONE}
    cls = class_for(kind)
    assert Steps(cls.from_config(config)).take() != 0.0
    config["optimizer"]["config"]["decay"] = 0.5
    if hasattr(OPTIMIZERS[kind].Nadam, "update_step"):
        with pytest.raises(TranslationError, match="decay=0.5 of the momentum"):
            cls.from_config(config)
    else:
        assert cls.from_config(config).inner_optimizer.get_config()["decay"] == 0.5


SCHEDULES = {
    "ExponentialDecay": {"initial_learning_rate": 0.5, "decay_steps": 10, "decay_rate": 0.5},
    "PiecewiseConstantDecay": {"boundaries": [1, 5], "values": [0.5, 0.25, 0.125]},
    "PolynomialDecay": {"initial_learning_rate": 0.5, "decay_steps": 10},
    "InverseTimeDecay": {"initial_learning_rate": 0.5, "decay_steps": 10, "decay_rate": 0.5},
    "CosineDecay": {"initial_learning_rate": 0.5, "decay_steps": 10},
    "CosineDecayRestarts": {"initial_learning_rate": 0.5, "first_decay_steps": 10},
}


def schedule(name):
    found = getattr(tf.keras.optimizers.schedules, name, None)
    return found if found is not None else getattr(tf.keras.experimental, name)


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
@pytest.mark.parametrize("name", [None, *sorted(SCHEDULES)])
def test_a_configuration_is_json_after_training(kind, name):
    """Also with a schedule; and it makes an optimizer that takes the same steps."""
    rate = 0.5 if name is None else schedule(name)(**SCHEDULES[name])
    optimizer = LossScaleOptimizer(OPTIMIZERS[kind].SGD(rate, momentum=0.5), "dynamic")
    steps = Steps(optimizer)
    for _ in range(3):
        steps.take()
    written = json.dumps(optimizer.get_config())
    expected = 0.5 if name is None else float(np.asarray(rate(7)))
    for cls in (LossScaleOptimizer, type(optimizer)):
        again = cls.from_config(json.loads(written))
        assert type(again) is type(optimizer)
        assert json.dumps(again.get_config()) == written
        assert Steps(again).take(7) == pytest.approx(-expected)


@pytest.mark.parametrize("module", [None, "keras.optimizers.schedules"])
@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_schedules_of_every_version(name, module):
    """Plain, as up to 2.11, or wrapped, as after that; with arguments that have come later and say nothing."""
    later = {"warmup_target": None, "warmup_steps": 0} if name == "CosineDecay" else {}
    rate = {"class_name": name, "config": {**SCHEDULES[name], "name": None, **later}}
    if module is not None:
        rate.update(module=module, registered_name=None)
    inner = {"class_name": "SGD", "config": {"learning_rate": rate, "decay": 0.0}}
    optimizer = LossScaleOptimizer.from_config({"optimizer": inner, "loss_scale": ONE})
    expected = float(np.asarray(schedule(name)(**SCHEDULES[name])(7)))
    assert Steps(optimizer).take(7) == pytest.approx(-expected)


SETTINGS = {
    "Adam": {"learning_rate": 0.5, "beta_1": 0.8, "beta_2": 0.98, "epsilon": 1e-5, "amsgrad": True},
    "RMSprop": {"learning_rate": 0.5, "rho": 0.8, "momentum": 0.25, "epsilon": 1e-5, "centered": True},
    "Adagrad": {"learning_rate": 0.5, "initial_accumulator_value": 0.25, "epsilon": 1e-5},
    "Adadelta": {"learning_rate": 0.5, "rho": 0.8, "epsilon": 1e-5},
    "Adamax": {"learning_rate": 0.5, "beta_1": 0.8, "beta_2": 0.98, "epsilon": 1e-5},
    "Nadam": {"learning_rate": 0.5, "beta_1": 0.8, "beta_2": 0.98, "epsilon": 1e-5},
    "Ftrl": {
        "learning_rate": 0.5,
        "learning_rate_power": -0.25,
        "initial_accumulator_value": 0.25,
        "l1_regularization_strength": 0.125,
        "l2_regularization_strength": 0.125,
        "l2_shrinkage_regularization_strength": 0.125,
        "beta": 0.0,
    },
}
_COMMON = {
    "weight_decay": None,
    "clipnorm": None,
    "global_clipnorm": None,
    "clipvalue": None,
    "use_ema": False,
    "ema_momentum": 0.99,
    "ema_overwrite_frequency": None,
}
WORDS = {
    "legacy": {"decay": 0.0},
    "new": {**_COMMON, "jit_compile": False, "is_legacy_optimizer": False},
    "keras3": {**_COMMON, "loss_scale_factor": None, "gradient_accumulation_steps": None},
}


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
@pytest.mark.parametrize("family", sorted(WORDS))
@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_settings_of_every_optimizer(name, family, kind):
    """None is lost between the families."""
    words = {"decay": 1.0} if (name, family) == ("Nadam", "legacy") else WORDS[family]
    inner = {"class_name": name, "config": {**SETTINGS[name], **words, "name": name}}
    optimizer = class_for(kind).from_config({"inner_optimizer": inner, "loss_scale": ONE})
    found = optimizer.get_config()
    found = found.get("inner_optimizer", found.get("optimizer"))["config"]
    for setting, value in SETTINGS[name].items():
        if setting in found or value != 0.0:
            assert found[setting] == pytest.approx(value), setting


@pytest.mark.parametrize("clipping", [{"clipnorm": 0.5}, {"clipvalue": 0.5}])
def test_clipping_is_kept(clipping):
    """By every kind of optimizer."""
    for kind in OPTIMIZERS:
        inner = {"class_name": "SGD", "config": {"learning_rate": 1.0, **clipping}}
        optimizer = class_for(kind).from_config({"inner_optimizer": inner, "loss_scale": ONE})
        assert {name: getattr(optimizer.inner_optimizer, name) for name in clipping} == clipping


def test_what_changes_training_and_is_not_there():
    """An error that names it."""
    inner = {"class_name": "SGD", "config": {"learning_rate": 0.5, "surprise": 3}}
    with pytest.raises(TranslationError, match="surprise=3 changes training"):
        LossScaleOptimizer.from_config({"inner_optimizer": inner, "loss_scale": ONE})
    inner = {"class_name": "SGD", "config": {"learning_rate": 0.5, "gradient_accumulation_steps": 2}}
    if not IS_KERAS_3:
        with pytest.raises(TranslationError, match="gradient_accumulation_steps=2 changes training"):
            LossScaleOptimizer.from_config({"inner_optimizer": inner, "loss_scale": ONE})


def test_an_optimizer_that_is_not_there():
    """The error lists the known classes, and says how to pass a custom one."""
    inner = {"class_name": "Adaam", "config": {}}
    with pytest.raises(TranslationError, match="unknown optimizer 'Adaam'; did you mean 'Adam'.*custom_objects"):
        LossScaleOptimizer.from_config({"inner_optimizer": inner, "loss_scale": ONE})


def test_an_optimizer_without_a_loss_scale():
    """An error that says to wrap it."""
    with pytest.raises(TranslationError, match="SGD"):
        LossScaleOptimizer.from_config({"class_name": "SGD", "config": {"learning_rate": 0.5}})


def test_registered_classes():
    """An optimizer and a schedule of the user's own, which Keras knows by their registered names."""
    if not hasattr(tf.keras.utils, "register_keras_serializable"):
        pytest.skip("TensorFlow 2.0 registers no classes")
    register = tf.keras.utils.register_keras_serializable

    @register(package="Tests")
    class Slow(tf.keras.optimizers.schedules.LearningRateSchedule):
        def __init__(self, rate):
            self.rate = rate

        def __call__(self, step):
            return tf.constant(self.rate, tf.float32)

        def get_config(self):
            return {"rate": self.rate}

    @register(package="Tests")
    class Mine(tf.keras.optimizers.SGD):
        pass

    optimizer = LossScaleOptimizer(Mine(Slow(0.25)), 8.0)
    config = json.loads(json.dumps(optimizer.get_config()))
    for again in (LossScaleOptimizer.from_config(config), type(optimizer).from_config(config)):
        assert type(again.inner_optimizer) is Mine
        assert Steps(again).take() == -0.25
    assert number(again.loss_scale()) == 8.0
