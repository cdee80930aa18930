"""Variables of models and optimizers: their names and values."""

from typing import Any, Dict, Iterable, List, Mapping, Sequence, Tuple

import importlib

import numpy as np

from ._matching import Shape
from .training_state import Value


def values_of(variables: Iterable[Any]) -> List[Any]:
    """Return the values of variables as NumPy arrays; in TF1 graph mode they come from Keras's session."""
    tf = importlib.import_module("tensorflow")
    read = (lambda each: each.numpy()) if tf.executing_eagerly() else tf.keras.backend.get_value
    return [np.asarray(read(variable)) for variable in variables]


def value_of(variable: Any) -> Any:
    """Return the value of a variable as a NumPy array."""
    return values_of([variable])[0]


def rows_of(variable: Any, count: int) -> Any:
    """Return the first rows of a variable as a NumPy array."""
    tf = importlib.import_module("tensorflow")
    return np.asarray(variable[:count]) if tf.executing_eagerly() else value_of(variable)[:count]


def lazy_values(variables: Mapping[str, Any]) -> Dict[str, Value]:
    """Return a :class:`Value` for each variable, which reads the variable on demand."""
    tf = importlib.import_module("tensorflow")
    return {name: _lazy(variable, tf.as_dtype(variable.dtype).name) for name, variable in variables.items()}


def lazy_slots(slots: Mapping[str, Mapping[str, Any]]) -> Dict[str, Dict[str, Value]]:
    """Return a :class:`Value` for each slot variable, by owner and slot."""
    return {owner: lazy_values(each) for owner, each in slots.items()}


def _lazy(variable: Any, dtype: str) -> Value:
    return Value(tuple(variable.shape), dtype, lambda: value_of(variable))


def assign_all(values: Iterable[Tuple[Any, Any]]) -> None:
    """Assign a value, a :class:`Value` or anything NumPy takes, to each variable; values are cast to its type."""
    tf = importlib.import_module("tensorflow")
    is_eager = tf.executing_eagerly()
    for variable, value in values:
        array = value.read() if isinstance(value, Value) else value
        if is_eager:
            variable.assign(np.asarray(array, dtype=tf.as_dtype(variable.dtype).as_numpy_dtype))
        else:
            tf.keras.backend.set_value(variable, array)


def assign(variable: Any, value: Any) -> None:
    """Assign a value to a variable."""
    assign_all([(variable, value)])


def weights_of(layer: Any) -> List[Any]:
    """Return the variables of a layer or model; up to Keras 2.15, ``weights`` has handlers of vocabularies too."""
    return [each for each in layer.weights if hasattr(each, "shape")]


def owners_of(variables: Sequence[Any]) -> List[str]:
    """Return the name that each variable has in a file; a second one of the same name gets its index appended."""
    names = [getattr(variable, "path", variable.name).split(":")[0] for variable in variables]
    return [name if names.index(name) == index else f"{name}#{index}" for index, name in enumerate(names)]


def by_owner(variables: Sequence[Any]) -> Dict[str, Any]:
    """Return the variables by owner."""
    return dict(zip(owners_of(variables), variables))


def shapes_by_owner(variables: Sequence[Any]) -> Dict[str, Shape]:
    """Return the shapes of variables by owner."""
    return {owner: tuple(variable.shape) for owner, variable in by_owner(variables).items()}
