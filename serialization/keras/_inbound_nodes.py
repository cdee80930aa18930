"""How the layers of a functional model are connected: Keras 2 and Keras 3 write it differently, and count differently.

In between, a call is a :class:`Call`, and a tensor is a :class:`Tensor`, whose calls are counted from 0. Keras 2 counts
those of a nested model from 1, as such a model has been called once when it was made; Keras 3 does so only where it
names the outputs of the model around it, and only for functional models.
"""

from typing import Any, Callable, Collection, Dict, List, Mapping, NamedTuple, Sequence

from ...registry.errors import TranslationError, shown

_CONSTANT = "_CONSTANT_VALUE"
_KERAS_TENSOR = "__keras_tensor__"
# class → what its arguments after the first are called
_RECURRENT = dict.fromkeys(
    ("LSTM", "GRU", "SimpleRNN", "RNN", "Bidirectional", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D"),
    ("initial_state", "mask", "training"),
)
_ARGUMENTS: Dict[str, Sequence[str]] = {
    **_RECURRENT,
    "MultiHeadAttention": ("value", "key"),
    "BatchNormalization": ("training", "mask"),
    "Dropout": ("training",),
}


class Tensor(NamedTuple):
    """The output of a layer: of which call, and which of several."""

    layer: str
    call: int
    output: int


class Constant(NamedTuple):
    """A value among the inputs."""

    value: Any


class Call(NamedTuple):
    """One call of a layer: its first argument, a nest of tensors and constants, and the others by name."""

    inputs: Any
    arguments: Dict[str, Any]


class Counting(NamedTuple):
    """The nested models among the layers of a model, whose calls are counted from 1 at some places."""

    functional: Collection[str]
    sequential: Collection[str]  # with an input of their own

    def begins_at(self, layer: str, functional: bool, sequential: bool) -> int:
        return int((functional and layer in self.functional) or (sequential and layer in self.sequential))


# Reading


def is_keras_3_call(node: Any) -> bool:
    return isinstance(node, Mapping)


def read_call(node: Any, class_name: str, counting: Counting, layers: Collection[str]) -> Call:
    """A call as either Keras writes it."""
    return _read_keras_3(node, class_name) if is_keras_3_call(node) else _read_keras_2(node, counting, layers)


def _read_keras_3(node: Mapping[str, Any], class_name: str) -> Call:
    first, *rest = [_revived(each) for each in node["args"]]
    names = _ARGUMENTS.get(class_name, ())
    if len(rest) > len(names):
        raise TranslationError(
            f"{class_name} is called with {len(rest) + 1} arguments, and only that of the first is known: build the "
            "model in code, and call restore"
        )
    arguments = {**dict(zip(names, rest)), **{name: _revived(each) for name, each in node["kwargs"].items()}}
    # Keras 3 notes the phase it was built in, and goes by the phase it is called in
    said = {name: each for name, each in arguments.items() if each is not None and (name, each) != ("training", False)}
    return Call(first, said)


def _revived(value: Any) -> Any:
    if isinstance(value, Mapping) and value.get("class_name") == _KERAS_TENSOR:
        return Tensor(*value["config"]["keras_history"])
    return _mapped(value, _revived)


def _read_keras_2(node: Any, counting: Counting, layers: Collection[str]) -> Call:
    arguments: Dict[str, Any] = {}

    def tensor(layer: str, call: int, output: int) -> Tensor:
        return Tensor(layer, call - counting.begins_at(layer, True, True), output)

    def argument(value: Any) -> Any:
        if _is_place(value) and value[0] in layers:
            return tensor(*value)
        return _mapped(value, argument)

    def first(value: Any) -> Any:
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], str):
            arguments.update(argument(value[3]) if len(value) > 3 else {})
            return Constant(value[2]) if value[0] == _CONSTANT else tensor(*value[:3])
        return _mapped(value, first)

    inputs = first(node)
    is_alone = isinstance(inputs, list) and len(inputs) == 1
    said = {name: each for name, each in arguments.items() if each is not None}
    return Call(inputs[0] if is_alone else inputs, said)


def _is_place(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == 3 and [type(each) for each in value] == [str, int, int]


def read_ends(ends: Any, counting: Counting, is_keras_3: bool) -> Any:
    """A model's inputs or outputs: a tensor, or a nest of them; a list of one is that one."""

    def read(value: Any) -> Any:
        if _is_place(value):
            layer, call, output = value
            return Tensor(layer, call - counting.begins_at(layer, True, not is_keras_3), output)
        return _mapped(value, read)

    found = read(ends)
    return found[0] if isinstance(found, list) and len(found) == 1 else found


# Writing


def written_call(call: Call, class_name: str, counting: Counting, is_keras_3: bool) -> Any:
    """A call as one of the two Keras writes it."""
    return _written_keras_3(call, class_name) if is_keras_3 else _written_keras_2(call, class_name, counting)


def _written_keras_3(call: Call, class_name: str) -> Dict[str, Any]:
    inputs, arguments = call.inputs, dict(call.arguments)
    if class_name in _RECURRENT and isinstance(inputs, list):  # Keras 2 has the states among the inputs
        inputs, arguments["initial_state"] = inputs[0], inputs[1:]
    if arguments.get("training") is False:
        raise TranslationError(
            f"{class_name} is called with training=False, which Keras 3 does not keep: build the model in code with "
            "a layer that is not trainable, and call restore"
        )
    return {"args": [_noted(inputs)], "kwargs": {name: _noted(each) for name, each in arguments.items()}}


def _noted(value: Any) -> Any:
    if isinstance(value, Tensor):
        # its shape and type are not looked at: the layer it comes from knows them
        config = {"shape": [None], "dtype": "float32", "keras_history": list(value)}
        return {"class_name": _KERAS_TENSOR, "config": config}
    return value.value if isinstance(value, Constant) else _mapped(value, _noted)


def _written_keras_2(call: Call, class_name: str, counting: Counting) -> Any:
    inputs, arguments = call.inputs, dict(call.arguments)
    states = arguments.get("initial_state")
    if class_name in _RECURRENT and states is not None and _has_tensor(states):
        inputs = [inputs, *(states if isinstance(states, list) else [states])]
        del arguments["initial_state"]

    def place(tensor: Tensor) -> List[Any]:
        return [tensor.layer, tensor.call + counting.begins_at(tensor.layer, True, True), tensor.output]

    def argument(value: Any) -> Any:
        return place(value) if isinstance(value, Tensor) else _mapped(value, argument)

    written = {name: argument(each) for name, each in arguments.items()}

    def first(value: Any) -> Any:
        if isinstance(value, Tensor):
            return [*place(value), written]
        return [_CONSTANT, -1, value.value, written] if isinstance(value, Constant) else _mapped(value, first)

    return [first(inputs)] if isinstance(inputs, (Tensor, Constant)) else first(inputs)


def written_ends(ends: Any, counting: Counting, is_keras_3: bool) -> Any:
    """A model's inputs or outputs as one of the two Keras writes them."""

    def write(value: Any) -> Any:
        if isinstance(value, Tensor):
            begins_at = counting.begins_at(value.layer, True, not is_keras_3)
            return [value.layer, value.call + begins_at, value.output]
        return _mapped(value, write)

    return [write(ends)] if isinstance(ends, Tensor) and not is_keras_3 else write(ends)


# Nests


def tensors_in(value: Any) -> List[Tensor]:
    """All tensors in a nest."""
    found: List[Tensor] = []

    def collect(each: Any) -> Any:
        if isinstance(each, Tensor):
            found.append(each)
            return each
        return each if isinstance(each, Constant) else _mapped(each, collect)

    collect(value)
    return found


def _has_tensor(value: Any) -> bool:
    return bool(tensors_in(value))


def _mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    """The same nest with what ``function`` makes of each part; what is no nest is left as it is."""
    if isinstance(value, Mapping):
        return {name: function(each) for name, each in value.items()}
    return [function(each) for each in value] if isinstance(value, (list, tuple)) else value


def without_masks(call: Call, operations: Collection[str], computes_masks: bool) -> Call:
    """A call without a mask that an operation of Keras 3 computes: Keras 2 hands masks on by itself.

    ``operations`` are the layers that are mere operations; to use them for anything else can't be translated.
    """

    def used(value: Any) -> List[str]:
        return [tensor.layer for tensor in tensors_in(value) if tensor.layer in operations]

    arguments = {
        name: value for name, value in call.arguments.items() if not (name == "mask" and computes_masks and used(value))
    }
    left = used([call.inputs, arguments])
    if left:
        raise TranslationError(
            f"the model computes {shown(left[0])} by an operation of Keras 3 that is no layer: build the model in "
            "code, and call restore"
        )
    return call._replace(arguments=arguments)
