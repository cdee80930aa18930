"""Ours and TensorFlow's own class, driven side by side: equal at every step, bit for bit.

Named exceptions, where ours is better on purpose and which other tests show: float16 losses (B3), clipping (B5), slots
(B6), sparse gradients (B7), skipped steps by choice (B8), strategies (B10).
"""

import numpy as np
import pytest
import tensorflow as tf

from scalekeeper import resolve
from scalekeeper.optimizer import LossScaleOptimizer
from scalekeeper_test_support.installed_keras import (
    COUNTS_SKIPPED_STEPS,
    HAS_LOSS_SCALE_OBJECTS,
    IS_KERAS_3,
    LOSS_SCALE_CLASSES,
    OPTIMIZERS,
    InexpressibleError,
    apply_unscaled,
    inner_of,
    state_of,
    upstream,
)

STEPS = 200
OVERFLOWS = {0: np.inf, 7: np.nan, 8: -np.inf, 50: np.inf, 51: np.inf, 52: np.nan, 120: np.nan, 199: np.inf}
INNER = {
    "SGD": lambda kind: kind.SGD(0.05),
    "momentum": lambda kind: kind.SGD(0.05, momentum=0.9, nesterov=True),
    "Adam": lambda kind: kind.Adam(0.01),
    "AMSGrad": lambda kind: kind.Adam(0.01, amsgrad=True),
    "RMSprop": lambda kind: kind.RMSprop(0.01, momentum=0.5, centered=True),
    "Adagrad": lambda kind: kind.Adagrad(0.05),
    "Adadelta": lambda kind: kind.Adadelta(0.5),
    "Adamax": lambda kind: kind.Adamax(0.01),
    "Nadam": lambda kind: kind.Nadam(0.01),
    "Ftrl": lambda kind: kind.Ftrl(0.05),
}
# those that came later, with the arguments that make them do something here
LATER = {
    "AdamW": {"weight_decay": 0.01},
    "Adafactor": {"learning_rate": 0.05},
    "Lion": {"learning_rate": 0.01},
    "Lamb": {"learning_rate": 0.01},
    "Muon": {"learning_rate": 0.01},
    "ScheduleFreeAdamW": {"learning_rate": 0.01},
}
for name, arguments in LATER.items():
    if hasattr(tf.keras.optimizers, name):
        INNER[name] = lambda kind, name=name, arguments=arguments: getattr(kind, name)(**arguments)
# inside Keras 2.11's own wrapper, in a graph, Nadam multiplies its product of momenta less often than without it
KEEPS_ANOTHER_PRODUCT = (OPTIMIZERS["default"].Nadam,) if tf.__version__.startswith("2.11.") else ()
DYNAMIC = {"initial_loss_scale": 1024.0, "increment_period": 9}
LOSS_SCALES = {
    "fixed": 128.0,
    "dynamic": {"name": "dynamic", **DYNAMIC},
    "multiplier 3": {"name": "dynamic", "initial_loss_scale": 1000.0, "increment_period": 4, "multiplier": 3.0},
}


def theirs(inner, scale_name):
    loss_scale = LOSS_SCALES[scale_name]
    if isinstance(inner, KEEPS_ANOTHER_PRODUCT):
        raise InexpressibleError("the wrapper trains otherwise than the bare optimizer")
    if isinstance(loss_scale, dict):
        loss_scale = {name: value for name, value in loss_scale.items() if name != "name"}
    return upstream(inner, loss_scale)


VARIABLE = tf.keras.Variable if IS_KERAS_3 else tf.Variable  # Muon asks for a path, which TensorFlow's own has not


def variables_in_attributes(optimizer):
    """Return every variable of a new optimizer: inside Keras 3's wrapper, ``variables`` lacks some of Nadam."""
    found = {}
    for attribute, value in vars(optimizer).items():
        several = value if isinstance(value, (list, tuple)) else [value]
        if attribute not in ("_variables", "_trainable_variables") and several:
            for index, each in enumerate(several):
                if isinstance(each, (VARIABLE, tf.Variable)):
                    found[f"{attribute} {index}"] = each.numpy()
    return found


class Run:
    """An optimizer on two variables of its own, with one traced step."""

    def __init__(self, optimizer):
        rng = np.random.RandomState(3)
        self.optimizer = optimizer
        self.variables = [VARIABLE(rng.randn(3, 2).astype("float32")), VARIABLE(rng.randn(2).astype("float32"))]
        # all variables before the first step, which may be skipped; and outside of the graph, where some can't be made
        inner, _ = inner_of(optimizer), optimizer.iterations
        optimizer.build(self.variables) if hasattr(inner, "build") else inner._create_slots(self.variables)
        # the graph itself: to look for it anew at every step would take as long as the step
        signature = [tf.TensorSpec([4, 3]), tf.TensorSpec([])]
        self.step = tf.function(self._step, input_signature=signature).get_concrete_function()

    def _step(self, data, disturbance):
        with tf.GradientTape() as tape:
            output = tf.tanh(data @ self.variables[0] + self.variables[1])
            loss = self.scaled(tf.reduce_mean(output**2) + disturbance * tf.reduce_sum(self.variables[1]))
        grads = self.unscaled(
            tape.gradient(loss, [each.value for each in self.variables] if IS_KERAS_3 else self.variables)
        )
        self.optimizer.apply_gradients(zip(grads, self.variables))

    def scaled(self, loss):
        return self.optimizer.get_scaled_loss(loss)

    def unscaled(self, grads):
        return self.optimizer.get_unscaled_gradients(grads)

    def state(self):
        """Everything that must be equal, by name."""
        inner = inner_of(self.optimizer)
        state = {f"variable {index}": variable.numpy() for index, variable in enumerate(self.variables)}
        if hasattr(inner, "get_slot"):
            state.update({f"weight {index}": each for index, each in enumerate(inner.get_weights())})
            for index, variable in enumerate(self.variables):
                for slot in sorted(inner.get_slot_names()):
                    state[f"slot {slot} {index}"] = inner.get_slot(variable, slot).numpy()
        else:
            state.update(variables_in_attributes(inner))
        state["iterations"] = self.optimizer.iterations.numpy()
        return dict(state, **self.loss_scale_state())

    def loss_scale_state(self):
        return state_of(self.optimizer)


class InKeras3Words(Run):
    """The same in the words of Keras 3, whose own class has no others: it scales, and applies scaled gradients."""

    def scaled(self, loss):
        return self.optimizer.scale_loss(loss)

    def unscaled(self, grads):
        return grads


class Reference(Run):
    """For what TensorFlow's own class can't say: the bare optimizer on the good steps, and the policy in NumPy."""

    def __init__(self, optimizer, loss_scale):
        super().__init__(optimizer)
        self.policy = resolve(loss_scale)

    def scaled(self, loss):
        return loss

    def unscaled(self, grads):
        return grads

    def run(self, data, disturbance):
        self.policy.update([disturbance.numpy()])
        if np.isfinite(disturbance):
            self.step(data, disturbance)
        elif COUNTS_SKIPPED_STEPS:
            self.optimizer.iterations.assign_add(1)

    def loss_scale_state(self):
        return {"current_loss_scale": float(self.policy()), "good_steps": self.policy.state().get("good_steps")}


def assert_equal(expected, actual, number, is_exact=True):
    assert expected.keys() == actual.keys()
    for name in expected:
        if np.array_equal(actual[name], expected[name]):
            continue  # and NumPy need not prepare the message that follows
        message = f"{name} after step {number}"
        if is_exact or name in ("iterations", "current_loss_scale", "good_steps"):
            np.testing.assert_array_equal(actual[name], expected[name], err_msg=message)
        else:  # a scale that is not a power of two rounds
            np.testing.assert_allclose(actual[name], expected[name], rtol=2e-3, atol=1e-5, err_msg=message)


CASES = [("default", name) for name in sorted(INNER)]
CASES += [("legacy", name) for name in sorted(INNER) if "legacy" in OPTIMIZERS and name not in LATER]


@pytest.mark.parametrize("scale_name", sorted(LOSS_SCALES))
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_equal_at_every_step(kind, name, scale_name):
    """200 steps with overflows: weights, slots, iterations, scale and counter are equal after each, bit for bit."""
    loss_scale = LOSS_SCALES[scale_name]

    def make():
        return INNER[name](OPTIMIZERS[kind])

    ours = Run(LossScaleOptimizer(make(), loss_scale))
    is_exact = True
    try:
        own = theirs(make(), scale_name)
        reference = InKeras3Words(own) if IS_KERAS_3 else Run(own)
        reference.run = reference.step
    except InexpressibleError:
        reference, is_exact = Reference(make(), loss_scale), scale_name == "fixed"
    rng = np.random.RandomState(5)
    scales = set()
    for number in range(STEPS):
        data = tf.constant(rng.randn(4, 3), tf.float32)
        # TensorFlow's fixed scale applies what is not finite: after that there would be nothing left to compare
        disturbance = tf.constant(OVERFLOWS.get(number, 0) if scale_name != "fixed" else 0, tf.float32)
        reference.run(data, disturbance)
        ours.step(data, disturbance)
        actual = ours.state()
        assert_equal(reference.state(), actual, number, is_exact)
        scales.add(actual["current_loss_scale"])
    assert len(scales) == 1 if scale_name == "fixed" else len(scales) > 4
    assert all(np.isfinite(value).all() for value in actual.values() if value is not None)


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in OPTIMIZERS for name in ("momentum", "Adam")])
def test_equal_in_eager_mode(kind, name):
    """The same without a graph, 30 steps."""
    own = theirs(INNER[name](OPTIMIZERS[kind]), "dynamic")
    ours = LossScaleOptimizer(INNER[name](OPTIMIZERS[kind]), LOSS_SCALES["dynamic"])
    runs = [InKeras3Words(own) if IS_KERAS_3 else Run(own), Run(ours)]
    rng = np.random.RandomState(5)
    for number in range(30):
        data = tf.constant(rng.randn(4, 3), tf.float32)
        for run in runs:
            run._step(data, tf.constant(OVERFLOWS.get(number, 0.0), tf.float32))
        assert_equal(runs[0].state(), runs[1].state(), number)


@pytest.mark.skipif(not IS_KERAS_3, reason="scale_loss is a word of Keras 3")
@pytest.mark.parametrize("name", ["momentum", "Adam"])
def test_equal_in_the_words_of_keras_3(name):
    """scale_loss, and scaled gradients to apply_gradients: 30 steps as with Keras's own class."""
    own = theirs(INNER[name](tf.keras.optimizers), "dynamic")
    ours = LossScaleOptimizer(INNER[name](tf.keras.optimizers), LOSS_SCALES["dynamic"])
    runs = [InKeras3Words(own), InKeras3Words(ours)]
    rng = np.random.RandomState(5)
    for number in range(30):
        data = tf.constant(rng.randn(4, 3), tf.float32)
        for run in runs:
            run.step(data, tf.constant(OVERFLOWS.get(number, 0.0), tf.float32))
        assert_equal(runs[0].state(), runs[1].state(), number)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_fixed_scale_applies_what_is_not_finite_as_tensorflow_does(number):
    """B12: the weights become NaN in both; with skip_nonfinite ours keeps them."""
    skipping = {"name": "fixed", "loss_scale_value": 128, "skip_nonfinite": True}
    optimizers = [
        LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), 128.0),
        LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), skipping),
    ]
    if not IS_KERAS_3:  # whose own class has no fixed scale
        optimizers.insert(0, upstream(tf.keras.optimizers.SGD(1.0), 128.0))
    outcomes = []
    for optimizer in optimizers:
        variable = tf.Variable(1.0)
        optimizer.apply_gradients([(tf.constant(number), variable)])
        outcomes.append(bool(np.isfinite(variable.numpy())))
    assert outcomes == [False, False, True][-len(optimizers) :]


@pytest.mark.parametrize("scale_name", ["fixed", "dynamic"])
def test_a_loss_scale_object_of_tensorflows_own(scale_name):
    """It is used as it is: ours with TensorFlow's policy gives what TensorFlow's class gives, or ours with our own."""
    policies = LOSS_SCALE_CLASSES
    policy = policies.FixedLossScale(128.0) if scale_name == "fixed" else policies.DynamicLossScale(**DYNAMIC)
    inner = OPTIMIZERS["default"]
    other = (
        theirs(inner.Adam(0.01), scale_name)
        if HAS_LOSS_SCALE_OBJECTS
        else LossScaleOptimizer(inner.Adam(0.01), LOSS_SCALES[scale_name])
    )
    runs = [Run(other), Run(LossScaleOptimizer(inner.Adam(0.01), policy))]
    rng = np.random.RandomState(5)
    for number in range(30):
        data = tf.constant(rng.randn(4, 3), tf.float32)
        disturbance = tf.constant(np.nan if scale_name == "dynamic" and number in (3, 4, 20) else 0, tf.float32)
        for run in runs:
            run.step(data, disturbance)
    for index in range(2):
        np.testing.assert_array_equal(runs[0].variables[index].numpy(), runs[1].variables[index].numpy())
    assert float(policy()) == state_of(other)["current_loss_scale"] == (128.0 if scale_name == "fixed" else 512.0)


@pytest.mark.parametrize(("choice", "expected"), [("advance", 3), ("hold", 1), ("native", None)])
def test_whether_a_skipped_step_counts_is_a_choice(choice, expected):
    """B8: two skipped steps and a good one; native is what TensorFlow's own class does here."""
    counts = []
    for optimizer in (
        LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), "dynamic", skipped_steps=choice),
        upstream(tf.keras.optimizers.SGD(1.0)),
    ):
        variable = tf.Variable(1.0)
        for gradient in (np.nan, np.inf, 1.0):
            apply_unscaled(optimizer, [(tf.constant(gradient, tf.float32), variable)])
        counts.append(int(optimizer.iterations.numpy()))
    assert counts[0] == (counts[1] if expected is None else expected)


def test_the_graph_is_the_simulation():
    """The same policy in NumPy and in the graph: equal states for 300 random steps, for a multiplier that rounds."""
    spec = {"name": "dynamic", "initial_loss_scale": 1000, "increment_period": 3, "multiplier": 1.7, "maximum": 5e4}
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
