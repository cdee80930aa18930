"""The batches of the data that ``diagnose`` takes, and the numbers among them that float16 cannot hold."""

from typing import Any, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import itertools

import numpy as np
import tensorflow as tf

from ...diagnosis._magnitudes import LARGEST
from ...diagnosis._recording import BadData
from ...registry.errors import ArgumentError, shown
from ...serialization._keras_introspection import installed_keras

_MOST_SAMPLES = 10


class Batch(NamedTuple):
    """The data of one training step.

    Attributes:
        is_bare: Whether ``fit`` passes the inputs alone to ``train_step``, and not in a tuple.
    """

    x: Any
    y: Any
    sample_weight: Any
    is_bare: bool = False


def data_of(x: Any, y: Any, sample_weight: Any) -> Batch:
    """Return what ``diagnose`` was given; other objects that are arrays, such as data frames, as NumPy's."""
    x, y, sample_weight = (np.asarray(each) if _is_other_array(each) else each for each in (x, y, sample_weight))
    pack = getattr(installed_keras().utils, "pack_x_y_sample_weight", None)  # up to 2.3, fit always makes a tuple
    is_bare = pack is not None and not isinstance(pack(x, y, sample_weight), tuple)
    return Batch(x, y, sample_weight, is_bare)


def _is_other_array(data: Any) -> bool:
    return hasattr(data, "__array__") and not isinstance(data, (np.ndarray, tf.Tensor))


def is_arrays(data: Any) -> bool:
    """Return whether data is a nest of arrays, and not an iterable of batches."""
    if isinstance(data, Mapping):
        return bool(data) and all(map(is_arrays, data.values()))
    if isinstance(data, (list, tuple)):
        return bool(data) and all(map(is_arrays, data))
    return isinstance(data, (np.ndarray, tf.Tensor))


def batches_of(data: Batch, batch_size: int, number: Optional[int]) -> List[Batch]:
    """Return the first batches of arrays, of a ``tf.data.Dataset``, or of another iterable of batches."""
    if is_arrays(data.x):
        found = list(itertools.islice(_slices(data, batch_size), number))
    else:
        if data.y is not None or data.sample_weight is not None:
            raise ArgumentError(
                f"x is {shown(data.x)}, which is taken for an iterable of batches, so the targets come with them: give "
                "neither y nor sample_weight, or give x as an array"
            )
        found = [_batch(each) for each in itertools.islice(_iterator(data.x), number)]
    if not found:
        raise ArgumentError("the data has no batch")
    return found


def _iterator(data: Any) -> Iterator[Any]:
    if hasattr(data, "__iter__"):
        return iter(data)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):  # keras.utils.Sequence
        return (data[index] for index in range(len(data)))
    raise ArgumentError(
        f"x is {shown(data)}; expected arrays, a list or dictionary of arrays, a tf.data.Dataset, or another iterable "
        "of batches"
    )


def _batch(item: Any) -> Batch:
    """Return a batch as Keras takes one: inputs; inputs and targets; or inputs, targets and weights."""
    if isinstance(item, tuple) and 1 <= len(item) <= 3:
        return Batch(*item, *[None] * (3 - len(item)))
    return Batch(item, None, None, not isinstance(item, tuple))


def _slices(data: Batch, batch_size: int) -> Iterator[Batch]:
    arrays = data[:3]
    given = [each for each in tf.nest.flatten(list(arrays)) if each is not None]
    if not all(map(np.ndim, given)):
        raise ArgumentError("one of the arrays is a single number; expected arrays of samples")
    sizes = {len(each) for each in given}
    if len(sizes) != 1:
        raise ArgumentError(f"the arrays have {', '.join(map(str, sorted(sizes)))} samples; expected the same number")
    (size,) = sizes
    for start in range(0, size, batch_size):

        def part(each: Any, start: int = start) -> Any:
            return None if each is None else each[start : start + batch_size]

        x, y, sample_weight = (tf.nest.map_structure(part, each) for each in arrays)
        yield Batch(x, y, sample_weight, data.is_bare)


def bad_data(model: Any, data: Batch, first_sample: int = 0) -> List[BadData]:
    """Return the inputs above float16's range, and the inputs, targets and weights that are not finite."""
    names = list(getattr(model, "input_names", None) or [each.name for each in getattr(model, "inputs", None) or ()])
    found = []
    for title, nest in zip(("x", "y", "sample_weight"), data[:3]):
        for name, array in _named(title, nest, names if title == "x" else ()):
            values = np.asarray(array)
            if values.dtype.kind != "f" or not values.size:
                continue
            is_fine = np.isfinite(values)
            is_finite = bool(is_fine.all())
            if is_finite and title == "x":
                is_fine = np.abs(values) <= LARGEST
            if is_fine.all():
                continue
            samples = np.flatnonzero(~is_fine.reshape(len(values), -1).all(axis=1)) if values.ndim else np.zeros(1, int)
            largest = float(np.max(np.abs(values[np.isfinite(values)]), initial=0.0))
            numbers = tuple((samples[:_MOST_SAMPLES] + first_sample).tolist())
            found.append(BadData(name, is_finite, numbers, largest, len(samples) - len(numbers)))
    return found


def _named(title: str, nest: Any, names: Sequence[str]) -> List[Tuple[str, Any]]:
    if nest is None:
        return []
    if isinstance(nest, Mapping):
        return [pair for name, each in nest.items() for pair in _named(str(name), each, ())]
    if isinstance(nest, (list, tuple)):
        titles = names if len(names) == len(nest) else [f"{title}[{index}]" for index in range(len(nest))]
        return [pair for name, each in zip(titles, nest) for pair in _named(name, each, ())]
    return [(names[0] if len(names) == 1 else title, nest)]
