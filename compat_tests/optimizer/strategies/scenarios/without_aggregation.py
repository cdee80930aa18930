"""Two replicas on a Keras 3 that does not sum their gradients."""

import common
import keras
import tensorflow as tf

from scalekeeper.optimizer import LossScaleOptimizer

if __name__ == "__main__":
    strategy = tf.distribute.MirroredStrategy(common.logical_cpus())
    with strategy.scope():
        variable = keras.Variable([1.0, 2.0])
        optimizer = LossScaleOptimizer(keras.optimizers.SGD(0.1), "dynamic")
        optimizer.build([variable])

    def step():
        optimizer.apply_gradients([(tf.constant([1.0, 1.0]), variable)])

    error = None
    try:
        common.run(strategy, step)
    except Exception as raised:
        error = type(raised).__name__
    common.answer({"error": error, "value": variable.numpy().tolist()})
