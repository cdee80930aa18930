"""``optimizer.loss_scale`` stands for the number that it is in TensorFlow's own class from 2.4 on."""

import importlib.util
import math
import operator

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper_test_support.installed_keras import HAS_LOSS_SCALE_OBJECTS, IS_KERAS_3, upstream

# operation → function of the loss scale that returns numbers; all of them in eager mode, the first ones in a graph too
IN_GRAPHS = {
    "x * 2.0": lambda scale: scale * 2.0,
    "2 * x": lambda scale: 2 * scale,
    "x + 1": lambda scale: scale + 1,
    "1 + x": lambda scale: 1 + scale,
    "x - 1": lambda scale: scale - 1,
    "1 - x": lambda scale: 1 - scale,
    "x / 2": lambda scale: scale / 2,
    "1 / x": lambda scale: 1 / scale,
    "x // 3": lambda scale: scale // 3,
    "100 // x": lambda scale: 100 // scale,
    "x % 3": lambda scale: scale % 3,
    "100 % x": lambda scale: 100 % scale,
    "x ** 2": lambda scale: scale**2,
    "2 ** x": lambda scale: 2**scale,
    "-x": operator.neg,
    "abs(x)": abs,
    "x > 8": lambda scale: scale > 8,
    "x >= 8": lambda scale: scale >= 8,
    "4 < x": lambda scale: scale > 4,
    "x <= 4": lambda scale: scale <= 4,
    "x == 8.0": lambda scale: scale == 8.0,
    "9 == x": lambda scale: 9 == scale,  # noqa: SIM300
    "x != 8": lambda scale: scale != 8,
    "x == a NumPy number": lambda scale: scale == np.float32(8),
    "x * a NumPy array": lambda scale: scale * np.ones(2, np.float32),
    "a NumPy array * x": lambda scale: np.ones(2, np.float32) * scale,
    "a NumPy number * x": lambda scale: np.float32(2) * scale,
    "x * a list": lambda scale: scale * [1.0, 2.0],
    "x * x": lambda scale: scale * scale,
    "x * a tensor": lambda scale: scale * tf.constant(2.0),
    "a tensor * x": lambda scale: tf.constant(2.0) * scale,
    "x > a tensor": lambda scale: scale > tf.constant(2.0),
    "convert_to_tensor": tf.convert_to_tensor,
    "identity": tf.identity,
    "cast": lambda scale: tf.cast(scale, tf.float16),
    "multiply": lambda scale: tf.multiply(tf.constant([2.0]), scale),
    "math.log": tf.math.log,
    "stack": lambda scale: tf.stack([scale, scale]),
    "where": lambda scale: tf.where(True, scale, 1.0),
    "dtype": lambda scale: tf.cast(3, scale.dtype),
    "shape": lambda scale: len(scale.shape),
    "the scale itself": lambda scale: scale,
    "a nest": lambda scale: {"scale": [scale, scale * 2.0]},
}
EAGERLY = {
    "float": float,
    "int": int,
    "bool": bool,
    "numpy": lambda scale: scale.numpy(),
    "asarray": np.asarray,
    "array of float64": lambda scale: np.array(scale, np.float64),
    "array of a list": lambda scale: np.array([scale, scale]),
    "np.log2": np.log2,
    "math.sqrt": math.sqrt,
    "a variable's value": lambda scale: tf.Variable(0.0).assign(scale).numpy(),
    "mean": lambda scale: tf.keras.metrics.Mean()(scale),
    "ndim": lambda scale: scale.ndim,
    ".1f": lambda scale: float(f"{scale:.1f}"),
    "%d": lambda scale: int("%d" % scale),  # noqa: UP031
    "%g": lambda scale: float("%g" % scale),  # noqa: UP031
}

needs_tensor = pytest.mark.skipif(HAS_LOSS_SCALE_OBJECTS, reason="up to 2.3 the loss scale is not a tensor")
TRACE_TYPE = getattr(getattr(getattr(tf, "types", None), "experimental", None), "TraceType", None)

if not HAS_LOSS_SCALE_OBJECTS:  # 2.0 refuses objects, and has no tensor here
    EAGERLY["constant"] = tf.constant


@pytest.fixture
def scale(optimizers):
    """The loss scale of an optimizer, 8."""
    return scalekeeper.LossScaleOptimizer(optimizers.SGD(1.0), scalekeeper.DynamicLossScale(8.0)).loss_scale


@pytest.fixture
def tensor(optimizers):
    """The loss scale of TensorFlow's own optimizer; where it is not a tensor, one of the same value."""
    if HAS_LOSS_SCALE_OBJECTS or IS_KERAS_3:
        return tf.constant(8.0)
    return upstream(optimizers.SGD(1.0), {"initial_loss_scale": 8.0}).loss_scale


def values(nest):
    """The numbers of a nest, with their dtypes."""
    leaves = [np.asarray(each) for each in tf.nest.flatten(nest)]
    return [(each.dtype, each.tolist()) for each in leaves]


def test_operations_give_what_they_give_for_a_tensor(scale, tensor):
    """Arithmetic, comparisons and conversions in eager mode give the values and types of TensorFlow's tensor."""
    found = {name: values(run(scale)) for name, run in {**IN_GRAPHS, **EAGERLY}.items()}
    assert found == {name: values(run(tensor)) for name, run in {**IN_GRAPHS, **EAGERLY}.items()}


def test_operations_in_a_function_give_what_they_give_for_a_tensor(scale, tensor):
    """A tf.function computes with the loss scale, and returns it, as it does with TensorFlow's tensor."""

    def run_all(given):
        return tf.function(lambda: {name: run(given) for name, run in IN_GRAPHS.items()}, autograph=False)()

    found, wanted = run_all(scale), run_all(tensor)
    assert {name: values(each) for name, each in found.items()} == {name: values(each) for name, each in wanted.items()}


def test_a_traced_function_reads_the_loss_scale_at_each_call(scale):
    """A function that was traced with one loss scale returns the later ones."""
    doubled = tf.function(lambda: scale * 2.0)
    assert float(doubled()) == 16.0
    scale.load_state({"current_loss_scale": 32.0, "good_steps": 0})
    assert float(doubled()) == 64.0


@needs_tensor
def test_tensorflow_prints_its_value(scale, tmp_path):
    """``tf.print``, and ``print`` in a converted function, print the number of each call, as of a tensor."""

    @tf.function
    def report():
        tf.print("scale", scale, [scale], output_stream=f"file://{tmp_path / 'printed'}")
        return tf.strings.format("{} of {}", (scale, 9))

    texts = [report().numpy()]
    scale.load_state({"current_loss_scale": 32.0, "good_steps": 0})
    texts.append(report().numpy())
    assert (tmp_path / "printed").read_text() == "scale 8 [8]\nscale 32 [32]\n"
    assert texts == [b"8 of 9", b"32 of 9"]


@needs_tensor
def test_tensorflow_takes_it_for_a_tensor(scale, tensor):
    """``tf.is_tensor`` is true, and ``get_value`` of Keras returns the number."""
    get_value = getattr(tf.keras.backend, "get_value", lambda value: value.numpy())
    for each in (scale, tensor):
        assert tf.is_tensor(each)
        assert values(get_value(each)) == [(np.dtype(np.float32), 8.0)]


@pytest.mark.skipif(HAS_LOSS_SCALE_OBJECTS or IS_KERAS_3, reason="the session of Keras is in Keras 2 only")
def test_keras_evaluates_it_in_a_session():
    """In a graph of TensorFlow 1, ``get_value`` of Keras evaluates the loss scale."""
    get_value = tf.compat.v1.keras.backend.get_value
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        scale = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), initial_scale=8.0).loss_scale
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.keras.backend.set_session(session)
        assert get_value(scale) == 8.0


@needs_tensor
def test_a_converted_function_converts_it(scale):
    """``float`` and ``int`` in a tf.function give tensors, as for a tensor."""
    found = tf.function(lambda: (float(scale), int(scale)))()
    assert values(found) == [(np.dtype(np.float32), 8.0), (np.dtype(np.int32), 8)]


@pytest.mark.skipif(not hasattr(TRACE_TYPE, "cast"), reason="older TensorFlows convert arguments to arrays")
def test_a_function_in_a_function_takes_it(scale):
    """As an argument of a function that another one calls, it is the loss scale of that time."""
    doubled = tf.function(lambda given: given * 2.0)
    outer = tf.function(lambda: doubled(scale))
    assert float(outer()) == 16.0
    scale.load_state({"current_loss_scale": 32.0, "good_steps": 0})
    assert float(outer()) == float(doubled(scale)) == 64.0


def test_autograph_branches_on_the_loss_scale(scale):
    """``if`` of a comparison inside a tf.function looks at the loss scale when the function runs."""

    @tf.function
    def is_large():
        if scale > 16.0:
            return tf.constant(True)
        return tf.constant(False)

    assert not is_large()
    scale.load_state({"current_loss_scale": 32.0, "good_steps": 0})
    assert is_large()


def test_policies_are_equal_only_to_themselves(scale):
    """Equality of policies, and of a policy with anything but a number, is identity; they stay keys of dictionaries."""
    twin = scalekeeper.DynamicLossScale(8.0)
    assert (scale == twin, scale != twin) == (False, True)
    assert (scale == scale, scale != scale) == (True, False)
    for other in (None, "dynamic", [8.0], True, scalekeeper.DynamicLossScale):
        assert (scale == other) is False
        assert (scale != other) is True
    assert {scale: "one", twin: "other"}[scale] == "one"
    assert [twin, scale].index(scale) == 1


def test_it_is_still_a_policy(scale):
    """The object is callable, has a state and a configuration, and is a LossScale."""
    assert isinstance(scale, scalekeeper.LossScale)
    assert float(scale()) == 8.0
    assert scale.state() == {"current_loss_scale": 8.0, "good_steps": 0}
    assert scale.get_config()["initial_loss_scale"] == 8.0
    assert repr(scale) == str(scale) == repr(scalekeeper.DynamicLossScale(8.0))
    assert f"{scale}" == "8.0"


def test_a_float16_tensor_keeps_its_dtype(scale):
    """A tensor of another floating type converts the loss scale to its own type, on either side."""
    half = tf.constant(2.0, tf.float16)
    assert values(half * scale) == values(scale * half) == [(np.dtype(np.float16), 16.0)]


def test_operations_that_no_number_has_raise_a_type_error(scale):
    """Arithmetic with something that is not a number raises TypeError, as for any number."""
    for run in (lambda: scale * object(), lambda: scale < object(), lambda: object() - scale):
        with pytest.raises((TypeError, ValueError)):  # TensorFlow 2.0 raises ValueError for an object
            run()
    with pytest.raises(AttributeError, match="no_such_attribute"):
        scale.no_such_attribute  # noqa: B018


def test_a_session_fetches_the_loss_scale(optimizers):
    """A session of TensorFlow 1 fetches it, alone and in a nest, also after its graph is finalized."""
    graph = tf.Graph()
    with graph.as_default():
        optimizer = scalekeeper.LossScaleOptimizer(optimizers.SGD(1.0), scalekeeper.DynamicLossScale(8.0))
        scale = optimizer.loss_scale
        product = scale * 2.0
        graph.finalize()
    with tf.compat.v1.Session(graph=graph) as session:
        names = [variable.name for variable in graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)]
        for name in names:
            session.run(graph.get_operation_by_name(name.split(":")[0] + "/Assign"))
        operations = len(graph.get_operations())
        assert session.run(scale) == 8.0
        assert session.run({"scale": [optimizer.loss_scale], "product": product}) == {"scale": [8.0], "product": 16.0}
        assert len(graph.get_operations()) == operations


def test_the_policy_of_a_finalized_graph_can_be_looked_at(optimizers):
    """Reading ``loss_scale`` adds nothing to a graph that is finalized, and its configuration is still there."""
    with tf.Graph().as_default() as graph:
        optimizer = scalekeeper.LossScaleOptimizer(optimizers.SGD(1.0), scalekeeper.DynamicLossScale(8.0))
        graph.finalize()
        assert optimizer.loss_scale.get_config()["initial_loss_scale"] == 8.0


def test_a_summary_and_the_logs_of_fit_take_it(optimizers, one_weight, tmp_path):
    """tf.summary.scalar writes the loss scale, and a callback may put it into the logs that the progress bar prints."""
    optimizer = scalekeeper.LossScaleOptimizer(optimizers.SGD(1.0), scalekeeper.DynamicLossScale(8.0, 1))

    class Log(tf.keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs["loss_scale"] = optimizer.loss_scale
            logs["now"] = float(optimizer.loss_scale)

    if importlib.util.find_spec("tensorboard"):  # without it, there are no summaries
        with tf.summary.create_file_writer(str(tmp_path)).as_default():
            assert tf.summary.scalar("loss_scale", optimizer.loss_scale, step=1)
    model = one_weight().compile(optimizer, 1.0).model
    ones = np.ones((1, 1), np.float32)
    callbacks = [Log(), tf.keras.callbacks.CSVLogger(str(tmp_path / "log.csv"))]
    history = model.fit(ones, ones, epochs=2, verbose=2, callbacks=callbacks).history
    assert history["now"] == [16.0, 32.0]
    assert history["loss_scale"] == [optimizer.loss_scale] * 2  # the policy itself, whose value is the last one
    assert len((tmp_path / "log.csv").read_text(encoding="utf-8").splitlines()) == 3


class InTensorFlowsStyle(scalekeeper.LossScale):
    """A policy with its own constructor, call and update."""

    def __init__(self):
        self.current = tf.Variable(8.0, trainable=False)

    def __call__(self):
        return tf.convert_to_tensor(self.current)

    def update(self, grads):
        return self.current.assign(self.current * 2.0), tf.constant(True)

    def get_config(self):
        return {}


@pytest.mark.parametrize(
    "make", [lambda: 8.0, lambda: {"name": "dynamic", "initial_loss_scale": 8}, InTensorFlowsStyle]
)
def test_a_function_that_autograph_converts_calls_it(make):
    """``loss_scale()`` in a tf.function is the loss scale: AutoGraph of 2.0 and 2.1 compares what it calls."""
    optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), make())

    @tf.function
    def scaled(value):
        return value * optimizer.loss_scale()

    assert scaled(tf.constant(2.0)).numpy() == 16.0
