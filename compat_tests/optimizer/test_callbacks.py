"""Keras's callbacks reach through the wrapper: what they change shows in the weights, what they write can be read."""

import importlib.util

import pytest
import tensorflow as tf

from scalekeeper.optimizer import LossScaleOptimizer
from scalekeeper_test_support.installed_keras import IS_KERAS_3, MODEL_SUFFIXES, WEIGHTS_SUFFIXES, number

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("mixed_float16")]

HAS_TENSORBOARD = importlib.util.find_spec("tensorboard") is not None
RATE = "learning_rate" if IS_KERAS_3 else "lr"  # its name in a history


def wrapped(learning_rate, optimizers=tf.keras.optimizers):
    return LossScaleOptimizer(optimizers.SGD(learning_rate), 1024)


class ChangeAttribute(tf.keras.callbacks.Callback):
    """Sets an attribute of the optimizer after the first epoch, as a user's own callback would."""

    def __init__(self, name, value, in_place):
        super().__init__()
        self.name, self.value, self.in_place = name, value, in_place

    def on_epoch_end(self, epoch, logs=None):
        if self.in_place and IS_KERAS_3:  # whose set_value does not work
            getattr(self.model.optimizer, self.name).assign(self.value)
        elif self.in_place:
            tf.keras.backend.set_value(getattr(self.model.optimizer, self.name), self.value)
        else:
            setattr(self.model.optimizer, self.name, self.value)


class Remember(tf.keras.callbacks.Callback):
    """Keeps the weight after each epoch."""

    def on_train_begin(self, logs=None):
        self.weights = []

    def on_epoch_end(self, epoch, logs=None):
        self.weights.append(float(self.model.get_weights()[0].item()))


def test_learning_rate_scheduler_changes_the_step(one_weight, optimizers, run_eagerly):
    """Each epoch's update is that epoch's learning rate × the gradient, and the history names the rate."""
    optimizer, remember = wrapped(8.0, optimizers), Remember()
    rates = [0.5, 0.25, 0.125]
    scheduler = tf.keras.callbacks.LearningRateScheduler(lambda epoch: rates[epoch])
    trained = one_weight().compile(optimizer, 1.0, run_eagerly)
    history = trained.fit(epochs=3, callbacks=[scheduler, remember]).history
    assert remember.weights == [0.5, 0.25, 0.125]
    assert history[RATE] == rates
    assert number(optimizer.inner_optimizer.learning_rate) == 0.125


def test_learning_rate_scheduler_is_given_the_current_rate(one_weight):
    """A schedule of two arguments gets the rate that the optimizer has: here halved each epoch."""
    remember = Remember()
    scheduler = tf.keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2)
    one_weight().compile(wrapped(1.0), 1.0).fit(epochs=2, callbacks=[scheduler, remember])
    assert remember.weights == [0.5, 0.25]


def test_reduce_lr_on_plateau_reduces_the_inner_rate(one_weight, optimizers, run_eagerly):
    """Epochs without improvement multiply the rate by the factor, in the inner optimizer."""
    optimizer = wrapped(0.5, optimizers)
    # min_delta is out of reach, so every epoch after the first counts as a plateau
    reduce = tf.keras.callbacks.ReduceLROnPlateau("loss", factor=0.25, patience=1, min_delta=1000.0, min_lr=0.0)
    trained = one_weight().compile(optimizer, 1.0, run_eagerly)
    history = trained.fit(epochs=3, callbacks=[reduce]).history
    assert history[RATE] == [0.5, 0.5, 0.125]
    assert number(optimizer.inner_optimizer.learning_rate) == 0.03125
    assert trained.weight == 1.0 - 0.5 - 0.5 - 0.125


@pytest.mark.parametrize("in_place", [True, False], ids=["in_place", "assignment"])
@pytest.mark.parametrize("name", ["lr", "learning_rate"])
def test_a_callback_changes_the_rate_through_the_wrapper(one_weight, optimizers, run_eagerly, name, in_place):
    """Both names of the learning rate can be set during `fit`, and the next step uses the new value."""
    remember = Remember()
    trained = one_weight().compile(wrapped(0.5, optimizers), 1.0, run_eagerly)
    trained.fit(epochs=3, callbacks=[remember, ChangeAttribute(name, 0.125, in_place)])
    assert remember.weights == [0.5, 0.375, 0.25]
    assert number(trained.model.optimizer.lr) == 0.125
    assert number(trained.model.optimizer.learning_rate) == 0.125


def test_a_learning_rate_schedule_sees_the_iterations(one_weight, optimizers, run_eagerly):
    """A schedule object inside the wrapper sees the iterations: rates 0.5, 0.5, then 0.125."""
    schedule = tf.keras.optimizers.schedules.PiecewiseConstantDecay([1], [0.5, 0.125])
    trained = one_weight().compile(wrapped(schedule, optimizers), 1.0, run_eagerly)
    trained.fit(inputs=[1, 1, 1])
    assert trained.weight == 1.0 - 0.5 - 0.5 - 0.125


@pytest.mark.parametrize(
    ("whole_model", "suffix"),
    [*((False, suffix) for suffix in WEIGHTS_SUFFIXES), *((True, suffix) for suffix in MODEL_SUFFIXES)],
)
def test_model_checkpoint_writes_files_that_load(one_weight, tmp_path, whole_model, suffix):
    """The file of each epoch holds that epoch's weight, and a model built anew takes it."""
    pattern = str(tmp_path / "epoch-{epoch}") + suffix
    checkpoint = tf.keras.callbacks.ModelCheckpoint(pattern, save_weights_only=not whole_model)
    # a float32 layer, as TensorFlow 2.0 can't write a float16 one into a SavedModel, with any optimizer
    trained = one_weight(dtype="float32").compile(wrapped(0.25), 1.0)
    trained.fit(epochs=2, callbacks=[checkpoint])
    for epoch, weight in [(1, 0.75), (2, 0.5)]:
        restored = one_weight(dtype="float32")
        path = pattern.format(epoch=epoch)
        if whole_model and suffix == "":
            path += "/variables/variables"
        restored.model.load_weights(path)
        assert restored.weight == weight


def test_model_checkpoint_of_the_best_epoch_only(one_weight, tmp_path):
    """`save_best_only` writes when the monitored loss improves, and not after."""
    path = str(tmp_path / "best") + MODEL_SUFFIXES[0]
    checkpoint = tf.keras.callbacks.ModelCheckpoint(path, monitor="loss", mode="max", save_best_only=True)
    trained = one_weight().compile(wrapped(0.25), 1.0)
    trained.fit(epochs=3, callbacks=[checkpoint])  # the loss falls from 1, so the first epoch has the largest
    best = one_weight()
    best.model.load_weights(path)
    assert (best.weight, trained.weight) == (0.75, 0.25)


def test_early_stopping_stops_and_restores(one_weight, run_eagerly):
    """Training stops after the patience is used up, with the best epoch's weight put back."""
    stopping = tf.keras.callbacks.EarlyStopping("loss", mode="max", patience=2, restore_best_weights=True)
    trained = one_weight().compile(wrapped(0.25), 1.0, run_eagerly)
    history = trained.fit(epochs=10, callbacks=[stopping]).history
    assert history["loss"] == [1.0, 0.75, 0.5]
    assert trained.weight == 0.75


@pytest.mark.skipif(not HAS_TENSORBOARD, reason="TensorBoard is not installed, which newer TensorFlows come without")
def test_tensorboard_logs_losses_and_weights(one_weight, run_eagerly, tmp_path):
    """The event files hold each epoch's loss, which follows from the learning rates, and a histogram of the weight."""
    # profiling is not what is tested, and is slow
    board = tf.keras.callbacks.TensorBoard(str(tmp_path), histogram_freq=1, update_freq="epoch", profile_batch=0)
    scheduler = tf.keras.callbacks.LearningRateScheduler(lambda epoch: [0.5, 0.25, 0.125][epoch])
    one_weight().compile(wrapped(8.0), 1.0, run_eagerly).fit(epochs=3, callbacks=[scheduler, board])
    events = [
        (value.tag, event.step, value)
        for path in tmp_path.glob("**/events.*")
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
    ]

    def scalar(value):
        return tf.make_ndarray(value.tensor).item() if value.HasField("tensor") else value.simple_value

    losses = {step: scalar(value) for tag, step, value in events if tag == "epoch_loss"}
    assert losses == {0: 1.0, 1: 0.5, 2: 0.25}
    assert [step for tag, step, _ in events if "kernel" in tag] == [0, 1, 2]


def test_all_of_them_at_once(one_weight, run_eagerly, tmp_path):
    """The usual set of callbacks together leaves the same weight as the updates added up by hand."""
    callbacks = [
        tf.keras.callbacks.LearningRateScheduler(lambda epoch: 0.25),
        tf.keras.callbacks.ReduceLROnPlateau("loss", patience=10),
        tf.keras.callbacks.ModelCheckpoint(str(tmp_path / "model") + MODEL_SUFFIXES[0]),
        tf.keras.callbacks.EarlyStopping("loss", patience=10),
        tf.keras.callbacks.TerminateOnNaN(),
        tf.keras.callbacks.CSVLogger(str(tmp_path / "log.csv")),
    ]
    if HAS_TENSORBOARD:
        callbacks.append(tf.keras.callbacks.TensorBoard(str(tmp_path / "logs"), profile_batch=0))
    trained = one_weight().compile(wrapped(8.0), 1.0, run_eagerly)
    trained.fit(epochs=3, callbacks=callbacks)
    assert trained.weight == 0.25
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 4
