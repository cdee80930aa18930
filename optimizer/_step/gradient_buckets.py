"""The gradients of one step in few tensors, so that what handles them has few to handle."""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import tensorflow as tf

from .unscale import times, unscaling_of

# Starting an operation costs more than what it does to an array of this many elements; with as many arrays as this, it
# pays to stack them.
_SMALL = 4096
_FEW = 4


class Pack(NamedTuple):
    """One gradient, or several of one shape stacked. Those with a reciprocal are still to be multiplied by it."""

    places: Tuple[int, ...]
    values: Any
    reciprocal: Optional[Any] = None

    def unscaled_values(self) -> Any:
        return self.values if self.reciprocal is None else times(self.values, self.reciprocal)

    def gradients(self) -> List[Any]:
        """Tensors of the graph that is being built: what sums gradients over replicas asks for one graph."""
        values = self.unscaled_values()
        if len(self.places) > 1:
            return list(tf.unstack(values, num=len(self.places)))
        is_as_it_was = self.reciprocal is None and not isinstance(values, tf.IndexedSlices)
        return [tf.identity(values) if is_as_it_was else values]


def packed(grads: Sequence[Any]) -> List[Pack]:
    """Take back the unscaling of large gradients, so that it is done late; stack the small ones and do it together."""
    packs = []
    groups: Dict[Any, List[int]] = {}
    grads = [grad if isinstance(grad, tf.IndexedSlices) else tf.convert_to_tensor(grad) for grad in grads]
    sources = [unscaling_of(grad) for grad in grads]
    for place, (grad, source) in enumerate(zip(grads, sources)):
        if is_of_at_most(_SMALL, grad):
            alike = (grad.dtype, tuple(grad.shape), id(source.reciprocal))
            groups.setdefault(alike, []).append(place)
        else:
            packs.append(Pack((place,), *source))
    for places in groups.values():
        if len(places) < _FEW:
            packs += [Pack((place,), grads[place]) for place in places]
        else:
            stack = tf.stack([sources[place].scaled for place in places])
            scaled = Pack(tuple(places), stack, sources[places[0]].reciprocal)
            packs.append(Pack(scaled.places, scaled.unscaled_values()))
    return packs


def unpacked(packs: Sequence[Pack]) -> List[Any]:
    """The gradients, unscaled, in their order."""
    found: Dict[int, Any] = {}
    for pack in packs:
        found.update(zip(pack.places, pack.gradients()))
    return [found[place] for place in sorted(found)]


def is_of_at_most(count: int, values: Any) -> bool:
    """Whether an array is known to have no more elements than this."""
    if isinstance(values, tf.IndexedSlices) or not values.shape.is_fully_defined():
        return False
    return bool(values.shape.num_elements() <= count)
