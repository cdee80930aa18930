"""The gradients of one step in few tensors, so that what handles them has few to handle."""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import tensorflow as tf

from .unscaling import times, unscaling_of

# Starting an operation costs more than what it does to an array of this many elements; with as many arrays as this, it
# pays to stack them.
_SMALL = 4096
_FEW = 4


class Pack(NamedTuple):
    """One gradient, or several of one shape stacked. Those with a reciprocal are still to be multiplied by it."""

    places: Tuple[int, ...]
    values: Any
    reciprocal: Optional[Any]

    @property
    def is_stack(self) -> bool:
        return len(self.places) > 1

    def unscaled_values(self) -> Any:
        return self.values if self.reciprocal is None else times(self.values, self.reciprocal)

    def gradients(self) -> List[Any]:
        values = self.unscaled_values()
        return tf.unstack(values, num=len(self.places)) if self.is_stack else [values]


def packed(grads: Sequence[Any]) -> List[Pack]:
    """Take back the unscaling of the gradients, so that it is done late and together, and stack the small ones."""
    groups: Dict[Any, List[int]] = {}
    sources = []
    for place, grad in enumerate(grads):
        grad = grad if isinstance(grad, tf.IndexedSlices) else tf.convert_to_tensor(grad)
        values, reciprocal = unscaling_of(grad) or (grad, None)
        sources.append((values, reciprocal))
        alike = (values.dtype, tuple(values.shape), id(reciprocal)) if _is_small(values) else place
        groups.setdefault(alike, []).append(place)
    packs = []
    for places in groups.values():
        if len(places) < _FEW:
            packs += [Pack((place,), *sources[place]) for place in places]
        else:
            stack = tf.stack([sources[place][0] for place in places])
            packs.append(Pack(tuple(places), stack, sources[places[0]][1]))
    return packs


def unpacked(packs: Sequence[Pack]) -> List[Any]:
    """The gradients, unscaled, in their order."""
    found: Dict[int, Any] = {}
    for pack in packs:
        found.update(zip(pack.places, pack.gradients()))
    return [found[place] for place in sorted(found)]


def _is_small(values: Any) -> bool:
    if isinstance(values, tf.IndexedSlices) or not values.shape.is_fully_defined():
        return False
    return bool(values.shape.num_elements() <= _SMALL)
