"""The rule of a probe never changes, its digests see what changes, and a malformed probe is refused."""

import json

import numpy as np
import pytest

from scalekeeper.registry.errors import StateMismatchError
from scalekeeper.serialization import _probe_record
from scalekeeper.serialization._probe_record import Computed, digest, first_difference, results_of, values
from scalekeeper.serialization.training_state import TrainingState, Writer, record_of, take_record

ARRAY = np.arange(200.0).reshape(2, 100) / 7


def probe(outputs=(ARRAY,), layers=None):
    described = {"rule": 1, "inputs": [{"shape": [2, 3], "dtype": "float32"}], "structure": 0, "tolerance": 1e-5}
    return {**described, **results_of(Computed(list(outputs), layers or {}))}


def test_the_rule_gives_these_numbers():
    """Files depend on them: the first values of inputs of every type."""
    floats = values(0, {"shape": [1, 4], "dtype": "float32"})
    assert floats.tolist() == [[0.6875, -0.875, 0.890625, -0.140625]]
    assert values(1, {"shape": [1, 4], "dtype": "int32", "below": 10}).tolist() == [[6, 9, 4, 6]]
    assert values(2, {"shape": [1, 4], "dtype": "bool"}).tolist() == [[True, True, False, False]]
    signs = [1 - 2 * ((mix(index) >> 56) % 2) for index in range(200)]
    assert digest(ARRAY).projection == pytest.approx(np.dot(ARRAY.ravel(), signs) / 200**0.5, abs=1e-8)


def mix(number):
    """The rule in Python's integers."""
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) % 2**64
    return number ^ (number >> 31)


def test_the_numbers_are_those_of_plain_integers():
    """So that no NumPy can change them."""
    assert _probe_record.mixed(3 * 2**32, 500).tolist() == [mix(3 * 2**32 + index) >> 56 for index in range(500)]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_numbers_are_the_same_in_every_type(dtype):
    """Multiples of 1/128 between -1 and 1 are exact in float16."""
    numbers = values(0, {"shape": [1000], "dtype": dtype})
    assert (numbers.astype(dtype) == numbers).all()
    assert numbers.min() == -1.0
    assert numbers.max() == 127 / 128


def test_a_large_array_is_sampled_over_all_channels():
    """The sample is small, and every channel is in it."""
    for channels in (3, 64, 96):
        array = np.zeros((1, 50, 50, channels))
        for channel in (0, channels // 2, channels - 1):
            other = array.copy()
            other[..., channel] = 1.0
            assert digest(other).rms == pytest.approx((1 / channels) ** 0.5, rel=0.05)


def test_a_probe_survives_json_and_equals_itself():
    """A record equals the results that it was made from."""
    layers = {"a": [digest(ARRAY)], "b": [digest(ARRAY * 1e9)]}
    found = json.loads(json.dumps(probe(layers=layers)))
    assert first_difference(found, Computed([ARRAY], layers)) is None


def test_the_first_layer_that_differs_is_named():
    """A layer comes before those that it feeds; one that the other model lacks does not count."""
    layers = {"a": [digest(ARRAY)], "b": [digest(ARRAY)], "c": [digest(ARRAY)]}
    found = first_difference(
        probe(layers=layers), Computed([ARRAY + 1], {"b": [digest(ARRAY + 1)], "c": [digest(ARRAY + 2)]})
    )
    assert found.layer == "b"
    assert found.amount == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize(
    "other",
    {
        "swapped": ARRAY[:, [1, 0, *range(2, 100)]],
        "swapped beyond the recorded values": ARRAY[:, [*range(98), 99, 98]],
        "slightly larger": ARRAY * 1.0001,
        "not finite": np.where(ARRAY == 0, np.nan, ARRAY),
        "another shape": ARRAY.reshape(4, 50),
    }.items(),
    ids=lambda item: item[0],
)
def test_a_difference_in_an_output_is_found(other):
    """Also one that leaves mean and norm as they were."""
    assert first_difference(probe(), Computed([other[1]], {})) is not None


def test_rounding_is_no_difference():
    """The tolerance counts for the size of an output, not for each of its numbers."""
    noise = np.random.RandomState(0).uniform(-1, 1, ARRAY.shape) * 1e-6 * np.abs(ARRAY).max()
    assert first_difference(probe(), Computed([ARRAY + noise], {})) is None
    assert first_difference(probe(), Computed([ARRAY + 1000 * noise], {})).amount > 1e-3


def test_non_finite_outputs_can_be_recorded():
    """JSON has no NaN; their number is compared."""
    broken = np.where(ARRAY > 5, np.nan, ARRAY)
    found = json.loads(json.dumps(probe([broken]), allow_nan=False))
    assert first_difference(found, Computed([broken], {})) is None
    assert first_difference(found, Computed([ARRAY], {})) is not None


def test_a_deep_model_has_a_small_record():
    """Of 1,000 layers every fourth is recorded."""
    found = probe(layers={f"layer_{number}": [digest(ARRAY)] for number in range(1000)})
    assert len(found["layers"]) == 250
    assert len(json.dumps(found)) < 20000


def test_the_record_keeps_a_probe():
    """A state without one has no such key, as in files of earlier versions."""
    state = TrainingState(Writer("npz"))
    assert _probe_record.PROBE not in record_of(state)
    taken = TrainingState(Writer("npz"))
    take_record(taken, record_of(TrainingState(Writer("npz"), probe=probe())))
    assert taken.probe == probe()
    for other in ({"none": "a reason"}, {"rule": 2, "anything": 1}):
        take_record(taken, record_of(TrainingState(Writer("npz"), probe=other)))
        assert taken.probe == other


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rule", "1"),
        ("inputs", [{"shape": [2**20, 2**20], "dtype": "float32"}]),
        ("inputs", [{"shape": [2], "dtype": "object"}]),
        ("inputs", [{"shape": [2], "dtype": "int32", "below": 0}]),
        ("structure", 1),
        ("structure", {"a": [0, 7]}),
        ("tolerance", None),
        ("outputs", [{"shape": [2], "first": ["x"], "digest": [0, 0, 0]}]),
        ("outputs", 3),
        ("layers", [["a", [[1, 2]]]]),
        ("layers", [[1, []]]),
    ],
)
def test_a_malformed_probe_is_refused(key, value):
    """Before a model is called with it: a file may declare any size."""
    with pytest.raises(StateMismatchError) as caught:
        take_record(TrainingState(Writer("npz")), {"version": 1, "probe": {**probe(), key: value}})
    assert ("probe", key) in [each.path for each in caught.value.problems]


def test_a_probe_that_is_not_a_mapping_is_refused():
    """As any other value of a wrong type."""
    with pytest.raises(StateMismatchError):
        take_record(TrainingState(Writer("npz")), {"version": 1, "probe": [1]})
