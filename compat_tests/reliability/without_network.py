"""Build, train, save, load and convert in a process that has no network, with the TensorFlow that is installed.

python compat_tests/reliability/without_network.py            # what the tests run
python compat_tests/reliability/without_network.py --record   # and keep the figures for docs/reliability.md
"""

import json
import os
import sys
import tempfile
import warnings

from scalekeeper_test_support.repository import load_script, repository_path


def ways(folder):
    """Return what is done, by name."""
    import tensorflow as tf

    import scalekeeper
    from scalekeeper.serialization.formats.npz import read_state
    from scalekeeper_test_support import small_model
    from scalekeeper_test_support.installed_keras import MODEL_SUFFIXES

    document = repository_path("examples", "train.yaml")
    model = small_model.build()
    model.compile(scalekeeper.build(document), loss="mse")
    yield "build"
    small_model.train(model, 1)
    yield "train"
    for suffix in MODEL_SUFFIXES:
        path = os.path.join(folder, f"model{suffix}")
        scalekeeper.save_model(model, path)
        loaded = scalekeeper.load_model(path)
        assert int(loaded.optimizer.iterations.numpy()) == int(model.optimizer.iterations.numpy())
        assert scalekeeper.restore(model, path).matched
        yield f"save, load and restore model{suffix}"
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(os.path.join(folder, "checkpoint"))
    assert scalekeeper.restore(model, checkpoint).matched
    yield "save and restore a checkpoint"
    scalekeeper.save_state(model.optimizer, os.path.join(folder, "state.npz"))
    model.optimizer.load_state_dict(read_state(os.path.join(folder, "state.npz")))
    yield "save and load a state"


def measured():
    """Return what was done, what is left to do, and what asked for the network."""
    import tensorflow as tf

    from scalekeeper_test_support import no_network

    _ = tf.keras.optimizers.SGD  # while it is imported, a library of its own asks whether this machine has IPv6
    command_line = load_script("tests/supply/without_network.py")
    kernel = no_network.take_away()
    with tempfile.TemporaryDirectory() as folder:
        done = list(ways(folder))
        calls = command_line.commands(folder, os.path.join(folder, "model.h5" if _has_h5(folder) else "model.keras"))
        commands = [arguments[0] for arguments in calls if command_line.run(arguments)]
    return {
        "kernel": kernel,
        "done": done,
        "commands": sorted(set(commands)),
        "all": command_line.subcommands(),
        "tried": no_network.tried(),
    }


def _has_h5(folder):
    return os.path.exists(os.path.join(folder, "model.h5"))


def row(answer):
    return {
        "ways to build, train, save and load": len(answer["done"]),
        "subcommands": len(answer["commands"]),
        "a network without interfaces": answer["kernel"],
        "connections and look-ups tried": len(answer["tried"]),
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    found = measured()
    print("\n" + json.dumps(found))
    if "--record" in sys.argv:
        from scalekeeper_test_support.reliability_results import record

        record("no network", [row(found)])
