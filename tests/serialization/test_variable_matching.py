"""Which variable of a model is which in a file."""

import pytest

from scalekeeper.serialization._matching import match_owners

SHAPES = {"d1/kernel": (3, 4), "d1/bias": (4,), "d2/kernel": (4, 1), "d2/bias": (1,)}


def renamed(names):
    """The same four variables under other names, in the same order."""
    return dict(zip(names, SHAPES.values()))


def test_equal_names_are_a_match_in_any_order():
    """The order in which a file lists its variables does not matter where the names say it all."""
    backwards = dict(reversed(list(SHAPES.items())))
    assert match_owners(SHAPES, backwards)[:3] == ({name: name for name in SHAPES}, [], [])


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
    assert match_owners(model, SHAPES)[:3] == (
        {"d1/kernel": "d1/kernel", "d1/bias": "d1/bias"},
        ["head/kernel"],
        ["d2/kernel", "d2/bias"],
    )


def test_an_equal_number_proves_nothing():
    """dense_1 in both, with one layer more in the file: nobody knows which is which, so none is matched."""
    model = {"dense_1/kernel": (4, 4), "dense_2/kernel": (4, 4)}
    file = {"dense/kernel": (4, 4), "dense_1/kernel": (4, 4), "dense_2/kernel": (4, 4)}
    assert match_owners(model, file)[:3] == ({}, list(model), list(file))


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


@pytest.mark.parametrize("is_ordered", [True, False])
def test_other_names_with_equal_shapes_are_not_matched(is_ordered):
    """Layers that were renamed may have been reordered, too: position does not tell which is which."""
    model = {"z/kernel": (4, 4), "a/kernel": (4, 4)}
    file = {"dense/0": (4, 4), "zeta/0": (4, 4)}
    assert match_owners(model, file, is_ordered).pairs == {}


def test_a_name_on_both_sides_decides_although_others_differ():
    """enc and dec changed places and Keras names the head now: enc stays enc."""
    model = {"dec/kernel": (4, 4), "enc/kernel": (4, 4), "dense/kernel": (4, 1)}
    file = {"enc/kernel": (4, 4), "dec/kernel": (4, 4), "output/kernel": (4, 1)}
    matching = match_owners(model, file)
    assert matching.pairs == {
        "dec/kernel": "dec/kernel",
        "enc/kernel": "enc/kernel",
        "dense/kernel": "output/kernel",
    }
    assert matching.rules == {"dec/kernel": "name", "enc/kernel": "name", "dense/kernel": "shape"}


def test_a_new_name_beside_equal_names_is_a_new_layer():
    """A head of the same shape under another name is not the old head."""
    model = {"body/kernel": (4, 4), "new_head/kernel": (4, 1)}
    file = {"body/kernel": (4, 4), "head/kernel": (4, 1)}
    assert match_owners(model, file).pairs == {"body/kernel": "body/kernel"}


def test_parts_of_a_model_match_by_chosen_names_only():
    """Saved with one layer frozen, restored with another: equally many layers are not the same layers."""
    model = {"dense/kernel": (4, 4), "dense_1/kernel": (4, 4), "mine/kernel": (4, 4)}
    file = {"dense/kernel": (4, 4), "dense_2/kernel": (4, 4), "mine/kernel": (4, 4)}
    assert match_owners(model, file, is_whole=False).pairs == {"mine/kernel": "mine/kernel"}
    assert match_owners(model, model, is_whole=False).pairs == {"mine/kernel": "mine/kernel"}


def test_layers_inside_blocks_of_other_names_are_not_matched():
    """The same name inside another block is another layer."""
    model = {"one/enc/kernel": (4, 4), "two/enc/kernel": (4, 4), "new/kernel": (4, 4)}
    file = {"one/enc/kernel": (4, 4), "three/enc/kernel": (4, 4), "old/kernel": (4, 4)}
    assert match_owners(model, file).pairs == {"one/enc/kernel": "one/enc/kernel"}


def test_numbers_that_contradict_the_order_are_not_matched():
    """The file lists dense before dense_1, the model dense_1 before dense, with equal shapes: no rule decides."""
    model = {"dense_1/kernel": (4, 4), "dense/kernel": (4, 4)}
    file = {"dense/kernel": (4, 4), "dense_1/kernel": (4, 4)}
    matching = match_owners(model, file)
    assert (matching.pairs, len(matching.notes)) == ({}, 1)
    assert match_owners(model, file, is_ordered=False).pairs == {name: name for name in model}


def test_paths_decide_before_names_that_keras_made_up():
    """Attributes lead to the same variables although another layer was built first."""
    model = {"dense_1/kernel": (4, 4), "dense_2/kernel": (4, 4), "dense_3/kernel": (4, 4)}
    file = {"dense_1/kernel": (4, 4), "dense_2/kernel": (4, 4)}
    matching = match_owners(
        model,
        file,
        model_paths={"dense_1/kernel": "new/kernel", "dense_2/kernel": "a/kernel", "dense_3/kernel": "b/kernel"},
        file_paths={"dense_1/kernel": "a/kernel", "dense_2/kernel": "b/kernel"},
    )
    assert matching.pairs == {"dense_2/kernel": "dense_1/kernel", "dense_3/kernel": "dense_2/kernel"}
    assert matching.missing == ["dense_1/kernel"]


def of_two_models(numbers, names=("encoder", "decoder")):
    """Two layers of each of two models: shapes, and the attributes that lead to the models."""
    layers = [f"dense_{number}/kernel" for number in numbers]
    paths = [f"{name}/~" for name in names for _ in range(2)]
    return dict.fromkeys(layers, (4, 4)), dict(zip(layers, paths))


def test_models_at_the_same_attributes_are_matched_among_themselves():
    """Keras's numbers say that decoder was created first here, and attributes that it is decoder."""
    model, model_paths = of_two_models((1, 2, 3, 4), ("decoder", "encoder"))
    file, file_paths = of_two_models((1, 2, 3, 4))
    matching = match_owners(model, file, model_paths=model_paths, file_paths=file_paths)
    order = {1: 3, 2: 4, 3: 1, 4: 2}
    assert matching.pairs == {f"dense_{one}/kernel": f"dense_{other}/kernel" for one, other in order.items()}
    assert set(matching.rules.values()) == {"path"}


def test_a_model_with_other_layers_at_the_same_attribute_is_not_filled_from_elsewhere():
    """The file's encoder has another layer, so nothing else in the file is that layer."""
    model, model_paths = of_two_models((1, 2, 3, 4))
    file, file_paths = of_two_models((1, 2, 3, 4))
    file["dense_2/kernel"] = (4, 5)
    matching = match_owners(model, file, model_paths=model_paths, file_paths=file_paths)
    assert matching.pairs == {name: name for name in ("dense_3/kernel", "dense_4/kernel")}


def test_models_whose_layers_contradict_the_attributes_are_left_to_names():
    """A person has named the layers, and the program has put the models at other attributes."""
    names = ("a/kernel", "b/kernel", "c/kernel", "d/kernel")
    model = dict.fromkeys(names, (4, 4))
    model_paths, file_paths = (
        dict(zip(names, (f"{first}/~", f"{first}/~", f"{second}/~", f"{second}/~")))
        for first, second in (("x", "y"), ("y", "x"))
    )
    matching = match_owners(model, model, model_paths=model_paths, file_paths=file_paths)
    assert matching.pairs == {name: name for name in names}
    assert set(matching.rules.values()) == {"name"}


def test_unnamed_layers_of_a_model_at_the_same_attributes_follow_each_other():
    """Keras 3 joins the names in a checkpoint, which are then no names of layers; the model is known by its path."""
    model, model_paths = of_two_models((1, 2, 3, 4), ("decoder", "encoder"))
    file = {f"model/sequential_{owner}": shape for owner, shape in model.items()}
    file_paths = dict(zip(file, ["encoder/~", "encoder/~", "decoder/~", "decoder/~"]))
    matching = match_owners(model, file, model_paths=model_paths, file_paths=file_paths)
    order = {1: 3, 2: 4, 3: 1, 4: 2}
    assert matching.pairs == {
        f"dense_{one}/kernel": f"model/sequential_dense_{other}/kernel" for one, other in order.items()
    }


def test_paths_against_chosen_names_are_not_matched():
    """The attribute is enc, the name is dec: a contradiction that only the caller can decide."""
    model = {"dec/kernel": (4, 4), "enc/kernel": (4, 4)}
    paths = {"dec/kernel": "a/kernel", "enc/kernel": "b/kernel"}
    swapped = {"dec/kernel": "b/kernel", "enc/kernel": "a/kernel"}
    assert match_owners(model, model, model_paths=paths, file_paths=swapped).pairs == {name: name for name in model}


def test_a_mapping_comes_first():
    """The caller's word decides."""
    model = {"z/kernel": (4, 4), "a/kernel": (4, 4)}
    file = {"x/kernel": (4, 4), "y/kernel": (4, 4)}
    mapping = {"z/kernel": "y/kernel", "a/kernel": "x/kernel"}
    assert match_owners(model, file, mapping=mapping).pairs == mapping


def test_parts_that_may_differ_match_if_their_names_follow_each_other_alike():
    """The variables of a loop: as many, under the same names or under names that are all shifted by the same number."""
    model = {"dense_5/kernel": (4, 4), "dense_7/kernel": (4, 4)}
    alike = {"dense/kernel": (4, 4), "dense_2/kernel": (4, 4)}
    assert match_owners(model, alike, is_whole=None).pairs == dict(zip(model, alike))
    other = {"dense/kernel": (4, 4), "dense_1/kernel": (4, 4)}
    assert match_owners(model, other, is_whole=None).pairs == {}
    overlapping = {"dense_7/kernel": (4, 4), "dense_9/kernel": (4, 4)}
    assert match_owners(model, overlapping, is_whole=None).pairs == {}
    more = {"dense_7/kernel": (4, 4), "dense_6/kernel": (4, 4), "dense_5/kernel": (4, 4)}
    assert match_owners(model, more, is_whole=None).pairs == {name: name for name in model}


def test_numbers_that_tensorflow_adds_to_chosen_names_do_not_count():
    """Up to TF 2.2 the second layer enc of a process has the variable enc_1/kernel; block_1 and block_2 are names."""
    model = {"enc_4/kernel": (4, 4), "dec_4/kernel": (4, 4)}
    file = {"dec_1/kernel": (4, 4), "enc_1/kernel": (4, 4)}
    expected = {"enc_4/kernel": "enc_1/kernel", "dec_4/kernel": "dec_1/kernel"}
    assert match_owners(model, file, has_numbers=True).pairs == expected
    assert match_owners(model, file, is_whole=None, has_numbers=True).pairs == expected
    assert match_owners(model, file).pairs == {}
    model = {"block_2/kernel": (4, 4), "block_3/kernel": (4, 4)}
    file = {"block_1/kernel": (4, 4), "block_2/kernel": (4, 4)}
    assert match_owners(model, file, has_numbers=True).pairs == {"block_2/kernel": "block_2/kernel"}


def test_the_depthwise_kernel_has_another_name_in_keras_3():
    """Keras 2 calls it depthwise_kernel, Keras 3 kernel; a separable layer has both a depthwise and a pointwise one."""
    model = {"dw/kernel": (3, 3, 2, 1), "dw/bias": (2,), "s/depthwise_kernel": (3, 3, 2, 1), "s/pointwise_kernel": (1,)}
    file = {**model, "dw/depthwise_kernel": (3, 3, 2, 1)}
    del file["dw/kernel"]
    assert match_owners(model, file).pairs == {
        **{name: name for name in model},
        "dw/kernel": "dw/depthwise_kernel",
    }


def test_models_in_models_match_by_the_order_of_all_variables():
    """Some versions put the inner model's name before its layers', some do not."""
    model = {"d/kernel": (2, 2), "inner/e/kernel": (2, 2), "inner/e/bias": (2,)}
    file = {"d/0": (2, 2), "e/0": (2, 2), "e/1": (2,)}
    assert match_owners(model, file).pairs == dict(zip(model, file))


def test_layers_inside_a_layer_match_by_their_order_if_the_file_names_attributes():
    """.keras files of Keras 2 name the attributes of an attention layer, the model its layers."""
    inside = ("query", "key", "value", "attention_output")
    model = {f"att/{name}/{leaf}": (2, 2) for name in inside for leaf in ("kernel", "bias")}
    inside = ("_query_dense", "_key_dense", "_value_dense", "_output_dense")
    file = {f"att/{name}/{number}": (2, 2) for name in inside for number in range(2)}
    assert match_owners(model, file).pairs == dict(zip(model, file))
    assert match_owners(model, file, is_ordered=False).pairs == {}


NESTED = {"one/x/kernel": (3, 3), "one/y/kernel": (3, 3), "two/x/kernel": (3, 3), "two/y/kernel": (3, 3)}


@pytest.mark.parametrize("number", ["layer_with_weights-{}", "_operations/{}"])
def test_nested_models_that_are_alike_do_not_match_by_their_positions(number):
    """A checkpoint numbers nested models; the numbers depend on the order in which a program calls them."""
    file = {f"{number.format(index)}/{name}/kernel": (3, 3) for index in (0, 1) for name in "xy"}
    found = match_owners(NESTED, file)
    assert found[:3] == ({}, list(NESTED), list(file))
    assert len(found.notes) == 1


def test_nested_models_with_other_layers_match_by_these():
    """A nested model is the one with the same names and shapes inside, whatever its position and their order."""
    file = {"layer-0/y/kernel": (3, 3), "layer-0/x/kernel": (3, 3), "layer-1/x/kernel": (3, 3)}
    model = {name: NESTED[name] for name in ("one/x/kernel", "two/x/kernel", "two/y/kernel")}
    found = match_owners(model, file)
    assert found.pairs == {
        "one/x/kernel": "layer-1/x/kernel",
        "two/x/kernel": "layer-0/x/kernel",
        "two/y/kernel": "layer-0/y/kernel",
    }
    assert set(found.rules.values()) == {"name"}


def test_nested_models_of_one_program_match_by_the_order_of_their_variables():
    """A record and the file that it is in have the same order."""
    file = {f"layer-{index}/{name}/kernel": (3, 3) for index in (0, 1) for name in "xy"}
    assert match_owners(NESTED, file, is_same_program=True).pairs == dict(zip(NESTED, file))


def test_a_name_without_a_layer_matches_inside_a_nested_model():
    """Normalization that is adapted before a model calls it names its variables without a layer."""
    shapes = {"mean": (2,), "variance": (2,), "dense/kernel": (2, 1)}
    names = {"mean": "nested/mean", "variance": "nested/variance"}
    found = match_owners(shapes, shapes, is_ordered=False, names=names)
    assert found.pairs == {name: name for name in shapes}
    assert found.rules["mean"] == "name"


def test_a_name_without_a_layer_that_two_variables_have_is_not_matched():
    """Two nested models have a variable of this name: the order proves nothing."""
    shapes = {"mean": (2,), "mean#1": (2,), "dense/kernel": (2, 1)}
    names = {"mean": "one/mean", "mean#1": "two/mean"}
    found = match_owners(shapes, shapes, is_ordered=False, names=names)
    assert found.pairs == {"dense/kernel": "dense/kernel"}


def test_names_with_numbers_that_may_be_a_person_s():
    """Numbers that all differ alike are assumed to be Keras's; others do not take the values of another name."""
    in_file = {f"dense_{number}/kernel": (3, 3) for number in (1, 2, 3)}
    moved = match_owners({f"dense_{number}/kernel": (3, 3) for number in (2, 3, 4)}, in_file)
    assert moved.pairs["dense_2/kernel"] == "dense_1/kernel"
    assert len(moved.assumptions) == 1
    assert "dense_3 from dense_2" in moved.assumptions[0]
    gap = match_owners({f"dense_{number}/kernel": (3, 3) for number in (1, 3, 4)}, in_file)
    assert gap.pairs == {}
    apart = match_owners({f"dense_{number}/kernel": (3, 3) for number in (4, 5, 6)}, in_file)
    assert (apart.pairs["dense_4/kernel"], apart.assumptions) == ("dense_1/kernel", ())
    other_shapes = match_owners(
        {"dense_2/kernel": (3, 3), "dense_3/kernel": (3, 4)}, {"dense_1/kernel": (3, 3), "dense_2/kernel": (3, 4)}
    )
    assert (len(other_shapes.pairs), other_shapes.assumptions) == (2, ())
