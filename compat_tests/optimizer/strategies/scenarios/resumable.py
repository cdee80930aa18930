"""A worker that goes on from the last checkpoint of its cluster: ``resumable.py WAY FOLDER STEPS``.

All of them save every few steps, each into a folder of its own, as TensorFlow asks for; they resume from the chief's.
WAY is what they save with: ``checkpoint`` is TensorFlow's own, ``model`` our ``save_model`` and ``restore``.
"""

import json
import os
import re
import signal
import sys

import common
import tensorflow as tf

import scalekeeper

SAVES_EVERY = 5
SECONDS = 240  # after which a worker ends, whatever it waits for and whoever has forgotten it


class Training(common.Training):
    """The same, of a Keras model."""

    def __init__(self, strategy):
        super().__init__(strategy, "ours", "Adam", common.LOOP_SCALE)
        with strategy.scope():
            ones = tf.constant_initializer(1.0)  # the same on every worker
            self.model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(3,), kernel_initializer=ones)])
            self.model.compile(self.optimizer, "mse")
        self.kernel, self.bias = self.model.trainable_variables

    def _in_replica(self, features):
        variables, own = [self.kernel, self.bias], common.of_replica(features)[tf.newaxis]

        def loss():
            return tf.reduce_sum(tf.square(self.model(own) - 3.0)) / self.replicas

        self.optimizer.apply_gradients(zip(common.gradients(self.optimizer, loss, variables), variables))


class Checkpoints:
    """TensorFlow's own; it knows how many steps were taken because it keeps their number."""

    def __init__(self, training, own, chiefs):
        self._chiefs, self._steps = chiefs, tf.Variable(0, dtype=tf.int64)
        self._checkpoint = tf.train.Checkpoint(model=training.model, optimizer=training.optimizer, steps=self._steps)
        self._manager = tf.train.CheckpointManager(self._checkpoint, own, max_to_keep=2)

    def save(self, steps):
        self._steps.assign(steps)
        self._manager.save()

    def resume(self):
        latest = tf.train.latest_checkpoint(self._chiefs)
        if latest is not None:
            self._checkpoint.restore(latest).assert_existing_objects_matched()
        return int(self._steps.numpy())


class Models:
    """Our ``save_model`` and ``restore``; the number of steps is in the name."""

    def __init__(self, training, own, chiefs):
        self._training, self._own, self._chiefs = training, own, chiefs
        os.makedirs(own, exist_ok=True)

    def save(self, steps):
        scalekeeper.save_model(self._training.model, os.path.join(self._own, f"after-{steps}.h5"))

    def resume(self):
        names = os.listdir(self._chiefs) if os.path.isdir(self._chiefs) else []
        saved = [int(match.group(1)) for match in (re.match(r"after-(\d+)\.h5$", name) for name in names) if match]
        if saved:
            scalekeeper.restore(self._training.model, os.path.join(self._chiefs, f"after-{max(saved)}.h5"))
        return max(saved, default=0)


WAYS = {"checkpoint": Checkpoints, "model": Models}


def main(way, folder, steps):
    signal.alarm(SECONDS)
    index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()
    training = Training(strategy)
    saving = WAYS[way](training, *(os.path.join(folder, f"saved-by-{each}") for each in (index, 0)))
    with strategy.scope():  # where slots are made, which TensorFlow asks for
        resumed_after = saving.resume()
    features, _ = common.schedule(steps, training.replicas)
    for step in range(resumed_after, steps):
        training.step(tf.constant(features[step]))
        say(folder, index, step + 1)
        if (step + 1) % SAVES_EVERY == 0:
            saving.save(step + 1)
    common.answer({"resumed after": resumed_after, "state": training.state(), "skips": training.skips()})


def say(folder, index, steps):
    """Tell the supervisor how many steps were taken."""
    path = os.path.join(folder, f"steps-of-{index}")
    with open(path + ".new", "w") as stream:
        stream.write(str(steps))
    os.replace(path + ".new", path)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
