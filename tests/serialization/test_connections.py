"""The connections of layers, read from the configurations of Keras 2 and Keras 3."""

import json

import pytest

from scalekeeper.serialization._connections import connections_from_json, connections_of, input_keys
from scalekeeper.serialization._matching import STRUCTURE, match_owners


def keras_2(name, *sources, class_name="Dense", **config):
    nodes = [[[source, 0, 0, {}] for source in sources]] if sources else []
    return {"name": name, "class_name": class_name, "config": {"name": name, **config}, "inbound_nodes": nodes}


def keras_3(name, *sources, class_name="Dense", **config):
    tensors = [{"class_name": "__keras_tensor__", "config": {"keras_history": [source, 0, 0]}} for source in sources]
    nodes = [{"args": [tensors], "kwargs": {}}] if sources else []
    return {"name": name, "class_name": class_name, "config": {"name": name, **config}, "inbound_nodes": nodes}


def towers(entry, order=("dense", "dense_1")):
    """A model of two inputs, each with a layer; the names of the layers tell the order in which they were made."""
    first, second = order
    layers = [
        entry("user", class_name="InputLayer"),
        entry("item", class_name="InputLayer"),
        entry(first, "user"),
        entry(second, "item"),
        entry("add", first, second, class_name="Add"),
    ]
    ends = {"input_layers": [["user", 0, 0], ["item", 0, 0]], "output_layers": [["add", 0, 0]]}
    return {"class_name": "Functional", "config": {"name": "m", "layers": layers, **ends}}


@pytest.mark.parametrize("entry", [keras_2, keras_3])
def test_what_leads_to_a_layer(entry):
    """Directly and through others, in the notations of both Kerases."""
    found = connections_of(towers(entry))
    assert found.before(("add",)) == {("user",), ("item",), ("dense",), ("dense_1",)}
    assert found.before(("dense_1",)) == {("item",)}
    assert found.are_parallel(("dense",), ("dense_1",))
    assert not found.are_parallel(("add",), ("dense_1",))
    assert found.inputs == (("user",), ("item",))


def test_nested_models_are_transparent():
    """The layers of a nested model are connected to what leads into it; its own input layers are left out."""
    nested = {"layers": [keras_2("x", class_name="InputLayer"), keras_2("in", "x"), keras_2("out", "in")]}
    nested.update(input_layers=[["x", 0, 0]], output_layers=[["out", 0, 0]])
    layers = [
        keras_2("a", class_name="InputLayer"),
        keras_2("net", "a", class_name="Functional", **nested),
        keras_2("head", "net"),
    ]
    found = connections_of({"layers": layers, "input_layers": [["a", 0, 0]], "output_layers": [["head", 0, 0]]})
    assert found.before(("head",)) == {("a",), ("net", "in"), ("net", "out")}
    assert found.before(("net", "in")) == {("a",)}
    assert found.find(("in", "cell")) is None  # not "in" without its model
    assert found.find(("net", "in", "cell")) == ("net", "in")
    assert found.find(("out",)) == ("net", "out")


def test_a_sequential_model_is_a_chain():
    """Each layer leads to the next."""
    layers = [{"class_name": "Dense", "config": {"name": name}} for name in "abc"]
    found = connections_of({"class_name": "Sequential", "config": {"layers": layers}})
    assert found.before(("c",)) == {("a",), ("b",)}


@pytest.mark.parametrize(
    "config", [None, [], {}, {"layers": 3}, {"layers": [3]}, {"layers": [{"config": {}}]}, {"config": {"layers": []}}]
)
def test_other_configurations_have_no_connections(config):
    """Of subclassed models, or of a file that someone has edited."""
    assert connections_of(config) is None


def test_as_json():
    """A checkpoint holds them as JSON; anything else there is ignored."""
    found = connections_of(towers(keras_3))
    again = connections_from_json(found.to_json())
    assert (again.inputs, {each: again.before(each) for each in again.layers}) == (
        found.inputs,
        {each: found.before(each) for each in found.layers},
    )
    for text in ("", "3", "{}", "[[0],[3]]", json.dumps([[9], ["a"]]), "[" * 100_000):
        assert connections_from_json(text) is None


def test_inputs_by_name_or_position():
    """Names that a person has chosen count, whatever their order; otherwise the position."""
    one, other = connections_of(towers(keras_2)), connections_of(towers(keras_3))
    assert input_keys(one, other) == {("user",): "user", ("item",): "item"}
    renamed = connections_of(json.loads(json.dumps(towers(keras_2)).replace("user", "input_1")))
    assert input_keys(one, renamed) == {("user",): "0", ("item",): "1"}


SHAPES = {"dense/kernel": (3, 3), "dense_1/kernel": (3, 3)}


def test_layers_are_matched_by_their_connections():
    """The layer of an input gets the values of that input's layer, though Keras gave its name to the other one."""
    here, there = connections_of(towers(keras_3, ("dense_1", "dense"))), connections_of(towers(keras_2))
    found = match_owners(SHAPES, SHAPES, connections=lambda: here, file_connections=there)
    assert found.pairs == {"dense/kernel": "dense_1/kernel", "dense_1/kernel": "dense/kernel"}
    assert set(found.rules.values()) == {STRUCTURE}


def test_without_connections_in_the_file_such_layers_are_not_matched():
    """Their numbers prove nothing: another program may have made the layers in another order."""
    found = match_owners(SHAPES, SHAPES, connections=lambda: connections_of(towers(keras_3)))
    assert (found.pairs, len(found.notes)) == ({}, 1)
    different = {"dense/kernel": (3, 3), "dense_1/kernel": (3, 4)}
    assert len(match_owners(different, different, connections=lambda: connections_of(towers(keras_3))).pairs) == 2


def test_other_connections_are_not_matched():
    """Two layers of one input are not one layer of each of two."""
    there = towers(keras_2)
    there["config"]["layers"][3] = keras_2("dense_1", "user")
    found = match_owners(
        SHAPES, SHAPES, connections=lambda: connections_of(towers(keras_3)), file_connections=connections_of(there)
    )
    assert (found.pairs, len(found.notes)) == ({}, 1)
