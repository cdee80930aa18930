"""A small training that runs under any strategy, and the same without one, to compare with."""

import json
import os

import numpy as np
import tensorflow as tf

import scalekeeper
from scalekeeper.optimizer import LossScaleOptimizer

INITIAL_SCALE = 1024.0
INCREMENT_PERIOD = 4
REPLICAS = 2
# facts of TensorFlow: up to 2.2 its own class does not count a skipped step
COUNTS_SKIPPED_STEPS = tuple(map(int, tf.__version__.split(".")[:2])) >= (2, 3)

INNER_OPTIMIZERS = {
    "SGD": lambda: tf.keras.optimizers.SGD(0.05, momentum=0.9),
    "Adam": lambda: tf.keras.optimizers.Adam(0.02),
}


def ours(inner):
    policy = scalekeeper.DynamicLossScale(INITIAL_SCALE, increment_period=INCREMENT_PERIOD)
    return LossScaleOptimizer(inner, policy)


def tensorflows(inner):
    policy = tf.train.experimental.DynamicLossScale(INITIAL_SCALE, increment_period=INCREMENT_PERIOD)
    return tf.keras.mixed_precision.experimental.LossScaleOptimizer(inner, policy)


class Watching(scalekeeper.LossScale):
    """Keeps what the last report said, to see what the replicas agree on."""

    needs = frozenset({"finite", "largest_magnitude", "zero_share"})

    def initial_state(self):
        return {"current_loss_scale": np.float32(1), "largest": np.float32(0), "zero_share": np.float32(0)}

    def next_state(self, state, report, ops):
        return dict(state, largest=report.largest_magnitude, zero_share=report.zero_share)


WRAPPERS = {"ours": ours, "tensorflow": tensorflows}


def two_logical_cpus():
    (cpu,) = tf.config.experimental.list_physical_devices("CPU")
    logical = [tf.config.experimental.VirtualDeviceConfiguration() for _ in range(2)]
    tf.config.experimental.set_virtual_device_configuration(cpu, logical)
    return ["/cpu:0", "/cpu:1"]


def run(strategy, function, *args):
    """``strategy.run``, which has an older name up to 2.1."""
    name = "run" if hasattr(strategy, "run") else "experimental_run_v2"
    return getattr(strategy, name)(function, args=args)


def of_replica(values):
    """This replica's row of what is given to all of them."""
    # up to 2.3 the context counts from 0 on each worker, and each of ours has one replica
    worker = json.loads(os.environ.get("TF_CONFIG", '{"task": {"index": 0}}'))["task"]["index"]
    return tf.gather(values, worker + tf.distribute.get_replica_context().replica_id_in_sync_group)


def on_replicas(strategy, variable):
    """The value of a variable on each replica of this process."""
    return [each.numpy().tolist() for each in strategy.experimental_local_results(variable)]


def _children(trackable):
    return {child.name: child.ref for child in trackable._checkpoint_dependencies}


def schedule(steps, replicas=REPLICAS):
    """The data of each step, and whether it is good: first a NaN on each replica alone, then overflows at random.

    Every process makes the same.
    """
    random = np.random.RandomState(7)
    features = random.uniform(0.5, 1.5, [steps, replicas, 3]).astype(np.float32)
    bad = np.zeros([steps, replicas], bool)
    bad[1, 0] = bad[3, 1] = True
    bad[5:] = random.uniform(size=bad[5:].shape) < 0.1
    values = random.choice(np.float32([np.nan, np.inf, -np.inf]), size=bad.shape)
    values[1, 0] = values[3, 1] = np.nan
    features[..., 1] = np.where(bad, values, features[..., 1])
    return features, ~bad.any(axis=1)


def loss_of(features, kernel, bias):
    return tf.reduce_mean(tf.square(kernel * features + bias - 3.0)) / REPLICAS


class Training:
    """A linear model and its optimizer, made in a strategy's scope, and the traced step that trains it."""

    def __init__(self, strategy, wrapper, inner):
        self.strategy = strategy
        with strategy.scope():
            self.kernel = tf.Variable([1.0, -2.0, 0.5])
            self.bias = tf.Variable(0.25)
            self.optimizer = WRAPPERS[wrapper](INNER_OPTIMIZERS[inner]())
        self.traces = 0
        self.step = tf.function(self._step, autograph=False)

    def _step(self, features):
        self.traces += 1
        run(self.strategy, self._in_replica, features)

    def _in_replica(self, features):
        with tf.GradientTape() as tape:
            loss = self.optimizer.get_scaled_loss(loss_of(of_replica(features), self.kernel, self.bias))
        variables = [self.kernel, self.bias]
        grads = self.optimizer.get_unscaled_gradients(tape.gradient(loss, variables))
        self.optimizer.apply_gradients(zip(grads, variables))

    def state(self):
        """Every number that a step may change, on each replica of this process."""
        # both classes keep the loss scale's variables where a checkpoint finds them, under the same names
        loss_scale = _children(_children(self.optimizer)["loss_scale"])
        variables = {"kernel": self.kernel, "bias": self.bias, "iterations": self.optimizer.iterations}
        variables.update((name, loss_scale[name]) for name in ("current_loss_scale", "good_steps"))
        variables.update((f"slot {index}", each) for index, each in enumerate(self.optimizer.weights[1:]))
        values = {name: on_replicas(self.strategy, variable) for name, variable in variables.items()}
        return dict(values, scale=float(self.optimizer.loss_scale()))

    def run(self, steps):
        """Take the steps of the schedule; the state after each of them, and how often the step was traced."""
        features, _ = schedule(steps)
        states, traces = [], []
        for each in features:
            self.step(tf.constant(each))
            states.append(self.state())
            traces.append(self.traces)
        return {"states": states, "traces": traces}


def reference(inner, steps):
    """What must come out, with no strategy and no loss scale: the bare optimizer gets the good steps only.

    The gradients are those of the sum of the replicas' losses; the scale follows the rule, written out.
    """
    kernel, bias, optimizer = tf.Variable([1.0, -2.0, 0.5]), tf.Variable(0.25), INNER_OPTIMIZERS[inner]()
    scale, good_steps, states = INITIAL_SCALE, 0, []
    for each, is_good in zip(*schedule(steps)):
        if is_good:
            with tf.GradientTape() as tape:
                loss = tf.add_n([loss_of(tf.constant(row), kernel, bias) for row in each])
            optimizer.apply_gradients(zip(tape.gradient(loss, [kernel, bias]), [kernel, bias]))
            good_steps += 1
            if good_steps == INCREMENT_PERIOD:
                scale, good_steps = scale * 2, 0
        else:
            scale, good_steps = max(scale / 2, 1.0), 0
            if COUNTS_SKIPPED_STEPS:
                optimizer.iterations.assign_add(1)
        state = {"kernel": kernel.numpy().tolist(), "bias": bias.numpy().tolist(), "scale": scale}
        iterations = int(optimizer.iterations.numpy())
        states.append(dict(state, iterations=iterations, good_steps=good_steps, is_good=bool(is_good)))
    return states


def message_of(function, *args):
    """The kind and the text of the error that a call raises; None for none."""
    try:
        function(*args)
    except Exception as error:
        return {"type": type(error).__name__, "message": str(error)}
    return None


def answer(result):
    """Print the result, on one line, the last."""
    print(json.dumps(result), flush=True)
