"""Every registered policy in TensorFlow's graph: the same states and decisions as in NumPy, to the last bit."""

import inspect

import numpy as np
import pytest
import tensorflow as tf

from scalekeeper import Report, resolve
from scalekeeper.lossscales import advance
from scalekeeper.lossscales._numpy_state import OPS
from scalekeeper.optimizer import LossScaleOptimizer
from scalekeeper.registry import loss_scales

pytestmark = pytest.mark.slow(is_divided=True)

STEPS = 300
# so that in so few steps all that can happen does
SHORT = {
    "dynamic": {"increment_period": 3},
    "tolerant": {"increment_period": 3, "tolerance": 0.3},
    "adaptive_window": {"minimum_window": 2, "initial_window": 2, "maximum_window": 12},
    "log_max": {"beta1": 0.9, "beta2": 0.97},
    "fixed": {"loss_scale_value": 8.0, "skip_nonfinite": True},
    "none": {"skip_nonfinite": True, "apply_after_skips": 1},
    "scheduled": {"values": [64.0, 1000.0, 3.0], "boundaries": [50, 200]},
}
MORE = [
    {"name": "dynamic", "increment_period": 2, "growth_factor": 1.7, "backoff_factor": 0.3, "maximum": 4e4},
    {"name": "dynamic", "increment_period": 4, "hysteresis": 3, "refill": "never", "refill_on_backoff": True},
    {"name": "dynamic", "increment_period": 4, "multiplier": 3.0, "minimum": 2.0**-126},
    {"name": "scheduled", "values": [64.0, 1000.0, 3.0], "boundaries": [50, 200], "schedule": "linear"},
    {"name": "scheduled", "values": [64.0, 1000.0, 3.0], "boundaries": [50, 200], "schedule": "exponential"},
    {"name": "log_max", "minimum": 2.0**-126, "maximum": 2.0**127},
    {"name": "none"},
]
SPECS = [
    dict(SHORT[row.name.partition("/")[0]], name=row.name) for row in loss_scales.listing() if row.origin == "built in"
] + MORE
# of these, a compiler may see float operations that it would like to merge, or whole numbers
COMPILED = [
    *(spec for spec in SPECS if spec["name"] in ("log_max", "scheduled", "tolerant", "adaptive_window")),
    MORE[0],
    MORE[1],
]
COMPILE = [
    name for name in ("jit_compile", "experimental_compile") if name in inspect.signature(tf.function).parameters
]

# up to 2.2 XLA computes on a CPU as if no number were infinite, and sees through all that holds it off
REORDERS_SUMS = tuple(map(int, tf.__version__.split(".")[:2])) < (2, 3)


def magnitudes():
    """Gradients of every size, and what is none: long quiet stretches, bursts, and single non-finite steps."""
    random = np.random.RandomState(7)
    sizes = np.exp2(random.normal(-3, 4, STEPS)).astype(np.float32)
    is_bad = random.rand(STEPS) < 0.12
    is_bad[[40, 41, 42, 43, 44, 150, 151, 152]] = True
    sizes[is_bad] = random.choice([np.inf, -np.inf, np.nan], is_bad.sum())
    sizes[[10, 11, 100]] = [0.0, 1e-42, 3e38]
    sizes[60:90] = np.abs(np.nan_to_num(sizes[60:90], nan=1.0, posinf=1.0, neginf=1.0))
    return sizes


def in_numpy(policy, sizes):
    """State, scale and decision of each step."""
    state, found = policy.initial_state(), []
    for size in sizes:
        with np.errstate(all="ignore"):
            scale = policy.scale(state, OPS)
        report = Report(finite=np.isfinite(size), largest_magnitude=np.abs(size), zero_share=np.float32(size == 0))
        state, applied = advance(policy, state, report)
        found.append((float(scale), {name: value.item() for name, value in state.items()}, bool(applied)))
    return found


def in_tensorflow(policy, sizes, **options):
    """The same of a real optimizer in a traced step: a step was applied if it moved the counter."""
    optimizer = LossScaleOptimizer(tf.keras.optimizers.SGD(0.0), policy, skipped_steps="hold")
    variable, start = tf.Variable(0.0), {name: value.item() for name, value in policy.initial_state().items()}
    # XLA compiles no function that makes variables
    optimizer.apply_gradients([(tf.constant(0.0), variable)])
    policy.load_state(start)
    optimizer.iterations.assign(0)

    def step(gradient):
        scale = optimizer.loss_scale()
        optimizer.apply_gradients([(gradient, variable)])
        return scale

    function, found, before = _traced(step, options), [], 0
    for size in sizes:
        scale = function(tf.constant(size))
        after = int(optimizer.iterations.numpy())
        found.append((float(np.asarray(scale).reshape(())), optimizer.loss_scale.state(), after > before))
        before = after
    return found


def _traced(step, options):
    if options and not COMPILE:
        return tf.function(lambda gradient: tf.xla.experimental.compile(step, [gradient]), autograph=False)
    return tf.function(step, autograph=False, **({COMPILE[0]: True} if options else {}))


def label(spec):
    return "-".join([spec["name"], *sorted(set(spec) - {"name"} - set(SHORT[spec["name"].partition("/")[0]]))])


@pytest.mark.parametrize("spec", SPECS, ids=label)
def test_the_graph_equals_the_simulation(spec):
    """Scale, state and decision of 300 steps, compared without any tolerance."""
    expected = in_numpy(resolve(spec), magnitudes())
    assert in_tensorflow(resolve(spec), magnitudes()) == expected
    assert {applied for _, _, applied in expected} == ({True} if spec == {"name": "none"} else {True, False})


@pytest.mark.parametrize("spec", COMPILED, ids=label)
def test_so_does_a_step_that_xla_compiles(spec):
    """A compiler that merges operations does not change a bit either; an old one, that reorders sums, only a few."""
    sizes = magnitudes()[:120]
    actual, expected = in_tensorflow(resolve(spec), sizes, compiled=True), in_numpy(resolve(spec), sizes)
    if spec["name"] == "log_max" and REORDERS_SUMS:
        assert [applied for _, _, applied in actual] == [applied for _, _, applied in expected]
        scales, expected_scales = ([scale for scale, _, _ in found] for found in (actual, expected))
        np.testing.assert_allclose(scales, expected_scales, rtol=1e-4)
    else:
        assert actual == expected
