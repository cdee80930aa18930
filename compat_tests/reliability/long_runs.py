"""Many steps in one process: memory, traces, and the state of the loss scale after each of them.

    python compat_tests/reliability/long_runs.py [--steps 200000] [--record]

Each run has a process of its own, so that none finds memory that another has left. The same runs with TensorFlow's own
class and with the bare optimizer tell what of it is TensorFlow's.
"""

import argparse
import ctypes
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np
import tensorflow as tf

import scalekeeper
from scalekeeper.lossscales import advance
from scalekeeper.lossscales._numpy_state import OPS
from scalekeeper.optimizer._step.graph_state import hold_in_graph
from scalekeeper_test_support import reliability_results
from scalekeeper_test_support.installed_keras import upstream

SECTION = "long-runs"
STEPS = 200_000
MOST_GROWTH = 1.02  # resident size at the end, to that after a tenth of the steps
LARGEST = 65504.0  # what float16 holds
LARGEST_USED = np.float32(2.0**126)  # a scale above it is used as this: its reciprocal would be taken for zero
POLICIES = {
    "dynamic": {"initial_loss_scale": 2.0**10, "increment_period": 10, "minimum": 2.0, "maximum": 2.0**16},
    "tolerant": {"increment_period": 3, "tolerance": 0.3},
    "adaptive_window": {"minimum_window": 2, "initial_window": 2, "maximum_window": 12},
    "log_max": {"beta1": 0.9, "beta2": 0.97},
}
OURS, THEIRS, BARE = "ours", "TensorFlow's own", "bare"
# run → the share of the steps that it takes, as some are slow; a policy's name: gradients are handed over as they are
RUNS = {"traced": 1.0, "eager": 0.02, "fit": 0.05, "tolerant": 0.05, "adaptive_window": 0.05, "log_max": 0.05}
SHARE_OF_CONTROL = {"traced": 0.1}  # with another optimizer than ours
READ_EVERY, SAVE_EVERY = 100, 500  # steps: telemetry, and a checkpoint with what save_state writes
BATCHES_AN_EPOCH = 8
PIECES = 10  # memory is read after each
CHECKS = ("traces after the first", "differ from the simulation")  # columns where only 0 is right


# The parts of a run


def sizes_of(steps):
    """The largest gradient of each step: all sizes, some not finite, bursts that lead to the floor, and quiet times."""
    random = np.random.RandomState(11)
    sizes = np.exp2(random.normal(-2, 4, steps)).astype(np.float32)
    is_bad = random.rand(steps) < 0.02
    sizes[is_bad] = random.choice([np.inf, -np.inf, np.nan], is_bad.sum())
    for start in range(100, steps, 1000):
        sizes[start : start + 30] = np.inf
        sizes[start + 200 : start + 450] = 2.0**-10
    return sizes


@tf.custom_gradient
def in_half_precision(values):
    """Return the values; their gradient is infinite where float16 cannot hold it."""

    def backwards(grads):
        return tf.where(tf.abs(grads) > LARGEST, grads * np.float32(np.inf), grads)

    return tf.identity(values), backwards


class Loop:
    """A custom training loop: two variables, and a step that keeps the state of the loss scale before it.

    Values that change from step to step are computed before and kept in variables, so that a step leaves nothing in
    Python. With ``is_scaled`` the loss is scaled, and a gradient overflows where it would in float16; without, the
    optimizer gets gradients of these very sizes.
    """

    def __init__(self, optimizer, sizes, is_traced, is_scaled):
        self.optimizer = optimizer
        self.kernel, self.bias = tf.Variable([0.5, -0.25, 0.125], name="kernel"), tf.Variable(0.0, name="bias")
        self.traces = 0
        self._is_scaled = is_scaled
        self._sizes, self._place = tf.constant(sizes), tf.Variable(0, dtype=tf.int64)
        inputs = np.random.RandomState(5).uniform(0.1, 0.9, (64, 3)).astype(np.float32)
        self._batches = [tf.constant(each) for each in inputs]
        self.kept = {}
        if isinstance(optimizer, scalekeeper.LossScaleOptimizer):
            kinds = {"scale": tf.float32}
            kinds.update({name: each.dtype for name, each in hold_in_graph(optimizer.loss_scale).variables.items()})
            self.kept = {name: tf.Variable(tf.fill([len(sizes)], tf.cast(7, kind))) for name, kind in kinds.items()}
        self._step = tf.function(self._take, autograph=False) if is_traced else self._take

    def step(self, number):
        self._step(self._batches[number % len(self._batches)])

    def _take(self, batch):
        self.traces += 1
        place = self._place.read_value()
        size = tf.gather(self._sizes, place)
        kept = self._keep(place)
        with tf.control_dependencies([] if tf.executing_eagerly() else [place, size, *kept]):
            with tf.GradientTape() as tape:
                loss = size * in_half_precision(tf.reduce_sum(self.kernel * batch) + self.bias)
                loss = self._scaled(loss)
            grads = tape.gradient(loss, [self.kernel, self.bias]) if self._is_scaled else [size * batch, size]
            self.optimizer.apply_gradients(zip(self._unscaled(grads), [self.kernel, self.bias]))
            self._place.assign_add(1)

    def _keep(self, place):
        if not self.kept:
            return []
        policy = self.optimizer.loss_scale
        now = {"scale": policy(), **{name: each.read_value() for name, each in hold_in_graph(policy).variables.items()}}
        return [
            self.kept[name].scatter_update(tf.IndexedSlices(tf.expand_dims(value, 0), tf.expand_dims(place, 0)))
            for name, value in now.items()
        ]

    def _scaled(self, loss):
        """Keras 3's own class has another word for it, and its apply_gradients takes scaled gradients."""
        for name in ("get_scaled_loss", "scale_loss"):
            if self._is_scaled and hasattr(self.optimizer, name):
                return getattr(self.optimizer, name)(loss)
        return loss

    def _unscaled(self, grads):
        can_unscale = self._is_scaled and hasattr(self.optimizer, "get_unscaled_gradients")
        return self.optimizer.get_unscaled_gradients(grads) if can_unscale else grads


def in_numpy(policy, sizes, is_scaled):
    """The scale and the state before each step, by the pure step alone."""
    state, found = policy.initial_state(), []
    for size in sizes:
        scale = np.minimum(policy.scale(state, OPS), LARGEST_USED)
        found.append({"scale": scale, **state})
        is_finite = np.isfinite(size) and (not is_scaled or float(size) * float(scale) <= LARGEST)
        report = scalekeeper.Report(np.bool_(is_finite), np.abs(size), np.float32(size == 0))
        state, _ = advance(policy, state, report)
    return {name: np.array([each[name] for each in found]) for name in (found[0] if found else ())}


def steps_that_differ(loop, spec, sizes, is_scaled):
    """How many steps began with another scale, or another state, than in the simulation."""
    expected = in_numpy(scalekeeper.resolve(spec), sizes, is_scaled)
    assert expected.keys() == loop.kept.keys()
    differs = np.zeros(len(sizes), bool)
    for name, values in expected.items():
        differs |= loop.kept[name].numpy() != values
    if is_scaled:
        differs |= scalekeeper.simulate(spec, scalekeeper.Trace(np.abs(sizes))).scale != expected["scale"]
    return int(differs.sum())


# Runs


def optimizer_of(whose, spec, inner):
    if whose == BARE:
        return inner
    if whose == THEIRS:
        return upstream(inner, {"initial_loss_scale": 2.0**10, "increment_period": 10})
    return scalekeeper.LossScaleOptimizer(inner, spec, attribute_overflows=True)


def own_loop(run, whose, steps, save_every, leak):
    """A custom loop that reads telemetry, and saves its state, every so many steps."""
    is_scaled, is_traced = run in ("traced", "eager"), run != "eager"
    name = "dynamic" if is_scaled else run
    spec, sizes = {"name": name, **POLICIES[name]}, sizes_of(steps)
    optimizer = optimizer_of(whose, spec, tf.keras.optimizers.Adam(1e-3))
    loop, memory, is_ours = Loop(optimizer, sizes, is_traced, is_scaled), Memory(run, whose, steps, leak), whose == OURS
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = tf.train.Checkpoint(optimizer=optimizer, kernel=loop.kernel, bias=loop.bias)
        loop.step(0)
        traces = loop.traces
        memory.after(1)
        for number in range(1, steps):
            loop.step(number)
            if is_ours and number % READ_EVERY == 0:
                assert optimizer.telemetry.steps == number + 1
            if number % save_every == 0:
                checkpoint.write(os.path.join(folder, "checkpoint"))
                if is_ours:
                    scalekeeper.save_state(optimizer, os.path.join(folder, "state.npz"))
            memory.after(number + 1)
    if is_traced:
        memory.row["traces after the first"] = loop.traces - traces
    if is_ours:
        memory.row["skipped"] = optimizer.telemetry.skipped
        memory.row["differ from the simulation"] = steps_that_differ(loop, spec, sizes, is_scaled)
    return memory


def fit(run, whose, steps, save_every, leak):
    """``fit`` with many short epochs, ours with LossScaleLogger; in every epoch a batch is not finite."""
    spec = {"name": "dynamic", **POLICIES["dynamic"]}
    inputs = np.random.RandomState(3).uniform(-1, 1, (4 * BATCHES_AN_EPOCH, 3)).astype(np.float32)
    inputs[5] = np.inf
    data = tf.data.Dataset.from_tensor_slices((inputs, inputs[:, :1] * 0.5)).batch(4)
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    optimizer = optimizer_of(whose, spec, tf.keras.optimizers.Adam(1e-3))
    model.compile(optimizer=optimizer, loss="mse")
    memory, traces = Memory(run, whose, steps, leak), []

    class AfterEpoch(tf.keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            traces.append(_traces_of(self.model))
            memory.after((epoch + 1) * BATCHES_AN_EPOCH)

    callbacks = [scalekeeper.LossScaleLogger(every=4)] if whose == OURS else []
    model.fit(data, epochs=steps // BATCHES_AN_EPOCH, verbose=0, callbacks=[*callbacks, AfterEpoch()])
    if traces[0] is not None:
        memory.row["traces after the first"] = traces[-1] - traces[0]
    if whose == OURS:
        memory.row["skipped"] = optimizer.telemetry.skipped
    return memory


def _traces_of(model):
    """Of the step that ``fit`` runs; None where Keras does not keep it, or can't tell."""
    function = getattr(model, "train_function", None)
    count = getattr(function, "experimental_get_tracing_count", None)
    return None if count is None else count()


class Memory:
    """Reads the resident size after each tenth of a run, and puts it into the row of figures.

    ``leak`` bytes are kept at each step: a run that shows that it would be seen.
    """

    def __init__(self, run, whose, steps, leak):
        self._steps, self._leak = steps, leak
        self._leaked, self._done, self._began = [], 0, time.perf_counter()
        self.resident, self.blocks = [], []  # in bytes; and how many pieces of memory Python has
        columns = ("skipped", "MB at 10 %", "MB at the end", "ratio", "bytes a step", *CHECKS)
        self.row = {"run": run, "optimizer": whose, "steps": steps, "seconds": 0, **dict.fromkeys(columns, "")}

    def after(self, done):
        if self._leak:
            self._leaked += [bytes(self._leak) for _ in range(done - self._done)]
        before, self._done = self._done, done
        if done * PIECES // self._steps > before * PIECES // self._steps:
            gc.collect()
            _give_back_what_is_free()
            self.resident.append(resident())
            self.blocks.append(sys.getallocatedblocks())
            self._tell(done)

    def _tell(self, done):
        first, last = self.resident[0], self.resident[-1]
        self.row["seconds"] = round(time.perf_counter() - self._began)
        self.row["MB at 10 %"], self.row["MB at the end"] = round(first / 2**20, 1), round(last / 2**20, 1)
        self.row["ratio"] = round(last / first, 4)
        self.row["bytes a step"] = round((last - first) / max(1, done - self._steps // PIECES))
        told = "{run}, {optimizer}: {} of {steps} steps, {seconds} s, {MB at the end} MB".format(done, **self.row)
        print(told, file=sys.stderr, flush=True)


def _give_back_what_is_free():
    """Have the C library return what it keeps for later: a leak could use that up without being seen."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # GNU's
        trim(0)


def resident():
    """The bytes of this process that are in memory."""
    with open("/proc/self/statm", encoding="ascii") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measured(run, whose, steps, save_every=SAVE_EVERY, leak=0):
    """One run, here and now: its row of figures, and what the memory was after each tenth of it."""
    memory = (fit if run == "fit" else own_loop)(run, whose, steps, save_every, leak)
    return {"row": memory.row, "resident": memory.resident, "blocks": memory.blocks}


# All of them


def all_runs(steps):
    for run, share in RUNS.items():
        for whose in [OURS] if run in POLICIES else [OURS, THEIRS, BARE]:
            share_of_steps = share if whose == OURS else share * SHARE_OF_CONTROL.get(run, 1.0)
            command = [sys.executable, "-W", "ignore", os.path.abspath(__file__), "--run", run, "--optimizer", whose]
            printed = subprocess.check_output([*command, "--steps", str(int(steps * share_of_steps))], text=True)
            yield json.loads(printed.splitlines()[-1])["row"]


def failures_of(rows):
    """Return what of the runs with our optimizer is not as it should be, in words.

    Memory that also grows with the bare optimizer is TensorFlow's.
    """
    bare = {row["run"]: row["ratio"] for row in rows if row["optimizer"] == BARE}
    failures = []
    for row in (row for row in rows if row["optimizer"] == OURS):
        failures += [f"{row['run']}: {row[column]} {column}" for column in CHECKS if row[column] not in ("", 0)]
        if row["ratio"] > MOST_GROWTH >= bare.get(row["run"], bare["traced"]):
            failures.append(f"{row['run']}: memory grew by {row['ratio']}")
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--record", action="store_true", help="keep the figures for docs/reliability.md")
    parser.add_argument("--run", choices=RUNS, help="one run alone, in this process")
    parser.add_argument("--optimizer", default=OURS, choices=[OURS, THEIRS, BARE])
    parser.add_argument("--save-every", type=int, default=SAVE_EVERY, help="steps")
    parser.add_argument("--leak", type=int, default=0, help="bytes to keep at each step")
    options = parser.parse_args()
    if options.run:
        print(json.dumps(measured(options.run, options.optimizer, options.steps, options.save_every, options.leak)))
        return
    rows = []
    for row in all_runs(options.steps):
        print(row, flush=True)
        rows.append(row)
    if options.record:
        reliability_results.record(SECTION, rows)
    failures = failures_of(rows)
    sys.exit("\n".join(failures) if failures else None)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
