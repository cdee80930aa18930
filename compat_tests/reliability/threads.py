"""Different models in several threads at once: each comes to what it comes to alone.

    python compat_tests/reliability/threads.py [--rounds 5] [--record]

Threads begin together and take turns as often as Python lets them.
"""

import argparse
import contextlib
import functools
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import warnings

import numpy as np

# before TensorFlow, which the first use of the package imports
IS_FIRST_USE = "--first-use" in sys.argv
if not IS_FIRST_USE:
    import tensorflow as tf


import scalekeeper  # noqa: E402

if not IS_FIRST_USE:
    from scalekeeper_test_support.installed_keras import MODEL_SUFFIXES, builds_in_one_graph

    # one thread at a time builds models, or has Keras build them, where Keras can't do better
    building = threading.RLock() if builds_in_one_graph() else contextlib.nullcontext()

SECTION = "threads"
THREADS = 8
STEPS = 25
# of each thread: a document, which is also the size of the model
DOCUMENTS = [
    {"optimizer": "sgd", "loss_scale": {"name": "dynamic", "increment_period": 3, "initial_loss_scale": 64}},
    {"optimizer": "adam", "loss_scale": {"name": "dynamic", "increment_period": 2}, "attribute_overflows": True},
    {"optimizer": {"name": "sgd", "momentum": 0.5, "clipnorm": 0.25}, "loss_scale": {"name": "log_max", "beta1": 0.9}},
    {"optimizer": "rmsprop", "loss_scale": {"name": "tolerant", "increment_period": 3, "tolerance": 0.3}},
    {"optimizer": {"name": "adam", "clipvalue": 0.1}, "loss_scale": {"name": "adaptive_window"}},
    {"optimizer": "adagrad", "loss_scale": "none", "skipped_steps": "hold"},
    {"optimizer": {"name": "adam", "amsgrad": True}, "loss_scale": "dynamic", "watch": ["largest_magnitude"]},
    {"optimizer": "sgd", "loss_scale": {"name": "scheduled", "values": [8, 4], "boundaries": [9]}},
]


def together(*several):
    """Return what each of these functions returns, or its error: all of them are called at the same time."""
    start, found = threading.Barrier(len(several)), [None] * len(several)

    def run(place, work):
        start.wait()
        try:
            found[place] = work()
        except BaseException as error:
            found[place] = error

    threads = [threading.Thread(target=run, args=each) for each in enumerate(several)]
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(usual)
    return found


# The work of a thread; all of these are called with its number


def built(number):
    """An optimizer from a document, as it describes itself; Keras 3 numbers the names of its objects."""
    config = scalekeeper.build(DOCUMENTS[number]).get_config()
    return re.sub(r'"name": "\w+"', "", json.dumps(config, sort_keys=True))


def trained_eagerly(number):
    return _trained(number, _with_tape)


def trained_in_a_function(number):
    return _trained(number, tf.function(_with_tape, autograph=False))


def trained_by_minimize(number):
    return _trained(
        number, lambda optimizer, variables, inputs: optimizer.minimize(_loss(variables, inputs), variables)
    )


def _trained(number, step):
    """Two variables after some steps, of which some overflow."""
    random = np.random.RandomState(number)
    kernel = tf.Variable(random.randn(number + 2).astype(np.float32), name="kernel")
    variables = [kernel, tf.Variable(np.float32(random.randn()), name="bias")]
    inputs = random.randn(STEPS, number + 2).astype(np.float32)
    inputs[random.rand(STEPS) < 0.2] = np.inf
    optimizer = scalekeeper.build(DOCUMENTS[number])
    for each in inputs:
        step(optimizer, variables, tf.constant(each))
    return state_of(optimizer, variables)


def _loss(variables, inputs):
    return lambda: tf.reduce_sum(variables[0] * inputs) + variables[1] * inputs[0]


def _with_tape(optimizer, variables, inputs):
    with tf.GradientTape() as tape:
        loss = optimizer.get_scaled_loss(_loss(variables, inputs)())
    grads = optimizer.get_unscaled_gradients(tape.gradient(loss, variables))
    optimizer.apply_gradients(zip(grads, variables))


def fitted(number):
    model, inputs = _model(number), np.random.RandomState(number).randn(8, 3).astype(np.float32)
    inputs[3] = np.inf
    model.fit(inputs, inputs[:, :1] * 0.5, batch_size=2, epochs=1, shuffle=False, verbose=0)
    return state_of(model.optimizer, model.trainable_weights)


def saved_and_loaded(number):
    """A trained model through files of its own, which are inspected, loaded and restored."""
    model, restored = _model(number), _model(number)
    for size in (0.5, np.inf, 0.25):
        grads = [tf.fill(weight.shape, np.float32(size)) for weight in model.trainable_weights]
        model.optimizer.apply_gradients(zip(grads, model.trainable_weights))
    with tempfile.TemporaryDirectory() as folder:
        path, state = os.path.join(folder, "model" + MODEL_SUFFIXES[0]), os.path.join(folder, "state.npz")
        scalekeeper.save_model(model, path)
        scalekeeper.save_state(model.optimizer, state)
        told = scalekeeper.inspect(path)
        facts = [told.iterations, told.loss_scale.state, sorted(scalekeeper.read_state(state))]
        with building:
            loaded = scalekeeper.load_model(path)
        scalekeeper.restore(restored, path)
    return [facts, *(state_of(each.optimizer, each.trainable_weights) for each in (model, loaded, restored))]


def registered(number):
    """A policy of the thread's own, under a name for good, and for a while under one that all threads use."""
    mine = type(f"Mine{number}", (scalekeeper.DynamicLossScale,), {"__module__": __name__})
    scalekeeper.register(f"mine-{number}", override=True)(mine)
    with scalekeeper.temporary_registration("for-a-while", mine):
        document = scalekeeper.load_document({"optimizer": "sgd", "loss_scale": "for-a-while"}, target="2.3")
        schema = scalekeeper.document_schema(document.target)
    policies = [document.loss_scale, scalekeeper.resolve(f"mine-{number}")]
    return [type(each).__name__ for each in policies], "for-a-while" in str(schema)


def _model(number):
    random = np.random.RandomState(number)
    with building:
        inputs = tf.keras.Input((3,), name=f"inputs_{number}")
        hidden = tf.keras.layers.Dense(number + 2, activation="tanh", name=f"first_{number}")(inputs)
        outputs = tf.keras.layers.Dense(1, name=f"second_{number}")(hidden)
        model = tf.keras.Model(inputs, outputs, name=f"model_{number}")
        model.compile(optimizer=scalekeeper.build(DOCUMENTS[number]), loss="mse")
    for weight in model.weights:
        weight.assign(random.randn(*weight.shape).astype(np.float32))
    return model


def state_of(optimizer, variables):
    """All that training changes, to the bit, as text. In what the variables are called, Keras counts all threads."""
    told = optimizer.telemetry
    values = [variable.numpy().tobytes().hex() for variable in variables]
    of_variables = optimizer.state_dict()["slots"].values()
    slots = [{name: value.tobytes().hex() for name, value in slots.items()} for slots in of_variables]
    skips = [told.steps, told.skipped, told.last_skipped_step, list(told.overflows.values())]
    return json.dumps([values, slots, optimizer.loss_scale.state(), skips])


WORK = {
    "building from documents": built,
    "registering": registered,
    "training eagerly": trained_eagerly,
    "training with minimize": trained_by_minimize,
    "training in a tf.function": trained_in_a_function,
    "fit": fitted,
    "saving and loading": saved_and_loaded,
}


def measured(what, rounds, threads=THREADS):
    """A row: how often it was done at the same time as others, and how often that made a difference."""
    work = [functools.partial(WORK[what], number) for number in range(threads)]
    alone = [each() for each in work]
    differences, errors = 0, []
    for turn in range(rounds):
        found = together(*work)
        errors += [each for each in found if isinstance(each, BaseException)]
        differences += sum(each != other and not isinstance(each, BaseException) for each, other in zip(found, alone))
        print(f"{what}: {turn + 1} of {rounds}, {differences} differ, {len(errors)} errors", file=sys.stderr)
    for error in errors[:3]:
        print(repr(error)[:300], file=sys.stderr)
    row = {"what": what, "threads": threads, "done": rounds * threads}
    return {**row, "differ from the same alone": differences, "errors": len(errors)}


def first_use(processes):
    """The very first use of package and TensorFlow, in fresh processes, by all threads at once."""
    differences = errors = 0
    for turn in range(processes):
        command = [sys.executable, "-W", "ignore", os.path.abspath(__file__), "--first-use"]
        found = json.loads(subprocess.check_output(command, text=True).splitlines()[-1])
        differences, errors = differences + found["differ"], errors + found["errors"]
        print(f"first use: {turn + 1} of {processes}, {differences} differ, {errors} errors", file=sys.stderr)
    row = {"what": "first use, in a fresh process", "threads": THREADS, "done": processes * THREADS}
    return {**row, "differ from the same alone": differences, "errors": errors}


def take_time_to_find_keras():
    """Have TensorFlow, where it looks for its Keras on first use, take so long that all threads meet there."""
    from tensorflow.python.util import lazy_loader

    loader = lazy_loader.KerasLazyLoader
    find = loader._initialize

    def slowly(self):
        self._tfll_initialized = True  # as it begins itself
        time.sleep(0.5)
        find(self)

    loader._initialize = slowly


def used_first():
    """In such a process."""
    found = together(*(functools.partial(built, number) for number in range(THREADS)))
    errors = [each for each in found if isinstance(each, BaseException)]
    alone = [built(number) for number in range(THREADS)]
    for error in errors[:3]:
        print(repr(error)[:300], file=sys.stderr)
    differ = sum(each != other and not isinstance(each, BaseException) for each, other in zip(found, alone))
    return {"differ": differ, "errors": len(errors)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--record", action="store_true", help="keep the figures for docs/reliability.md")
    parser.add_argument("--first-use", action="store_true", help="in this process, which has used nothing yet")
    parser.add_argument("--slowly", action="store_true", help="with that: TensorFlow takes its time to find its Keras")
    parser.add_argument("--what", choices=WORK, nargs="*", help="these alone")
    options = parser.parse_args()
    if options.slowly:
        take_time_to_find_keras()
    if options.first_use:
        print(json.dumps(used_first()))
        return
    rows = [measured(what, options.rounds) for what in options.what or WORK]
    if not options.what:
        rows.append(first_use(options.rounds))
    print(json.dumps(rows))
    if options.record:
        from scalekeeper_test_support import reliability_results

        reliability_results.record(SECTION, rows)
    failures = [row for row in rows if row["differ from the same alone"] or row["errors"]]
    sys.exit("\n".join(map(str, failures)) if failures else None)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
