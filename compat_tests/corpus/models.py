"""The models of the corpus: one function for each kind, unchanged on every TensorFlow.

A kind whose layer or argument the installed Keras does not have raises AttributeError or TypeError, and is left out.
"""

import inspect

import numpy as np
import tensorflow as tf

keras = tf.keras
layers = keras.layers

VECTOR, SEQUENCE, IMAGE, VOLUME = (6,), (5, 4), (8, 8, 3), (5, 5, 5, 2)


def _one(make, shape=VECTOR, dtype=None):
    """Return a function that makes a model of one layer."""

    def build():
        inputs = keras.Input(shape, dtype=dtype)
        return keras.Model(inputs, make()(inputs))

    return build


def _merged(make, *shapes):
    """Return a function that makes a model of one layer with several inputs."""

    def build():
        inputs = [keras.Input(shape) for shape in shapes]
        return keras.Model(inputs, make()(inputs))

    return build


def _computed(function, *shapes):
    """Return a function that makes a model from operations on tensors, between two layers."""

    def build():
        inputs = [keras.Input(shape) for shape in shapes]
        hidden = [layers.Dense(shape[-1])(each) for each, shape in zip(inputs, shapes)]
        return keras.Model(inputs, layers.Activation("tanh")(function(*hidden)))

    return build


def _preprocessing(name):
    found = getattr(layers, name, None)
    return found or getattr(layers.experimental.preprocessing, name)


def _by_tensorflow(function, *shapes):
    """Return the same for functions of TensorFlow, which do not take the tensors of Keras 3."""

    def build():
        if hasattr(keras, "Operation"):
            raise TypeError("functions of TensorFlow do not take the tensors of Keras 3")
        return _computed(function, *shapes)()

    return build


# One layer

ONE_LAYER = {
    "dense": _one(lambda: layers.Dense(3)),
    "dense_options": _one(
        lambda: layers.Dense(
            3,
            activation="relu",
            use_bias=False,
            kernel_initializer=keras.initializers.VarianceScaling(2.0, "fan_out", "uniform", seed=3),
            kernel_regularizer=keras.regularizers.l2(0.01),
            activity_regularizer=keras.regularizers.l1(0.01),
            kernel_constraint=keras.constraints.MaxNorm(2.0),
        )
    ),
    "dense_initializers": _one(
        lambda: layers.Dense(3, kernel_initializer="he_normal", bias_initializer=keras.initializers.Constant(0.5))
    ),
    "dense_orthogonal": _one(
        lambda: layers.Dense(
            3,
            kernel_initializer=keras.initializers.Orthogonal(gain=1.5),
            bias_initializer=keras.initializers.TruncatedNormal(stddev=0.1),
            bias_regularizer=keras.regularizers.l1_l2(0.01, 0.02),
            bias_constraint="non_neg",
        )
    ),
    "dense_float16": _one(lambda: layers.Dense(3, dtype="float16")),
    "dense_float64": _one(lambda: layers.Dense(3, dtype="float64"), dtype="float64"),
    "dense_frozen": _one(lambda: layers.Dense(3, trainable=False)),
    "embedding": _one(lambda: layers.Embedding(7, 3), (5,), "int32"),
    "embedding_length": _one(lambda: layers.Embedding(7, 3, embeddings_regularizer="l2"), (5,), "int32"),
    "flatten": _one(lambda: layers.Flatten(), IMAGE),
    "flatten_channels_first": _one(lambda: layers.Flatten(data_format="channels_first"), IMAGE),
    "reshape": _one(lambda: layers.Reshape((3, -1)), VECTOR),
    "permute": _one(lambda: layers.Permute((2, 1)), SEQUENCE),
    "repeat_vector": _one(lambda: layers.RepeatVector(3)),
    "lambda": _one(lambda: layers.Lambda(lambda value: value * 2)),
    "activity_regularization": _one(lambda: layers.ActivityRegularization(l1=0.1, l2=0.2)),
    "masking": _one(lambda: layers.Masking(0.5), SEQUENCE),
    "dropout": _one(lambda: layers.Dropout(0.4, noise_shape=(None, 1), seed=3), VECTOR),
    "spatial_dropout1d": _one(lambda: layers.SpatialDropout1D(0.4), SEQUENCE),
    "spatial_dropout2d": _one(lambda: layers.SpatialDropout2D(0.4), IMAGE),
    "spatial_dropout3d": _one(lambda: layers.SpatialDropout3D(0.4), VOLUME),
    "gaussian_noise": _one(lambda: layers.GaussianNoise(0.3)),
    "gaussian_dropout": _one(lambda: layers.GaussianDropout(0.3)),
    "alpha_dropout": _one(lambda: layers.AlphaDropout(0.3)),
    "leaky_relu": _one(lambda: layers.LeakyReLU(0.2)),
    "prelu": _one(lambda: layers.PReLU(shared_axes=[1, 2]), IMAGE),
    "elu": _one(lambda: layers.ELU(0.7)),
    "thresholded_relu": _one(lambda: layers.ThresholdedReLU(0.3)),
    "softmax": _one(lambda: layers.Softmax(axis=1), SEQUENCE),
    "relu": _one(lambda: layers.ReLU(max_value=0.8, negative_slope=0.1, threshold=0.2)),
    "conv1d": _one(lambda: layers.Conv1D(3, 2, strides=2, padding="same"), SEQUENCE),
    "conv1d_causal": _one(lambda: layers.Conv1D(3, 2, padding="causal", dilation_rate=2), SEQUENCE),
    "conv2d": _one(lambda: layers.Conv2D(4, 3, padding="same", dilation_rate=2, activation="elu"), IMAGE),
    "conv2d_groups": _one(lambda: layers.Conv2D(6, 3, groups=3, strides=2), IMAGE),
    "conv3d": _one(lambda: layers.Conv3D(2, (2, 1, 2), use_bias=False), VOLUME),
    "conv1d_transpose": _one(lambda: layers.Conv1DTranspose(3, 3, strides=2), SEQUENCE),
    "conv2d_transpose": _one(lambda: layers.Conv2DTranspose(4, 3, strides=2, output_padding=1), IMAGE),
    "conv3d_transpose": _one(lambda: layers.Conv3DTranspose(2, 2, strides=2, padding="same"), VOLUME),
    "separable_conv1d": _one(lambda: layers.SeparableConv1D(3, 2, depth_multiplier=2), SEQUENCE),
    "separable_conv2d": _one(
        lambda: layers.SeparableConv2D(4, 3, padding="same", pointwise_regularizer="l2", depth_multiplier=2), IMAGE
    ),
    "depthwise_conv1d": _one(lambda: layers.DepthwiseConv1D(2, depth_multiplier=2), SEQUENCE),
    "depthwise_conv2d": _one(
        lambda: layers.DepthwiseConv2D(3, strides=2, padding="same", depthwise_regularizer="l2"), IMAGE
    ),
    "locally_connected1d": _one(lambda: layers.LocallyConnected1D(3, 2), SEQUENCE),
    "locally_connected2d": _one(lambda: layers.LocallyConnected2D(2, 3), IMAGE),
    "up_sampling1d": _one(lambda: layers.UpSampling1D(2), SEQUENCE),
    "up_sampling2d": _one(lambda: layers.UpSampling2D((2, 3), interpolation="bilinear"), IMAGE),
    "up_sampling3d": _one(lambda: layers.UpSampling3D((1, 2, 1)), VOLUME),
    "zero_padding1d": _one(lambda: layers.ZeroPadding1D((1, 2)), SEQUENCE),
    "zero_padding2d": _one(lambda: layers.ZeroPadding2D(((1, 0), (2, 1))), IMAGE),
    "zero_padding3d": _one(lambda: layers.ZeroPadding3D(1), VOLUME),
    "cropping1d": _one(lambda: layers.Cropping1D((1, 2)), SEQUENCE),
    "cropping2d": _one(lambda: layers.Cropping2D(((1, 0), (2, 1))), IMAGE),
    "cropping3d": _one(lambda: layers.Cropping3D(1), VOLUME),
    "max_pooling1d": _one(lambda: layers.MaxPooling1D(2, padding="same"), SEQUENCE),
    "max_pooling2d": _one(lambda: layers.MaxPooling2D((2, 3), strides=1), IMAGE),
    "max_pooling3d": _one(lambda: layers.MaxPooling3D(2), VOLUME),
    "average_pooling1d": _one(lambda: layers.AveragePooling1D(2, padding="same"), SEQUENCE),
    "average_pooling2d": _one(lambda: layers.AveragePooling2D((2, 3), strides=1), IMAGE),
    "average_pooling3d": _one(lambda: layers.AveragePooling3D(2), VOLUME),
    "global_max_pooling1d": _one(lambda: layers.GlobalMaxPooling1D(), SEQUENCE),
    "global_max_pooling2d": _one(lambda: layers.GlobalMaxPooling2D(), IMAGE),
    "global_max_pooling3d": _one(lambda: layers.GlobalMaxPooling3D(), VOLUME),
    "global_average_pooling1d": _one(lambda: layers.GlobalAveragePooling1D(), SEQUENCE),
    "global_average_pooling2d": _one(lambda: layers.GlobalAveragePooling2D(keepdims=True), IMAGE),
    "global_average_pooling3d": _one(lambda: layers.GlobalAveragePooling3D(), VOLUME),
    "simple_rnn": _one(lambda: layers.SimpleRNN(3, return_sequences=True), SEQUENCE),
    "lstm": _one(lambda: layers.LSTM(3), SEQUENCE),
    "lstm_options": _one(
        lambda: layers.LSTM(
            3,
            recurrent_activation="hard_sigmoid",
            unit_forget_bias=False,
            go_backwards=True,
            return_sequences=True,
            recurrent_dropout=0.2,
            dropout=0.1,
        ),
        SEQUENCE,
    ),
    "lstm_states": _one(lambda: layers.LSTM(3, return_state=True), SEQUENCE),
    "lstm_unrolled": _one(lambda: layers.LSTM(3, unroll=True), SEQUENCE),
    "gru": _one(lambda: layers.GRU(3), SEQUENCE),
    "gru_reset_before": _one(lambda: layers.GRU(3, reset_after=False, return_sequences=True), SEQUENCE),
    "gru_hard_sigmoid": _one(lambda: layers.GRU(3, recurrent_activation="hard_sigmoid"), SEQUENCE),
    "conv_lstm1d": _one(lambda: layers.ConvLSTM1D(2, 2), (3, 5, 2)),
    "conv_lstm2d": _one(lambda: layers.ConvLSTM2D(2, 2, return_sequences=True), (3, 4, 4, 2)),
    "conv_lstm3d": _one(lambda: layers.ConvLSTM3D(2, 2), (2, 3, 3, 3, 1)),
    "rnn_of_cell": _one(lambda: layers.RNN(layers.GRUCell(3)), SEQUENCE),
    "rnn_of_cells": _one(lambda: layers.RNN([layers.LSTMCell(3), layers.SimpleRNNCell(2)]), SEQUENCE),
    "bidirectional": _one(lambda: layers.Bidirectional(layers.LSTM(3, return_sequences=True)), SEQUENCE),
    "bidirectional_sum": _one(lambda: layers.Bidirectional(layers.GRU(3), merge_mode="sum"), SEQUENCE),
    "bidirectional_two": _one(
        lambda: layers.Bidirectional(
            layers.LSTM(3, name="there"), backward_layer=layers.LSTM(2, go_backwards=True, name="back")
        ),
        SEQUENCE,
    ),
    "time_distributed": _one(lambda: layers.TimeDistributed(layers.Dense(3)), SEQUENCE),
    "time_distributed_conv": _one(lambda: layers.TimeDistributed(layers.Conv2D(2, 3)), (2, *IMAGE)),
    "add": _merged(lambda: layers.Add(), VECTOR, VECTOR, VECTOR),
    "subtract": _merged(lambda: layers.Subtract(), VECTOR, VECTOR),
    "multiply": _merged(lambda: layers.Multiply(), VECTOR, VECTOR),
    "average": _merged(lambda: layers.Average(), VECTOR, VECTOR),
    "maximum": _merged(lambda: layers.Maximum(), VECTOR, VECTOR),
    "minimum": _merged(lambda: layers.Minimum(), VECTOR, VECTOR),
    "concatenate": _merged(lambda: layers.Concatenate(axis=1), SEQUENCE, (2, 4)),
    "dot": _merged(lambda: layers.Dot(axes=(2, 2), normalize=True), SEQUENCE, (2, 4)),
    "batch_normalization": _one(lambda: layers.BatchNormalization(), IMAGE),
    "batch_normalization_options": _one(
        lambda: layers.BatchNormalization(axis=1, momentum=0.9, epsilon=0.01, scale=False), SEQUENCE
    ),
    "layer_normalization": _one(lambda: layers.LayerNormalization(), SEQUENCE),
    "layer_normalization_axes": _one(lambda: layers.LayerNormalization(axis=[1, 2], epsilon=0.1), SEQUENCE),
    "group_normalization": _one(lambda: layers.GroupNormalization(2), SEQUENCE),
    "unit_normalization": _one(lambda: layers.UnitNormalization(), SEQUENCE),
    "spectral_normalization": _one(lambda: layers.SpectralNormalization(layers.Dense(3))),
    "attention": _merged(lambda: layers.Attention(use_scale=True), SEQUENCE, (3, 4)),
    "additive_attention": _merged(lambda: layers.AdditiveAttention(), SEQUENCE, (3, 4)),
    "einsum_dense": _one(lambda: layers.EinsumDense("abc,cd->abd", (None, 3), bias_axes="d"), SEQUENCE),
    "rescaling": _one(lambda: _preprocessing("Rescaling")(0.1, offset=0.5), IMAGE),
    "resizing": _one(lambda: _preprocessing("Resizing")(4, 6), IMAGE),
    "resizing_nearest": _one(lambda: _preprocessing("Resizing")(4, 6, interpolation="nearest"), IMAGE),
    "center_crop": _one(lambda: _preprocessing("CenterCrop")(4, 6), IMAGE),
    "normalization": _one(lambda: _preprocessing("Normalization")(), VECTOR),
    "normalization_values": _one(lambda: _preprocessing("Normalization")(mean=0.5, variance=2.0), VECTOR),
    "discretization": _one(lambda: _preprocessing("Discretization")(bin_boundaries=[-0.5, 0.0, 0.5]), VECTOR),
    "category_encoding": _one(
        lambda: _preprocessing("CategoryEncoding")(num_tokens=7, output_mode="multi_hot"), (5,), "int32"
    ),
    "hashing": _one(lambda: _preprocessing("Hashing")(num_bins=4, salt=[133, 137]), (5,), "int64"),
    "integer_lookup": _one(lambda: _preprocessing("IntegerLookup")(vocabulary=[3, 1, 4]), (5,), "int64"),
    "random_flip": _one(lambda: _preprocessing("RandomFlip")("horizontal"), IMAGE),
    "random_rotation": _one(lambda: _preprocessing("RandomRotation")(0.1), IMAGE),
    "random_zoom": _one(lambda: _preprocessing("RandomZoom")(0.1), IMAGE),
    "random_translation": _one(lambda: _preprocessing("RandomTranslation")(0.1, 0.2), IMAGE),
    "random_crop": _one(lambda: _preprocessing("RandomCrop")(8, 8), IMAGE),
    "random_contrast": _one(lambda: _preprocessing("RandomContrast")(0.1), IMAGE),
}
for _name in (
    *("elu", "exponential", "gelu", "hard_sigmoid", "linear", "relu", "selu", "sigmoid", "softmax", "softplus"),
    *("softsign", "swish", "tanh"),
):
    ONE_LAYER["activation_" + _name] = _one(lambda name=_name: layers.Activation(name))


def attention_causal():
    """Keras 2 up to 2.10 has an argument of the layer, later ones of the call."""
    inputs = [keras.Input(SEQUENCE), keras.Input(SEQUENCE)]
    if "use_causal_mask" in inspect.signature(layers.Attention.call).parameters:
        return keras.Model(inputs, layers.Attention()(inputs, use_causal_mask=True))
    return keras.Model(inputs, layers.Attention(causal=True)(inputs))


def multi_head_attention():
    query, value = keras.Input(SEQUENCE), keras.Input((3, 4))
    return keras.Model([query, value], layers.MultiHeadAttention(2, 3, value_dim=2)(query, value))


def multi_head_attention_key():
    query, value, key = keras.Input(SEQUENCE), keras.Input((3, 4)), keras.Input((3, 5))
    attention = layers.MultiHeadAttention(2, 3, output_shape=6, use_bias=False)
    return keras.Model([query, value, key], attention(query, value, key=key))


# Models


def sequential():
    return keras.Sequential(
        [
            layers.Dense(5, activation="relu", input_shape=VECTOR),
            layers.BatchNormalization(),
            layers.Dropout(0.3),
            layers.Dense(2, activation="softmax"),
        ]
    )


def sequential_with_input():
    return keras.Sequential([keras.Input(IMAGE), layers.Conv2D(3, 3), layers.Flatten(), layers.Dense(2)])


def bilstm():
    inputs = keras.Input((5,), dtype="int32")
    hidden = layers.Embedding(7, 4, mask_zero=True)(inputs)
    hidden = layers.Bidirectional(layers.LSTM(3, return_sequences=True))(hidden)
    hidden = layers.Bidirectional(layers.LSTM(2))(hidden)
    return keras.Model(inputs, layers.Dense(1, activation="sigmoid")(hidden))


def encoder_decoder():
    source, target = keras.Input(SEQUENCE), keras.Input((3, 4))
    _, hidden, cell = layers.LSTM(3, return_state=True)(source)
    decoded = layers.LSTM(3, return_sequences=True)(target, initial_state=[hidden, cell])
    return keras.Model([source, target], layers.Dense(2)(decoded))


def attention():
    inputs = keras.Input((5,), dtype="int32")
    hidden = layers.Embedding(7, 4)(inputs)
    attended = layers.Attention()([hidden, hidden])
    joined = layers.Concatenate()([layers.GlobalAveragePooling1D()(each) for each in (hidden, attended)])
    return keras.Model(inputs, layers.Dense(2)(joined))


def transformer():
    inputs = keras.Input(SEQUENCE)
    attended = layers.MultiHeadAttention(2, 2)(inputs, inputs)
    hidden = layers.LayerNormalization(epsilon=1e-6)(layers.Add()([inputs, attended]))
    expanded = layers.Dense(4)(layers.Dense(8, activation="gelu")(hidden))
    return keras.Model(inputs, layers.LayerNormalization(epsilon=1e-6)(layers.Add()([hidden, expanded])))


def residual():
    inputs = keras.Input(IMAGE)
    hidden = layers.Conv2D(3, 3, padding="same", use_bias=False)(inputs)
    hidden = layers.ReLU(6.0)(layers.BatchNormalization(epsilon=1e-3, momentum=0.99)(hidden))
    hidden = layers.DepthwiseConv2D(3, padding="same", use_bias=False)(hidden)
    hidden = layers.Add()([inputs, layers.BatchNormalization()(hidden)])
    return keras.Model(inputs, layers.Dense(2)(layers.GlobalAveragePooling2D()(hidden)))


def _inner(name="inner"):
    inputs = keras.Input(VECTOR)
    hidden = layers.BatchNormalization()(layers.Dense(4, activation="tanh")(inputs))
    return keras.Model(inputs, layers.Dense(6)(hidden), name=name)


def nested():
    inputs = keras.Input(VECTOR)
    return keras.Model(inputs, layers.Dense(2)(_inner()(layers.Dense(6)(inputs))))


def nested_twice():
    inner, inputs = _inner(), keras.Input(VECTOR)
    return keras.Model(inputs, layers.Dense(2)(inner(inner(inputs))))


def nested_deeply():
    inputs = keras.Input(VECTOR)
    middle = keras.Model(inputs, layers.Dense(6)(_inner("innermost")(inputs)), name="middle")
    outer = keras.Input(VECTOR)
    return keras.Model(outer, layers.Dense(3)(middle(outer)))


def nested_sequential():
    inner = keras.Sequential([layers.Dense(4, input_shape=VECTOR), layers.BatchNormalization(), layers.Dense(6)])
    inputs = keras.Input(VECTOR)
    return keras.Model(inputs, layers.Dense(2)(inner(layers.Dense(6)(inputs))))


def nested_output():
    inputs = keras.Input(VECTOR)
    return keras.Model(inputs, _inner()(layers.Dense(6)(inputs)))


def sequential_of_models():
    return keras.Sequential([_inner("first"), _inner("second"), layers.Dense(2)])


def time_distributed_model():
    inputs = keras.Input((3, *VECTOR))
    return keras.Model(inputs, layers.TimeDistributed(_inner())(inputs))


def shared():
    left, right, layer = keras.Input(VECTOR), keras.Input(VECTOR), layers.Dense(4)
    return keras.Model([left, right], layers.Subtract()([layer(left), layer(right)]))


def several_ends():
    left, right = keras.Input(VECTOR, name="left"), keras.Input((3,), name="right")
    joined = layers.Concatenate()([layers.Dense(4)(left), layers.Dense(4)(right)])
    return keras.Model([left, right], [layers.Dense(1, name="score")(joined), layers.Dense(3, name="kind")(joined)])


def mixed_precision():
    module = keras.mixed_precision
    policy = (module if hasattr(module, "Policy") else module.experimental).Policy("mixed_float16")
    inputs = keras.Input(VECTOR)
    hidden = layers.BatchNormalization(dtype=policy)(layers.Dense(4, activation="relu", dtype=policy)(inputs))
    return keras.Model(inputs, layers.Dense(2, dtype="float32")(hidden))


MODELS = {
    function.__name__: function
    for function in (
        *(
            attention_causal,
            multi_head_attention,
            multi_head_attention_key,
            sequential,
            sequential_with_input,
            bilstm,
            encoder_decoder,
        ),
        *(attention, transformer, residual, nested, nested_twice, nested_deeply, nested_sequential, nested_output),
        *(sequential_of_models, time_distributed_model, shared, several_ends, mixed_precision),
    )
}
# the names of models and of layers must differ
MODELS = {"model_" + name: build for name, build in MODELS.items()}

# Operations on tensors

OPERATIONS = {
    "add": _computed(lambda x, y: x + y, VECTOR, VECTOR),
    "arithmetic": _computed(lambda x, y: (2.0 * x - y) / 3.0 + 1.0, VECTOR, VECTOR),
    "right_hand": _computed(lambda x: 1.0 - x + 1.0 / (4.0 + x), VECTOR),
    "negative_power": _computed(lambda x: -x + x**2, VECTOR),
    "slice": _computed(lambda x: x[:, :4], VECTOR),
    "slice_one": _computed(lambda x: x[:, 1], SEQUENCE),
    "slice_steps": _computed(lambda x: x[:, ::2, ..., -1:], SEQUENCE),
    "slice_new_axis": _computed(lambda x: x[:, None, 1:3], VECTOR),
    "functions_add": _by_tensorflow(lambda x, y: tf.add(tf.multiply(x, 2.0), y), VECTOR, VECTOR),
    "functions_arithmetic": _by_tensorflow(
        lambda x, y: tf.subtract(tf.divide(x, 2.0), tf.maximum(tf.minimum(x, y), 0.1)), VECTOR, VECTOR
    ),
    "reshape": _by_tensorflow(lambda x: tf.reshape(x, (-1, 2, 3)), VECTOR),
    "transpose": _by_tensorflow(lambda x: tf.transpose(x, (0, 2, 1)), SEQUENCE),
    "concat": _by_tensorflow(lambda x, y: tf.concat([x, y], axis=-1), VECTOR, (3,)),
    "stack": _by_tensorflow(lambda x, y: tf.stack([x, y], axis=1), VECTOR, VECTOR),
    "expand_squeeze": _by_tensorflow(lambda x: tf.squeeze(tf.expand_dims(x, 1), axis=1), VECTOR),
    "matmul": _by_tensorflow(lambda x, y: tf.matmul(x, y, transpose_b=True), SEQUENCE, (3, 4)),
    "matmul_operator": _computed(lambda x, y: x @ y, SEQUENCE, (4, 3)),
    "reduce_mean": _by_tensorflow(lambda x: tf.reduce_mean(x, axis=1), SEQUENCE),
    "reduce_sum": _by_tensorflow(lambda x: tf.reduce_sum(x, axis=[1, 2], keepdims=True), SEQUENCE),
    "reduce_max": _by_tensorflow(lambda x: tf.reduce_max(x, axis=-1) - tf.reduce_min(x, axis=-1), SEQUENCE),
    "math": _by_tensorflow(lambda x: tf.sqrt(tf.abs(x)) + tf.exp(x) * tf.square(tf.sin(x)), VECTOR),
    "nn": _by_tensorflow(lambda x: tf.nn.relu(x) + tf.nn.softmax(tf.sigmoid(tf.tanh(x))), VECTOR),
    "cast": _by_tensorflow(lambda x: tf.cast(tf.cast(x, "int32"), "float32"), VECTOR),
    "clip": _by_tensorflow(lambda x: tf.clip_by_value(x, -0.2, 0.3), VECTOR),
    "normalize": _by_tensorflow(lambda x: tf.math.l2_normalize(x, axis=-1), VECTOR),
    "one_hot": _by_tensorflow(lambda x: tf.one_hot(tf.argmax(x, axis=-1), 6), VECTOR),
    "shape": _by_tensorflow(lambda x: tf.reshape(x, (tf.shape(x)[0], -1)), SEQUENCE),
}
OPERATIONS = {"operation_" + name: build for name, build in OPERATIONS.items()}

# Keras's applications, cut after some blocks


def _application(name, last, **options):
    def build():
        module = keras.applications
        whole = getattr(module, name)(weights=None, include_top=False, **options)
        cut = whole.layers[last] if isinstance(last, int) else whole.get_layer(last)
        return keras.Model(whole.input, cut.output)

    return build


APPLICATIONS = {
    "mobilenet": _application("MobileNet", "conv_pw_3_relu", alpha=0.25, input_shape=(32, 32, 3)),
    "mobilenet_v2": _application("MobileNetV2", "block_5_add", alpha=0.35, input_shape=(32, 32, 3)),
    "resnet50": _application("ResNet50", "conv2_block2_out", input_shape=(32, 32, 3)),
    "densenet": _application("DenseNet121", "pool2_pool", input_shape=(32, 32, 3)),
    "xception": _application("Xception", "block2_pool", input_shape=(71, 71, 3)),
    "mobilenet_v3": _application("MobileNetV3Small", 60, alpha=0.75, input_shape=(32, 32, 3)),
    "efficientnet": _application("EfficientNetB0", "block2b_add", input_shape=(32, 32, 3)),
}
APPLICATIONS = {"application_" + name: build for name, build in APPLICATIONS.items()}

KINDS = {**ONE_LAYER, **MODELS, **OPERATIONS, **APPLICATIONS}


# Weights and inputs


def weight(index, shape, is_positive):
    """Return the value of a model's variable: different in every element, and small enough for many layers."""
    size = int(np.prod(shape, dtype=int))
    bound = min(0.5, 1.5 / np.sqrt(max(1, int(np.prod(shape[:-1], dtype=int)))))
    values = np.random.RandomState(index + 1).uniform(-bound, bound, size)
    return (0.5 + np.abs(values) if is_positive else values).reshape(shape).astype("float32")


def inputs_of(specs):
    """Return inputs for pairs of shape and dtype; shapes lack the batch."""
    made = []
    for index, (shape, dtype) in enumerate(specs):
        values = np.random.RandomState(100 + index).uniform(-1.0, 1.0, (2, *shape))
        made.append((np.abs(values) * 5).astype(dtype) if "int" in dtype else values.astype(dtype))
    return made
