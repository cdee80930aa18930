"""Ours and TensorFlow's own class, driven side by side: equal at every step, bit for bit.

Named exceptions, where ours is better on purpose and which other tests show: float16 losses (B3), clipping (B5), slots
(B6), sparse gradients (B7), skipped steps by choice (B8), strategies (B10).
"""

import numpy as np
import pytest
import tensorflow as tf

from scalekeeper.optimizer import LossScaleOptimizer

pytestmark = pytest.mark.filterwarnings("ignore")

UPSTREAM = tf.keras.mixed_precision.experimental.LossScaleOptimizer
STEPS = 200
OVERFLOWS = {0: np.inf, 7: np.nan, 8: -np.inf, 50: np.inf, 51: np.inf, 52: np.nan, 120: np.nan, 199: np.inf}
OPTIMIZERS = {
    "SGD": lambda: tf.keras.optimizers.SGD(0.05),
    "momentum": lambda: tf.keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    "Adam": lambda: tf.keras.optimizers.Adam(0.01),
    "AMSGrad": lambda: tf.keras.optimizers.Adam(0.01, amsgrad=True),
    "RMSprop": lambda: tf.keras.optimizers.RMSprop(0.01, momentum=0.5, centered=True),
    "Adagrad": lambda: tf.keras.optimizers.Adagrad(0.05),
    "Adadelta": lambda: tf.keras.optimizers.Adadelta(0.5),
    "Adamax": lambda: tf.keras.optimizers.Adamax(0.01),
    "Nadam": lambda: tf.keras.optimizers.Nadam(0.01),
    "Ftrl": lambda: tf.keras.optimizers.Ftrl(0.05),
}


def loss_scale_pairs():
    """Name → TensorFlow's policy, ours."""
    theirs = tf.train.experimental
    return {
        "fixed": (theirs.FixedLossScale(128.0), 128.0),
        "dynamic": (
            theirs.DynamicLossScale(initial_loss_scale=1024.0, increment_period=9, multiplier=2.0),
            {"name": "dynamic", "initial_loss_scale": 1024, "increment_period": 9},
        ),
        "multiplier 3": (
            theirs.DynamicLossScale(initial_loss_scale=1000.0, increment_period=4, multiplier=3.0),
            {"name": "dynamic", "initial_loss_scale": 1000, "increment_period": 4, "multiplier": 3},
        ),
    }


class Run:
    """An optimizer on two variables of its own, with one traced step."""

    def __init__(self, optimizer):
        rng = np.random.RandomState(3)
        self.optimizer = optimizer
        self.variables = [tf.Variable(rng.randn(3, 2).astype("float32")), tf.Variable(rng.randn(2).astype("float32"))]

        @tf.function(input_signature=[tf.TensorSpec([4, 3]), tf.TensorSpec([])])
        def step(data, disturbance):
            with tf.GradientTape() as tape:
                output = tf.tanh(data @ self.variables[0] + self.variables[1])
                loss = optimizer.get_scaled_loss(
                    tf.reduce_mean(output**2) + disturbance * tf.reduce_sum(self.variables[1])
                )
            grads = optimizer.get_unscaled_gradients(tape.gradient(loss, self.variables))
            optimizer.apply_gradients(zip(grads, self.variables))

        self.step = step

    def state(self):
        """Everything that must be equal, by name."""
        optimizer = getattr(self.optimizer, "_optimizer")  # noqa: B009
        state = {f"variable {index}": variable.numpy() for index, variable in enumerate(self.variables)}
        state.update({f"weight {index}": weight for index, weight in enumerate(optimizer.get_weights())})
        for index, variable in enumerate(self.variables):
            for slot in sorted(optimizer.get_slot_names()):
                state[f"slot {slot} {index}"] = optimizer.get_slot(variable, slot).numpy()
        state["iterations"] = self.optimizer.iterations.numpy()
        state["scale"] = np.float32(self.optimizer.loss_scale())
        return state


def counter_of(loss_scale):
    """The steps since the last change, wherever the class keeps them."""
    if hasattr(loss_scale, "state"):
        return loss_scale.state().get("good_steps")
    counter = getattr(loss_scale, "_num_good_steps", None)
    return None if counter is None else int(counter)


@pytest.mark.parametrize("scale_name", ["fixed", "dynamic", "multiplier 3"])
@pytest.mark.parametrize("optimizer_name", sorted(OPTIMIZERS))
def test_equal_at_every_step(optimizer_name, scale_name):
    """200 steps with overflows: weights, slots, iterations, scale and counter are equal after each, bit for bit."""
    theirs, ours = loss_scale_pairs()[scale_name]
    make = OPTIMIZERS[optimizer_name]
    runs = [Run(UPSTREAM(make(), theirs)), Run(LossScaleOptimizer(make(), ours))]
    rng = np.random.RandomState(5)
    scales = set()
    for number in range(STEPS):
        data = rng.randn(4, 3).astype("float32")
        # TensorFlow's fixed scale applies what is not finite: after that there would be nothing left to compare
        disturbance = np.float32(OVERFLOWS.get(number, 0) if scale_name != "fixed" else 0)
        for run in runs:
            run.step(data, disturbance)
        expected, actual = [run.state() for run in runs]
        assert expected.keys() == actual.keys()
        for name in expected:
            np.testing.assert_array_equal(expected[name], actual[name], err_msg=f"{name} after step {number}")
        assert counter_of(runs[0].optimizer.loss_scale) == counter_of(runs[1].optimizer.loss_scale)
        scales.add(float(actual["scale"]))
    assert len(scales) == 1 if scale_name == "fixed" else len(scales) > 4
    assert all(np.isfinite(value).all() for value in actual.values())


@pytest.mark.parametrize("optimizer_name", ["momentum", "Adam"])
def test_equal_in_eager_mode(optimizer_name):
    """The same without a graph, 30 steps."""
    runs = []
    for cls, loss_scale in zip((UPSTREAM, LossScaleOptimizer), loss_scale_pairs()["dynamic"]):
        runs.append(Run(cls(OPTIMIZERS[optimizer_name](), loss_scale)))
    rng = np.random.RandomState(5)
    for number in range(30):
        data = tf.constant(rng.randn(4, 3), tf.float32)
        for run in runs:
            run.step.python_function(data, tf.constant(OVERFLOWS.get(number, 0.0), tf.float32))
        expected, actual = [run.state() for run in runs]
        for name in expected:
            np.testing.assert_array_equal(expected[name], actual[name], err_msg=f"{name} after step {number}")


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_fixed_scale_applies_what_is_not_finite_as_tensorflow_does(number):
    """B12: the weights become NaN in both; with skip_nonfinite ours keeps them."""
    outcomes = []
    for optimizer in (
        UPSTREAM(tf.keras.optimizers.SGD(1.0), 128.0),
        LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), 128.0),
        LossScaleOptimizer(
            tf.keras.optimizers.SGD(1.0), {"name": "fixed", "loss_scale_value": 128, "skip_nonfinite": True}
        ),
    ):
        variable = tf.Variable(1.0)
        optimizer.apply_gradients([(tf.constant(number), variable)])
        outcomes.append(bool(np.isfinite(variable.numpy())))
    assert outcomes == [False, False, True]


@pytest.mark.parametrize("name", ["fixed", "dynamic"])
def test_a_loss_scale_object_of_tensorflows_own(name):
    """It is used as it is: ours with TensorFlow's policy is TensorFlow's class with the same."""
    runs = []
    for cls in (UPSTREAM, LossScaleOptimizer):
        runs.append(Run(cls(tf.keras.optimizers.Adam(0.01), loss_scale_pairs()[name][0])))
    rng = np.random.RandomState(5)
    for number in range(30):
        data = rng.randn(4, 3).astype("float32")
        for run in runs:
            run.step(data, np.float32(np.nan if name == "dynamic" and number in (3, 4, 20) else 0))
    expected, actual = [run.state() for run in runs]
    for key in expected:
        np.testing.assert_array_equal(expected[key], actual[key], err_msg=key)


@pytest.mark.parametrize(("choice", "expected"), [("advance", 3), ("hold", 1), ("native", None)])
def test_whether_a_skipped_step_counts_is_a_choice(choice, expected):
    """B8: two skipped steps and a good one; native is what TensorFlow's own class does here."""
    counts = []
    for optimizer in (
        LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), "dynamic", skipped_steps=choice),
        UPSTREAM(tf.keras.optimizers.SGD(1.0), "dynamic"),
    ):
        variable = tf.Variable(1.0)
        for gradient in (np.nan, np.inf, 1.0):
            optimizer.apply_gradients([(tf.constant(gradient, tf.float32), variable)])
        counts.append(int(optimizer.iterations.numpy()))
    assert counts[0] == (counts[1] if expected is None else expected)


def test_the_graph_is_the_simulation():
    """The same policy in NumPy and in the graph: equal states for 300 random steps, for a multiplier that rounds."""
    spec = {"name": "dynamic", "initial_loss_scale": 1000, "increment_period": 3, "multiplier": 1.7, "maximum": 5e4}
    from scalekeeper import resolve

    simulated = resolve(spec)
    optimizer = LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), spec)
    variable = tf.Variable(0.0)

    @tf.function(input_signature=[tf.TensorSpec([])])
    def step(gradient):
        optimizer.apply_gradients([(gradient, variable)])

    rng = np.random.RandomState(1)
    for _ in range(300):
        gradient = np.float32(np.inf if rng.rand() < 0.2 else 0)
        step(gradient)
        simulated.update([gradient])
        assert optimizer.loss_scale.state() == simulated.state()
