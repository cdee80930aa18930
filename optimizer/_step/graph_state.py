"""A policy's state in TensorFlow's variables."""

from typing import Any, Callable, Dict, Mapping, Tuple

import sys

import tensorflow as tf

from ...lossscales.contract import LossScale
from ...lossscales.report import Report, State
from .gradient_stats import measure_gradients
from .tensorflow_ops import OPS
from .unscale import usable


class GraphState(tf.Module):  # type: ignore[misc]
    """One variable for each piece of state, under its name: a checkpoint finds it there.

    It has the methods of ``lossscales.numpy_state.NumpyState``. Inside a strategy's scope the variables are mirrored.
    """

    def __init__(self, loss_scale: LossScale, state: State, make_variable: Callable[[str, Any], Any]) -> None:
        super().__init__(name="loss_scale")
        self._loss_scale = loss_scale
        self._names = tuple(state)
        for name, value in state.items():
            if hasattr(type(self), name):  # a checkpoint finds a variable by the attribute that holds it
                raise ValueError(f"{type(loss_scale).__name__} has a state called {name!r}, which is taken: rename it")
            setattr(self, name, make_variable(name, value))

    @property
    def state_variables(self) -> Dict[str, Any]:
        return {name: getattr(self, name) for name in self._names}

    def read(self) -> State:
        return {name: variable.read_value() for name, variable in self.state_variables.items()}

    def plain(self) -> Dict[str, Any]:
        return {name: _value(variable).item() for name, variable in self.state_variables.items()}

    def write(self, state: Mapping[str, Any]) -> None:
        for name, value in state.items():
            if tf.executing_eagerly():
                self.state_variables[name].assign(value)
            else:
                tf.keras.backend.set_value(self.state_variables[name], value)

    def scale(self) -> Any:
        return usable(self._loss_scale.scale(self.read(), OPS))

    def step(self, report: Report) -> Tuple[Any, Any]:
        """Take a step: the op that does it, and whether the gradients are applied."""
        state = self.read()
        should_apply = self._loss_scale.should_apply(state, report, OPS)
        following = self._loss_scale.next_state(state, report, OPS)
        if following is state:
            return tf.no_op(), should_apply
        updates = [self.state_variables[name].assign(following[name]) for name in self._names]
        return tf.group(*updates), should_apply

    def update(self, grads: Any) -> Tuple[Any, Any]:
        return self.step(Report(**measure_gradients(grads, self._loss_scale.needs)))


def make_variable(name: str, value: Any) -> Any:
    """A variable for one piece of state."""
    variable = tf.Variable(value, name=name, dtype=value.dtype, trainable=False)
    if not tf.executing_eagerly():
        # In TF1's graph mode Keras's session initializes the variables that its backend was told of, and no others. The
        # public module does not have track_variable.
        backend = sys.modules[tf.keras.backend.get_value.__module__]
        if hasattr(backend, "track_variable"):
            backend.track_variable(variable)
    return variable


def _value(variable: Any) -> Any:
    """As NumPy has it; in TF1's graph mode, Keras's session knows."""
    return variable.numpy() if tf.executing_eagerly() else tf.keras.backend.get_value(variable)


def _current_scale(loss_scale: LossScale, dtype: Any = None, name: Any = None, as_ref: bool = False) -> Any:
    scale = tf.convert_to_tensor(loss_scale())
    return scale if dtype is None else tf.cast(scale, dtype)


# so that ``loss * optimizer.loss_scale`` works, as where TensorFlow's own class has a tensor of that name
tf.register_tensor_conversion_function(LossScale, _current_scale)
