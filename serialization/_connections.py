"""How the layers of a functional model are connected, by the model's configuration.

Keras numbers layers in the order in which a program makes them. Layers beside each other, such as those of two inputs,
may be made in another order in another program. Their connections are the same.
"""

from typing import Any, Collection, Dict, FrozenSet, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

import json
import re

from ._keras_introspection import has_layer_names

Layer = Tuple[str, ...]  # the names of a layer and of the models around it

_KERAS_TENSOR = "__keras_tensor__"
_INPUT = re.compile(r"input(_layer)?(_[0-9]+)?")  # the names that Keras makes up


class Connections:
    """The connections of a model.

    Attributes:
        inputs: The model's input layers, in order.
        layers: All layers that are not models, also those in nested models; not the input layers of these.
    """

    def __init__(self, inputs: Tuple[Layer, ...], sources: Mapping[Layer, FrozenSet[Layer]]) -> None:
        self.inputs = inputs
        self.layers = tuple(sources)
        self._sources = sources
        self._before: Dict[Layer, FrozenSet[Layer]] = {}

    def before(self, layer: Layer) -> FrozenSet[Layer]:
        """Return the layers that lead to a layer, directly or through others."""
        if layer not in self._before:
            found = set(self._sources[layer])
            following = list(found)
            while following:
                new = self._sources.get(following.pop(), frozenset()) - found
                found |= new
                following += new
            self._before[layer] = frozenset(found)
        return self._before[layer]

    def are_parallel(self, one: Layer, other: Layer) -> bool:
        """Return whether neither of two layers leads to the other."""
        return one not in self.before(other) and other not in self.before(one)

    def find(self, names: Layer) -> Optional[Layer]:
        """Return the layer that a variable's name means; None if none does, or several.

        Some versions leave out the models around a layer, and a layer may have others inside.
        """
        if names in self._sources:
            return names
        found = {each for each in self.layers if each[-len(names) :] == names or names[-len(each) :] == each}
        longest = max((len(each) for each in self.layers if names[: len(each)] == each), default=0)
        found |= {names[:longest]} if longest else set()
        return found.pop() if len(found) == 1 else None

    def to_json(self) -> str:
        """Return the connections as JSON: the inputs, and for each layer its name and its sources, as indices."""
        indices = {layer: index for index, layer in enumerate(self.layers)}
        layers = [["/".join(layer), *sorted(map(indices.__getitem__, self._sources[layer]))] for layer in self.layers]
        return json.dumps([[indices[each] for each in self.inputs], *layers], separators=(",", ":"))


def connections_from_json(text: str) -> Optional[Connections]:
    """Return the connections that ``to_json`` has written; None if the text is something else."""
    try:
        inputs, *layers = json.loads(text)
        names = [tuple(each[0].split("/")) for each in layers]
        sources = {name: frozenset(names[index] for index in each[1:]) for name, each in zip(names, layers)}
        return Connections(tuple(names[index] for index in inputs), sources)
    except (AttributeError, IndexError, RecursionError, TypeError, ValueError):
        return None


def connections_of(config: Any) -> Optional[Connections]:
    """Return the connections by the configuration of a functional or Sequential model; None if it is another."""
    entries = _entries(config)
    if not entries:
        return None
    graph = _graph(config, ())
    skipped = {layer for layer in graph.entrances if layer not in graph.inputs}
    sources = {layer: _sources(layer, graph.sources, skipped) for layer in graph.sources if layer not in skipped}
    return Connections(tuple(graph.inputs), sources)


def _sources(layer: Layer, sources: Mapping[Layer, List[Layer]], skipped: Collection[Layer]) -> FrozenSet[Layer]:
    """Return the sources of a layer; in place of those that are skipped, their own sources."""
    found: Set[Layer] = set()
    waiting = list(sources[layer])
    while waiting:
        each = waiting.pop()
        if each not in found:
            found.add(each)
            waiting += sources[each] if each in skipped else []
    return frozenset(found.difference(skipped))


def connections_in(model: Any) -> Optional[Connections]:
    """Return the connections of a functional or Sequential model; None if it is another, or has no configuration."""
    try:
        return connections_of(model.get_config()) if has_layer_names(model) else None
    except Exception:  # layers of a user's own need not have a configuration
        return None


def input_keys(connections: Connections, other: Optional[Connections]) -> Dict[Layer, str]:
    """Return a key for each input of a model, by which another model has the same ones: names, or else positions."""
    names = [each[-1] for each in connections.inputs]
    others = names if other is None else [each[-1] for each in other.inputs]
    are_chosen = not any(map(_INPUT.fullmatch, names)) and len(set(names)) == len(names)
    if are_chosen and sorted(names) == sorted(others):
        return {layer: layer[-1] for layer in connections.inputs}
    if len(names) != len(others):
        return {}
    return {layer: str(index) for index, layer in enumerate(connections.inputs)}


class _Graph(NamedTuple):
    """A model: its first and last layers, the sources of all layers, and those of the class InputLayer."""

    inputs: List[Layer]
    outputs: List[Layer]
    sources: Dict[Layer, List[Layer]]
    entrances: List[Layer]


def _entries(config: Any) -> List[Mapping[str, Any]]:
    """Return the layers that the configuration of a model lists, each with a name; none if it is not a model's."""
    layers = config.get("layers") if isinstance(config, Mapping) else None
    if layers is None and isinstance(config, Mapping) and isinstance(config.get("config"), Mapping):
        return _entries(config["config"])
    listed = layers if isinstance(layers, list) else []
    entries = [each for each in listed if isinstance(each, Mapping) and isinstance(each.get("config"), Mapping)]
    return entries if len(entries) == len(listed) and all(map(_name, entries)) else []


def _name(entry: Mapping[str, Any]) -> Optional[str]:
    name = entry.get("name", entry["config"].get("name"))
    return name if isinstance(name, str) else None


def _graph(config: Mapping[str, Any], around: Layer) -> _Graph:
    entries = {str(_name(each)): each for each in _entries(config)}
    inside = {name: _inside(each, (*around, name)) for name, each in entries.items()}
    sources = {layer: list(each) for graph in inside.values() for layer, each in graph.sources.items()}
    config = config if "layers" in config else config["config"]
    names = list(entries)
    if any("inbound_nodes" in each for each in entries.values()):
        leading = {name: _references(entry.get("inbound_nodes"), entries) for name, entry in entries.items()}
        inputs, outputs = (_references(config.get(key), entries) for key in ("input_layers", "output_layers"))
    else:  # Sequential
        leading = {name: names[index - 1 : index] for index, name in enumerate(names)}
        inputs, outputs = names[:1], names[-1:]
    for name, others in leading.items():
        for layer in inside[name].inputs:
            sources[layer] += [each for other in others for each in inside[other].outputs]
    return _Graph(
        [each for name in inputs for each in inside[name].inputs],
        [each for name in outputs for each in inside[name].outputs],
        sources,
        [each for graph in inside.values() for each in graph.entrances],
    )


def _inside(entry: Mapping[str, Any], name: Layer) -> _Graph:
    if _entries(entry["config"]):
        return _graph(entry["config"], name)
    return _Graph([name], [name], {name: []}, [name] if entry.get("class_name") == "InputLayer" else [])


def _references(nodes: Any, names: Mapping[str, Any]) -> List[str]:
    """Return the layers whose outputs are in the calls of a layer, as Keras 2 or Keras 3 has written them."""
    return list(dict.fromkeys(each for each in _tensors(nodes) if each in names))


def _tensors(nodes: Any) -> Iterator[str]:
    waiting = [nodes]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Mapping) and each.get("class_name") == _KERAS_TENSOR:
            inside = each.get("config")
            waiting.append(inside.get("keras_history") if isinstance(inside, Mapping) else None)
        elif isinstance(each, Mapping):
            waiting += reversed(list(each.values()))
        elif isinstance(each, (list, tuple)) and [type(part) for part in each[:3]] == [str, int, int]:
            yield each[0]
            waiting += reversed(each[3:])
        elif isinstance(each, (list, tuple)):
            waiting += reversed(each)
