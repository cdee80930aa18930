"""``diagnose`` names the layer of each seeded fault, finds nothing in healthy models, and changes nothing."""

import random
import warnings

import numpy as np
import pytest
import tensorflow as tf

from scalekeeper import ArgumentError, ArgumentTypeError, LossScaleOptimizer, SharedLossScale, diagnose
from scalekeeper_test_support.installed_keras import set_global_policy, state_of, upstream, variables_of

pytestmark = pytest.mark.usefixtures("mixed_float16")

layers = tf.keras.layers
SAMPLES, FEATURES = 8, 4
LONG = 70_000  # more ones than float16 can add up


@pytest.fixture(autouse=True)
def same_weights():
    """Begin each test with the same random state."""
    tf.random.set_seed(1)


def data(scale=1.0, shape=(FEATURES,)):
    x = np.random.RandomState(0).uniform(0.5, 1.5, (SAMPLES, *shape)).astype("float32") * np.float32(scale)
    return x, np.ones((SAMPLES, 1), np.float32)


class Computing(layers.Layer):
    """A layer without weights that computes a function of its input."""

    def __init__(self, function, name):
        super().__init__(name=name)
        self.function = function

    def call(self, inputs):
        return self.function(inputs)


class Asking(layers.Layer):
    """A layer that casts to the type of another one before it calls it."""

    def __init__(self, name):
        super().__init__(name=name)
        self.inside = dense("inside")

    def call(self, inputs):
        return self.inside(tf.cast(inputs, self.inside._dtype_policy.compute_dtype))


class GroupNormalizing(layers.Layer):
    """A group normalization that computes in the type of its input."""

    def call(self, inputs):
        groups = tf.reshape(inputs, (-1, 2, FEATURES // 2))
        mean = tf.reduce_mean(groups, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(groups), axis=-1, keepdims=True) - tf.square(mean)
        return tf.reshape((groups - mean) * tf.math.rsqrt(variance + 1e-3), (-1, FEATURES))


def dense(name, **options):
    return layers.Dense(FEATURES, name=name, **options)


def identity(name, factor=1.0, **options):
    """A dense layer that multiplies its input by a number."""
    return dense(name, kernel_initializer=tf.keras.initializers.Identity(factor), **options)


def sequential(*inside, loss="mse", loss_scale="dynamic", input_shape=(FEATURES,)):
    model = tf.keras.Sequential(
        [tf.keras.Input(input_shape, name="data"), *inside, layers.Dense(1, dtype="float32", name="out")]
    )
    return compiled(model, loss, loss_scale)


def compiled(model, loss="mse", loss_scale="dynamic"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.compile(LossScaleOptimizer(tf.keras.optimizers.Adam(1e-3), loss_scale), loss=loss)
    return model


# Faults: each returns a model, x, y


def epsilon_that_vanishes():
    def normalized(inputs):
        deviation = tf.math.reduce_std(inputs, axis=-1, keepdims=True)
        return (inputs - tf.reduce_mean(inputs, axis=-1, keepdims=True)) / (deviation + 1e-8)

    x, y = data()
    x[2] = 1.0
    return sequential(Computing(normalized, "normalized"), dense("after")), x, y


def sum_of_many():
    total = Computing(lambda inputs: tf.reduce_sum(inputs, axis=-1, keepdims=True) / 256.0, "total")
    x = np.ones((2, LONG), np.float32)
    return sequential(total, dense("after"), input_shape=(LONG,)), x, np.ones((2, 1), np.float32)


def softmax_of_many():
    x = np.zeros((2, LONG), np.float32)
    last = Computing(lambda inputs: tf.reduce_max(inputs, axis=-1, keepdims=True), "last")
    return sequential(layers.Softmax(name="softmax"), last, input_shape=(LONG,)), x, np.ones((2, 1), np.float32)


def exploding_group_normalization():
    x, y = data(400.0)
    return sequential(identity("before"), GroupNormalizing(name="group"), dense("after")), x, y


def bad_sample():
    x, y = data()
    x[5, 1] = 1e6
    return sequential(dense("first"), dense("second")), x, y


def log_of_zero():
    x, y = data()
    x[1] = 0.0
    return sequential(identity("before"), Computing(tf.math.log, "log"), dense("after")), x, y


def scale_too_high():
    large = Computing(lambda inputs: inputs * 1000.0, "large")
    inside = (identity("before", 1e-3), large, identity("after"))
    return (sequential(*inside, loss_scale=2.0**13), *data())


def scale_too_low():
    small = Computing(lambda inputs: inputs * 1e-4, "small")
    inside = (identity("first"), small, small_copy("small_again"), identity("after"))
    return (sequential(*inside, loss_scale=1), *data())


def small_copy(name):
    return Computing(lambda inputs: inputs * 1e-4, name)


def vanishing_layer():
    inputs = tf.keras.Input((FEATURES,), name="data")
    small = identity("vanishing")(inputs)
    for number in range(3):
        small = small_copy(f"small_{number}")(small)
    both = layers.Add(name="both")([small, identity("other")(inputs)])
    outputs = layers.Dense(1, dtype="float32", name="out")(both)
    return (compiled(tf.keras.Model(inputs, outputs)), *data())


def loss_that_overflows():
    def exponential(wanted, output):
        return tf.exp(tf.abs(tf.cast(output, tf.float32)) * 1e4)

    return (sequential(identity("first"), loss=exponential), *data())


def division():
    x, y = data(1e-3)
    divided = Computing(lambda inputs: inputs / tf.square(inputs * 0.1), "divided")
    return sequential(identity("before"), divided, dense("after")), x, y


def frozen_layer():
    return (sequential(dense("first"), dense("frozen", trainable=False), dense("after"), loss_scale=2.0**10), *data())


def nan_in_data():
    x, y = data()
    x[3, 1] = np.nan
    return sequential(dense("first"), dense("second")), x, y


def exploding_rnn():
    x, y = data(shape=(16, FEATURES))
    cell = layers.SimpleRNN(
        FEATURES,
        activation="relu",
        kernel_initializer="ones",
        recurrent_initializer=tf.keras.initializers.Identity(3.0),
        name="rnn",
    )
    return sequential(cell, dense("after"), input_shape=(16, FEATURES)), x, y


# fault → the layer that it is in, and the kinds of findings that name it
FAULTS = {
    epsilon_that_vanishes: ("normalized", {"constant", "nonfinite"}),
    sum_of_many: ("total", {"overflow", "nonfinite"}),
    softmax_of_many: ("softmax", {"overflow"}),
    exploding_group_normalization: ("group", {"overflow"}),
    bad_sample: ("data", {"data"}),
    log_of_zero: ("log", {"nonfinite"}),
    scale_too_high: ("large", {"loss_scale_too_high"}),
    scale_too_low: ("first", {"vanishing_gradients"}),
    vanishing_layer: ("vanishing", {"vanishing_gradients"}),
    loss_that_overflows: ("loss", {"nonfinite"}),
    division: ("divided", {"divisor", "nonfinite", "overflow"}),
    frozen_layer: ("frozen", {"frozen"}),
    nan_in_data: ("data", {"data"}),
    exploding_rnn: ("rnn", {"overflow"}),
}


@pytest.mark.parametrize("fault", list(FAULTS), ids=lambda fault: fault.__name__)
def test_seeded_fault(fault):
    """The first finding names the layer of the fault, and findings of the expected kinds name it too."""
    model, x, y = fault()
    found = diagnose(model, x, y)
    layer, kinds = FAULTS[fault]
    assert found.findings[0].layer == layer, str(found)
    assert kinds <= {each.kind for each in found.findings if each.layer == layer}, str(found)


# Healthy models: each returns a model, x, y


def convolutions():
    inside = [
        layers.Conv2D(8, 3, activation="relu", name="convolution"),
        layers.BatchNormalization(name="normalization"),
        layers.Dropout(0.2, name="dropout"),
        layers.GlobalAveragePooling2D(name="pooling"),
    ]
    return (sequential(*inside, loss_scale=2.0**10, input_shape=(12, 12, 3)), *data(shape=(12, 12, 3)))


def attention():
    words = tf.keras.Input((10,), dtype="int32", name="words")
    embedded = layers.Embedding(20, 16, name="embedding")(words)
    query, key = (layers.Dense(16, name=name)(embedded) for name in ("query", "key"))
    attended = layers.Attention(name="attention")([query, embedded, key])
    residual = layers.Add(name="residual")([embedded, attended])
    normalized = layers.LayerNormalization(dtype="float32", name="normalization")(residual)
    outputs = layers.Dense(1, dtype="float32", name="out")(layers.GlobalAveragePooling1D(name="pooling")(normalized))
    x = np.random.RandomState(1).randint(1, 20, (SAMPLES, 10)).astype("int32")
    return compiled(tf.keras.Model(words, outputs), loss_scale=2.0**10), x, np.ones((SAMPLES, 1), np.float32)


def recurrent():
    inside = [
        layers.Bidirectional(layers.LSTM(8, return_sequences=True), name="both_ways"),
        layers.LSTM(8, dropout=0.1, name="lstm"),
    ]
    return (sequential(*inside, loss_scale=2.0**10, input_shape=(9, FEATURES)), *data(shape=(9, FEATURES)))


class Subclassed(tf.keras.Model):
    """A model with layers in a list, and operations outside of its layers."""

    def __init__(self):
        super().__init__()
        self.inside = [dense("first", activation="tanh"), dense("second", activation="tanh")]
        self.last = layers.Dense(1, dtype="float32", name="out")

    def call(self, inputs, training=None):
        for layer in self.inside:
            inputs = inputs + layer(inputs) * 0.5
        return self.last(inputs)


def subclassed():
    return (compiled(Subclassed(), loss_scale=2.0**10), *data())


def masked_text():
    words = tf.keras.Input((12,), dtype="int32", name="words")
    embedded = layers.Embedding(20, 8, mask_zero=True, name="embedding")(words)
    hidden = layers.GRU(8, name="gru")(layers.LSTM(8, return_sequences=True, name="lstm")(embedded))
    x = np.random.RandomState(1).randint(1, 20, (SAMPLES, 12)).astype("int32")
    x[:, 8:] = 0
    outputs = layers.Dense(1, activation="sigmoid", dtype="float32", name="out")(hidden)
    model = compiled(tf.keras.Model(words, outputs), "binary_crossentropy", 2.0**10)
    return model, x, np.ones((SAMPLES, 1), np.float32)


def autoencoder():
    image = tf.keras.Input((12, 12, 1), name="image")
    code = layers.Conv2D(8, 3, strides=2, padding="same", activation="relu", name="encoder")(image)
    decoded = layers.Conv2DTranspose(8, 3, strides=2, padding="same", activation="relu", name="decoder")(code)
    outputs = layers.Conv2D(1, 3, padding="same", activation="sigmoid", dtype="float32", name="out")(decoded)
    x = data(0.5, (12, 12, 1))[0]
    return compiled(tf.keras.Model(image, outputs), "binary_crossentropy", 2.0**10), x, x


def self_normalizing():
    inside = [
        layers.Dense(32, activation="selu", name="first"),
        layers.Dropout(0.1, name="dropout"),
        layers.Dense(32, activation="elu", name="second"),
        layers.Lambda(lambda inputs: inputs * 0.5, name="half"),
    ]
    return (sequential(*inside, loss="mae", loss_scale=2.0**10), *data())


HEALTHY = [convolutions, attention, recurrent, subclassed, masked_text, autoencoder, self_normalizing]


@pytest.mark.parametrize("policy", ["mixed_float16", "float32"])
@pytest.mark.parametrize("healthy", HEALTHY, ids=lambda healthy: healthy.__name__)
def test_healthy_model(healthy, policy):
    """There is no finding, the loss scale in use would do, and both runs agree."""
    set_global_policy(policy)
    model, x, y = healthy()
    found = diagnose(model, x, y)
    assert found.findings == (), str(found)
    assert found.is_healthy
    assert found.loss_scale >= 2.0**10
    assert found.is_replayed is (policy == "mixed_float16")
    if found.is_replayed:
        assert found.difference < 0.02


# Models that need a closer look


def exploding(name):
    return Computing(lambda inputs: tf.exp(inputs * 20.0), name)


def test_operation_between_layers():
    """An operation that a functional model calls directly is a layer, runs in float32, and is named."""
    inputs = tf.keras.Input((FEATURES,), name="data")
    hidden = identity("before")(inputs)
    exponential = tf.keras.ops.exp(hidden * 20.0) if hasattr(tf.keras, "ops") else tf.exp(hidden * 20.0)
    outputs = layers.Dense(1, dtype="float32", name="out")(exponential)
    model = compiled(tf.keras.Model(inputs, outputs))
    found = diagnose(model, *data())
    assert "exp" in found.origin.layer.lower()
    assert (found.origin.operation, found.origin.phase) == ("Exp", "forward")
    assert "in float32 it is finite" in found.findings[0].message
    assert found.origin.layer == next(each.layer for each in found.findings if each.kind == "overflow")


@pytest.mark.skipif(not hasattr(tf.keras.Model, "train_step"), reason="from 2.2 on")
def test_gradient_of_a_gradient():
    """What a training step computes from gradients is outside of all layers: the root of zero, for example."""

    class Penalized(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.first, self.last = dense("first"), layers.Dense(1, dtype="float32", name="last")
            self.last.kernel_initializer = tf.keras.initializers.Zeros()

        def call(self, inputs):
            return self.last(self.first(inputs))

        def train_step(self, data):
            x, y = data
            x = tf.convert_to_tensor(x)
            with tf.GradientTape() as tape:
                with tf.GradientTape() as inner:
                    inner.watch(x)
                    outputs = self(x)
                norms = tf.sqrt(tf.reduce_sum(tf.square(inner.gradient(outputs, x)), axis=-1))
                penalty = tf.reduce_mean((norms - 1.0) ** 2)
                loss = tf.reduce_mean((outputs - y) ** 2) + penalty
            tape.gradient(loss, self.trainable_variables)
            return {"loss": loss}

    found = diagnose(compiled(Penalized()), *data())
    assert (found.origin.layer, found.origin.operation, found.origin.phase) == ("loss", "SqrtGrad", "backward")
    assert "float16 is not the cause" in found.findings[0].advice


class Penalizing(layers.Layer):
    """A layer that adds a sum to the loss, which float16 cannot hold."""

    def call(self, inputs):
        self.add_loss(tf.cast(tf.reduce_sum(tf.square(inputs)), tf.float32))
        return inputs * 1e-3


def test_penalty_that_overflows():
    """The layer that adds it to the loss is named, though its outputs are finite."""
    found = diagnose(sequential(Penalizing(name="penalizing")), *data(200.0))
    assert (found.origin.layer, found.origin.phase) == ("penalizing", "forward")
    assert found.findings[0].layer == "penalizing"


@pytest.mark.parametrize("makes_strategy", [tf.distribute.MirroredStrategy, tf.distribute.OneDeviceStrategy])
def test_strategy_of_one_replica(makes_strategy):
    """A strategy may run the only replica in a thread of its own; the layer is found there too."""
    strategy = makes_strategy(["/cpu:0"] if makes_strategy is tf.distribute.MirroredStrategy else "/cpu:0")
    with strategy.scope():
        model = sequential(identity("before"), exploding("exploding"))
    found = diagnose(model, *data())
    assert (found.origin.layer, found.origin.operation) == ("exploding", "Exp")
    assert {"before", "exploding", "out"} <= {each.path for each in found.layers}


class OfSparseTensors(Subclassed):
    """A model whose inputs are sparse tensors."""

    def call(self, inputs, training=None):
        return super().call(tf.sparse.to_dense(inputs))


@pytest.mark.skipif(
    tf.__version__.startswith("2.0."), reason="its train_on_batch takes sparse tensors of an Input only"
)
def test_sparse_batches():
    """Batches of sparse tensors, which have no length, run."""
    batches = tf.data.Dataset.from_tensor_slices(data()).batch(4).map(lambda x, y: (tf.sparse.from_dense(x), y))
    found = diagnose(compiled(OfSparseTensors(), loss_scale=2.0**10), batches)
    assert (found.findings, found.batches) == ((), 2)


def masked(inputs):
    """Attend to the first half, as many programs do it: other scores become a number that float16 does not have."""
    scores = tf.where(tf.range(FEATURES) < FEATURES // 2, inputs, tf.ones_like(inputs) * -1e9)
    return tf.nn.softmax(scores)


def share(inputs):
    return inputs / (tf.reduce_sum(inputs, axis=-1, keepdims=True) + 1e-8)


@pytest.mark.parametrize(("function", "kind"), [(masked, "overflow"), (share, "constant")])
def test_what_does_no_harm(function, kind):
    """A mask of -1e9, and an epsilon that is not needed, are warnings: the model trains in float16 as in float32."""
    found = diagnose(sequential(identity("before"), Computing(function, "layer"), loss_scale=2.0**6), *data())
    assert [(each.level, each.kind, each.layer) for each in found.findings] == [("warning", kind, "layer")], str(found)
    assert (found.origin, found.difference < 0.02) == (None, True)


def test_large_targets():
    """If gradients overflow at a loss scale of 1, no dtype of a layer helps: the advice is to scale the targets."""
    x, y = data()
    found = diagnose(sequential(dense("hidden")), x, y * 1e7)
    assert (found.findings[0].kind, found.origin.phase) == ("nonfinite", "backward")
    assert "scale the targets" in found.findings[0].advice
    assert "dtype" not in found.findings[0].advice


def test_prediction_for_a_lambda_layer():
    """A function in a Lambda layer is the caller's: constants that float16 does not have are predicted."""
    set_global_policy("float32")
    tiny = layers.Lambda(
        lambda inputs: inputs / (tf.reduce_sum(inputs * 0.0, axis=-1, keepdims=True) + 1e-8), name="tiny"
    )
    found = diagnose(sequential(identity("before"), tiny, loss_scale=2.0**-30 * 2.0**30), *data(1e-8))
    assert {"constant", "divisor"} <= {each.kind for each in found.findings if each.layer == "tiny"}, str(found)


# Nothing changes


def state(model):
    """Everything of a model that a diagnosis could change."""
    optimizer = model.optimizer
    return {
        "weights": [each.tobytes() for each in model.get_weights()],
        "optimizer": [each.numpy().tobytes() for each in variables_of(optimizer)],
        "loss scale": state_of(optimizer),
        "policies": [(layer.name, layer._dtype_policy.name) for layer in model.layers],
        "run_eagerly": model.run_eagerly,
        "train_function": getattr(model, "train_function", None),
        "patched": [name for name in vars(optimizer) if name in ("apply", "apply_gradients", "get_scaled_loss")],
        "patched classes": [tf.keras.layers.Layer.__call__, tf.GradientTape.gradient],
        "python": random.getstate(),
        "numpy": np.random.get_state()[1].tolist(),
        "tensorflow": tf.random.uniform(()).numpy().item(),
    }


@pytest.mark.slow("py38-tf23", "py313-tf221-keras3")
@pytest.mark.parametrize("is_trained", [False, True])
@pytest.mark.parametrize("wrapper", ["scalekeeper", "keras"])
def test_nothing_changes(wrapper, is_trained):
    """Weights, moving averages, optimizer, loss scale, dtype policies, random states and functions are as before."""
    results = []
    for is_diagnosed in (False, True):
        tf.keras.backend.clear_session()
        tf.random.set_seed(3)
        random.seed(3)
        np.random.seed(3)
        model, x, y = convolutions()
        if wrapper == "keras":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.compile(upstream(tf.keras.optimizers.Adam(1e-3)), loss="mse")
        if is_trained:
            model.fit(x, y, epochs=2, verbose=0)
        functions = getattr(model, "train_function", None)
        if is_diagnosed:
            diagnose(model, x, y)
        found = state(model)
        assert found.pop("train_function") is functions
        results.append(found)
        model.fit(x, y, epochs=2, verbose=0, shuffle=False)
        results[-1]["continued"] = [each.tobytes() for each in model.get_weights()]
    plain, diagnosed = results
    assert diagnosed == plain


class Nested(Subclassed):
    """A model whose training step uses the optimizer of a model inside it, and one from outside of the class."""

    def __init__(self):
        super().__init__()
        self.inner = Subclassed()

    def call(self, inputs, training=None):
        return super().call(inputs) + self.inner(inputs)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x) - y) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        for optimizer in (self.inner.optimizer, *OUTSIDE):
            optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


OUTSIDE = []  # objects that classes use by the name of a variable


@pytest.mark.skipif(not hasattr(tf.keras.Model, "train_step"), reason="from 2.2 on")
def test_optimizers_elsewhere_take_no_step():
    """Not those of models inside the model, nor those that its class uses by name."""
    OUTSIDE[:] = [tf.keras.optimizers.Adam(0.1)]
    model, (x, y) = Nested(), data()
    model(x)
    model.inner.compile(tf.keras.optimizers.Adam(0.1), loss="mse")
    compiled(model)
    before = [each.tobytes() for each in model.get_weights()]
    diagnose(model, x, y)
    assert [each.tobytes() for each in model.get_weights()] == before
    assert [int(each.iterations) for each in (*OUTSIDE, model.inner.optimizer)] == [0, 0]


class Counting(layers.Layer):
    """A layer that changes a variable that is not its own, and draws from a random generator."""

    def __init__(self, generator):
        super().__init__(name="counting")
        self.generator = generator

    def call(self, inputs):
        if OUTSIDE:
            OUTSIDE[0].assign_add(1.0)
        return inputs + tf.cast(self.generator.normal(tf.shape(inputs)), inputs.dtype)


def test_variables_and_generators_elsewhere():
    """A variable that the model does not track, and a random generator in a layer, are as before."""
    del OUTSIDE[:]
    generator = (getattr(tf.random, "Generator", None) or tf.random.experimental.Generator).from_seed(3)
    model = sequential(Counting(generator))
    OUTSIDE.append(tf.Variable(5.0))
    before = generator.state.numpy().tolist()
    diagnose(model, *data())
    assert (OUTSIDE[0].numpy(), generator.state.numpy().tolist()) == (5.0, before)
    OUTSIDE[0].assign_add(1.0)
    assert OUTSIDE.pop().numpy() == 6.0


def test_generator_that_draws():
    """Random numbers that the data draws are drawn again: the program continues as without a diagnosis."""

    def batches():
        while True:
            yield np.random.rand(4, FEATURES).astype("float32") + random.random(), np.ones((4, 1), np.float32)

    model, x, _ = subclassed()
    model(x)
    np.random.seed(1)
    random.seed(1)
    expected = np.random.RandomState(1).rand(), random.Random(1).random()
    diagnose(model, batches())
    assert (np.random.rand(), random.random()) == expected


def test_states_of_recurrent_layers():
    """A stateful layer goes on from where it was."""
    set_global_policy("float32")  # up to 2.3, Keras cannot run it in mixed precision
    model = tf.keras.Sequential([tf.keras.Input((3, FEATURES), batch_size=2), layers.GRU(4, stateful=True)])
    x, y = np.ones((2, 3, FEATURES), np.float32), np.ones((2, 4), np.float32)
    compiled(model)
    first = model.predict(x, batch_size=2)
    diagnose(model, x, y)
    second = model.predict(x, batch_size=2)
    model.layers[0].reset_states()
    assert model.predict(x, batch_size=2).tobytes() == first.tobytes()
    assert model.predict(x, batch_size=2).tobytes() == second.tobytes()


def test_policies_are_restored_after_an_error():
    """A layer that raises leaves layers, classes and functions as they were."""

    def fail(inputs):
        raise RuntimeError("broken")

    model, x, y = convolutions()
    before = state(model)
    first_calls = []
    model.layers[-1].call = lambda *args, **kwargs: (first_calls.append(1), fail(args))
    with pytest.raises(RuntimeError, match="broken"):
        diagnose(model, x, y)
    assert first_calls
    after = state(model)
    assert {**after, "tensorflow": 0} == {**before, "tensorflow": 0}


# Results


def test_loss_scales_of_a_layer():
    """The scales between which a layer's gradients fit follow from its gradients, which are known exactly."""
    model = sequential(identity("first", trainable=True), loss=lambda wanted, output: output * 2.0**-30)
    x, y = np.ones((4, FEATURES), np.float32), np.ones((4, 1), np.float32)
    model.layers[-1].set_weights([np.ones((FEATURES, 1), np.float32), np.zeros(1, np.float32)])
    found = diagnose(model, x, y)
    first = next(each for each in found.layers if each.path == "first")
    assert first.gradients.largest == 2.0**-32
    assert first.weight_gradients.largest == 2.0**-30
    assert (first.lowest_scale, first.highest_scale) == (2.0**6, 2.0**45)
    assert first.gradients.underflow == 1.0
    assert found.loss_scale == 2.0**24


def test_loss_scale_of_a_skipped_step():
    """Given the loss scale of a step that was skipped, the layer that overflowed is found."""
    large = Computing(lambda inputs: inputs * 1000.0, "large")
    model = sequential(identity("before", 1e-3), large, identity("after"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.compile(
            LossScaleOptimizer(tf.keras.optimizers.SGD(1e-3), "dynamic", attribute_overflows=True), loss="mse"
        )
    x, y = data()
    model.fit(x, y, verbose=0)
    assert model.optimizer.telemetry.skipped == 1
    found = diagnose(model, x, y, loss_scale=2.0**15)
    assert (found.origin.layer, found.origin.phase, found.origin.batch) == ("large", "backward", 0)
    assert found.scale_in_use == 2.0**15
    assert "before" in {each.layer for each in found.findings if each.kind == "attributed"}


def test_bad_sample_is_found_beyond_the_batches():
    """Arrays are searched whole, though only a few batches run."""
    model, x, y = subclassed()
    x, y = np.tile(x, (100, 1)), np.tile(y, (100, 1))
    x[700, 1] = np.inf
    (found,) = diagnose(model, x, y, batches=1).findings
    assert (found.kind, found.level) == ("data", "error")
    assert "700" in found.message


def test_layers_that_all_have_float32():
    """Under a float16 policy of the model alone, the figures are those of a float32 model."""
    inside = tf.keras.Sequential([tf.keras.Input((FEATURES,)), layers.Dense(1, dtype="float32", name="out")])
    found = diagnose(compiled(inside, loss_scale=2.0**10), *data())
    assert (found.findings, found.is_replayed) == ((), False)
    assert found.loss_scale > 1


def test_float16_variables():
    """The optimizer's epsilon vanishes in them; a note tells if the installed Keras cannot run them in float32."""
    set_global_policy("float16")
    model = sequential(identity("first"), loss_scale=2.0**6)
    model.compile(LossScaleOptimizer(tf.keras.optimizers.Adam(1e-3, epsilon=1e-8), 2.0**6), loss="mse")
    found = diagnose(model, *data())
    assert [(each.kind, each.layer) for each in found.findings] == [("constant", None)], str(found)
    assert "epsilon 1e-08" in found.findings[0].message
    assert any("cannot run in float32" in note for note in found.notes) or found.difference < 0.02


def test_layers_that_ask_each_other_for_their_type():
    """A layer that casts to the type of another one, before it calls it, is in float32 from the first batch on."""

    model = sequential(Asking(name="asking"), loss_scale=2.0**10)
    found = diagnose(model, *data())
    assert (found.findings, found.notes) == ((), ())
    assert [each.path for each in found.layers] == ["asking/inside", "out"]


def test_iterables_of_batches():
    """A dataset, a generator and arrays with the same batches give the same figures."""
    model, x, y = subclassed()
    model(x)
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(4)
    results = [
        diagnose(model, each, targets, batch_size=4)
        for each, targets in ((batches, None), (((a, b) for a, b in batches), None), (x, y))
    ]
    assert [each.batches for each in results] == [2, 2, 2]
    assert results[0].layers == results[1].layers == results[2].layers


def test_model_that_is_not_compiled():
    """A loss makes up for it; without one the error tells what to do."""
    model = Subclassed()
    x, y = data()
    with pytest.raises(ArgumentError):
        diagnose(model, x, y)
    found = diagnose(model, x, y, loss="mse", loss_scale=2.0**10)
    assert found.findings == ()
    assert found.scale_in_use == 2.0**10


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"batches": 0}, ArgumentError),
        ({"batch_size": True}, ArgumentError),
        ({"loss_scale": -1.0}, ArgumentError),
        ({"loss": "no such loss"}, ArgumentError),
    ],
    ids=str,
)
def test_wrong_arguments(options, error):
    """Each raises scalekeeper's own error."""
    model, x, y = subclassed()
    with pytest.raises(error):
        diagnose(model, x, y, **options)


def test_wrong_models_and_data():
    """Wrong types of model and data, and arrays of different lengths, raise scalekeeper's own errors."""
    model, x, y = subclassed()
    with pytest.raises(ArgumentTypeError):
        diagnose("model.keras", x, y)
    for bad in ((3, None), (x, y[:2]), (iter([]), None), (iter([(x, y)]), y)):
        with pytest.raises(ArgumentError):
            diagnose(model, *bad)


class Unpacking(Subclassed):
    """A model with a training step as in Keras's guides: it unpacks the data, and asks for the decision."""

    def train_step(self, data):
        x, y = data
        return self._step(x, y)

    def _step(self, x, y):
        optimizer = self.optimizer
        with tf.GradientTape() as tape:
            loss = optimizer.get_scaled_loss(tf.reduce_mean((self(x, training=True) - y) ** 2))
        gradients = optimizer.get_unscaled_gradients(tape.gradient(loss, self.trainable_variables))
        applied = optimizer.apply_gradients(zip(gradients, self.trainable_variables), return_decision=True)
        return {"applied": tf.cast(applied, tf.float32)}


class OfImages(Unpacking):
    """A model whose training step takes a dataset of inputs alone."""

    def train_step(self, data):
        return self._step(data, tf.ones((tf.shape(data)[0], 1)))


@pytest.mark.skipif(not hasattr(tf.keras.Model, "train_step"), reason="from 2.2 on")
@pytest.mark.parametrize(
    ("make", "given"),
    [
        (Unpacking, lambda x, y: (x, y)),
        (Unpacking, lambda x, y: (tf.data.Dataset.from_tensor_slices((x, y)).batch(4),)),
        (OfImages, lambda x, y: (tf.data.Dataset.from_tensor_slices(x).batch(4),)),
    ],
    ids=["arrays", "dataset", "dataset of inputs"],
)
def test_training_steps_of_models_get_what_fit_gives_them(make, given):
    """A ``train_step`` that works in ``fit`` works here: no None at the end, no tuple around inputs alone."""
    model = compiled(make(), loss_scale=2.0**10)
    x, y = data()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(*given(x, y), verbose=0)
    found = diagnose(model, *given(x, y))
    assert found.findings == ()
    assert "train_step" not in vars(model)


@pytest.mark.skipif(not hasattr(tf.keras.Model, "train_step"), reason="from 2.2 on")
def test_optimizers_that_share_a_loss_scale():
    """Their step ends without an error, and neither the optimizers nor the loss scale take a step."""
    shared = SharedLossScale(2.0**10)

    class Two(Subclassed):
        def train_step(self, data):
            parts = (self.inside[0], self.last), (self.inside[1],)
            with tf.GradientTape(persistent=True) as tape:
                loss = tf.reduce_mean((self(data[0]) - data[1]) ** 2)
                scaled = [each.get_scaled_loss(loss) for each in optimizers]
            with shared.step():
                for each, value, layers_of_it in zip(optimizers, scaled, parts):
                    variables = [variable for layer in layers_of_it for variable in layer.trainable_variables]
                    gradients = each.get_unscaled_gradients(tape.gradient(value, variables))
                    each.apply_gradients(zip(gradients, variables))
            return {"loss": loss}

    model = Two()
    model.optimizers = optimizers = [LossScaleOptimizer(tf.keras.optimizers.SGD(1e-3), shared) for _ in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.compile(loss="mse")
    found = diagnose(model, *data())
    assert (found.findings, found.scale_in_use) == ((), 2.0**10)
    assert [each.telemetry.steps for each in optimizers] == [0, 0]


def two_outputs():
    """A model whose outputs have different shapes."""
    inputs = tf.keras.Input((FEATURES,), name="data")
    hidden = dense("hidden")(inputs)
    outputs = [layers.Dense(units, dtype="float32", name=f"out{units}")(hidden) for units in (2, 1)]
    return compiled(tf.keras.Model(inputs, outputs), loss_scale=2.0**10)


def test_a_loss_for_several_outputs():
    """A given loss takes each output with its own targets and weights, in a list or by name, as in Keras."""
    model = two_outputs()
    x, y = data()
    wide, weights = np.ones((SAMPLES, 2), np.float32), np.ones(SAMPLES, np.float32)
    by_name = {"out1": y, "out2": wide}
    results = [
        diagnose(model, x, targets, each, loss="mse")
        for targets, each in (([wide, y], None), (by_name, None), ([wide, y], weights), ([wide, y], [weights] * 2))
    ]
    assert results[0].layers == results[1].layers == results[2].layers == results[3].layers
    assert {each.path: each.gradients.largest > 0 for each in results[0].layers} == dict.fromkeys(
        ("hidden", "out2", "out1"), True
    )
    with pytest.raises(ArgumentError):
        diagnose(model, x, [wide], loss="mse")


class Frame:
    """Numbers as in a data frame, whose iterator gives the names of its columns."""

    def __init__(self, array):
        self._array = array

    def __array__(self, dtype=None, copy=None):
        return self._array

    def __iter__(self):
        return iter("abcd")


def test_other_arrays_and_numbers():
    """Data frames, integers of NumPy, tensors, and the policy of the optimizer as the loss scale, are as plain ones."""
    model, x, y = subclassed()
    plain = diagnose(model, x, y, batch_size=4, loss_scale=2.0**10)
    for number in (np.float32(2.0**10), tf.constant(2.0**10), model.optimizer.loss_scale):
        found = diagnose(model, Frame(x), Frame(y), batch_size=np.int64(4), loss_scale=number)
        assert (found.layers, found.scale_in_use) == (plain.layers, 2.0**10)
