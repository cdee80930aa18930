"""Where figures are kept: one file for each TensorFlow, with the machine they were measured on."""

from typing import Any, List

import json
import os
import platform

import tensorflow as tf

RESULTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "results")


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
