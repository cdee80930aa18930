"""The results of reading files with plain Keras, in a process where this package can't be imported; prints JSON."""

import json
import sys


class Blocked:
    """An import of the package fails, as where it is not installed."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.split(".")[0] == "scalekeeper":
            raise ImportError(f"{name} is blocked here")


assert "scalekeeper" not in sys.modules
sys.meta_path.insert(0, Blocked)

import tensorflow as tf  # noqa: E402

from scalekeeper_test_support.installed_keras import inner_of, state_of, variables_of  # noqa: E402


def loaded(path):
    """The model's weights, and what became of its optimizer."""
    model = tf.keras.models.load_model(path)
    optimizer = model.optimizer
    inner = inner_of(optimizer)
    return {
        "weights": [weight.numpy().tolist() for weight in model.weights],
        "class": type(optimizer).__name__,
        "inner": type(inner).__name__,
        "iterations": int(inner.iterations.numpy()),
        "variables": [variable.numpy().tolist() for variable in variables_of(inner)],
        "state": state_of(optimizer),
    }


def main():
    print(json.dumps([loaded(path) for path in sys.argv[1:]]))


if __name__ == "__main__":
    main()
