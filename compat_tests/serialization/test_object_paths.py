"""The attributes of a subclassed model tell which variable is which, whatever Keras calls the layers."""

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper_test_support.installed_keras import WRITES_KERAS_FILES


class Coder(tf.keras.Model):
    """Two layers of one class and shape; the order in which they are made decides what Keras calls them."""

    def __init__(self, order=("encoder", "decoder")):
        super().__init__()
        for name in order:
            setattr(self, name, tf.keras.layers.Dense(3))
        self.again = self.encoder

    def call(self, inputs):
        return self.decoder(self.again(self.encoder(inputs)))


def trained(order):
    model = Coder(order)
    optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1, momentum=0.9), "dynamic")
    model.compile(optimizer, tf.keras.losses.MeanSquaredError())
    model.fit(np.ones((2, 3), np.float32), np.ones((2, 3), np.float32), verbose=0)
    return model


def numbers_of(model):
    layers = {"encoder": model.encoder, "decoder": model.decoder}
    return {
        name: [model.optimizer.get_slot(layer.kernel, "momentum").numpy().tolist(), layer.kernel.numpy().tolist()]
        for name, layer in layers.items()
    }


@pytest.mark.parametrize("form", ["checkpoint", ".keras"])
def test_layers_that_are_made_in_another_order(form, tmp_path):
    """The encoder gets the weights and slots of the encoder, though Keras gave its name to the decoder."""
    model = trained(("encoder", "decoder"))
    for number, layer in enumerate((model.encoder, model.decoder)):
        layer.kernel.assign(np.arange(9).reshape(3, 3) + 100.0 * number)
        model.optimizer.get_slot(layer.kernel, "momentum").assign(np.arange(9).reshape(3, 3) + 1000.0 * (number + 1))
    if form == "checkpoint":
        path = tf.train.Checkpoint(net=model, opt=model.optimizer).save(str(tmp_path / "c"))
    elif WRITES_KERAS_FILES:
        path = str(tmp_path / "m.keras")
        scalekeeper.save_model(model, path, probe=False)
    else:
        pytest.skip("Keras before 2.13 writes H5 files with this ending, which hold no subclassed models")
    other = trained(("decoder", "encoder"))
    report = scalekeeper.restore(other, path)
    assert numbers_of(other) == numbers_of(model)
    assert (report.complete, set(report.rules.values())) == (True, {"path"})
