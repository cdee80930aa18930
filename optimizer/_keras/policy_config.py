"""A policy in an optimizer's configuration: TensorFlow's own words where they suffice, a superset where not."""

from typing import Any, Dict, Mapping

import json

import numpy as np

from ...registry._plugins import loss_scales
from ...registry.errors import InvalidSpecError, Problem, unknown
from .object_registration import of_users, registered_name


def config_of(policy: Any, keras: Any) -> Dict[str, Any]:
    """``class_name`` and ``config``, without what only we have and what is at its default: so TensorFlow reads it.

    A class that is registered with this Keras, and not with us, has the name that it is registered under.
    """
    config = dict(policy.get_config())
    theirs = getattr(policy, "tensorflow_parameters", ())
    for name, field in policy.Params.model_fields.items() if theirs else ():
        if name not in theirs and config[name] == field.get_default():
            del config[name]
    cls = type(policy)
    name = registered_name(keras, cls)
    is_theirs = name is not None and cls not in _registered_classes().values()
    return {"class_name": name if is_theirs else cls.__name__, "config": plain(config)}


def policy_of(config: Mapping[str, Any], keras: Any, custom_objects: Mapping[str, Any]) -> Any:
    """The policy of a configuration, ``class_name`` and ``config``: a registered class, or one of the caller's."""
    class_name, classes = config["class_name"], _registered_classes()
    cls = of_users(keras, class_name, custom_objects) or classes.get(class_name)
    if cls is None:
        message = unknown(
            "loss scale class",
            class_name,
            sorted({*classes, *custom_objects}),
            remedy="Register it, or pass custom_objects.",
        )
        raise InvalidSpecError([Problem(("loss_scale", "class_name"), message, "unknown_name")])
    return cls.from_config(dict(config["config"]))


def _registered_classes() -> Dict[str, Any]:
    """Name → class, of those that are registered with us."""
    return {row.plugin.cls.__name__: row.plugin.cls for row in loss_scales.listing() if row.plugin is not None}


def plain(value: Any) -> Any:
    """The same with Python's own numbers for NumPy's, which json can't write."""
    return json.loads(json.dumps(value, default=_plain_number))


def _plain_number(value: Any) -> Any:
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(f"{value!r} can't stand in a configuration")
