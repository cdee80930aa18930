"""Run the scenarios of strategies in processes of their own, and give what they print.

The number of logical devices, and a worker's place in a cluster, are fixed when TensorFlow starts: a process that has
used it already is too late for both.
"""

import contextlib
import json
import pathlib
import socket

from scalekeeper_test_support import script_runner
from scalekeeper_test_support.repository import ROOT

SCENARIOS = pathlib.Path(ROOT, "compat_tests", "optimizer", "strategies", "scenarios")
WITHOUT_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}


def run_scenario(name, *arguments):
    """``run_scenario("mirrored", 2, 100)`` gives the JSON that ``scenarios/mirrored.py 2 100`` prints last."""
    (answer,) = _answers(name, [WITHOUT_GPU], arguments)
    return answer


def run_workers(name, count, *arguments):
    """``run_workers("loops", 2, …)`` gives that of each worker of a cluster on the loopback interface."""
    return _answers(name, [dict(WITHOUT_GPU, **place) for place in places_in_cluster(count)], arguments)


def run_loops(strategy, replicas, steps):
    """What ``scenarios/loops.py`` prints: of the one process of MirroredStrategy, or of every worker."""
    if strategy == "MirroredStrategy":
        return [run_scenario("loops", strategy, steps, replicas)]
    return run_workers("loops", replicas, strategy, steps)


def places_in_cluster(count):
    """The environment variables that make a process one of so many workers, for each of them."""
    cluster = {"worker": [f"127.0.0.1:{port}" for port in _free_ports(count)]}
    tasks = [{"cluster": cluster, "task": {"type": "worker", "index": index}} for index in range(count)]
    return [{"TF_CONFIG": json.dumps(task)} for task in tasks]


def _answers(name, several_variables, arguments):
    printed = script_runner.run_together(SCENARIOS / (name + ".py"), several_variables, *map(str, arguments))
    return [json.loads(each.splitlines()[-1]) for each in printed]


def _free_ports(count):
    """Ports that are free together; they are let go just before the workers take them."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(contextlib.closing(socket.socket())) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
