"""A policy in an optimizer's configuration: TensorFlow's own words where they suffice, a superset where not."""

from typing import Any, Dict, Mapping

import json

import numpy as np

from ..registry.errors import InvalidSpecError, Problem, unknown
from ..registry.plugins import loss_scales


def config_of(policy: Any) -> Dict[str, Any]:
    """``class_name`` and ``config``, without what only we have and what is at its default: so TensorFlow reads it."""
    config = dict(policy.get_config())
    theirs = getattr(policy, "tensorflow_parameters", ())
    for name, field in policy.Params.model_fields.items() if theirs else ():
        if name not in theirs and config[name] == field.get_default():
            del config[name]
    return {"class_name": type(policy).__name__, "config": plain(config)}


def policy_of(config: Mapping[str, Any], custom_objects: Mapping[str, Any]) -> Any:
    """The policy of a configuration, ``class_name`` and ``config``: a registered class, or one of the caller's."""
    class_name = config["class_name"]
    classes: Dict[str, Any] = {
        row.plugin.cls.__name__: row.plugin.cls for row in loss_scales.listing() if row.plugin is not None
    }
    classes.update(custom_objects)
    if class_name not in classes:
        message = unknown(
            "loss scale class", class_name, sorted(classes), remedy="Register it, or pass custom_objects."
        )
        raise InvalidSpecError([Problem(("loss_scale", "class_name"), message, "unknown_name")])
    return classes[class_name].from_config(dict(config["config"]))


def plain(value: Any) -> Any:
    """The same with Python's own numbers for NumPy's, which json can't write."""
    return json.loads(json.dumps(value, default=_plain_number))


def _plain_number(value: Any) -> Any:
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(f"{value!r} can't stand in a configuration")
