"""The model and data of the demo, its training steps, and the comparison of two runs."""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from ...serialization._keras_introspection import installed_keras

FEATURES, HIDDEN, BATCH = 8, 32, 64
Record = Dict[str, Any]


class Step(NamedTuple):
    """The result of one step. Numbers start at 1; ``scale`` is the loss scale of the step, ``skipped`` a total."""

    number: int
    loss: float
    scale: float
    is_skipped: bool
    skipped: int


class Comparison(NamedTuple):
    """The names that differ, and the largest difference; None if it is not a finite number."""

    different: List[str]
    largest: Optional[float]

    @property
    def is_equal(self) -> bool:
        return not self.different


def compiled_model(optimizer: Any) -> Any:
    """Return the initial model, which is equal in every process: float16 computations, float32 weights."""
    keras = installed_keras()
    if hasattr(keras.mixed_precision, "set_global_policy"):
        keras.mixed_precision.set_global_policy("mixed_float16")
    else:  # up to 2.3 a dtype policy has a loss scale; here the optimizer has it
        experimental = keras.mixed_precision.experimental
        experimental.set_policy(experimental.Policy("mixed_float16", loss_scale=None))
    inputs = keras.Input((FEATURES,), name="features")
    hidden = keras.layers.Dense(HIDDEN, activation="tanh", name="first")(inputs)
    hidden = keras.layers.Dense(HIDDEN, activation="tanh", name="second")(hidden)
    model = keras.Model(inputs, keras.layers.Dense(1, name="last")(hidden), name="demo")
    random = np.random.RandomState(1)
    shapes = [weight.shape for weight in model.get_weights()]
    initial = [np.zeros(s) if len(s) == 1 else random.randn(*s) / np.sqrt(s[0]) for s in shapes]
    model.set_weights([weight.astype(np.float32) for weight in initial])
    model.compile(optimizer, loss="mse")
    return model


def batch_of(step: int) -> Tuple[Any, Any]:
    """Return the data of a step, which depends only on its number, so a resumed run sees the same data."""
    random = np.random.RandomState(step)
    features = random.randn(BATCH, FEATURES).astype(np.float32)
    waves = np.sin(features[:, :4] * 2.0).sum(axis=1) + features[:, 4] * features[:, 5]
    noise = 0.1 * random.randn(BATCH)
    return features, (waves + noise).astype(np.float32)[:, np.newaxis]


def train(model: Any, first: int, last: int, on_step: Callable[[Step], None] = lambda step: None) -> List[Step]:
    """Take the steps ``first`` to ``last`` and return their results."""
    import tensorflow as tf

    step, telemetry, taken = _step_function(model), model.optimizer.telemetry, []
    for number in range(first, last + 1):
        loss = step(*map(tf.constant, batch_of(number)))
        before, telemetry = telemetry, model.optimizer.telemetry
        is_skipped = telemetry.skipped > before.skipped
        taken.append(Step(number, float(loss), before.loss_scale, is_skipped, telemetry.skipped))
        on_step(taken[-1])
    return taken


def _step_function(model: Any) -> Any:
    import tensorflow as tf

    optimizer, weights = model.optimizer, list(model.trainable_weights)
    # a tape watches TensorFlow variables, which are inside the variables of Keras 3
    variables = [weight if callable(weight.value) else weight.value for weight in weights]

    def step(features: Any, targets: Any) -> Any:
        with tf.GradientTape() as tape:
            outputs = tf.cast(model(features, training=True), tf.float32)
            loss = tf.reduce_mean(tf.square(outputs - targets))
            scaled = optimizer.get_scaled_loss(loss)
        gradients = optimizer.get_unscaled_gradients(tape.gradient(scaled, variables))
        optimizer.apply_gradients(zip(gradients, weights))
        return loss

    return tf.function(step)


def record_of(model: Any, taken: Sequence[Step]) -> Record:
    """Return the final training state and the results of these steps as arrays by name."""
    state, telemetry = model.optimizer.state_dict(), model.optimizer.telemetry
    found: Record = {f"weights/{index}": weight for index, weight in enumerate(model.get_weights())}
    for owner, slots in state["slots"].items():
        found.update({f"slots/{owner}/{name}": value for name, value in slots.items()})
    found.update({f"scalars/{name}": value for name, value in state["scalars"].items()})
    found.update({f"loss scale/{name}": value for name, value in state["loss_scale"]["state"].items()})
    found["iterations"] = state["iterations"]
    if state["learning_rate"] is not None:  # a schedule is a function of the iterations
        found["learning rate"] = state["learning_rate"]
    found["scale"] = telemetry.loss_scale
    found["steps/taken"], found["steps/skipped"] = telemetry.steps, telemetry.skipped
    found["steps/skipped in a row"] = telemetry.skipped_in_a_row
    found["steps/last skipped"] = telemetry.last_skipped_step or 0
    for name in ("number", "loss", "scale", "is_skipped"):
        found[f"each step/{name}"] = [getattr(step, name) for step in taken]
    return {name: np.asarray(value) for name, value in found.items()}


def compared(expected: Record, found: Record) -> Comparison:
    """Compare two records bit for bit."""
    pairs = {name: (expected.get(name), found.get(name)) for name in sorted({*expected, *found})}
    different = [name for name, pair in pairs.items() if not _same_bits(*pair)]
    by = [_difference(*pairs[name]) for name in different]
    return Comparison(different, None if None in by else max([0.0, *by]))  # type: ignore[type-var]


def _same_bits(one: Any, other: Any) -> bool:
    if one is None or other is None or one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool(one.tobytes() == other.tobytes())


def _difference(one: Any, other: Any) -> Optional[float]:
    if one is None or other is None or one.shape != other.shape:
        return None
    largest = float(np.max(np.abs(one.astype(np.float64) - other.astype(np.float64)), initial=0.0))
    return largest if np.isfinite(largest) else None
