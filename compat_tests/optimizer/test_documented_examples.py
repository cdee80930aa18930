"""Every documented member, by the documentation's own examples and errors."""

import collections
import copy
import gc
import json

import numpy as np
import pytest
import tensorflow as tf

from scalekeeper.optimizer import LossScaleOptimizer
from scalekeeper.optimizer._step.graph_state import hold_in_graph
from scalekeeper_test_support.installed_keras import (
    HAS_LOSS_SCALE_OBJECTS,
    HAS_NEW_OPTIMIZERS,
    IS_KERAS_3,
    LISTS_VARIABLES,
    UPSTREAM,
    apply_unscaled,
    number,
    upstream,
    variables_of,
)


def wrapped(optimizer=None, loss_scale="dynamic", **options):
    return LossScaleOptimizer(optimizer or tf.keras.optimizers.SGD(0.25), loss_scale, **options)


def test_minimize_and_then_a_tape():
    """SGD(0.25) on x² takes 1.0 to 0.5 by minimize, and to 0.25 by tape, scaled loss and unscaled gradients."""
    optimizer, variable = wrapped(), tf.Variable(1.0)
    optimizer.minimize(lambda: variable**2, var_list=[variable])
    assert variable.numpy() == 0.5
    with tf.GradientTape() as tape:
        scaled_loss = optimizer.get_scaled_loss(variable**2)
    grads = optimizer.get_unscaled_gradients(tape.gradient(scaled_loss, [variable]))
    optimizer.apply_gradients(list(zip(grads, [variable])))
    assert variable.numpy() == 0.25
    assert optimizer.iterations.numpy() == 2


def test_weights_of_rmsprop():
    """One Dense layer: iterations and one slot each for kernel and bias, and set_weights takes them back."""
    optimizer = wrapped(tf.keras.optimizers.RMSprop())
    model = tf.keras.Sequential([tf.keras.layers.Dense(10, input_shape=(3,))])
    model.compile(optimizer, loss="mse")
    model.fit(np.zeros((2, 3)), np.zeros((2, 10)), verbose=0)
    assert len(optimizer.get_weights()) == 3
    assert [weight.shape for weight in optimizer.get_weights()] == [(), (3, 10), (10,)]
    optimizer.set_weights([np.array(10), np.ones((3, 10)), np.full(10, 2.0)])
    assert optimizer.iterations.numpy() == 10
    assert [weight.sum() for weight in optimizer.get_weights()] == [10, 30, 20]


@pytest.mark.skipif(not LISTS_VARIABLES, reason="Keras 2.11's own class cannot list its variables")
def test_variables_are_those_of_tensorflows_own_class():
    """As many, of the same types and shapes, in the same order; called or not."""
    kinds = []
    for optimizer in (upstream(tf.keras.optimizers.Adam()), wrapped(tf.keras.optimizers.Adam())):
        apply_unscaled(
            optimizer, [(tf.ones((3, 2)), tf.Variable(tf.ones((3, 2)))), (tf.ones(4), tf.Variable(tf.ones(4)))]
        )
        kinds.append([(tf.as_dtype(each.dtype), tuple(each.shape)) for each in variables_of(optimizer)])
    assert kinds[1] == kinds[0]
    assert [id(each) for each in optimizer.variables()] == [id(each) for each in variables_of(optimizer)]


def test_the_learning_rate_can_be_changed_between_steps():
    """By either name, on the wrapper."""
    optimizer, variable = wrapped(tf.keras.optimizers.SGD(1.0)), tf.Variable(10.0)
    for name, rate, expected in (("learning_rate", 2.0, 8.0), ("lr", 3.0, 5.0)):
        setattr(optimizer, name, rate)
        optimizer.apply_gradients([(tf.constant(1.0), variable)])
        assert variable.numpy() == expected
        assert (number(optimizer.learning_rate), number(optimizer.lr)) == (rate, rate)
        assert number(optimizer.inner_optimizer.learning_rate) == rate


def test_a_schedule_as_learning_rate():
    """ExponentialDecay by half each step: steps of 1, 0.5 and 0.25; a skipped step follows skipped_steps."""
    schedule = tf.keras.optimizers.schedules.ExponentialDecay(1.0, decay_steps=1, decay_rate=0.5)
    optimizer, variable = wrapped(tf.keras.optimizers.SGD(schedule), skipped_steps="hold"), tf.Variable(0.0)
    for gradient in (1.0, np.nan, 1.0, 1.0):
        optimizer.apply_gradients([(tf.constant(gradient), variable)])
    assert variable.numpy() == -1.75


def test_a_callable_as_learning_rate():
    """It is asked at every step; the new optimizers of Keras 2 ask it once, bare or wrapped."""

    def after_two_steps(wrap):
        rates = iter([1.0, 0.5])
        optimizer, variable = wrap(tf.keras.optimizers.SGD(lambda: next(rates))), tf.Variable(0.0)
        for _ in range(2):
            optimizer.apply_gradients([(tf.constant(1.0), variable)])
        return variable.numpy()

    expected = -2.0 if HAS_NEW_OPTIMIZERS and not IS_KERAS_3 else -1.5
    assert after_two_steps(lambda optimizer: optimizer) == expected
    assert after_two_steps(wrapped) == expected


def test_a_callable_variable_list():
    """minimize calls it after the loss, when a model's variables exist."""
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    optimizer = wrapped(tf.keras.optimizers.SGD(0.5))
    optimizer.minimize(lambda: tf.reduce_sum(model(tf.ones((1, 2)))), lambda: model.trainable_variables)
    np.testing.assert_array_equal(model.trainable_variables[0].numpy(), [[0.5], [0.5]])


def test_a_variables_constraint_is_applied():
    """As the inner optimizer does, after the update."""
    variable = tf.Variable(1.0, constraint=lambda number: tf.clip_by_value(number, 0.9, 1.1))
    wrapped(tf.keras.optimizers.SGD(1.0)).apply_gradients([(tf.constant(5.0), variable)])
    assert variable.numpy() == np.float32(0.9)


if HAS_NEW_OPTIMIZERS:

    class Halving(tf.keras.optimizers.Optimizer):
        """A custom optimizer: each step takes half the gradient, and a slot counts the steps."""

        def __init__(self, learning_rate=1.0, name="Halving", **kwargs):
            super().__init__(name=name, **({"learning_rate": learning_rate} if IS_KERAS_3 else {}), **kwargs)
            if not IS_KERAS_3:
                self._learning_rate = self._build_learning_rate(learning_rate)

        def build(self, variables):
            super().build(variables)
            if not hasattr(self, "count"):
                self.count = [self.add_variable_from_reference(each, "count") for each in variables]

        def update_step(self, gradient, variable, learning_rate=None):
            if isinstance(gradient, tf.IndexedSlices):
                variable.scatter_sub(tf.IndexedSlices(gradient.values / 2, gradient.indices))
            else:
                variable.assign_sub(gradient / 2)
                places = self._trainable_variables_indices if IS_KERAS_3 else self._index_dict
                self.count[places[self._var_key(variable)]].assign_add(tf.ones_like(variable))

        def get_config(self):
            return super().get_config()

else:

    class Halving(tf.keras.optimizers.Optimizer):
        """A custom optimizer: each step takes half the gradient, and a slot counts the steps."""

        def __init__(self, name="Halving", **kwargs):
            super().__init__(name, **kwargs)

        def _create_slots(self, var_list):
            for variable in var_list:
                self.add_slot(variable, "count")

        def _resource_apply_dense(self, grad, var, apply_state=None):
            return tf.group(var.assign_sub(grad / 2), self.get_slot(var, "count").assign_add(tf.ones_like(var)))

        def _resource_apply_sparse(self, grad, var, indices, apply_state=None):
            return var.scatter_sub(tf.IndexedSlices(grad / 2, indices))

        def get_config(self):
            return super().get_config()


def test_a_custom_optimizer_subclass():
    """Dense and sparse gradients, its slots, and its configuration with custom_objects."""
    optimizer, variable = wrapped(Halving(), 8.0), tf.Variable([1.0, 2.0, 3.0])
    optimizer.apply_gradients([(tf.constant([2.0, 4.0, 6.0]), variable)])
    np.testing.assert_array_equal(variable.numpy(), [0.0, 0.0, 0.0])
    optimizer.apply_gradients(
        [(tf.IndexedSlices(tf.constant([2.0, 2.0]), tf.constant([1, 1]), tf.constant([3])), variable)]
    )
    np.testing.assert_array_equal(variable.numpy(), [0.0, -2.0, 0.0])
    assert optimizer.get_slot_names() == ["count"]
    np.testing.assert_array_equal(optimizer.get_slot(variable, "count").numpy(), [1.0, 1.0, 1.0])
    again = LossScaleOptimizer.from_config(optimizer.get_config(), custom_objects={"Halving": Halving})
    assert (type(again.inner_optimizer), again.loss_scale()) == (Halving, 8.0)


def test_add_slot_and_add_weight():
    """Both reach the inner optimizer."""
    optimizer, variable = wrapped(), tf.Variable([1.0, 2.0])
    slot = optimizer.add_slot(variable, "mine", initializer="ones")
    np.testing.assert_array_equal(slot.numpy(), [1.0, 1.0])
    assert optimizer.get_slot(variable, "mine") is slot
    extra = optimizer.add_weight("extra", shape=(), initializer="ones")
    assert (extra.numpy(), "extra" in extra.name) == (1.0, True)


@pytest.mark.parametrize(
    "spelling", [{"experimental_aggregate_gradients": False}, {"skip_gradients_aggregation": True}]
)
def test_aggregated_gradients(spelling):
    """After an own all_reduce, without a strategy, in either spelling: the same step."""
    optimizer, variable = wrapped(), tf.Variable(1.0)
    grads = tf.distribute.get_replica_context().all_reduce("sum", [tf.constant(2.0)])
    optimizer.apply_gradients(zip(grads, [variable]), **spelling)
    assert variable.numpy() == 0.5


def test_scaled_loss_of_a_callable():
    """A callable gives a callable."""
    assert wrapped(loss_scale=4.0).get_scaled_loss(lambda: tf.constant(3.0))().numpy() == 12.0


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_a_float16_loss_is_scaled_in_float32(dtype):
    """B3: a scale that float16 can't hold does not make the loss infinite."""
    loss = wrapped(loss_scale=2.0**20).get_scaled_loss(tf.constant(2.0, dtype))
    assert (loss.dtype, loss.numpy()) == (tf.float32, 2.0**21)


def test_none_stays_none():
    """A variable without a gradient keeps its place."""
    grads = wrapped(loss_scale=4.0).get_unscaled_gradients([None, tf.constant(8.0), None])
    assert [grad if grad is None else grad.numpy() for grad in grads] == [None, 2.0, None]


def test_sparse_gradients_stay_sparse():
    """B7: on every version."""
    slices = tf.IndexedSlices(tf.constant([[8.0]]), tf.constant([2]), tf.constant([5, 1]))
    (grad,) = wrapped(loss_scale=4.0).get_unscaled_gradients([slices])
    assert isinstance(grad, tf.IndexedSlices)
    assert (grad.values.numpy().tolist(), grad.indices.numpy().tolist()) == ([[2.0]], [2])


@pytest.mark.parametrize("malformed", [5, [tf.constant(1.0)], [(1, 2, 3)]])
def test_malformed_pairs(malformed):
    """TypeError."""
    with pytest.raises(TypeError, match="pairs"):
        wrapped().apply_gradients(malformed)


def test_no_gradient_at_all():
    """ValueError that names the variables; the scale and the iterations stay."""
    optimizer, variable = wrapped(), tf.Variable(1.0, name="lonely")
    with pytest.raises(ValueError, match="No gradients provided for any variable.*lonely"):
        optimizer.apply_gradients([(None, variable)])
    with pytest.raises(ValueError, match="No gradients"):
        optimizer.minimize(lambda: tf.constant(1.0), [variable])
    assert optimizer.loss_scale.state()["good_steps"] == 0


@pytest.mark.parametrize("loss_scale", [None, np.True_, "dynamik", 0.5, float("nan"), []])
def test_a_bad_loss_scale_is_an_error_at_construction(loss_scale):
    """B9, and every other."""
    with pytest.raises(ValueError, match="loss scale|must be"):
        wrapped(loss_scale=loss_scale)


def test_what_can_not_be_wrapped():
    """No optimizer, a wrapped one, a wrong choice."""
    with pytest.raises(ValueError, match="optimizer"):
        LossScaleOptimizer("sgd", "dynamic")
    with pytest.raises(ValueError, match="already"):
        wrapped(wrapped())
    with pytest.raises(ValueError, match="skipped_steps is 'sometimes'; valid"):
        wrapped(skipped_steps="sometimes")


@pytest.mark.parametrize("clipping", [{"clipnorm": 1.0}, {"clipvalue": 1.0}])
def test_clipping_acts_on_unscaled_gradients(clipping):
    """B5: a gradient of 0.5 is below the limit and stays; one of 4 is clipped to 1. The setting is kept."""
    optimizer, variable = wrapped(tf.keras.optimizers.SGD(1.0, **clipping), 1024.0), tf.Variable(0.0)
    optimizer.minimize(lambda: 0.5 * variable, [variable])
    assert variable.numpy() == -0.5
    optimizer.minimize(lambda: 4.0 * variable, [variable])
    assert variable.numpy() == -1.5
    config = optimizer.get_config()
    assert config.get("optimizer", config.get("inner_optimizer"))["config"][next(iter(clipping))] == 1.0


def test_configuration():
    """The installed version's own words, JSON after training, and back."""
    optimizer, variable = wrapped(tf.keras.optimizers.Adam(0.125)), tf.Variable(1.0)
    optimizer.apply_gradients([(tf.constant(1.0), variable)])
    config = json.loads(json.dumps(optimizer.get_config()))
    theirs = upstream(tf.keras.optimizers.Adam(0.125))
    assert config.keys() == theirs.get_config().keys()
    if HAS_LOSS_SCALE_OBJECTS:
        assert config["loss_scale"] == {
            "class_name": "DynamicLossScale",
            "config": {"initial_loss_scale": 32768.0, "increment_period": 2000, "multiplier": 2.0},
        }
    else:
        assert (config["initial_scale"], config["dynamic_growth_steps"]) == (32768.0, 2000)
    assert type(theirs).from_config(copy.deepcopy(config)).get_config().keys() == config.keys()
    again = LossScaleOptimizer.from_config(config)
    assert again.get_config() == config


@pytest.mark.parametrize(
    "loss_scale",
    [
        {"name": "dynamic", "minimum": 4},
        {"name": "dynamic", "multiplier": 3, "initial_loss_scale": 9},
        {"name": "fixed", "loss_scale_value": 8, "skip_nonfinite": True},
        16.0,
    ],
)
def test_configuration_beyond_tensorflows_words(loss_scale):
    """Arguments that only scalekeeper has are in the configuration when they are used, and are restored."""
    config = json.loads(json.dumps(wrapped(loss_scale=loss_scale, skipped_steps="hold").get_config()))
    again = LossScaleOptimizer.from_config(config)
    assert again.get_config() == config
    assert repr(again.loss_scale) == repr(wrapped(loss_scale=loss_scale).loss_scale)
    assert config["skipped_steps"] == "hold"


def test_their_configuration():
    """scalekeeper's class accepts the configuration of TensorFlow's class."""
    given = {"initial_loss_scale": 64.0, "increment_period": 7}
    again = LossScaleOptimizer.from_config(upstream(tf.keras.optimizers.SGD(0.5), given).get_config())
    assert (again.loss_scale(), again.loss_scale.params.increment_period, number(again.lr)) == (64.0, 7, 0.5)


def test_keras_recognises_it():
    """An instance of Keras's own class, under the name that Keras looks for."""
    optimizer = wrapped()
    assert isinstance(optimizer, UPSTREAM)
    assert isinstance(optimizer, LossScaleOptimizer)
    assert type(optimizer).__name__ == type(upstream(tf.keras.optimizers.SGD(0.5))).__name__


@pytest.mark.parametrize(("loss_scale", "expected"), [("dynamic", [(), ()]), (128.0, [])])
def test_nothing_persists_but_the_state_scalars(loss_scale, expected):
    """A traced step leaves no variable that the bare optimizer does not have; the wrapper's own are the policy's."""

    def variables_after_a_step(optimizer):
        weights = tf.Variable(np.ones((50, 50), np.float32))

        @tf.function
        def step():
            optimizer.apply_gradients([(tf.ones((50, 50)), weights)])

        before = collections.Counter(alive())
        step()
        return collections.Counter(alive()) - before

    def alive():
        gc.collect()
        return sorted(tuple(each.shape) for each in gc.get_objects() if issubclass(type(each), tf.Variable))

    bare = tf.keras.optimizers.SGD(0.1, momentum=0.9)
    expected_after = variables_after_a_step(bare)
    optimizer = wrapped(tf.keras.optimizers.SGD(0.1, momentum=0.9), loss_scale)
    assert variables_after_a_step(optimizer) == expected_after
    assert expected_after[50, 50] == 1  # the slot
    state = hold_in_graph(optimizer.loss_scale).variables
    assert [tuple(variable.shape) for variable in state.values()] == expected
