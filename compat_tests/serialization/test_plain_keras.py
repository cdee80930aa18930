"""What we save, plain Keras loads, with this package not installed: as well as what Keras itself has saved."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper_test_support import script_runner
from scalekeeper_test_support.installed_keras import IS_KERAS_3, LISTS_VARIABLES, MODEL_SUFFIXES, OPTIMIZERS, upstream
from scalekeeper_test_support.small_model import build

HERE = os.path.dirname(os.path.abspath(__file__))
DYNAMIC = {"initial_loss_scale": 1024.0, "increment_period": 3}
# Keras 2.13 and 2.14 do not load a .keras file with their own class around a legacy optimizer
LOADS_LEGACY_KERAS_FILES = not tf.__version__.startswith(("2.13.", "2.14."))
POLICIES = {"dynamic": DYNAMIC} if IS_KERAS_3 else {"dynamic": DYNAMIC, "fixed": 128.0}


def trained(optimizer):
    """The small model after three steps of fit."""
    model = build()
    model.compile(optimizer, "mse")
    inputs = np.arange(18, dtype="float32").reshape(6, 3) / 10
    model.fit(inputs, inputs[:, :1], batch_size=2, epochs=1, shuffle=False, verbose=0)
    return model


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
def test_files_load_without_this_package(kind, tmp_path):
    """Class, weights, iterations, slots and scale are what they are in a file of Keras's own."""
    paths = {}
    for policy, parameters in POLICIES.items():
        spec = {"name": "dynamic", **parameters} if isinstance(parameters, dict) else parameters
        ours = trained(scalekeeper.LossScaleOptimizer(OPTIMIZERS[kind].Adam(0.01), spec))
        theirs = trained(upstream(OPTIMIZERS[kind].Adam(0.01), parameters))
        for suffix in MODEL_SUFFIXES:
            if kind == "legacy" and suffix == ".keras" and not LOADS_LEGACY_KERAS_FILES:
                continue
            if kind == "default" and suffix == ".h5" and not LISTS_VARIABLES:
                continue  # Keras cannot write it
            paths[policy, suffix] = [str(tmp_path / (who + policy + suffix)) for who in ("ours", "theirs")]
            scalekeeper.save_model(ours, paths[policy, suffix][0])
            theirs.save(paths[policy, suffix][1])
            if (kind, suffix) != ("legacy", ".keras"):  # Keras loses the slots of that one, and we warn
                again = str(tmp_path / ("again" + policy + suffix))
                ours.save(again)  # Keras's own, with the record in the configuration
                paths[policy, suffix + " of Keras"] = [again, paths[policy, suffix][1]]
    flat = [path for pair in paths.values() for path in pair]
    output = script_runner.run(os.path.join(HERE, "plain_keras.py"), *flat)
    found = iter(json.loads(output.splitlines()[-1]))
    for (policy, suffix), ours, theirs in zip(paths, found, found):
        assert ours == theirs, (policy, suffix)
        assert ours["inner"] == "Adam"
        assert ours["weights"] != [weight.numpy().tolist() for weight in build().weights]
