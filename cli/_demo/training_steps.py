"""Steps of training, and what is kept of each of them."""

from typing import Any, Callable, List, NamedTuple

from .model_and_data import batch_of

Watcher = Callable[["Step"], None]


class Step(NamedTuple):
    """What a step was like; numbers begin with 1."""

    number: int
    loss: float
    scale: float  # that the step was taken with
    is_skipped: bool
    skipped: int  # so far


def train(model: Any, first: int, last: int, watch: Watcher = lambda step: None) -> List[Step]:
    """Take these steps. The scale is read after each of them, which costs little where it is not on another device."""
    import tensorflow as tf

    step = _traced(model)
    told = model.optimizer.telemetry
    taken = []
    for number in range(first, last + 1):
        loss = step(*map(tf.constant, batch_of(number)))
        before, told = told, model.optimizer.telemetry
        is_skipped = told.skipped > before.skipped
        taken.append(Step(number, float(loss), before.loss_scale, is_skipped, told.skipped))
        watch(taken[-1])
    return taken


def _traced(model: Any) -> Any:
    import tensorflow as tf

    optimizer = model.optimizer
    weights = list(model.trainable_weights)
    # a tape watches TensorFlow's variables, which Keras 3 has inside of its own
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
