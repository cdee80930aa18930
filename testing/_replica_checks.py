"""The check of several replicas, in a new process because TensorFlow fixes the number of devices at start."""

from typing import Any, Dict, List, Mapping, Optional

import json
import os
import subprocess
import sys

from ._check import CheckFailedError, check
from ._subject import Subject

IN_PROCESS = "SCALEKEEPER_REPLICA_PROCESS"  # set in that process
_SECONDS = 300
_PROCESS = "scalekeeper.testing._replica_process"
_MODULE_LEVEL = (
    "Put the class at the top level of a module in a file, or leave this check out: leave_out=['replicas_agree']"
)


@check(tensorflow=True)
def replicas_agree(subject: Subject) -> None:
    """Replicas of a MirroredStrategy take one decision and have one state, also if one has a non-finite gradient."""
    address = address_of(subject)
    if subject.replica_results is None:
        _run_together(subject.companions)
    if subject.replica_results is None:  # another policy may have ended the process
        subject.replica_results = _results([address])[0]
    if subject.replica_results["failure"]:
        raise CheckFailedError(subject.replica_results["failure"], subject.replica_results["remedy"])


def address_of(subject: Subject) -> Dict[str, Any]:
    """Return how another process imports the class, and the configuration of the policy."""
    cls = subject.cls
    found: Any = sys.modules.get(cls.__module__)
    for part in cls.__qualname__.split("."):
        found = getattr(found, part, None)
    path = getattr(sys.modules.get(cls.__module__), "__file__", None)
    if found is not cls or path is None:
        raise CheckFailedError(
            f"{cls.__module__}.{cls.__qualname__} can't be imported by the process in which the replicas run",
            _MODULE_LEVEL,
        )
    return {
        "module": cls.__module__,
        "file": os.path.abspath(path),
        "qualname": cls.__qualname__,
        "config": subject.make().get_config(),
    }


def _run_together(subjects: List[Subject]) -> None:
    """Check all subjects that have an address in one process; the others report their problem in their own turn."""
    addresses = []
    for subject in subjects:
        try:
            addresses.append((subject, json.loads(json.dumps(address_of(subject)))))
        except Exception:
            continue
    try:
        results = _results([address for _, address in addresses])
    except CheckFailedError:
        if len(addresses) == 1:
            raise
        return
    for (subject, _), result in zip(addresses, results):
        subject.replica_results = result


def _results(addresses: List[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    environment = dict(os.environ, CUDA_VISIBLE_DEVICES="-1", **{IN_PROCESS: "1"})
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    question = json.dumps({"path": sys.path, "policies": addresses})
    try:
        process = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", _PROCESS],
            input=question,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise CheckFailedError(
            f"two replicas were not done after {_SECONDS} seconds", "Look for a step that waits for something"
        ) from None
    answer = _last_line(process.stdout)
    if process.returncode or answer is None:
        output = " ".join(process.stderr.split())[-600:]
        raise CheckFailedError(
            f"the process in which the replicas run ended with {process.returncode}: {output}",
            "See that the module of the class can be imported by itself",
        )
    return list(json.loads(answer))


def _last_line(text: str) -> Optional[str]:
    lines = text.strip().splitlines()
    return lines[-1] if lines else None
