"""A training run that keeps itself on disk every few steps, and goes on from what is there when it is started again.

The data of a step depends on its number alone. After each step the run says all of its state, and around each save that
it begins and is done, in lines of JSON: a reader can compare it with a run that was never interrupted, and knows what
it was doing when it was killed.
"""

import hashlib
import json
import os
import sys

import numpy as np
import tensorflow as tf

import scalekeeper
from scalekeeper_test_support.installed_keras import (
    HAS_LOSS_SCALE_OBJECTS,
    IS_KERAS_3,
    MODEL_SUFFIXES,
    OPTIMIZERS,
    layer_policy,
    set_global_policy,
)

EVERY = 3
OVERFLOWS = (2, 8, 9, 10, 33)  # the run of three is saved in its middle
OVERFLOWS_OF_ONE = (20, 21)  # in the gradient of one variable alone
SPIKE = 26  # overflows if the scale is as high as it should be then
LOSS_SCALE = {"name": "dynamic", "initial_loss_scale": 1024.0, "increment_period": 2}
INNER_OPTIMIZERS = {
    "Adam": lambda: tf.keras.optimizers.Adam(0.01),
    "SGD": lambda: tf.keras.optimizers.SGD(0.01, momentum=0.9),
}
if "legacy" in OPTIMIZERS:
    INNER_OPTIMIZERS["legacy Adam"] = lambda: OPTIMIZERS["legacy"].Adam(0.01)


def main(way, optimizer, precision, steps, reader, folder):
    """Go on from what the folder holds, to the end."""
    set_global_policy(layer_policy(precision, **({"loss_scale": None} if HAS_LOSS_SCALE_OBJECTS else {})))
    keeper = KEEPERS[way](folder)
    model = keeper.resumed(lambda: compiled(optimizer), reader)
    first = model.optimizer.telemetry.steps + 1
    say("resumed", first - 1)
    step = traced_step(model)
    for number in range(first, int(steps) + 1):
        step(*data_of(number))
        say("stepped", number, state=seen(model))
        if number % EVERY == 0:
            say("writing", number)
            keeper.keep(model)
            say("written", number)
    say("ended", int(steps))


def say(event, step, **more):
    """In one piece, and at once: nothing of it waits in a buffer when the process is killed."""
    os.write(1, (json.dumps({"event": event, "step": step, **more}) + "\n").encode())


# The run


def compiled(optimizer):
    """The model as it is before the first step: the same each time."""
    inputs = tf.keras.Input((3,), name="inputs")
    hidden = tf.keras.layers.Dense(4, activation="tanh", name="d1")(inputs)
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, name="d2")(hidden))
    random = np.random.RandomState(1)
    for weight in model.weights:
        weight.assign(random.randn(*weight.shape).astype("float32"))
    inner = INNER_OPTIMIZERS[optimizer]()
    model.compile(scalekeeper.LossScaleOptimizer(inner, LOSS_SCALE, attribute_overflows=True), "mse")
    return model


def data_of(number):
    random = np.random.RandomState(number)
    inputs, targets = random.randn(8, 3).astype("float32"), random.randn(8, 1).astype("float32")
    if number in OVERFLOWS:
        targets[0] = np.inf
    if number in OVERFLOWS_OF_ONE:
        inputs[0] = np.inf  # which tanh makes 1, with a derivative of 0
    if number == SPIKE:
        targets[0] = 200.0
    return tf.constant(inputs), tf.constant(targets)


def traced_step(model):
    optimizer = model.optimizer
    variables = [weight.value if IS_KERAS_3 else weight for weight in model.trainable_weights]

    @tf.function
    def step(inputs, targets):
        with tf.GradientTape() as tape:
            outputs = tf.cast(model(inputs, training=True), tf.float32)
            loss = optimizer.get_scaled_loss(tf.reduce_mean(tf.square(outputs - targets)))
        grads = optimizer.get_unscaled_gradients(tape.gradient(loss, variables))
        optimizer.apply_gradients(zip(grads, model.trainable_weights))

    return step


def seen(model):
    """Everything that a step may change: numbers as they are, of arrays the bits in short."""
    told, state = model.optimizer.telemetry, model.optimizer.state_dict()
    return {
        "steps": told.steps,
        "skipped": [told.skipped, told.skipped_in_a_row, told.last_skipped_step],
        "overflows": told.overflows,
        "scale": told.loss_scale,
        "loss scale": state["loss_scale"]["state"],
        "iterations": state["iterations"],
        "learning rate": state["learning_rate"],
        "weights": in_short(model.get_weights()),
        "slots": {
            f"{owner} {name}": in_short([value])
            for owner, slots in sorted(state["slots"].items())
            for name, value in sorted(slots.items())
        },
        "scalars": {name: in_short([value]) for name, value in sorted(state["scalars"].items())},
    }


def in_short(arrays):
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


# The ways to keep it


class Nothing:
    """For the run that is not interrupted."""

    def __init__(self, folder):
        self.folder = folder

    def resumed(self, make, reader):
        return make()

    def keep(self, model):
        pass


class Checkpoints(Nothing):
    """TensorFlow's own tool for this.

    Files are numbered by steps: ``restore`` does not bring back TensorFlow's own number, and a save after it could
    write over the very file that it has come from.
    """

    def _manager(self, model):
        checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
        return checkpoint, tf.train.CheckpointManager(checkpoint, self.folder, max_to_keep=2)

    def resumed(self, make, reader):
        model = make()
        checkpoint, self.manager = self._manager(model)
        latest = self.manager.latest_checkpoint
        if latest and reader == "restore":
            scalekeeper.restore(model, latest)
        elif latest:
            checkpoint.restore(latest)
        return model

    def keep(self, model):
        self.manager.save(checkpoint_number=model.optimizer.telemetry.steps)


class Models(Nothing):
    """The whole model, always under the same name."""

    suffix = ""

    @property
    def path(self):
        return os.path.join(self.folder, "model" + self.suffix)

    def resumed(self, make, reader):
        if not os.path.exists(self.path):
            return make()
        if reader == "load":
            return scalekeeper.load_model(self.path)
        model = make()
        scalekeeper.restore(model, self.path)
        return model

    def keep(self, model):
        scalekeeper.save_model(model, self.path)


class H5(Models):
    suffix = ".h5"


class KerasFiles(Models):
    suffix = ".keras"


class States(Nothing):
    """Weights as Keras saves them, and the optimizer's state beside.

    The state is written last and replaced in one step. Its number of steps says which weights belong to it; others are
    begun and not finished, or old.
    """

    @property
    def state(self):
        return os.path.join(self.folder, "state.npz")

    def weights(self, steps):
        return os.path.join(self.folder, f"{steps}.weights.h5")

    def resumed(self, make, reader):
        model = make()
        if os.path.exists(self.state):
            if reader == "restore":
                scalekeeper.restore(model, self.state)
            else:
                model.optimizer.load_state_dict(scalekeeper.read_state(self.state), model.trainable_variables)
            model.load_weights(self.weights(model.optimizer.telemetry.steps))
        return model

    def keep(self, model):
        steps = model.optimizer.telemetry.steps
        model.save_weights(self.weights(steps))
        scalekeeper.save_state(model.optimizer, self.state)
        for name in os.listdir(self.folder):
            if name.endswith(".weights.h5") and name != f"{steps}.weights.h5":
                os.remove(os.path.join(self.folder, name))


NO_WAY = "not kept"
KEEPERS = {NO_WAY: Nothing, "checkpoint": Checkpoints, "H5": H5, "npz, weights": States}
KEEPERS.update({"SavedModel": Models} if "" in MODEL_SUFFIXES else {})
KEEPERS.update({".keras": KerasFiles} if ".keras" in MODEL_SUFFIXES else {})
WAYS = [way for way in KEEPERS if way != NO_WAY]
READERS = ["load", "restore"]  # with what the format has for it, or into a model that was built in code


def precision_of(way):
    """Mixed, but for whole models of TensorFlow 2.0, which writes layers as if they computed in float32."""
    is_model = issubclass(KEEPERS[way], Models)
    return "float32" if is_model and tf.__version__.startswith("2.0.") else "mixed_float16"


if __name__ == "__main__":
    main(*sys.argv[1:])
