"""A policy that breaks its contract in an optimizer gets the error that a simulation raises."""

import pytest
import tensorflow as tf

from scalekeeper import LossScale, LossScaleOptimizer, PolicyContractError
from scalekeeper.optimizer._step import graph_state
from scalekeeper_test_support.broken_policies import BROKEN, make


def take_a_step(name, is_traced):
    optimizer, variable = LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), make(name)()), tf.Variable([1.0])

    def step(gradient):
        scaled = optimizer.get_scaled_loss(gradient)
        optimizer.apply_gradients([(optimizer.get_unscaled_gradients([scaled])[0], variable)])

    (tf.function(step) if is_traced else step)(tf.ones([1]))


@pytest.mark.parametrize("name", sorted(BROKEN))
@pytest.mark.parametrize("is_traced", [False, True], ids=["eager", "traced"])
def test_a_step_names_the_policy_the_method_and_the_contract(name, is_traced):
    """Eager and traced steps raise one class, whose message ends with the explanation."""
    broken = BROKEN[name]
    if not is_traced and not broken.in_eager_mode:
        take_a_step(name, is_traced)
        return
    with pytest.raises(PolicyContractError) as caught:
        take_a_step(name, is_traced)
    assert f"{name}.{broken.method} " in str(caught.value)
    for part in broken.message:
        assert part in str(caught.value)


def test_a_policy_in_tensorflows_style_returns_two_values():
    """A forgotten ``return`` of ``update`` is named, too."""

    class Forgetful(LossScale):
        def __call__(self):
            return tf.constant(8.0)

        def update(self, grads):
            pass

    optimizer, variable = LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), Forgetful()), tf.Variable([1.0])
    with pytest.raises(PolicyContractError, match="Forgetful.update returned None: .*update_op, should_apply"):
        optimizer.apply_gradients([(tf.ones([1]), variable)])


def test_an_eager_optimizer_checks_the_contract_once(monkeypatch):
    """The checks of later steps cost nothing: they are left to the errors that TensorFlow raises."""
    calls, checks = [], ("require_scale", "require_next_state", "require_decision")
    for check in checks:
        monkeypatch.setattr(graph_state, check, lambda *arguments, check=check: calls.append(check))
    optimizer, variable = LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), make("Sound")()), tf.Variable([1.0])
    for _ in range(3):
        gradient = optimizer.get_scaled_loss(tf.ones([1]))
        optimizer.apply_gradients([(optimizer.get_unscaled_gradients([gradient])[0], variable)])
    assert sorted(calls) == sorted(checks)
