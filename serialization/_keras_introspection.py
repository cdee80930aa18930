"""The installed Keras, and what the constructors of its classes accept."""

from typing import Any, Dict, List, Tuple

import importlib
import inspect
import sys
import threading

_KERAS_PACKAGES = frozenset({"keras", "tf_keras", "tensorflow", "tensorflow_core"})
_lock = threading.RLock()
# which from_config of MultiHeadAttention takes in some versions, and the constructor in none
ATTENTION, ATTENTION_SHAPES = "MultiHeadAttention", ("query_shape", "key_shape", "value_shape")


def installed_keras() -> Any:
    """Return TensorFlow's Keras package. From TF 2.15 on it is resolved on first use, one thread at a time."""
    keras = importlib.import_module("tensorflow").keras
    with _lock:
        _ = keras.optimizers
    return keras


def version_of(keras: Any) -> Any:
    """Return the version of a Keras package, as it writes it to files; None if it does not tell."""
    package = sys.modules.get(keras.Model.__module__.split(".")[0])
    return getattr(keras, "__version__", getattr(package, "__version__", None))


def is_keras_3(keras: Any) -> bool:
    """Return whether a Keras package is Keras 3."""
    return hasattr(keras, "Operation")


def all_layers(model: Any) -> List[Any]:
    """Return a model and the layers inside it, at any depth."""
    if hasattr(model, "_flatten_layers"):
        return list(model._flatten_layers())
    layers: Any = getattr(model, "_layers", None) or getattr(model, "layers", ())
    inside = [layer for each in layers for layer in all_layers(each)]
    # up to 2.2, lists and dictionaries that Keras tracks are among the layers
    return [model, *inside] if callable(model) else inside


def finalize_layers(model: Any) -> None:
    """Make layers compute again what they derive from their variables, such as the constants of Normalization.

    Keras does it in some of its own ways of loading only. Functions that Keras has traced hold the old constants, so
    they are traced again. In graph mode the derived values are read from the variables in each run.
    """
    if not importlib.import_module("tensorflow").executing_eagerly():
        return
    default = getattr(installed_keras().layers.Layer, "finalize_state", None)
    layers = [each for each in all_layers(model) if getattr(type(each), "finalize_state", default) is not default]
    for layer in layers:
        layer.finalize_state()
    for name in ("train_function", "test_function", "predict_function") if layers else ():
        if getattr(model, name, None) is not None:
            setattr(model, name, None)


def has_layer_names(model: Any) -> bool:
    """Return whether the configuration of a model lists its layers: it is Functional or Sequential."""
    return getattr(model, "_is_graph_network", None) or hasattr(model, "operations") or hasattr(model, "_functional")


def is_layer(value: Any) -> bool:
    """Return whether an object is a layer or a model."""
    return isinstance(value, installed_keras().layers.Layer)


def is_model(layer: Any) -> bool:
    """Return whether an object is a model; up to TF 2.2, lists that layers track have layers too, but no name."""
    return hasattr(layer, "layers") and hasattr(layer, "name")


def holds_models(layer: Any) -> bool:
    """Return whether a layer is a model, or holds one, as TimeDistributed may."""
    return any(map(is_model, all_layers(layer)))


def functional_models_in(model: Any) -> List[Any]:
    """Return the functional and Sequential models below a model that are in no other one."""
    found = [each for each in all_layers(model)[1:] if is_model(each) and has_layer_names(each)]
    inside = {id(each) for one in found for each in all_layers(one)[1:]}
    return [each for each in {id(each): each for each in found}.values() if id(each) not in inside]


def metric_variables(model: Any) -> List[Any]:
    """Return the variables of metrics that a model has in attributes; Keras 2 counts them among its weights."""
    values = [value for layer in all_layers(model) for value in list(vars(layer).values())]
    return [each for value in values if hasattr(value, "update_state") for each in getattr(value, "weights", ())]


def own_variables(layer: Any) -> List[Any]:
    """Return the variables that a layer has itself, in the order in which Keras saves them."""
    # trainable variables come first, in Keras 3 and in Keras 2
    lists = (f"_{kind}_{name}" for kind in ("trainable", "non_trainable") for name in ("variables", "weights"))
    return [variable for name in lists for variable in vars(layer).get(name) or ()]


def is_user_class(cls: Any) -> bool:
    """Return whether a class is not one of Keras."""
    return package_of(cls) not in _KERAS_PACKAGES


def named_layers_in(layer: Any) -> List[Any]:
    """Return the layers of a model, or the models that another layer holds."""
    if is_model(layer):
        return list(layer.layers)
    models = list(filter(is_model, all_layers(layer)))
    inside = {id(each) for model in models for each in all_layers(model)[1:]}
    return [model for model in models if id(model) not in inside]


def numbers_chosen_names() -> bool:
    """Return whether the second layer of a name has variables such as ``encoder_1/kernel``: up to TF 2.2."""
    return tuple(map(int, importlib.import_module("tensorflow").__version__.split(".")[:2])) < (2, 3)


def package_of(cls: Any) -> str:
    """Return the package that a class comes from, such as ``keras``."""
    package: str = cls.__module__.split(".")[0]
    return package


def keeps_policies(keras: Any) -> bool:
    """Return whether a layer's configuration can hold a dtype policy such as mixed_float16."""
    if is_keras_3(keras):
        return True
    modules: Tuple[Any, Any] = (keras.mixed_precision, getattr(keras.mixed_precision, "experimental", None))
    policy = next(each.Policy for each in modules if hasattr(each, "Policy"))
    return hasattr(inspect.getmodule(policy), "deserialize")


def named_parameters(cls: Any) -> Dict[str, inspect.Parameter]:
    """Return the named parameters of a constructor and of the base constructors that its ``**kwargs`` go to."""
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


def config_parameters(layer_class: Any) -> List[str]:
    """Return the names that the configuration of a layer may hold."""
    takes_shapes = layer_class.__name__ == ATTENTION and "from_config" in vars(layer_class)  # Keras 2 from 2.5 on
    return [*named_parameters(layer_class), *(ATTENTION_SHAPES if takes_shapes else ())]
