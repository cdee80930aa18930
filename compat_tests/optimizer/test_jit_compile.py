"""`compile(jit_compile=True)`: a training step that XLA compiles scales once and skips once, as any other."""

import inspect
import re

import numpy as np
import pytest
import tensorflow as tf

from scalekeeper.optimizer import LossScaleOptimizer
from scalekeeper_test_support.installed_keras import compiled, number, upstream

if "jit_compile" not in inspect.signature(tf.keras.Model.compile).parameters:
    pytest.skip("this TensorFlow's compile has no jit_compile", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("mixed_float16")


def fitted_rows(optimizer, rows, epochs=1):
    """Train an embedding of four rows of one number, all 1; the loss is the mean of the rows that the input names."""
    layers = [tf.keras.layers.Embedding(4, 1, embeddings_initializer="ones"), tf.keras.layers.Activation("linear")]
    model = tf.keras.Sequential(layers)
    model.compile(optimizer, loss=lambda wanted, output: tf.cast(output, tf.float32), jit_compile=True)
    model.fit(np.array([rows], np.int32), np.zeros((1, 2, 1), np.float32), epochs=epochs, verbose=0)
    return model.get_weights()[0].ravel().tolist()


@pytest.mark.parametrize("loss_scale", ["dynamic", 2.0**15], ids=["dynamic", "fixed"])
@pytest.mark.parametrize("gradient", [2.0**-29, 1.0], ids=["vanishing", "largest"])
def test_fit_applies_exactly_the_unscaled_gradient(one_weight, optimizers, loss_scale, gradient):
    """A gradient that float16 carries only when scaled once moves the weight by learning rate × gradient, exactly."""
    optimizer = LossScaleOptimizer(optimizers.SGD(0.25 / gradient), loss_scale)
    trained = one_weight().compile(optimizer, gradient, jit_compile=True)
    trained.fit(inputs=[1, 1])
    assert trained.weight == 0.5
    assert trained.model.optimizer is optimizer
    assert number(optimizer.iterations) == 2


def overflows_in_float16(one_weight, optimizers):
    """Return whether Keras's own class sees a gradient of 2**17 as infinite; XLA of 2.16 computes it in float32."""
    trained = one_weight().compile(upstream(optimizers.SGD(0.25)), 1.0, jit_compile=True)
    trained.fit(inputs=[4])
    return trained.weight == 1.0


@pytest.mark.parametrize("bad", [4.0, float("inf"), float("nan")])
def test_an_overflow_skips_one_step(one_weight, optimizers, bad):
    """The bad batch changes no weight and halves the scale; the batches around it train."""
    optimizer = LossScaleOptimizer(optimizers.SGD(0.25), "dynamic", skipped_steps="hold")
    trained = one_weight().compile(optimizer, 1.0, jit_compile=True)
    trained.fit(inputs=[1, bad, 1, 1])
    if np.isfinite(bad) and not overflows_in_float16(one_weight, optimizers):
        assert trained.weight == 1 - 0.25 * (1 + 4 + 1 + 1)
        assert optimizer.loss_scale.state() == {"current_loss_scale": 2.0**15, "good_steps": 4}
        return
    assert trained.weight == 0.25
    assert optimizer.loss_scale.state() == {"current_loss_scale": 2.0**14, "good_steps": 2}
    assert number(optimizer.iterations) == 3


def test_an_embedding_adds_up_a_row_that_was_read_twice(optimizers):
    """Two sparse gradients of one row count as their sum."""
    optimizer = LossScaleOptimizer(optimizers.SGD(0.5), "dynamic")
    assert fitted_rows(optimizer, [1, 1], epochs=2) == [1.0, 0.0, 1.0, 1.0]


def test_an_embedding_trains_with_adam(optimizers):
    """Adam's first step is the learning rate, whatever the gradient's size, for the rows that were read."""
    optimizer = LossScaleOptimizer(optimizers.Adam(0.25), "dynamic")
    assert fitted_rows(optimizer, [1, 3]) == pytest.approx([1.0, 0.75, 1.0, 0.75], abs=1e-5)


def test_an_overflow_in_a_sparse_gradient_is_skipped(one_weight, optimizers):
    """A scale that makes the embedding's gradient infinite is halved until the step can be applied."""
    if not overflows_in_float16(one_weight, optimizers):
        pytest.skip("XLA of this TensorFlow computes float16 gradients in float32")
    # a row's gradient is half of the loss: 2**17 / 2 is infinite in float16, and 2**16 / 2 is not
    policy = {"name": "dynamic", "initial_loss_scale": 2.0**17}
    optimizer = LossScaleOptimizer(optimizers.SGD(0.5), policy)
    assert fitted_rows(optimizer, [1, 2], epochs=2) == [1.0, 0.75, 0.75, 1.0]
    assert optimizer.loss_scale.state()["current_loss_scale"] == 2.0**16


def hlo_of_step(optimizer, stage="optimized_hlo"):
    """Return the HLO of a step with two gradients."""
    variables = [tf.Variable(tf.ones((300, 300))) for _ in range(2)]  # a shape that nothing else has
    grads = [tf.fill((300, 300), 2.0)] * 2
    optimizer.apply_gradients(zip(grads, variables))

    def step(*grads):
        given = optimizer.get_unscaled_gradients(grads) if isinstance(optimizer, LossScaleOptimizer) else grads
        optimizer.apply_gradients(zip(given, variables))
        return tf.constant(0)

    return compiled(step).experimental_get_compiler_ir(*grads)(stage=stage)


def reads_of_gradients(hlo):
    """Return how many operations of a compiled step read each gradient."""
    lines = hlo[hlo.index("\nENTRY ") :].splitlines()[2:]
    found = [re.match(r"\s*(\S+) = f32\[300,300\]\S* parameter\([01]\)", line) for line in lines]
    names = [each.group(1) for each in found if each]
    return [sum(bool(re.search(re.escape(name) + r"[,)]", line)) for line in lines) for name in names]


needs_hlo = pytest.mark.skipif(not hasattr(tf.function(lambda: None), "experimental_get_compiler_ir"), reason="no HLO")


@needs_hlo
def test_passes_over_the_gradients():
    """A step that XLA has compiled has no float64, and reads gradients as often as with TensorFlow's class.

    That is once more than with the bare optimizer, and twice where Keras 2.15 writes two products of a gradient.
    """
    own = reads_of_gradients(hlo_of_step(upstream(tf.keras.optimizers.SGD(0.5))))
    hlo = hlo_of_step(LossScaleOptimizer(tf.keras.optimizers.SGD(0.5), "dynamic"))
    assert (len(own), reads_of_gradients(hlo), "f64[" in hlo) == (2, own, False)


@needs_hlo
@pytest.mark.slow
def test_products_of_the_gradients():
    """Before it is optimized, a step has two products of each gradient: one that is dropped, and one that is applied.

    None is there to check it, because XLA for GPUs would not fuse that one with its reduction.
    """
    sgd = tf.keras.optimizers.SGD
    bare, ours = (
        len(re.findall(r"= f32\[300,300\]\S* multiply\(", hlo_of_step(optimizer, "hlo")))
        for optimizer in (sgd(0.5), LossScaleOptimizer(sgd(0.5), "dynamic"))
    )
    assert ours - bare == 2 * 2
