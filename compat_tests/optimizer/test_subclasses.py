"""Subclasses of the wrapper, and Keras's use of it, compared with TensorFlow's own class and the bare optimizer."""

import copy
import pickle

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper.optimizer import LossScaleOptimizer
from scalekeeper_test_support import installed_keras
from scalekeeper_test_support.installed_keras import IS_KERAS_3, inner_of, upstream

PARAMETERS = {"initial_loss_scale": 8.0, "increment_period": 100}


def ours(inner):
    return LossScaleOptimizer(inner, {"name": "dynamic", **PARAMETERS})


def new_variable(value, name=None):
    return tf.keras.Variable(value, name=name) if IS_KERAS_3 else tf.Variable(value, name=name)


def plain(value):
    """Return a variable or a number as a Python number."""
    return float(np.asarray(value.numpy() if hasattr(value, "numpy") else value))


def apply(optimizer, pairs):
    """Apply unscaled gradients with either class, or the bare optimizer."""
    is_bare = inner_of(optimizer) is optimizer
    optimizer.apply_gradients(pairs) if is_bare else installed_keras.apply_unscaled(optimizer, pairs)


def trained(optimizer, grads, variable=None):
    """Return the value of a variable after these steps."""
    variable = new_variable(0.0) if variable is None else variable
    for grad in grads:
        apply(optimizer, [(tf.constant(grad), variable)])
    return float(variable.numpy())


class Patient(LossScaleOptimizer):
    """Has an argument of its own, and hands the others on."""

    def __init__(self, *args, patience=1, **kwargs):
        super().__init__(*args, **kwargs)
        self.patience = patience

    def get_config(self):
        return {**super().get_config(), "patience": self.patience}


class MorePatient(Patient):
    """Has one more, without a default."""

    def __init__(self, *args, words, **kwargs):
        super().__init__(*args, **kwargs)
        self.words = words

    def get_config(self):
        return {**super().get_config(), "words": self.words}


@pytest.mark.parametrize(
    "make",
    [
        lambda made: MorePatient.from_config(made.get_config()),
        lambda made: type(made).from_config(made.get_config()),
        copy.deepcopy,
        lambda made: pickle.loads(pickle.dumps(made)),
    ],
    ids=["public class", "own class", "deepcopy", "pickle"],
)
def test_further_arguments_of_a_subclass_are_kept(optimizers, make):
    """``from_config`` and copies hand all that ``get_config`` writes to the constructor, as TensorFlow's class does."""
    again = make(MorePatient(optimizers.SGD(0.5), words=["a"], patience=7, stop_after_skips=3))
    assert isinstance(again, MorePatient)
    assert (again.patience, again.words) == (7, ["a"])
    assert again.get_config()["stop_after_skips"] == 3
    assert trained(again, [1.0, float("nan")]) == -0.5


class TakesKeywords(LossScaleOptimizer):
    """Has an argument of its own that its signature does not name."""

    def __init__(self, *args, **kwargs):
        patience = kwargs.pop("patience", 1)
        super().__init__(*args, **kwargs)
        self.patience = patience

    def get_config(self):
        return {**super().get_config(), "patience": self.patience}


@pytest.mark.parametrize("make", [lambda made: type(made).from_config(made.get_config()), copy.deepcopy])
def test_arguments_without_a_name_are_kept(make):
    """A constructor that takes any keyword gets what ``get_config`` adds."""
    assert make(TakesKeywords(tf.keras.optimizers.SGD(0.5), patience=7)).patience == 7


@pytest.mark.parametrize("entries", [{"unknown": None}, {"dynamics": True}, {"patience": 3}])
def test_unknown_entries_of_a_configuration_are_refused(entries):
    """``from_config`` raises the error of TensorFlow's class, instead of leaving them out in silence."""
    own = upstream(tf.keras.optimizers.SGD(0.5), PARAMETERS)
    with pytest.raises((TypeError, ValueError)) as theirs:
        type(own).from_config({**own.get_config(), **entries})
    with pytest.raises(theirs.type, match=next(iter(entries))):
        LossScaleOptimizer.from_config({**ours(tf.keras.optimizers.SGD(0.5)).get_config(), **entries})


def test_a_configuration_that_keras_has_read():
    """Up to 2.15, ``deserialize`` writes the class of the inner optimizer in lower case into its argument."""
    config = ours(tf.keras.optimizers.RMSprop(0.5)).get_config()
    inner = next(config[name] for name in ("inner_optimizer", "optimizer") if name in config)
    inner["class_name"] = "rmsprop"
    made = LossScaleOptimizer.from_config(config)
    assert isinstance(made.inner_optimizer, tf.keras.optimizers.RMSprop)
    assert plain(made.learning_rate) == 0.5


def test_further_arguments_in_tensorflows_class():
    """There, ``from_config`` keeps them, too."""

    class Theirs(type(upstream(tf.keras.optimizers.SGD()))):
        def __init__(self, *args, patience=1, **kwargs):
            super().__init__(*args, **kwargs)
            self.patience = patience

        def get_config(self):
            return {**super().get_config(), "patience": self.patience}

    loss_scale = ["dynamic"] if installed_keras.HAS_LOSS_SCALE_OBJECTS else []
    made = Theirs(tf.keras.optimizers.SGD(), *loss_scale, patience=7)
    assert Theirs.from_config(made.get_config()).patience == 7


def test_a_registered_subclass_is_found_by_keras(optimizers):
    """Keras makes it again from what it serializes, with its further arguments."""
    with tf.keras.utils.custom_object_scope({"MorePatient": MorePatient}):
        made = MorePatient(optimizers.SGD(0.5), words=["b"], patience=3)
        again = tf.keras.optimizers.deserialize(tf.keras.optimizers.serialize(made))
    assert (type(again).__name__, again.patience, again.words) == ("MorePatient", 3, ["b"])


def test_hyperparameters_by_attribute(optimizers):
    """Setting and reading them does what it does in TensorFlow's class, and trains as there."""
    found = []
    for wrap in (ours, lambda inner: upstream(inner, PARAMETERS)):
        optimizer = wrap(optimizers.Adam(0.1, beta_1=0.8))
        optimizer.learning_rate = 0.25
        optimizer.beta_1 = 0.5
        rates = [plain(each.learning_rate) for each in (optimizer, inner_of(optimizer))]
        betas = [plain(each.beta_1) for each in (optimizer, inner_of(optimizer))]
        found.append((rates, betas, trained(optimizer, [1.0, 3.0, -2.0])))
    assert found[0] == found[1]
    assert found[0][0] == [0.25, 0.25]


@pytest.mark.skipif(
    not hasattr(tf.keras.optimizers.SGD(), "gradient_transformers"), reason="OptimizerV2 takes them from 2.4 on"
)
def test_gradient_transformers():
    """They get unscaled gradients, as in TensorFlow's class, and a skipped step does not call them."""
    seen, found = [], []

    def double(grads_and_vars):
        seen.append(1)
        return [(grad * 2.0, variable) for grad, variable in grads_and_vars]

    for wrap in (ours, lambda inner: upstream(inner, PARAMETERS)):
        del seen[:]
        optimizer = wrap(tf.keras.optimizers.SGD(1.0, gradient_transformers=[double]))
        found.append((trained(optimizer, [1.0, float("inf"), 3.0]), len(seen)))
    assert found == [(-8.0, 2)] * 2


@pytest.mark.skipif(not hasattr(tf.keras.optimizers.SGD(), "exclude_from_weight_decay"), reason="from 2.11 on")
def test_exclude_from_weight_decay_reaches_the_inner_optimizer():
    """A variable that is excluded through the wrapper does not decay; with Keras's own class it does."""
    found = []
    for wrap in (ours, lambda inner: inner, lambda inner: upstream(inner, PARAMETERS)):
        optimizer = wrap(tf.keras.optimizers.SGD(1.0, weight_decay=0.5))
        optimizer.exclude_from_weight_decay(var_names=["bias"])
        variables = [new_variable(1.0, name) for name in ("kernel", "bias")]
        apply(optimizer, [(tf.constant(0.0), each) for each in variables])
        found.append([float(each.numpy()) for each in variables])
    assert found == [[0.5, 1.0], [0.5, 1.0], [0.5, 0.5]]


@pytest.mark.skipif(not hasattr(tf.keras.optimizers.SGD(), "finalize_variable_values"), reason="from 2.11 on")
def test_finalize_variable_values():
    """It writes the averages of the inner optimizer to the variables, as in Keras's class and the bare optimizer."""
    found = []
    for wrap in (ours, lambda inner: upstream(inner, PARAMETERS), lambda inner: inner):
        optimizer, variable = wrap(tf.keras.optimizers.SGD(1.0, use_ema=True, ema_momentum=0.5)), new_variable(1.0)
        before = trained(optimizer, [1.0, 1.0], variable)
        optimizer.finalize_variable_values([variable])
        found.append((before, float(variable.numpy())))
    assert found[0] == found[1] == found[2]
    assert found[0][0] != found[0][1]


@pytest.mark.skipif(not IS_KERAS_3, reason="Keras 3 has them")
def test_assign_and_variables_that_a_gradient_overwrites():
    """``assign`` works; a value that overwrites is taken as it is in an applied step only, as in Keras's class."""
    found = []
    for wrap in (ours, lambda inner: upstream(inner, PARAMETERS)):
        optimizer, weight, amax = wrap(tf.keras.optimizers.SGD(1.0)), new_variable(1.0), new_variable(1.0)
        amax.overwrite_with_gradient = True
        optimizer.build([weight, amax])
        optimizer.assign(weight, 2.0)
        optimizer.assign_add(weight, 3.0)
        optimizer.assign_sub(weight, 4.0)
        values = []
        for grad, amax_value in ((2.0, 9.0), (float("inf"), 5.0), (3.0, 10.0)):
            scale = float(optimizer.scale_loss(tf.constant(1.0)))
            optimizer.apply([tf.constant(grad * scale), tf.constant(amax_value)], [weight, amax])
            values.append((float(weight.numpy()), float(amax.numpy()), scale))
        found.append(values)
    assert found == [[(-1.0, 9.0, 8.0), (-1.0, 9.0, 8.0), (-4.0, 10.0, 4.0)]] * 2


def test_a_configuration_goes_to_keras_and_back(optimizers):
    """Keras's own class takes the configuration, and what it writes makes the same optimizer of scalekeeper again."""
    made = ours(optimizers.SGD(0.5, momentum=0.25))
    theirs = type(upstream(optimizers.SGD(), PARAMETERS))
    config = copy.deepcopy(made.get_config())
    again = LossScaleOptimizer.from_config(theirs.from_config(config).get_config())
    assert again.get_config() == made.get_config()
    assert isinstance(again, scalekeeper.LossScaleOptimizer)
