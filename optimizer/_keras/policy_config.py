"""The policy of an optimizer: from constructor arguments, and to and from its part of a configuration."""

from typing import Any, Dict, Mapping, Optional

import json

import numpy as np

from ...registry._plugins import loss_scales
from ...registry.errors import ArgumentError, ArgumentTypeError, InvalidSpecError, Problem, shown, unknown
from .object_registration import custom_class, registered_name


def policy_from_arguments(
    loss_scale: Any, dynamic: Optional[bool], initial_scale: Optional[float], dynamic_growth_steps: Optional[int]
) -> Any:
    """Return the policy that the arguments of LossScaleOptimizer describe.

    Args:
        loss_scale: What :func:`scalekeeper.resolve` takes.
        dynamic: Like the next two, an argument of TensorFlow 2.4 and later that replaces ``loss_scale``.
        initial_scale: The scale of the first step.
        dynamic_growth_steps: The finite steps after which a dynamic scale grows.

    Raises:
        ArgumentError: If the arguments contradict each other.
    """
    newer = {"dynamic": dynamic, "initial_scale": initial_scale, "dynamic_growth_steps": dynamic_growth_steps}
    given = [name for name, value in newer.items() if value is not None]
    if not given:
        return loss_scales.resolve(loss_scale)
    if loss_scale != "dynamic":
        raise ArgumentError(f"got loss_scale and {', '.join(given)}, which both set the loss scale: give one of them")
    if dynamic is not False:
        parameters = {"initial_loss_scale": initial_scale, "increment_period": dynamic_growth_steps}
        spec = {"name": "dynamic", **{name: value for name, value in parameters.items() if value is not None}}
        return loss_scales.resolve(spec)
    if initial_scale is None:
        raise ArgumentError("got dynamic=False without initial_scale: give initial_scale, the fixed scale")
    if dynamic_growth_steps is not None:
        raise ArgumentError("got dynamic=False and dynamic_growth_steps: a fixed scale does not grow, give one of them")
    return loss_scales.resolve({"name": "fixed", "loss_scale_value": initial_scale})


def encode_policy(policy: Any, keras: Any) -> Dict[str, Any]:
    """Return class_name and config of a policy, without parameters that TensorFlow lacks and that have their default.

    A class that is registered with Keras, and not with scalekeeper, has the name that it is registered under.
    """
    config = dict(policy.get_config())
    native = getattr(policy, "tensorflow_parameters", ())
    for name, field in policy.Params.model_fields.items() if native else ():
        if name not in native and config[name] == field.get_default():
            del config[name]
    cls = type(policy)
    name = registered_name(keras, cls)
    is_registered_with_keras = name is not None and cls not in _registered_classes().values()
    return {"class_name": name if is_registered_with_keras else cls.__name__, "config": json_values(config)}


def decode_policy(config: Mapping[str, Any], keras: Any, custom_objects: Mapping[str, Any]) -> Any:
    """Return the policy of class_name and config.

    Raises:
        InvalidSpecError: If neither scalekeeper nor Keras nor ``custom_objects`` has the class.
    """
    class_name, classes = config["class_name"], _registered_classes()
    cls = custom_class(keras, class_name, custom_objects) or classes.get(class_name)
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
    return {row.plugin.cls.__name__: row.plugin.cls for row in loss_scales.listing() if row.plugin is not None}


def json_values(value: Any) -> Any:
    """Return the same nest with values that JSON can hold: Python numbers for NumPy numbers, lists for tuples.

    Raises:
        ArgumentTypeError: If it holds an object that JSON cannot hold.
    """
    return json.loads(json.dumps(value, default=_python_number))


def _python_number(value: Any) -> Any:
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise ArgumentTypeError(f"expected a value that JSON can hold in a configuration, got {shown(value)}")
