"""Whether a file proves the order in which a model lists its variables.

``.keras`` and ``.weights.h5`` files name the attributes of a layer or subclassed model, and not the order in which a
program has set them. The variables of one attribute follow each other in the model's list.
"""

from typing import Dict, FrozenSet, List, NamedTuple, Sequence, Tuple

import itertools
import re

Shape = Tuple[int, ...]

_NUMBERED = re.compile(r"(.*?)(?:_([0-9]{1,9}))?")
_MOST_TRIES = 20_000  # after which an order counts as one of several
OWN = "vars"  # the chain of the variables that a layer has itself


class Step(NamedTuple):
    """One name on the path to a variable.

    Attributes:
        chain: Names of the same chain have the order of their numbers. The order of different chains is not known.
        number: The position in the chain.
        layer: The name of the layer there, if Keras may have numbered it: ``dense_1``. The numbers tell the order.
    """

    chain: str
    number: int
    layer: str = ""


Position = Tuple[Step, ...]


class _Block(NamedTuple):
    """Variables below one name: a single variable, or further blocks."""

    step: Step
    size: int
    variable: int  # the index of a single variable, or -1
    inside: Tuple["_Block", ...]


def is_only_order(positions: Sequence[Position], shapes: Sequence[Shape]) -> bool:
    """Return whether variables in any other order that the positions allow would have other shapes.

    >>> a, b = (Step("a", 0), Step("vars", 0)), (Step("b", 0), Step("vars", 0))
    >>> is_only_order([a, b], [(2,), (3,)])
    True
    >>> is_only_order([a, b], [(2,), (2,)])
    False
    """
    return _Search(shapes).count(_blocks(positions, range(len(positions)), 0), 0) == 1


def _blocks(positions: Sequence[Position], indices: Sequence[int], depth: int) -> Tuple[_Block, ...]:
    found: List[_Block] = []
    for step, members in itertools.groupby(indices, key=lambda index: positions[index][depth]):
        group = list(members)
        if len(positions[group[0]]) == depth + 1:
            found += [_Block(step, 1, index, ()) for index in group]
        else:
            found.append(_Block(step, len(group), -1, _blocks(positions, group, depth + 1)))
    return tuple(found)


class _Search:
    """Counts the orders in which blocks have given shapes, up to two."""

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self._shapes = shapes
        self._tries = 0

    def count(self, blocks: Tuple[_Block, ...], start: int) -> int:
        before = {
            index: frozenset(earlier for earlier in range(index) if _are_ordered(blocks[earlier].step, block.step))
            for index, block in enumerate(blocks)
        }
        return self._orders(blocks, before, frozenset(range(len(blocks))), start, {})

    def _orders(
        self,
        blocks: Tuple[_Block, ...],
        before: Dict[int, FrozenSet[int]],
        left: FrozenSet[int],
        start: int,
        known: Dict[FrozenSet[int], int],
    ) -> int:
        if not left:
            return 1
        if left not in known:
            found = 0
            for index in sorted(left):
                self._tries += 1
                if found > 1 or before[index] & left:
                    continue
                ways = 2 if self._tries > _MOST_TRIES else self._ways(blocks[index], start)
                if ways:
                    found += ways * self._orders(blocks, before, left - {index}, start + blocks[index].size, known)
            known[left] = min(found, 2)
        return known[left]

    def _ways(self, block: _Block, start: int) -> int:
        if block.variable >= 0:
            return int(self._shapes[block.variable] == self._shapes[start])
        return self.count(block.inside, start)


def _are_ordered(one: Step, other: Step) -> bool:
    """Return whether a name that comes before another in the model does so in the file."""
    if one.chain == other.chain:
        return one.number <= other.number
    if OWN in (one.chain, other.chain):  # Keras decides whether a layer's own variables come first
        return True
    (first, number), (second, later) = _stem_and_number(one.layer), _stem_and_number(other.layer)
    return bool(first) and first == second and number < later


def _stem_and_number(layer: str) -> Tuple[str, int]:
    found = _NUMBERED.fullmatch(layer)
    return (found.group(1), int(found.group(2) or 0)) if found else (layer, 0)
