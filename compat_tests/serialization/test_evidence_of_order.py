"""Values whose owner an order alone tells: taken by what proves it, or with a warning, or refused."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper_test_support.installed_keras import IS_KERAS_3, OPTIMIZERS, WRITES_KERAS_FILES, inner_of
from scalekeeper_test_support.program_scenarios import (
    WIDTH,
    Program,
    called,
    dense,
    model_of,
    slots_of,
    stamp,
    train,
    unit,
    wrapped,
)


class Tokens(tf.keras.layers.Layer):
    """A layer with two others of equal shapes in attributes."""

    def __init__(self, order=("token", "position"), **options):
        super().__init__(**options)
        for name in order:
            setattr(self, name, tf.keras.layers.Dense(WIDTH))

    def call(self, inputs):
        return self.token(inputs) + self.position(inputs)


def tokens(order):
    """Return a trained functional model with such a layer and a LossScaleOptimizer, with a number in each variable."""
    layer = Tokens(order)
    inputs = tf.keras.Input((WIDTH,))
    model = tf.keras.Model(inputs, layer(inputs))
    optimizer = wrapped()
    each = unit(model, {"token": layer.token, "position": layer.position}, optimizer)
    program = Program({"": each}, {})
    train(program)
    stamp(program)
    return each


def slots_at(each, name):
    """Return the slots of the kernel of a layer, by name."""
    found = slots_of(each.optimizer, each.parts[name].kernel)
    return {slot: value.numpy().tolist() for slot, value in found.items()}


@pytest.mark.skipif(not WRITES_KERAS_FILES, reason="this Keras writes no .keras files")
def test_slots_follow_the_layers_of_a_file_of_keras(tmp_path):
    """Slots go where the weights go, though Keras gave other names; without names in the file, a warning tells."""
    path = str(tmp_path / "m.keras")
    source = tokens(("token", "position"))
    source.model.save(path)
    target = tokens(("position", "token"))
    with contextlib.ExitStack() if IS_KERAS_3 else pytest.warns(scalekeeper.AssumedOrderWarning, match="dense"):
        scalekeeper.restore(target.model, path)
    for key, other in (("token", "position"), ("position", "token")):
        assert target.parts[key].kernel.numpy().tolist() == source.parts[key].kernel.numpy().tolist()
        assert slots_at(target, key) == slots_at(source, key if IS_KERAS_3 else other)


@pytest.mark.skipif(not IS_KERAS_3, reason="other files of weights hold no optimizer, or the order of layers")
def test_slots_of_a_file_of_weights_are_refused(tmp_path):
    """A file of weights of Keras has neither the names of slots nor the order of attributes."""
    path = str(tmp_path / "m.weights.h5")
    tokens(("token", "position")).model.save_weights(path)
    with pytest.raises(scalekeeper.IncompleteRestoreError, match="mapping"):
        scalekeeper.restore(tokens(("position", "token")).model, path)


@pytest.mark.skipif(IS_KERAS_3 or not WRITES_KERAS_FILES, reason="other files of weights have the names of layers")
def test_a_file_without_names_gives_a_warning(tmp_path):
    """A .weights.h5 file of Keras 2 numbers layers: those of equal shapes are taken in order, and a warning tells."""

    def named(*order):
        layers = {key: dense(key) for key in order}
        return unit(model_of("functional", layers), layers, wrapped())

    path = str(tmp_path / "m.weights.h5")
    source = named("enc", "dec")
    program = Program({"": source}, {})
    train(program)
    stamp(program)
    source.model.save_weights(path)
    target = named("dec", "enc")
    with pytest.warns(scalekeeper.AssumedOrderWarning, match="dec, enc: the file has no names"):
        scalekeeper.restore(target.model, path, partial=True)
    assert target.parts["dec"].kernel.numpy().tolist() == source.parts["enc"].kernel.numpy().tolist()


class Settled(OPTIMIZERS["legacy" if "legacy" in OPTIMIZERS else "default"].SGD):
    """An optimizer whose configuration repeats its argument, and not the learning rate of the moment."""

    def get_config(self):
        return {**super().get_config(), "learning_rate": 0.5}


@pytest.mark.parametrize("name", ["m.h5", "state.npz"])
def test_the_learning_rate_of_a_variable_counts(name, tmp_path):
    """The learning rate in the file is that of the variable, which a callback may have changed."""

    def compiled():
        model = tf.keras.Sequential([tf.keras.Input((WIDTH,)), tf.keras.layers.Dense(2)])
        model.compile(scalekeeper.LossScaleOptimizer(Settled(0.5)), "mse")
        return model

    model, path = compiled(), str(tmp_path / name)
    model.train_on_batch(np.ones((2, WIDTH)), np.ones((2, 2)))
    model.optimizer.learning_rate = 0.125
    scalekeeper.save_state(model.optimizer, path) if name == "state.npz" else scalekeeper.save_model(model, path)
    other = compiled()
    assert scalekeeper.restore(other, path).complete
    assert float(inner_of(other.optimizer).learning_rate.numpy()) == 0.125


class Adversaries(tf.keras.Model):
    """A model with two optimizers of its own, as in Keras's examples of GANs."""

    def __init__(self):
        super().__init__()
        self.generator, self.discriminator = (
            tf.keras.Sequential([dense(name)]) for name in ("generator", "discriminator")
        )

    def call(self, inputs):
        return self.discriminator(self.generator(inputs))

    def compile(self, generator_optimizer, discriminator_optimizer):
        super().compile(tf.keras.optimizers.SGD(0.1), "mse")
        self.generator_optimizer, self.discriminator_optimizer = generator_optimizer, discriminator_optimizer


def test_optimizers_in_attributes_of_a_model_are_named(tmp_path):
    """restore takes the state of the optimizer in ``compile``, and names the others; each restores its own part."""
    model = called(Adversaries())
    model.compile(wrapped(), wrapped())
    model.train_on_batch(np.ones((2, WIDTH)), np.ones((2, WIDTH)))
    for count, name in ((1, "discriminator"), (2, "generator")):
        variables = getattr(model, name).trainable_variables
        for _ in range(count):
            getattr(model, f"{name}_optimizer").apply_gradients([(tf.ones(each.shape), each) for each in variables])
    path = tf.train.Checkpoint(gan=model).save(str(tmp_path / "ckpt"))
    with pytest.warns(scalekeeper.IncompleteRestoreWarning, match="generator_optimizer"):
        report = scalekeeper.restore(model, path)
    assert [each for each in report.missing if "optimizer" in each] == [
        "generator_optimizer: the state of this optimizer",
        "discriminator_optimizer: the state of this optimizer",
    ]
    assert not report.complete
    generator = called(Adversaries()).generator
    generator.compile(wrapped(), "mse")
    assert scalekeeper.restore(generator, path, optimizer="gan/generator_optimizer").complete
    assert int(generator.optimizer.iterations) == 2


@pytest.mark.parametrize("is_named", [False, True])
def test_a_state_has_no_attributes(is_named):
    """load_state_dict warns if only the numbers of Keras tell layers of equal shapes apart, and takes names as such."""
    layers = {key: dense(f"layer_{key}" if is_named else None) for key in "ab"}
    each = unit(model_of("sequential", layers), layers, wrapped())
    program = Program({"": each}, {})
    train(program)
    stamp(program)
    before = slots_at(each, "a")
    state = each.optimizer.state_dict()
    stamp(program, 500)
    if is_named:
        each.optimizer.load_state_dict(state, each.model.trainable_variables)
    else:
        with pytest.warns(scalekeeper.AssumedOrderWarning, match="dense"):
            each.optimizer.load_state_dict(state, each.model.trainable_variables)
    assert slots_at(each, "a") == before
