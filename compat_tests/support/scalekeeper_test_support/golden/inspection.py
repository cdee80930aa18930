"""Compare the results of ``scalekeeper.inspect`` for golden files with what was measured when they were written.

Needs no TensorFlow but for checkpoints and SavedModels.
"""

import json
import os

import scalekeeper
from scalekeeper_test_support.golden import archives, matrix

_CLASSES = {"sgd": "SGD", "adam": "Adam", "rmsprop": "RMSprop"}
_POLICIES = {"fixed": "FixedLossScale", "custom": "CountingLossScale"}
_LACKS = {"iterations": "iterations", "slots": "slots", "loss_scale": "state"}  # part → a word in what is missing


def surprises(producer, formats):
    """Everything that is said wrongly of a producer's files in these formats; and how many were looked into."""
    found, count = [], 0
    with archives.unpacked(producer) as folder:
        for case in matrix.cases(producer):
            with open(os.path.join(folder, case.folder, "expected.json"), encoding="utf-8") as stream:
                expected = json.load(stream)
            for file_format in matrix.formats(*producer):
                if file_format in formats:
                    path = os.path.join(folder, case.folder, *matrix.FILES[file_format].split("/"))
                    inspection = scalekeeper.inspect(path)
                    count += 1
                    for surprise in _surprises(inspection, case, file_format, expected):
                        found.append(f"{producer.name} {case.folder} {file_format}: {surprise}")
    return found, count


def _surprises(inspection, case, file_format, expected):
    holds = expected["files"][file_format]
    is_nameless = file_format == "checkpoint"  # it names no classes
    yield from _unequal("format", inspection.format, file_format)
    yield from _unequal("optimizer", inspection.optimizer, None if is_nameless else _CLASSES[case.optimizer])
    if not is_nameless:
        policy = _POLICIES.get(case.policy, "DynamicLossScale")
        yield from _unequal("loss scale", inspection.loss_scale and inspection.loss_scale.name, policy)
    yield from _unequal("iterations", inspection.iterations, expected["iterations"] if holds["iterations"] else None)
    state = inspection.loss_scale.state if inspection.loss_scale else {}
    yield from _unequal("state", state, expected["state"] if holds["loss_scale"] else {})
    slots = [{name: list(shape) for name, shape in each.items()} for each in inspection.slots.values()]
    shapes = [{name: _shape(value) for name, value in each.items()} for each in expected["slots"].values()]
    yield from _unequal("slots", slots, shapes if holds["slots"] else [])
    if file_format not in ("config", "npz"):
        weights = [list(shape) for shape in inspection.variables.values()]
        yield from _unequal("variables", weights, [_shape(value) for value in expected["weights"].values()])
        yield from _unequal("slots of no variable", set(inspection.slots) - set(inspection.variables), set())
    for part, word in _LACKS.items():
        is_missing = any(word in line for line in inspection.missing)
        needs_it = part != "loss_scale" or case.policy != "fixed"
        yield from _unequal(f"lack of {part}", is_missing, not holds[part] and (needs_it or file_format == "config"))


def _unequal(name, given, wanted):
    if given != wanted:
        yield f"{name} is {given!r} instead of {wanted!r}"


def _shape(value):
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        value = value[0]
    return shape
