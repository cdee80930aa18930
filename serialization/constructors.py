"""Which Keras it is, and what the constructors of its classes take."""

from typing import Any, Dict

import inspect


def is_keras_3(keras: Any) -> bool:
    """Whether a Keras package is of the third generation."""
    return hasattr(keras, "Operation")


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
