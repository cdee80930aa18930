"""SharedLossScale: several optimizers, each with its own decision, and one update of the loss scale."""

import copy
import pickle

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper.optimizer import LossScaleOptimizer
from scalekeeper_test_support import installed_keras, published_rules, small_model

INFINITY = float("inf")
SMALL = {"name": "dynamic", "initial_loss_scale": 8.0, "increment_period": 2}


@pytest.fixture(params=["eager", "tf.function", "autograph"])
def traced(request):
    """Run a step eagerly, and traced without and with AutoGraph."""
    if request.param == "eager":
        return lambda step: step
    return lambda step: tf.function(step, autograph=request.param == "autograph")


class Pair:
    """Two optimizers of one variable each, which begins at 0 and falls by 1 in each step that is applied."""

    def __init__(self, optimizers, loss_scale=SMALL, **options):
        self.shared = scalekeeper.SharedLossScale(loss_scale)
        self.variables = [tf.Variable(0.0), tf.Variable(0.0)]
        self.optimizers = [LossScaleOptimizer(optimizers.SGD(1.0), self.shared, **options) for _ in self.variables]

    def apply(self, index, grad):
        """Unscale and apply the gradient of one optimizer."""
        optimizer = self.optimizers[index]
        (grad,) = optimizer.get_unscaled_gradients([optimizer.get_scaled_loss(grad)])
        optimizer.apply_gradients([(grad, self.variables[index])])

    def step(self, first, second):
        with self.shared.step():
            self.apply(0, first)
            self.apply(1, second)

    def values(self):
        return [float(each.numpy()) for each in self.variables]


def test_each_optimizer_decides_for_itself_and_the_scale_changes_once(optimizers, traced):
    """A non-finite gradient of one skips that one alone, and halves the loss scale of both once."""
    pair, found = Pair(optimizers), []
    step = traced(pair.step)
    for first, second in [(1.0, 1.0), (1.0, INFINITY), (float("nan"), 1.0), (1.0, 1.0), (1.0, 1.0)]:
        step(tf.constant(first), tf.constant(second))
        found.append((*pair.values(), float(pair.shared.loss_scale())))
    assert found == [(-1, -1, 8), (-2, -1, 4), (-2, -2, 2), (-3, -3, 2), (-4, -4, 4)]
    assert [each.telemetry.skipped for each in pair.optimizers] == [1, 1]
    assert pair.shared.loss_scale.state() == {"current_loss_scale": 4.0, "good_steps": 0}
    assert pair.optimizers[0].loss_scale is pair.optimizers[1].loss_scale is pair.shared.loss_scale


@pytest.mark.parametrize("count", [2, 3])
def test_equal_to_grad_scaler(count):
    """Loss scale and decisions are those of PyTorch's GradScaler at each of 2,000 steps, in one traced loop."""
    steps, rule = 2000, published_rules.GradScaler(count, interval=7)
    overflows = rule.overflows(steps, count)
    shared = scalekeeper.SharedLossScale({"name": "dynamic/pytorch", "increment_period": 7})
    wrapped = [LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), shared) for _ in range(count)]
    variables = [tf.Variable(0.0) for _ in range(count)]

    for each, variable in zip(wrapped, variables):
        each._make_variables([variable])

    def step(row):
        scale = shared.loss_scale()
        scaled = [tf.where(row[index] | (scale > room), INFINITY, scale) for index, room in enumerate(rule.rooms)]
        with shared.step():
            grads = [each.get_unscaled_gradients([grad])[0] for each, grad in zip(wrapped, scaled)]
            decisions = [
                each.apply_gradients([(grad, variable)], return_decision=True)
                for each, grad, variable in zip(wrapped, grads, variables)
            ]
        return scale, tf.stack(decisions)

    @tf.function
    def run(overflows):
        found = [tf.TensorArray(dtype, steps) for dtype in (tf.float32, tf.bool)]
        for number in tf.range(steps):
            found = [array.write(number, value) for array, value in zip(found, step(overflows[number]))]
        return [array.stack() for array in found]

    scales, decisions = (each.numpy() for each in run(tf.constant(overflows)))
    assert list(zip(scales.tolist(), decisions.tolist())) == [rule.step(row) for row in overflows]
    assert [each.numpy() for each in variables] == (-decisions.sum(axis=0)).tolist()
    assert len(set(scales.tolist())) >= 8


def test_a_second_call_is_refused(traced):
    """Unscaling twice, applying twice and unscaling after applying are errors; the loss scale stays."""
    pair = Pair(tf.keras.optimizers)

    def unscale(number):
        pair.optimizers[number].get_unscaled_gradients([tf.constant(1.0)])

    def twice(*calls):
        def step():
            with pair.shared.step():
                for call, number in calls:
                    call(number)

        return traced(step)

    def apply(number):
        pair.optimizers[number].apply_gradients([(tf.constant(1.0), pair.variables[number])])

    twice((unscale, 0), (unscale, 1), (apply, 1), (apply, 0))()
    for calls in [(unscale, unscale), (apply, apply), (apply, unscale)]:
        with pytest.raises(scalekeeper.UnsupportedOperationError, match="SGD is called after its"):
            twice((calls[0], 0), (apply, 1), (calls[1], 0))()
    twice((apply, 0), (apply, 1))()  # an error ends its step
    assert pair.shared.loss_scale.state() == {"current_loss_scale": 16.0, "good_steps": 0}


def test_a_step_without_applied_gradients_is_refused(traced):
    """Its end raises an error, also if gradients were unscaled; and an error inside it is not replaced."""
    pair = Pair(tf.keras.optimizers)

    def unscaled():
        with pair.shared.step():
            pair.optimizers[0].get_unscaled_gradients([tf.constant(1.0)])

    def failing():
        with pair.shared.step():
            raise KeyError("of the program")

    with pytest.raises(scalekeeper.UnsupportedOperationError, match="no optimizer has applied"):
        traced(unscaled)()
    with pytest.raises(KeyError):
        failing()


def test_outside_of_a_step_gradients_are_refused(traced):
    """``apply_gradients``, ``get_unscaled_gradients`` and ``minimize`` need a step, because nothing else updates."""
    pair = Pair(tf.keras.optimizers)
    optimizer, variable = pair.optimizers[0], pair.variables[0]
    for call in (
        lambda: optimizer.apply_gradients([(tf.constant(1.0), variable)]),
        lambda: optimizer.get_unscaled_gradients([tf.constant(1.0)])[0],
        lambda: optimizer.minimize(lambda: 1.0 * variable, [variable]),
    ):
        with pytest.raises(scalekeeper.UnsupportedOperationError, match="outside of a step"):
            traced(call)()
    assert pair.values() == [0.0, 0.0]


def test_a_step_inside_a_step_is_refused():
    """The inner one raises an error, and the outer one is over, too."""
    pair = Pair(tf.keras.optimizers)
    inside = pytest.raises(scalekeeper.UnsupportedOperationError, match="inside another")
    with inside, pair.shared.step(), pair.shared.step():
        pass
    pair.step(1.0, 1.0)
    assert pair.values() == [-1.0, -1.0]


def test_functions_inside_a_step_are_refused():
    """A tf.function that applies gradients would be traced once, and the step would not see it the next time."""
    pair = Pair(tf.keras.optimizers)
    pair.step(1.0, 1.0)
    apply = tf.function(lambda: pair.apply(0, tf.constant(1.0)))
    branch = tf.function(lambda flag: tf.cond(flag, lambda: [pair.apply(0, 1.0), 0][1], lambda: 0))
    for call in (apply, lambda: branch(tf.constant(True))):
        refused = pytest.raises(scalekeeper.UnsupportedOperationError, match="in another function")
        with refused, pair.shared.step():
            call()
    assert pair.values() == [-1.0, -1.0]


def test_a_graph_of_tensorflow_1_is_refused():
    """There, nothing would run the update."""
    with tf.Graph().as_default():
        pair = Pair(tf.keras.optimizers)
        with pytest.raises(scalekeeper.UnsupportedOperationError, match="TensorFlow 1"), pair.shared.step():
            pass


def test_fit_without_a_step_is_refused(one_weight):
    """``fit`` with a training step that does not know of the others raises an error, instead of a scale that stays."""
    optimizer = LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), scalekeeper.SharedLossScale())
    model = one_weight().compile(optimizer, gradient=1.0)
    with pytest.raises(scalekeeper.UnsupportedOperationError, match="outside of a step"):
        model.fit()
    assert model.weight == 1.0


def test_policies_that_decide_in_update_are_refused():
    """A policy with its own ``update`` cannot decide for each optimizer and be updated once."""

    class Own(scalekeeper.LossScale):
        def update(self, grads):
            return None, True

        def initial_state(self):
            return {}

    with pytest.raises(scalekeeper.ArgumentError, match="Own decides and updates"):
        scalekeeper.SharedLossScale(Own())
    with pytest.raises(scalekeeper.ArgumentError):
        scalekeeper.SharedLossScale(installed_keras.LOSS_SCALE_CLASSES.DynamicLossScale())
    with pytest.raises(scalekeeper.InvalidSpecError):
        scalekeeper.SharedLossScale("dynamik")


class Recording(scalekeeper.LossScale):
    """Keeps what the last report said, and never skips; with its own ``__call__``."""

    needs = frozenset({"finite", "largest_magnitude", "zero_share"})

    def __call__(self):
        return tf.constant(4.0)

    def initial_state(self):
        return {"largest": np.float32(0), "zeros": np.float32(0), "finite": np.float32(1), "steps": np.int64(0)}

    def should_apply(self, state, report, ops):
        return ops.logical_or(report.finite, ops.logical_not(report.finite))

    def next_state(self, state, report, ops):
        finite = ops.where(report.finite, ops.float32(1), ops.float32(0))
        steps = state["steps"] + ops.int64(1)
        return {"largest": report.largest_magnitude, "zeros": report.zero_share, "finite": finite, "steps": steps}


def test_the_report_is_that_of_all_optimizers(traced):
    """The largest magnitude of all, the mean share of zeros, and whether all are finite; watched ones are their own."""
    pair = Pair(tf.keras.optimizers, Recording())
    pair.optimizers[1] = LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), pair.shared, watch=["largest_magnitude"])
    step = traced(pair.step)
    step(tf.constant(0.0), tf.constant(2.0))
    assert pair.shared.loss_scale.state() == {"largest": 2.0, "zeros": 0.5, "finite": 1.0, "steps": 1}
    step(tf.constant(-3.0), tf.constant(1.0))
    assert pair.shared.loss_scale.state() == {"largest": 3.0, "zeros": 0.0, "finite": 1.0, "steps": 2}
    assert pair.optimizers[1].telemetry.largest_magnitude == 1.0
    assert pair.values() == [3.0, -3.0]


def test_a_fixed_scale_and_frozen_variables(optimizers, traced):
    """A fixed loss scale applies everything; an optimizer without variables changes nothing."""
    pair = Pair(optimizers, 16.0)
    traced(pair.step)(tf.constant(1.0), tf.constant(2.0))
    assert (pair.values(), float(pair.shared.loss_scale())) == ([-1.0, -2.0], 16.0)

    def frozen():
        with pair.shared.step():
            pair.optimizers[0].apply_gradients([])

    traced(frozen)()
    assert pair.values() == [-1.0, -2.0]


def test_one_policy_object_without_sharing_is_updated_by_each(optimizers):
    """Two optimizers with one policy object update it twice in a step: that is what SharedLossScale is for."""
    policy = scalekeeper.resolve(SMALL)
    for _ in range(2):
        optimizer = LossScaleOptimizer(optimizers.SGD(1.0), policy)
        optimizer.apply_gradients([(tf.constant(INFINITY), tf.Variable(0.0))])
    assert float(policy()) == 2.0


@pytest.mark.parametrize("make", [copy.deepcopy, lambda given: pickle.loads(pickle.dumps(given))])
def test_copies_share_with_each_other(optimizers, make):
    """Optimizers that are copied together share a copy of the loss scale, and nothing with the originals."""
    pair = Pair(optimizers)
    pair.step(1.0, INFINITY)
    shared, made = make((pair.shared, pair.optimizers))
    assert [each.loss_scale is shared.loss_scale for each in made] == [True, True]
    with shared.step():
        for optimizer, variable, grad in zip(made, pair.variables, (1.0, INFINITY)):
            optimizer.apply_gradients([(tf.constant(grad), variable)])
    assert (float(shared.loss_scale()), float(pair.shared.loss_scale())) == (2.0, 4.0)
    assert repr(shared).startswith("SharedLossScale(DynamicLossScale(")


@pytest.mark.skipif(
    not hasattr(tf.keras.optimizers.SGD(), "_track_trackable"), reason="this Keras 3 has no checkpoints"
)
def test_a_checkpoint_holds_the_loss_scale_once(optimizers, tmp_path):
    """A checkpoint of both optimizers restores both and the loss scale; the restored ones share it."""
    pair, other = Pair(optimizers), Pair(optimizers)
    pair.step(1.0, INFINITY)
    pair.step(1.0, 1.0)
    other.step(1.0, 1.0)
    path = tf.train.Checkpoint(first=pair.optimizers[0], second=pair.optimizers[1]).save(str(tmp_path / "checkpoint"))
    restored = tf.train.Checkpoint(first=other.optimizers[0], second=other.optimizers[1])
    restored.restore(path).assert_existing_objects_matched()
    assert other.shared.loss_scale.state() == {"current_loss_scale": 4.0, "good_steps": 1}
    other.step(1.0, 1.0)
    assert other.shared.loss_scale.state() == {"current_loss_scale": 8.0, "good_steps": 0}


def test_a_state_dict_of_either_holds_the_loss_scale(optimizers):
    """Loading it into an optimizer that shares changes the loss scale of all that share."""
    pair, other = Pair(optimizers), Pair(optimizers)
    pair.step(1.0, INFINITY)
    other.step(1.0, 1.0)
    other.optimizers[1].load_state_dict(pair.optimizers[1].state_dict())
    assert other.optimizers[0].loss_scale.state() == {"current_loss_scale": 4.0, "good_steps": 0}


def test_a_loaded_model_has_its_own_loss_scale(tmp_path):
    """Files hold the policy and its state: a loaded optimizer trains by itself, and cannot join a step by mistake."""
    shared = scalekeeper.SharedLossScale(SMALL)
    model = small_model.build()
    model.compile(LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), shared), "mse")

    def overflow(model):
        variables = model.trainable_variables
        model.optimizer.apply_gradients([(tf.fill(each.shape, INFINITY), each) for each in variables])

    with shared.step():
        overflow(model)
    path = str(tmp_path / "model.h5")
    scalekeeper.save_model(model, path)
    loaded = scalekeeper.load_model(path)
    assert loaded.optimizer.get_config() == model.optimizer.get_config()
    assert loaded.optimizer.loss_scale.state() == {"current_loss_scale": 4.0, "good_steps": 0}
    refused = pytest.raises(scalekeeper.UnsupportedOperationError, match="no optimizer has applied")
    with refused, shared.step():
        overflow(loaded)
    assert (float(loaded.optimizer.loss_scale()), float(shared.loss_scale())) == (2.0, 4.0)
    with shared.step():
        overflow(model)
    scalekeeper.restore(model, path)
    assert float(shared.loss_scale()) == 4.0


@pytest.mark.skipif(not hasattr(tf.keras.Model, "train_step"), reason="from 2.2 on")
def test_a_training_step_of_a_model(mixed_float16, run_eagerly):
    """``fit`` with a subclassed ``train_step`` of two optimizers updates the loss scale once in each step."""
    shared = scalekeeper.SharedLossScale({"name": "dynamic", "initial_loss_scale": 2.0**20, "increment_period": 3})

    class Gan(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.generator = tf.keras.layers.Dense(2, kernel_initializer="ones")
            self.critic = tf.keras.layers.Dense(1, kernel_initializer="ones")
            self.first = LossScaleOptimizer(tf.keras.optimizers.SGD(0.25), shared)
            self.second = LossScaleOptimizer(tf.keras.optimizers.SGD(0.25), shared)

        def call(self, inputs):
            return self.critic(self.generator(inputs))

        def train_step(self, data):
            inputs = data[0] if isinstance(data, tuple) else data
            with tf.GradientTape(persistent=True) as tape:
                loss = tf.reduce_mean(tf.cast(self(inputs), tf.float32))
                losses = self.first.get_scaled_loss(loss), self.second.get_scaled_loss(-loss * 2.0**-10)
            with shared.step():
                for optimizer, part, scaled in zip((self.first, self.second), (self.generator, self.critic), losses):
                    variables = part.trainable_variables
                    grads = tape.gradient(scaled, variables)
                    optimizer.apply_gradients(zip(optimizer.get_unscaled_gradients(grads), variables))
            return {"loss": loss}

    model = Gan()
    model.compile(run_eagerly=run_eagerly, **({} if installed_keras.IS_KERAS_3 else {"optimizer": "sgd"}))
    model.fit(np.ones([8, 2], np.float32), batch_size=1, epochs=1, verbose=0)
    # the generator overflows above 2**15, the critic never
    assert (model.first.telemetry.skipped, model.second.telemetry.skipped) == (5, 0)
    assert shared.loss_scale.state() == {"current_loss_scale": 2.0**16, "good_steps": 0}
