"""The state of every optimizer of Keras with the options that give it more state, in files of scalekeeper and Keras."""

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper import LossScaleOptimizer
from scalekeeper_test_support.installed_keras import (
    IS_KERAS_3,
    LISTS_VARIABLES,
    MODEL_SUFFIXES,
    OPTIMIZERS,
    WRITES_KERAS_FILES,
    inner_of,
    upstream,
)
from scalekeeper_test_support.unique_numbers import dense_model, fill, numbers_of, train

pytestmark = [
    pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of NumPy, about Keras 3's own variables
]
HAS_EMA = "legacy" in OPTIMIZERS or IS_KERAS_3
SUFFIXES = sorted({*MODEL_SUFFIXES, ".h5"})
OPTIONS = {
    "SGD": [{}, *([{"use_ema": True}] if HAS_EMA else [])],
    "Adam": [{"amsgrad": True}, *([{"use_ema": True}] if HAS_EMA else [])],
    "RMSprop": [{"momentum": 0.5, "centered": True}],
    "Nadam": [{}],
    "Ftrl": [{}],
    "Adafactor": [{}],
    "Muon": [{}],
}
if IS_KERAS_3:
    OPTIONS["Adam"] += [{"gradient_accumulation_steps": 2}, {"gradient_accumulation_steps": 3, "use_ema": True}]
CASES = [
    (kind, name, each)
    for kind, module in sorted(OPTIMIZERS.items())
    for name, options in OPTIONS.items()
    if hasattr(module, name)
    for each in options
    if not (kind == "legacy" and "use_ema" in each)
]


def compiled(optimizer):
    model = dense_model()
    model.compile(optimizer, "mse")
    return model


@pytest.mark.parametrize(("kind", "name", "options"), CASES)
def test_files_of_scalekeeper(kind, name, options, tmp_path):
    """All slots, however many and of whatever shape, come back from every format, and from a state_dict."""

    def new():
        return compiled(LossScaleOptimizer(getattr(OPTIMIZERS[kind], name)(0.25, **options), "dynamic"))

    model = new()
    train(model)
    fill(model)
    expected, state = numbers_of(model), model.optimizer.state_dict()
    for suffix in SUFFIXES:
        if IS_KERAS_3 and name == "Adafactor" and suffix == ".h5":
            continue  # Keras 3 gives several of its variables one name, and cannot save them
        path = tmp_path / f"m{suffix}"
        scalekeeper.save_model(model, path)
        assert numbers_of(scalekeeper.load_model(path)) == expected, suffix
        other = new()
        assert scalekeeper.restore(other, path).complete, suffix
        assert numbers_of(other) == expected, suffix
    other = new()
    other.optimizer.load_state_dict(state, other.trainable_variables)
    assert numbers_of(other)["slots"] == expected["slots"]


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
def test_the_learning_rate_in_files_of_keras(kind, tmp_path):
    """The last learning rate, which a callback has set, is restored from the files of TensorFlow's own class."""
    model = compiled(upstream(OPTIMIZERS[kind].Adam(0.5), "dynamic"))
    train(model)
    inner_of(model.optimizer).learning_rate = 0.125
    for suffix in SUFFIXES:
        is_unwritable = kind == "default" and suffix == ".h5" and not LISTS_VARIABLES
        if is_unwritable or (IS_KERAS_3 and suffix == ".h5") or (kind == "legacy" and suffix == ".keras"):
            continue  # which Keras cannot write or load, or in which it writes no optimizer
        path = tmp_path / f"m{suffix}"
        model.save(str(path))
        other = compiled(LossScaleOptimizer(OPTIMIZERS[kind].Adam(0.5), "dynamic"))
        scalekeeper.restore(other, path, partial=True)
        assert float(inner_of(other.optimizer).learning_rate.numpy()) == 0.125, suffix


class Warmup(tf.keras.optimizers.schedules.LearningRateSchedule):
    """A schedule that holds another one, and returns it as it is in its configuration."""

    def __init__(self, steps, after):
        super().__init__()
        self.steps, self.after = steps, after

    def __call__(self, step):
        return self.after(step) * 0.5

    def get_config(self):
        return {"steps": self.steps, "after": self.after}


@pytest.mark.parametrize("wrap", [lambda inner: inner, lambda inner: LossScaleOptimizer(inner, "dynamic")])
def test_a_schedule_that_holds_a_schedule(wrap, tmp_path):
    """The loaded optimizer has the schedule inside the schedule, and trains with it."""
    decay = tf.keras.optimizers.schedules.PolynomialDecay(0.5, 10, 0.25)
    model = compiled(wrap(tf.keras.optimizers.SGD(Warmup(3, decay))))
    data = np.ones((2, 3), "float32")
    model.fit(data, data, verbose=0)
    for suffix in SUFFIXES:
        scalekeeper.save_model(model, tmp_path / f"m{suffix}")
        loaded = scalekeeper.load_model(tmp_path / f"m{suffix}", custom_objects={"Warmup": Warmup})
        loaded.fit(data, data, verbose=0)
        assert inner_of(loaded.optimizer).get_config()["learning_rate"]["class_name"] == "Warmup"
        assert int(inner_of(loaded.optimizer).iterations.numpy()) == 2


@pytest.mark.skipif("legacy" not in OPTIMIZERS or not WRITES_KERAS_FILES, reason="a fault of Keras 2.13 to 2.15")
def test_load_weights_of_a_model_without_steps(tmp_path):
    """The weights are loaded, and a warning names the function that loads the optimizer's state, too."""
    model = compiled(LossScaleOptimizer(OPTIMIZERS["default"].Adam(0.25), "dynamic"))
    train(model)
    fill(model)
    model.save_weights(str(tmp_path / "w.weights.h5"))
    other = compiled(LossScaleOptimizer(OPTIMIZERS["default"].Adam(0.25), "dynamic"))
    with pytest.warns(UserWarning, match=r"scalekeeper\.restore"):
        other.load_weights(str(tmp_path / "w.weights.h5"))
    assert numbers_of(other)["weights"] == numbers_of(model)["weights"]
    with pytest.warns(scalekeeper.AssumedOrderWarning, match="a, b, c"):
        scalekeeper.restore(other, tmp_path / "w.weights.h5", partial=True)
    assert numbers_of(other) == numbers_of(model)
