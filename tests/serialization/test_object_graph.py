"""The graph of objects in a checkpoint."""

import pytest

from scalekeeper.serialization.formats._object_graph import Attribute, Node, ObjectGraph, Slot


@pytest.fixture
def message(field):
    """root → model → kernel; root → optimizer, which has a slot of kernel's, and the model too."""

    def child(place, name):
        return field(1, field(1, place) + field(2, name))

    def variable(name, key):
        return field(2, field(1, "VARIABLE_VALUE") + field(2, name) + field(3, key))

    slot = field(3, field(1, 2) + field(2, "m") + field(3, 4))
    nodes = [
        child(1, "model") + child(3, "optimizer"),
        child(2, "kernel"),
        variable("d1/kernel", "model/kernel/.ATTRIBUTES/VARIABLE_VALUE"),
        child(1, "model") + slot,
        variable("Adam/d1/kernel/m", "slot/.ATTRIBUTES/VARIABLE_VALUE"),
    ]
    return b"".join(field(1, node) for node in nodes)


def test_nodes(message):
    """Children, slots, keys and names are as written."""
    graph = ObjectGraph.parsed(message)
    assert graph.nodes[0] == Node({"model": 1, "optimizer": 3}, [], [])
    key = "model/kernel/.ATTRIBUTES/VARIABLE_VALUE"
    assert graph.nodes[2] == Node({}, [], [Attribute("VARIABLE_VALUE", "d1/kernel", key)])
    assert (graph.nodes[2].key, graph.nodes[2].full_name) == (key, "d1/kernel")
    assert graph.message() == message
    assert graph.nodes[3].slots == [Slot(2, "m", 4)]


def test_paths(message):
    """A path leads to an object, or nowhere; both walks find each object once."""
    graph = ObjectGraph.parsed(message)
    assert graph.child(0, "model", "kernel") == 2
    assert graph.child(0, "model", "bias") is None
    assert list(graph.walk(0)) == [(0, ()), (1, ("model",)), (2, ("model", "kernel")), (3, ("optimizer",))]
    assert [place for place, _ in graph.breadth_first()] == [0, 1, 3, 2]


def test_names_and_objects_can_be_left_out(message):
    """A name that no path may have in it, and an object that none may lead through."""
    graph = ObjectGraph.parsed(message)
    assert [place for place, _ in graph.walk(0, unnamed={"model"})] == [0, 3]
    assert [place for place, _ in graph.walk(0, closed={1})] == [0, 3]


def test_a_graph_may_have_cycles():
    """An object that has itself is met once."""
    graph = ObjectGraph([Node({"own": 0, "other": 1}, [], []), Node({"back": 0}, [], [])])
    assert [place for place, _ in graph.walk(0)] == [0, 1]
    assert [place for place, _ in graph.breadth_first()] == [0, 1]


def test_lists_are_in_the_order_of_their_numbers():
    """The tenth comes after the second."""
    graph = ObjectGraph([Node({"10": 2, "2": 1, "name": 3}, [], [])] + [Node({}, [], [])] * 3)
    assert graph.listed(0) == [1, 2]
    assert graph.listed(None) == []


@pytest.mark.parametrize("place", [7, 2**31])
def test_a_place_outside_is_an_error(field, place):
    """A graph that points at what is not there is refused."""
    with pytest.raises(ValueError, match="not there"):
        ObjectGraph.parsed(field(1, field(1, field(1, place) + field(2, "model"))))
