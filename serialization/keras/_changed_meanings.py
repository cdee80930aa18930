"""Names that have another meaning in Keras 2 than in Keras 3, with both definitions.

A model that is translated from one to the other uses an activation of this module where Keras's own has changed, so
that it computes the same. Keras finds it by its registered name, such as ``scalekeeper>keras2_hard_sigmoid``. Importing
this module imports neither TensorFlow nor Keras.
"""

from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Tuple

from .._keras_introspection import installed_keras, is_keras_3

PACKAGE = "scalekeeper"


def keras2_hard_sigmoid(x: Any) -> Any:
    """Return Keras 2's ``hard_sigmoid``: ``clip(0.2 * x + 0.5, 0, 1)``."""
    return _clipped_line(x, 0.2)


def keras3_hard_sigmoid(x: Any) -> Any:
    """Return Keras 3's ``hard_sigmoid``: ``relu6(x + 3) / 6``."""
    return _clipped_line(x, 1.0 / 6.0)


def keras3_hard_silu(x: Any) -> Any:
    """Return Keras 3's ``hard_silu``, also called ``hard_swish``: ``x * hard_sigmoid(x)``."""
    return x * keras3_hard_sigmoid(x)


def keras3_relu6(x: Any) -> Any:
    """Return Keras 3's ``relu6``: ``min(max(x, 0), 6)``."""
    keras = installed_keras()
    return (keras.ops if is_keras_3(keras) else keras.backend).clip(x, 0.0, 6.0)


def _clipped_line(x: Any, slope: float) -> Any:
    keras = installed_keras()
    if is_keras_3(keras):
        return keras.ops.clip(slope * x + 0.5, 0.0, 1.0)
    return keras.backend.clip(slope * x + 0.5, 0.0, 1.0)


# Activations


class ChangedActivation(NamedTuple):
    """An activation with one definition in Keras 2 and another one in Keras 3; None: it does not exist there."""

    in_keras_2: Optional[Callable[[Any], Any]]
    in_keras_3: Callable[[Any], Any]


# name → its definitions
CHANGED: Dict[str, ChangedActivation] = {
    "hard_sigmoid": ChangedActivation(keras2_hard_sigmoid, keras3_hard_sigmoid),
    "hard_silu": ChangedActivation(None, keras3_hard_silu),
    "hard_swish": ChangedActivation(None, keras3_hard_silu),
    "relu6": ChangedActivation(None, keras3_relu6),
}


def activation_for(name: str, written_by: int, target: int) -> str:
    """Return the name with which one Keras generation computes what an activation of another one does.

    >>> from scalekeeper.serialization.keras._changed_meanings import activation_for
    >>> activation_for("hard_sigmoid", written_by=2, target=3)
    'scalekeeper>keras2_hard_sigmoid'
    >>> activation_for("scalekeeper>keras2_hard_sigmoid", written_by=3, target=2)
    'hard_sigmoid'
    """
    for shared, changed in CHANGED.items():
        for generation, function in zip((2, 3), changed):
            if function is None:
                continue
            is_meant = name in (registered_name(function), function.__name__)
            is_meant = is_meant or (name == shared and written_by == generation)
            if is_meant:
                return shared if target == generation else registered_name(function)
    return name


def registered_name(function: Callable[[Any], Any]) -> str:
    return f"{PACKAGE}>{function.__name__}"


def activations() -> Dict[str, Callable[[Any], Any]]:
    """Return the activations by all names that files may have for them."""
    functions = [each for changed in CHANGED.values() for each in changed if each is not None]
    return {name: each for each in functions for name in (each.__name__, registered_name(each))}


def register_activations(keras: Optional[Any] = None) -> None:
    """Register the activations with the installed Keras, which then saves and loads them."""
    keras = installed_keras() if keras is None else keras
    known = keras.utils.get_custom_objects()
    register: Any = getattr(keras.utils, "register_keras_serializable", None)
    for name, function in activations().items():
        if name not in known:
            if register is not None and name == registered_name(function):
                register(PACKAGE, function.__name__)(function)
            else:
                known[name] = function


# Arguments


class ChangedDefault(NamedTuple):
    """The default of an argument in Keras 2 and in Keras 3; None: it depends on the settings of Keras."""

    in_keras_2: Any
    in_keras_3: Any


_CHANNELS = ChangedDefault("channels_last", None)
_GATES = ChangedDefault("hard_sigmoid", "sigmoid")
_POOLING = [f"{kind}Pooling1D" for kind in ("Average", "GlobalAverage", "GlobalMax", "Max")]
# layer and argument → its defaults; compared with the constructors of TensorFlow 2.0, 2.10, 2.15 and Keras 3.15
CHANGED_DEFAULTS: Dict[Tuple[str, str], ChangedDefault] = {
    **{(name, "data_format"): _CHANNELS for name in ("Conv1D", *_POOLING)},
    **{(f"ConvLSTM{rank}D", "recurrent_activation"): _GATES for rank in (1, 2, 3)},
}


def with_old_defaults(class_name: str, config: Mapping[str, Any], written_by: int, target: int) -> Dict[str, Any]:
    """Return the configuration of a layer with the defaults of its Keras where the target has others."""
    found = dict(config)
    for (layer, argument), default in CHANGED_DEFAULTS.items() if written_by != target else ():
        value = default.in_keras_3 if written_by == 3 else default.in_keras_2
        if layer == class_name and value is not None:
            found.setdefault(argument, value)
    return found


# class in Keras 2 → class in Keras 3 that computes the same, and its names of the arguments
REPLACED_CLASSES: Dict[str, Tuple[str, Mapping[str, str]]] = {"ThresholdedReLU": ("ReLU", {"theta": "threshold"})}
