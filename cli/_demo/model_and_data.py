"""What is learnt: a small model that computes in float16, and generated data."""

from typing import Any, Tuple

import numpy as np

from ...serialization._keras_introspection import installed_keras

FEATURES, HIDDEN, BATCH = 8, 32, 64


def compiled_model(optimizer: Any) -> Any:
    """The model as it is before the first step, the same in each process: float16 inside, float32 weights."""
    keras = installed_keras()
    _compute_in_float16(keras.mixed_precision)
    inputs = keras.Input((FEATURES,), name="features")
    hidden = keras.layers.Dense(HIDDEN, activation="tanh", name="first")(inputs)
    hidden = keras.layers.Dense(HIDDEN, activation="tanh", name="second")(hidden)
    model = keras.Model(inputs, keras.layers.Dense(1, name="last")(hidden), name="demo")
    random = np.random.RandomState(1)
    model.set_weights([_initial(weight.shape, random) for weight in model.get_weights()])
    model.compile(optimizer, loss="mse")
    return model


def _compute_in_float16(mixed_precision: Any) -> None:
    if hasattr(mixed_precision, "set_global_policy"):
        mixed_precision.set_global_policy("mixed_float16")
    else:  # up to 2.3 a policy brings a loss scale along; ours is in the optimizer
        experimental = mixed_precision.experimental
        experimental.set_policy(experimental.Policy("mixed_float16", loss_scale=None))


def _initial(shape: Tuple[int, ...], random: Any) -> Any:
    if len(shape) == 1:
        return np.zeros(shape, np.float32)
    return (random.randn(*shape) / np.sqrt(shape[0])).astype(np.float32)


def batch_of(step: int) -> Tuple[Any, Any]:
    """The data of a step, which depends on its number alone: whoever goes on sees what would have come."""
    random = np.random.RandomState(step)
    features = random.randn(BATCH, FEATURES).astype(np.float32)
    waves = np.sin(features[:, :4] * 2.0).sum(axis=1) + features[:, 4] * features[:, 5]
    noise = 0.1 * random.randn(BATCH)
    return features, (waves + noise).astype(np.float32)[:, np.newaxis]
