"""Lists of an optimizer's weights without names, of any Keras generation, decoded by shape, type and sign.

After the counters, a list holds the slots: in *blocks*, the first slot of every variable, then the second of every
variable (TF 2.0 to 2.10 and legacy optimizers); or *interleaved*, all slots of the first variable, then those of the
second (Keras 3 and most new optimizers of TF 2.11 to 2.15).
"""

from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from ..registry.errors import ArgumentError
from .keras.profile import profiles

LAYOUTS = ("blocks", "interleaved")

# sums and means of squares and magnitudes: a layout in which one of them is negative is wrong
_NEVER_NEGATIVE = frozenset({"v", "vhat", "rms", "accumulator", "accum_grad", "accum_var"})


class Expected(NamedTuple):
    """The variables of an optimizer."""

    owners: Mapping[str, Tuple[int, ...]]  # shapes of the trained variables, in order
    slots: Mapping[str, Mapping[str, Tuple[int, ...]]]  # owner → slot → shape; the slots of each in one order
    scalars: Sequence[str]  # other variables, such as Nadam's momentum_cache
    state: Mapping[str, str]  # loss-scale variable → "i" or "f", in the order of Keras 3
    listed: Sequence[Tuple[Tuple[str, ...], Tuple[int, ...]]] = ()  # what each variable of the list is, and its shape


class Decoded(NamedTuple):
    """A list of weights with names."""

    iterations: int
    learning_rate: Optional[float]
    scalars: Dict[str, float]
    state: Dict[str, Any]
    slots: Dict[str, Dict[str, Any]]


def decode_weights(values: Sequence[Any], expected: Expected, layout: Optional[str] = None) -> Decoded:
    """Return the names of the values in a list.

    Args:
        values: The list.
        expected: The variables of the optimizer.
        layout: ``"blocks"`` or ``"interleaved"``; needed if shapes and signs do not tell.

    Raises:
        ArgumentError: The list fits in no way, or in several ways with different results.
    """
    if layout is not None and layout not in LAYOUTS:
        raise ArgumentError(f"unknown layout {layout!r}; valid: {', '.join(LAYOUTS)}")
    arrays = [np.asarray(value) for value in values]
    # types tell readings apart, and must be right; but Keras casts, so a list that fits otherwise is taken
    readings = _distinct(arrays, expected, layout, _is_a) or _distinct(arrays, expected, layout, _can_be_cast)
    if not readings:
        raise ArgumentError(_no_reading(arrays, expected))
    if len(readings) > 1:
        found = ", ".join(sorted({name.split(",")[0] for name, _ in readings}))
        raise ArgumentError(
            f"the list of {len(arrays)} weights can be read in {len(readings)} ways ({found}), because variables have "
            f"equal shapes: give layout=, one of {', '.join(LAYOUTS)}, or use load_state_dict"
        )
    return readings[0][1]


Fits = Callable[[str, Any], bool]


def _distinct(
    arrays: Sequence[Any], expected: Expected, layout: Optional[str], fits: Fits
) -> List[Tuple[str, Decoded]]:
    """Return the readings of a list that differ in their results, each with its layout."""
    found: List[Tuple[str, Decoded]] = []
    for name, reading in _readings(arrays, expected, fits):
        is_new = not any(_are_equal(reading, other) for _, other in found)
        if is_new and (layout is None or name.startswith(layout)):
            found.append((name, reading))
    return found


def _readings(arrays: Sequence[Any], expected: Expected, fits: Fits) -> Iterator[Tuple[str, Decoded]]:
    positions = [(owner, slot) for owner, slots in expected.slots.items() for slot in slots]
    order = list(dict.fromkeys(slot for slots in expected.slots.values() for slot in slots))
    for before, after in _frames(expected):
        if len(arrays) != len(before) + len(positions) + len(after):
            continue
        end = len(before) + len(positions)
        named = dict(zip([*before, *after], [*arrays[: len(before)], *arrays[end:]]))
        kinds = {**before, **after}
        if not all(fits(kind, named[name]) for name, kind in kinds.items()):
            continue
        numbers = {name: _CASTS.get(kinds[name], bool)(array.item()) for name, array in named.items()}
        counters = _counters(numbers, expected)
        for layout, keys in _layouts(positions, order):
            slots = dict(zip(keys, arrays[len(before) : end]))
            if all(_can_be(array, key, expected) for key, array in slots.items()):
                by_owner: Dict[str, Dict[str, Any]] = {}
                for (owner, slot), array in slots.items():
                    by_owner.setdefault(owner, {})[slot] = array
                yield layout, counters._replace(slots=by_owner)


def _can_be(array: Any, key: Tuple[str, str], expected: Expected) -> bool:
    owner, slot = key
    with np.errstate(invalid="ignore"):  # NumPy up to 1.18 warns when NaN is compared
        is_possible = slot not in _NEVER_NEGATIVE or not (array < 0).any()
    return bool(is_possible and array.shape == tuple(expected.slots[owner][slot]))


def _layouts(positions: List[Tuple[str, str]], order: List[str]) -> Iterator[Tuple[str, List[Tuple[str, str]]]]:
    yield "blocks", sorted(positions, key=lambda position: order.index(position[1]))
    yield "interleaved", positions
    if len(order) > 2:  # from TF 2.11 to 2.15 AMSGrad's third slot follows in a separate block
        first = [position for position in positions if position[1] in order[:2]]
        yield (
            "interleaved, then blocks",
            first
            + sorted(
                (position for position in positions if position not in first),
                key=lambda position: order.index(position[1]),
            ),
        )


def _frames(expected: Expected) -> Iterator[Tuple[Dict[str, str], Dict[str, str]]]:
    """Yield name → kind of the values before the slots, and of those after them, of each generation, oldest first."""
    for profile in reversed(profiles()):
        yield from profile.weight_list_frames(expected.scalars, expected.state)


_ITERATIONS, _RATE = "iterations", "learning rate"


_CASTS: Dict[str, Callable[[Any], Any]] = {"i": int, "f": float}


def _is_a(kind: str, array: Any) -> bool:
    return array.shape == () and (array.dtype.kind in "iu") == (kind == "i")


def _can_be_cast(kind: str, array: Any) -> bool:
    """Return whether a scalar of any type can be cast without losing a fraction."""
    if array.shape != () or array.dtype.kind not in "iuf":
        return False
    return kind == "f" or float(array).is_integer()


def _counters(values: Mapping[str, Any], expected: Expected) -> Decoded:
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
    """Return whether two arrays are equal, NaN included."""
    return one.shape == other.shape and bool(((one == other) | ((one != one) & (other != other))).all())


def _no_reading(arrays: Sequence[Any], expected: Expected) -> str:
    positions = sum(len(slots) for slots in expected.slots.values())
    given = ", ".join(f"{array.dtype}{list(array.shape)}" for array in arrays[:8]) + (", …" if len(arrays) > 8 else "")
    remedy = (
        "take a step, or give load_state_dict the variables, before set_weights"
        if not expected.owners
        else "give a list of get_weights() or variables of an optimizer of the same class for the same variables"
    )
    return (
        f"got {len(arrays)} weights ({given}) for an optimizer with iterations, "
        f"{len(expected.scalars)} other scalars and {positions} slots of {len(expected.owners)} variables: {remedy}"
    )
