"""tensorflow-addons: its optimizers keep the contract of inner optimizers, and its callback works with them."""

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper.testing import check_inner_optimizer
from scalekeeper.testing._inner_optimizer import new_model

tfa = pytest.importorskip("tensorflow_addons")
HAS_NEW_OPTIMIZERS = hasattr(tf.keras.optimizers.SGD, "update_step")
KERAS = tf.keras.optimizers.legacy if HAS_NEW_OPTIMIZERS else tf.keras.optimizers  # those that the package wraps
pytestmark = pytest.mark.filterwarnings("ignore")  # the package has reached its end, and says so


def multi(model):
    layers = {layer.name: layer for layer in model.layers}
    pairs = [
        (KERAS.Adam(0.125), layers["first"]),
        (KERAS.SGD(0.25, momentum=0.5), [layers["second"], layers["third"]]),
    ]
    return tfa.optimizers.MultiOptimizer(pairs)


OPTIMIZERS = {
    "LAMB": lambda: tfa.optimizers.LAMB(0.125, weight_decay_rate=0.25),
    "AdamW": lambda: tfa.optimizers.AdamW(0.25, 0.125),
    "LazyAdam": lambda: tfa.optimizers.LazyAdam(0.125),
    "NovoGrad": lambda: tfa.optimizers.NovoGrad(0.125, weight_decay=0.25),
    "Lookahead": lambda: tfa.optimizers.Lookahead(KERAS.Adam(0.125), sync_period=3),
    "SWA": lambda: tfa.optimizers.SWA(KERAS.SGD(0.25, momentum=0.5), start_averaging=2, average_period=2),
    "MovingAverage": lambda: tfa.optimizers.MovingAverage(KERAS.Adam(0.125), average_decay=0.5),
    "MultiOptimizer": multi,
}
# its configuration holds optimizers that have taken steps, and TensorFlow tracks none of them
REFUSED = {"MultiOptimizer": ["deep_copy", "pickled", "state_in_checkpoint"]}
if HAS_NEW_OPTIMIZERS:  # from_config of the package makes the optimizer inside of another class than the original's
    REFUSED.update({name: ["deep_copy", "pickled"] for name in ("Lookahead", "SWA", "MovingAverage")})


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_contract(name):
    """Every check passes, apart from those that an error refuses by name."""
    report = check_inner_optimizer(OPTIMIZERS[name])
    assert [each.check for each in report.refused] == REFUSED.get(name, []), report
    assert [each.check for each in report.not_run] == ["one_exchange"], report


@pytest.mark.parametrize("update_weights", [True, False])
@pytest.mark.parametrize("name", ["SWA", "MovingAverage"])
def test_average_model_checkpoint(name, update_weights, tmp_path):
    """The callback finds the averages behind the loss scale, and saves those of the bare optimizer."""
    inputs = np.random.RandomState(0).uniform(-1, 1, [16, 3]).astype("float32")
    found = []
    for is_wrapped in (False, True):
        model = new_model()
        optimizer = OPTIMIZERS[name]()
        model.compile(scalekeeper.LossScaleOptimizer(optimizer, "dynamic") if is_wrapped else optimizer, "mse")
        path = str(tmp_path / f"{is_wrapped}.h5")
        callback = tfa.callbacks.AverageModelCheckpoint(update_weights, path, save_weights_only=True)
        model.fit(inputs, inputs, batch_size=4, epochs=2, shuffle=False, verbose=0, callbacks=[callback])
        kept = [each.tolist() for each in model.get_weights()]
        model.load_weights(path)
        found.append((kept, [each.tolist() for each in model.get_weights()]))
    assert found[0] == found[1]
    assert (found[1][0] == found[1][1]) is update_weights
