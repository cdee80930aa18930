"""The probe of a model: ``save_model`` records what it computes, ``load_model`` and ``convert`` replay it.

``_probe_record.py`` has the rule that makes the inputs, and the comparison.
"""

from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import contextlib
import importlib
import inspect
import random

import numpy as np

from ..registry.errors import ModelDiffersError
from ._keras_introspection import all_layers, installed_keras
from ._probe_record import (
    BOOLEAN,
    FLOATS,
    INTEGERS,
    MOST_ELEMENTS,
    MOST_INPUTS,
    RULE,
    Computed,
    digest,
    first_difference,
    results_of,
    values,
)
from ._variables import assign_all, values_of

_TOLERANCES = {"bfloat16": 8e-3, "float16": 1e-3}  # relative and absolute; a step of bfloat16 is 4e-3
_TOLERANCE = 1e-5  # of all other types
_SIZES = (8, 32, 128)  # tried for dimensions that are not fixed: powers of two, for models that halve them
_FEW = 2**12  # elements of one example, up to which the batch has two
_MOST_INDICES = 128  # the values that the rule can make
_SEED = 0x5CA1E  # of random operations while a model is called
_LOCAL_STRATEGIES = ("DefaultDistributionStrategy", "OneDeviceStrategy", "MirroredStrategy")


class _NotProbedError(Exception):
    """There is no probe of a model; the text is the reason."""


# Recording


def probe_of(model: Any) -> Dict[str, Any]:
    """Return the probe of a model, or ``{"none": reason}``. The model and the random state do not change."""
    try:
        return _record(model)
    except _NotProbedError as reason:
        return {"none": str(reason)}
    except Exception as error:  # a layer may raise anything
        return {"none": f"the model cannot be called: {_brief(error)}"}


def _record(model: Any) -> Dict[str, Any]:
    _require_callable(model)
    failure: Optional[Exception] = None
    for size in _SIZES:
        specs, structure, has_free = _input_specs(model, size)
        found: Dict[str, Any] = {"rule": RULE, "inputs": specs, "structure": structure, "tolerance": _tolerance(model)}
        try:
            computed, again = _run(model, found, 2)
        except Exception as error:  # Keras raises many types if an input is too small
            failure = error
        else:
            failure, found = None, {**found, **results_of(computed)}
            if all(each["digest"][2] == 0 and 0 not in each["shape"] for each in found["outputs"]):
                break
        if not has_free:
            break
    if failure is not None:
        raise failure
    different = first_difference(found, again)
    if different is not None:
        raise _NotProbedError(f"the output of {different.name} is random in inference mode too")
    return found


def _require_callable(model: Any) -> None:
    tf = importlib.import_module("tensorflow")
    if not tf.executing_eagerly():
        raise _NotProbedError("eager execution is off")
    if not model.built:
        raise _NotProbedError("the model is not built, so its input shape is not known")
    for layer in all_layers(model):
        if getattr(layer, "stateful", False) and hasattr(layer, "states"):
            raise _NotProbedError(f"the layer {layer.name} is stateful, and a call would change its state")
    first: Any = next(iter(model.variables), None)
    first = getattr(first, "value", first)  # of Keras 3
    strategy = getattr(first, "distribute_strategy", None) or tf.distribute.get_strategy()
    name = type(strategy).__name__
    if name.lstrip("_") not in _LOCAL_STRATEGIES:
        raise _NotProbedError(f"a model under {name} is not called while it is saved")


def _tolerance(model: Any) -> float:
    names = {str(getattr(layer, "_compute_dtype", getattr(layer, "compute_dtype", ""))) for layer in all_layers(model)}
    return max([_TOLERANCES.get(name, _TOLERANCE) for name in names] or [_TOLERANCE])


def _input_specs(model: Any, size: int) -> Tuple[List[Dict[str, Any]], Any, bool]:
    """Return the inputs, their structure as a nest of indices, and whether a dimension is free."""
    tf = importlib.import_module("tensorflow")
    symbolic = _symbolic_inputs(model)
    if symbolic is None:
        raise _NotProbedError("the shape of the model's input is not known")
    flat = tf.nest.flatten(symbolic)
    if len(flat) > MOST_INPUTS:
        raise _NotProbedError(f"the model has {len(flat)} inputs, more than {MOST_INPUTS}")
    indices = _index_limits(model, flat)
    shapes = [_shape(each) for each in flat]
    batch = _batch(shapes, indices, size)
    specs = []
    for symbol, shape, limit in zip(flat, shapes, indices):
        dtype = tf.as_dtype(symbol.dtype).name
        dimensions = [batch if not shape[0] else shape[0]] + [each if each is not None else size for each in shape[1:]]
        if dtype not in (*FLOATS, *INTEGERS, BOOLEAN):
            raise _NotProbedError(f"there is no rule for an input of type {dtype}")
        if np.prod(dimensions) > MOST_ELEMENTS:
            raise _NotProbedError(f"an input of shape {tuple(dimensions)} is too large")
        spec: Dict[str, Any] = {"shape": [int(each) for each in dimensions], "dtype": dtype}
        if limit is not None or dtype in INTEGERS:
            spec["below"] = INTEGERS[dtype] if limit is None else limit
        specs.append(spec)
    structure = _plain(tf.nest.pack_sequence_as(symbolic, list(range(len(flat)))))
    return specs, structure, any(None in shape[1:] for shape in shapes)


def _batch(shapes: Sequence[Sequence[Optional[int]]], indices: Sequence[Optional[int]], size: int) -> int:
    """Return the number of examples: more if they are short, because one example does not use every unit."""
    if all(len(shape) <= 2 for shape in shapes) and not any(indices):
        return 4
    largest = max(int(np.prod([each or size for each in shape[1:]])) for shape in shapes)
    return 2 if largest <= _FEW else 1


def _symbolic_inputs(model: Any) -> Any:
    """Return the inputs or their specifications in the model's structure; None if they are not known."""
    structures = [getattr(model, name, None) for name in ("_inputs_struct", "_nested_inputs", "inputs")]
    found = next((each for each in structures if not (each is None or (isinstance(each, list) and not each))), None)
    inner = getattr(model, "_functional", None)  # of a Sequential model of Keras 3
    if inner is not None:
        return inner._inputs_struct
    if found is not None:
        return found[0] if isinstance(found, list) and len(found) == 1 else found
    spec = getattr(model, "_saved_model_inputs_spec", None)
    return _spec_of_build(model) if spec is None else spec


def _spec_of_build(model: Any) -> Any:
    """Return what a subclassed model of Keras 3 was built with; Keras records no types."""
    shapes = getattr(model, "_build_shapes_dict", None)
    if not shapes or len(shapes) != 1:
        return None
    tf = importlib.import_module("tensorflow")

    def specs(nest: Any) -> Any:
        if isinstance(nest, dict):
            return {name: specs(each) for name, each in nest.items()}
        if isinstance(nest, (list, tuple)) and not all(each is None or isinstance(each, int) for each in nest):
            return [specs(each) for each in nest]
        return tf.TensorSpec(nest, tf.float32)

    return specs(next(iter(shapes.values())))


def _shape(symbol: Any) -> List[Optional[int]]:
    shape = symbol.shape
    if getattr(shape, "rank", 1) is None:
        raise _NotProbedError("an input has no known rank")
    if hasattr(symbol, "row_splits") or getattr(symbol, "sparse", False) or getattr(symbol, "ragged", False):
        raise _NotProbedError("there is no rule for a sparse or ragged input")
    listed = shape.as_list() if hasattr(shape, "as_list") else list(shape)
    return listed if listed else [None]


def _index_limits(model: Any, inputs: Sequence[Any]) -> List[Optional[int]]:
    """Return the number of indices that each input may use, if it feeds an Embedding layer or has an integer type."""
    tf = importlib.import_module("tensorflow")
    limits: Dict[int, int] = {}
    for layer, node in _nodes(model):
        if _is_embedding(layer):
            for tensor in tf.nest.flatten(node.input_tensors):
                limits[id(tensor)] = min(layer.input_dim, limits.get(id(tensor), _MOST_INDICES))
    others = [layer.input_dim for layer in all_layers(model) if _is_embedding(layer)]
    smallest = min([*others, _MOST_INDICES]) if others else None
    return [limits.get(id(each), smallest if tf.as_dtype(each.dtype).name in INTEGERS else None) for each in inputs]


def _is_embedding(layer: Any) -> bool:
    return isinstance(layer, installed_keras().layers.Embedding) and isinstance(layer.input_dim, int)


def _plain(nest: Any) -> Any:
    """Return a nest with lists and dicts only, as JSON holds it."""
    if isinstance(nest, Mapping):
        return {str(name): _plain(each) for name, each in nest.items()}
    return [_plain(each) for each in nest] if isinstance(nest, (list, tuple)) else nest


# Running a model


def _nodes(model: Any) -> List[Tuple[Any, Any]]:
    """Return layer and node of each computation of a functional or Sequential model, in order; empty for others."""
    graph = getattr(model, "_functional", None) or model
    by_depth = getattr(graph, "_nodes_by_depth", None) or {}
    nodes = [node for depth in sorted(by_depth, reverse=True) for node in by_depth[depth]]
    return [(node.outbound_layer if hasattr(node, "outbound_layer") else node.operation, node) for node in nodes]


class _Graph:
    """The graph of a functional or Sequential model with the outputs of all its layers."""

    def __init__(self, model: Any) -> None:
        tf, keras = importlib.import_module("tensorflow"), installed_keras()
        inputs = {id(each) for each in model.inputs}
        tensors: Dict[int, Any] = {id(each): each for each in model.outputs}
        self._layers: Dict[str, List[int]] = {}
        for layer, node in _nodes(model):
            outputs = tf.nest.flatten(node.output_tensors)
            if any(id(each) in inputs for each in outputs):
                continue
            tensors.update({id(each): each for each in outputs})
            name = layer.name
            while name in self._layers:
                name += "'"  # a shared layer
            self._layers[name] = [id(each) for each in outputs]
        self._keys = list(tensors)
        self._outputs = [id(each) for each in model.outputs]
        self._model = keras.Model(list(model.inputs), list(tensors.values()), name="scalekeeper_probe")
        # a subclass of a functional model may compute something else than its graph
        self.is_whole = type(model).call in (type(self._model).call, keras.Sequential.call)

    def run(self, inputs: List[Any]) -> Computed:
        results = self._model(inputs, training=False)
        results = results if isinstance(results, (list, tuple)) else [results]
        found = dict(zip(self._keys, map(_array, results)))
        layers = {
            name: [digest(found[key]) for key in keys]
            for name, keys in self._layers.items()
            if all(found[key] is not None for key in keys)
        }
        return Computed([_required(found[key]) for key in self._outputs], layers)


def _array(tensor: Any) -> Any:
    """Return a tensor as an array; None if it has other values than numbers."""
    array = np.asarray(tensor.numpy()) if hasattr(tensor, "numpy") else np.empty(0, object)
    return array if array.dtype.kind in "biufV" else None  # V: bfloat16


def _required(array: Any) -> Any:
    if array is None:
        raise _NotProbedError("an output of the model is not a tensor of numbers")
    return array


def _run(model: Any, description: Mapping[str, Any], times: int = 1) -> List[Computed]:
    """Call a model with a probe's inputs in inference mode."""
    tf = importlib.import_module("tensorflow")
    graph = _graph_of(model)
    with unchanged(model), tf.device("/CPU:0"):  # a GPU may round products of float32 to ten bits
        flat = [tf.constant(values(*each), dtype=each[1]["dtype"]) for each in enumerate(description["inputs"])]
        structured = _filled(description["structure"], flat)
        runs = []
        for _ in range(times):
            computed = Computed([], {}) if graph is None else graph.run(flat)
            if graph is None or not graph.is_whole:
                outputs = tf.nest.flatten(model(structured, **inference_mode(model)))
                computed = computed._replace(outputs=[_required(_array(each)) for each in outputs])
            runs.append(computed)
    return runs


def inference_mode(model: Any) -> Dict[str, Any]:
    parameters = inspect.signature(model.call).parameters.values()
    takes_training = any(each.name == "training" or each.kind is each.VAR_KEYWORD for each in parameters)
    return {"training": False} if takes_training else {}


def _graph_of(model: Any) -> Optional[_Graph]:
    if not _nodes(model):
        return None
    try:
        return _Graph(model)
    except Exception:  # then only the outputs are compared
        return None


def _filled(structure: Any, flat: Sequence[Any]) -> Any:
    if isinstance(structure, dict):
        return {name: _filled(each, flat) for name, each in structure.items()}
    if isinstance(structure, list):
        return [_filled(each, flat) for each in structure]
    return flat[structure]


@contextlib.contextmanager
def unchanged(model: Any) -> Iterator[None]:
    """Give variables that a call may change, and random states, the values that they had before."""
    context = importlib.import_module("tensorflow.python.eager.context").context()
    generator = getattr(context, "_rng", None)  # numbers the random operations after tf.random.set_seed
    states = random.getstate(), np.random.get_state(), None if generator is None else generator.getstate()
    if generator is not None:
        generator.seed(_SEED)  # the program's own operations must find no kernel that the model's have used
    attributes = {name: getattr(model, name) for name in ("_saved_model_inputs_spec",) if hasattr(model, name)}
    trained = {id(each) for each in model.trainable_variables}
    candidates = [*model.variables, *(each for metric in model.metrics for each in metric.variables)]
    variables = list({id(each): each for each in candidates if id(each) not in trained}.values())
    before = values_of(variables)
    try:
        yield
    finally:
        after = values_of(variables)
        changed = [not np.array_equal(old, new) for old, new in zip(before, after)]
        assign_all([pair for pair, is_changed in zip(zip(variables, before), changed) if is_changed])
        random.setstate(states[0])
        np.random.set_state(states[1])
        if generator is not None:
            generator.setstate(states[2])
        for name, value in attributes.items():
            if getattr(model, name) is not value:
                setattr(model, name, value)


# Replaying


def require_same(model: Any, probe: Optional[Mapping[str, Any]], path: str) -> None:
    """Replay the probe of a file on a model.

    Raises:
        ModelDiffersError: The model computes something else than the model that was saved.
    """
    if not probe or "none" in probe or probe["rule"] != RULE:
        return
    tf = importlib.import_module("tensorflow")
    if not tf.executing_eagerly():
        return
    try:
        (computed,) = _run(model, probe)
    except Exception as error:
        if tf.distribute.has_strategy():
            return  # TF 2.1 cannot call a SavedModel that was loaded in the scope of a strategy outside of its replicas
        raise ModelDiffersError(
            f"{path}: the model was called when it was saved, and the installed Keras cannot call it: {_brief(error)}. "
            "To load it nevertheless, pass probe=False"
        ) from error
    different = first_difference(probe, computed, _tolerance(model))
    if different is not None:
        raise ModelDiffersError(
            f"{path}: the model does not compute what it did when it was saved. The first difference is in "
            f"{different.name}: {different.amount:.3g}, where {different.limit:.3g} is allowed. Build the model in "
            "code and call scalekeeper.restore(model, path), or pass probe=False to load it nevertheless",
            different.layer,
            different.amount,
        )


def _brief(error: BaseException) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"[:300]
