"""Random architectures for hypothesis: two programs, of which the second is the first after edits."""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from hypothesis import assume
from hypothesis import strategies as st

NAMES = ["enc", "dec", "mid", "head", "block_1", "block_2", "block_10", "dense_block", "a", "b", "c", "stem"]
FRESH = ["encoder", "decoder", "block_3", "block_11", "x", "y", "z", "dense_blocks", "out", "tail", "in", "neck"]


class Layer(NamedTuple):
    """A layer that keeps its identity; without a name Keras numbers it by its class."""

    identity: int
    name: Optional[str]
    stem: str = "dense"


class Architecture(NamedTuple):
    """The layers in the order in which they are called, and the number of the first of each class."""

    layers: List[Layer]
    made: List[int]  # identities in the order in which the layers are made
    offset: Dict[str, int]

    def names(self) -> Dict[int, str]:
        """Return identity → name."""
        by_identity = {layer.identity: layer for layer in self.layers}
        counts = dict(self.offset)
        found = {}
        for layer in [by_identity[identity] for identity in self.made]:
            number = counts.get(layer.stem, 0)
            if layer.name is None:
                counts[layer.stem] = number + 1
                found[layer.identity] = f"{layer.stem}_{number}" if number else layer.stem
            else:
                found[layer.identity] = layer.name
        return found

    def automatic(self) -> Dict[str, List[int]]:
        """Return class → identities of the layers that Keras has named, in the order of the calls."""
        found: Dict[str, List[int]] = {}
        for layer in self.layers:
            if layer.name is None:
                found.setdefault(layer.stem, []).append(layer.identity)
        return found


@st.composite
def two_programs(draw: Any) -> Any:
    """Two programs: the second is the first after edits. Edits that no file can show are left out.

    Nothing tells apart: layers of one class that Keras has named, if they change places; a layer that is deleted while
    another one is added; two names that change places.
    """
    count = draw(st.integers(1, 12))
    names = draw(st.permutations(NAMES))
    fresh = iter(draw(st.permutations(FRESH)))
    first = [
        Layer(index, draw(st.sampled_from([None, names[index]])), draw(st.sampled_from(["dense", "conv2d"])))
        for index in range(count)
    ]
    second = []
    is_growing = draw(st.booleans())
    for layer in first:
        edit = draw(st.sampled_from(["", "", "", "rename", "unname", "insert" if is_growing else "delete"]))
        if edit == "insert":
            name = next(fresh) if draw(st.booleans()) else None
            second.append(Layer(100 + layer.identity, name, draw(st.sampled_from(["dense", "conv2d"]))))
        if edit == "rename":
            layer = layer._replace(name=next(fresh))
        if edit == "unname":
            layer = layer._replace(name=None)
        if edit != "delete":
            second.append(layer)
    assume(second)
    if draw(st.booleans()):
        second = _reordered(draw, second)
    return tuple(
        Architecture(
            layers,
            draw(st.permutations([each.identity for each in layers]))
            if draw(st.integers(0, 4)) == 0
            else [each.identity for each in layers],
            {"dense": draw(st.integers(0, 11)), "conv2d": draw(st.integers(0, 2))},
        )
        for layers in (first, second)
    )


def _reordered(draw: Any, layers: Sequence[Layer]) -> List[Layer]:
    """Return the layers in another order; those of one class that Keras has named keep theirs."""
    shuffled = draw(st.permutations(layers))
    waiting = {
        stem: iter([each for each in layers if each.name is None and each.stem == stem]) for stem in ("dense", "conv2d")
    }
    return [next(waiting[each.stem]) if each.name is None else each for each in shuffled]


def is_decidable(one: Architecture, other: Architecture) -> bool:
    """Return whether equally many layers of a class mean the same layers, which is all that names can show."""
    in_one, in_other = one.automatic(), other.automatic()
    for stem in {*in_one, *in_other}:
        first, second = in_one.get(stem, []), in_other.get(stem, [])
        if len(first) == len(second) and first != second:
            return False
    return True


def has_one_order(one: Architecture, other: Architecture) -> bool:
    """Return whether both programs make the layers that Keras has named in the order in which they are called."""
    return all(
        [each for each in side.made if each in identities] == identities
        for side in (one, other)
        for identities in side.automatic().values()
    )
