"""Hugging Face transformers: its optimizers keep the contract, and a tiny BERT continues to the bit."""

import re

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper.testing import check_inner_optimizer
from scalekeeper_test_support import example_programs, script_runner
from scalekeeper_test_support.repository import repository_path

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")  # its support of TensorFlow has reached its end, and it says so
FILES = ["state_in_h5", "state_in_keras", "state_in_saved_model"]


def failed_checks(make_optimizer, **options):
    try:
        check_inner_optimizer(make_optimizer, **options)
    except scalekeeper.BrokenContractError as error:
        return [name for name, _ in error.failures]
    return []


def test_adam_with_weight_decay():
    """Every check passes."""
    assert failed_checks(lambda: transformers.AdamWeightDecay(0.125, weight_decay_rate=0.25)) == []


def test_excluded_variables_are_not_in_the_configuration():
    """get_config leaves out exclude_from_weight_decay: a model in code is restored, one from a file decays biases."""
    arguments = {"weight_decay_rate": 0.25, "exclude_from_weight_decay": ["bias"]}
    assert failed_checks(lambda: transformers.AdamWeightDecay(0.125, **arguments)) == ["from_config", *FILES]


def test_create_optimizer():
    """Training, skipped steps, copies and restored states pass with the WarmUp schedule."""
    left_out = ["from_config", *FILES]  # see above
    make = lambda: transformers.create_optimizer(0.25, 40, 4, weight_decay_rate=0.25)[0]  # noqa: E731
    assert failed_checks(make, leave_out=left_out) == []


def bert():
    """Return a BERT of random weights, which are the same each time, and the optimizer of its tutorials."""
    tf.keras.utils.set_random_seed(3)
    config = transformers.BertConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=8,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = transformers.TFBertForSequenceClassification(config)
    model(TOKENS)
    inner, _ = transformers.create_optimizer(0.01, 40, 2, weight_decay_rate=0.25)
    loss_scale = {"name": "dynamic", "initial_loss_scale": 2.0**15, "increment_period": 3}
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(scalekeeper.LossScaleOptimizer(inner, loss_scale), loss)
    return model


TOKENS = np.random.RandomState(0).randint(0, 20, [8, 6])
LABELS = np.arange(8) % 2


def fit(model):
    model.fit(TOKENS, LABELS, batch_size=4, epochs=2, shuffle=False, verbose=0)


def weights(model):
    return [each.tolist() for each in model.get_weights()]


@pytest.mark.parametrize("file_format", ["checkpoint", "npz"])
def test_bert_continues_to_the_bit(file_format, tmp_path):
    """After fit, save and restore in a new model, fit gives the weights of an uninterrupted training."""
    model = bert()
    fit(model)
    before, state = weights(model), model.optimizer.loss_scale.state()
    other = bert()
    if file_format == "checkpoint":
        path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(str(tmp_path / "ckpt"))
        assert scalekeeper.restore(other, path).complete
    else:
        scalekeeper.save_state(model.optimizer, tmp_path / "state.npz")
        other.set_weights(model.get_weights())
        assert scalekeeper.restore(other, tmp_path / "state.npz").complete
    assert weights(other) == before
    assert other.optimizer.loss_scale.state() == state
    for each in (model, other):
        fit(each)
    assert weights(other) == weights(model) != before
    assert other.optimizer.loss_scale.state() == model.optimizer.loss_scale.state()


def test_the_example_program(monkeypatch):
    """examples/hugging_face.py prints what the index shows; it learns, and the loss scale falls with skipped steps."""
    monkeypatch.delenv("TF_USE_LEGACY_KERAS", raising=False)  # which transformers sets for the process that imports it
    *_, output = example_programs.table("examples/README.md")["hugging_face.py"]
    printed = script_runner.run(repository_path("examples", "hugging_face.py")).rstrip("\n")
    assert re.fullmatch(example_programs.pattern(output), printed), printed
    first, last, accuracy, skipped, steps, *scales = map(float, re.findall(r"\b\d+(?:\.\d+)?\b", printed))
    assert last < first / 1.5
    assert accuracy > 0.9
    assert (steps, len(scales)) == (60, 3)
    assert 1 <= skipped < 30
    assert 2.0**24 / 2**skipped <= min(scales) < 2.0**24
