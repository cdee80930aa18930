"""The configuration of a model, and of its losses and metrics, translated from one Keras to another.

Names, defaults and notation differ. A difference that would change what the model computes is an error. No code from a
file runs: Lambda layers, whose function is in the file, are refused.
"""

from typing import Any, Callable, Collection, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Tuple

import functools
import inspect

from ...registry.errors import TranslationError, shown
from .._keras_introspection import ATTENTION, ATTENTION_SHAPES, config_parameters, installed_keras, keeps_policies
from ._changed_meanings import (
    REPLACED_CLASSES,
    activation_for,
    activations,
    register_activations,
    with_old_defaults,
)
from ._inbound_nodes import (
    RECURRENT,
    Call,
    NestedModels,
    decode_call,
    decode_ends,
    encode_call,
    encode_ends,
    has_keras_tensors,
    renamed,
    tensors_in,
    without_masks,
)
from ._model_config_rules import ModelConfigRules
from ._operations import encode_function, encode_operation, is_function_layer, module_of_operation
from .profile import profile_of_package

# class name → the names of its arguments; None if there is no such layer
Accepts = Callable[[str], Optional[Collection[str]]]

_REMEDY = "Build the model in code, then call scalekeeper.restore(model, path)."
_FUNCTIONAL, _SEQUENTIAL = ("Functional", "Model"), "Sequential"
_CLASSES = {"BatchNormalizationV1": "BatchNormalization", "BatchNormalizationV2": "BatchNormalization"}
_CAUSAL_LAYERS = ("AdditiveAttention", "Attention")
_SHAPES = ("batch_shape", "batch_input_shape")
_LAYERS_INSIDE = ("layer", "backward_layer", "forward_layer", "cell", "cells")
_MODULES = {"initializer": "keras.initializers", "regularizer": "keras.regularizers", "constraint": "keras.constraints"}

# argument → the value with which a layer computes as one without the argument
_NEUTRAL: Dict[str, Any] = {
    "antialias": False,
    "data_format": "channels_last",
    "dropout": 0.0,
    "dynamic": False,
    "fill_mode": "constant",
    "fill_value": 0.0,
    "groups": 1,
    "keepdims": False,
    "oov_method": "floormod",
    "optional": False,
    "pad_to_aspect_ratio": False,
    "ragged": False,
    "rms_scaling": False,
    "score_mode": "dot",
    "softmax_robust_masking": False,
    "sparse": False,
    "stateful": False,
    "synchronized": False,
    "time_major": False,
    "use_cudnn": "auto",
    "use_gate": False,
    "value_range": [0, 255],
    "zero_output_for_mask": False,
}
# arguments that do not change what a layer computes; a class without the argument trainable has no variables to train
_WITHOUT_EFFECT = (
    *("autocast", "implementation", "input_length", "input_shape", "trainable"),
    *("force_generator", "rng_type", "seed"),  # of random numbers
    "vocabulary_size",  # of the vocabulary, which is another argument
)
# initializers that older Keras has as VarianceScaling: scale and distribution
_SCALINGS = {
    "HeNormal": (2.0, "truncated_normal"),
    "HeUniform": (2.0, "uniform"),
    "LecunNormal": (1.0, "truncated_normal"),
    "LecunUniform": (1.0, "uniform"),
}
_NO_SALT = [0xDECAFCAFFE] * 2  # what Hashing of TensorFlow 2.3 writes for no salt


def translate_model_config(
    model_config: Mapping[str, Any],
    rules: ModelConfigRules,
    accepts: Optional[Accepts] = None,
    custom_names: Collection[str] = (),
    where: str = "the installed Keras",
    package: Optional[str] = None,
    keras_version: Optional[str] = None,
    activation_names: Optional[Collection[str]] = None,
    has_scalekeeper: bool = True,
) -> Dict[str, Any]:
    """Return the configuration of a Sequential or functional model for another Keras.

    Args:
        model_config: class_name and config, as any Keras writes them.
        rules: How the target writes model configurations.
        accepts: Returns the argument names of a layer of the target. Other arguments are left out if they have no
            effect, and are an error otherwise. None: every argument is kept.
        custom_names: Classes of the user, whose arguments are kept as they are.
        where: The target's name in messages.
        package: The package of the target's Keras, such as tf_keras, if classes of Keras 2 shall have their modules as
            in its ``.keras`` files.
        keras_version: The version of the Keras that wrote the configuration. None: found from the
            configuration itself.
        activation_names: The activations of the target. None: every one is kept.
        has_scalekeeper: Whether the target has scalekeeper's activations, which keep the meaning of changed ones.

    Raises:
        TranslationError: If the target has no equivalent.
    """
    generation = generation_of(keras_version, model_config)
    translation = _Translation(
        rules, accepts, custom_names, where, package, generation, activation_names, has_scalekeeper
    )
    return translation.model(model_config)


def translate_for_installed_keras(
    model_config: Mapping[str, Any],
    custom_objects: Optional[Mapping[str, Any]] = None,
    keras_version: Optional[str] = None,
) -> Dict[str, Any]:
    """Return the configuration of a Sequential or functional model for the Keras of the installed TensorFlow."""
    keras = installed_keras()
    register_activations(keras)
    rules = rules_of_installed_keras()
    custom_names = {*(custom_objects or {}), *keras.utils.get_custom_objects()} - activations().keys()
    return translate_model_config(
        model_config,
        rules,
        functools.partial(_accepted_by, keras),
        custom_names,
        keras_version=keras_version,
        activation_names=dir(keras.activations),
    )


def rules_of_installed_keras() -> ModelConfigRules:
    """Return how the Keras of the installed TensorFlow writes model configurations."""
    keras = installed_keras()
    return profile_of_package(keras).model_config_rules(writes_modules=hasattr(keras, "saving"))


def describes_layers(model_config: Mapping[str, Any]) -> bool:
    """Return whether a configuration lists the layers of the model, as that of a subclassed model does not."""
    return _class_name(model_config) in (*_FUNCTIONAL, _SEQUENTIAL) and "layers" in model_config["config"]


def generation_of(keras_version: Optional[str], model_config: Optional[Mapping[str, Any]] = None) -> int:
    """Return 3 for a configuration of Keras 3, otherwise 2."""
    if keras_version is not None:
        return 3 if int(keras_version.split(".")[0]) >= 3 else 2
    return 3 if _has_marks_of_keras_3(model_config) else 2


def _has_marks_of_keras_3(value: Any) -> bool:
    if isinstance(value, Mapping):
        if value.get("class_name") in ("__keras_tensor__", "DTypePolicy"):
            return True
        if value.get("class_name") == "InputLayer":
            return "batch_shape" in value["config"]
        return any(map(_has_marks_of_keras_3, value.values()))
    return isinstance(value, (list, tuple)) and any(map(_has_marks_of_keras_3, value))


def _accepted_by(keras: Any, class_name: str) -> Optional[Collection[str]]:
    """Return the arguments of a layer of the installed Keras, and of a dtype policy if configurations can hold one."""
    if class_name == "Policy":
        return ("name",) if keeps_policies(keras) else None
    cls = getattr(keras.layers, class_name, None)
    if not inspect.isclass(cls):
        return None
    return config_parameters(cls)


class _Translation:
    """The translation of one configuration."""

    def __init__(
        self,
        rules: ModelConfigRules,
        accepts: Optional[Accepts],
        custom_names: Collection[str],
        where: str,
        package: Optional[str],
        generation: int,
        activation_names: Optional[Collection[str]],
        has_scalekeeper: bool,
    ) -> None:
        self._rules = rules
        self._accepts = accepts
        self._custom_names = frozenset(custom_names)
        self._where = where
        self._package = package
        self._written_by = generation
        self._activation_names = activation_names
        self._has_scalekeeper = has_scalekeeper
        self._target = rules.generation

    # Models

    def model(self, entry: Mapping[str, Any]) -> Dict[str, Any]:
        class_name = _class_name(entry)
        if class_name == _SEQUENTIAL:
            return self._wrapped(_SEQUENTIAL, self._sequential(entry["config"]), "keras")
        if class_name in _FUNCTIONAL and "input_layers" in entry["config"]:
            config = self._functional(entry["config"])
            module = self._rules.functional_module.format(package=self._package)
            return self._wrapped(self._rules.functional_class_name, config, module)
        raise TranslationError(f"expected a Sequential or functional model, got {class_name}. {_REMEDY}")

    def _sequential(self, config: Mapping[str, Any]) -> Dict[str, Any]:
        layers = config["layers"]
        translated = [self._entry(layer) for layer in layers]
        shape = _input_shape(layers)
        if layers and _class_name(layers[0]) != "InputLayer" and shape is not None:
            first = layers[0]["config"]
            dtype = "int32" if _class_name(layers[0]) == "Embedding" else _dtype_of_input(first.get("dtype"))
            config_of_input = {"batch_shape": shape, "dtype": dtype, "sparse": False, "name": f"{first['name']}_input"}
            translated.insert(0, self._entry({"class_name": "InputLayer", "config": config_of_input}))
        found = {"name": config.get("name"), "layers": translated}
        if config.get("build_input_shape") is not None:
            found["build_input_shape"] = _plain(config["build_input_shape"])
        return found

    def _functional(self, config: Mapping[str, Any]) -> Dict[str, Any]:
        entries = {layer["name"]: layer for layer in config["layers"]}
        names = {name: self._name(name) for name in entries}
        if len(set(names.values())) < len(names):
            same = next(name for name in names if list(names.values()).count(names[name]) > 1 and name != names[name])
            raise TranslationError(
                f"{self._where} takes no '/' in the name of a layer, and the model has both {shown(same)} and "
                f"{shown(names[same])}. {_REMEDY}"
            )
        nested = _nested_models(entries)
        renamed_nested = NestedModels(*([names[name] for name in each] for each in nested))
        nodes = [node for each in entries.values() for node in each["inbound_nodes"]]
        comes_from_keras_3 = any(has_keras_tensors(node) for node in nodes)
        operations = [name for name, each in entries.items() if _is_operation(each)]
        if comes_from_keras_3 and self._target == 3:
            layers = [
                self._with_module(each) if name in operations else {**each, **self._entry(each)}  # with its calls
                for name, each in entries.items()
            ]
            return {**config, "layers": layers}
        computes_masks = any(
            _class_name(each) == "Masking" or each["config"].get("mask_zero") for each in entries.values()
        )
        layers, calls_of, functions = [], {}, {}
        for name, each in entries.items():
            if name in operations:
                continue
            calls = [decode_call(node, _class_name(each), nested, entries) for node in each["inbound_nodes"]]
            calls_of[name] = [without_masks(call, operations, computes_masks) for call in calls]
        inputs, outputs = [
            decode_ends(config[side], nested, comes_from_keras_3) for side in ("input_layers", "output_layers")
        ]
        needed = tensors_in([outputs, *([*call] for calls in calls_of.values() for call in calls)])
        while needed:  # not those that compute masks
            name = needed.pop().layer
            if name in operations and name not in functions:
                self._require_function_layers(name, entries[name])
                functions[name], call = encode_function(name, entries[name])
                calls_of[name] = [call]
                needed += tensors_in([*call])
        for name, calls in calls_of.items():
            each, class_name = entries[name], _class_name(functions.get(name, entries[name]))
            calls = [renamed(call, names) for call in calls]
            if self._target == 3 and is_function_layer(class_name):
                layers += encode_operation(names[name], class_name, each["config"], calls)
                continue
            entry = functions.get(name) or self._entry(each)
            if class_name in _CAUSAL_LAYERS:
                calls = [self._causal(entry["config"], class_name, each["config"], call) for call in calls]
            nodes = [encode_call(call, class_name, renamed_nested, self._rules.has_keras_tensors) for call in calls]
            layers.append({**entry, "name": names[name], "inbound_nodes": nodes})
        inputs, outputs = renamed(inputs, names), renamed(outputs, names)
        return {
            "name": config.get("name"),
            "layers": layers,
            "input_layers": encode_ends(inputs, renamed_nested, self._rules.has_keras_tensors),
            "output_layers": encode_ends(outputs, renamed_nested, self._rules.has_keras_tensors),
        }

    def _with_module(self, operation: Mapping[str, Any]) -> Dict[str, Any]:
        """Return the entry of an operation with its module, without which Keras 3 does not find it."""
        class_name = str(operation["class_name"])
        module = operation.get("module") or module_of_operation(class_name)
        if module is None:
            raise TranslationError(
                f"the file has no module for {shown(class_name)}, the class of {shown(operation['name'])}. If it is "
                f"your own class, pass it in custom_objects, or register it with Keras. {_REMEDY}"
            )
        return {"registered_name": class_name, **operation, "module": module}

    def _require_function_layers(self, name: str, entry: Mapping[str, Any]) -> None:
        if not self._rules.has_function_layers:
            raise TranslationError(
                f"the model computes {shown(name)} by {shown(entry['class_name'])}, an operation of Keras 3 that is "
                f"not a layer, and {self._where} has no layers for operations. {_REMEDY}"
            )

    def _name(self, name: str) -> str:
        """Return the name of a layer on the target; Keras 3 takes no slash."""
        return name.replace("/", "_") if self._target == 3 else name

    def _causal(self, translated: Dict[str, Any], class_name: str, config: Mapping[str, Any], call: Call) -> Call:
        """Return a call of an attention layer: up to 2.10, the layer has an argument for a causal mask."""
        accepted = None if self._accepts is None else self._accepts(class_name)
        arguments = {name: value for name, value in call.arguments.items() if name != "use_causal_mask"}
        if not (config.get("causal") or call.arguments.get("use_causal_mask")) or accepted is None:
            return call
        if "causal" in accepted:
            translated["causal"] = True
            return call._replace(arguments=arguments)
        return call._replace(arguments={**arguments, "use_causal_mask": True})

    # Layers

    def _entry(self, entry: Mapping[str, Any]) -> Dict[str, Any]:
        """Return the entry of a layer, which may be a model, without its calls."""
        class_name = _class_name(entry)
        if class_name in (*_FUNCTIONAL, _SEQUENTIAL):
            return self.model(entry)
        layer = shown(entry["config"].get("name"))
        if class_name == "Lambda":
            raise TranslationError(
                f"the layer {layer} is a Lambda, whose code is in the file, and scalekeeper runs no code from a file. "
                f"{_REMEDY}"
            )
        registered = _registered_name(entry)
        if self._custom_names & {class_name, registered}:
            config = {name: self._value(name, value) for name, value in entry["config"].items()}
            return self._custom_entry(class_name, registered, config)
        if is_function_layer(class_name) and self._target == 2 and self._rules.has_function_layers:
            return {"class_name": class_name, "config": dict(entry["config"])}
        if self._target == 3 and class_name in REPLACED_CLASSES:
            class_name, arguments = REPLACED_CLASSES[class_name]
            entry = {**entry, "config": {arguments.get(name, name): each for name, each in entry["config"].items()}}
        accepted = None if self._accepts is None else self._accepts(class_name)
        if self._accepts is not None and accepted is None:
            raise TranslationError(
                f"{self._where} has no layer {shown(class_name)}, the class of the layer {layer}. If it is your own "
                f"class, pass it in custom_objects, or register it with Keras. {_REMEDY}"
            )
        return self._wrapped(class_name, self._layer(class_name, entry, accepted), "keras.layers")

    def _layer(self, class_name: str, entry: Mapping[str, Any], accepted: Optional[Collection[str]]) -> Dict[str, Any]:
        config = with_old_defaults(class_name, entry["config"], self._written_by, self._target)
        config = {name: self._value(name, value, entry["config"].get("name")) for name, value in config.items()}
        if "name" in config:
            config["name"] = self._name(config["name"])
        shape = next((config.pop(name) for name in _SHAPES if config.get(name) is not None), None)
        for name in _SHAPES:
            config.pop(name, None)
        if class_name == "InputLayer":
            config[self._rules.input_shape_key] = shape
            accepted = None if accepted is None else {*accepted, *_SHAPES}
        self._rename(class_name, entry, config)
        known = accepted if accepted is None else {*accepted, "name", "dtype"}
        if class_name == ATTENTION:
            keeps_shapes = self._rules.keeps_attention_shapes if known is None else known.issuperset(ATTENTION_SHAPES)
            _set_attention_shapes(entry, config, keeps_shapes)
        if class_name in RECURRENT and known is not None:
            known.add("zero_output_for_mask")  # every Keras takes it, Keras 2 among **kwargs
        for name, value in list(config.items()):
            if known is not None and name not in known:
                if not self._is_without_effect(class_name, name, value):
                    raise TranslationError(
                        f"{name}={shown(value)} of the layer {shown(config.get('name'))} has no equivalent in "
                        f"{self._where}, whose {class_name} accepts {', '.join(sorted(known))}. {_REMEDY}"
                    )
                del config[name]
        return config

    def _is_without_effect(self, class_name: str, argument: str, value: Any) -> bool:
        """Return whether a layer computes the same without an argument that the target does not have."""
        if value is None or argument in _WITHOUT_EFFECT or argument.endswith("_initializer"):
            return True  # the file has the weights
        if argument == "causal" and class_name in _CAUSAL_LAYERS:
            return True  # it becomes an argument of the call
        return argument in _NEUTRAL and bool(value == _NEUTRAL[argument])

    def _rename(self, class_name: str, entry: Mapping[str, Any], config: Dict[str, Any]) -> None:
        """Rename what another generation calls or writes differently."""
        if class_name == "LeakyReLU":
            slope = config.pop("alpha", config.pop("negative_slope", None))
            config[self._rules.leaky_relu_slope_key] = slope
        if class_name == "BatchNormalization" and isinstance(config.get("axis"), list) and len(config["axis"]) == 1:
            config["axis"] = config["axis"][0]
        if class_name in ("Hashing", "IntegerLookup") and config.get("output_mode", "int") == "int":
            config["dtype"] = "int64"  # of the output; some versions write float32
        if class_name == "Hashing" and config.get("salt") == _NO_SALT:
            config["salt"] = None
        if not self._rules.keeps_seed_generators and isinstance(config.get("seed"), Mapping):
            config["seed"] = None

    # Values

    def _value(self, name: str, value: Any, layer: Any = None) -> Any:
        """Return the translated argument of a layer: a number, a name, or an object with class_name and config."""
        if name == "dtype":
            return self._dtype(value)
        value = _plain(value)
        if name in _LAYERS_INSIDE:
            return [self._entry(each) for each in value] if isinstance(value, list) else value and self._entry(value)
        if name.endswith("activation"):
            return self._activation(name, value, layer)
        if isinstance(value, Mapping) and "class_name" in value:
            return self._object(name, value)
        return value

    def _dtype(self, value: Any) -> Any:
        """Return a dtype or dtype policy. Only its name is kept: a loss scale in it belongs to the optimizer."""
        name = value["config"]["name"] if isinstance(value, Mapping) else value
        if name is None or "_" not in name or self._rules.names_dtype_policies:
            return name
        if self._accepts is not None and self._accepts("Policy") is None:
            raise TranslationError(
                f"{self._where} has no dtype policy, such as {shown(name)}, in a model's configuration. {_REMEDY}"
            )
        return {"class_name": "Policy", "config": {"name": name}}

    def _activation(self, argument: str, value: Any, layer: Any) -> Any:
        if isinstance(value, Mapping):
            if isinstance(value.get("config"), Mapping):
                return self._entry(value)  # a layer
            name = value.get("registered_name")
            value = value["config"] if name in (None, "function") else name
        if not isinstance(value, str):
            return value
        given = value
        if value not in self._custom_names:
            value = activation_for(value, self._written_by, self._target)
            value = self._rules.silu_name if value in ("silu", "swish") else value
        if value in activations() and not self._has_scalekeeper:
            raise TranslationError(
                f"{argument}={shown(given)} of the layer {shown(layer)} means something else in {self._where}. Only "
                f"scalekeeper can keep the meaning: convert for it without -plain. {_REMEDY}"
            )
        if self._target == 3 and (value in self._custom_names or value in activations()):
            # by its name alone, Keras 3 finds its own functions only
            return {"module": "builtins", "class_name": "function", "config": value, "registered_name": "function"}
        names = self._activation_names
        if names is not None and value not in {*names, *self._custom_names, *activations()}:
            raise TranslationError(
                f"{argument}={shown(value)} of the layer {shown(layer)} has no equivalent in {self._where}. If it is "
                f"your own function, pass it in custom_objects, or register it with Keras. {_REMEDY}"
            )
        return value

    def _object(self, argument: str, value: Mapping[str, Any]) -> Any:
        """Return the entry of an initializer, a regularizer or a constraint."""
        class_name, config = _class_name(value), dict(_plain(value["config"] or {}))
        registered = _registered_name(value)
        if self._custom_names & {class_name, registered}:
            return self._custom_entry(class_name, registered, config)
        kind = argument.rpartition("_")[2]
        if kind == "initializer":
            config.pop("dtype", None)
            config.pop("seed", None)  # the file has the weights
        config = {name: each for name, each in config.items() if each is not None}
        if not self._rules.has_derived_initializers:
            if class_name in _SCALINGS:
                scale, distribution = _SCALINGS[class_name]
                config = {"scale": scale, "mode": "fan_in", "distribution": distribution}
                class_name = "VarianceScaling"
            elif kind == "regularizer" and class_name in ("L1", "L2"):
                config = {"l1": config.get("l1", 0.0), "l2": config.get("l2", 0.0)}
                class_name = "L1L2"
        return self._wrapped(class_name, config, _MODULES.get(kind, "keras"))

    def _wrapped(self, class_name: str, config: Any, module: str) -> Dict[str, Any]:
        if not self._rules.writes_modules and self._package is None:
            return {"class_name": class_name, "config": config}
        registered = class_name if ".src." in module else None
        return {"module": module, "class_name": class_name, "config": config, "registered_name": registered}

    def _custom_entry(self, class_name: str, registered: str, config: Any) -> Dict[str, Any]:
        if not self._rules.writes_modules:
            return {"class_name": registered if registered in self._custom_names else class_name, "config": config}
        return {"module": None, "class_name": class_name, "config": config, "registered_name": registered}


def _class_name(entry: Mapping[str, Any]) -> str:
    name = str(entry["class_name"]).rpartition(">")[2]
    return _CLASSES.get(name, name)


def _registered_name(entry: Mapping[str, Any]) -> str:
    return str(entry.get("registered_name") or entry["class_name"])


def _is_operation(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry is not a layer but an operation of Keras 3, whose module is not in H5 files."""
    calls = [node for node in entry["inbound_nodes"] if has_keras_tensors(node)]
    return bool(calls) and not {"trainable", "dtype"} & entry["config"].keys()


def _nested_models(entries: Mapping[str, Mapping[str, Any]]) -> NestedModels:
    functional = [name for name, each in entries.items() if _class_name(each) in _FUNCTIONAL]
    sequential = [name for name, each in entries.items() if _class_name(each) == _SEQUENTIAL and _has_input(each)]
    return NestedModels(functional, sequential)


def _has_input(entry: Mapping[str, Any]) -> bool:
    return _input_shape(entry["config"]["layers"]) is not None


def _input_shape(layers: List[Mapping[str, Any]]) -> Any:
    """Return the input shape of a Sequential model, with the batch size, from its first layer."""
    first = layers[0]["config"] if layers else {}
    return next((_plain(first[name]) for name in _SHAPES if isinstance(first, dict) and first.get(name)), None)


def _dtype_of_input(dtype: Any) -> str:
    name = dtype["config"]["name"] if isinstance(dtype, Mapping) else dtype or "float32"
    return "float32" if name.startswith("mixed") else str(name)


def _set_attention_shapes(entry: Mapping[str, Any], config: Dict[str, Any], keeps_shapes: bool) -> None:
    """Put the input shapes of a MultiHeadAttention where a Keras expects them; remove them for one that does not."""
    given = {name: config.pop(name, None) for name in ATTENTION_SHAPES}
    if keeps_shapes:
        built = entry.get("build_config") or {}
        built = _plain(built.get("shapes_dict", built))
        shapes = {name: given[name] or built.get(name) for name in ATTENTION_SHAPES}
        config.update(shapes, key_shape=shapes["key_shape"] or shapes["value_shape"])


def _plain(value: Any) -> Any:
    """Return lists for the tuples, shapes and arrays that some versions mark as such."""
    if isinstance(value, Mapping):
        if "items" in value and value.get("class_name") in ("__tuple__", "TensorShape"):
            return [_plain(each) for each in value["items"]]
        if value.get("class_name") == "__numpy__":
            return value["config"]["value"]
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


# Losses and metrics


_COMPILED = {"loss": "losses", "metrics": "metrics", "weighted_metrics": "metrics"}
_METRIC_OF_FUNCTION = "MeanMetricWrapper"  # how Keras 2 keeps a metric that was given by its name
_DEFERRED = "auto"  # a loss's reduction in Keras 2, which depends on whether there are replicas


def translate_compile_config(
    training: Optional[Mapping[str, Any]],
    rules: ModelConfigRules,
    writes_modules: bool = False,
    custom_names: Collection[str] = (),
) -> Tuple[Dict[str, Any], List[str]]:
    """Return what a model is compiled with, without its optimizer, for another Keras; and what is dropped.

    Args:
        training: The arguments of ``compile``, as a file of any Keras has them.
        rules: How the target writes configurations.
        writes_modules: Whether classes have their modules although the rules do not ask for it, as in the ``.keras``
            files of Keras 2.
        custom_names: Classes of the user, which are kept.

    Returns:
        The arguments, and a sentence for each object that is dropped.
    """
    training = training or {}
    translation = _CompileTranslation(rules, writes_modules or rules.writes_modules, frozenset(custom_names), [])
    found: Dict[str, Any] = {"loss_weights": training.get("loss_weights")}
    for name, module in _COMPILED.items():
        found[name] = translation.nest(training.get(name), module)
    if rules.lists_no_metrics:
        found["metrics"] = found["metrics"] or []
    return {**found, **rules.compile_defaults}, translation.dropped


class _CompileTranslation(NamedTuple):
    rules: ModelConfigRules
    writes_modules: bool
    custom_names: FrozenSet[str]
    dropped: List[str]

    def nest(self, value: Any, module: str) -> Any:
        """Return the same nest with translated objects; names stay names."""
        if isinstance(value, Mapping) and "class_name" in value:
            return self._object(value, module)
        if isinstance(value, Mapping):
            return {name: self.nest(each, module) for name, each in value.items()}
        if isinstance(value, (list, tuple)):
            found = [self.nest(each, module) for each in value]
            return [new for new, old in zip(found, value) if new is not None or old is None]
        return value

    def _object(self, value: Mapping[str, Any], module: str) -> Any:
        class_name, config = value["class_name"], value.get("config")
        if not isinstance(config, Mapping):
            return config  # the name of a function
        if self.custom_names & {class_name, value.get("registered_name")}:
            return value
        if class_name == _METRIC_OF_FUNCTION:
            function = config.get("fn")
            return function if isinstance(function, str) else config.get("name")
        if value.get("registered_name") not in (None, class_name):
            self.dropped.append(f"{class_name} among the {module}: a custom class")
            return None
        config = {name: each for name, each in config.items() if name != "fn"}  # the class implies it
        if isinstance(config.get("dtype"), Mapping):
            config["dtype"] = config["dtype"]["config"]["name"]
        if not self.rules.defers_loss_reduction and config.get("reduction") == _DEFERRED:
            config["reduction"] = "sum_over_batch_size"
        if not self.rules.keeps_loss_dtype and module == "losses":
            config.pop("dtype", None)
        if not self.writes_modules:
            return {"class_name": class_name, "config": config}
        return {"module": f"keras.{module}", "class_name": class_name, "config": config, "registered_name": None}
