"""One of two Horovod workers: prints, as JSON, its weight and loss scale after each step of fit."""

import json
import sys

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

import scalekeeper


def main(is_wrapped):
    hvd.init()
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", input_shape=(1,))])
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.5))
    if is_wrapped:
        optimizer = scalekeeper.LossScaleOptimizer(optimizer, scalekeeper.DynamicLossScale(8, increment_period=100))
    model.compile(optimizer, lambda true, predicted: true * predicted)
    found = []
    # the gradient is the target: each worker has its own; in the second step, the second worker has a NaN
    for targets in ((1.0, 3.0), (1.0, float("nan")), (2.0, 6.0)):
        target = targets[hvd.rank()]
        if is_wrapped or np.isfinite(targets).all():
            model.fit(np.ones([1, 1]), np.full([1, 1], target), epochs=1, verbose=0)
        scale = float(optimizer.loss_scale) if is_wrapped else None
        found.append([model.get_weights()[0].item(), scale, int(optimizer.iterations.numpy())])
    print("RESULT " + json.dumps({"rank": hvd.rank(), "size": hvd.size(), "found": found}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1] == "wrapped")
