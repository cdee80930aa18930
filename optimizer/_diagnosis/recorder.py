"""Recording of layers, gradients and operations while a model runs eagerly.

One mechanism serves every Keras generation: ``Layer.__call__`` is replaced for the duration. Inputs and outputs pass
through an identity with a gradient of its own, which sees activations on the way forward and gradients on the way back,
whichever code records the tape. TensorFlow reports every operation to a callback.
"""

from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import contextlib
import functools
import importlib
import math
import re
import threading

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from ...diagnosis._magnitudes import largest_magnitude
from ...diagnosis._recording import (
    ACTIVATIONS,
    BACKWARD,
    FORWARD,
    GRADIENTS,
    LOSS,
    WEIGHT_GRADIENTS,
    WEIGHTS,
    Constant,
    LayerRecord,
    Operation,
    OperationRecord,
    Origin,
    RunRecord,
)
from ...serialization._keras_introspection import installed_keras, package_of
from ...serialization._variables import values_of, weights_of

_SEEN = "_scalekeeper_seen"  # attribute of an output that is recorded already
_CONSTANT = "_scalekeeper_constant"  # attribute of a result that is computed from constants alone
_LAYER = "_scalekeeper_layer"  # attribute of a result: the layer that has computed it on the way forward
_OPERATION_LAYERS = ("TensorFlowOpLayer", "TFOpLambda", "ClassMethod", "InstanceMethod", "SlicingOpLambda")
_KERAS_PACKAGES = ("keras", "tf_keras", "tensorflow", "tensorflow_core")
# operations that compute nothing, so their results need no look
_MOVES = frozenset(
    [
        "AssignVariableOp",
        "BroadcastTo",
        "ExpandDims",
        "GatherV2",
        "Identity",
        "IdentityN",
        "IteratorGetNext",
        "NoOp",
        "Pack",
        "ReadVariableOp",
        "Reshape",
        "ResourceGather",
        "Slice",
        "Split",
        "SplitV",
        "Squeeze",
        "StridedSlice",
        "Tile",
        "Transpose",
        "Unpack",
        "VarHandleOp",
    ]
)
_ADDS = frozenset(["Add", "AddV2", "BiasAdd", "Maximum", "Minimum", "Sub"])
_DIVISORS = {"Div": 1, "RealDiv": 1, "Xdivy": 1, "Log": 0, "Reciprocal": 0, "Inv": 0, "Rsqrt": 0}
_SUMS = frozenset(["LogSoftmax", "Mean", "Softmax"])
_FUNCTION = re.compile(r"__(?:inference|forward|backward)_+(.*?)(?:_\d+)*")  # what TensorFlow calls a traced function


def _tape_functions() -> Any:
    """Return the module with ``record_operation`` and ``stop_recording``."""
    try:
        return importlib.import_module("tensorflow.python.eager.record")
    except ImportError:  # the name in older versions
        return importlib.import_module("tensorflow.python.eager.tape")


_tape = _tape_functions()


class _Scope(NamedTuple):
    """A layer that is being called."""

    record: LayerRecord
    prefix: str  # of the paths of the layers in it
    merges: bool  # whether layers in it count as a part of it
    operation: Optional[str]  # of a layer that is an operation and runs it as a traced function: up to 2.3


class _Event(NamedTuple):
    """A non-finite number that was seen."""

    kind: str  # "in", "out", "gradient in", "gradient out", "operation", "loss", "weights"
    layer: str
    operation: Optional[str]
    phase: str
    samples: Tuple[int, ...]
    is_source: bool = False  # whether an operation made it of finite numbers


def is_eager(tensor: Any) -> bool:
    """Return whether an object is a tensor with a value."""
    return isinstance(tensor, tf.Tensor) and hasattr(tensor, "_numpy")


def _is_number(tensor: Any) -> bool:
    return is_eager(tensor) and tensor.dtype.is_floating


def _array(tensor: Any) -> Any:
    return tensor._numpy()  # does not copy


class Recorder:
    """Records a run.

    Args:
        model: The model, whose own name is left out of the paths of its layers.
        on_enter: Called with each layer before it is called; returns its compute type and variable type.
        is_counting: Whether to count magnitudes, and not only to look for non-finite numbers.
        is_prediction: Whether the gradients of float32 layers count among those that float16 has to hold.
    """

    def __init__(
        self, model: Any, on_enter: Callable[[Any], Tuple[str, str]], is_counting: bool, is_prediction: bool
    ) -> None:
        keras = installed_keras()
        self.run = RunRecord()
        self._model, self._on_enter = model, on_enter
        self._is_counting, self._is_prediction = is_counting, is_prediction
        self._model_class, self._wrapper_class = keras.Model, keras.layers.Wrapper
        self._layer_class, self._lambda_class = keras.layers.Layer, keras.layers.Lambda
        self._symbol_class = getattr(keras, "KerasTensor", ())
        self._thread = threading.get_ident()
        self._stack: List[_Scope] = []
        self._scopes: Dict[int, _Scope] = {}
        self._layers: List[Any] = []
        self._owners: Dict[int, LayerRecord] = {}
        self._known_layers = 0  # whose variables have an owner
        self._phase, self._is_busy = FORWARD, False
        self._last_gradient: Optional[str] = None  # the layer whose output's gradient was seen last
        self._events: List[_Event] = []
        self._largest_gradient, self._batch_size, self._is_data_finite = 0.0, 0, True
        self.inputs: Any = None  # of the model, at its first call
        self.is_paused = False

    # Batches

    def begin_batch(self, samples: int, is_finite: bool) -> None:
        """Forget what was seen of the batch before; this one has so many samples, finite ones or not."""
        self._is_data_finite = is_finite
        self._events.clear()
        self._batch_size = samples
        self._largest_gradient, self._phase, self._last_gradient = 0.0, FORWARD, None

    def end_batch(self) -> None:
        """Find where the first non-finite number of the batch came from."""
        if self.run.origin is None:
            self.run.origin = self._origin()
        self.run.largest_gradients.append(self._largest_gradient)
        self.run.batches += 1

    def _origin(self) -> Optional[Origin]:
        """Return the origin of a loss or a gradient that is not finite."""
        events = self._events
        end = next((number for number, each in enumerate(events) if each.kind in ("loss", "weights")), None)
        if end is None:
            return None
        consequence, events = events[end], events[:end]
        phase = FORWARD if consequence.kind == "loss" else BACKWARD
        # with NaN in the data, every input has it: look for the first layer that passes it on
        kinds = (
            (("in", "out") if self._is_data_finite else ("out",))
            if phase == FORWARD
            else ("gradient in", "gradient out")
        )
        events = [each for each in events if each.phase == phase]
        edge = next((each for each in events if each.kind in kinds), None)
        operations = [each for each in events if each.kind == "operation"]
        layer = self._faulty(edge, operations, consequence)
        inside = [each for each in operations if each.layer == layer] or operations
        operation = inside[0].operation if inside else None
        return Origin(layer, operation, phase, self.run.batches, () if edge is None else edge.samples)

    def _faulty(self, edge: Optional[_Event], operations: List[_Event], consequence: _Event) -> str:
        """Return the layer where the first non-finite number was made.

        It is the layer whose output was the first, or on the way back whose input's gradient was. If another edge was
        the first, the number was made between layers: by the layer around them, or by the loss.
        """
        if edge is None:  # the loss, a penalty that a layer adds to it, or a layer whose inputs need no gradient
            if consequence.kind == "loss":
                sources = [each.layer for each in operations if each.is_source]
                return LOSS if LOSS in sources or not sources else sources[-1]
            return operations[0].layer if operations else consequence.layer
        if edge.kind in ("out", "gradient in"):
            return edge.layer
        return operations[0].layer if operations else LOSS

    # Layers

    def call(self, original: Callable[..., Any], layer: Any, args: Any, kwargs: Any) -> Any:
        """Call a layer and record its inputs and outputs."""
        if not self._is_in_run() or not tf.executing_eagerly():
            return original(layer, *args, **kwargs)
        if self.is_paused or any(map(self._is_symbolic, _flat((args, kwargs)))):
            self._on_enter(layer)
            return original(layer, *args, **kwargs)
        scope = self._scope_of(layer)
        self._stack.append(scope)
        try:
            if layer is self._model and self.inputs is None and args:
                self.inputs = args[0]
            watched = self._mapped(functools.partial(self._watch_input, scope), args)
            outputs = original(layer, *watched, **kwargs)
        finally:
            self._stack.pop()
        return self._mapped(functools.partial(self._watch_output, scope), outputs)

    def _is_in_run(self) -> bool:
        """Return whether this thread runs the model: the one that began, or that of a strategy's only replica."""
        return threading.get_ident() == self._thread or hasattr(threading.current_thread(), "replica_id")

    def _is_symbolic(self, value: Any) -> bool:
        return isinstance(value, self._symbol_class) or (isinstance(value, tf.Tensor) and not is_eager(value))

    def _mapped(self, function: Callable[[Any], Any], nest: Any) -> Any:
        try:
            return tf.nest.map_structure(function, nest)
        except (TypeError, ValueError):  # a structure that TensorFlow does not know
            return nest

    def _scope_of(self, layer: Any) -> _Scope:
        if id(layer) in self._scopes:
            self._on_enter(layer)
            return self._scopes[id(layer)]
        compute_dtype, variable_dtype = self._on_enter(layer)
        around = self._stack[-1] if self._stack else None
        if around is not None and around.merges:
            scope = around
        else:
            prefix = around.prefix if around is not None else ""
            path = self._unique(prefix + layer.name)
            cls = type(layer)
            is_of_keras = package_of(cls) in _KERAS_PACKAGES
            is_built_in = is_of_keras and not self._is_user_code(layer)
            record = LayerRecord(path, cls.__name__, is_built_in, compute_dtype, variable_dtype)
            is_container = isinstance(layer, (self._model_class, self._wrapper_class))
            merges = is_of_keras and not is_container
            operation = getattr(vars(layer).get("node_def"), "op", None)
            scope = _Scope(record, "" if layer is self._model else path + "/", merges, operation)
            self.run.layers[path] = record
            record.trainable = bool(getattr(layer, "trainable", True))
        self._scopes[id(layer)] = scope
        self._layers.append(layer)  # keeps the identifier valid
        return scope

    def _is_user_code(self, layer: Any) -> bool:
        """Return whether a layer of Keras does what the caller wrote: a function, or an operation between layers."""
        is_operation = not isinstance(layer, self._layer_class) or type(layer).__name__ in _OPERATION_LAYERS
        return is_operation or isinstance(layer, self._lambda_class)

    def _unique(self, path: str) -> str:
        names = (path if not number else f"{path}#{number}" for number in range(len(self.run.layers) + 1))
        return next(name for name in names if name not in self.run.layers)

    def _watch_input(self, scope: _Scope, tensor: Any) -> Any:
        return self._watched(scope, tensor, False) if _is_number(tensor) else tensor

    def _watch_output(self, scope: _Scope, tensor: Any) -> Any:
        if not _is_number(tensor) or hasattr(tensor, _SEEN):  # an output of a layer inside is that layer's
            return tensor
        return self._watched(scope, tensor, True)

    def _watched(self, scope: _Scope, tensor: Any, is_output: bool) -> Any:
        record = scope.record
        array = _array(tensor)
        if array.size:
            largest = largest_magnitude(array)
            if is_output:
                record.output_dtypes.add(tensor.dtype.name)
                if self._is_counting:
                    record.counted(ACTIVATIONS).observe(array, largest)
            if not math.isfinite(largest):
                self._add("out" if is_output else "in", record.path, None, FORWARD, array)

        def gradient(upstream: Any) -> Any:
            self._see_gradient(record, upstream, is_output)
            return [upstream]

        self._is_busy, was_busy = True, self._is_busy
        try:
            with _tape.stop_recording():
                result = tf.raw_ops.Identity(input=tensor)  # tf.identity of 2.0 returns the tensor itself
            # as tf.custom_gradient does, which inspects the signature of its function each time
            _tape.record_operation("Identity", [result], [tensor], gradient)
        finally:
            self._is_busy = was_busy
        setattr(result, _SEEN, True)
        if hasattr(tensor, "_keras_mask"):
            result._keras_mask = tensor._keras_mask
        return result

    def _see_gradient(self, record: LayerRecord, gradient: Any, is_output: bool) -> None:
        if not _is_number(gradient):
            return
        if is_output:
            self._last_gradient = record.path
        array = _array(gradient)
        if not array.size:
            return
        largest = largest_magnitude(array)
        if not math.isfinite(largest):
            self._add("gradient out" if is_output else "gradient in", record.path, None, BACKWARD, array)
        elif is_output:
            self._count_gradient(record, largest)
        if is_output:
            record.counted(GRADIENTS).observe(array, largest)

    def _count_gradient(self, record: LayerRecord, largest: float) -> None:
        if self._is_prediction or record.compute_dtype == "float16":
            self._largest_gradient = max(self._largest_gradient, largest)

    def _add(
        self, kind: str, layer: str, operation: Optional[str], phase: str, array: Any, is_source: bool = False
    ) -> None:
        samples = _samples(array) if kind != "operation" and array.ndim and len(array) == self._batch_size else ()
        self._events.append(_Event(kind, layer, operation, phase, samples, is_source))

    # Variables

    def see_gradients(self, target: Any, sources: Any, gradients: Any) -> None:
        """Record the result of ``tape.gradient``."""
        self._own_variables()
        for source, gradient in zip(tf.nest.flatten(sources), _flat(gradients)):
            record = self._owners.get(id(source))
            if record is None:
                continue
            name = str(getattr(source, "path", source.name)).split(":")[0]
            record.asked += 1
            if gradient is None:
                record.disconnected.add(name)
                continue
            values = getattr(gradient, "values", gradient)
            if not _is_number(values) or not _array(values).size:
                continue
            array = _array(values)
            largest = largest_magnitude(array)
            record.counted(WEIGHT_GRADIENTS).observe(array, largest)
            if not math.isfinite(largest):
                self._events.append(_Event("weights", record.path, None, BACKWARD, ()))
            else:
                self._count_gradient(record, largest)

    def _own_variables(self) -> None:
        """Find the layer of each variable: the innermost one that has it."""
        if self._known_layers == len(self._layers):
            return
        self._known_layers = len(self._layers)
        owned = sorted(((layer, _weights_of(layer)) for layer in self._layers), key=lambda pair: -len(pair[1]))
        for layer, variables in owned:
            for variable in variables:
                for each in (variable, getattr(variable, "_value", None)):
                    if each is not None:
                        self._owners[id(each)] = self._scopes[id(layer)].record

    def see_weights(self) -> None:
        """Record the weights of all layers that were called."""
        self._own_variables()
        done = set()
        for layer in self._layers:
            for variable in _weights_of(layer):
                record = self._owners[id(variable)]
                if id(variable) in done or not tf.as_dtype(variable.dtype).is_floating:
                    continue
                done.add(id(variable))
                record.counted(WEIGHTS).observe(values_of([variable])[0])

    def layer_of_variable(self, variable: Any) -> Optional[str]:
        """Return the path of the layer that a variable belongs to."""
        self._own_variables()
        record = self._owners.get(id(variable))
        return None if record is None else record.path

    # Operations

    def see_operation(
        self, op_type: Any, inputs: Any, attrs: Any, outputs: Any, op_name: Any = None, graph: Any = None
    ) -> None:
        """Record an operation; TensorFlow calls this after each, in some places with these names of the arguments."""
        if graph is not None or self._is_busy or self.is_paused or not self._is_in_run():
            return
        kind = op_type.decode() if isinstance(op_type, bytes) else str(op_type)
        function = _FUNCTION.fullmatch(kind)
        if function is not None:
            kind = (self._stack[-1].operation if self._stack else None) or function[1]
        self._is_busy = True
        try:
            self._record_operation(kind, inputs, outputs)
        finally:
            self._is_busy = False

    def _record_operation(self, kind: str, inputs: Any, outputs: Any) -> None:
        if self._phase == FORWARD:
            layer = self._stack[-1].record.path if self._stack else LOSS
            self._see_constants(layer, kind, inputs, outputs)
            for output in outputs:
                if is_eager(output):
                    setattr(output, _LAYER, layer)
        else:  # the layer whose result the operation uses; or else the one whose output's gradient was seen last
            used = next((each for each in inputs if hasattr(each, _LAYER)), None)
            layer = (self._last_gradient or LOSS) if used is None else getattr(used, _LAYER)
        if kind in _MOVES:
            return
        for output in outputs:
            if not _is_number(output):
                continue
            array = _array(output)
            if array.size:
                self._measure(Operation(layer, kind, self._phase), inputs, array, output.dtype.name)

    def _measure(self, operation: Operation, inputs: Any, array: Any, dtype: str) -> None:
        record = self.run.operations.setdefault(operation, OperationRecord())
        record.dtypes.add(dtype)
        largest = largest_magnitude(array)
        if not math.isfinite(largest):
            record.overflowed = True
            arrays = [_array(each) for each in inputs if _is_number(each)]
            is_source = all(math.isfinite(largest_magnitude(each)) for each in arrays if each.size)
            self._add("operation", operation.layer, operation.type, operation.phase, array, is_source)
        elif largest > record.largest:
            record.largest, record.is_sum_inside = largest, False
        if self._is_counting and operation.phase == FORWARD:
            self._measure_inside(record, operation.type, inputs, array, largest)

    @staticmethod
    def _measure_inside(record: OperationRecord, kind: str, inputs: Any, array: Any, largest: float) -> None:
        """Measure a divisor, or a sum that the operation computes on the way."""
        if kind in _DIVISORS and _is_number(inputs[_DIVISORS[kind]]):
            divisor = np.abs(_array(inputs[_DIVISORS[kind]]))
            divisor = divisor[divisor > 0]
            if divisor.size:
                smallest = float(divisor.min())
                record.smallest_divisor = min(smallest, record.smallest_divisor or math.inf)
        if kind not in _SUMS or not math.isfinite(largest):
            return
        if kind == "Mean":
            inside = largest * (_array(inputs[0]).size / array.size)
        else:  # the largest result belongs to the term 1 of the sum
            peaks = np.max(array.astype(np.float64), axis=-1)
            lowest = float(np.min(np.exp(peaks) if kind == "LogSoftmax" else peaks))
            inside = 1 / lowest if lowest > 0 else math.inf
        if inside > record.largest:
            record.largest, record.is_sum_inside = inside, True

    def _see_constants(self, layer: str, kind: str, inputs: Any, outputs: Any) -> None:
        """Follow constants through operations, and record those that are added to, or compared with, other numbers."""
        values = [_constant_of(each) for each in inputs]
        if inputs and all(value is not None for value in values):
            known = values[0] if kind in ("Cast", "Identity") else None
            for output in outputs:
                if is_eager(output):
                    setattr(output, _CONSTANT, known)
            return
        for output in outputs:
            if is_eager(output):
                setattr(output, _CONSTANT, False)
        if kind in _ADDS and any(value is None for value in values):
            for value, each in zip(values, inputs):
                if value is not None and _is_number(each):
                    is_lost = each.dtype == tf.float16 and not _array(each)
                    self.run.constants.add(Constant(layer, kind, 0.0 if is_lost else value))

    # Phases

    @contextlib.contextmanager
    def backward(self) -> Iterator[None]:
        """Record the operations in the block as those of the way back."""
        self._phase = BACKWARD
        try:
            yield
        finally:
            self._phase, self._last_gradient = FORWARD, None

    def see_target(self, target: Any) -> None:
        """Record the loss whose gradients are computed."""
        for each in _flat(target):
            if _is_number(each) and _array(each).size and not math.isfinite(largest_magnitude(_array(each))):
                self._events.append(_Event("loss", LOSS, None, FORWARD, ()))


def _weights_of(layer: Any) -> List[Any]:
    return weights_of(layer) if hasattr(layer, "weights") else []  # an operation of Keras 3 has none


def _flat(nest: Any) -> List[Any]:
    return list(tf.nest.flatten(nest))


def _constant_of(tensor: Any) -> Optional[float]:
    """Return the value of a scalar constant; None for other tensors."""
    if not is_eager(tensor) or tensor.shape.rank != 0 or not tensor.dtype.is_floating:
        return None
    known = getattr(tensor, _CONSTANT, None)
    if known is False:  # computed from other numbers
        return None
    return float(_array(tensor)) if known is None else float(known)


def _samples(array: Any) -> Tuple[int, ...]:
    """Return the indices of the first dimension with non-finite numbers; none if all have them."""
    is_bad = ~np.isfinite(array.reshape(len(array), -1).astype(np.float32)).all(axis=1)
    found = np.flatnonzero(is_bad)
    return () if len(found) == len(array) else tuple(found.tolist())


@contextlib.contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Let a recorder see the layers, gradients and operations of the block."""
    keras = installed_keras()
    layer_class, tape_class = keras.layers.Layer, tf.GradientTape
    patches = [(layer_class, "__call__", _calling(recorder, layer_class.__call__))]
    operation_class = getattr(keras, "Operation", None)
    if operation_class is not None:
        patches.append((operation_class, "__call__", _calling(recorder, operation_class.__call__, layer_class)))
    patches.append((tape_class, "gradient", _differentiating(recorder, tape_class.gradient)))
    before = [(each, name, vars(each)[name]) for each, name, _ in patches]
    try:
        for each, name, replacement in patches:
            setattr(each, name, replacement)
        with _seeing_operations(recorder.see_operation):
            yield
    finally:
        for each, name, original in before:
            setattr(each, name, original)


def _calling(recorder: Recorder, original: Any, except_for: Any = ()) -> Any:
    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(self, except_for):
            return original(self, *args, **kwargs)
        return recorder.call(original, self, args, kwargs)

    return call


def _differentiating(recorder: Recorder, original: Any) -> Any:
    @functools.wraps(original)
    def gradient(self: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        recorder.see_target(target)
        with recorder.backward():
            found = original(self, target, sources, *args, **kwargs)
        recorder.see_gradients(target, sources, found)
        return found

    return gradient


@contextlib.contextmanager
def _seeing_operations(callback: Any) -> Iterator[None]:
    """Call a function after each eager operation; TensorFlow 2.0 has another name for it."""
    try:
        module: Any = importlib.import_module("tensorflow.python.framework.op_callbacks")
    except ImportError:
        callbacks = context.context()._post_execution_callbacks
        execute: Any = importlib.import_module("tensorflow.python.eager.execute")
        callbacks.append(callback)
        execute.execute = execute.execute_with_callbacks  # for operations whose inputs are not all tensors
        try:
            yield
        finally:
            callbacks.remove(callback)
            execute.execute = execute.quick_execute
        return
    module.add_op_callback(callback)
    try:
        yield
    finally:
        module.remove_op_callback(callback)
