"""Run a scenario in a process of its own, and give what it printed.

The number of logical devices, and a worker's place in a cluster, are fixed when TensorFlow starts: the process that
runs the tests is too late for both.
"""

import contextlib
import json
import pathlib
import socket

import installed_keras
import own_process
import pytest

SCENARIOS = pathlib.Path(__file__).parent / "scenarios"
WITHOUT_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}


# of these, scenarios/common.py has one each
INNER_OPTIMIZERS = ["SGD", "Adam", *(["legacy Adam"] if "legacy" in installed_keras.OPTIMIZERS else [])]


@pytest.fixture(params=INNER_OPTIMIZERS)
def inner_name(request):
    return request.param


@pytest.fixture(scope="session")
def run_scenario():
    """``run_scenario("mirrored")`` gives the JSON that scenarios/mirrored.py prints."""

    def run(name):
        (answer,) = _answers(name, [WITHOUT_GPU])
        return answer

    return run


@pytest.fixture(scope="session")
def run_workers():
    """``run_workers("worker", 2)`` gives the JSON of each worker of a cluster on the loopback interface."""

    def run(name, count):
        cluster = {"worker": [f"127.0.0.1:{port}" for port in _free_ports(count)]}
        tasks = [{"cluster": cluster, "task": {"type": "worker", "index": index}} for index in range(count)]
        return _answers(name, [dict(WITHOUT_GPU, TF_CONFIG=json.dumps(task)) for task in tasks])

    return run


def _answers(name, several_variables):
    """What is on the last line that each process prints."""
    printed = own_process.run_together(SCENARIOS / (name + ".py"), several_variables)
    return [json.loads(each.splitlines()[-1]) for each in printed]


def _free_ports(count):
    """Ports that are free together; they are let go just before the workers take them."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(contextlib.closing(socket.socket())) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
