"""A process that is killed while it saves leaves the old model or the new one, in every format."""

import os
import random
import subprocess
import sys
import time

import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper_test_support.installed_keras import IS_KERAS_3

pytestmark = pytest.mark.slow

HERE = os.path.dirname(os.path.abspath(__file__))
KILLS = int(os.environ.get("SCALEKEEPER_KILLS", "1"))
SUFFIXES = [".h5", ".keras"] if IS_KERAS_3 else [".h5", ""]


def test_killed_at_random_moments(tmp_path):
    """Weights and iterations are of one and the same version, and it is the last that was finished, or a newer one."""
    paths = [str(tmp_path / ("model" + suffix)) for suffix in SUFFIXES]
    for _ in range(KILLS):
        command = [sys.executable, os.path.join(HERE, "save_repeatedly.py"), *paths]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            finished = int(process.stdout.readline())
            time.sleep(random.uniform(0.0, 1.0))
            process.kill()
            rest = process.stdout.read().split()
        finished = int(rest[-1]) if rest else finished
        for path in paths:
            model = scalekeeper.load_model(path)
            numbers = {float(number) for weight in model.weights for number in weight.numpy().flat}
            assert len(numbers) == 1
            assert int(model.optimizer.iterations.numpy()) in numbers
            assert finished <= numbers.pop() <= finished + 1
        tf.keras.backend.clear_session()
