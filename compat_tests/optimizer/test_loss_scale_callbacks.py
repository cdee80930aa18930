"""LossScaleLogger and TraceRecorder in ``fit``."""

import csv
import functools
import importlib.util

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper import ArgumentError, LossScaleLogger, LossScaleOptimizer, TooManySkipsError, TraceRecorder

pytestmark = pytest.mark.usefixtures("mixed_float16")

NAMES = ("loss_scale", "skipped_steps", "skip_rate")
GOOD, BAD = 1.0, np.inf
HAS_TENSORBOARD = importlib.util.find_spec("tensorboard") is not None


def wrapped(loss_scale="dynamic", **options):
    return LossScaleOptimizer(tf.keras.optimizers.SGD(0.5), loss_scale, **options)


def test_history_has_the_scale_and_the_skips(one_weight, run_eagerly):
    """At the end of each epoch: the scale, skipped steps since the beginning, and the share of this epoch's."""
    trained = one_weight().compile(wrapped(), 1.0, run_eagerly)
    first = trained.fit([GOOD, BAD, GOOD, BAD], epochs=2, callbacks=[LossScaleLogger()]).history
    assert {name: first[name] for name in NAMES} == {
        "loss_scale": [2.0**13, 2.0**11],
        "skipped_steps": [2, 4],
        "skip_rate": [0.5, 0.5],
    }
    second = trained.fit([GOOD, BAD, GOOD, GOOD], callbacks=[LossScaleLogger()]).history
    assert {name: second[name] for name in NAMES} == {
        "loss_scale": [2.0**10],
        "skipped_steps": [5],
        "skip_rate": [0.25],
    }


def test_csv_logger_writes_them(one_weight, tmp_path):
    """CSVLogger after it has a column for each."""
    path = tmp_path / "log.csv"
    callbacks = [LossScaleLogger(), tf.keras.callbacks.CSVLogger(str(path))]
    one_weight().compile(wrapped(), 1.0).fit([GOOD, BAD], epochs=2, callbacks=callbacks)
    with open(str(path), newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [[float(row[name]) for name in NAMES] for row in rows] == [[2.0**14, 1, 0.5], [2.0**13, 2, 0.5]]


def test_the_progress_bar_shows_them(one_weight, capsys):
    """On the last line of an epoch stand the names and the scale."""
    trained = one_weight().compile(wrapped({"name": "dynamic", "initial_loss_scale": 64.0}), 1.0)
    inputs = np.array([[GOOD], [BAD]], np.float32)
    trained.model.fit(inputs, inputs, batch_size=1, shuffle=False, verbose=1, callbacks=[LossScaleLogger()])
    shown = capsys.readouterr().out
    assert "loss_scale: 32.0000" in shown
    assert "skip_rate: 0.5000" in shown
    assert "skipped_steps: 1" in shown


@pytest.mark.skipif(not HAS_TENSORBOARD, reason="TensorBoard is not installed, which newer TensorFlows come without")
def test_tensorboard_gets_them(one_weight, tmp_path):
    """Its events have the scale of each epoch."""
    board = tf.keras.callbacks.TensorBoard(str(tmp_path), profile_batch=0)
    one_weight().compile(wrapped(), 1.0).fit([GOOD, BAD], epochs=2, callbacks=[LossScaleLogger(), board])
    found = {}
    for path in tmp_path.glob("**/events.*"):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                if value.tag == "epoch_loss_scale":
                    is_tensor = value.HasField("tensor")
                    found[event.step] = tf.make_ndarray(value.tensor).item() if is_tensor else value.simple_value
    assert found == {0: 2.0**14, 1: 2.0**13}


class Watching(tf.keras.callbacks.Callback):
    """A callback that records the logs of batches."""

    def __init__(self):
        super().__init__()
        self._supports_tf_logs = True
        self.scales = []

    def on_train_batch_end(self, batch, logs=None):
        self.scales.append((logs or {}).get("loss_scale"))


def test_it_reads_every_so_many_batches_if_asked(one_weight):
    """Between them the logs are left alone: nothing asks the device.

    From 2.4 to 2.6 the progress bar comes before all callbacks, and gets what is in the logs of the last batch.
    """
    watching = Watching()
    trained = one_weight().compile(wrapped(), 1.0)
    trained.fit([GOOD, BAD, GOOD, BAD, GOOD], callbacks=[LossScaleLogger(every=2), watching])
    last = 2.0**13 if tf.__version__.startswith(("2.4.", "2.5.", "2.6.")) else None
    assert watching.scales == [None, 2.0**14, None, 2.0**13, last]


@pytest.mark.parametrize("every", [0, -1, 1.5, True, "2"], ids=str)
def test_a_wrong_number_is_refused(every):
    """The error says what was given."""
    with pytest.raises(ArgumentError, match="every"):
        LossScaleLogger(every=every)


@pytest.mark.parametrize("callback", [LossScaleLogger, lambda: TraceRecorder("never.csv")], ids=["logger", "recorder"])
def test_another_optimizer_is_refused(one_weight, callback):
    """A model that is not compiled with our optimizer has nothing to read; the error says what to do."""
    tf.keras.backend.clear_session()
    trained = one_weight(dtype="float32").compile(tf.keras.optimizers.SGD(0.5), 1.0)
    given = type(trained.model.optimizer).__name__  # Keras may have wrapped it in its own
    with pytest.raises(ArgumentError, match=f"compiled with {given}"):
        trained.fit(callbacks=[callback()])


def test_a_run_that_is_stuck_ends(one_weight, monkeypatch):
    """The callback asks the optimizer at each of its reports, so a graph without a stop ends there."""
    optimizer = wrapped()
    trained = one_weight().compile(optimizer, 1.0)
    trained.fit([BAD] * 3)
    monkeypatch.setattr(optimizer, "raise_if_stuck", functools.partial(optimizer.raise_if_stuck, 4))
    with pytest.raises(TooManySkipsError) as caught:
        trained.fit([BAD] * 3, callbacks=[LossScaleLogger(every=2)])
    assert (caught.value.skipped_in_a_row, caught.value.step) == (5, 5)


def test_a_fit_that_is_stuck_ends_without_a_callback(one_weight, run_eagerly):
    """An eager step raises our error, a traced one TensorFlow's; both say what is wrong."""
    trained = one_weight().compile(wrapped(stop_after_skips=3), 1.0, run_eagerly)
    kinds = (TooManySkipsError, tf.errors.InvalidArgumentError)
    with pytest.raises(kinds, match="3.steps.in.a.row.were.skipped"):
        trained.fit([GOOD, BAD, BAD, BAD, GOOD])
    assert trained.weight == 0.5


def test_a_trace_is_recorded(one_weight, run_eagerly, tmp_path):
    """For each step the largest unscaled gradient, infinity where it overflowed, and the scale it was taken at."""
    path = str(tmp_path / "run.csv")
    trained = one_weight().compile(wrapped(), 1.0, run_eagerly)
    trained.fit([1.5, BAD, 0.0], callbacks=[TraceRecorder(path)])
    trace = scalekeeper.read_trace(path)
    assert trace.largest.tolist() == [1.5, np.inf, 0.0]
    assert trace.scale.tolist() == [2.0**15, 2.0**15, 2.0**14]
    assert trace.zero_share.tolist() == [0.0, 0.0, 1.0]
    assert trace.facts["written_by"]["tensorflow"] == tf.__version__


def test_a_trace_goes_on_in_a_second_fit(one_weight, run_eagerly, tmp_path):
    """A recorder that comes to a model which was trained before sees its steps too, and adds to what it has."""
    trained = one_weight().compile(wrapped("none"), 1.0, run_eagerly)
    trained.fit([1.0, 1.0])
    recorder = TraceRecorder(str(tmp_path / "run.npz"))
    if not hasattr(trained.model, "make_train_function") and not run_eagerly:  # up to 2.1
        with pytest.raises(ArgumentError, match="not measured"):
            trained.fit([4.0], callbacks=[recorder])
        trained.compile(trained.model.optimizer, 1.0)
    trained.fit([4.0, 8.0], callbacks=[recorder])
    trained.fit([16.0], callbacks=[recorder])
    trace = scalekeeper.read_trace(str(tmp_path / "run.npz"))
    assert trace.largest.tolist() == [4.0, 8.0, 16.0]
    assert trace.scale.tolist() == [1.0, 1.0, 1.0]
