"""Record the gradients of a float16 run for `scalekeeper simulate` and `scalekeeper recommend`.

python examples/record_trace.py [FILE] [STEPS]  # TensorFlow 2.0 to 2.21

A small recurrent network learns to add the marked numbers of a sequence; some batches are far larger than the others.
The policy "none" keeps the loss scale at 1, so the trace has the size of every gradient.
"""

import os
import sys
import tempfile

import numpy as np
import tensorflow as tf

import scalekeeper

path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(tempfile.mkdtemp(), "trace.csv")
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 40
LENGTH, BATCH = 12, 8

tf.random.set_seed(0)
mixed_precision = tf.keras.mixed_precision
if hasattr(mixed_precision, "set_global_policy"):
    mixed_precision.set_global_policy("mixed_float16")
else:  # up to TensorFlow 2.3
    mixed_precision.experimental.set_policy("mixed_float16")
sequence = tf.keras.Input((LENGTH, 2))
last = tf.keras.layers.SimpleRNN(24, unroll=True)(sequence)
model = tf.keras.Model(sequence, tf.keras.layers.Dense(1, dtype="float32")(last))
optimizer = scalekeeper.LossScaleOptimizer(
    tf.keras.optimizers.SGD(0.02, clipnorm=1.0), {"name": "none", "skip_nonfinite": True}
)
model.compile(optimizer, loss="mse")

rng = np.random.RandomState(0)
numbers = rng.randn(steps * BATCH, LENGTH, 1)
marks = rng.rand(steps * BATCH, LENGTH, 1) < 0.25
sizes = np.where(rng.rand(steps) < 0.003, 2.0 ** rng.uniform(2, 8, steps), 1.0)
numbers *= np.repeat(sizes, BATCH)[:, None, None]
inputs = np.concatenate([numbers, marks], axis=2).astype("float32")
sums = (numbers * marks).sum(axis=1).astype("float32")
model.fit(inputs, sums, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[scalekeeper.TraceRecorder(path)])

trace = scalekeeper.read_trace(path)
print(f"{path}: {trace}, largest gradients from {trace.largest.min():.2g} to {trace.largest.max():.2g}")
