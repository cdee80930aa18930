"""Run every subcommand that needs no TensorFlow in a process that has no network.

python tests/supply/without_network.py FOLDER
"""

import contextlib
import io
import json
import os
import sys

import numpy as np

from scalekeeper_test_support import no_network
from scalekeeper_test_support.repository import repository_path

EXAMPLES = repository_path("examples")
DOCUMENT, TRACE = os.path.join(EXAMPLES, "train.yaml"), os.path.join(EXAMPLES, "small_float16.npz")


def state_file(folder):
    """Write a training state, which can be read without TensorFlow."""
    from scalekeeper.serialization.formats.npz import write_state
    from scalekeeper.serialization.training_state import TrainingState, Writer, state_dict_of

    path = os.path.join(folder, "state.npz")
    write_state(path, state_dict_of(TrainingState(Writer("npz"), iterations=3, loss_scale_state={"good_steps": 1})))
    return path


def arrays_file(folder):
    """Write inputs and targets for the model of ``scalekeeper_test_support.small_model``."""
    from scalekeeper_test_support import small_model

    path = os.path.join(folder, "batch.npz")
    np.savez(path, x=small_model.DATA, y=small_model.DATA[:, :1])
    return path


def commands(folder, model):
    """One or more calls of each subcommand; the model is a file to look into and to convert."""
    from scalekeeper.testing import CHECKS

    left_out = [part for check in CHECKS if check.needs_tensorflow for part in ("--leave-out", check.name)]
    converted = os.path.join(folder, f"converted{os.path.splitext(model or '')[1]}")
    return [
        ["list"],
        ["schema"],
        ["validate", DOCUMENT],
        ["show", DOCUMENT],
        ["inspect", DOCUMENT],
        *[["verify", path, path] for path in [state_file(folder)]],
        *([["inspect", model], ["convert", model, converted]] if model else []),
        *([["doctor", model, "--data", arrays_file(folder)]] if model else []),
        ["simulate", "dynamic", "--trace", TRACE, *([] if model else ["--plot", os.path.join(folder, "page.html")])],
        ["recommend", TRACE],
        ["check", "dynamic", *left_out],
        ["completion", "bash"],
        *([["demo", "--folder", os.path.join(folder, "demo"), "--steps", "2", "--format", "state"]] if model else []),
    ]


def run(arguments):
    from scalekeeper.cli._main import main

    with contextlib.redirect_stdout(io.StringIO()) as output:
        main(arguments, standalone_mode=False)
    return output.getvalue()


def subcommands():
    from scalekeeper.cli._main import main

    return sorted(main.commands)


def main():
    kernel = no_network.take_away()
    done = [arguments[0] for arguments in commands(sys.argv[1], None) if run(arguments)]
    print(json.dumps({"kernel": kernel, "done": done, "all": subcommands(), "tried": no_network.tried()}))


if __name__ == "__main__":
    main()
