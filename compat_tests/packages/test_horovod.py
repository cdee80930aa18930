"""Horovod itself, with Gloo on two processes: workers stay equal, and skip together."""

import json
import os
import re
import subprocess
import sys

import pytest

pytest.importorskip("horovod")
WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "horovod_worker.py")


def results(kind):
    """Return what each of two workers printed."""
    command = [sys.executable, "-m", "horovod.runner.launch", "-np", "2", "--gloo", sys.executable, WORKER, kind]
    output = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300).stdout
    found = [json.loads(each) for each in re.findall(r"RESULT (\{.*?\}\s*$)", output, re.MULTILINE)]
    assert sorted(each["rank"] for each in found) == [0, 1], output[-3000:]
    assert {each["size"] for each in found} == {2}
    return [each["found"] for each in sorted(found, key=lambda each: each["rank"])]


def test_workers_average_gradients_and_skip_together():
    """fit applies the mean of both workers' gradients; a NaN of one makes both skip, and halves both loss scales."""
    one, other = results("wrapped")
    assert one == other
    weights, scales = [each[0] for each in one], [each[1] for each in one]
    assert weights == [0.0, 0.0, -2.0]
    assert scales == [8.0, 4.0, 4.0]


def test_weights_are_those_without_a_loss_scale():
    """Finite steps give the weights of Horovod's optimizer alone."""
    bare, wrapped = results("bare"), results("wrapped")
    assert [[step[0] for step in each] for each in bare] == [[step[0] for step in each] for each in wrapped]
