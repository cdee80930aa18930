"""Each environment of the matrix runs on the TensorFlow in its name, or fails."""

import os
import sys

import pytest
import tensorflow as tf

from scalekeeper_test_support.tensorflow_versions import environment

pytestmark = pytest.mark.each_environment


@pytest.fixture
def name():
    """The tox environment's name; without it there is nothing to prove, and that is a failure, not a skip."""
    return os.environ["SCALEKEEPER_ENVIRONMENT"]


def test_the_python_is_the_one_in_the_name(name):
    """py37-tf20 runs on Python 3.7."""
    assert name.split("-")[0] == "py{}{}".format(*sys.version_info[:2])


def test_the_tensorflow_is_the_one_in_the_name(name):
    """py37-tf20 runs on TensorFlow 2.0.4."""
    assert tf.__version__ == environment(name).tensorflow


def test_the_keras_is_the_one_in_the_name(name):
    """py313-tf221-tfkeras runs on tf_keras 2.21, py313-tf221-keras3 on Keras 3."""
    package = sys.modules[tf.keras.Model.__module__.split(".")[0]]
    version = getattr(tf.keras, "__version__", package.__version__)
    assert version.startswith(environment(name).keras)


def test_the_default_target_is_the_installed_tensorflow(name):
    """A document is checked against the TensorFlow that will run it."""
    from scalekeeper.registry import target

    short = ".".join(tf.__version__.split(".")[:2])
    endings = {"tfkeras": "-tf_keras", "keras3": "-keras3"}
    assert target().name == short + "".join(ending for factor, ending in endings.items() if factor in name)


def test_only_an_untested_tensorflow_is_warned_of(name):
    """The environment of the nightly TensorFlow gets the warning, the others do not."""
    import scalekeeper
    from scalekeeper.registry import _targets

    assert scalekeeper.LossScaleOptimizer
    assert _targets._warned == ([tf.__version__] if name.endswith("-nightly") else [])
