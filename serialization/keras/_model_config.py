"""A model's configuration, as one Keras wrote it, in the words of another: names, defaults and the way of writing.

What would change what the model computes is an error that says to build the model in code. Nothing here runs code from
a file: a Lambda layer, whose function is in the file, is refused.
"""

from typing import Any, Callable, Collection, Dict, List, Mapping, Optional

import functools
import inspect

from ...registry.errors import TranslationError, shown
from .._keras_introspection import installed_keras, is_keras_3, keeps_policies, named_parameters
from ._inbound_nodes import (
    Call,
    Counting,
    is_keras_3_call,
    read_call,
    read_ends,
    without_masks,
    written_call,
    written_ends,
)

# Who shall read it: Keras 3; Keras 2.12 and later, and tf_keras; what was before.
KERAS_3, KERAS_2_NEW, KERAS_2 = "keras3", "keras2_new", "keras2"
# class name → the names of its arguments; None where there is no such layer
Accepts = Callable[[str], Optional[Collection[str]]]

_REMEDY = "Build the model in code, and call scalekeeper.restore(model, path)."
_FUNCTIONAL, _SEQUENTIAL = ("Functional", "Model"), "Sequential"
_CLASSES = {"BatchNormalizationV1": "BatchNormalization", "BatchNormalizationV2": "BatchNormalization"}
_OF_EVERY_LAYER = ("name", "trainable", "dtype")
_SHAPES = ("batch_shape", "batch_input_shape")
_LAYERS_INSIDE = ("layer", "backward_layer", "forward_layer", "cell", "cells")
_MODULES = {"initializer": "keras.initializers", "regularizer": "keras.regularizers", "constraint": "keras.constraints"}

# argument → the value with which a layer computes as one that does not have the argument
_NEUTRAL: Dict[str, Any] = {
    "dynamic": False,
    "groups": 1,
    "keepdims": False,
    "optional": False,
    "ragged": False,
    "rms_scaling": False,
    "softmax_robust_masking": False,
    "sparse": False,
    "stateful": False,
    "synchronized": False,
    "time_major": False,
    "use_cudnn": "auto",
    "use_gate": False,
    "zero_output_for_mask": False,
}
# how, not what: other random numbers, another way to the same result, a shape that is known anyhow
_SAYS_NOTHING = ("autocast", "implementation", "input_length", "input_shape", "seed")
# initializers that older Keras knows as a more general one
_SCALINGS = {
    "HeNormal": (2.0, "truncated_normal"),
    "HeUniform": (2.0, "uniform"),
    "LecunNormal": (1.0, "truncated_normal"),
    "LecunUniform": (1.0, "uniform"),
}
_ATTENTION, _ATTENTIONS_SHAPES = "MultiHeadAttention", ("query_shape", "key_shape", "value_shape")


def translated(
    model_config: Mapping[str, Any],
    target: str,
    accepts: Optional[Accepts] = None,
    users: Collection[str] = (),
    where: str = "the installed Keras",
    package: Optional[str] = None,
) -> Dict[str, Any]:
    """The configuration of a Sequential or functional model, for ``target``: KERAS_3, KERAS_2_NEW or KERAS_2.

    ``accepts`` says which arguments the target's layers have: others are left out if they say nothing, and are an error
    if they do. Without it, arguments are taken to be there. ``users`` are classes of the user's own, whose arguments
    are left as they are. ``where`` is the target's name in messages. With a ``package``, such as tf_keras, classes of
    Keras 2 come with their modules, as in its ``.keras`` files.
    """
    return _Translation(target, accepts, users, where, package).model(model_config)


def translated_for_installed(
    model_config: Mapping[str, Any], custom_objects: Optional[Mapping[str, Any]] = None
) -> Dict[str, Any]:
    """The same for the installed TensorFlow's Keras."""
    keras = installed_keras()
    keras_2 = KERAS_2_NEW if hasattr(keras, "saving") else KERAS_2
    target = KERAS_3 if is_keras_3(keras) else keras_2
    users = {*(custom_objects or {}), *keras.utils.get_custom_objects()}
    return translated(model_config, target, functools.partial(_accepted_by, keras), users)


def _accepted_by(keras: Any, class_name: str) -> Optional[Collection[str]]:
    """The arguments of a layer of the installed Keras; of a policy of layers, where a layer's configuration has one."""
    if class_name == "Policy":
        return ("name",) if keeps_policies(keras) else None
    cls = getattr(keras.layers, class_name, None)
    if not inspect.isclass(cls):
        return None
    return {*named_parameters(cls), *_OF_EVERY_LAYER}


class _Translation:
    """One configuration on its way; what it finds untranslatable, it raises."""

    def __init__(
        self, target: str, accepts: Optional[Accepts], users: Collection[str], where: str, package: Optional[str]
    ) -> None:
        self._where = where
        self._package = package
        self._target = target
        self._is_keras_3 = target == KERAS_3
        self._accepts = accepts
        self._users = frozenset(users)

    # Models

    def model(self, entry: Mapping[str, Any]) -> Dict[str, Any]:
        class_name = _class_name(entry)
        if class_name == _SEQUENTIAL:
            return self._wrapped(_SEQUENTIAL, self._sequential(entry["config"]), "keras")
        if class_name in _FUNCTIONAL and "input_layers" in entry["config"]:
            config = self._functional(entry["config"])
            if self._is_keras_3:
                return self._wrapped("Functional", config, "keras.src.models.functional")
            class_name = "Model" if self._target == KERAS_2 else "Functional"
            return self._wrapped(class_name, config, f"{self._package}.src.engine.functional")
        raise TranslationError(f"{class_name} is neither a Sequential nor a functional model. {_REMEDY}")

    def _sequential(self, config: Mapping[str, Any]) -> Dict[str, Any]:
        layers = config["layers"]
        translated = [self._entry(layer) for layer in layers]
        shape = _input_shape(layers)
        if layers and _class_name(layers[0]) != "InputLayer" and shape is not None:
            first = layers[0]["config"]
            dtype = "int32" if _class_name(layers[0]) == "Embedding" else _dtype_of_input(first.get("dtype"))
            words = {"batch_shape": shape, "dtype": dtype, "sparse": False, "name": f"{first['name']}_input"}
            translated.insert(0, self._entry({"class_name": "InputLayer", "config": words}))
        found = {"name": config.get("name"), "layers": translated}
        if config.get("build_input_shape") is not None:
            found["build_input_shape"] = _plain(config["build_input_shape"])
        return found

    def _functional(self, config: Mapping[str, Any]) -> Dict[str, Any]:
        entries = {layer["name"]: layer for layer in config["layers"]}
        counting = _counting(entries)
        nodes = [node for each in entries.values() for node in each["inbound_nodes"]]
        comes_from_keras_3 = any(is_keras_3_call(node) for node in nodes)
        operations = [name for name, each in entries.items() if _is_operation(each)]
        # Keras 3 can't find operations again that are in an H5 file, where their module is missing
        if comes_from_keras_3 and self._is_keras_3 and all("module" in entries[name] for name in operations):
            layers = [
                each if name in operations else {**each, **self._entry(each)}  # with its name and its calls
                for name, each in entries.items()
            ]
            return {**config, "layers": layers}
        computes_masks = any(
            _class_name(each) == "Masking" or each["config"].get("mask_zero") for each in entries.values()
        )

        def translated(class_name: str, node: Any) -> Any:
            call = without_masks(read_call(node, class_name, counting, entries), operations, computes_masks)
            return written_call(call, class_name, counting, self._is_keras_3)

        layers = [
            {
                **self._entry(each),
                "name": name,
                "inbound_nodes": [translated(_class_name(each), node) for node in each["inbound_nodes"]],
            }
            for name, each in entries.items()
            if name not in operations
        ]
        inputs, outputs = [
            read_ends(config[side], counting, comes_from_keras_3) for side in ("input_layers", "output_layers")
        ]
        without_masks(Call(outputs, {}), operations, computes_masks)
        return {
            "name": config.get("name"),
            "layers": layers,
            "input_layers": written_ends(inputs, counting, self._is_keras_3),
            "output_layers": written_ends(outputs, counting, self._is_keras_3),
        }

    # Layers

    def _entry(self, entry: Mapping[str, Any]) -> Dict[str, Any]:
        """A layer, which may be a model, without its calls."""
        class_name = _class_name(entry)
        if class_name in (*_FUNCTIONAL, _SEQUENTIAL):
            return self.model(entry)
        if class_name == "Lambda":
            raise TranslationError(f"Lambda layers hold code, and no code from a file is run. {_REMEDY}")
        registered = _registered_name(entry)
        if self._users & {class_name, registered}:
            config = {name: self._value(name, value) for name, value in entry["config"].items()}
            return self._users_entry(class_name, registered, config)
        accepted = None if self._accepts is None else self._accepts(class_name)
        if self._accepts is not None and accepted is None:
            raise TranslationError(
                f"{self._where} has no layer {shown(class_name)}. A class of your own is given in "
                f"custom_objects, or registered with Keras. {_REMEDY}"
            )
        return self._wrapped(class_name, self._layer(class_name, entry, accepted), "keras.layers")

    def _layer(self, class_name: str, entry: Mapping[str, Any], accepted: Optional[Collection[str]]) -> Dict[str, Any]:
        config = {name: self._value(name, value) for name, value in entry["config"].items()}
        shape = next((config.pop(name) for name in _SHAPES if config.get(name) is not None), None)
        for name in _SHAPES:
            config.pop(name, None)
        if class_name == "InputLayer":
            config["batch_shape" if self._is_keras_3 else "batch_input_shape"] = shape
            accepted = None if accepted is None else {*accepted, *_SHAPES}
        self._rename(class_name, entry, config)
        known = accepted if accepted is None else {*accepted, *_OF_EVERY_LAYER}
        if class_name == _ATTENTION and known is not None and not self._is_keras_3:
            known |= set(_ATTENTIONS_SHAPES)  # which its from_config takes
        for name, value in list(config.items()):
            if known is not None and name not in known:
                if not (value is None or name in _SAYS_NOTHING or (name in _NEUTRAL and value == _NEUTRAL[name])):
                    raise TranslationError(
                        f"{name}={shown(value)} of the layer {shown(config.get('name'))} has no words in "
                        f"{self._where}, whose {class_name} accepts {', '.join(sorted(known))}. {_REMEDY}"
                    )
                del config[name]
        return config

    def _rename(self, class_name: str, entry: Mapping[str, Any], config: Dict[str, Any]) -> None:
        """What one class calls otherwise, or writes otherwise, in another generation."""
        if class_name == "LeakyReLU":
            slope = config.pop("alpha", config.pop("negative_slope", None))
            config["negative_slope" if self._is_keras_3 else "alpha"] = slope
        if class_name == "BatchNormalization" and isinstance(config.get("axis"), list) and len(config["axis"]) == 1:
            config["axis"] = config["axis"][0]
        if class_name == _ATTENTION:
            given = {name: config.pop(name, None) for name in _ATTENTIONS_SHAPES}
            if not self._is_keras_3:
                built = entry.get("build_config") or {}
                built = _plain(built.get("shapes_dict", built))
                shapes = {name: given[name] or built.get(name) for name in _ATTENTIONS_SHAPES}
                config.update(shapes, key_shape=shapes["key_shape"] or shapes["value_shape"])
        if self._target == KERAS_2 and isinstance(config.get("seed"), Mapping):
            config["seed"] = None

    # Values

    def _value(self, name: str, value: Any) -> Any:
        """An argument of a layer: a number, a name, or an object that is written as class and configuration."""
        if name == "dtype":
            return self._dtype(value)
        value = _plain(value)
        if name in _LAYERS_INSIDE:
            return [self._entry(each) for each in value] if isinstance(value, list) else value and self._entry(value)
        if name.endswith("activation"):
            return self._activation(value)
        if isinstance(value, Mapping) and "class_name" in value:
            return self._object(name, value)
        return value

    def _dtype(self, value: Any) -> Any:
        """A type or a policy of layers; only its name counts: a loss scale belongs to the optimizer."""
        name = value["config"]["name"] if isinstance(value, Mapping) else value
        if name is None or "_" not in name or self._is_keras_3:
            return name
        if self._accepts is not None and self._accepts("Policy") is None:
            raise TranslationError(
                f"{self._where} keeps no policy, such as {shown(name)}, in a model's configuration. {_REMEDY}"
            )
        return {"class_name": "Policy", "config": {"name": name}}

    def _activation(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            if isinstance(value.get("config"), Mapping):
                return self._entry(value)  # a layer
            name = value.get("registered_name")
            value = value["config"] if name in (None, "function") else name
        # newer Keras has both names, and writes the newer one
        return "swish" if value == "silu" and not self._is_keras_3 else value

    def _object(self, argument: str, value: Mapping[str, Any]) -> Any:
        """An initializer, a regularizer or a constraint."""
        class_name, config = _class_name(value), dict(_plain(value["config"] or {}))
        registered = _registered_name(value)
        if self._users & {class_name, registered}:
            return self._users_entry(class_name, registered, config)
        kind = argument.rpartition("_")[2]
        if kind == "initializer":
            config.pop("dtype", None)
            config.pop("seed", None)  # the weights that follow are those of the file
        config = {name: each for name, each in config.items() if each is not None}
        if self._target == KERAS_2:
            if class_name in _SCALINGS:
                scale, distribution = _SCALINGS[class_name]
                config = {"scale": scale, "mode": "fan_in", "distribution": distribution}
                class_name = "VarianceScaling"
            elif kind == "regularizer" and class_name in ("L1", "L2"):
                config = {"l1": config.get("l1", 0.0), "l2": config.get("l2", 0.0)}
                class_name = "L1L2"
        return self._wrapped(class_name, config, _MODULES.get(kind, "keras"))

    def _wrapped(self, class_name: str, config: Any, module: str) -> Dict[str, Any]:
        if not self._is_keras_3 and self._package is None:
            return {"class_name": class_name, "config": config}
        registered = class_name if ".src." in module else None
        return {"module": module, "class_name": class_name, "config": config, "registered_name": registered}

    def _users_entry(self, class_name: str, registered: str, config: Any) -> Dict[str, Any]:
        if not self._is_keras_3:
            return {"class_name": registered if registered in self._users else class_name, "config": config}
        return {"module": None, "class_name": class_name, "config": config, "registered_name": registered}


def _class_name(entry: Mapping[str, Any]) -> str:
    name = str(entry["class_name"]).rpartition(">")[2]
    return _CLASSES.get(name, name)


def _registered_name(entry: Mapping[str, Any]) -> str:
    return str(entry.get("registered_name") or entry["class_name"])


def _is_operation(entry: Mapping[str, Any]) -> bool:
    """Whether it is not a layer but a mere operation of Keras 3; its H5 files do not say which module it is from."""
    calls_of_keras_3 = [node for node in entry["inbound_nodes"] if is_keras_3_call(node)]
    return bool(calls_of_keras_3) and not {"trainable", "dtype"} & entry["config"].keys()


def _counting(entries: Mapping[str, Mapping[str, Any]]) -> Counting:
    functional = [name for name, each in entries.items() if _class_name(each) in _FUNCTIONAL]
    sequential = [name for name, each in entries.items() if _class_name(each) == _SEQUENTIAL and _has_input(each)]
    return Counting(functional, sequential)


def _has_input(entry: Mapping[str, Any]) -> bool:
    return _input_shape(entry["config"]["layers"]) is not None


def _input_shape(layers: List[Mapping[str, Any]]) -> Any:
    """The shape of the input of a Sequential model, with the batch, as its first layer has it."""
    first = layers[0]["config"] if layers else {}
    return next((_plain(first[name]) for name in _SHAPES if isinstance(first, dict) and first.get(name)), None)


def _dtype_of_input(dtype: Any) -> str:
    name = dtype["config"]["name"] if isinstance(dtype, Mapping) else dtype or "float32"
    return "float32" if name.startswith("mixed") else str(name)


def _plain(value: Any) -> Any:
    """Tuples, shapes and arrays, which some Keras marks as such, as lists."""
    if isinstance(value, Mapping):
        if "items" in value and value.get("class_name") in ("__tuple__", "TensorShape"):
            return [_plain(each) for each in value["items"]]
        if value.get("class_name") == "__numpy__":
            return value["config"]["value"]
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value
