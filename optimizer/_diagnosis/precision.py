"""Running the layers of a model in float32, whatever dtype policy they have."""

from typing import Any, Dict, List, Tuple

import numpy as np
import tensorflow as tf

from ...serialization._keras_introspection import all_layers, has_layer_names, installed_keras, is_model

_POLICY, _COMPUTE = "_dtype_policy", "_compute_dtype_object"  # attributes of a layer; the second one from 2.3 to 2.15
_NODE, _CONSTANTS = "node_def", "constants"  # of an operation between layers, up to 2.3, which has its types in them
_REDUCED = ("float16", "bfloat16")


def _types_of(policy: Any) -> Tuple[str, str]:
    # up to 2.0, a policy may leave both open until the layer is called; then they are float32
    compute, variable = (getattr(policy, name, None) for name in ("compute_dtype", "variable_dtype"))
    return str(compute or "float32"), str(variable or "float32")


def reduced_types(model: Any) -> List[str]:
    """Return the types other than float32 that the layers of a model compute in."""
    # Functional and Sequential models compute nothing but what their layers do, and an InputLayer nothing at all
    input_class = installed_keras().layers.InputLayer
    layers = [each for each in all_layers(model) if not (is_model(each) and has_layer_names(each))]
    layers = [each for each in layers if not isinstance(each, input_class)]
    types = {_types_of(getattr(layer, _POLICY, None))[0] for layer in layers}
    return sorted(types & set(_REDUCED))


class Precision:
    """Tells which types layers compute in; on request makes each layer compute in float32.

    A layer that the model does not track is found when it is called.

    The variables stay as they are: Keras casts them to the type that the layer computes in.
    """

    def __init__(self, model: Any, in_float32: bool) -> None:
        self._in_float32 = in_float32
        self._model_types = _types_of(getattr(model, _POLICY, None))
        self._types: Dict[int, Tuple[str, str]] = {}
        self._replaced: List[Tuple[Any, Dict[str, Any]]] = []

    def enter_all(self, model: Any) -> None:
        """Enter all layers of a model at once, as layers ask each other for their types."""
        for layer in all_layers(model):
            self.enter(layer)

    def enter(self, layer: Any) -> Tuple[str, str]:
        """Return the types of a layer's own policy: what it computes in, and that of its variables."""
        known = self._types.get(id(layer))
        if known is not None:
            return known
        policy = getattr(layer, _POLICY, None)
        types = self._model_types if policy is None else _types_of(policy)
        self._types[id(layer)] = types
        # a layer that is not built would get variables that Keras does not cast
        if self._in_float32 and policy is not None and types[0] in _REDUCED and layer.built:
            before = {name: vars(layer)[name] for name in (_POLICY, _COMPUTE) if name in vars(layer)}
            self._replaced.append((layer, before))
            vars(layer)[_POLICY] = _float32_policy()  # not setattr, with which Keras would track it
            if _COMPUTE in before:
                vars(layer)[_COMPUTE] = tf.float32
            if _NODE in vars(layer):
                before.update({name: vars(layer)[name] for name in (_NODE, _CONSTANTS)})
                vars(layer).update({_NODE: _float32_node(layer), _CONSTANTS: _float32_constants(layer)})
        return types

    def restore(self) -> None:
        """Give the layers their own policies back."""
        for layer, before in reversed(self._replaced):
            vars(layer).update(before)
        self._replaced.clear()


def _float32_node(layer: Any) -> Any:
    node = type(vars(layer)[_NODE])()
    node.CopyFrom(vars(layer)[_NODE])
    for attribute in node.attr.values():
        if attribute.type == tf.float16.as_datatype_enum:
            attribute.type = tf.float32.as_datatype_enum
    return node


def _float32_constants(layer: Any) -> Dict[int, Any]:
    arrays = {index: np.asarray(each) for index, each in vars(layer)[_CONSTANTS].items()}
    return {index: each.astype(np.float32) if each.dtype == np.float16 else each for index, each in arrays.items()}


def _float32_policy() -> Any:
    module: Any = installed_keras().mixed_precision
    policies = module if hasattr(module, "Policy") else module.experimental
    return policies.Policy("float32")
