"""Training in TF1 graph mode, which a process enters for good: run by test_graph_mode.py, prints its results as JSON.

One scenario's failure does not stop the others: its traceback stands in place of its result.
"""

import json
import os
import sys
import tempfile
import traceback

import numpy as np
import tensorflow as tf

import scalekeeper
from scalekeeper.optimizer import LossScaleOptimizer
from scalekeeper_test_support.installed_keras import (
    HAS_LOSS_SCALE_OBJECTS,
    OPTIMIZERS,
    layer_policy,
    number,
    set_global_policy,
    upstream,
)

K = tf.keras.backend
# since there are new optimizers, the old ones are those that work in graph mode
SGD, Adam = (getattr(OPTIMIZERS.get("legacy", OPTIMIZERS["default"]), name) for name in ("SGD", "Adam"))
VANISHING = 2.0**-29  # float16 rounds it to zero
DYNAMIC = {"initial_loss_scale": 2.0**24, "increment_period": 3, "multiplier": 2.0}
SCENARIOS = {}


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


def sgd(step=0.25, gradient=1.0):
    return SGD(step / gradient)


def one_weight(optimizer, gradient=1.0, **layer_options):
    """A model whose only weight starts at 1, with a loss whose gradient is the input times a number."""
    set_global_policy("mixed_float16")
    layer = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", input_shape=(1,), **layer_options)
    model = tf.keras.Sequential([layer])
    model.compile(optimizer, loss=lambda wanted, output: tf.cast(output, tf.float32) * gradient)
    return model


def fit(model, inputs=(1.0,), **options):
    inputs = np.array(inputs, np.float32).reshape(-1, 1)
    history = model.fit(inputs, inputs, batch_size=1, shuffle=False, verbose=0, **options).history
    return {"weight": model.get_weights()[0].item(), "loss": [float(loss) for loss in history["loss"]]}


@scenario
def is_graph_mode():
    return not tf.executing_eagerly()


@scenario
def fit_without_scaling():
    # `compile` wraps a bare optimizer by the policy of the model, not of its layers; up to 2.3, by that of any of them
    set_global_policy("float32")
    policy = layer_policy("mixed_float16", **({"loss_scale": None} if HAS_LOSS_SCALE_OBJECTS else {}))
    layer = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", input_shape=(1,), dtype=policy)
    model = tf.keras.Sequential([layer])
    model.compile(sgd(gradient=VANISHING), loss=lambda wanted, output: tf.cast(output, tf.float32) * VANISHING)
    return fit(model)["weight"]


@scenario
def fit_fixed():
    return fit(one_weight(LossScaleOptimizer(sgd(gradient=VANISHING), 2.0**15), VANISHING), [1, 1])["weight"]


@scenario
def fit_dynamic():
    optimizer = LossScaleOptimizer(sgd(gradient=VANISHING), "dynamic")
    model = one_weight(optimizer, VANISHING)
    weight = fit(model, [1, 1])["weight"]
    iterations = int(K.get_value(optimizer.iterations))
    return [weight, optimizer.loss_scale.state(), iterations, model.optimizer is optimizer]


@scenario
def fit_with_an_overflow():
    optimizer = LossScaleOptimizer(sgd(), "dynamic")
    return [fit(one_weight(optimizer), [1, 4, 1, 1])["weight"], optimizer.loss_scale.state()]


@scenario
def fit_with_a_constraint():
    model = one_weight(LossScaleOptimizer(sgd(4.0), 1024), kernel_constraint=tf.keras.constraints.NonNeg())
    return fit(model)["weight"]


@scenario
def fit_with_callbacks():
    with tempfile.TemporaryDirectory() as folder:
        callbacks = [
            tf.keras.callbacks.LearningRateScheduler(lambda epoch: [0.5, 0.25, 0.125][epoch]),
            tf.keras.callbacks.ModelCheckpoint(folder + "/model.h5"),
            tf.keras.callbacks.EarlyStopping("loss", patience=10),
            tf.keras.callbacks.ReduceLROnPlateau("loss", patience=10),
            tf.keras.callbacks.TensorBoard(folder, profile_batch=0),
        ]
        model = one_weight(LossScaleOptimizer(sgd(8.0), 1024))
        trained = fit(model, epochs=3, callbacks=callbacks)
        fit(model)
        model.load_weights(folder + "/model.h5")
        return [trained, model.get_weights()[0].item()]


@scenario
def train_on_batch():
    model = one_weight(LossScaleOptimizer(sgd(gradient=VANISHING), 2.0**15), VANISHING)
    batch = np.ones((1, 1), np.float32)
    losses = [float(model.train_on_batch(batch, batch)) for _ in range(2)]
    return [model.get_weights()[0].item(), losses]


@scenario
def fit_embedding():
    set_global_policy("mixed_float16")
    rows = tf.keras.layers.Embedding(4, 1, embeddings_initializer="ones", input_length=2)
    model = tf.keras.Sequential([rows, tf.keras.layers.Activation("linear")])
    optimizer = LossScaleOptimizer(sgd(0.5), 1024)
    model.compile(optimizer, loss=lambda wanted, output: tf.cast(output, tf.float32))
    model.fit(np.array([[1, 1]], np.int32), np.zeros((1, 2, 1), np.float32), verbose=0)
    return model.get_weights()[0].ravel().tolist()


@scenario
def gradients_and_updates():
    """Return what `get_gradients` gives, and the weight after each run of `get_updates`, in a separate session."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.Variable(1.0)
        optimizer = LossScaleOptimizer(sgd(gradient=VANISHING), "dynamic")
        loss = tf.cast(tf.cast(variable, tf.float16), tf.float32) * VANISHING
        (gradient,) = optimizer.get_gradients(loss, [variable])
        (bare,) = SGD(1.0).get_gradients(loss, [variable])
        updates = optimizer.get_updates(loss, [variable])
        session.run(tf.compat.v1.global_variables_initializer())
        found = {"gradient": float(session.run(gradient)), "unscaled": float(session.run(bare)), "weights": []}
        for _ in range(2):
            session.run(updates)
            found["weights"].append(float(session.run(variable)))
        found["scale"] = float(session.run(optimizer.loss_scale()))
        return found


@scenario
def updates_with_an_overflow():
    """The weight and the scale after each step; the second gradient is infinite."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.Variable(1.0)
        factor = tf.compat.v1.placeholder(tf.float32, [])
        optimizer = LossScaleOptimizer(sgd(), "dynamic")
        updates = optimizer.get_updates(variable * factor, [variable])
        scale = optimizer.loss_scale()
        session.run(tf.compat.v1.global_variables_initializer())
        found = []
        for value in [1.0, float("inf"), 1.0]:
            session.run(updates, {factor: value})
            found.append([float(each) for each in session.run([variable, scale])])
        return found


@scenario
def updates_with_clipping():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.Variable(1.0)
        optimizer = LossScaleOptimizer(SGD(1.0, clipvalue=0.25), 1024)
        updates = optimizer.get_updates(variable * 0.125, [variable])
        clipped = optimizer.get_updates(variable * 4.0, [variable])
        session.run(tf.compat.v1.global_variables_initializer())
        found = []
        for each in (updates, clipped):
            session.run(each)
            found.append(float(session.run(variable)))
        return found


@scenario
def minimize():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.Variable(1.0)
        optimizer = LossScaleOptimizer(sgd(gradient=VANISHING), "dynamic")
        step = optimizer.minimize(lambda: tf.cast(tf.cast(variable, tf.float16), tf.float32) * VANISHING, [variable])
        session.run(tf.compat.v1.global_variables_initializer())
        for _ in range(2):
            session.run(step)
        return float(session.run(variable))


def three_epochs(optimizer):
    K.clear_session()
    set_global_policy("mixed_float16")
    random = np.random.RandomState(1)
    inputs = random.normal(size=(16, 3)).astype(np.float32)
    targets = random.normal(size=(16, 1)).astype(np.float32)
    layers = [
        tf.keras.layers.Dense(4, activation="tanh", input_shape=(3,)),
        tf.keras.layers.Dense(1),
        tf.keras.layers.Activation("linear", dtype="float32"),
    ]
    model = tf.keras.Sequential(layers)
    model.set_weights([random.normal(size=weight.shape) for weight in model.get_weights()])
    optimizer = optimizer()  # after the session was cleared, so that its variables are of this graph
    model.compile(optimizer, loss="mse")
    history = model.fit(inputs, targets, batch_size=4, epochs=3, shuffle=False, verbose=0).history
    return {
        "loss": [float(loss) for loss in history["loss"]],
        "weights": [weight.tolist() for weight in model.get_weights()],
        "optimizer weights": [np.asarray(weight).tolist() for weight in optimizer.get_weights()],
        "scale": float(number(optimizer.loss_scale() if callable(optimizer.loss_scale) else optimizer.loss_scale)),
        "iterations": int(number(optimizer.iterations)),
    }


def both(inner, loss_scale):
    named = {"name": "dynamic", **loss_scale} if isinstance(loss_scale, dict) else loss_scale
    return {
        "theirs": three_epochs(lambda: upstream(inner(), loss_scale)),
        "ours": three_epochs(lambda: LossScaleOptimizer(inner(), named)),
    }


def two_layers():
    set_global_policy("float32")
    layers = [tf.keras.layers.Dense(4, input_shape=(3,), name="first"), tf.keras.layers.Dense(1, name="second")]
    model = tf.keras.Sequential(layers)
    model.compile(LossScaleOptimizer(Adam(0.01), {"name": "dynamic", **DYNAMIC}), loss="mse")
    return model


def state_of(model):
    state = model.optimizer.state_dict()
    slots = {owner: {name: value.tolist() for name, value in each.items()} for owner, each in state["slots"].items()}
    weights = [weight.tolist() for weight in model.get_weights()]
    kept = {name: state[name] for name in ("iterations", "loss_scale", "learning_rate", "skipped_steps")}
    return {"weights": weights, "slots": slots, **kept}


@scenario
def save_and_go_on():
    """The state when it is saved, restored into another model, and loaded; the second batch of three overflows."""
    features = np.random.RandomState(2).normal(size=(3, 3)).astype(np.float32)
    features[1] = 1e30
    with tempfile.TemporaryDirectory() as folder:
        model, path = two_layers(), os.path.join(folder, "model.h5")
        model.fit(features, np.ones((3, 1), np.float32), batch_size=1, shuffle=False, verbose=0)
        scalekeeper.save_model(model, path)
        found = {"saved": state_of(model)}
        K.clear_session()
        model = two_layers()
        scalekeeper.restore(model, path)
        found["restored"] = state_of(model)
        K.clear_session()
        found["loaded"] = state_of(scalekeeper.load_model(path))
        return found


@scenario
def equal_sgd_fixed():
    return both(lambda: SGD(0.05), 128.0)


@scenario
def equal_adam_fixed():
    return both(lambda: Adam(0.01), 128.0)


@scenario
def equal_sgd_dynamic():
    return both(lambda: SGD(0.05), DYNAMIC)


@scenario
def equal_adam_dynamic():
    return both(lambda: Adam(0.01), DYNAMIC)


def main():
    tf.compat.v1.disable_eager_execution()
    results = {}
    for name, run in SCENARIOS.items():
        K.clear_session()
        try:
            results[name] = {"result": run()}
        except Exception:
            results[name] = {"error": traceback.format_exc()}
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
