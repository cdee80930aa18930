"""Which Keras it is, and what the constructors of its classes take."""

from typing import Any, Dict, Tuple

import importlib
import inspect
import threading

_one_at_a_time = threading.RLock()


def installed_keras() -> Any:
    """TensorFlow's own. From 2.15 on it is looked for when it is first used, which only one thread at a time may do."""
    keras = importlib.import_module("tensorflow").keras
    with _one_at_a_time:
        _ = keras.optimizers
    return keras


def is_keras_3(keras: Any) -> bool:
    """Whether a Keras package is of the third generation."""
    return hasattr(keras, "Operation")


def keeps_policies(keras: Any) -> bool:
    """Whether a layer's configuration can hold a policy, such as mixed_float16, in the place of its dtype."""
    if is_keras_3(keras):
        return True
    places: Tuple[Any, Any] = (keras.mixed_precision, getattr(keras.mixed_precision, "experimental", None))
    policy = next(each.Policy for each in places if hasattr(each, "Policy"))
    return hasattr(inspect.getmodule(policy), "deserialize")


def named_parameters(cls: Any) -> Dict[str, inspect.Parameter]:
    """The named parameters of a constructor, and of those of its bases that it hands its other keywords to."""
    found: Dict[str, inspect.Parameter] = {}
    for base in cls.__mro__:
        constructor = vars(base).get("__init__")
        if not inspect.isfunction(constructor):
            continue
        parameters = list(inspect.signature(constructor).parameters.values())[1:]
        for each in parameters:
            if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL):
                found.setdefault(each.name, each)
        if not any(each.kind is each.VAR_KEYWORD for each in parameters):
            break
    return found
