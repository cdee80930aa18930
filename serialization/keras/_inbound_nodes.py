"""The connections between the layers of a functional model, decoded from and encoded for Keras 2 and Keras 3.

Calls are numbered from 0 here. Keras 2 numbers those of a nested model from 1, because creating the model calls it
once. Keras 3 does so only in the outputs of the outer model, and only for functional models.
"""

from typing import Any, Callable, Collection, Dict, List, Mapping, NamedTuple, Sequence

from ...registry.errors import TranslationError

FUNCTION_LAYERS = ("TFOpLambda", "SlicingOpLambda")  # of Keras 2, for functions of TensorFlow
_CONSTANT = "_CONSTANT_VALUE"
_KERAS_TENSOR = "__keras_tensor__"
# class → names of its call arguments after the first
RECURRENT = dict.fromkeys(
    ("LSTM", "GRU", "SimpleRNN", "RNN", "Bidirectional", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D"),
    ("initial_state", "mask", "training"),
)
_ARGUMENTS: Dict[str, Sequence[str]] = {
    **RECURRENT,
    "MultiHeadAttention": ("value", "key"),
    "BatchNormalization": ("training", "mask"),
    "Dropout": ("training",),
}


class Tensor(NamedTuple):
    """One output of one call of a layer."""

    layer: str
    call: int
    output: int


class Constant(NamedTuple):
    """A constant among the inputs."""

    value: Any


class Call(NamedTuple):
    """One call of a layer: the first argument, a nest of tensors and constants, and the others by name."""

    inputs: Any
    arguments: Dict[str, Any]


class NestedModels(NamedTuple):
    """The names of the models among the layers of a model."""

    functional: Collection[str]
    sequential: Collection[str]  # with an input layer

    def first_call(self, layer: str, functional: bool, sequential: bool) -> int:
        """Return the number of a layer's first call: 1 for nested models of the given kinds, otherwise 0."""
        return int((functional and layer in self.functional) or (sequential and layer in self.sequential))


# Decoding


def has_keras_tensors(node: Any) -> bool:
    """Return whether a call is in the notation of Keras 3."""
    return isinstance(node, Mapping)


def decode_call(node: Any, class_name: str, nested: NestedModels, layers: Collection[str]) -> Call:
    """Return a call that either Keras wrote."""
    return _decode_tensors(node, class_name) if has_keras_tensors(node) else _decode_lists(node, nested, layers)


def _decode_tensors(node: Mapping[str, Any], class_name: str) -> Call:
    first, *rest = [decode_tensor(each) for each in node["args"]]
    names = _ARGUMENTS.get(class_name, ())
    if len(rest) > len(names):
        raise TranslationError(
            f"{class_name} is called with {len(rest) + 1} positional arguments, and the names of {len(names) + 1} are "
            "known: build the model in code, then call scalekeeper.restore(model, path)"
        )
    arguments = {**dict(zip(names, rest)), **{name: decode_tensor(each) for name, each in node["kwargs"].items()}}
    # Keras 3 writes the phase in which the model was built, and replaces it by that of the model's call
    given = {name: each for name, each in arguments.items() if each is not None and name != "training"}
    return Call(first, given)


def decode_tensor(value: Any) -> Any:
    """Return a nest in the notation of Keras 3 with tensors."""
    if isinstance(value, Mapping) and value.get("class_name") == _KERAS_TENSOR:
        return Tensor(*value["config"]["keras_history"])
    return _mapped(value, decode_tensor)


def _decode_lists(node: Any, nested: NestedModels, layers: Collection[str]) -> Call:
    arguments: Dict[str, Any] = {}

    def tensor(layer: str, call: int, output: int) -> Tensor:
        return Tensor(layer, call - nested.first_call(layer, True, True), output)

    def argument(value: Any) -> Any:
        if _is_position(value) and value[0] in layers:
            return tensor(*value)
        return _mapped(value, argument)

    def first(value: Any) -> Any:
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], str):
            arguments.update(argument(value[3]) if len(value) > 3 else {})
            return Constant(value[2]) if value[0] == _CONSTANT else tensor(*value[:3])
        return _mapped(value, first)

    inputs = first(node)
    is_alone = isinstance(inputs, list) and len(inputs) == 1
    given = {name: each for name, each in arguments.items() if each is not None}
    return Call(inputs[0] if is_alone else inputs, given)


def _is_position(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == 3 and [type(each) for each in value] == [str, int, int]


def decode_ends(ends: Any, nested: NestedModels, has_keras_tensors: bool) -> Any:
    """Return the inputs or outputs of a model: a tensor or a nest of tensors; a list of one is that one."""

    def read(value: Any) -> Any:
        if _is_position(value):
            layer, call, output = value
            return Tensor(layer, call - nested.first_call(layer, True, not has_keras_tensors), output)
        return _mapped(value, read)

    found = read(ends)
    return found[0] if isinstance(found, list) and len(found) == 1 else found


# Encoding


def encode_call(call: Call, class_name: str, nested: NestedModels, has_keras_tensors: bool) -> Any:
    """Return a call in the notation of Keras 3, with tensors, or of Keras 2, with lists."""
    return _encode_tensors(call, class_name) if has_keras_tensors else _encode_lists(call, class_name, nested)


def _encode_tensors(call: Call, class_name: str) -> Dict[str, Any]:
    inputs, arguments = call.inputs, dict(call.arguments)
    if class_name in RECURRENT and isinstance(inputs, list):  # Keras 2 has the states there
        inputs, arguments["initial_state"] = inputs[0], inputs[1:]
    if arguments.get("training") is False:
        raise TranslationError(
            f"{class_name} is called with training=False, which Keras 3 does not keep: build the model in code with "
            "a layer that is not trainable, then call scalekeeper.restore(model, path)"
        )
    return {
        "args": [encode_tensor(inputs)],
        "kwargs": {name: encode_tensor(each) for name, each in arguments.items()},
    }


def encode_tensor(value: Any) -> Any:
    """Return a nest of tensors and constants in the notation of Keras 3."""
    if isinstance(value, Tensor):
        # Keras ignores shape and dtype here
        config = {"shape": [None], "dtype": "float32", "keras_history": list(value)}
        return {"class_name": _KERAS_TENSOR, "config": config}
    return value.value if isinstance(value, Constant) else _mapped(value, encode_tensor)


def _encode_lists(call: Call, class_name: str, nested: NestedModels) -> Any:
    inputs, arguments = call.inputs, dict(call.arguments)
    states = arguments.get("initial_state")
    if class_name in RECURRENT and states is not None and _has_tensor(states):
        inputs = [inputs, *(states if isinstance(states, list) else [states])]
        del arguments["initial_state"]

    def position(tensor: Tensor) -> List[Any]:
        return [tensor.layer, tensor.call + nested.first_call(tensor.layer, True, True), tensor.output]

    def argument(value: Any) -> Any:
        return position(value) if isinstance(value, Tensor) else _mapped(value, argument)

    written = {name: argument(each) for name, each in arguments.items()}

    def first(value: Any) -> Any:
        if isinstance(value, Tensor):
            return [*position(value), written]
        return [_CONSTANT, -1, value.value, written] if isinstance(value, Constant) else _mapped(value, first)

    is_alone = isinstance(inputs, (Tensor, Constant)) and class_name not in FUNCTION_LAYERS
    return [first(inputs)] if is_alone else first(inputs)


def encode_ends(ends: Any, nested: NestedModels, has_keras_tensors: bool) -> Any:
    """Return the inputs or outputs of a model in the notation of Keras 3 or of Keras 2."""

    def write(value: Any) -> Any:
        if isinstance(value, Tensor):
            first_call = nested.first_call(value.layer, True, not has_keras_tensors)
            return [value.layer, value.call + first_call, value.output]
        return _mapped(value, write)

    return [write(ends)] if isinstance(ends, Tensor) and not has_keras_tensors else write(ends)


# Nests


def tensors_in(value: Any) -> List[Tensor]:
    """Return all tensors in a nest."""
    found: List[Tensor] = []

    def collect(each: Any) -> Any:
        if isinstance(each, Tensor):
            found.append(each)
            return each
        return each if isinstance(each, Constant) else _mapped(each, collect)

    collect(value)
    return found


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Return the same call or nest with other names of layers."""
    if isinstance(value, Call):
        return Call(renamed(value.inputs, names), renamed(value.arguments, names))
    if isinstance(value, Tensor):
        return value._replace(layer=names.get(value.layer, value.layer))
    return value if isinstance(value, Constant) else _mapped(value, lambda each: renamed(each, names))


def _has_tensor(value: Any) -> bool:
    return bool(tensors_in(value))


def _mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    """Return the same nest with ``function`` applied to each part; other values are returned as they are."""
    if isinstance(value, Mapping):
        return {name: function(each) for name, each in value.items()}
    return [function(each) for each in value] if isinstance(value, (list, tuple)) else value


def without_masks(call: Call, operations: Collection[str], computes_masks: bool) -> Call:
    """Return a call without a mask that an operation of Keras 3 computes: Keras 2 passes masks on by itself."""
    arguments = {
        name: value
        for name, value in call.arguments.items()
        if not (name == "mask" and computes_masks and any(each.layer in operations for each in tensors_in(value)))
    }
    return call._replace(arguments=arguments)
