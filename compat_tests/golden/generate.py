"""Write one producer's golden files with the installed TensorFlow: the same lines on 2.0 and on 2.21.

    python compat_tests/golden/generate.py tensorflow tf20
    python compat_tests/golden/generate.py scalekeeper k3 --keep folder

Run it with the interpreter of an environment that holds the flavour's TensorFlow (for ours beside TensorFlow 2.4,
typing-extensions has to be newer than that version asks for). The archive goes to ``files/``, and one that is there is
never replaced: golden files are what was written then. ``--keep`` leaves the files unpacked as well.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import warnings
import zipfile

import h5py
import numpy as np
import tensorflow as tf

from scalekeeper_test_support.golden import archives, matrix, scenario


def write_case(case, folder):
    """Train, write every format, and go on; ``expected.json`` says what is in the files and what comes after."""
    model, optimizer = begun(case)
    scenario.train(model, optimizer, case.policy, 1, scenario.SAVED_AFTER)
    expected = {
        "class": case.cls,
        "flavour": case.flavour,
        "policy": case.policy,
        "optimizer": case.optimizer,
        "tensorflow": tf.__version__,
        "keras": _keras_version(),
        **({"scalekeeper": _our_version()} if case.cls == matrix.OURS else {}),
        "skipped_steps": skipped_steps(case),
        **scenario.seen(model, optimizer, case.optimizer),
    }
    require_far_from_start(case, expected)

    for file_format in _in_order(matrix.formats(case.cls, case.flavour)):
        path = os.path.join(folder, *matrix.FILES[file_format].split("/"))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        WRITERS[file_format](case, model, optimizer, path)
    expected["files"] = {
        file_format: {**checked_contents(case, file_format, folder), "grade": matrix.holds(case, file_format)}
        for file_format in matrix.formats(case.cls, case.flavour)
    }

    scenario.train(model, optimizer, case.policy, scenario.SAVED_AFTER + 1, scenario.LAST)
    expected["after"] = scenario.seen(model, optimizer, case.optimizer)
    require_equal_to_uninterrupted(case, expected["after"])
    with open(os.path.join(folder, "expected.json"), "w", encoding="utf-8", newline="\n") as stream:
        json.dump(expected, stream, indent=1)
        stream.write("\n")


def begun(case):
    """A compiled model before its first step."""
    model = scenario.make_model()
    optimizer = scenario.make_optimizer(case.cls, case.flavour, case.policy, case.optimizer)
    model.compile(optimizer=optimizer, loss="mse")
    return model, optimizer


# Properties of a run without which reading its files proves nothing


def skipped_steps(case):
    """Whether a skipped step advances ``iterations``, seen on a run that has one."""
    model, optimizer = begun(case._replace(policy="dynamic"))
    scenario.train(model, optimizer, "dynamic", 1, scenario.FORCED_OVERFLOW)
    iterations = int(scenario.number(scenario.inner_of(optimizer).iterations))
    observed = "advance" if iterations == scenario.FORCED_OVERFLOW else "hold"
    assert observed == ("hold" if case.flavour in matrix.HOLDING else "advance"), (case, observed)
    return observed


def require_far_from_start(case, expected):
    """Iterations, slots and state differ from those of a new optimizer, in every place."""
    skipped = 0 if case.policy == "fixed" or expected["skipped_steps"] == "advance" else 1
    assert expected["iterations"] == scenario.SAVED_AFTER - skipped, expected["iterations"]
    for slots in expected["slots"].values():
        for value in slots.values():
            assert value is not None, slots
            assert np.all(np.asarray(value) != 0), slots
    states = {
        "fixed": {},
        "dynamic": {"current_loss_scale": 512.0, "good_steps": 2},
        "dynamic4": {"current_loss_scale": 256.0, "good_steps": 2},
        "custom": {"present_scale": 512.0, "overflows": 1},
    }
    assert expected["state"] == states[case.policy], expected["state"]


def require_equal_to_uninterrupted(case, after):
    """Saving changes nothing; and between saving and the end the scale has grown and has overflowed."""
    model, optimizer = begun(case)
    scales = []
    for step in range(1, scenario.LAST + 1):
        scenario.train(model, optimizer, case.policy, step, step)
        scales.append(scenario.loss_scale_of(optimizer)[0])
    assert scenario.seen(model, optimizer, case.optimizer) == after
    if case.policy != "fixed":
        changes = [new / old for old, new in zip(scales[scenario.SAVED_AFTER - 1 :], scales[scenario.SAVED_AFTER :])]
        # growth first, by the counter that was saved; only then does the spike overflow
        assert changes[0] > 1 > changes[1], scales
        assert max(changes[2:5]) > 1 > changes[5], scales


# Formats


def _in_order(formats):
    """H5 last: Keras 3 takes the optimizer out of what the model was compiled with when it writes one."""
    return sorted(formats, key=lambda each: each == "h5")


def _write_config(case, model, optimizer, path):
    with open(path, "w", encoding="utf-8", newline="\n") as stream:
        json.dump(tf.keras.optimizers.serialize(optimizer), stream, default=lambda value: value.item())
        stream.write("\n")


def _write_weights(case, model, optimizer, path):
    if hasattr(optimizer, "get_weights"):
        values = optimizer.get_weights()
    else:
        variables = optimizer.variables
        values = [each.numpy() for each in (variables() if callable(variables) else variables)]
    np.savez(path, *values)


def _write_model(case, model, optimizer, path):
    if case.cls == matrix.OURS:
        import scalekeeper

        scalekeeper.save_model(model, path)
    else:
        model.save(path)


def _write_checkpoint(case, model, optimizer, path):
    tf.train.Checkpoint(model=model, optimizer=optimizer).write(path)


def _write_state(case, model, optimizer, path):
    import scalekeeper

    scalekeeper.save_state(optimizer, path)


WRITERS = {
    "config": _write_config,
    "weights": _write_weights,
    "h5": _write_model,
    "saved_model": _write_model,
    "checkpoint": _write_checkpoint,
    "keras": _write_model,
    "npz": _write_state,
}


# The real contents of a file


def checked_contents(case, file_format, folder):
    """Raise an AssertionError if a file lacks what the matrix declares. Files of scalekeeper are read with it."""
    declared = matrix.contents(case, file_format)
    path = os.path.join(folder, *matrix.FILES[file_format].split("/"))
    if case.cls == matrix.OWN and file_format in _LISTINGS:
        names = _LISTINGS[file_format](path)
        words = {
            "iterations": ("iter",),
            "slots": ("kernel",) if file_format == "h5" else (".OPTIMIZER_SLOT", "_variables/3/"),
            "loss_scale": ("current_loss_scale", "present_scale", "dynamic_scale"),
        }
        found = {each: any(word in name for name in names for word in words[each]) for each in words}
        if file_format == "keras":  # numbered, not named
            optimizers = [name for name in names if name.startswith("optimizer/vars/")]
            found["iterations"] = found["slots"] = len(optimizers) > 1
            found["loss_scale"] = case.flavour == "k3"
        found["loss_scale"] = found["loss_scale"] or (case.policy == "fixed" and found["slots"])
        assert found == declared, (case, file_format, found, declared, names)
    return declared


def _names_in_checkpoint(path):
    return [name for name, _ in tf.train.list_variables(path)]


def _names_in_saved_model(path):
    return _names_in_checkpoint(os.path.join(path, "variables", "variables"))


def _names_in_h5(path):
    names = []
    with h5py.File(path, "r") as file:
        if "optimizer_weights" in file:
            file["optimizer_weights"].visit(names.append)
    return names


def _names_in_keras(path):
    names = []
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(path) as archive:
            extracted = archive.extract("model.weights.h5", folder)
        with h5py.File(extracted, "r") as file:
            file.visit(names.append)
    return names


_LISTINGS = {
    "checkpoint": _names_in_checkpoint,
    "saved_model": _names_in_saved_model,
    "h5": _names_in_h5,
    "keras": _names_in_keras,
}


def _keras_version():
    package = sys.modules[tf.keras.Model.__module__.split(".")[0]]
    return getattr(tf.keras, "__version__", getattr(package, "__version__", None))


def _our_version():
    import scalekeeper

    return scalekeeper.__version__


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cls", choices=[matrix.OWN, matrix.OURS])
    parser.add_argument("flavour", choices=sorted(scenario.installed_flavours()))
    parser.add_argument("--keep", metavar="FOLDER", help="leave the files there too; it must not exist")
    parser.add_argument("--archives", default=archives.FILES, metavar="FOLDER", help="where the archive goes")
    arguments = parser.parse_args()
    producer = matrix.Producer(arguments.cls, arguments.flavour)
    archive = archives.path_of(producer, arguments.archives)
    for path in (archive, arguments.keep):
        if path and os.path.exists(path):
            sys.exit(f"{path} is there already: golden files are never overwritten; remove it if that is what you mean")
    if not scenario.is_of_installed_version(arguments.flavour):
        sys.exit(f"{arguments.flavour} is TensorFlow {matrix.FLAVOURS[arguments.flavour]}, not {tf.__version__}")
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        for case in matrix.cases(producer):
            target = os.path.join(folder, case.folder)
            os.makedirs(target)
            write_case(case, target)
        if arguments.keep:
            shutil.copytree(folder, arguments.keep)
        archives.pack(folder, archive)
    print(f"{archive}: {os.path.getsize(archive)} bytes")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
