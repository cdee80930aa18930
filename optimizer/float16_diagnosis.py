"""``diagnose``: where a model would leave float16's range, and where its first non-finite number comes from."""

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numbers
import re

import numpy as np
import tensorflow as tf

from ..diagnosis._recording import RunRecord, ScaleFacts
from ..diagnosis._result import Diagnosis, diagnosis_of, settled_scale
from ..registry.errors import ArgumentError, ArgumentTypeError, StrategyError, UnsupportedOperationError, shown
from ..serialization._keras_introspection import all_layers, installed_keras
from ..serialization._variables import by_owner
from ..serialization.probe import inference_mode
from ._diagnosis.batches import Batch, bad_data, batches_of, data_of, is_arrays
from ._diagnosis.isolation import (
    data_as_in_fit,
    optimizers_of,
    random_states_kept,
    restored,
    running_eagerly,
    variables_of,
    without_updates,
)
from ._diagnosis.precision import Precision, reduced_types
from ._diagnosis.recorder import Recorder, recording
from .loss_scale_optimizer import LossScaleOptimizer

__all__ = ["diagnose"]

Loss = Union[str, Callable[..., Any]]

_COLORS = re.compile("\x1b\\[[0-9;]*m")
_FUNCTION_NODE = re.compile(r"\{\{function_node [^}]*\}\} ?")  # the name of a kernel and of a device


def diagnose(
    model: Any,
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    loss: Optional[Loss] = None,
    batch_size: int = 32,
    batches: Optional[int] = 4,
    loss_scale: Optional[float] = None,
) -> Diagnosis:
    """Return where a model leaves float16's range, and where its first non-finite number comes from.

    The model runs a few training steps in float32 that are recorded layer by layer. If it computes in float16, it also
    runs them as it is, with its loss scale. No gradients are applied: the model, its optimizers and all random states
    that can be read are afterwards as they were.

    Args:
        model: A Keras model: functional, Sequential or subclassed, also with a ``train_step`` of its own.
        x: The inputs, as for ``fit``: arrays, a list or dictionary of arrays, a ``tf.data.Dataset`` or another iterable
            of batches.
        y: The targets.
        sample_weight: The weights of the samples.
        loss: A loss function, or the name of a Keras loss, for a model that is not compiled, or instead of its loss.
        batch_size: The number of samples in a batch, if the data is arrays.
        batches: The number of batches; None for all of them.
        loss_scale: The loss scale of the float16 run. Default: the optimizer's; without loss scaling 1.

    Returns:
        The findings with advice, figures for each layer, and a recommended loss scale.

    Raises:
        ArgumentError: The model has no loss, or the data cannot be taken apart.
        ArgumentTypeError: ``model`` is not a Keras model.
        StrategyError: The model is distributed over several replicas.
        UnsupportedOperationError: Eager execution is off.

    Example:
        >>> import numpy as np
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
        >>> found = scalekeeper.diagnose(model, np.ones((8, 2), "float32"), np.ones((8, 1), "float32"), loss="mse")
        >>> found.findings
        ()
    """
    _require_diagnosable(model, loss, batch_size, batches)
    loss_scale = _number(loss_scale)
    data = data_of(x, y, sample_weight)
    with random_states_kept(model):  # a generator may draw from them
        steps = batches_of(data, batch_size, batches)
    whole = [data] if is_arrays(data.x) else steps
    found_bad = []
    first = 0
    for each in whole:
        found_bad += bad_data(model, each, first)
        first += _samples_in(each)
    reduced = reduced_types(model)
    facts = _scale_facts(model)
    notes: List[str] = []
    names: Dict[str, str] = {}
    if loss_scale is not None:
        facts = facts._replace(scale=loss_scale, adapts=False)
    first_origin = settled = None
    _build(model, steps[0], loss)
    with restored(model), running_eagerly(model):
        exact = _recorded(model, steps, loss, True, True, 1.0, not reduced, names)
        if isinstance(exact, Exception):
            if not reduced:
                raise exact
            notes.append(
                f"The model cannot run in float32 ({brief(exact)}), so the figures are those of its own run: what is "
                "lost in float16 does not show in them."
            )
            exact = _recorded(model, steps, loss, False, True, 1.0, False, names)
            if isinstance(exact, Exception):
                raise exact
        replay = None
        if reduced:
            replay = _replayed(model, steps, loss, loss_scale, facts, names)
            settled = settled_scale(exact.run, replay.run, facts)
            if settled is not None:  # the policy lowers the loss scale by itself; see what is wrong apart from it
                first_origin = replay.run.origin
                replay = _replayed(model, steps, loss, settled, facts, names)
    overflows: Dict[str, int] = {}
    for name, count in facts.overflows.items():
        layer = names.get(name, name)
        overflows[layer] = overflows.get(layer, 0) + count
    facts = facts._replace(overflows=overflows, settled=settled, settled_origin=first_origin)
    if replay is None:
        return diagnosis_of(exact.run, None, found_bad, facts, None, notes)
    return diagnosis_of(exact.run, replay.run, found_bad, facts, _difference(exact, replay), notes)


def _require_diagnosable(model: Any, loss: Optional[Loss], batch_size: int, batches: Optional[int]) -> None:
    if not isinstance(model, installed_keras().Model):
        raise ArgumentTypeError(f"model is {shown(model)}; expected a Keras model")
    for name, number in (("batch_size", batch_size), ("batches", batches)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, numbers.Integral) or number < 1):
            raise ArgumentError(f"{name} is {shown(number)}; expected an integer of at least 1")
    if not tf.executing_eagerly():
        raise UnsupportedOperationError("diagnose needs eager execution, which is off: run it in another program")
    strategy = getattr(model, "distribute_strategy", None) or tf.distribute.get_strategy()
    if getattr(strategy, "num_replicas_in_sync", 1) > 1:
        raise StrategyError(
            f"diagnose needs a model on one device, and this one is distributed over {strategy.num_replicas_in_sync} "
            "replicas: create it outside of the scope of the strategy"
        )
    if loss is None and not _is_compiled(model):
        raise ArgumentError("the model is not compiled: compile it, or give a loss, such as loss='mse'")


def _number(loss_scale: Any) -> Optional[float]:
    """Return a loss scale as a number; it may be one of NumPy, a tensor, or the policy of an optimizer."""
    if loss_scale is None:
        return None
    try:
        number = float("nan") if isinstance(loss_scale, (str, bytes, bool)) else float(loss_scale)
    except (TypeError, ValueError):
        number = float("nan")
    if not 0 < number < 2.0**127:
        raise ArgumentError(f"loss_scale is {shown(loss_scale)}; expected a number above 0, or None")
    return number


def _is_compiled(model: Any) -> bool:
    # up to 2.1, a model that is not built is compiled when it is; it has an optimizer nevertheless
    return any(getattr(model, name, None) for name in ("compiled", "_is_compiled", "optimizer"))


def _samples_in(batch: Batch) -> int:
    shapes: List[Any] = [getattr(each, "shape", ()) for each in tf.nest.flatten(batch.x)]
    return next((int(shape[0] or 0) for shape in shapes if len(shape)), 0)  # sparse tensors have no length


# Running


def _build(model: Any, batch: Batch, loss: Optional[Loss]) -> None:
    """Let Keras create the variables of a model that has not been called yet."""
    if all(getattr(layer, "built", True) for layer in all_layers(model)):
        return
    try:
        model(tf.nest.map_structure(tf.convert_to_tensor, batch.x), **inference_mode(model))
    except Exception:  # for example a model with a train_step and no call
        with running_eagerly(model), without_updates(model, None), restored(model):
            _step(model, batch, loss, None)


class _Recorded(NamedTuple):
    """A run, and the outputs of the model in inference mode."""

    run: RunRecord
    outputs: Optional[List[Any]]


def _recorded(
    model: Any,
    steps: List[Batch],
    loss: Optional[Loss],
    in_float32: bool,
    is_counting: bool,
    loss_scale: Optional[float],
    is_prediction: bool,
    names: Dict[str, str],
) -> Any:
    """Run the batches; return what was recorded, or the exception that ended the run."""
    precision = Precision(model, in_float32)
    recorder = Recorder(model, precision.enter, is_counting, is_prediction)
    recorder.run.is_float32 = in_float32
    try:
        precision.enter_all(model)
        with restored(model), without_updates(model, loss_scale), recording(recorder):
            for batch in steps:
                recorder.begin_batch(_samples_in(batch), all(each.is_finite for each in bad_data(model, batch)))
                _step(model, batch, loss, loss_scale)
                recorder.end_batch()
            recorder.is_paused = True
            outputs = _outputs(model, recorder.inputs)
            if is_counting:
                recorder.see_weights()
        names.update({name: recorder.layer_of_variable(each) or name for name, each in _trainable(model).items()})
    except Exception as error:  # a layer may raise anything
        return error
    finally:
        precision.restore()
    return _Recorded(recorder.run, outputs)


def _replayed(
    model: Any,
    steps: List[Batch],
    loss: Optional[Loss],
    scale: Optional[float],
    facts: ScaleFacts,
    names: Dict[str, str],
) -> Any:
    """Run the batches with a model as it is."""
    if scale is None and loss is not None:
        scale = facts.scale or 1.0
    found = _recorded(model, steps, loss, False, False, scale, False, names)
    if isinstance(found, Exception):
        raise found
    return found


def _trainable(model: Any) -> Dict[str, Any]:
    return by_owner(model.trainable_variables)


def _step(model: Any, batch: Batch, loss: Optional[Loss], loss_scale: Optional[float]) -> None:
    if loss is None:
        with data_as_in_fit(model, batch.is_bare):
            model.train_on_batch(batch.x, batch.y, **({} if batch.sample_weight is None else _weights(batch)))
        return
    function = _loss_function(loss)
    with tf.GradientTape() as tape:
        outputs = model(batch.x, training=True)
        value = tf.add_n([_mean_loss(function, *each) for each in _by_output(model, batch, outputs)])
        total = tf.add_n([value, *(tf.cast(each, value.dtype) for each in model.losses)])
        scaled = tf.cast(total, tf.float32) * (1.0 if loss_scale is None else loss_scale)
    tape.gradient(scaled, model.trainable_variables)


def _mean_loss(function: Callable[..., Any], y: Any, output: Any, sample_weight: Any) -> Any:
    value = function(y, output)
    if sample_weight is not None:
        value = value * tf.cast(sample_weight, value.dtype)
    return tf.cast(tf.reduce_mean(value), tf.float32)


def _by_output(model: Any, batch: Batch, outputs: Any) -> List[Tuple[Any, Any, Any]]:
    """Return targets, output and weights for each output of a model, which a loss takes one by one."""
    if not isinstance(outputs, (list, tuple, Mapping)):
        return [(batch.y, outputs, batch.sample_weight)]
    names = list(outputs) if isinstance(outputs, Mapping) else list(getattr(model, "output_names", None) or ())
    number, weights = len(outputs), batch.sample_weight
    if hasattr(weights, "shape"):  # those of all outputs
        weights = [weights] * number
    return list(zip(*(_in_order(each, names, number) for each in (batch.y, outputs, weights))))


def _in_order(given: Any, names: Sequence[str], number: int) -> List[Any]:
    """Return the parts of targets, outputs or weights in the order of the outputs."""
    if given is None:
        return [None] * number
    if isinstance(given, Mapping) and set(given) == set(names):
        return [given[name] for name in names]
    parts = list(given) if isinstance(given, (list, tuple)) else [given]
    if len(parts) != number:
        raise ArgumentError(
            f"the model has {number} outputs{': ' if names else ''}{', '.join(names)}; expected targets and weights "
            f"for each of them, in a list or by these names, not {shown(given)}"
        )
    return parts


def _weights(batch: Batch) -> Dict[str, Any]:
    return {"sample_weight": batch.sample_weight}


def _loss_function(loss: Loss) -> Callable[..., Any]:
    if callable(loss):
        return loss
    try:
        function: Callable[..., Any] = installed_keras().losses.get(loss)
    except ValueError as error:
        raise ArgumentError(f"loss is {shown(loss)}; expected a function, or the name of a loss of Keras") from error
    return function


def _scale_facts(model: Any) -> ScaleFacts:
    """Return the loss scaling of the model's optimizer, scalekeeper's or Keras's own."""
    # compile() without an optimizer makes one of Keras, which a train_step of the model's own need not use
    optimizers = sorted(optimizers_of(model), key=lambda each: not isinstance(each, LossScaleOptimizer))
    overflows: Dict[str, int] = {}
    scale, adapts = None, False
    for each in optimizers:
        if variables_of(each) and hasattr(each, "telemetry"):  # which creates iterations up to 2.10
            overflows.update({name: count for name, count in each.telemetry.overflows.items() if count})
        found = _scale_of(each)
        if found is not None and scale is None:
            scale, adapts = found, _adapts(each)
    epsilons = [getattr(each, "epsilon", None) for each in optimizers]
    epsilon = next((float(each) for each in epsilons if isinstance(each, (int, float))), None)
    has_reduced = any(tf.as_dtype(each.dtype) == tf.float16 for each in model.trainable_variables)
    return ScaleFacts(scale, adapts, epsilon if has_reduced else None, overflows)


def _scale_of(optimizer: Any) -> Optional[float]:
    if not any(hasattr(optimizer, name) for name in ("get_scaled_loss", "dynamic_scale", "initial_scale")):
        return None
    for name in ("loss_scale", "dynamic_scale", "initial_scale"):
        try:
            value = getattr(optimizer, name)
            return float(np.asarray(value() if callable(value) else value))
        except (AttributeError, TypeError, ValueError):
            continue
    return None


def _adapts(optimizer: Any) -> bool:
    """Return whether the policy changes the loss scale after an overflow."""
    policy = getattr(optimizer, "loss_scale", None)
    if policy is not None and hasattr(policy, "state"):
        return "current_loss_scale" in policy.state()
    return bool(getattr(optimizer, "dynamic", True)) and "Fixed" not in type(policy).__name__


# Comparing the runs


def _outputs(model: Any, inputs: Any) -> Optional[List[Any]]:
    """Return the outputs for the first batch in inference mode; None if ``train_step`` never calls the model."""
    if inputs is None:
        return None
    outputs = tf.nest.flatten(model(inputs, **inference_mode(model)))
    arrays = [np.asarray(each.numpy()) for each in outputs if isinstance(each, tf.Tensor)]
    return [each.astype(np.float64) for each in arrays if each.dtype.kind in "fV"]


def _difference(exact: _Recorded, replay: _Recorded) -> Optional[float]:
    """Return how far the outputs of both runs differ, as a share of the largest; None if they cannot be compared.

    Both ran the same layers and weights; a large difference means that the model computes something else in float32.
    """
    if exact.outputs is None or replay.outputs is None or len(exact.outputs) != len(replay.outputs):
        return None
    differences = [0.0]
    for one, other in zip(exact.outputs, replay.outputs):
        if one.shape != other.shape or not (np.isfinite(one).all() and np.isfinite(other).all()):
            return None
        largest = float(np.max(np.abs(one), initial=0.0))
        if largest > 0:
            differences.append(float(np.max(np.abs(one - other))) / largest)
    return max(differences)


def brief(error: BaseException) -> str:
    """Return the first line of an error that a library raised while a model ran."""
    lines = [line for line in map(str.strip, str(error).splitlines()) if line]
    # Keras 3 writes the layer first, and the error below it, in colors
    lines = [line for line in lines if not line.startswith("Exception encountered when calling")] or lines
    first = _FUNCTION_NODE.sub("", _COLORS.sub("", lines[0])) if lines else ""
    return f"{type(error).__name__}: {first}"[:300]
