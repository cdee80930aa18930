"""NaN, inf and extreme gradients: each has the result that a user expects, on every version.

The gradients and the expected results are in reliability/non_finite_gradients.py; docs/reliability.md compares them
with TensorFlow's own class. test_finite_check.py tests the finite check alone.
"""

import json
import warnings

import numpy as np
import pytest
import tensorflow as tf

from scalekeeper import LossScaleOptimizer
from scalekeeper_test_support import script_runner
from scalekeeper_test_support.installed_keras import LOSS_SCALE_CLASSES, OPTIMIZERS
from scalekeeper_test_support.repository import load_script, repository_path

trials = load_script("compat_tests/reliability/non_finite_gradients.py")


KINDS = pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
TYPES = sorted(trials.LARGEST, key=lambda dtype: dtype.name)
# both ways to hand gradients over, and both ways to run a step: the other two come with float32
CASES = [("default", dtype, way) for dtype in TYPES for way in (("eager", False), ("traced", True))]
CASES += [(kind, tf.float32, way) for kind in OPTIMIZERS for way in (("eager", True), ("traced", False))]
if "legacy" in OPTIMIZERS:
    CASES.append(("legacy", tf.float32, ("traced", True)))


def named(value):
    if isinstance(value, tuple):
        return value[0] + (" scaled" if value[1] else "")
    return value.name if isinstance(value, tf.DType) else value


@pytest.mark.parametrize(("kind", "dtype", "way"), CASES, ids=named)
def test_bad_numbers_of_every_type_in_gradients_of_every_size(kind, dtype, way):
    """Not finite: skipped, the scale halves, and the next step is a good one. Finite: applied, whatever the sum."""
    numbers = trials.Numbers(trials.ours, kind, dtype, way)
    found = trials.outcomes_of_numbers(numbers, are_all=dtype == tf.float32 and way[0] == "traced")
    assert {given: set(outcomes) for given, outcomes in found.items()} == {
        given: {trials.EXPECTED_OF_NUMBERS[given]} for given in found
    }
    assert len(found) == (6 if dtype.is_complex else 5)


def test_bad_numbers_in_a_step_that_xla_compiles():
    """The same, where a compiler may take it for granted that no number is NaN (up to 2.2)."""
    numbers = trials.Numbers(trials.ours, "default", tf.float32, ("compiled", True))
    found = trials.outcomes_of_numbers(numbers, are_all=False)
    assert {given: set(outcomes) for given, outcomes in found.items()} == {
        given: {trials.EXPECTED_OF_NUMBERS[given]} for given in found
    }


@KINDS
@pytest.mark.parametrize("trial", trials.TRIALS, ids=lambda trial: trial.given)
def test_gradients_of_odd_kinds(kind, trial):
    """The result equals the expected one, or that of the inner optimizer without a wrapper."""
    ways = [way for way in (("eager", False), ("traced", True)) if way[1] in trial.handed]
    for way in ways:
        found = trials.outcome_of(trial, trials.ours(trials.inner(kind)), way)
        assert trials.is_as_expected(trials.expected_of(trial, kind, way), found), (way, found)
    assert ways


@KINDS
def test_the_error_names_the_variables_that_have_no_gradient(kind):
    """None for every variable is a mistake, and the error says for which."""
    optimizer = trials.ours(trials.inner(kind))
    variables = [tf.Variable(1.0, name="first"), tf.Variable(1.0, name="second")]
    with pytest.raises(ValueError, match="No gradients provided for any variable: .*first.*second"):
        optimizer.apply_gradients([(None, variable) for variable in variables])


@KINDS
def test_a_model_whose_layers_are_all_frozen_can_be_fitted(kind):
    """There is nothing to train, and fit goes through as with the bare optimizer: the scale stays as it is."""
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.build((None, 2))
    model.trainable = False
    optimizer = LossScaleOptimizer(OPTIMIZERS[kind].SGD(1.0), "dynamic")
    model.compile(optimizer, "mse")
    before = [weights.tolist() for weights in model.get_weights()]
    model.fit(np.ones((4, 2), np.float32), np.ones((4, 1), np.float32), batch_size=2, verbose=0)
    assert [weights.tolist() for weights in model.get_weights()] == before
    assert optimizer.loss_scale.state() == {"current_loss_scale": 32768.0, "good_steps": 0}


@KINDS
def test_a_variable_without_gradient_is_warned_of_as_without_a_wrapper(kind, caplog, monkeypatch):
    """Keras tells of variables that have no gradient, in its log or as a warning: it does so through ours, too."""
    monkeypatch.setattr(tf.get_logger(), "propagate", True)
    for logger in ("tensorflow", "absl"):  # commands, which other tests have run in this process, want no warnings
        caplog.set_level("WARNING", logger=logger)
    told = []
    for optimizer in (trials.inner(kind), trials.ours(trials.inner(kind))):
        caplog.clear()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            optimizer.apply_gradients([(None, tf.Variable(1.0)), (tf.constant(1.0), tf.Variable(1.0))])
        messages = [*caplog.messages, *(str(each.message) for each in caught)]
        told.append(sum("Gradients do not exist for variables" in message for message in messages))
    assert told[1] == told[0] > 0  # new optimizers tell it twice


@KINDS
@pytest.mark.parametrize("shape", [[None], None], ids=["unknown size", "unknown rank"])
def test_gradients_whose_shape_is_not_known_while_tracing(kind, shape):
    """A gradient of 7 / 1024 moves a weight by just that, and bad ones do not: a NaN, and an infinity."""
    optimizer = LossScaleOptimizer(OPTIMIZERS[kind].SGD(1.0), {"name": "dynamic", "initial_loss_scale": 1024.0})
    variable = tf.Variable(tf.zeros([3]))
    optimizer.apply_gradients([(tf.zeros([3]), variable)])

    @tf.function(input_signature=[tf.TensorSpec(shape)], autograph=False)
    def step(gradient):
        grads = optimizer.get_unscaled_gradients([gradient])
        optimizer.apply_gradients(zip(grads, [variable]))

    for gradient in ([7.0, 0.0, -7.0], [0.0, 0.0, trials.NAN], [7.0, trials.INF, 0.0]):
        step(tf.constant(gradient))
        assert variable.numpy().tolist() == [-7 / 1024, 0.0, 7 / 1024]
    assert optimizer.loss_scale.state() == {"current_loss_scale": 256.0, "good_steps": 0}


@KINDS
def test_a_loss_that_is_not_finite_while_its_gradients_are(kind):
    """It is the gradients that count: a NaN that does not depend on the weights stops nothing."""
    optimizer, variable = trials.ours(trials.inner(kind)), tf.Variable(1.0)
    with tf.GradientTape() as tape:
        loss = optimizer.get_scaled_loss(0.5 * variable + tf.constant(trials.NAN))
    optimizer.apply_gradients(zip(optimizer.get_unscaled_gradients(tape.gradient(loss, [variable])), [variable]))
    assert variable.numpy() == 0.5


@pytest.mark.parametrize("is_traced", [False, True], ids=["eager", "traced"])
def test_a_scale_below_one_takes_float16_gradients_beyond_their_largest_number(is_traced):
    """60,000 divided by 0.5 overflows float16: skipped; 30,000 is applied as 60,000. Small ones and large ones."""
    optimizer = LossScaleOptimizer(
        tf.keras.optimizers.SGD(1.0), {"name": "dynamic", "initial_loss_scale": 0.5, "minimum": 0.5}
    )
    variables = [tf.Variable(tf.zeros(size, tf.float16)) for size in (1, 70000)]

    def step(number):
        grads = optimizer.get_unscaled_gradients([tf.fill(variable.shape, number) for variable in variables])
        optimizer.apply_gradients(zip(grads, variables))

    step = tf.function(step, autograph=False) if is_traced else step
    step(tf.constant(6e4, tf.float16))
    assert [variable.numpy()[-1] for variable in variables] == [0.0, 0.0]
    step(tf.constant(3e4, tf.float16))
    assert [variable.numpy()[-1] for variable in variables] == [-6e4, -6e4]


@pytest.mark.parametrize(("kind", "steps"), [(kind, 10_000 if kind == "default" else 1_000) for kind in OPTIMIZERS])
def test_bad_steps_at_the_floor(kind, steps):
    """The scale stays at 1, every step is counted, memory stays; then good steps are taken and the scale grows."""
    found = trials.at_the_floor(kind, steps)
    assert found.pop("memory at the end") <= 1.02
    assert found == {
        "weight": 1.0,
        "steps": steps,
        "skipped": steps,
        "skipped in a row": steps,
        "last skipped step": steps,
        "overflows": {"only": steps},
        "scale": 1.0,
        "iterations": 0,
        "weight after three good steps": -0.5,
        "scale after three good steps": 8.0,
        "skipped in a row then": 0,
        "traces after the first step": 0,
    }


POLICIES_AT_THE_CEILING = {
    "without a maximum": lambda: {"name": "dynamic", **trials.NEAR_THE_CEILING},
    "with a maximum": lambda: {"name": "dynamic", **trials.NEAR_THE_CEILING, "maximum": 3e38},
    "fixed": lambda: 3e38,
    "TensorFlow's own policy": lambda: LOSS_SCALE_CLASSES.DynamicLossScale(**trials.NEAR_THE_CEILING),
}


@pytest.mark.parametrize("name", sorted(POLICIES_AT_THE_CEILING))
def test_steps_at_the_ceiling_are_taken_in_full(name):
    """The reciprocal of 2**127 is subnormal, and zero on most devices; no step may apply zeros for that."""
    for way in ("eager", "traced"):
        optimizer = LossScaleOptimizer(trials.inner("default"), POLICIES_AT_THE_CEILING[name]())
        assert trials.at_the_ceiling(optimizer, way, 20) == -10.0


@KINDS
def test_a_compiled_step_at_the_ceiling_is_taken_in_full(kind):
    """The same by XLA; the state is TensorFlow's rule, 2**127, and the scale that is used is 2**126 at most."""
    optimizer = trials.ours_near_the_ceiling(kind)
    assert trials.at_the_ceiling(optimizer, "compiled", 20) == -10.0
    assert optimizer.loss_scale.state()["current_loss_scale"] == 2.0**127
    assert float(optimizer.loss_scale()) == 2.0**126 == float(optimizer.get_scaled_loss(tf.constant(1.0)))
    assert optimizer.telemetry.skipped == 0


@pytest.fixture(scope="module")
def on_replicas():
    printed = script_runner.run(repository_path("compat_tests/optimizer/non_finite_gradients_on_replicas.py"))
    return json.loads(printed.splitlines()[-1])


@KINDS
def test_bad_numbers_on_one_of_two_replicas(on_replicas, kind):
    """Small and large gradients: both replicas skip; what is finite on both is applied, with its sum."""
    assert on_replicas[kind]["steps"] == {
        dtype.name: {
            "NaN on the second": trials.SKIPPED,
            "inf on the first": trials.SKIPPED,
            "the largest numbers": trials.APPLIED,
        }
        for dtype in (tf.float16, tf.float32)
    }


@KINDS
def test_no_gradients_on_replicas(on_replicas, kind):
    """None for every variable is an error that says so; an empty list is nothing to do."""
    assert on_replicas[kind]["None for every variable"].startswith("No gradients provided for any variable")
    assert on_replicas[kind]["an empty list"] == {"current_loss_scale": 1024.0, "good_steps": 0}
