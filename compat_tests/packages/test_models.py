"""tf-models-official: the optimizers of its ``optimization`` package keep the contract of inner optimizers."""

import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper.testing import check_inner_optimizer

optimization = pytest.importorskip("official.modeling.optimization")
lamb, lars, legacy_adamw = optimization.lamb, optimization.lars, optimization.legacy_adamw
pytestmark = pytest.mark.filterwarnings("ignore")  # of tensorflow-addons, which it imports
KERAS = getattr(tf.keras.optimizers, "legacy", tf.keras.optimizers)  # those that the package derives from
SCHEDULE = {"type": "polynomial", "polynomial": {"initial_learning_rate": 0.125, "decay_steps": 40}}
WARMUP = {"type": "linear", "linear": {"warmup_steps": 3, "warmup_learning_rate": 0.0}}


def made_by_factory(name, **arguments):
    """Return an optimizer as the trainings of the package make it, with a schedule and a warm-up."""
    optimizer = {"type": name, name: arguments}
    config = {"optimizer": optimizer, "learning_rate": SCHEDULE, "warmup": WARMUP}
    factory = optimization.OptimizerFactory(optimization.OptimizationConfig(config))
    return factory.build_optimizer(factory.build_learning_rate())


def averaging(model):
    optimizer = optimization.ExponentialMovingAverage(KERAS.SGD(0.25, momentum=0.5), average_decay=0.5)
    optimizer.shadow_copy(model)
    return optimizer


def refused_checks(make_optimizer):
    return [each.check for each in check_inner_optimizer(make_optimizer).refused]


@pytest.mark.parametrize(
    "make",
    [
        lambda: lamb.LAMB(0.125, weight_decay_rate=0.25),
        lambda: lars.LARS(0.125, momentum=0.5),
        lambda: legacy_adamw.AdamWeightDecay(0.125, weight_decay_rate=0.25),
    ],
    ids=["LAMB", "LARS", "AdamWeightDecay"],
)
def test_contract(make):
    """Every check passes."""
    assert refused_checks(make) == []


def test_factory():
    """Every check passes, copies too; files that name the schedule are refused, as Keras does not know its class."""
    make = lambda: made_by_factory("adamw", weight_decay_rate=0.25)  # noqa: E731
    assert refused_checks(make) == ["from_config", "state_in_h5", "state_in_keras", "state_in_saved_model"]


def test_moving_average():
    """Its configuration holds a tensor, which does not come back from JSON; all else passes."""
    with pytest.raises(scalekeeper.BrokenContractError) as caught:
        check_inner_optimizer(averaging)
    assert [name for name, _ in caught.value.failures] == ["from_config", "state_in_h5", "state_in_keras"]
