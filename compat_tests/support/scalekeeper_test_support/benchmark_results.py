"""How steps are timed against each other, and where the figures are kept: one file for each TensorFlow."""

from typing import Any, Callable, Dict, List

import argparse
import json
import os
import platform
import random
import statistics
import time

import tensorflow as tf

from scalekeeper_test_support.repository import repository_path

RESULTS = repository_path("benchmarks", "results")


def parser(description: Any, seconds: float) -> argparse.ArgumentParser:
    """The options that every script has."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--seconds", type=float, default=seconds, help="for each row")
    made.add_argument("--record", action="store_true")
    return made


def interleaved(steps: Dict[str, Callable[[], Any]], seconds: float) -> Dict[str, List[float]]:
    """Milliseconds of each step, in turns, for so long; the first two turns do not count."""
    times: Dict[str, List[float]] = {name: [] for name in steps}
    names = list(steps)
    end = time.perf_counter() + seconds
    turn = 0
    while turn < 4 or time.perf_counter() < end:
        random.shuffle(names)  # none of them always comes after the same other one
        for name in names:
            began = time.perf_counter()
            steps[name]()
            if turn >= 2:
                times[name].append(1000 * (time.perf_counter() - began))
        turn += 1
    return times


def medians(makers: Dict[str, Callable[[], Callable[[], Any]]], seconds: float, repeats: int) -> Dict[str, float]:
    """Milliseconds of each step, which is made anew so many times."""
    times: Dict[str, List[float]] = {name: [] for name in makers}
    for _ in range(repeats):  # where the arrays come to lie in memory makes a difference that stays
        steps = {name: make() for name, make in makers.items()}
        for name, several in interleaved(steps, seconds / repeats).items():
            times[name] += several
    return {name: statistics.median(several) for name, several in times.items()}


def name_of_tensorflow() -> str:
    """The version, and which Keras where there are two: 2.3, 2.21 tf_keras, 2.21 Keras 3."""
    short = ".".join(tf.__version__.split(".")[:2])
    if hasattr(tf.keras, "Operation"):
        return f"{short} Keras 3"
    return f"{short} tf_keras" if tf.keras.Model.__module__.startswith("tf_keras") else short


def machine() -> str:
    return (
        f"TensorFlow {tf.__version__}, Python {platform.python_version()}, {_processor()}, "
        f"{os.cpu_count()} cores, {platform.system()}"
    )


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:
            names = [line.split(":")[1].strip() for line in stream if line.startswith("model name")]
        return names[0]
    except (OSError, IndexError):
        return platform.processor() or platform.machine()


def _names(row: Any) -> Any:
    return tuple(value for value in row.values() if isinstance(value, str))


def record(what: str, rows: List[Any]) -> None:
    """Put rows in place of those that were measured before under the same names, and leave the rest."""
    path = os.path.join(RESULTS, name_of_tensorflow().replace(" ", "-") + ".json")
    content = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as stream:
            content = json.load(stream)
    merged = {_names(row): row for row in [*content.get(what, []), *rows]}
    content.update({"name": name_of_tensorflow(), "machine": machine(), what: list(merged.values())})
    os.makedirs(RESULTS, exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as stream:
        json.dump(content, stream, indent=1)
        stream.write("\n")
    os.replace(path + ".new", path)
