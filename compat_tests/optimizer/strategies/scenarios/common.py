"""A small training that runs under any strategy, and the same without one, to compare with."""

import json
import os

import numpy as np
import tensorflow as tf

import scalekeeper
from scalekeeper.optimizer import LossScaleOptimizer
from scalekeeper_test_support import installed_keras

INITIAL_SCALE = 1024.0
INCREMENT_PERIOD = 4
LOOP_SCALE = 2.0**40  # of long loops: they stay above the floor, which Keras 3's own class does not have
BAD_VALUES = np.float32([np.nan, np.inf, -np.inf])

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


def logical_cpus(count=2):
    (cpu,) = tf.config.experimental.list_physical_devices("CPU")
    logical = [tf.config.experimental.VirtualDeviceConfiguration() for _ in range(count)]
    tf.config.experimental.set_virtual_device_configuration(cpu, logical)
    return [f"/cpu:{index}" for index in range(count)]


def run(strategy, function, *args):
    """``strategy.run``, which has an older name up to 2.1."""
    name = "run" if hasattr(strategy, "run") else "experimental_run_v2"
    return getattr(strategy, name)(function, args=args)


def of_replica(values):
    """This replica's row of what is given to all of them."""
    context = tf.distribute.get_replica_context()
    # up to 2.3 the context counts from 0 on each worker, and each worker here has one replica
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
    """The variables of the inner optimizer that are neither its iterations nor its learning rate.

    By their names: an optimizer that was restored from a checkpoint has made them in another order.
    """
    inner = installed_keras.inner_of(optimizer)
    others = [inner.iterations, getattr(inner, "_learning_rate", None)]
    found = [each for each in installed_keras.variables_of(inner) if all(each is not other for other in others)]
    return sorted(found, key=lambda each: each.name)


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


def schedule(steps, replicas, are_all_bad=False):
    """The data of each step, and whether it is good.

    First each bad value on each replica alone, with a good step before each; then overflows at random. Every process
    makes the same. On request, what is bad on one replica is bad on all.
    """
    random = np.random.RandomState(7)
    features = random.uniform(0.5, 1.5, [steps, replicas, 3]).astype(np.float32)
    bad = random.uniform(size=[steps, replicas]) < 0.2 / replicas
    values = random.choice(BAD_VALUES, size=bad.shape)
    each_alone = [(replica, value) for value in BAD_VALUES for replica in range(replicas)]
    bad[: 2 * len(each_alone)] = False
    for step, (replica, value) in zip(range(1, steps, 2), each_alone):
        bad[step, replica], values[step, replica] = True, value
    if are_all_bad:
        bad[:] = bad.any(axis=1, keepdims=True)
    features[..., 1] = np.where(bad, values, features[..., 1])
    return features, ~bad.any(axis=1)


def loss_of(features, kernel, bias, replicas):
    return tf.reduce_mean(tf.square(kernel * features + bias - 3.0)) / replicas


class Training:
    """A linear model and its optimizer, made in a strategy's scope, and the traced step that trains it."""

    def __init__(self, strategy, wrapper, inner, initial_scale=INITIAL_SCALE, is_built=False):
        self.strategy, self.replicas = strategy, strategy.num_replicas_in_sync
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
        own = of_replica(features)
        grads = gradients(self.optimizer, lambda: loss_of(own, *variables, self.replicas), variables)
        self.optimizer.apply_gradients(zip(grads, variables))

    def state(self):
        """Every number that a step may change, on each replica of this process."""
        variables = {"kernel": self.kernel, "bias": self.bias, "iterations": self.optimizer.iterations}
        variables.update(loss_scale_variables(self.optimizer))
        variables.update((f"slot {index}", each) for index, each in enumerate(slots(self.optimizer)))
        values = {name: on_replicas(self.strategy, variable) for name, variable in variables.items()}
        return dict(values, scale=installed_keras.state_of(self.optimizer)["current_loss_scale"])

    def skips(self):
        """Return what ours knows of skipped steps, on each replica of this process; nothing of another class."""
        if not hasattr(self.optimizer, "telemetry"):
            return None
        told = self.optimizer.telemetry
        counters = [
            on_replicas(self.strategy, counter) for counter in self.optimizer._monitor.counters.module.variables
        ]
        return {"skipped": told.skipped, "skipped_in_a_row": told.skipped_in_a_row, "counters": counters}

    def run(self, steps, are_all_bad=False):
        """Take the steps of the schedule; what is there after each of them, and how often the step was traced."""
        features, _ = schedule(steps, self.replicas, are_all_bad)
        states, skips, traces = [], [], []
        for each in features:
            self.step(tf.constant(each))
            states.append(self.state())
            skips.append(self.skips())
            traces.append(self.traces)
        return {"states": states, "skips": skips, "traces": traces}


def reference(inner, steps, replicas):
    """Return what must come out, with no strategy and no loss scale: the bare optimizer gets the good steps only.

    The gradients are those of the sum of the replicas' losses; the scale and the counters of skipped steps follow the
    rule, written out.
    """
    kernel, bias, optimizer = tf.Variable([1.0, -2.0, 0.5]), tf.Variable(0.25), INNER_OPTIMIZERS[inner]()
    scale, good_steps, skipped, in_a_row, states = LOOP_SCALE, 0, 0, 0, []

    @tf.function(autograph=False)
    def step(features):
        with tf.GradientTape() as tape:
            rows = tf.unstack(features)
            loss = tf.add_n([loss_of(row, kernel, bias, replicas) for row in rows])
        optimizer.apply_gradients(zip(tape.gradient(loss, [kernel, bias]), [kernel, bias]))

    build(optimizer, [kernel, bias])
    for each, is_good in zip(*schedule(steps, replicas)):
        if is_good:
            step(tf.constant(each))
            good_steps, in_a_row = good_steps + 1, 0
            if good_steps == INCREMENT_PERIOD:
                scale, good_steps = scale * 2, 0
        else:
            scale, good_steps, skipped, in_a_row = max(scale / 2, 1.0), 0, skipped + 1, in_a_row + 1
            if installed_keras.COUNTS_SKIPPED_STEPS:
                optimizer.iterations.assign_add(1)
        state = {"kernel": kernel.numpy().tolist(), "bias": bias.numpy().tolist(), "scale": scale}
        state.update(skipped=skipped, skipped_in_a_row=in_a_row)
        iterations = int(optimizer.iterations.numpy())
        states.append(dict(state, iterations=iterations, good_steps=good_steps, is_good=bool(is_good)))
    return states


def shared_steps(strategy, as_function=lambda function: function):
    """Two optimizers with one loss scale: decisions, weights and loss scale after each step, on each replica."""
    with strategy.scope():
        shared = scalekeeper.SharedLossScale({"name": "dynamic", "initial_loss_scale": 8.0, "increment_period": 2})
        variables = [tf.Variable([0.0]), tf.Variable([0.0])]
        optimizers = [LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), shared) for _ in variables]
        for optimizer, variable in zip(optimizers, variables):
            build(optimizer, [variable])

    def in_replica(rows):
        decisions = []
        with shared.step():
            for index, (optimizer, variable) in enumerate(zip(optimizers, variables)):
                scaled = optimizer.get_scaled_loss([of_replica(rows[index])])
                grads = optimizer.get_unscaled_gradients([scaled])
                decisions.append(optimizer.apply_gradients([(grads[0], variable)], return_decision=True))
        return tf.stack(decisions)

    in_replica = as_function(in_replica)
    step, found = tf.function(lambda rows: run(strategy, lambda rows: in_replica(rows), rows), autograph=False), []
    for rows in ([[1, 1], [1, 2]], [[1, np.inf], [1, 1]], [[2, 2], [np.nan, 1]], [[1, 1], [1, 1]], [[1, 0], [1, 0]]):
        decisions = strategy.experimental_local_results(step(tf.constant(rows, tf.float32)))
        weights = [on_replicas(strategy, variable) for variable in variables]
        found.append(([each.numpy().tolist() for each in decisions], weights, shared.loss_scale.state()))

    def around():
        with shared.step():
            run(strategy, lambda: optimizers[0].apply_gradients([(tf.constant([1.0]), variables[0])]))

    error = message_of(tf.function(around, autograph=False))
    return {"steps": found, "error": error}


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
