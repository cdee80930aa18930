"""A custom loop under MirroredStrategy that has to be taken in each replica's own graph, with no ``merge_call``."""

import common
import tensorflow as tf

from scalekeeper.optimizer import LossScaleOptimizer
from scalekeeper_test_support import installed_keras

REPLICAS = 2
STEPS = 20


class OwnUpdate:
    """A loss scale in TensorFlow's own style, which decides in ``update``."""

    def __call__(self):
        return tf.constant(8.0)

    def update(self, grads):
        return tf.no_op(), True

    def get_config(self):
        return {}


class Training(common.Training):
    """The step of each replica is a function of its own, where ``merge_call`` is an error."""

    def __init__(self, *args):
        super().__init__(*args)
        self._function = tf.function(super()._in_replica, autograph=False)

    def _in_replica(self, features):
        self._function(features)  # strategy.run would take the function itself apart


def bare_error(strategy):
    """The error of an optimizer with no loss scale in such a step."""
    with strategy.scope():
        variable, optimizer = tf.Variable(1.0), tf.keras.optimizers.SGD(1.0)
        common.build(optimizer, [variable])

    @tf.function(autograph=False)
    def apply():
        optimizer.apply_gradients([(tf.constant(1.0), variable)])

    def in_replica():
        apply()

    return common.message_of(tf.function(lambda: common.run(strategy, in_replica), autograph=False))


def own_update_error(strategy):
    training = Training(strategy, "ours", "SGD")
    with strategy.scope():
        training.optimizer = LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), OwnUpdate())
    features, _ = common.schedule(STEPS, REPLICAS)
    return common.message_of(training.step, tf.constant(features[0]))


if __name__ == "__main__":
    mirrored = tf.distribute.MirroredStrategy(common.logical_cpus(REPLICAS))
    mirrored.extended._use_merge_call = lambda: False
    found = {"bare_error": bare_error(mirrored), "own_update_error": own_update_error(mirrored)}
    if not installed_keras.IS_KERAS_3:
        for inner in common.INNER_OPTIMIZERS:
            trainings = {each: Training(mirrored, each, inner, common.LOOP_SCALE) for each in common.WRAPPERS}
            found[inner] = {wrapper: training.run(STEPS) for wrapper, training in trainings.items()}
            found[inner]["reference"] = common.reference(inner, STEPS, REPLICAS)
        found["shared_steps"] = common.shared_steps(mirrored, lambda step: tf.function(step, autograph=False))
    common.answer(found)
