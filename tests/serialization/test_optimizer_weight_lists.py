"""Lists of weights of every generation, told apart by shape, type and sign."""

import numpy as np
import pytest

from scalekeeper import ArgumentError
from scalekeeper.serialization._optimizer_weight_lists import Expected, decode_weights

KERNEL, BIAS = np.arange(6.0).reshape(2, 3), np.arange(3.0)
ADAM = Expected(
    owners={"d/kernel": (2, 3), "d/bias": (3,)},
    slots={owner: {"m": shape, "v": shape} for owner, shape in {"d/kernel": (2, 3), "d/bias": (3,)}.items()},
    scalars=[],
    state={"good_steps": "i", "current_loss_scale": "f"},
)
SQUARE = ADAM._replace(owners={"a": (2,), "b": (2,)}, slots={owner: {"m": (2,), "v": (2,)} for owner in ("a", "b")})
SLOTS = {"d/kernel": {"m": -KERNEL, "v": KERNEL}, "d/bias": {"m": -BIAS, "v": BIAS}}
LISTS = {
    "2.0 to 2.10": [np.int64(7), -KERNEL, -BIAS, KERNEL, BIAS],
    "2.11 to 2.15": [np.int64(7), -KERNEL, KERNEL, -BIAS, BIAS],
    "Keras 3, bare": [np.int64(7), np.float32(0.5), -KERNEL, KERNEL, -BIAS, BIAS],
    "Keras 3": [
        *(np.int64(0), np.float32(0), np.int64(3), np.float32(512)),
        *(np.int64(7), np.float32(0.5), -KERNEL, KERNEL, -BIAS, BIAS),
    ],
}


@pytest.mark.parametrize("generation", sorted(LISTS))
def test_each_generation_is_recognised(generation):
    """The same iterations and slots, wherever they stand."""
    found = decode_weights(LISTS[generation], ADAM)
    assert found.iterations == 7
    assert found.learning_rate == (0.5 if "Keras 3" in generation else None)
    assert found.state == ({"good_steps": 3, "current_loss_scale": 512} if generation == "Keras 3" else {})
    for owner, slots in SLOTS.items():
        for name, value in slots.items():
            np.testing.assert_array_equal(found.slots[owner][name], value)


@pytest.mark.parametrize("generation", sorted(LISTS))
def test_whole_numbers_of_any_type_are_counters(generation):
    """A list whose numbers are all float64 is read like one with the right types, and counters become integers."""
    found = decode_weights([np.asarray(value, np.float64) for value in LISTS[generation]], ADAM)
    wanted = decode_weights(LISTS[generation], ADAM)
    assert found._replace(slots={}) == wanted._replace(slots={})
    assert type(found.iterations) is int
    assert {name: type(value) for name, value in found.state.items()} == {
        name: type(value) for name, value in wanted.state.items()
    }


def test_the_sign_tells_variables_of_equal_shape_apart():
    """A mean of squares is never negative, so one of the two readings is impossible."""
    minus, plus = -np.ones(2), np.ones(2)
    blocks = decode_weights([np.int64(1), minus, minus, plus, plus], SQUARE)
    interleaved = decode_weights([np.int64(1), minus, plus, minus, plus], SQUARE)
    for found in (blocks, interleaved):
        assert found.slots["a"]["m"][0] == found.slots["b"]["m"][0] == -1
        assert found.slots["a"]["v"][0] == found.slots["b"]["v"][0] == 1


def test_a_list_that_fits_in_two_ways_is_refused_and_layout_decides():
    """Nothing is assigned by luck; the error says what to give."""
    values = [np.int64(1), np.full(2, 1.0), np.full(2, 2.0), np.full(2, 3.0), np.full(2, 4.0)]
    with pytest.raises(ArgumentError, match="blocks, interleaved.*layout="):
        decode_weights(values, SQUARE)
    assert decode_weights(values, SQUARE, "blocks").slots["a"]["v"][0] == 3
    assert decode_weights(values, SQUARE, "interleaved").slots["a"]["v"][0] == 2


def test_a_run_that_has_diverged_can_be_read():
    """NaN is not negative, and all readings of a list that is NaN throughout say the same."""
    nans = {owner: {"m": np.full(shape, np.nan), "v": np.full(shape, np.nan)} for owner, shape in ADAM.owners.items()}
    values = [np.int64(7), np.float32(0.5), *(value for slots in nans.values() for value in slots.values())]
    assert np.isnan(decode_weights(values, ADAM).slots["d/kernel"]["v"]).all()
    assert np.isnan(decode_weights([np.int64(7), *[np.full(2, np.nan)] * 4], SQUARE).slots["a"]["v"]).all()


def test_equal_readings_are_no_ambiguity():
    """Before training all slots are zero, and every reading says the same."""
    assert decode_weights([np.int64(0), *[np.zeros(2)] * 4], SQUARE).slots["b"]["v"].tolist() == [0, 0]


def test_amsgrad_of_new_optimizers_has_its_third_slot_at_the_end():
    """m and v alternate, and the maxima follow in a block."""
    slots = {owner: {"m": shape, "v": shape, "vhat": shape} for owner, shape in ADAM.owners.items()}
    values = [np.int64(7), -KERNEL, KERNEL, -BIAS, BIAS, KERNEL + 1, BIAS + 1]
    found = decode_weights(values, ADAM._replace(slots=slots))
    np.testing.assert_array_equal(found.slots["d/kernel"]["vhat"], KERNEL + 1)
    np.testing.assert_array_equal(found.slots["d/bias"]["v"], BIAS)


def test_other_scalars_are_found_where_each_generation_has_them():
    """Nadam's product stands after iterations, or at the end, or nowhere."""
    nadam = ADAM._replace(scalars=["momentum_cache"])
    legacy = [np.int64(7), np.float32(0.25), -KERNEL, -BIAS, KERNEL, BIAS]
    keras_3 = [np.int64(7), np.float32(0.5), -KERNEL, KERNEL, -BIAS, BIAS, np.float32(0.25)]
    assert decode_weights(legacy, nadam).scalars == decode_weights(keras_3, nadam).scalars == {"momentum_cache": 0.25}
    assert decode_weights(keras_3, nadam).learning_rate == 0.5
    assert decode_weights(LISTS["2.11 to 2.15"], nadam).scalars == {}


@pytest.mark.parametrize(
    "values",
    [
        [],
        [np.int64(7)],
        LISTS["2.0 to 2.10"][:-1],
        [*LISTS["2.0 to 2.10"], KERNEL],
        [np.float32(7.5), *LISTS["2.0 to 2.10"][1:]],
        [np.bool_(True), *LISTS["2.0 to 2.10"][1:]],
        [np.int64(7), KERNEL.T, BIAS, KERNEL.T, BIAS],
    ],
    ids=["empty", "iterations alone", "one too few", "one too many", "a fraction", "a bool", "transposed"],
)
def test_what_does_not_fit_is_refused(values):
    """The error says what was given and what there is room for."""
    with pytest.raises(ArgumentError, match=f"{len(values)} weights .* 4 slots of 2 variables"):
        decode_weights(values, ADAM)
    with pytest.raises(ArgumentError, match="blocks, interleaved"):
        decode_weights(values, ADAM, "mixed")
