"""Files of ``scalekeeper.ModelCheckpoint`` and of Keras's own ``model.save`` keep the whole training state."""

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper_test_support.installed_keras import IS_KERAS_3, MODEL_SUFFIXES, OPTIMIZERS
from scalekeeper_test_support.small_model import build

DATA = np.random.RandomState(3).rand(8, 3).astype("float32")
POLICIES = {
    "dynamic": {"name": "dynamic", "initial_loss_scale": 1024.0, "increment_period": 3},
    "multiplier": {"name": "dynamic", "initial_loss_scale": 1024.0, "increment_period": 3, "multiplier": 4.0},
    "log_max": {"name": "log_max"},
}
SUFFIXES = [*(each for each in MODEL_SUFFIXES if each != ".h5"), ".h5"]  # Keras 3 writes no .keras file well after H5
# Keras 3's own callback takes no H5 paths for whole models; weights alone are H5, or a checkpoint in Keras 2
CALLBACK_SUFFIXES = [".keras"] if IS_KERAS_3 else SUFFIXES
WEIGHTS = [".weights.h5"] if IS_KERAS_3 else [".weights.h5", ".h5", ".ckpt"]


def compiled(kind="default", policy="dynamic"):
    model = build()
    optimizer = OPTIMIZERS[kind].Adam(0.01)
    model.compile(scalekeeper.LossScaleOptimizer(optimizer, POLICIES[policy]), "mse")
    return model


def fit(model, callbacks=(), epochs=1):
    return model.fit(DATA, DATA[:, :1], batch_size=2, epochs=epochs, verbose=0, shuffle=False, callbacks=callbacks)


def state_of(model):
    state = model.optimizer.state_dict()
    slots = [value.tolist() for each in state["slots"].values() for value in each.values()]
    return (
        state["iterations"],
        state["loss_scale"]["state"],
        slots,
        [weight.numpy().tolist() for weight in model.weights],
    )


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
@pytest.mark.parametrize("suffix", CALLBACK_SUFFIXES)
def test_a_model_checkpoint_is_complete(kind, suffix, tmp_path):
    """Every epoch has its file, and training continues from it."""
    model, seen = compiled(kind), []
    keep = tf.keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(state_of(model)))
    fit(model, [keep, scalekeeper.ModelCheckpoint(str(tmp_path / ("model-{epoch}" + suffix)))], epochs=2)
    assert seen[0] != seen[1]
    for epoch in (1, 2):
        loaded = scalekeeper.load_model(str(tmp_path / f"model-{epoch}{suffix}"))
        assert state_of(loaded) == seen[epoch - 1]
    fit(loaded)
    fit(model)
    assert state_of(loaded)[:2] == state_of(model)[:2]


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
@pytest.mark.parametrize("suffix", WEIGHTS)
def test_a_checkpoint_of_weights_has_the_optimizer(kind, suffix, tmp_path):
    """``restore`` gets iterations, slots and loss scale from a file of weights too."""
    path = str(tmp_path / ("weights" + suffix))
    model = compiled(kind)
    fit(model, [scalekeeper.ModelCheckpoint(path, save_weights_only=True)])
    other = compiled(kind)
    report = scalekeeper.restore(other, path)
    assert state_of(other) == state_of(model)
    assert report.missing == []
    plain = build()
    plain.load_weights(path)  # Keras reads its part
    assert [weight.numpy().tolist() for weight in plain.weights] == state_of(model)[3]


def test_the_best_model_is_kept(tmp_path):
    """The other arguments are those of Keras's callback."""
    path = str(tmp_path / "best.keras")
    checkpoint = scalekeeper.ModelCheckpoint(path, monitor="loss", save_best_only=True, mode="max", probe=False)
    model = compiled()
    fit(model, [checkpoint], epochs=3)
    assert int(scalekeeper.load_model(path).optimizer.iterations.numpy()) == 4
    assert int(model.optimizer.iterations.numpy()) == 12
    assert isinstance(checkpoint, tf.keras.callbacks.ModelCheckpoint)
    assert checkpoint.model is model


@pytest.mark.skipif(IS_KERAS_3, reason="Keras 3 has no such argument")
def test_options_of_tensorflow_are_refused_for_whole_models(tmp_path):
    """They would have no effect; up to 2.2 Keras itself has no such argument."""
    options = getattr(tf.saved_model, "SaveOptions", lambda: "options")()
    with pytest.raises((scalekeeper.ArgumentError, TypeError)):
        scalekeeper.ModelCheckpoint(str(tmp_path / "model"), options=options)


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
@pytest.mark.parametrize("policy", POLICIES)
def test_files_of_keras_keep_the_state(kind, policy, tmp_path):
    """``model.save`` without scalekeeper leaves out only the slots of legacy optimizers in .keras files, and warns."""
    model = compiled(kind, policy)
    fit(model)
    expected = state_of(model)
    assert "scalekeeper" not in str(model.optimizer.get_config())  # a configuration has no state
    for suffix in SUFFIXES:
        path = str(tmp_path / ("model" + suffix))
        if suffix == ".keras" and kind == "legacy":
            with pytest.warns(UserWarning, match="legacy optimizer"):
                model.save(path)
            assert scalekeeper.serialization.formats.read(path).loss_scale_state == expected[1]
            continue
        model.save(path)
        assert state_of(scalekeeper.load_model(path)) == expected, suffix


@pytest.mark.skipif(not IS_KERAS_3, reason="only Keras 3 forgets the optimizer of a model that it has saved as H5")
def test_a_file_without_the_optimizers_configuration_warns(tmp_path):
    """Keras itself would return a model with another optimizer."""
    path = str(tmp_path / "model.keras")
    model = compiled()
    fit(model)
    model.save(str(tmp_path / "model.h5"))
    model.save(path)
    with pytest.warns(scalekeeper.IncompleteRestoreWarning, match="not its configuration"):
        loaded = scalekeeper.load_model(path)
    assert getattr(loaded, "optimizer", None) is None


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
def test_the_callback_of_keras_keeps_the_state(kind, tmp_path):
    """Its files are those of ``model.save``."""
    path = str(tmp_path / ("model.keras" if IS_KERAS_3 else "model.h5"))
    model = compiled(kind)
    fit(model, [tf.keras.callbacks.ModelCheckpoint(path)])
    assert state_of(scalekeeper.load_model(path)) == state_of(model)
