"""Lists of an optimizer's weights as any generation of Keras gives them, told apart by shape, type and sign.

After the counters that stand first, a list holds the slots: in *blocks*, the first slot of every variable, then the
second of every variable (TensorFlow 2.0 to 2.10, and legacy optimizers); or *interleaved*, all slots of the first
variable, then those of the second (Keras 3, and most new optimizers of 2.11 to 2.15).
"""

from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

LAYOUTS = ("blocks", "interleaved")

# sums and means of squares and magnitudes: a list that would make one of them negative is laid out in another way
_NEVER_NEGATIVE = frozenset({"v", "vhat", "rms", "accumulator", "accum_grad", "accum_var"})


class Expected(NamedTuple):
    """What an optimizer has room for."""

    owners: Mapping[str, Tuple[int, ...]]  # its variables and their shapes, in order
    slots: Mapping[str, Mapping[str, Tuple[int, ...]]]  # owner → slot → shape; the slots of each in one order
    scalars: Sequence[str]  # its other variables, such as Nadam's momentum_cache
    state: Mapping[str, str]  # piece of the loss scale's state → "i" or "f", in the order in which Keras 3 has them


class Decoded(NamedTuple):
    """A list of weights with a name for each of them."""

    iterations: int
    learning_rate: Optional[float]
    scalars: Dict[str, float]
    state: Dict[str, Any]
    slots: Dict[str, Dict[str, Any]]


def decoded(values: Sequence[Any], expected: Expected, layout: Optional[str] = None) -> Decoded:
    """Find out what each value is. A list that fits in two ways, with different results, is refused."""
    if layout is not None and layout not in LAYOUTS:
        raise ValueError(f"layout is {layout!r}; valid: {', '.join(LAYOUTS)}")
    arrays = [np.asarray(value) for value in values]
    readings: List[Tuple[str, Decoded]] = []
    for name, reading in _readings(arrays, expected):
        is_new = not any(_are_equal(reading, other) for _, other in readings)
        if is_new and (layout is None or name.startswith(layout)):
            readings.append((name, reading))
    if not readings:
        raise ValueError(_no_reading(arrays, expected))
    if len(readings) > 1:
        found = ", ".join(sorted({name.split(",")[0] for name, _ in readings}))
        raise ValueError(
            f"the list of {len(arrays)} weights can be read in {len(readings)} ways ({found}), as variables have equal "
            f"shapes: say which with layout=, one of {', '.join(LAYOUTS)}, or use load_state_dict"
        )
    return readings[0][1]


def _readings(arrays: Sequence[Any], expected: Expected) -> Iterator[Tuple[str, Decoded]]:
    places = [(owner, slot) for owner, slots in expected.slots.items() for slot in slots]
    order = list(dict.fromkeys(slot for slots in expected.slots.values() for slot in slots))
    for before, after in _frames(expected):
        if len(arrays) != len(before) + len(places) + len(after):
            continue
        end = len(before) + len(places)
        named = dict(zip([*before, *after], [*arrays[: len(before)], *arrays[end:]]))
        if not all(_is_a(kind, named[name]) for name, kind in {**before, **after}.items()):
            continue
        counters = _counters(named, expected)
        for layout, keys in _layouts(places, order):
            slots = dict(zip(keys, arrays[len(before) : end]))
            if all(_can_be(array, key, expected) for key, array in slots.items()):
                by_owner: Dict[str, Dict[str, Any]] = {}
                for (owner, slot), array in slots.items():
                    by_owner.setdefault(owner, {})[slot] = array
                yield layout, counters._replace(slots=by_owner)


def _can_be(array: Any, key: Tuple[str, str], expected: Expected) -> bool:
    owner, slot = key
    with np.errstate(invalid="ignore"):  # what is not a number is not negative; NumPy up to 1.18 warns of the question
        is_possible = slot not in _NEVER_NEGATIVE or not (array < 0).any()
    return bool(is_possible and array.shape == tuple(expected.slots[owner][slot]))


def _layouts(places: List[Tuple[str, str]], order: List[str]) -> Iterator[Tuple[str, List[Tuple[str, str]]]]:
    yield "blocks", sorted(places, key=lambda place: order.index(place[1]))
    yield "interleaved", places
    if len(order) > 2:  # AMSGrad's third slot follows in a block of its own in 2.11 to 2.15
        first = [place for place in places if place[1] in order[:2]]
        yield (
            "interleaved, then blocks",
            first + sorted((place for place in places if place not in first), key=lambda place: order.index(place[1])),
        )


def _frames(expected: Expected) -> Iterator[Tuple[Dict[str, str], Dict[str, str]]]:
    """Name → kind of what stands before the slots, and after them."""
    others = dict.fromkeys(expected.scalars, "f")
    counter = {_ITERATIONS: "i"}
    counters = {**counter, _RATE: "f"}
    wrapper = {"iterations of the wrapper": "i", "learning rate of the wrapper": "f", **expected.state}
    yield {**counter, **others}, {}  # 2.0 to 2.10, and legacy optimizers
    if others:
        yield counter, {}  # the new Nadam of Keras 2 does not list its product of momenta
        yield counter, others
    yield counters, others  # Keras 3: a bare optimizer, then a wrapped one
    yield {**wrapper, **counters}, others


_ITERATIONS, _RATE = "iterations", "learning rate"


def _is_a(kind: str, array: Any) -> bool:
    return array.shape == () and (array.dtype.kind in "iu") == (kind == "i")


def _counters(named: Mapping[str, Any], expected: Expected) -> Decoded:
    values = {name: array.item() for name, array in named.items()}
    return Decoded(
        iterations=values[_ITERATIONS],
        learning_rate=values.get(_RATE),
        scalars={name: values[name] for name in expected.scalars if name in values},
        state={name: values[name] for name in expected.state if name in values},
        slots={},
    )


def _are_equal(one: Decoded, other: Decoded) -> bool:
    return one._replace(slots={}) == other._replace(slots={}) and all(
        _is_same(value, other.slots[owner][slot]) for owner, slots in one.slots.items() for slot, value in slots.items()
    )


def _is_same(one: Any, other: Any) -> bool:
    """Equal, also where both are not a number."""
    return one.shape == other.shape and bool(((one == other) | ((one != one) & (other != other))).all())


def _no_reading(arrays: Sequence[Any], expected: Expected) -> str:
    places = sum(len(slots) for slots in expected.slots.values())
    given = ", ".join(f"{array.dtype}{list(array.shape)}" for array in arrays[:8]) + (", …" if len(arrays) > 8 else "")
    remedy = (
        "take a step, or give load_state_dict the variables, before set_weights"
        if not expected.owners
        else "give a list of get_weights() or variables of an optimizer of the same class for the same variables"
    )
    return (
        f"{len(arrays)} weights were given ({given}) to an optimizer that has iterations, "
        f"{len(expected.scalars)} other scalars and {places} slots of {len(expected.owners)} variables: {remedy}"
    )
