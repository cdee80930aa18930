"""Read golden files with the installed TensorFlow, by its own class and by ours, and grade what comes back.

    python compat_tests/golden/consume.py                         all files, all kinds of optimizers, both classes
    python compat_tests/golden/consume.py --part                  a part that covers everything once
    python compat_tests/golden/consume.py --producer tensorflow/tf20 --class scalekeeper --show 2

Without restrictions the results go to ``results/``, where the report takes them from.
"""

import argparse
import collections
import contextlib
import fnmatch
import gc
import json
import os
import re
import sys
import tempfile
import time
import warnings

import numpy as np
import tensorflow as tf

from scalekeeper_test_support.golden import archives, gaps, matrix, results, scenario

# How much weights may differ after training that went on: rounding. Between legacy and new optimizers, six steps differ
# by at most 6e-7 (Adam). The experimental RMSprop of 2.10 computes something else: it adds epsilon to the root, and all
# others inside it. Measured: up to 1.5e-6.
TOLERANCE, TOLERANCE_OF_ANOTHER_RMSPROP = 1e-6, 1e-5


class Golden:
    """A producer's files, unpacked when they are first asked for."""

    def __init__(self, root=archives.FILES):
        self._root, self._stack, self._folders = root, contextlib.ExitStack(), {}

    def __enter__(self):
        return self

    def __exit__(self, *details):
        self._stack.close()

    def folder(self, case):
        producer = case.producer
        if producer not in self._folders:
            self._folders[producer] = self._stack.enter_context(archives.unpacked(producer, self._root))
        return os.path.join(self._folders[producer], case.folder)

    def path(self, cell):
        path = os.path.join(self.folder(cell.case), *matrix.FILES[cell.format].split("/"))
        is_there = os.path.exists(path) or os.path.exists(path + ".index")
        if not is_there:
            raise FileNotFoundError(f"{cell.name}: {matrix.FILES[cell.format]} is not in the archive")
        return path

    def expected(self, case):
        with open(os.path.join(self.folder(case), "expected.json"), encoding="utf-8") as stream:
            return json.load(stream)


def consume(cell, golden):
    """Read one file in one way: the row of results."""
    path, expected = golden.path(cell), golden.expected(cell.case)
    grade, reason = graded(cell, path, expected)
    reached = grade == matrix.holds(cell.case, cell.format)
    return results.row_of(cell, grade, None if reached else reason)


def graded(cell, path, expected):
    """The grade, and why it is not a better one."""
    case = cell.case
    try:
        model, optimizer = READERS[cell.way](cell, path, expected)
    except Exception as error:  # what a version says to a file is what is measured
        return 0, _in_short(error, path)
    if cell.way == "from_config":
        return _graded_declaration(case, optimizer)
    if scenario.difference(scenario.weights_of(model), expected["weights"]) != 0:
        return 0, "loads in silence, but the model's weights are others"
    if optimizer is None:
        return 1, "the model comes without an optimizer"
    try:
        scenario.make_variables(optimizer, list(model.trainable_variables))
        seen = scenario.seen(model, optimizer, case.optimizer)
    except Exception as error:
        return 1, "making the optimizer's variables: " + _in_short(error, path)
    momentum_factor = scenario.momentum_factor(case, optimizer)
    grade, reason = _graded_state(seen, expected, momentum_factor)
    if reason:
        return grade, reason
    try:
        scenario.train(model, optimizer, case.policy, scenario.SAVED_AFTER + 1, scenario.LAST)
    except Exception as error:
        return 3, "training on: " + _in_short(error, path)
    tolerance = TOLERANCE if momentum_factor == 1 else TOLERANCE_OF_ANOTHER_RMSPROP
    return _graded_end(scenario.seen(model, optimizer, case.optimizer), expected["after"], tolerance)


def _graded_declaration(case, optimizer):
    """A configuration holds no state: it loads if the hyperparameters and the policy are the same."""
    if not hasattr(optimizer, "get_config"):
        return 0, f"loads in silence, but what comes is not an optimizer: {type(optimizer).__name__}"
    given = scenario.declared(optimizer, case.optimizer)
    expected = scenario.declaration(case.policy, case.optimizer)
    for part in expected:
        difference = scenario.difference(given[part], expected[part])
        if difference is None or difference > 1e-7:
            return 0, f"loads in silence, but the {part} {'is' if part == 'policy' else 'are'} {given[part]}"
    return 1, None


def _graded_state(seen, expected, momentum_factor):
    if seen["iterations"] != expected["iterations"]:
        if seen["iterations"] == 0:
            return 1, "loads in silence, but the iterations are not restored"
        return 1, f"loads in silence, but the iterations are {seen['iterations']} instead of {expected['iterations']}"
    if not _are_equal_slots(seen["slots"], expected["slots"], momentum_factor):
        fresh = all(value is None or not np.any(value) for slots in seen["slots"].values() for value in slots.values())
        return 1, f"loads in silence, but the slots are {'not restored' if fresh else 'wrong'}"
    if seen["state"] != expected["state"] or seen["scale"] != expected["scale"]:
        return 2, f"loads in silence, but the loss scale is {seen['state'] or seen['scale']}"
    return 3, None


def _are_equal_slots(seen, expected, momentum_factor):
    """Bit for bit; where a slot means something else by a factor, up to rounding."""
    if momentum_factor == 1:
        return scenario.difference(seen, expected) == 0
    for owner, slots in expected.items():
        for name, value in slots.items():
            factor = momentum_factor if name == "momentum" else 1.0
            given = np.array(np.nan if seen[owner][name] is None else seen[owner][name], np.float64)
            if not np.allclose(given, np.array(value) * factor, rtol=1e-6, atol=0):
                return False
    return True


def _graded_end(seen, after, tolerance):
    difference = scenario.difference(seen["weights"], after["weights"])
    if difference is None or difference > tolerance:
        words = "infinitely" if difference is None else f"by {difference:.0e}"
        return 3, f"six more steps lead to weights that differ {words}"
    if seen["state"] != after["state"]:
        return 3, f"six more steps lead to another loss scale: {seen['state']}"
    return 4, None


def _in_short(error, path):
    """One line for an exception, the same in every process."""
    text = str(error).replace(path, "FILE").replace(os.path.dirname(path), "FOLDER")
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    first = re.sub(r"0x[0-9a-f]+|(?<!\d)\d{4,}(?!\d)|/\S*/(?=[\w.]+)", "…", first)
    return f"{type(error).__name__}: {first[:160]}" if first else type(error).__name__


# Ways to read


def _built(cell, expected, with_weights=False):
    """A compiled model that a user builds in code, with the arguments that the file's writer had."""
    case = cell.case
    model = scenario.make_model()
    if with_weights:  # for files that hold the optimizer only
        model.set_weights([np.array(expected["weights"][owner], np.float32) for owner in scenario.OWNERS])
    # restore finds in the file whether a skipped step counts; the others take what is built
    skipped_steps = "native" if cell.way == "restore" else expected["skipped_steps"]
    optimizer = scenario.make_optimizer(cell.consumer_cls, cell.consumer, case.policy, case.optimizer, skipped_steps)
    model.compile(optimizer=optimizer, loss="mse")
    return model, optimizer


def _load_model(cell, path, expected):
    tf.keras.backend.clear_session()
    custom_objects = scenario.custom_objects(cell.consumer_cls)
    if cell.consumer_cls == matrix.OURS:
        import scalekeeper

        model = scalekeeper.load_model(path, custom_objects=custom_objects)
    else:
        model = tf.keras.models.load_model(path, custom_objects=custom_objects)
    return model, getattr(model, "optimizer", None)


def _restore(cell, path, expected):
    import scalekeeper

    model, optimizer = _built(cell, expected, with_weights=cell.format == "npz")
    report = scalekeeper.restore(model, path, partial=True)  # the grade tells what the file lacks
    assert report is not None, "restore gives no report"
    return model, optimizer


def _from_config(cell, path, expected):
    with open(path, encoding="utf-8") as stream:
        config = json.load(stream)
    custom_objects = scenario.custom_objects(cell.consumer_cls)
    if cell.consumer_cls == matrix.OURS:
        import scalekeeper

        is_wrapper = config["class_name"].startswith("LossScaleOptimizer")  # Keras 3 has a fixed scale in a bare one
        config = config["config"] if is_wrapper else {"inner_optimizer": config}
        return None, scalekeeper.LossScaleOptimizer.from_config(config, custom_objects=custom_objects)
    return None, tf.keras.optimizers.deserialize(config, custom_objects=custom_objects)


def _set_weights(cell, path, expected):
    model, optimizer = _built(cell, expected, with_weights=True)
    scenario.make_variables(optimizer, list(model.trainable_variables))
    with np.load(path) as file:
        values = [file[f"arr_{place}"] for place in range(len(file.files))]
    optimizer.set_weights(values)
    return model, optimizer


def _checkpoint(cell, path, expected):
    model, optimizer = _built(cell, expected)
    scenario.make_variables(optimizer, list(model.trainable_variables))
    tf.train.Checkpoint(model=model, optimizer=optimizer).restore(path)
    return model, optimizer


def _deferred(cell, path, expected):
    model, optimizer = _built(cell, expected)
    tf.train.Checkpoint(model=model, optimizer=optimizer).restore(path)
    return model, optimizer


READERS = {
    "load_model": _load_model,
    "restore": _restore,
    "from_config": _from_config,
    "set_weights": _set_weights,
    "checkpoint": _checkpoint,
    "deferred": _deferred,
}


def versions():
    """The class and the versions that read."""
    package = sys.modules[tf.keras.Model.__module__.split(".")[0]]
    keras = getattr(tf.keras, "__version__", getattr(package, "__version__", None))
    return {"tensorflow": tf.__version__, "keras": keras}


@contextlib.contextmanager
def quiet():
    """Without what a version prints and warns of while it reads another one's files: even from its C++."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as sink, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.dup2(sink.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--class", dest="cls", choices=[matrix.OURS, matrix.OWN], help="the class that reads; both if not given"
    )
    parser.add_argument("--consumer", choices=sorted({*scenario.installed_flavours()} & {*matrix.CONSUMERS}))
    parser.add_argument("--producer", action="append", help="whose files, such as tensorflow/tf2*; all if not given")
    parser.add_argument("--format", action="append", choices=list(matrix.FILES))
    parser.add_argument("--way", action="append", choices=list(READERS))
    parser.add_argument("--part", action="store_true", help="a part that covers everything once")
    parser.add_argument("--show", type=int, default=0, metavar="N", help="print N cells of each surprise")
    parser.add_argument("--files", default=archives.FILES, help="the folder of the archives")
    parser.add_argument("--results", default=results.RESULTS, help="the folder for results")
    arguments = parser.parse_args()
    # each model begins with a clean session, for which Keras collects garbage: all modules need not be looked at
    gc.freeze()
    tf.get_logger().setLevel("ERROR")
    consumers = [each for each in matrix.CONSUMERS if each in scenario.installed_flavours()]
    for consumer in [arguments.consumer] if arguments.consumer else consumers:
        if not arguments.part and not scenario.is_of_installed_version(consumer):
            sys.exit(f"{consumer} is TensorFlow {matrix.FLAVOURS[consumer]}, not {tf.__version__}: only --part works")
        choose = matrix.part if arguments.part else matrix.cells
        for cls in [arguments.cls] if arguments.cls else [matrix.OURS, matrix.OWN]:
            chosen = [cell for cell in choose(cls, consumer) if _is_chosen(cell, arguments)]
            rows = []
            for producer in matrix.producers():
                rows += _consume_all([cell for cell in chosen if cell.case.producer == producer], arguments.files)
                if not arguments.part:
                    _keep(consumer, rows, arguments.results)
            _summarize(cls, consumer, rows, arguments.show)


def _is_chosen(cell, arguments):
    return (
        (not arguments.producer or any(fnmatch.fnmatch(cell.case.producer.name, each) for each in arguments.producer))
        and (not arguments.format or cell.format in arguments.format)
        and (not arguments.way or cell.way in arguments.way)
    )


def _consume_all(cells, files):
    rows = []
    with Golden(files) as golden, quiet():
        for cell in cells:
            rows.append(consume(cell, golden))
    return rows


def _keep(consumer, rows, folder):
    """Put rows into the kept results: what took long is not lost when the rest is interrupted."""
    _, known = results.read(consumer, folder)
    merged = {results.cell_of(row): row for row in [*known, *rows]}
    results.write(consumer, versions(), list(merged.values()), folder)


def _summarize(cls, consumer, rows, show):
    """Return what came of it, by format and way; and why, where a grade is not the expected one."""
    print(f"{cls}/{consumer}: {len(rows)} cells, {time.process_time():.0f} s of CPU time so far")
    by_way = collections.defaultdict(list)
    for row in rows:
        by_way[row["format"], row["way"], row["class"]].append(row["grade"] == row["holds"])
    for key, reached in sorted(by_way.items()):
        print(f"  {' '.join(key):40} {sum(reached):4} of {len(reached)}")
    if show:
        reasons = collections.defaultdict(list)
        known = gaps.lines()
        for row in rows:
            expected = row["holds"] if cls == matrix.OWN else gaps.expected_grade(results.cell_of(row), known)
            if row["grade"] != expected:
                reasons[row["format"], row["way"], row["grade"], row["holds"], row["reason"]].append(row)
        for key, found in sorted(reasons.items(), key=lambda item: -len(item[1])):
            print(f"  {len(found)} × {key}")
            for row in found[:show]:
                print(f"      {results.cell_of(row).name}")


if __name__ == "__main__":
    main()
