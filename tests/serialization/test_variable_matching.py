"""Which variable of a model is which in a file."""

import pytest

from scalekeeper.serialization._variable_matching import match_owners

SHAPES = {"d1/kernel": (3, 4), "d1/bias": (4,), "d2/kernel": (4, 1), "d2/bias": (1,)}


def renamed(names):
    """The same four variables under other names, in the same order."""
    return dict(zip(names, SHAPES.values()))


def test_equal_names_are_a_match_in_any_order():
    """The order in which a file lists its variables does not matter where the names say it all."""
    backwards = dict(reversed(list(SHAPES.items())))
    assert match_owners(SHAPES, backwards) == ({name: name for name in SHAPES}, [], [])


def test_what_all_names_begin_with_does_not_count():
    """Keras 3 and subclassed models put the model's name first."""
    file = {f"tiny/{name}": shape for name, shape in SHAPES.items()}
    assert match_owners(SHAPES, file).pairs == {name: f"tiny/{name}" for name in SHAPES}


def test_layers_that_keras_numbered_match_by_their_order():
    """dense_1 of this process is dense of the other, and not the other's dense_1, though shapes would allow it."""
    model = {"dense_1/kernel": (4, 4), "dense_2/kernel": (4, 4)}
    file = {"dense/kernel": (4, 4), "dense_1/kernel": (4, 4)}
    assert match_owners(model, file).pairs == {"dense_1/kernel": "dense/kernel", "dense_2/kernel": "dense_1/kernel"}


def test_layers_of_other_names_match_by_place_if_all_shapes_agree():
    """A model that was built again with other names is the same model."""
    file = renamed(["first/kernel", "first/bias", "second/kernel", "second/bias"])
    assert match_owners(SHAPES, file).pairs == dict(zip(SHAPES, file))


def test_variables_without_a_name_match_by_their_place_in_the_layer():
    """A .keras file numbers the variables of a layer."""
    file = renamed(["d1/0", "d1/1", "d2/0", "d2/1"])
    assert match_owners(SHAPES, file).pairs == dict(zip(SHAPES, file))


def test_a_new_head_leaves_the_rest_matched():
    """Layers with names of their own are found, the others are reported on both sides."""
    model = {**{name: SHAPES[name] for name in ("d1/kernel", "d1/bias")}, "head/kernel": (4, 7)}
    assert match_owners(model, SHAPES) == (
        {"d1/kernel": "d1/kernel", "d1/bias": "d1/bias"},
        ["head/kernel"],
        ["d2/kernel", "d2/bias"],
    )


def test_an_equal_number_proves_nothing():
    """dense_1 in both, with one layer more in the file: nobody knows which is which, so none is matched."""
    model = {"dense_1/kernel": (4, 4), "dense_2/kernel": (4, 4)}
    file = {"dense/kernel": (4, 4), "dense_1/kernel": (4, 4), "dense_2/kernel": (4, 4)}
    assert match_owners(model, file) == ({}, list(model), list(file))


@pytest.mark.parametrize("wrong", ["d1/kernel", "d2/bias"])
def test_another_shape_is_no_match(wrong):
    """A pair with different shapes is left out, and reported."""
    file = {**SHAPES, wrong: (9, 9)}
    matching = match_owners(SHAPES, file)
    assert (matching.missing, matching.unused) == ([wrong], [wrong])
    assert len(matching.pairs) == 3


def test_numbers_count_within_layers_of_the_same_name():
    """A file that names layers and numbers their variables fits in any order, whatever the shapes."""
    model = {"mine/z/kernel": (4, 4), "mine/z/bias": (4,), "mine/a/kernel": (4, 4), "mine/a/bias": (4,)}
    file = {"a/0": (4, 4), "a/1": (4,), "z/0": (4, 4), "z/1": (4,)}
    expected = dict(zip(model, ["z/0", "z/1", "a/0", "a/1"]))
    assert match_owners(model, file, is_ordered=False).pairs == expected
    assert match_owners(model, file).pairs == expected


def test_without_an_order_places_do_not_count():
    """Other names, and no order: then nothing is known."""
    model = {"z/kernel": (4, 4), "a/kernel": (4, 4)}
    file = {"dense/0": (4, 4), "zeta/0": (4, 4)}
    assert match_owners(model, file, is_ordered=False).pairs == {}
    assert match_owners(model, file).pairs == {"z/kernel": "dense/0", "a/kernel": "zeta/0"}


def test_models_in_models_match_by_the_order_of_all_variables():
    """Some versions put the inner model's name before its layers', some do not."""
    model = {"d/kernel": (2, 2), "inner/e/kernel": (2, 2), "inner/e/bias": (2,)}
    file = {"d/0": (2, 2), "e/0": (2, 2), "e/1": (2,)}
    assert match_owners(model, file).pairs == dict(zip(model, file))
