"""keras-hub on Keras 3: a tiny backbone continues to the bit; and optimizers inside a MultiOptimizer."""

import keras
import numpy as np
import pytest

import scalekeeper
from scalekeeper.testing import check_inner_optimizer

keras_hub = pytest.importorskip("keras_hub")
pytestmark = pytest.mark.filterwarnings("ignore")


def classifier():
    """Return a classifier with a BERT backbone that is built from arguments, with the same weights each time."""
    keras.utils.set_random_seed(3)
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=20,
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=8,
        dropout=0.0,
        max_sequence_length=6,
    )
    outputs = keras.layers.Dense(1, name="head")(backbone.output["pooled_output"])
    model = keras.Model(backbone.input, outputs)
    inner = keras.optimizers.AdamW(0.01, weight_decay=0.25, use_ema=True, ema_momentum=0.5)
    loss_scale = {"name": "dynamic", "initial_loss_scale": 2.0**15, "increment_period": 3}
    model.compile(scalekeeper.LossScaleOptimizer(inner, loss_scale), "mse", jit_compile=False)
    return model


def fit(model):
    tokens = np.random.RandomState(0).randint(0, 20, [8, 6])
    inputs = {"token_ids": tokens, "segment_ids": np.zeros_like(tokens), "padding_mask": np.ones_like(tokens)}
    model.fit(inputs, np.arange(8.0).reshape(8, 1), batch_size=4, epochs=2, shuffle=False, verbose=0)


def weights(model):
    return [each.tolist() for each in model.get_weights()]


@pytest.mark.parametrize("suffix", [".keras", ".npz"])
def test_backbone_continues_to_the_bit(suffix, tmp_path):
    """After fit, save and load, fit gives the weights of an uninterrupted training."""
    model, path = classifier(), tmp_path / f"model{suffix}"
    fit(model)
    before = weights(model)
    if suffix == ".npz":
        scalekeeper.save_state(model.optimizer, path)
        other = classifier()
        other.set_weights(model.get_weights())
        assert scalekeeper.restore(other, path).complete
    else:
        scalekeeper.save_model(model, path)
        other = scalekeeper.load_model(path)
    assert weights(other) == before
    for each in (model, other):
        each.jit_compile = False
        fit(each)
    assert weights(other) == weights(model) != before
    assert other.optimizer.loss_scale.state() == model.optimizer.loss_scale.state()


def test_adam_w():
    """Every check passes, with averages and accumulated gradients."""
    make = lambda: keras.optimizers.AdamW(0.125, weight_decay=0.25, use_ema=True, ema_momentum=0.5)  # noqa: E731
    report = check_inner_optimizer(make)
    assert [each.check for each in report.not_run] == ["one_exchange", "state_in_saved_model"]
    assert report.refused == []


def test_multi_optimizer():
    """Outside, Keras refuses a LossScaleOptimizer; inside, a MultiOptimizer trains as without a loss scale."""
    steps = ["new_optimizers", "equal_training", "sparse_gradients", "skipped_steps", "iterations", "equal_in_fit"]

    def make():
        first, others = keras.optimizers.Adam(0.125), keras.optimizers.SGD(0.25, momentum=0.5)
        return keras.optimizers.MultiOptimizer(lambda variable: first if "first" in variable.path else others)

    from scalekeeper.testing import INNER_OPTIMIZER_CHECKS

    left_out = [check.name for check in INNER_OPTIMIZER_CHECKS if check.name not in steps]
    report = check_inner_optimizer(make, leave_out=left_out)
    assert [each.check for each in report.passed] == steps
