"""Measure what the recorded float32 run of ``diagnose`` costs, beside plain runs of the same batches.

    python benchmarks/diagnosis_overhead.py

The recorded run and three plain runs take turns in one process; the least time of each counts. ``eager`` is the run of
a model compiled with ``run_eagerly=True``; ``first`` that of a new model, which traces its step, as the first ``fit``
of a program does; ``traced`` each run after it.
"""

from typing import Any, Callable, Dict, List

import sys
import time

import numpy as np
import tensorflow as tf

import scalekeeper
from scalekeeper.optimizer import float16_diagnosis

layers = tf.keras.layers
SAMPLES, BATCHES = 64, 3


def convolutions() -> Any:
    inside = []
    for channels in (32, 32, 64, 64):
        inside += [layers.Conv2D(channels, 3, padding="same"), layers.BatchNormalization(), layers.ReLU()]
    return model_of((32, 32, 3), [*inside, layers.GlobalAveragePooling2D()])


def dense() -> Any:
    return model_of((256,), [layers.Dense(1024, activation="relu") for _ in range(4)])


def recurrent() -> Any:
    return model_of((64, 64), [layers.LSTM(128, return_sequences=True), layers.LSTM(128)])


def model_of(shape: Any, inside: List[Any]) -> Any:
    return tf.keras.Sequential([tf.keras.Input(shape), *inside, layers.Dense(10)])


def compiled(model: Any, **options: Any) -> Any:
    optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.0), 1.0)
    model.compile(optimizer, loss="mse", **options)
    return model


def measured(create: Callable[[], Any], rounds: int) -> Dict[str, float]:
    """Return the least time of each way to run the batches, in seconds."""
    fresh = [compiled(create()) for _ in range(rounds + 1)]
    traced = compiled(create())
    eager = compiled(create(), run_eagerly=True)
    x = np.random.RandomState(0).randn(SAMPLES, *traced.input_shape[1:]).astype(np.float32)
    batch = float16_diagnosis.Batch(x, np.zeros((SAMPLES, 10), np.float32), None)
    steps = [batch] * BATCHES

    def plain(model: Any) -> None:
        for each in steps:
            model.train_on_batch(each.x, each.y)

    def recorded() -> None:
        with float16_diagnosis.restored(traced), float16_diagnosis.running_eagerly(traced):
            found = float16_diagnosis._recorded(traced, steps, None, True, True, 1.0, True, {})
            assert not isinstance(found, Exception), found

    ways = {
        "first": lambda: plain(fresh.pop()),
        "traced": lambda: plain(traced),
        "eager": lambda: plain(eager),
        "recorded": recorded,
    }
    times: Dict[str, List[float]] = {name: [] for name in ways}
    for _ in range(rounds + 1):
        for name, run in ways.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: min(each[1:]) for name, each in times.items()}  # in the first round, TensorFlow starts


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    print(f"TensorFlow {tf.__version__}: milliseconds of {BATCHES} batches, and the recorded run beside both")
    for create in (convolutions, dense, recurrent):
        found = measured(create, rounds)
        times = ", ".join(f"{name} {1000 * each:.0f}" for name, each in found.items())
        ratios = ", ".join(f"{found['recorded'] / found[name]:.2f} × {name}" for name in ("eager", "first", "traced"))
        ratios += f"; eager {found['eager'] / found['traced']:.2f} × traced"
        print(f"{create.__name__}: {times}: {ratios}", flush=True)


if __name__ == "__main__":
    main()
