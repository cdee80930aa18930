"""Operations on the tensors of a functional model: TensorFlow functions in Keras 2, operations of Keras 3.

From TensorFlow 2.4 on, Keras 2 keeps ``x + y`` as a layer ``TFOpLambda`` with the name of a TensorFlow function, and
``x[:, 1]`` as a layer ``SlicingOpLambda``. Before, both are a ``TensorFlowOpLayer`` with a node of TensorFlow's graph.
Keras 3 has a class for each operation, and saves it like a layer.
"""

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from ...registry.errors import TranslationError, shown
from ._inbound_nodes import FUNCTION_LAYERS, Call, Constant, Tensor, decode_tensor, encode_tensor, tensors_in

_LAMBDA, _SLICING = FUNCTION_LAYERS
_NODE = "TensorFlowOpLayer"
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


# the first function of an operation is the one that stands for it in Keras 2
_BINARY = {
    "__operators__.add": "numpy.Add",
    "math.add": "numpy.Add",
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
    "math.divide": "numpy.TrueDivide",
    "__operators__.eq": "numpy.Equal",
    "__operators__.ne": "numpy.NotEqual",
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
    return class_name in (*FUNCTION_LAYERS, _NODE)


# Keras 2 → Keras 3


def encode_operation(name: str, class_name: str, config: Mapping[str, Any], calls: List[Call]) -> List[Dict[str, Any]]:
    """Return the entries of a Keras 3 configuration for a layer of Keras 2 that stands for a TensorFlow function.

    Raises:
        TranslationError: The function, or one of its arguments, has no equivalent.
    """
    function = str(config.get("function"))
    if len(calls) != 1:
        raise _refused(name, function, f"is called {len(calls)} times")
    call = calls[0]
    if class_name == _NODE:
        function, call = _function_of_node(name, config, call)
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


# operation in TensorFlow's graph → function and the names of its inputs after the first
_NODES: Dict[str, Tuple[str, Tuple[str, ...]]] = {
    **{
        op: (f"math.{function}", ("y",))
        for op, function in {
            "Add": "add",
            "AddV2": "add",
            "Equal": "equal",
            "FloorDiv": "floordiv",
            "FloorMod": "floormod",
            "Greater": "greater",
            "GreaterEqual": "greater_equal",
            "Less": "less",
            "LessEqual": "less_equal",
            "Maximum": "maximum",
            "Minimum": "minimum",
            "Mul": "multiply",
            "Pow": "pow",
            "RealDiv": "truediv",
            "Sub": "subtract",
        }.items()
    },
    **{
        op: (f"math.{op.lower()}", ())
        for op in (
            "Abs",
            "Ceil",
            "Cos",
            "Exp",
            "Floor",
            "Log",
            "Log1p",
            "Reciprocal",
            "Rsqrt",
            "Sigmoid",
            "Sign",
            "Sin",
        )
    },
    **{op: (f"math.{op.lower()}", ()) for op in ("Softplus", "Sqrt", "Square", "Tanh")},
    "Neg": ("math.negative", ()),
    **{op: (f"nn.{op.lower()}", ()) for op in ("Elu", "Relu", "Relu6", "Selu", "Softmax", "Softsign")},
    "LogSoftmax": ("nn.log_softmax", ()),
    **{op: (f"math.reduce_{op.lower()}", ("axis",)) for op in ("All", "Any", "Max", "Mean", "Min", "Prod", "Sum")},
    "ArgMax": ("math.argmax", ("axis",)),
    "ArgMin": ("math.argmin", ("axis",)),
    "BatchMatMul": ("linalg.matmul", ("b",)),
    "BatchMatMulV2": ("linalg.matmul", ("b",)),
    "MatMul": ("linalg.matmul", ("b",)),
    "Cast": ("cast", ()),
    "ExpandDims": ("expand_dims", ("axis",)),
    "OneHot": ("one_hot", ("depth", "on_value", "off_value")),
    "Reshape": ("reshape", ("shape",)),
    "SelectV2": ("where", ("x", "y")),
    "Squeeze": ("squeeze", ()),
    "Tile": ("tile", ("multiples",)),
    "Transpose": ("transpose", ("perm",)),
}
# attribute of a node → argument of the function; the others have no effect on the result
_ATTRIBUTES = {
    "adj_x": "transpose_a",
    "adj_y": "transpose_b",
    "transpose_a": "transpose_a",
    "transpose_b": "transpose_b",
    "axis": "axis",
    "keep_dims": "keepdims",
    "squeeze_dims": "axis",
    "DstT": "dtype",
}
_DTYPES = {
    "DT_BOOL": "bool",
    "DT_DOUBLE": "float64",
    "DT_FLOAT": "float32",
    "DT_HALF": "float16",
    "DT_INT32": "int32",
    "DT_INT64": "int64",
}


def _function_of_node(name: str, config: Mapping[str, Any], call: Call) -> Tuple[str, Call]:
    """Return the function and the call that a node of TensorFlow's graph stands for."""
    node = config["node_def"]
    op, constants = str(node["op"]), {int(index): value for index, value in config["constants"].items()}
    given = iter(call.inputs if isinstance(call.inputs, list) else [call.inputs])
    inputs = [constants[index] if index in constants else next(given) for index in range(len(node["input"]))]
    attributes = {key: _attribute(name, op, value) for key, value in node["attr"].items()}
    if op == "StridedSlice":
        return _GET_ITEM, Call(inputs[0], {"slice_spec": _slice_spec(name, inputs[1:], attributes)})
    arguments = {_ATTRIBUTES[key]: value for key, value in attributes.items() if key in _ATTRIBUTES}
    if op == "ConcatV2":
        return "concat", Call(inputs[:-1], {"axis": inputs[-1]})
    if op == "Pack":
        return "stack", Call(inputs, arguments)
    if op not in _NODES:
        raise _refused(name, op, "has no equivalent in Keras 3 that scalekeeper knows")
    function, names = _NODES[op]
    arguments.update(zip(names, inputs[1:]))
    if (arguments.pop("on_value", 1), arguments.pop("off_value", 0)) != (1, 0):
        raise _refused(name, op, "is called with other values than 1 and 0")
    return function, Call(inputs[0], arguments)


def _attribute(name: str, op: str, value: Mapping[str, Any]) -> Any:
    found: Tuple[str, Any] = next(iter(value.items()), ("list", {}))
    kind, content = found
    if kind == "i":
        return int(content)
    if kind == "type":
        return _DTYPES.get(content, content)
    return [int(each) for each in content.get("i", ())] or None if kind == "list" else content


def _slice_spec(name: str, limits: List[Any], masks: Mapping[str, Any]) -> List[Any]:
    """Return what stands in the brackets, from the numbers and bit masks of TensorFlow's operation."""
    if tensors_in(limits):
        raise _refused(name, "StridedSlice", "is called with limits that the model computes")

    def has(mask: str, index: int) -> bool:
        return bool(masks.get(f"{mask}_mask", 0) >> index & 1)

    found: List[Any] = []
    for index, (begin, end, step) in enumerate(zip(*limits)):
        if has("ellipsis", index):
            found.append({"class_name": "__ellipsis__"})
        elif has("new_axis", index):
            found.append(None)
        elif has("shrink_axis", index):
            found.append(begin)
        else:
            start, stop = None if has("begin", index) else begin, None if has("end", index) else end
            found.append({"start": start, "stop": stop, "step": step})
    return found


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


# Keras 3 → Keras 2


def module_of_operation(class_name: str) -> Optional[str]:
    """Return the module of an operation of Keras 3, which H5 files do not name; None if it is not known."""
    names = [each.name for each in _OPERATIONS.values()] + ["numpy.GetItem", "numpy.Swapaxes"]
    return next((f"keras.src.ops.{name.split('.')[0]}" for name in names if name.split(".")[1] == class_name), None)


def encode_function(name: str, entry: Mapping[str, Any]) -> Tuple[Dict[str, Any], Call]:
    """Return the entry and the call of a Keras 2 layer for an operation of Keras 3.

    Raises:
        TranslationError: scalekeeper knows no TensorFlow function for the operation or one of its arguments.
    """
    class_name, (node, *others) = str(entry["class_name"]), entry["inbound_nodes"]
    config = {key: value for key, value in entry["config"].items() if key not in ("name", "dtype")}
    inputs = [decode_tensor(each) for each in node["args"]]
    is_plain = not others and not any(value is not None for value in node["kwargs"].values())
    if class_name == "GetItem" and is_plain:
        key = [_decode_key(each) for each in (inputs[1] if isinstance(inputs[1], list) else [inputs[1]])]
        return _function_entry(name, _SLICING, _GET_ITEM), Call(inputs[0], {"slice_spec": key})
    for function, operation in _OPERATIONS.items():
        names = {own: argument for argument, own in operation.arguments.items()}
        others = {key: value for key, value in config.items() if key not in names}
        if (
            is_plain
            and operation.name.split(".")[1] == class_name
            and len(inputs) == 1 + len(operation.inputs)
            and all(operation.defaults.get(key) == value for key, value in others.items())
        ):
            arguments = {names[key]: value for key, value in config.items() if key in names}
            arguments.update(zip(operation.inputs, inputs[1:]))
            first = Constant(inputs[0]) if isinstance(inputs[0], (int, float)) else inputs[0]
            return _function_entry(name, _LAMBDA, function), Call(first, arguments)
    raise TranslationError(
        f"the model computes {shown(name)} by {shown(class_name)}, an operation of Keras 3 that is not a layer, for "
        "which scalekeeper has no TensorFlow function: build the model in code, then call "
        "scalekeeper.restore(model, path)"
    )


def _decode_key(key: Any) -> Any:
    if isinstance(key, Mapping) and key.get("class_name") == "__slice__":
        return dict(key["config"])
    return {"class_name": "__ellipsis__"} if isinstance(key, Mapping) else key


def _function_entry(name: str, class_name: str, function: str) -> Dict[str, Any]:
    config = {"name": name, "trainable": True, "dtype": "float32", "function": function}
    return {"class_name": class_name, "config": config}


def _refused(name: str, function: str, reason: str) -> TranslationError:
    return TranslationError(
        f"the layer {shown(name)} stands for the TensorFlow function {shown(function)}, which {reason}. Build the "
        "model in code, then call scalekeeper.restore(model, path)."
    )
