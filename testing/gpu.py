"""Measure scalekeeper on a GPU, in at most ten minutes, and write the figures to one JSON file.

    python -m scalekeeper.testing.gpu [--output scalekeeper-gpu.json] [--seconds 20] [--tiny]

It also runs without a GPU. ``--tiny`` tries everything on small arrays.
"""

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import argparse
import functools
import glob
import json
import os
import platform
import random
import statistics
import tempfile
import time

import numpy as np

Shapes = Sequence[Tuple[int, ...]]
SETS: Dict[str, Shapes] = {
    "many": [(64,)] * 160,
    "mix": [(256, 256)] * 80 + [(256,)] * 80,
    "big": [(2048, 2048)] * 8,
}
TINY: Dict[str, Shapes] = {"many": [(4,)] * 5, "mix": [(80, 80)] * 2 + [(4,)] * 2, "big": [(300, 300)] * 2}


def main(arguments: Optional[Sequence[str]] = None) -> Dict[str, Any]:
    """Measure, write the file, and return what it holds."""
    parser = argparse.ArgumentParser(
        prog="python -m scalekeeper.testing.gpu", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--output", default="scalekeeper-gpu.json", help="the file to write")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each of about twelve comparisons")
    parser.add_argument("--tiny", action="store_true", help="try everything on small arrays")
    options = parser.parse_args(arguments)
    folder = os.path.dirname(os.path.abspath(options.output))
    if not os.access(folder, os.W_OK) or os.path.isdir(options.output):  # known before ten minutes have passed
        parser.error(f"--output {options.output}: not a file in a folder that can be written to")
    seconds = 0.1 if options.tiny else options.seconds
    measured: Dict[str, Any] = {"environment": environment(), "steps": [], "fit": []}
    for name, shapes in (TINY if options.tiny else SETS).items():
        for inner in ("SGD", "Adam"):
            row = {"set": name, "optimizer": inner, **step_times(shapes, inner, seconds)}
            measured["steps"].append(row)
            print(row, flush=True)
    measured["operations"] = operations_of_step((TINY if options.tiny else SETS)["mix"])
    print(measured["operations"], flush=True)
    for name in MODELS:
        row = {"model": name, **fit_times(name, 2 if options.tiny else 8, seconds)}
        measured["fit"].append(row)
        print(row, flush=True)
    measured["replicas"] = fit_on_replicas(2 if options.tiny else 8)
    print(measured["replicas"], flush=True)
    with open(options.output, "w", encoding="utf-8") as stream:
        json.dump(measured, stream, indent=1)
        stream.write("\n")
    print(f"Written to {options.output}")
    return measured


def environment() -> Dict[str, Any]:
    """Return versions, and the GPUs that TensorFlow sees."""
    import tensorflow as tf

    details = getattr(tf.config.experimental, "get_device_details", None)
    gpus = tf.config.list_physical_devices("GPU")
    return {
        "tensorflow": tf.__version__,
        "keras": str(getattr(tf.keras, "__version__", "")),
        "python": platform.python_version(),
        "system": platform.system(),
        "has_cuda": bool(tf.test.is_built_with_cuda()),
        "gpus": [str(details(gpu).get("device_name", gpu.name)) if details else str(gpu.name) for gpu in gpus],
    }


def wrappers(inner: str) -> Dict[str, Callable[[], Any]]:
    """Return makers of the bare optimizer, with Keras's LossScaleOptimizer, and with scalekeeper's."""
    import tensorflow as tf

    from ..optimizer import LossScaleOptimizer

    make = getattr(tf.keras.optimizers, inner)
    mixed_precision = tf.keras.mixed_precision

    def own() -> Any:
        if hasattr(mixed_precision, "LossScaleOptimizer"):
            return mixed_precision.LossScaleOptimizer(make(1e-4))
        return mixed_precision.experimental.LossScaleOptimizer(make(1e-4), "dynamic")

    return {"bare": lambda: make(1e-4), "own": own, "ours": lambda: LossScaleOptimizer(make(1e-4), "dynamic")}


# Steps


def traced_step(made: Any, shapes: Shapes) -> Callable[[], Any]:
    """Return a traced step on new variables, run once."""
    import tensorflow as tf

    variables = [tf.Variable(tf.ones(shape)) for shape in shapes]
    grads = [tf.ones(shape) for shape in shapes]
    unscales = hasattr(made, "get_unscaled_gradients")  # Keras 3's own class does it when it applies them
    counter = tf.Variable(0, dtype=tf.int64)

    def step() -> Any:
        given = made.get_unscaled_gradients(list(grads)) if unscales else list(grads)
        made.apply_gradients(zip(given, variables))
        return counter.assign_add(1) + tf.cast(tf.reduce_sum(variables[-1][:1]) * 0, tf.int64)

    traced = tf.function(step)
    traced()
    return lambda: traced().numpy()


def step_times(shapes: Shapes, inner: str, seconds: float) -> Dict[str, Optional[float]]:
    """Return the median milliseconds of a step with each optimizer, in turns, and the ratio of the overheads."""
    times = medians({name: traced_step(make(), shapes) for name, make in wrappers(inner).items()}, seconds)
    own = times["own"] - times["bare"]
    return {**times, "overhead_ours_to_own": (times["ours"] - times["bare"]) / own if own else None}


def medians(steps: Dict[str, Callable[[], Any]], seconds: float) -> Dict[str, float]:
    """Return the median milliseconds of each step; they take turns in random order, and two turns do not count."""
    times: Dict[str, List[float]] = {name: [] for name in steps}
    names, turn, end = list(steps), 0, time.perf_counter() + seconds
    while turn < 4 or time.perf_counter() < end:
        random.shuffle(names)
        for name in names:
            began = time.perf_counter()
            steps[name]()
            if turn > 1:
                times[name].append(1000 * (time.perf_counter() - began))
        turn += 1
    return {name: statistics.median(several) for name, several in times.items()}


def operations_of_step(shapes: Shapes) -> Dict[str, Any]:
    """Return for each optimizer how many events of each kind a profile of one step has on each device.

    ``copies_to_host`` are the transfers from a GPU; a step needs one for each conditional.
    """
    found = {}
    for name, make in wrappers("SGD").items():
        step = traced_step(make(), shapes)
        step()
        planes = profiled(step)
        found[name] = {
            "devices": {plane: len(events) for plane, events in planes.items() if "GPU" in plane},
            "copies_to_host": sum("MemcpyD2H" in event for events in planes.values() for event in events),
        }
    return found


def profiled(step: Callable[[], Any]) -> Dict[str, List[str]]:
    """Return the names of the events of a step by device; empty if this TensorFlow has no profiler for it."""
    import tensorflow as tf

    experimental: Any = getattr(getattr(tf, "profiler", None), "experimental", None)
    format_of_profiles = _xplane()
    if format_of_profiles is None or not hasattr(experimental, "start"):
        return {}
    with tempfile.TemporaryDirectory() as folder:
        experimental.start(folder)
        step()
        experimental.stop()
        planes: Dict[str, List[str]] = {}
        for path in glob.glob(os.path.join(folder, "plugins", "profile", "*", "*.xplane.pb")):
            space = format_of_profiles.XSpace()
            with open(path, "rb") as stream:
                space.ParseFromString(stream.read())
            for plane in space.planes:
                events = [plane.event_metadata[each.metadata_id].name for line in plane.lines for each in line.events]
                planes.setdefault(plane.name, []).extend(events)
    return planes


def _xplane() -> Any:
    """Return the module of the profile's format, which has moved; None if there is none."""
    try:
        from tensorflow.core.profiler.protobuf import xplane_pb2
    except ImportError:
        try:
            from tensorflow.tsl.profiler.protobuf import xplane_pb2
        except ImportError:
            return None
    return xplane_pb2


# Training


def convolutional(width: int) -> Tuple[Any, Any]:
    """Return a small convolutional model, and inputs."""
    import tensorflow as tf

    layers = tf.keras.layers
    inputs = tf.keras.Input((8 * width, 8 * width, 3))
    hidden = inputs
    for factor in (2, 4):
        hidden = layers.Conv2D(factor * width, 3, padding="same", activation="relu")(hidden)
        hidden = layers.MaxPooling2D(2)(hidden)
    outputs = layers.Dense(10, dtype="float32")(layers.Flatten()(hidden))
    return tf.keras.Model(inputs, outputs), np.random.RandomState(0).randn(64, 8 * width, 8 * width, 3)


def transformer(width: int) -> Tuple[Any, Any]:
    """Return a small transformer, and inputs."""
    import tensorflow as tf

    layers = tf.keras.layers
    inputs = tf.keras.Input((16, 8 * width))
    hidden = inputs
    for _ in range(2):
        query, key, value = (layers.Dense(8 * width)(hidden) for _ in range(3))
        hidden = layers.LayerNormalization()(layers.Add()([hidden, layers.Attention()([query, value, key])]))
        fed = layers.Dense(8 * width)(layers.Dense(16 * width, activation="relu")(hidden))
        hidden = layers.LayerNormalization()(layers.Add()([hidden, fed]))
    outputs = layers.Dense(10, dtype="float32")(layers.GlobalAveragePooling1D()(hidden))
    return tf.keras.Model(inputs, outputs), np.random.RandomState(0).randn(64, 16, 8 * width)


MODELS: Dict[str, Callable[[int], Tuple[Any, Any]]] = {"convolutional": convolutional, "transformer": transformer}


def compiled_model(name: str, width: int, made: Any) -> Tuple[Any, Any, Any]:
    """Return a model that is compiled with an optimizer, inputs and targets."""
    import tensorflow as tf

    model, inputs = MODELS[name](width)
    model.compile(made, loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model, inputs.astype("float32"), np.arange(len(inputs)) % 10


def fit_times(name: str, width: int, seconds: float) -> Dict[str, Any]:
    """Return the median milliseconds of a float16 training step with both wrappers, and scalekeeper's losses."""
    with_float16(True)
    try:
        steps: Dict[str, Callable[[], Any]] = {}
        for who in ("own", "ours"):
            made = wrappers("Adam")[who]()
            model, inputs, targets = compiled_model(name, width, made)
            steps[who] = functools.partial(model.train_on_batch, inputs, targets)
        history = model.fit(inputs, targets, epochs=3, verbose=0).history["loss"]
        times = medians(steps, seconds)
    finally:
        with_float16(False)
    return {**times, "losses": [float(loss) for loss in history], "loss_scale": float(made.loss_scale())}


def fit_on_replicas(width: int) -> Dict[str, Any]:
    """Return the losses of training on all GPUs, if there are several, and whether their variables are equal."""
    import tensorflow as tf

    gpus = tf.config.list_logical_devices("GPU") if hasattr(tf.config, "list_logical_devices") else []
    if len(gpus) < 2:
        return {"replicas": len(gpus)}
    with_float16(True)
    try:
        strategy = tf.distribute.MirroredStrategy()
        with strategy.scope():
            made = wrappers("Adam")["ours"]()
            model, inputs, targets = compiled_model("convolutional", width, made)
        history = model.fit(inputs, targets, epochs=3, verbose=0).history["loss"]
        kernel = getattr(model.trainable_variables[0], "value", None)
        copies = strategy.experimental_local_results(
            kernel if hasattr(kernel, "values") else model.trainable_variables[0]
        )
        are_equal = all(np.array_equal(copies[0].numpy(), copy.numpy()) for copy in copies)
    finally:
        with_float16(False)
    losses = [float(loss) for loss in history]
    return {"replicas": strategy.num_replicas_in_sync, "losses": losses, "variables_are_equal": are_equal}


def with_float16(is_on: bool) -> None:
    """Set the global dtype policy to mixed_float16 or to float32."""
    import tensorflow as tf

    module = tf.keras.mixed_precision
    setter = getattr(module, "set_global_policy", None) or getattr(module, "set_global_dtype_policy", None)
    (setter or module.experimental.set_policy)("mixed_float16" if is_on else "float32")


if __name__ == "__main__":
    main()
