"""Read models with the installed Keras alone: what they predict, how far they are, and what training on gives."""

import json
import sys

assert "scalekeeper" not in sys.modules
sys.modules["scalekeeper"] = None  # whoever imports it now fails

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

IS_KERAS_3 = hasattr(tf.keras, "Operation")
found = {}
for path in sys.argv[1:]:
    model = tf.keras.models.load_model(path)
    inputs = np.load(path + ".inputs.npy")
    before = model.predict(inputs, verbose=0).tolist()
    optimizer = model.optimizer
    inner = getattr(optimizer, "inner_optimizer", getattr(optimizer, "_optimizer", optimizer))
    iterations = int(inner.iterations.numpy())
    history = {}
    if not (IS_KERAS_3 and path.endswith(".h5")):  # which Keras 3 can't train on, its own neither
        history = model.fit(inputs, np.ones((4, 1), np.float32), verbose=0).history
    found[path] = [before, iterations, {name: values[0] for name, values in history.items()}]
print(json.dumps(found, default=float))
