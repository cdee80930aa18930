"""One small training run, the same on every TensorFlow from 2.0 on: the writer of a golden file starts it,
the reader continues it.

Training is in float32, but a gradient that float16 could not hold overflows. So the loss scale matters: a wrong scale,
counter or multiplier skips other steps, and ends with other weights. Differences between versions are asked by what is
there.
"""

import functools

import numpy as np
import tensorflow as tf

from scalekeeper_test_support.golden.matrix import FLAVOURS, OURS

SAVED_AFTER, LAST = 5, 11  # steps
FORCED_OVERFLOW = 3  # a step that overflows at every scale
SPIKES = (6, 7, 11)  # steps that overflow if the scale is 1024: at the sixth it is below, unless it began anew

OWNERS = ("d1/kernel", "d1/bias", "d2/kernel", "d2/bias")
WEIGHTS = (
    [[0.5, -0.25, 0.125, 0.75], [-0.5, 0.375, 0.25, -0.125]],
    [0.0, 0.125, -0.125, 0.25],
    [[0.5], [-0.75], [0.25], [0.375]],
    [0.125],
)
INPUTS = [[0.5, -0.25], [-0.75, 0.5], [0.25, 1.0], [1.0, -0.5]]
TARGETS = [[0.5], [-1.0], [0.75], [0.25]]

FIXED_SCALE, INITIAL_SCALE, PERIOD = 128.0, 1024.0, 3
MULTIPLIERS = {"dynamic": 2.0, "dynamic4": 4.0}
SLOTS = {"sgd": ("momentum",), "adam": ("m", "v"), "rmsprop": ("rms", "momentum")}
HYPERPARAMETERS = {
    "sgd": {"learning_rate": 0.001, "momentum": 0.9, "nesterov": False},
    "adam": {"learning_rate": 0.01, "beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7, "amsgrad": False},
    "rmsprop": {"learning_rate": 0.001, "rho": 0.9, "momentum": 0.9, "epsilon": 1e-7, "centered": False},
}
_CLASSES = {"sgd": "SGD", "adam": "Adam", "rmsprop": "RMSprop"}
# optimizers without slots keep lists, one variable for each of the model's
_LISTS = {
    "sgd": {"momentum": "momentums"},
    "adam": {"m": "_momentums", "v": "_velocities"},
    "rmsprop": {"rms": "_velocities", "momentum": "_momentums"},
}

IS_KERAS_3 = hasattr(tf.keras, "Operation")
_MIXED_PRECISION = tf.keras.mixed_precision
HAS_PUBLIC_CLASS = hasattr(_MIXED_PRECISION, "LossScaleOptimizer")  # since 2.4


class InexpressibleError(Exception):
    """The installed TensorFlow's own class has no equivalent of such a loss scale."""


def installed_flavours():
    """Flavour → the module with its optimizers: those that the installed TensorFlow can be, or stands closest to.

    The minors between 2.4 and 2.10, and between 2.11 and 2.15, have the optimizers of the last of them.
    """
    optimizers, minor = tf.keras.optimizers, ".".join(tf.__version__.split(".")[:2])
    if IS_KERAS_3:
        return {"k3": optimizers}
    if optimizers.SGD.__module__.startswith("tf_keras"):
        return {"tfk": optimizers, "tfkL": optimizers.legacy}
    if hasattr(optimizers.SGD, "update_step"):
        return {"tf215": optimizers, "tf215L": optimizers.legacy}
    if not HAS_PUBLIC_CLASS:
        return {"tf" + minor.replace(".", ""): optimizers}
    own = {"tf24": optimizers, "tf24e": optimizers} if minor == "2.4" else {}
    experimental = {"tf210x": optimizers.experimental} if minor == "2.10" else {}  # those of 2.9 are refused
    return {**own, "tf210": optimizers, **experimental}


def is_of_installed_version(flavour):
    """Whether the flavour is of the installed TensorFlow itself: only then its files and results may be recorded."""
    return tf.__version__.startswith(FLAVOURS[flavour].split()[0] + ".")


# The model and its optimizer


def make_model():
    """Two layers with literal weights; every producer begins with the same."""
    tf.keras.backend.clear_session()
    inputs = tf.keras.Input(shape=(2,), name="inputs")
    hidden = tf.keras.layers.Dense(4, name="d1")(inputs)
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, name="d2")(hidden), name="tiny")
    model.set_weights([np.array(each, np.float32) for each in WEIGHTS])
    return model


def make_inner(flavour, optimizer, **options):
    hyperparameters = {
        name: value for name, value in HYPERPARAMETERS[optimizer].items() if value is not False and name != "epsilon"
    }
    return getattr(installed_flavours()[flavour], _CLASSES[optimizer])(**hyperparameters, **options)


def make_optimizer(cls, flavour, policy, optimizer, skipped_steps="native"):
    """The inner optimizer in TensorFlow's own class or in ours; InexpressibleError where the former can't say it."""
    if cls == OURS:
        from scalekeeper import LossScaleOptimizer

        return LossScaleOptimizer(make_inner(flavour, optimizer), _our_policy(policy), skipped_steps=skipped_steps)
    if not HAS_PUBLIC_CLASS or flavour == "tf24e":
        experimental = _MIXED_PRECISION.experimental.LossScaleOptimizer
        return experimental(make_inner(flavour, optimizer), _own_policy(policy))
    if policy not in ("fixed", "dynamic"):
        raise InexpressibleError(f"TensorFlow's own class has no equivalent of {policy}")
    public = _MIXED_PRECISION.LossScaleOptimizer
    if policy == "dynamic":
        inner = make_inner(flavour, optimizer)
        return public(inner, initial_scale=INITIAL_SCALE, dynamic_growth_steps=PERIOD)
    if IS_KERAS_3:
        return make_inner(flavour, optimizer, loss_scale_factor=FIXED_SCALE)
    return public(make_inner(flavour, optimizer), dynamic=False, initial_scale=FIXED_SCALE)


def _our_policy(policy):
    if policy == "fixed":
        return FIXED_SCALE
    if policy == "custom":
        return our_counting_class()(start=INITIAL_SCALE)
    return {
        "name": "dynamic",
        "initial_loss_scale": INITIAL_SCALE,
        "increment_period": PERIOD,
        "multiplier": MULTIPLIERS[policy],
    }


def _own_policy(policy):
    if policy == "fixed":
        return FIXED_SCALE
    if policy == "custom":
        return own_counting_class()(start=INITIAL_SCALE)
    policies = getattr(tf.train, "experimental", None)
    if not hasattr(policies, "DynamicLossScale"):  # since 2.4
        policies = tf.compat.v1.mixed_precision
    return policies.DynamicLossScale(INITIAL_SCALE, PERIOD, MULTIPLIERS[policy])


@functools.lru_cache(maxsize=None)
def our_counting_class():
    """A policy with two pieces of state, both of which decide what happens next.

    An overflow is counted, and divides the scale by 8. A finite step doubles it after one overflow, and makes it four
    times as large after more.
    """
    from scalekeeper import LossScale

    class CountingLossScale(LossScale):
        class Params(LossScale.Params):
            start: float

        def initial_state(self):
            return {"present_scale": np.float32(self.params.start), "overflows": np.int64(0)}

        def scale(self, state, ops):
            return state["present_scale"]

        def next_state(self, state, report, ops):
            scale, overflows = state["present_scale"], state["overflows"]
            doubled = ops.where(overflows >= ops.int64(1), scale * ops.float32(2), scale)
            grown = ops.where(overflows >= ops.int64(2), scale * ops.float32(4), doubled)
            return {
                "present_scale": ops.where(report.finite, grown, scale * ops.float32(0.125)),
                "overflows": ops.where(report.finite, overflows, overflows + ops.int64(1)),
            }

    return CountingLossScale


@functools.lru_cache(maxsize=None)
def own_counting_class():
    """The same, derived from TensorFlow's own LossScale, where its class takes one: up to 2.3."""
    if HAS_PUBLIC_CLASS:
        raise InexpressibleError("TensorFlow's own class takes no LossScale objects")

    class CountingLossScale(tf.train.experimental.LossScale):
        def __init__(self, start):
            super().__init__()
            self.start = float(start)
            self.present_scale = self._add_weight("present_scale", self.start, tf.float32)
            self.overflows = self._add_weight("overflows", 0, tf.int64)

        def __call__(self):
            return tf.convert_to_tensor(self.present_scale)

        def update(self, grads):
            finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(grad)) for grad in grads])
            before = self.present_scale.read_value()
            doubled = tf.where(self.overflows >= 1, before * 2, before)
            grown = tf.where(self.overflows >= 2, before * 4, doubled)
            overflows = tf.where(finite, self.overflows, self.overflows + 1)
            scale = tf.where(finite, grown, before * 0.125)
            return tf.group(self.present_scale.assign(scale), self.overflows.assign(overflows)), finite

        def get_config(self):
            return {"start": self.start}

        def state(self):
            return {"present_scale": float(self.present_scale.numpy()), "overflows": int(self.overflows.numpy())}

    return CountingLossScale


def custom_objects(cls):
    """Return what a reader has to be told of: the custom policy."""
    if cls == OURS:
        return {"CountingLossScale": our_counting_class()}
    return {} if HAS_PUBLIC_CLASS else {"CountingLossScale": own_counting_class()}


def make_variables(optimizer, variables):
    """Make an optimizer's variables without taking a step."""
    inner = inner_of(optimizer)
    is_ours = hasattr(getattr(optimizer, "loss_scale", None), "load_state")
    if hasattr(inner, "update_step"):
        # on 2.10, building TensorFlow's own class does not reach the inner optimizer
        target = optimizer if is_ours or IS_KERAS_3 else inner
        if not getattr(target, "built", False):
            target.build(variables)
        return
    if is_ours:
        optimizer._create_all_weights(variables)
        return
    with tf.init_scope():
        _ = inner.iterations
        inner._create_hypers()
        inner._create_slots(variables)


# Training


@tf.custom_gradient
def _overflowing(value):
    """The value; of its gradient, what float16 can't hold is infinite."""

    def gradient(upstream):
        return tf.where(tf.abs(upstream) > 65504.0, tf.sign(upstream) * np.float32("inf"), upstream)

    return tf.identity(value), gradient


def targets(step, policy):
    """Return the targets of the model at a step. They stay finite with a fixed scale, which skips no step."""
    values = np.array(TARGETS, np.float32) + np.float32(0.0625 * step)
    if step in SPIKES:
        values[0] += 200.0  # a gradient of about 100
    if step == FORCED_OVERFLOW and policy != "fixed":
        values[0] = np.inf
    return values


def train(model, optimizer, policy, first, last):
    """Take the steps from the first to the last."""
    inputs = tf.constant(INPUTS, tf.float32)
    variables = list(model.trainable_variables)
    for step in range(first, last + 1):
        with tf.GradientTape() as tape:
            outputs = _overflowing(tf.convert_to_tensor(model(inputs, training=True)))
            loss = tf.reduce_mean(tf.square(outputs - targets(step, policy)))
            if hasattr(optimizer, "get_scaled_loss"):
                loss = optimizer.get_scaled_loss(loss)
            elif hasattr(optimizer, "scale_loss"):
                loss = optimizer.scale_loss(loss)
        grads = tape.gradient(loss, [_tensorflow_variable(each) for each in variables])
        if hasattr(optimizer, "get_unscaled_gradients"):  # Keras 3's own class unscales by itself
            grads = optimizer.get_unscaled_gradients(grads)
        optimizer.apply_gradients(list(zip(grads, variables)))


def _tensorflow_variable(variable):
    return variable if callable(variable.value) else variable.value


# The visible state of a run


def inner_of(optimizer):
    """The wrapped optimizer; a bare one is its own."""
    return getattr(optimizer, "inner_optimizer", getattr(optimizer, "_optimizer", optimizer))


def number(value):
    """A Python number from a variable, a tensor or a number."""
    return value.numpy().item() if hasattr(value, "numpy") else float(value)


def seen(model, optimizer, name):
    """The state of a run as plain values: iterations, scale, its state, weights, slots. Missing state is None."""
    scale, state = loss_scale_of(optimizer)
    return {
        "iterations": int(number(inner_of(optimizer).iterations)),
        "scale": scale,
        "state": state,
        "weights": weights_of(model),
        "slots": {
            owner: {slot: _slot(optimizer, place, variable, name, slot) for slot in SLOTS[name]}
            for place, (owner, variable) in enumerate(zip(OWNERS, model.trainable_variables))
        },
    }


def weights_of(model):
    return {owner: each.numpy().tolist() for owner, each in zip(OWNERS, model.trainable_variables)}


def _slot(optimizer, place, variable, name, slot):
    inner = inner_of(optimizer)
    if hasattr(inner, "update_step"):
        variables = getattr(inner, _LISTS[name][slot], None) or []
        found = variables[place] if place < len(variables) else None
    else:
        try:
            found = inner.get_slot(variable, slot)
        except KeyError:
            found = None
    return None if found is None else found.numpy().tolist()


def momentum_factor(case, optimizer):
    """Return what to multiply the slot ``momentum`` by that a file holds, to have what this optimizer means by it.

    The experimental RMSprop of 2.10 multiplies by the learning rate when it applies the momentum; all others multiply
    when they add to it.
    """
    is_without_rate = type(inner_of(optimizer)).__module__ == getattr(
        getattr(installed_flavours().get("tf210x"), "RMSprop", None), "__module__", None
    )
    if case.optimizer != "rmsprop" or is_without_rate == (case.flavour == "tf210x"):
        return 1.0
    rate = HYPERPARAMETERS["rmsprop"]["learning_rate"]
    return 1 / rate if is_without_rate else rate


def loss_scale_of(optimizer):
    """The current scale, and the state behind it by name."""
    policy = getattr(optimizer, "loss_scale", None)
    if hasattr(policy, "state"):  # ours, or the one that counts
        return float(policy()), policy.state()
    if hasattr(optimizer, "dynamic_counter"):
        counter = optimizer.dynamic_counter
    elif hasattr(optimizer, "dynamic_growth_steps"):  # Keras 3's own class
        policy, counter = (
            (optimizer.dynamic_scale, optimizer.step_counter) if optimizer.built else (optimizer.initial_scale, 0)
        )
    elif callable(policy):
        counter, policy = getattr(policy, "_num_good_steps", None), policy()
    else:
        return float(getattr(optimizer, "loss_scale_factor", None) or 1.0), {}
    scale = float(number(policy))
    return scale, {} if counter is None else {"current_loss_scale": scale, "good_steps": int(number(counter))}


def declared(optimizer, name):
    """The hyperparameters and the policy that an optimizer's configuration names."""
    config = optimizer.get_config()
    inner = config.get("inner_optimizer", config.get("optimizer", {"config": config}))["config"]
    return {
        "hyperparameters": {each: float(inner[each]) for each in HYPERPARAMETERS[name]},
        "policy": _declared_policy(config),
    }


def _declared_policy(config):
    if "loss_scale" in config:
        return dict(config["loss_scale"]["config"])
    if "initial_scale" not in config:
        return {"loss_scale_value": config.get("loss_scale_factor")}
    if not config.get("dynamic", True):
        return {"loss_scale_value": config["initial_scale"]}
    return {
        "initial_loss_scale": config["initial_scale"],
        "increment_period": config["dynamic_growth_steps"],
        "multiplier": 2.0,
    }


def declaration(policy, name):
    """Return what ``declared`` has to give."""
    hyperparameters = {each: float(np.float32(value)) for each, value in HYPERPARAMETERS[name].items()}
    if policy == "fixed":
        words = {"loss_scale_value": FIXED_SCALE}
    elif policy == "custom":
        words = {"start": INITIAL_SCALE}
    else:
        words = {
            "initial_loss_scale": INITIAL_SCALE,
            "increment_period": PERIOD,
            "multiplier": MULTIPLIERS[policy],
        }
    return {"hyperparameters": hyperparameters, "policy": words}


def difference(given, expected):
    """The largest difference between two nests of numbers, or None if they are not alike."""
    if isinstance(expected, dict):
        if not isinstance(given, dict) or given.keys() != expected.keys():
            return None
        found = [difference(given[name], expected[name]) for name in expected]
        return None if None in found else max(found, default=0.0)
    if given is None or np.shape(given) != np.shape(expected):
        return None
    largest = np.max(np.abs(np.asarray(given, np.float64) - np.asarray(expected, np.float64)))
    return float(largest) if np.isfinite(largest) else None
