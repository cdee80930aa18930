"""Operations on the tensors of a functional model: TensorFlow functions in Keras 2, operations of Keras 3.

Keras 2 keeps ``x + y`` as a layer ``TFOpLambda`` with the name of a TensorFlow function, ``x[:, 1]`` as a layer
``SlicingOpLambda``. Keras 3 has a class for each operation, and saves it like a layer.
"""

from typing import Any, Dict, List, Mapping, NamedTuple, Tuple

from ...registry.errors import TranslationError, shown
from ._inbound_nodes import Call, Tensor, encode_tensor, tensors_in

FUNCTION_LAYERS = ("TFOpLambda", "SlicingOpLambda")
_GET_ITEM = "__operators__.getitem"


class Operation(NamedTuple):
    """An operation of Keras 3 that computes the same as a TensorFlow function."""

    name: str  # module in keras.src.ops and class
    inputs: Tuple[str, ...] = ()  # TensorFlow's names of the inputs after the first
    arguments: Mapping[str, str] = {}  # TensorFlow's name of an argument → its name in Keras 3
    defaults: Mapping[str, Any] = {}  # TensorFlow's default of arguments, by their names in Keras 3
    neutral: Mapping[str, Any] = {}  # arguments without an equivalent, with the value that has no effect


def _reduction(name: str) -> Operation:
    return Operation(name, (), {"axis": "axis", "keepdims": "keepdims"}, {"axis": None, "keepdims": False})


_BINARY = {
    "__operators__.add": "numpy.Add",
    "__operators__.eq": "numpy.Equal",
    "__operators__.ne": "numpy.NotEqual",
    "math.add": "numpy.Add",
    "math.divide": "numpy.TrueDivide",
    "math.equal": "numpy.Equal",
    "math.floordiv": "numpy.FloorDivide",
    "math.floormod": "numpy.Mod",
    "math.greater": "numpy.Greater",
    "math.greater_equal": "numpy.GreaterEqual",
    "math.less": "numpy.Less",
    "math.less_equal": "numpy.LessEqual",
    "math.logical_and": "numpy.LogicalAnd",
    "math.logical_or": "numpy.LogicalOr",
    "math.maximum": "numpy.Maximum",
    "math.minimum": "numpy.Minimum",
    "math.multiply": "numpy.Multiply",
    "math.not_equal": "numpy.NotEqual",
    "math.pow": "numpy.Power",
    "math.subtract": "numpy.Subtract",
    "math.truediv": "numpy.TrueDivide",
}
_UNARY = {
    "math.abs": "numpy.Absolute",
    "math.ceil": "numpy.Ceil",
    "math.cos": "numpy.Cos",
    "math.exp": "numpy.Exp",
    "math.floor": "numpy.Floor",
    "math.log": "numpy.Log",
    "math.log1p": "numpy.Log1p",
    "math.logical_not": "numpy.LogicalNot",
    "math.negative": "numpy.Negative",
    "math.reciprocal": "numpy.Reciprocal",
    "math.rsqrt": "math.Rsqrt",
    "math.sigmoid": "nn.Sigmoid",
    "math.sign": "numpy.Sign",
    "math.sin": "numpy.Sin",
    "math.softplus": "nn.Softplus",
    "math.sqrt": "numpy.Sqrt",
    "math.square": "numpy.Square",
    "math.tanh": "numpy.Tanh",
    "nn.elu": "nn.Elu",
    "nn.relu": "nn.Relu",
    "nn.relu6": "nn.Relu6",
    "nn.selu": "nn.Selu",
    "nn.silu": "nn.Silu",
    "nn.softplus": "nn.Softplus",
    "nn.softsign": "nn.Softsign",
    "nn.swish": "nn.Silu",
}
_AXIS = {"axis": "axis"}
_TRANSPOSE = Operation("numpy.Transpose", (), {"perm": "axes"}, {"axes": None}, {"conjugate": False})
_SQUEEZE = Operation("numpy.Squeeze", (), _AXIS, {"axis": None}, {"squeeze_dims": None})
_OPERATIONS: Dict[str, Operation] = {
    **{function: Operation(name, ("y",)) for function, name in _BINARY.items()},
    **{function: Operation(name) for function, name in _UNARY.items()},
    **{
        f"math.reduce_{name}": _reduction(f"numpy.{name.title()}")
        for name in ("all", "any", "max", "mean", "min", "prod", "std", "sum")
    },
    "math.reduce_variance": _reduction("numpy.Var"),
    "math.reduce_logsumexp": _reduction("math.Logsumexp"),
    "math.argmax": Operation("numpy.Argmax", (), _AXIS, {"axis": 0}, {"output_type": "int64"}),
    "math.argmin": Operation("numpy.Argmin", (), _AXIS, {"axis": 0}, {"output_type": "int64"}),
    "math.cumsum": Operation(
        "numpy.Cumsum", (), _AXIS, {"axis": 0, "dtype": None}, {"exclusive": False, "reverse": False}
    ),
    "math.l2_normalize": Operation(
        "nn.Normalize", (), {"axis": "axis"}, {"axis": None, "order": 2, "epsilon": 1e-6}, {"epsilon": 1e-12}
    ),
    "nn.gelu": Operation("nn.Gelu", (), {"approximate": "approximate"}, {"approximate": False}),
    "nn.leaky_relu": Operation("nn.LeakyRelu", (), {"alpha": "negative_slope"}, {"negative_slope": 0.2}),
    "nn.softmax": Operation("nn.Softmax", (), _AXIS, {"axis": -1}),
    "nn.log_softmax": Operation("nn.LogSoftmax", (), _AXIS, {"axis": -1}),
    "reshape": Operation("numpy.Reshape", (), {"shape": "newshape"}),
    "transpose": _TRANSPOSE,
    "compat.v1.transpose": _TRANSPOSE,
    "concat": Operation("numpy.Concatenate", (), _AXIS),
    "stack": Operation("numpy.Stack", (), _AXIS, {"axis": 0}),
    "unstack": Operation("core.Unstack", (), {"num": "num", "axis": "axis"}, {"num": None, "axis": 0}),
    "expand_dims": Operation("numpy.ExpandDims", (), _AXIS),
    "squeeze": _SQUEEZE,
    "compat.v1.squeeze": _SQUEEZE,
    "linalg.matmul": Operation(
        "numpy.Matmul",
        ("b",),
        neutral=dict.fromkeys(
            ("transpose_a", "transpose_b", "adjoint_a", "adjoint_b", "a_is_sparse", "b_is_sparse"), False
        ),
    ),
    "cast": Operation("core.Cast", (), {"dtype": "dtype"}),
    "clip_by_value": Operation("numpy.Clip", (), {"clip_value_min": "x_min", "clip_value_max": "x_max"}),
    "one_hot": Operation(
        "nn.OneHot",
        (),
        {"depth": "num_classes", "axis": "axis", "dtype": "dtype"},
        {"axis": -1, "dtype": "float32", "sparse": False},
    ),
    "tile": Operation("numpy.Tile", (), {"multiples": "repeats"}),
    "where": Operation("numpy.Where", ("x", "y")),
}
_TRANSPOSES = {"transpose_a": 0, "transpose_b": 1}


def is_function_layer(class_name: str) -> bool:
    """Return whether a layer of Keras 2 stands for a function of TensorFlow."""
    return class_name in FUNCTION_LAYERS


def encode_operation(name: str, config: Mapping[str, Any], calls: List[Call]) -> List[Dict[str, Any]]:
    """Return the entries of a Keras 3 configuration for a layer of Keras 2 that stands for a TensorFlow function.

    Raises:
        TranslationError: The function, or one of its arguments, has no equivalent.
    """
    function = str(config.get("function"))
    if len(calls) != 1:
        raise _refused(name, function, f"is called {len(calls)} times")
    call = calls[0]
    if function == _GET_ITEM:
        key = call.arguments.get("slice_spec")
        key = key if isinstance(key, list) else [key]
        return [_entry(name, "numpy.GetItem", {}, [call.inputs, [_encode_key(name, each) for each in key]])]
    operation = _OPERATIONS.get(function)
    if operation is None:
        raise _refused(name, function, "has no equivalent in Keras 3 that scalekeeper knows")
    inputs, arguments, entries = [call.inputs], dict(call.arguments), []
    for each in operation.inputs:
        if each not in arguments:
            raise _refused(name, function, f"is called without {each}")
        inputs.append(arguments.pop(each))
    for argument, index in _TRANSPOSES.items() if function == "linalg.matmul" else ():
        if arguments.pop(argument, False):
            added = f"{name}_{argument}"
            entries.append(_entry(added, "numpy.Swapaxes", {"axis1": -1, "axis2": -2}, [inputs[index]]))
            inputs[index] = Tensor(added, 0, 0)
    entries.append(_entry(name, operation.name, _arguments(name, function, operation, arguments), inputs))
    return entries


def _arguments(name: str, function: str, operation: Operation, given: Mapping[str, Any]) -> Dict[str, Any]:
    found = dict(operation.defaults)
    for argument, value in given.items():
        if argument == "name" or value is None:
            continue
        if argument in operation.neutral and value == operation.neutral[argument]:
            continue
        if argument not in operation.arguments or tensors_in(value):
            raise _refused(name, function, f"is called with {argument}={shown(value)}")
        found[operation.arguments[argument]] = value
    absent = [each for each, own in operation.arguments.items() if own not in found]
    if absent:
        raise _refused(name, function, f"is called without {', '.join(absent)}")
    return found


def _encode_key(name: str, key: Any) -> Any:
    """Return one part of what stands in the brackets of ``x[:, 1]``."""
    if isinstance(key, Mapping):
        if key.get("class_name") == "__ellipsis__":
            return {"class_name": "__ellipsis__", "config": {}}
        limits = key.get("config", key)
        if set(limits) == {"start", "stop", "step"} and all(_is_limit(each) for each in limits.values()):
            return {"class_name": "__slice__", "config": dict(limits)}
    if not _is_limit(key):
        raise _refused(name, _GET_ITEM, f"is called with {shown(key)}")
    return key


def _is_limit(value: Any) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def _entry(name: str, operation: str, arguments: Mapping[str, Any], inputs: List[Any]) -> Dict[str, Any]:
    module, class_name = operation.split(".")
    return {
        "module": f"keras.src.ops.{module}",
        "class_name": class_name,
        "config": {"name": name, **arguments},
        "registered_name": class_name,
        "name": name,
        "inbound_nodes": [{"args": encode_tensor(inputs), "kwargs": {}}],
    }


def _refused(name: str, function: str, reason: str) -> TranslationError:
    return TranslationError(
        f"the layer {shown(name)} stands for the TensorFlow function {shown(function)}, which {reason}. Build the "
        "model in code, then call scalekeeper.restore(model, path)."
    )
