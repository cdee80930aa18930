"""A policy in arithmetic, where it stands for its current loss scale."""

from typing import Any, Callable

import numbers
import operator

import numpy as np

# attributes of the loss scale, as a tensor or a NumPy scalar, that a policy has unless its class defines them
_FORWARDED = frozenset({"dtype", "shape", "get_shape", "ndim", "device"})
# of a tensor of a graph of TensorFlow 1: ``tf.keras.backend.get_value`` asks both
_OF_GRAPH_TENSORS = frozenset({"graph", "eval"})
# With this attribute, AutoGraph calls an object as it is. That of TensorFlow 2.0 and 2.1 compares others with numbers,
# which has no value in a graph.
NOT_CONVERTED = "autograph_info__"


def _is_number(value: Any) -> bool:
    return isinstance(value, (numbers.Number, np.ndarray, np.generic)) and not isinstance(value, (bool, np.bool_))


def _operand(value: Any) -> Any:
    """Return what to compute with; NotImplemented for a tensor, which converts the policy to its own dtype."""
    if isinstance(value, ScaleNumber):
        return value()
    if hasattr(value, "dtype") and not isinstance(value, (np.ndarray, np.generic)):
        return NotImplemented
    return value


def _binary(compute: Callable[[Any, Any], Any]) -> Any:
    def method(self: "ScaleNumber", other: Any) -> Any:
        operand = _operand(other)
        return NotImplemented if operand is NotImplemented else compute(self(), operand)

    return method


def _reflected(compute: Callable[[Any, Any], Any]) -> Any:
    return _binary(lambda scale, operand: compute(operand, scale))


def _unary(compute: Callable[[Any], Any]) -> Any:
    return lambda self: compute(self())


class ScaleNumber:
    """The operations of a number, applied to the current loss scale, which calling the object returns.

    ``==`` and ``!=`` compare the loss scale with numbers. A policy with its own ``__call__`` is equal to itself only:
    AutoGraph of TensorFlow 2.0 and 2.1 compares what it calls with numbers, and a tensor of a graph has no value. Two
    policies are equal if they are the same object, so a policy can be the key of a dictionary.
    """

    __array_priority__ = 100  # that of tensors: NumPy leaves ``array * policy`` to the policy

    def __call__(self) -> Any:
        raise NotImplementedError

    def _has_own_call(self) -> bool:
        """Return whether a class of the user computes the loss scale when it is called."""
        raise NotImplementedError

    __add__, __radd__ = _binary(operator.add), _reflected(operator.add)
    __sub__, __rsub__ = _binary(operator.sub), _reflected(operator.sub)
    __mul__, __rmul__ = _binary(operator.mul), _reflected(operator.mul)
    __truediv__, __rtruediv__ = _binary(operator.truediv), _reflected(operator.truediv)
    __floordiv__, __rfloordiv__ = _binary(operator.floordiv), _reflected(operator.floordiv)
    __mod__, __rmod__ = _binary(operator.mod), _reflected(operator.mod)
    __pow__, __rpow__ = _binary(operator.pow), _reflected(operator.pow)
    __lt__, __le__ = _binary(operator.lt), _binary(operator.le)
    __gt__, __ge__ = _binary(operator.gt), _binary(operator.ge)
    __neg__, __abs__ = _unary(operator.neg), _unary(abs)

    def __eq__(self, other: Any) -> Any:
        return self() == other if _is_number(other) and not self._has_own_call() else NotImplemented

    def __ne__(self, other: Any) -> Any:
        return self() != other if _is_number(other) and not self._has_own_call() else NotImplemented

    __hash__ = object.__hash__

    def __float__(self) -> float:
        return float(self())

    def __int__(self) -> int:
        return int(self())

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        # By way of a float: TensorFlow tries something else after a TypeError, which a tensor of a graph gives here.
        return np.array(self.numpy(), dtype=dtype)

    def __format__(self, spec: str) -> str:
        try:
            number = float(self)
        except TypeError:  # a tensor of a graph has no value
            if spec:
                raise
            return str(self)
        return format(number, spec)

    def __getattr__(self, name: str) -> Any:
        if name in _FORWARDED:
            return getattr(self(), name)
        if name in _OF_GRAPH_TENSORS and hasattr(self, "is_tensor_like"):
            scale = self()
            if not hasattr(scale, "numpy"):
                return getattr(scale, name)
        if name == NOT_CONVERTED and not self._has_own_call():
            return {}
        if name == "_weights" and hasattr(self, "_state_variables"):  # by which TensorFlow finds the variables
            return self._state_variables()
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def numpy(self) -> Any:
        """Return the current loss scale as a NumPy scalar, as a TensorFlow variable does."""
        return np.float32(float(self))
