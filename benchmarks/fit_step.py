"""What a whole training step of ``fit`` takes under mixed_float16: with TensorFlow's own LossScaleOptimizer, with ours.

    python benchmarks/fit_step.py [--seconds 30] [--record]

A small convolutional and a small transformer model, each compiled twice; one ``train_on_batch`` of each in turn, in
random order, medians. Reported as ours / TensorFlow's own.
"""

from typing import Any, Callable, Dict

import statistics

import numpy as np
import tensorflow as tf

from scalekeeper import LossScaleOptimizer
from scalekeeper_test_support.benchmark_results import interleaved, machine, parser, record
from scalekeeper_test_support.installed_keras import set_global_policy, upstream

layers = tf.keras.layers


def convolutional() -> Any:
    inputs = tf.keras.Input((16, 16, 3))
    hidden = inputs
    for filters in (8, 16, 16):
        hidden = layers.Conv2D(filters, 3, padding="same", use_bias=False)(hidden)
        hidden = layers.BatchNormalization()(hidden)
        hidden = layers.Activation("relu")(hidden)
        hidden = layers.MaxPooling2D(2)(hidden)
    outputs = layers.Dense(10, dtype="float32")(layers.Flatten()(hidden))
    return tf.keras.Model(inputs, outputs), np.random.RandomState(0).randn(8, 16, 16, 3).astype("float32")


def transformer() -> Any:
    inputs = tf.keras.Input((16, 32))
    hidden = inputs
    for _ in range(2):
        attended = layers.MultiHeadAttention(num_heads=2, key_dim=16)(hidden, hidden)
        hidden = layers.LayerNormalization()(layers.Add()([hidden, attended]))
        fed = layers.Dense(32)(layers.Dense(64, activation="relu")(hidden))
        hidden = layers.LayerNormalization()(layers.Add()([hidden, fed]))
    outputs = layers.Dense(10, dtype="float32")(layers.GlobalAveragePooling1D()(hidden))
    return tf.keras.Model(inputs, outputs), np.random.RandomState(0).randn(8, 16, 32).astype("float32")


MODELS = {"convolutional": convolutional, "transformer": transformer}


def step_of(make_model: Callable[[], Any], optimizer: Any) -> Callable[[], Any]:
    """One training step on a fixed batch, traced and run once."""
    model, inputs = make_model()
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss=loss)
    targets = np.arange(len(inputs)) % 10
    model.train_on_batch(inputs, targets)
    return lambda: model.train_on_batch(inputs, targets)


def compare(make_model: Callable[[], Any], seconds: float) -> Dict[str, float]:
    """Milliseconds of a step: TensorFlow's own class, ours."""
    make = tf.keras.optimizers.Adam
    steps = {
        "own": step_of(make_model, upstream(make(1e-4))),
        "ours": step_of(make_model, LossScaleOptimizer(make(1e-4), "dynamic")),
    }
    return {name: statistics.median(times) for name, times in interleaved(steps, seconds).items()}


def main() -> None:
    options = parser(__doc__, seconds=30.0).parse_args()
    print(machine())
    set_global_policy("mixed_float16")
    rows = []
    for name, make_model in MODELS.items():
        ms = compare(make_model, options.seconds)
        rows.append({"model": name, **ms})
        print(
            f"{name:<14} own {ms['own']:.2f} ms, ours {ms['ours']:.2f} ms, ours / own {ms['ours'] / ms['own']:.3f}",
            flush=True,
        )
    if options.record:
        record("fit", rows)


if __name__ == "__main__":
    main()
