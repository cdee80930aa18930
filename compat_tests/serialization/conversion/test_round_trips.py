"""There and back again: a file that is converted for another TensorFlow, and back, says the same."""

import contextlib
import os

import pytest

import scalekeeper
from scalekeeper.serialization.formats import formats
from scalekeeper_test_support import installed_keras
from scalekeeper_test_support.conversion_round_trips import difference, told
from scalekeeper_test_support.golden import archives, matrix

TARGET_OF = {
    "tf20": "2.0",
    "tf21": "2.1",
    "tf22": "2.2",
    "tf23": "2.3",
    "tf24e": "2.4",
    "tf24": "2.4",
    "tf210": "2.10",
    "tf210x": "2.10",
    "tf215L": "2.15",
    "tf215": "2.15",
    "tfkL": "tf_keras",
    "tfk": "tf_keras",
    "k3": "keras3",
}
OTHERS = ("2.0", "2.3", "2.10", "2.15", "tf_keras", "keras3")
WITH_KERAS_FILES = ("2.15", "tf_keras", "keras3")
MODELS = ("h5", "keras")
ENDING = {codec.name: codec.endings[0] for codec in formats() if codec.endings}


def pairs():
    """Case, its format, the other's format, the other's target: every pair that can hold what the first one does."""
    found = []
    for producer in matrix.producers():
        for case in matrix.cases(producer):
            for file_format in ("config", "npz", "checkpoint", *MODELS):
                if file_format not in matrix.formats(*producer) or not is_written(file_format, TARGET_OF[case.flavour]):
                    continue
                for target in OTHERS:
                    others = MODELS if file_format in MODELS else (file_format,)
                    found += [(case, file_format, other, target) for other in others if can_hold(case, other, target)]
    return found


def is_written(file_format, target):
    """.keras files come with 2.13, and are written by a TensorFlow that has them."""
    return file_format != "keras" or (target in WITH_KERAS_FILES and ".keras" in installed_keras.MODEL_SUFFIXES)


def can_hold(case, file_format, target):
    """Checkpoints of Keras 3 can't be made of others."""
    is_possible = file_format != "checkpoint" or (case.flavour == "k3") == (target == "keras3")
    return is_possible and is_written(file_format, target)


def part():
    """Each producer in each format there and back; each format with each target; each policy with each format."""
    seen, taken = set(), []
    for row in sorted(pairs(), key=lambda row: matrix.spread(str(row))):
        case, file_format, other, target = row
        here = {
            (case.producer, file_format),
            (file_format, other, target),
            (case.policy, file_format),
            (case.optimizer, file_format),
        }
        if not here <= seen:
            seen |= here
            taken.append(row)
    return taken


@pytest.fixture(scope="module")
def folders():
    """Producer → its files, unpacked when they are first asked for."""
    with contextlib.ExitStack() as stack:
        found = {}

        def folder(producer):
            if producer not in found:
                found[producer] = stack.enter_context(archives.unpacked(producer))
            return found[producer]

        yield folder


@pytest.mark.parametrize("row", part(), ids=lambda row: "-".join([*row[0], *row[1:]]))
def test_there_and_back_again(row, folders, tmp_path):
    """Optimizer, arguments, loss scale, state, iterations, slots and weights: equal, arrays to the bit."""
    case, file_format, other, target = row
    source = os.path.join(folders(case.producer), case.folder, *matrix.FILES[file_format].split("/"))
    there, back = str(tmp_path / f"there{ENDING[other]}"), str(tmp_path / f"back{ENDING[file_format]}")
    scalekeeper.convert(source, there, target)
    scalekeeper.convert(there, back, TARGET_OF[case.flavour])
    is_model = file_format in MODELS
    assert difference(told(source, is_model), told(back, is_model)) is None


def sources():
    """Of each producer one case in each format that holds all of its state."""
    for number, producer in enumerate(matrix.producers()):
        cases = matrix.cases(producer)
        case = cases[number % len(cases)]
        for file_format in ("h5", "keras", "saved_model", "checkpoint"):
            if file_format in matrix.formats(*producer) and matrix.holds(case, file_format) == 4:
                yield case, file_format


@pytest.mark.slow(is_divided=True)
@pytest.mark.parametrize("row", list(sources()), ids=lambda row: "-".join([*row[0], row[1]]))
@pytest.mark.parametrize("other", ["npz", "checkpoint"])
def test_the_state_in_another_format(row, other, folders, tmp_path):
    """Iterations, slots, scale and counters are the same in a state, and in a checkpoint for another TensorFlow."""
    case, file_format = row
    source = os.path.join(folders(case.producer), case.folder, *matrix.FILES[file_format].split("/"))
    path = str(tmp_path / f"new{ENDING[other]}")
    scalekeeper.convert(source, path, "2.10", allow_loss=True)
    before, after = (
        told(source, with_model=file_format != "checkpoint"),
        told(path),
    )
    kept = ("iterations", "state", "skipped_steps", "slots")
    before, after = ({**{key: each[key] for key in kept}, "variables": {}} for each in (before, after))
    assert difference(before, after) is None
    assert after["iterations"] > 0


def test_a_difference_is_seen(folders):
    """Two files that differ in one thing each: the loss scale's class, the optimizer, the writer's rule."""
    folder = folders(matrix.Producer("scalekeeper", "tf20"))
    one = told(os.path.join(folder, "dynamic-adam", "state.npz"))
    for other, word in (("dynamic4-adam", "state"), ("dynamic-sgd", "class"), ("fixed-adam", "iterations")):
        found = difference(one, told(os.path.join(folder, other, "state.npz")))
        assert found.startswith(word)
