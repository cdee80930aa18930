"""Each environment of the matrix runs on the TensorFlow in its name, or fails."""

import os
import sys

import pytest
import tensorflow as tf

# the part of the environment's name that says which TensorFlow → its version, and the version of its Keras
VERSIONS = {
    "tf20": ("2.0.4", "2.2.4-tf"),
    "tf21": ("2.1.4", "2.3.0-tf"),
    "tf22": ("2.2.3", "2.3.0-tf"),
    "tf23": ("2.3.4", "2.4.0"),
    "tf210": ("2.10.1", "2.10."),
    "tf215": ("2.15.1", "2.15."),
    "tf221-tfkeras": ("2.21.0", "2.21."),
    "tf221-keras3": ("2.21.0", "3."),
}


@pytest.fixture
def name():
    """The tox environment's name; without it there is nothing to prove, and that is a failure, not a skip."""
    return os.environ["SCALEKEEPER_ENVIRONMENT"]


def test_the_python_is_the_one_in_the_name(name):
    """py37-tf20 runs on Python 3.7."""
    assert name.split("-")[0] == "py{}{}".format(*sys.version_info[:2])


def test_the_tensorflow_is_the_one_in_the_name(name):
    """py37-tf20 runs on TensorFlow 2.0.4."""
    assert tf.__version__ == VERSIONS[name.partition("-")[2]][0]


def test_the_keras_is_the_one_in_the_name(name):
    """py313-tf221-tfkeras runs on tf_keras 2.21, py313-tf221-keras3 on Keras 3."""
    package = sys.modules[tf.keras.Model.__module__.split(".")[0]]
    version = getattr(tf.keras, "__version__", package.__version__)
    assert version.startswith(VERSIONS[name.partition("-")[2]][1])


def test_the_default_target_is_the_installed_tensorflow(name):
    """A document is checked against the TensorFlow that will run it."""
    from scalekeeper.registry import target

    expected = {"tf221-tfkeras": "2.21-tf_keras", "tf221-keras3": "2.21-keras3"}
    short = ".".join(tf.__version__.split(".")[:2])
    assert target().name == expected.get(name.partition("-")[2], short)


def test_only_an_untested_tensorflow_is_warned_of(name):
    """The environment of the nightly TensorFlow gets the warning, the others do not."""
    import scalekeeper
    from scalekeeper.registry import _targets

    assert scalekeeper.LossScaleOptimizer
    assert _targets._warned == ([tf.__version__] if name.endswith("-nightly") else [])
