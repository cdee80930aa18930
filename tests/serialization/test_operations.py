"""Operations on tensors are translated between TensorFlow's functions in Keras 2 and the operations of Keras 3."""

import pytest

from scalekeeper import TranslationError
from scalekeeper.serialization.keras._inbound_nodes import Call, Constant, Tensor
from scalekeeper.serialization.keras._operations import encode_function, encode_operation, module_of_operation

X, Y = Tensor("x", 0, 0), Tensor("y", 0, 0)


def history(encoded):
    return encoded["config"]["keras_history"]


def operation(function, call, class_name="TFOpLambda"):
    return encode_operation("it", class_name, {"name": "it", "function": function}, [call])


def test_an_addition():
    """Both tensors are positional arguments of the operation."""
    (entry,) = operation("__operators__.add", Call(X, {"y": Y, "name": None}))
    assert (entry["module"], entry["class_name"], entry["config"]) == ("keras.src.ops.numpy", "Add", {"name": "it"})
    (node,) = entry["inbound_nodes"]
    assert [history(each) for each in node["args"]] == [["x", 0, 0], ["y", 0, 0]]


def test_a_constant_keeps_its_side():
    """In 1 - x, the number comes first."""
    (entry,) = operation("math.subtract", Call(Constant(1.0), {"y": X}))
    assert entry["inbound_nodes"][0]["args"][0] == 1.0


def test_defaults_of_tensorflow():
    """Where TensorFlow and Keras 3 have other defaults, those of TensorFlow are written."""
    (entry,) = operation("math.argmax", Call(X, {}))
    assert entry["config"] == {"name": "it", "axis": 0}
    (entry,) = operation("nn.leaky_relu", Call(X, {}))
    assert entry["config"] == {"name": "it", "negative_slope": 0.2}


def test_a_transposed_matrix():
    """A second operation swaps the last two axes before."""
    swap, product = operation("linalg.matmul", Call(X, {"b": Y, "transpose_b": True, "transpose_a": False}))
    assert (swap["class_name"], swap["config"]["axis1"], swap["config"]["axis2"]) == ("Swapaxes", -1, -2)
    assert [history(each)[0] for each in product["inbound_nodes"][0]["args"]] == ["x", swap["name"]]


def test_what_stands_in_brackets():
    """Slices, numbers, new axes and the ellipsis."""
    spec = [{"start": None, "stop": 4, "step": 2}, None, 1, {"class_name": "__ellipsis__"}]
    (entry,) = operation("__operators__.getitem", Call(X, {"slice_spec": spec}), "SlicingOpLambda")
    key = entry["inbound_nodes"][0]["args"][1]
    assert key[0] == {"class_name": "__slice__", "config": {"start": None, "stop": 4, "step": 2}}
    assert key[1:] == [None, 1, {"class_name": "__ellipsis__", "config": {}}]


def test_bit_masks_of_old_slices():
    """TensorFlow 2.0 to 2.3 write a node of the graph: numbers, and bits that say what to ignore."""
    attributes = {"begin_mask": 1, "end_mask": 9, "ellipsis_mask": 4, "new_axis_mask": 0, "shrink_axis_mask": 2}
    node = {
        "op": "StridedSlice",
        "input": ["x", "begin", "end", "strides"],
        "attr": {**{name: {"i": str(bits)} for name, bits in attributes.items()}, "T": {"type": "DT_FLOAT"}},
    }
    config = {"node_def": node, "constants": {"1": [0, 3, 0, -1], "2": [0, 4, 0, 0], "3": [2, 1, 1, 1]}}
    (entry,) = encode_operation("it", "TensorFlowOpLayer", config, [Call(X, {})])
    first, second, third, fourth = entry["inbound_nodes"][0]["args"][1]
    assert first["config"] == {"start": None, "stop": None, "step": 2}
    assert (second, third["class_name"]) == (3, "__ellipsis__")
    assert fourth["config"] == {"start": -1, "stop": None, "step": 1}


@pytest.mark.parametrize(
    ("op", "inputs", "constants", "attributes", "expected"),
    [
        ("Mul", ["c", "x"], {"0": 2.0}, {}, ("Multiply", {}, [2.0, "x"])),
        (
            "Sum",
            ["x", "axes"],
            {"1": [1, 2]},
            {"keep_dims": {"b": True}},
            ("Sum", {"axis": [1, 2], "keepdims": True}, "x"),
        ),
        ("Cast", ["x"], {}, {"DstT": {"type": "DT_INT32"}}, ("Cast", {"dtype": "int32"}, "x")),
        ("Pack", ["x"], {}, {"axis": {"i": "1"}}, ("Stack", {"axis": 1}, None)),
    ],
)
def test_nodes_of_old_graphs(op, inputs, constants, attributes, expected):
    """Constants go to their positions, attributes become arguments."""
    class_name, config, args = expected
    node = {"op": op, "input": inputs, "attr": attributes}
    (entry,) = encode_operation("it", "TensorFlowOpLayer", {"node_def": node, "constants": constants}, [Call(X, {})])
    assert (entry["class_name"], entry["config"]) == (class_name, {"name": "it", **config})
    if isinstance(args, list):
        found = entry["inbound_nodes"][0]["args"]
        assert [each if isinstance(each, float) else history(each)[0] for each in found] == args


@pytest.mark.parametrize(
    ("function", "call", "word"),
    [
        ("image.resize", Call(X, {"size": [2, 2]}), "'image.resize'"),
        ("reshape", Call(X, {"shape": [Y, -1]}), "shape="),
        ("math.cumsum", Call(X, {"axis": 1, "reverse": True}), "reverse=True"),
        ("math.add", Call(X, {}), "without y"),
        ("__operators__.getitem", Call(X, {"slice_spec": [Y]}), "'__operators__.getitem'"),
    ],
)
def test_what_has_no_equivalent(function, call, word):
    """The error names the layer, the function and the argument."""
    with pytest.raises(TranslationError, match="'it'.*restore") as raised:
        operation(function, call)
    assert word in str(raised.value)


def test_an_operation_becomes_a_function_layer():
    """The first number is a constant of the node, the second an argument of the call."""
    node = {"args": [1.0, {"class_name": "__keras_tensor__", "config": {"keras_history": ["x", 0, 0]}}], "kwargs": {}}
    entry, call = encode_function("it", {"class_name": "Subtract", "config": {"name": "it"}, "inbound_nodes": [node]})
    assert (entry["class_name"], entry["config"]["function"]) == ("TFOpLambda", "math.subtract")
    assert call == Call(Constant(1.0), {"y": X})


def test_an_operation_without_a_function():
    """The error names it."""
    node = {"args": [1.0], "kwargs": {}}
    with pytest.raises(TranslationError, match="'it' by 'Fft', an operation of Keras 3"):
        encode_function("it", {"class_name": "Fft", "config": {"name": "it"}, "inbound_nodes": [node]})


def test_modules_of_operations():
    """H5 files of Keras 3 do not name them."""
    assert module_of_operation("Relu") == "keras.src.ops.nn"
    assert module_of_operation("Fft") is None
