"""The kernels that a step executes, what they move, and whether a GPU has them: measured without a GPU.

TensorFlow's profiler lists every operation that runs, and its run metadata has the optimized graph with all types. The
graph is imported once more, which infers the shapes. Which kernels a GPU has is registered in builds with CUDA only:
``record_gpu_kernels`` writes it to a file, which other builds of the same version read.
"""

from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import contextlib
import glob
import importlib
import json
import os
import re
import shutil
import tempfile
from unittest import mock

import tensorflow as tf

from scalekeeper.optimizer._step import gradient_stats
from scalekeeper_test_support.repository import repository_path

GPU_KERNELS = repository_path("benchmarks", "gpu_kernels.json")
VERSION = ".".join(tf.__version__.split(".")[:2])

# They start no work: they pass on a buffer or a part of one, or run on the host.
# fmt: off
_STARTS_NOTHING = frozenset([
    "Const", "Identity", "IdentityN", "ReadVariableOp", "VarHandleOp", "NoOp", "Switch", "_SwitchN", "Merge",
    "Bitcast", "Reshape", "ExpandDims", "Squeeze", "StopGradient", "PreventGradient", "Placeholder", "Shape",
    "ShapeN", "Size", "Rank", "If", "StatelessIf", "While", "StatelessWhile", "LoopCond", "Enter", "Exit",
    "NextIteration", "PartitionedCall", "StatefulPartitionedCall", "_Arg", "_Retval", "_DeviceArg", "_DeviceRetval",
    "_EagerConst", "_Send", "_Recv", "_HostSend", "_HostRecv", "Assert",
])
# fmt: on
_PASS_ON = frozenset({"Identity", "Switch", "Merge", "Reshape", "StopGradient"})
# the argument that decides a conditional
_PREDICATES = {"Switch": "pred", "_SwitchN": "output_index", "If": "cond", "StatelessIf": "cond"}
# what GPU kernels hold in host memory by TensorFlow's convention
_HOST_TYPES = frozenset({"int32", "resource", "string", "variant"})

_PREFIX = "step/"  # a graph is not imported if the name of an operation begins with an underscore


class Input(NamedTuple):
    """A tensor that a kernel reads.

    Attributes:
        argument: The argument of the kernel.
        producer: The operation that computes the tensor, behind those that pass it on.
        op: Its type.
        types: Its attributes that are types, by name.
        output: Its output.
        dtype: The type of the numbers.
    """

    argument: str
    producer: str
    op: str
    types: Mapping[str, str]
    output: str
    dtype: str


class Kernel(NamedTuple):
    """One execution of an operation.

    Attributes:
        name: The name of the operation in the graph.
        op: Its type.
        types: Its attributes that are types, by name.
        bytes: The bytes that it reads and writes, variables included.
        inputs: The tensors that it reads.
    """

    name: str
    op: str
    types: Mapping[str, str] = {}
    bytes: int = 0
    inputs: Sequence[Input] = ()

    @property
    def is_launched(self) -> bool:
        """Whether it starts work on a device."""
        return self.op not in _STARTS_NOTHING

    @property
    def predicate(self) -> Optional[str]:
        """The operation that decides, if this is a conditional or a part of one."""
        argument = _PREDICATES.get(self.op)
        return next((each.producer for each in self.inputs if each.argument == argument), None)


class Cost(NamedTuple):
    """What a step costs: operations that start work, bytes that they move, conditionals that the host waits for."""

    launches: int
    bytes: int
    conditionals: int


def cost_of(kernels: Iterable[Kernel]) -> Cost:
    """Return the sums over the kernels of a step; all switches of one predicate are one conditional."""
    launched = [each for each in kernels if each.is_launched]
    predicates = {each.predicate for each in kernels} - {None}
    return Cost(len(launched), sum(each.bytes for each in launched), len(predicates))


# The executed operations


@contextlib.contextmanager
def _as_for_a_gpu() -> Iterator[None]:
    """Let scalekeeper make the steps that it makes where TensorFlow has a GPU."""
    with mock.patch.object(gradient_stats, "has_gpu", return_value=True):
        yield


@_as_for_a_gpu()
def executed_kernels(make_step: Callable[[], Callable[[], Any]]) -> List[Kernel]:
    """Return the kernels that a call of a step executes, after two calls that do not count.

    Args:
        make_step: Makes the step, a function without arguments that traces another when it is first called.
    """
    context = importlib.import_module("tensorflow.python.eager.context")
    context.enable_run_metadata()
    try:
        step = make_step()
        step()
        step()
        metadata = context.export_run_metadata()
    finally:
        context.disable_run_metadata()
    executed = _profiled(step)
    input_shapes = {each.name: each.input_shapes for each in executed}
    names = {(each.name, each.op) for each in executed}
    graphs = [part for each in metadata.function_graphs for part in each.partition_graphs]
    described: Dict[Tuple[str, str], Kernel] = {}
    for graph in sorted(graphs, key=lambda graph: len(graph.node)):  # of equal names, those of the step itself count
        if any((node.name, node.op) in names for node in graph.node):
            described.update(((each.name, each.op), each) for each in _described(graph, input_shapes))
    kernels = [described.get((each.name, each.op)) or Kernel(each.name, each.op) for each in executed]
    # Newer TensorFlows leave switches out of a profile. One whose predicate was computed was executed.
    computed = {each.name for each in executed}
    return kernels + [each for key, each in described.items() if key not in names and each.predicate in computed]


@_as_for_a_gpu()
def eagerly_executed_kernels(step: Callable[[], Any]) -> List[Kernel]:
    """Return the kernels that a step executes in eager mode."""
    callbacks = importlib.import_module("tensorflow.python.framework.op_callbacks")
    found = []

    def note(op: str, inputs: Any, attributes: Any, outputs: Any, op_name: Any = None, graph: Any = None) -> None:
        definition = op_definition(op)
        given = dict(zip(attributes[::2], attributes[1::2]))
        kinds = {each.name: each.type for each in definition.attr}
        types = {name: tf.as_dtype(value).name for name, value in given.items() if kinds.get(name) == "type"}
        moved = sum(_bytes(each) for each in (*inputs, *outputs))
        found.append(Kernel("", op, types, moved + sum(2 * _bytes_of_variable(each) for each in inputs)))

    step()
    callbacks.add_op_callback(note)
    try:
        step()
    finally:
        callbacks.remove_op_callback(note)
    return found


class _Execution(NamedTuple):
    """An operation in a profile; newer TensorFlows leave out the shapes."""

    name: str
    op: str
    input_shapes: Sequence[Optional[Sequence[int]]]


def _profiled(step: Callable[[], Any]) -> List[_Execution]:
    folder = tempfile.mkdtemp()
    try:
        options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=3, python_tracer_level=0)
        tf.profiler.experimental.start(folder, options)
        step()
        tf.profiler.experimental.stop()
        (path,) = glob.glob(os.path.join(folder, "plugins", "profile", "*", "*.xplane.pb"))
        space = _xplane().XSpace()
        with open(path, "rb") as stream:
            space.ParseFromString(stream.read())
    finally:
        shutil.rmtree(folder)
    return [each for plane in space.planes for each in _executions(plane)]


def _xplane() -> Any:
    """Return the module of the profile's format, which has moved."""
    for package in ("tensorflow.core.profiler.protobuf", "tensorflow.tsl.profiler.protobuf"):
        try:
            return importlib.import_module(package + ".xplane_pb2")
        except ImportError:
            continue
    raise ImportError("this TensorFlow has no xplane_pb2")


def _executions(plane: Any) -> Iterator[_Execution]:
    names = {number: each.name for number, each in plane.event_metadata.items()}
    stats = {number: each.name for number, each in plane.stat_metadata.items()}
    for event in (event for line in plane.lines for event in line.events):
        name, _, op = names[event.metadata_id].rpartition(":")
        if name and op_definition(op) is not None:
            texts = [each.str_value for each in event.stats if stats[each.metadata_id] == "shape"]
            yield _Execution(name, op, _shapes_in(texts[0]) if texts else [])


def _shapes_in(text: str) -> List[Optional[Sequence[int]]]:
    """Return the shapes in the text of a profile; None for a resource.

    >>> _shapes_in("(;float[];double[8,8])")
    [None, [], [8, 8]]
    """
    found = [re.search(r"\[([\d,]*)\]$", each) for each in text.strip("()").split(";")]
    return [each and [int(size) for size in each.group(1).split(",") if size] for each in found]


def op_definition(op: str) -> Any:
    """Return the definition of a type of operation; None if there is no such type."""
    registry = importlib.import_module("tensorflow.python.framework.op_def_registry")
    return registry.get(op)


# The graph


def _described(graph_def: Any, input_shapes: Mapping[str, Sequence[Optional[Sequence[int]]]]) -> Iterator[Kernel]:
    """Return the operations of an optimized graph, with types and sizes."""
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(_with_known_arguments(graph_def, input_shapes), name="")
    original = {node.name: node for node in graph_def.node}
    for node in graph_def.node:
        operation = graph.get_operation_by_name(_PREFIX + node.name)
        moved = sum(_bytes(each) for each in (*operation.inputs, *operation.outputs))
        if node.op.startswith(("Resource", "Assign")):  # it writes a variable, and all but one read it first
            times = 1 if node.op == "AssignVariableOp" else 2
            moved += times * sum(map(_bytes_of_variable, operation.inputs))
        arguments = _arguments(operation, node)
        inputs = [_input(argument, each, original) for argument, each in zip(arguments, operation.inputs)]
        yield Kernel(node.name, node.op, _types(node), moved, tuple(inputs))


def _with_known_arguments(graph_def: Any, input_shapes: Mapping[str, Any]) -> Any:
    """Return the graph with operations in place of its arguments from which shapes can be inferred."""
    observed = {}
    for node in graph_def.node:
        for name, shape in zip(node.input, input_shapes.get(node.name, ())):
            observed[name] = shape
    known = tf.compat.v1.GraphDef()
    known.library.CopyFrom(graph_def.library)
    for node in graph_def.node:
        copied = known.node.add()
        copied.CopyFrom(node)
        copied.name = _PREFIX + node.name
        del copied.input[:]
        for each in node.input:
            copied.input.append("^" + _PREFIX + each[1:] if each[0] == "^" else _PREFIX + each)
        copied.attr.pop("_class", None)  # of a node that may come later
        copied.device = ""
        if node.op in ("_Arg", "_DeviceArg"):
            copied.attr.clear()
            shapes = node.attr["_handle_shapes" if "_handle_shapes" in node.attr else "_output_shapes"].list.shape
            dtypes = node.attr["_handle_dtypes"].list.type
            shape = shapes[0] if shapes else tf.TensorShape(observed.get(node.name)).as_proto()
            copied.attr["shape"].shape.CopyFrom(shape)
            copied.attr["dtype"].type = dtypes[0] if dtypes else node.attr["T"].type
            copied.op = "VarHandleOp" if dtypes else "Placeholder"
    return known


def _arguments(operation: Any, node: Any) -> List[str]:
    """Return for each input the argument of the operation that it belongs to."""
    if node.op in ("_Arg", "_DeviceArg"):
        return []
    found = []
    for each in op_definition(node.op).input_arg:
        count = 1
        if each.number_attr:
            count = node.attr[each.number_attr].i
        elif each.type_list_attr:
            count = len(node.attr[each.type_list_attr].list.type)
        found += [each.name] * count
    return found


def _input(argument: str, tensor: Any, original: Mapping[str, Any]) -> Input:
    operation = tensor.op
    while operation.type in _PASS_ON and operation.inputs:
        tensor = operation.inputs[0]
        operation = tensor.op
    node = original[operation.name[len(_PREFIX) :]]
    outputs = op_definition(node.op).output_arg
    output = outputs[min(tensor.value_index, len(outputs) - 1)].name if outputs else ""
    return Input(argument, node.name, node.op, _types(node), output, tensor.dtype.base_dtype.name)


def _types(node: Any) -> Dict[str, str]:
    return {name: tf.as_dtype(each.type).name for name, each in node.attr.items() if each.type and name[0] != "_"}


def _bytes(tensor: Any) -> int:
    """Return the size of a tensor; 0 for a resource, and for one of unknown shape."""
    if tensor.dtype in (tf.resource, tf.string, tf.variant) or not tensor.shape.is_fully_defined():
        return 0
    return int(tensor.shape.num_elements() * tensor.dtype.base_dtype.size)


def _bytes_of_variable(tensor: Any) -> int:
    """Return the size of the variable that a tensor is the resource of; 0 for any other tensor."""
    if tensor.dtype != tf.resource:
        return 0
    if hasattr(tensor, "numpy"):  # in eager mode
        (described,) = tensor._handle_data.shape_and_type
        return int(tf.TensorShape(described.shape).num_elements() * tf.as_dtype(described.dtype).size)
    operation = tensor.op
    while operation.type in _PASS_ON:
        operation = operation.inputs[0].op
    if operation.type != "VarHandleOp":
        return 0
    return int(tf.TensorShape(operation.get_attr("shape")).num_elements() * operation.get_attr("dtype").size)


# The kernels of a GPU


def registered_gpu_kernels(ops: Iterable[str]) -> Dict[str, List[Dict[str, Any]]]:
    """Return the kernels for GPUs of these types of operations: which types they take, what they want on the host.

    It is empty in a build without CUDA.
    """
    kernels = importlib.import_module("tensorflow.python.framework.kernels")
    found: Dict[str, List[Dict[str, Any]]] = {}
    for op in sorted(set(ops)):
        rows = []
        for kernel in kernels.get_registered_kernels_for_op(op).kernel:
            if kernel.device_type in ("GPU", "DEFAULT"):
                types = {
                    each.name: sorted(tf.as_dtype(number).name for number in each.allowed_values.list.type)
                    for each in kernel.constraint
                }
                rows.append({"types": types, "host": sorted(kernel.host_memory_arg)})
        unique = {json.dumps(row, sort_keys=True): row for row in rows}
        found[op] = [unique[key] for key in sorted(unique)]
    return found


def recorded_gpu_kernels(path: str = GPU_KERNELS) -> Dict[str, List[Dict[str, Any]]]:
    """Return what was recorded with the build of this TensorFlow that has CUDA; empty if nothing was."""
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as stream:
        return dict(json.load(stream).get(VERSION, {}))


def record_gpu_kernels(ops: Iterable[str], path: str = GPU_KERNELS) -> None:
    """Add the kernels of these types of operations to what is recorded for this TensorFlow."""
    content: Dict[str, Any] = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as stream:
            content = json.load(stream)
    content[VERSION] = dict(sorted({**content.get(VERSION, {}), **registered_gpu_kernels(ops)}.items()))
    lines = [
        f'"{version}": {{\n' + ",\n".join(f'  "{op}": {json.dumps(rows)}' for op, rows in table.items()) + "\n}"
        for version, table in sorted(content.items(), key=lambda item: [int(part) for part in item[0].split(".")])
    ]
    with open(path + ".new", "w", encoding="utf-8") as stream:
        stream.write("{\n" + ",\n".join(lines) + "\n}\n")
    os.replace(path + ".new", path)


GpuKernels = Mapping[str, Sequence[Mapping[str, Any]]]


def gpu_kernel(op: str, types: Mapping[str, str], gpu_kernels: GpuKernels) -> Optional[Mapping[str, Any]]:
    """Return the kernel that a GPU has for an operation with these types; None if it has none."""
    for row in gpu_kernels.get(op, ()):
        if all(types.get(name) in allowed for name, allowed in row["types"].items() if name in types):
            return row
    return None


def without_gpu_kernel(kernels: Iterable[Kernel], gpu_kernels: GpuKernels) -> List[str]:
    """Return the operations that have no version for a GPU, or none for their types."""
    missing = (each for each in kernels if each.is_launched and gpu_kernel(each.op, each.types, gpu_kernels) is None)
    return sorted({f"{each.op} {dict(sorted(each.types.items()))}" for each in missing})


def copies_to_host(kernels: Iterable[Kernel], gpu_kernels: GpuKernels) -> List[str]:
    """Return the inputs that GPU kernels want in host memory and that a kernel computes on the device.

    The predicates of conditionals are not among them: ``cost_of`` counts them.
    """
    found = set()
    for kernel in kernels:
        row = gpu_kernel(kernel.op, kernel.types, gpu_kernels)
        for each in kernel.inputs if row is not None else ():
            is_wanted = each.argument in row["host"] and each.argument != _PREDICATES.get(kernel.op)
            if is_wanted and not _is_on_host(each, gpu_kernels):
                found.add(f"{kernel.op}.{each.argument} from {each.op}: {kernel.name} from {each.producer}")
    return sorted(found)


def _is_on_host(tensor: Input, gpu_kernels: GpuKernels) -> bool:
    if tensor.dtype in _HOST_TYPES or tensor.op == "Const":  # the optimizer makes a copy of a constant where it is read
        return True
    row = gpu_kernel(tensor.op, tensor.types, gpu_kernels)
    return row is None or tensor.output in row["host"]
