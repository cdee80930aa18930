"""Write the models of the corpus with the installed TensorFlow: their files without weights, and their outputs.

    python compat_tests/corpus/produce.py tf215

writes ``compat_tests/corpus/data/tf215.json.xz``. Needs only TensorFlow.
"""

import os
import sys
import tempfile

import files
import models
import numpy as np
import tensorflow as tf

keras = models.keras
DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
# Keras 3 leaves the optimizer out of a .keras file that it writes after an H5 file
ENDINGS = [*([".keras"] if hasattr(keras.Model, "save_own_variables") else []), ".h5"]


def main():
    (producer,) = sys.argv[1:]
    kinds, absent = {}, []
    for name, build in models.KINDS.items():
        keras.backend.clear_session()
        try:
            kinds[name] = outline(build())
        except (AttributeError, TypeError, ValueError, tf.errors.UnimplementedError, tf.errors.InternalError) as error:
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}")
            absent.append(name)
    data = {"tensorflow": tf.__version__, "loss_scale": loss_scale_configs(), "kinds": kinds, "absent": absent}
    path = os.path.join(DATA, f"{producer}.json.xz")
    files.save(path, data)
    print(f"{producer}: {len(kinds)} kinds, {os.path.getsize(path) // 1024} kB")


def outline(model):
    """Return what a consumer needs to make the model's files and to check its outputs."""
    specs = [[[int(size) for size in each.shape[1:]], tf.as_dtype(each.dtype).name] for each in model.inputs]
    weights, arrays = [], []
    for index, variable in enumerate(model.weights):
        name, shape = getattr(variable, "path", variable.name), [int(size) for size in variable.shape]
        dtype = tf.as_dtype(variable.dtype)
        if not dtype.is_floating or not shape:
            value = np.asarray(keras.backend.get_value(variable))
            weights.append({"dtype": dtype.name, "values": value.tolist()})
            arrays.append(value)
            continue
        is_positive = "variance" in name
        arrays.append(models.weight(index, shape, is_positive).astype(dtype.as_numpy_dtype))
        weights.append({"dtype": dtype.name, "shape": shape, "is_positive": is_positive})
        variable.assign(arrays[-1])
    for layer in model.layers:
        if hasattr(layer, "finalize_state"):
            layer.finalize_state()  # Normalization computes with copies of its variables
    given = models.inputs_of(specs)
    found = model(given if len(given) > 1 else given[0], training=False)
    outputs = [np.asarray(each) for each in tf.nest.flatten(found)]
    model.compile("sgd", "mse")
    outlined = {}
    with tempfile.TemporaryDirectory() as folder:
        for ending in ENDINGS:
            path = os.path.join(folder, "model" + ending)
            try:
                model.save(path)
            except (NotImplementedError, RuntimeError, TypeError, ValueError) as error:
                print(f"not saved as {ending}: {type(error).__name__}: {str(error).splitlines()[0]}")
                continue
            outlined[ending] = files.outline(path, arrays)
    return {
        "inputs": specs,
        "weights": weights,
        "outputs": [summary(each) for each in outputs],
        "files": outlined,
    }


def summary(output):
    """Return the shape of an output and at most 60 of its values, evenly spread."""
    values = np.asarray(output, "float64").ravel()
    step = max(1, values.size // 60)
    return {"shape": list(output.shape), "step": step, "values": [float(f"{each:.8g}") for each in values[::step]]}


def loss_scale_configs():
    """Return the configuration of an optimizer with a loss scale, as each format has it."""
    keras.backend.clear_session()
    module = keras.mixed_precision
    if hasattr(module, "LossScaleOptimizer"):
        optimizer = module.LossScaleOptimizer(keras.optimizers.SGD(0.01), initial_scale=64.0)
    else:
        optimizer = module.experimental.LossScaleOptimizer(keras.optimizers.SGD(0.01), "dynamic")
    model = models.ONE_LAYER["dense"]()
    model.compile(optimizer, "mse")
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for ending in ENDINGS:
            path = os.path.join(folder, "model" + ending)
            model.save(path)
            outlined = files.outline(path, [])
            if ending == ".h5":
                (training,) = outlined["h5"]["attributes"]["training_config"].values()
                found[ending] = training["optimizer_config"]
            else:
                found[ending] = outlined["zip"]["config.json"]["compile_config"]["optimizer"]
    return found


if __name__ == "__main__":
    main()
