"""A small training that runs under any strategy, and the same without one, to compare with."""

import json
import os
import pathlib
import sys

import numpy as np
import tensorflow as tf

import scalekeeper
from scalekeeper.optimizer import LossScaleOptimizer

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))  # for installed_keras, which all tests share

import installed_keras

INITIAL_SCALE = 1024.0
INCREMENT_PERIOD = 4
REPLICAS = 2

INNER_OPTIMIZERS = {
    "SGD": lambda: tf.keras.optimizers.SGD(0.05, momentum=0.9),
    "Adam": lambda: tf.keras.optimizers.Adam(0.02),
}
if "legacy" in installed_keras.OPTIMIZERS:
    INNER_OPTIMIZERS["legacy Adam"] = lambda: installed_keras.OPTIMIZERS["legacy"].Adam(0.02)


def ours(inner, initial_scale=INITIAL_SCALE):
    policy = scalekeeper.DynamicLossScale(initial_scale, increment_period=INCREMENT_PERIOD)
    return LossScaleOptimizer(inner, policy)


def tensorflows(inner, initial_scale=INITIAL_SCALE):
    parameters = {"initial_loss_scale": initial_scale, "increment_period": INCREMENT_PERIOD}
    return installed_keras.upstream(inner, parameters)


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
    context = tf.distribute.get_replica_context()
    # up to 2.3 the context counts from 0 on each worker, and each of ours has one replica
    counts_all = hasattr(context.strategy.extended, "_get_replica_id_in_sync_group")
    task = json.loads(os.environ.get("TF_CONFIG", '{"task": {"index": 0}}'))["task"]
    return tf.gather(values, context.replica_id_in_sync_group + (0 if counts_all else task["index"]))


def on_replicas(strategy, variable):
    """The value of a variable on each replica of this process."""
    # a Keras 3 variable holds TensorFlow's, where TensorFlow's own has a method; one that casts itself holds another
    variable = variable.value if not callable(variable.value) else getattr(variable, "_variable", variable)
    return [each.numpy().tolist() for each in strategy.experimental_local_results(variable)]


def loss_scale_variables(optimizer):
    """The two variables of a dynamic scale, ours or TensorFlow's own, by their names in a checkpoint."""
    if installed_keras.IS_KERAS_3:
        return {"current_loss_scale": optimizer.dynamic_scale, "good_steps": optimizer.step_counter}
    # both classes keep them where a checkpoint finds them, under the same names
    children = _children(_children(optimizer)["loss_scale"])
    return {name: children[name] for name in ("current_loss_scale", "good_steps")}


def _children(trackable):
    if hasattr(tf.Module, "_trackable_children"):  # since 2.9
        return trackable._trackable_children()
    return {child.name: child.ref for child in trackable._checkpoint_dependencies}


def slots(optimizer):
    """The variables of the inner optimizer that are neither its iterations nor its learning rate."""
    inner = installed_keras.inner_of(optimizer)
    others = [inner.iterations, getattr(inner, "_learning_rate", None)]
    return [each for each in installed_keras.variables_of(inner) if all(each is not other for other in others)]


def build_theirs(optimizer, variables):
    """Keras 3's own class can't make its variables in a traced step under a strategy; ours can, so it has to."""
    if not isinstance(optimizer, LossScaleOptimizer):
        build(optimizer, variables)


def build(optimizer, variables):
    """Make the optimizer's variables, where there is a word for it that holds for every optimizer."""
    if installed_keras.IS_KERAS_3:
        optimizer.build(variables)


def as_taken(optimizer, grads):
    """Unscaled gradients as ``apply_gradients`` takes them: Keras 3's own class wants them scaled."""
    return grads if hasattr(optimizer, "get_unscaled_gradients") else [optimizer.scale_loss(grad) for grad in grads]


def gradients(optimizer, loss_function, variables):
    """The gradients of a loss to be applied, by the words of the optimizer's class."""
    keras_3_words = not hasattr(optimizer, "get_scaled_loss")
    with tf.GradientTape() as tape:
        loss = loss_function()
        loss = optimizer.scale_loss(loss) if keras_3_words else optimizer.get_scaled_loss(loss)
    grads = tape.gradient(loss, variables)
    return grads if keras_3_words else optimizer.get_unscaled_gradients(grads)


def schedule(steps, replicas=REPLICAS, are_all_bad=False):
    """The data of each step, and whether it is good: first a NaN on each replica alone, then overflows at random.

    Every process makes the same. On request, what is bad on one replica is bad on all.
    """
    random = np.random.RandomState(7)
    features = random.uniform(0.5, 1.5, [steps, replicas, 3]).astype(np.float32)
    bad = np.zeros([steps, replicas], bool)
    bad[1, 0] = bad[3, 1] = True
    bad[5:] = random.uniform(size=bad[5:].shape) < 0.1
    values = random.choice(np.float32([np.nan, np.inf, -np.inf]), size=bad.shape)
    values[1, 0] = values[3, 1] = np.nan
    if are_all_bad:
        bad[:] = bad.any(axis=1, keepdims=True)
    features[..., 1] = np.where(bad, values, features[..., 1])
    return features, ~bad.any(axis=1)


def loss_of(features, kernel, bias):
    return tf.reduce_mean(tf.square(kernel * features + bias - 3.0)) / REPLICAS


class Training:
    """A linear model and its optimizer, made in a strategy's scope, and the traced step that trains it."""

    def __init__(self, strategy, wrapper, inner, initial_scale=INITIAL_SCALE, is_built=False):
        self.strategy = strategy
        with strategy.scope():
            self.kernel = tf.Variable([1.0, -2.0, 0.5])
            self.bias = tf.Variable(0.25)
            self.optimizer = WRAPPERS[wrapper](INNER_OPTIMIZERS[inner](), initial_scale)
            (build if is_built else build_theirs)(self.optimizer, [self.kernel, self.bias])
        self.traces = 0
        self.step = tf.function(self._step, autograph=False)

    def _step(self, features):
        self.traces += 1
        run(self.strategy, self._in_replica, features)

    def _in_replica(self, features):
        variables = [self.kernel, self.bias]
        grads = gradients(self.optimizer, lambda: loss_of(of_replica(features), *variables), variables)
        self.optimizer.apply_gradients(zip(grads, variables))

    def state(self):
        """Every number that a step may change, on each replica of this process."""
        variables = {"kernel": self.kernel, "bias": self.bias, "iterations": self.optimizer.iterations}
        variables.update(loss_scale_variables(self.optimizer))
        variables.update((f"slot {index}", each) for index, each in enumerate(slots(self.optimizer)))
        values = {name: on_replicas(self.strategy, variable) for name, variable in variables.items()}
        return dict(values, scale=installed_keras.state_of(self.optimizer)["current_loss_scale"])

    def run(self, steps, are_all_bad=False):
        """Take the steps of the schedule; the state after each of them, and how often the step was traced."""
        features, _ = schedule(steps, are_all_bad=are_all_bad)
        states, traces = [], []
        for each in features:
            self.step(tf.constant(each))
            states.append(self.state())
            traces.append(self.traces)
        return {"states": states, "traces": traces}


def loops(strategy, inner, steps, wrappers=tuple(WRAPPERS)):
    """What ours, TensorFlow's own class and the bare optimizer do in the same steps.

    Under "comparable" are steps in which TensorFlow's own class has to do as ours does.
    """
    found = {wrapper: Training(strategy, wrapper, inner).run(steps) for wrapper in wrappers}
    comparable = found
    if installed_keras.LOOKS_AT_FIRST_REPLICA_ONLY:
        # and where the scale has no floor, which these steps must not reach
        trainings = {wrapper: Training(strategy, wrapper, inner, 2.0**40, is_built=True) for wrapper in WRAPPERS}
        comparable = {wrapper: training.run(steps, are_all_bad=True) for wrapper, training in trainings.items()}
    return dict(found, reference=reference(inner, steps), comparable=comparable)


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
            if installed_keras.COUNTS_SKIPPED_STEPS:
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
