"""One of two workers under MultiWorkerMirroredStrategy; TF_CONFIG says which."""

import common
import installed_keras
import tensorflow as tf

from scalekeeper.optimizer import LossScaleOptimizer

STEPS = 30
# Where TensorFlow's own class believes the first replica of each worker, one worker applies what the other skips, and a
# run with such steps did not end: there it takes part in those only that are good for all or bad for all.
WRAPPERS = ("ours",) if installed_keras.LOOKS_AT_FIRST_REPLICA_ONLY else ("ours", "tensorflow")


def report(strategy):
    """What the policy learns of gradients that are 3 and 0 on one worker, -8 and -8 on the other."""
    with strategy.scope():
        variable = tf.Variable([0.0, 0.0])
        optimizer = LossScaleOptimizer(tf.keras.optimizers.SGD(0.5), common.Watching())

    @tf.function(autograph=False)
    def step():
        def in_replica():
            optimizer.apply_gradients([(common.of_replica(tf.constant([[3.0, 0.0], [-8.0, -8.0]])), variable)])

        common.run(strategy, in_replica)

    step()
    return {"values": common.on_replicas(strategy, variable), "state": optimizer.loss_scale.state()}


if __name__ == "__main__":
    workers = tf.distribute.experimental.MultiWorkerMirroredStrategy()
    found = {"replicas": workers.num_replicas_in_sync, "report": report(workers)}
    for inner in common.INNER_OPTIMIZERS:
        found[inner] = common.loops(workers, inner, STEPS, WRAPPERS)
    common.answer(found)
