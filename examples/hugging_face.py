"""Fine-tune a BERT of Hugging Face transformers in mixed precision, with the optimizer of its tutorials.

python examples/hugging_face.py  # TensorFlow 2.15 with transformers

The pretrained model is a tiny one of random weights, in a folder; write the name of a real one in its place.
"""

import tempfile

import numpy as np
import tensorflow as tf
import transformers

import scalekeeper

LENGTH, TOKENS, STEPS = 12, 40, 60

tf.keras.utils.set_random_seed(0)
tf.keras.mixed_precision.set_global_policy("mixed_float16")


def pretrained_model(folder):
    """Save a BERT without a head, as if it had been trained elsewhere."""
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    bert = transformers.TFBertModel(transformers.BertConfig(vocab_size=TOKENS, max_position_embeddings=LENGTH, **size))
    bert(np.zeros([1, LENGTH], "int32"))
    bert.save_pretrained(folder)
    return folder


def sentences(count, random):
    """Return tokens, and whether token 7 is among them."""
    tokens = random.randint(8, TOKENS, size=[count, LENGTH])
    labels = random.randint(2, size=count)
    tokens[np.arange(count), random.randint(LENGTH, size=count)] = np.where(labels, 7, 6)
    return tokens, labels


with tempfile.TemporaryDirectory() as folder:
    model = transformers.TFBertForSequenceClassification.from_pretrained(pretrained_model(folder), num_labels=2)
inner, _ = transformers.create_optimizer(0.006, num_train_steps=STEPS, num_warmup_steps=6, weight_decay_rate=0.01)
policy = {"name": "dynamic", "initial_loss_scale": 2.0**24, "increment_period": 10}
optimizer = scalekeeper.LossScaleOptimizer(inner, policy)
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer, loss, metrics=["accuracy"])

random = np.random.RandomState(0)
history = model.fit(
    *sentences(STEPS * 32 // 3, random),
    validation_data=sentences(128, random),
    batch_size=32,
    epochs=3,
    verbose=0,
    callbacks=[scalekeeper.LossScaleLogger()],
).history
found = optimizer.telemetry
print(f"loss {history['loss'][0]:.3f} -> {history['loss'][-1]:.3f}, accuracy {history['val_accuracy'][-1]:.2f}")
print(f"{found.skipped} of {found.steps} steps skipped, loss scale after each epoch: {history['loss_scale']}")
