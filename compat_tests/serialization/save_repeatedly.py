"""Saves a model again and again, each time with another number in it; killed by test_killed_while_saving.py."""

import itertools
import sys

import tensorflow as tf

import scalekeeper
from scalekeeper_test_support.small_model import build


def main():
    paths = sys.argv[1:]
    model = build()
    model.compile(scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1, momentum=0.9)), "mse")
    model.optimizer.apply_gradients([(tf.zeros(each.shape), each) for each in model.trainable_variables])
    for number in itertools.count(1):
        for weight in model.weights:
            weight.assign(tf.fill(weight.shape, float(number)))
        model.optimizer.inner_optimizer.iterations.assign(number)
        for path in paths:
            scalekeeper.save_model(model, path)
        print(number, flush=True)


if __name__ == "__main__":
    main()
