"""Run a scenario in a process of its own, and give what it printed.

The number of logical devices, and a worker's place in a cluster, are fixed when TensorFlow starts: the process that
runs the tests is too late for both.
"""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import time

import installed_keras
import pytest

SCENARIOS = pathlib.Path(__file__).parent / "scenarios"
SECONDS = 300


# of these, scenarios/common.py has one each
INNER_OPTIMIZERS = ["SGD", "Adam", *(["legacy Adam"] if "legacy" in installed_keras.OPTIMIZERS else [])]


@pytest.fixture(params=INNER_OPTIMIZERS)
def inner_name(request):
    return request.param


@pytest.fixture(scope="session")
def run_scenario():
    """``run_scenario("mirrored")`` gives the JSON that scenarios/mirrored.py prints."""

    def run(name):
        (answer,) = _answers([_start(name)])
        return answer

    return run


@pytest.fixture(scope="session")
def run_workers():
    """``run_workers("worker", 2)`` gives the JSON of each worker of a cluster on the loopback interface."""

    def run(name, count):
        cluster = {"worker": [f"127.0.0.1:{port}" for port in _free_ports(count)]}
        tasks = [{"cluster": cluster, "task": {"type": "worker", "index": index}} for index in range(count)]
        return _answers([_start(name, TF_CONFIG=json.dumps(task)) for task in tasks])

    return run


def _start(name, **variables):
    kept = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    environment = dict(kept, CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="2", **variables)
    command = [sys.executable, "-W", "ignore", str(SCENARIOS / (name + ".py"))]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _answers(processes):
    """What each process printed on its last line; when this returns or raises, none of them is alive."""
    try:
        deadline = time.monotonic() + SECONDS
        outputs = [process.communicate(timeout=max(deadline - time.monotonic(), 0.1)) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for process, (_, errors) in zip(processes, outputs):
        assert process.returncode == 0, errors.decode()[-4000:]
    return [json.loads(output.decode().splitlines()[-1]) for output, _ in outputs]


def _free_ports(count):
    """Ports that are free together; they are let go just before the workers take them."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(contextlib.closing(socket.socket())) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
