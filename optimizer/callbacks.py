"""Callbacks for ``fit``: what the loss scale does, in the logs and in a file."""

from typing import Any, Dict, Optional

import math

import tensorflow as tf

from ..simulation._trace_writer import TraceWriter
from ._state.state_transfer import versions
from .loss_scale_optimizer import LossScaleOptimizer

_TRACED = ("largest_magnitude", "zero_share")


class _Callback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """What both have in common: they need our optimizer."""

    __module__ = "scalekeeper"  # its public address

    @property
    def _optimizer(self) -> Any:
        optimizer = getattr(self.model, "optimizer", None)
        if not isinstance(optimizer, LossScaleOptimizer):
            raise ValueError(
                f"{type(self).__name__} reads a scalekeeper.LossScaleOptimizer, and the model is compiled with "
                f"{type(optimizer).__name__}: wrap it, LossScaleOptimizer(optimizer, 'dynamic')"
            )
        return optimizer


class LossScaleLogger(_Callback):
    """Puts ``loss_scale``, ``skipped_steps`` and ``skip_rate`` into the logs: for the progress bar, History, CSVLogger
    and TensorBoard.

    ``skipped_steps`` counts since the beginning of training, ``skip_rate`` is the share of this epoch's steps. The
    device is asked once per epoch, or also every so many batches, if ``every`` says so. Each time, a run that is stuck
    (see ``stop_after_skips``) ends with an error. It stands first among the callbacks: those before it do not see what
    it adds.
    """

    def __init__(self, every: Optional[int] = None) -> None:
        super().__init__()
        self._supports_tf_logs = True  # so that it gets the very logs that the progress bar gets
        if every is not None and (isinstance(every, bool) or not isinstance(every, int) or every < 1):
            raise ValueError(f"every is {every!r}, and should be a number of batches from 1 on, or None")
        self.every = every
        self._batches = self._steps = self._skipped = 0

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        """Up to 2.1 the progress bar shows what it is told of before training."""
        _ = self._optimizer
        shown = (self.params or {}).get("metrics")
        if isinstance(shown, list):
            shown += [name for name in ("loss_scale", "skipped_steps", "skip_rate") if name not in shown]

    def on_epoch_begin(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Remember where the epoch begins."""
        telemetry = self._optimizer.telemetry
        self._batches, self._steps, self._skipped = 0, telemetry.steps, telemetry.skipped

    def on_train_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Every so many batches, if that was asked for."""
        self._batches += 1
        if self.every is not None and self._batches % self.every == 0:
            self._tell(logs)

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Once per epoch."""
        self._tell(logs)

    def _tell(self, logs: Optional[Dict[str, Any]]) -> None:
        optimizer = self._optimizer
        optimizer.raise_if_stuck()
        telemetry = optimizer.telemetry
        steps, skipped = telemetry.steps - self._steps, telemetry.skipped - self._skipped
        if logs is not None:
            logs["loss_scale"] = telemetry.loss_scale
            logs["skipped_steps"] = telemetry.skipped
            logs["skip_rate"] = skipped / steps if steps else 0.0


class TraceRecorder(_Callback):
    """Writes what the gradients of a run are like, step by step, to a ``.csv`` or ``.npz`` file.

    ``scalekeeper simulate --trace`` and ``scalekeeper recommend`` read it. The gradients are looked at once more, and
    the device is asked after each batch: it is meant for a part of a run. Of a step that overflows, only the scale at
    which it did is known: with a low scale (``LossScaleOptimizer(optimizer, "none")``) more is.
    """

    def __init__(self, path: Any, *, resume: bool = False, flush_seconds: float = 60.0) -> None:
        super().__init__()
        self._writer = TraceWriter(path, facts={"written_by": versions()}, resume=resume, flush_seconds=flush_seconds)
        self._steps, self._scale = 0, 1.0

    def set_model(self, model: Any) -> None:
        """Have the steps measured: those that are traced from now on. Up to 2.1, a second ``fit`` traces none."""
        super().set_model(model)
        if self._optimizer._watch(_TRACED) and getattr(model, "train_function", None) is not None:
            model.train_function = None  # Keras traces it anew

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        """Remember where training begins."""
        telemetry = self._optimizer.telemetry
        self._steps, self._scale = telemetry.steps, telemetry.loss_scale

    def on_train_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """One step more."""
        telemetry = self._optimizer.telemetry
        largest, zero_share = telemetry.largest_magnitude, telemetry.zero_share
        if largest is None or zero_share is None or math.isnan(zero_share):
            raise ValueError(
                "the steps are not measured: they were traced before there was a TraceRecorder. Compile the model "
                f"anew, or make the optimizer with watch={list(_TRACED)}"
            )
        if telemetry.steps != self._steps + 1:
            raise ValueError(
                f"{telemetry.steps - self._steps} steps were taken where TraceRecorder saw one: compile the model with "
                "steps_per_execution=1, and without accumulating gradients"
            )
        self._writer.append(largest, self._scale, zero_share)
        self._steps, self._scale = telemetry.steps, telemetry.loss_scale

    def on_train_end(self, logs: Optional[Dict[str, Any]] = None) -> None:
        """Write what is not written yet."""
        self._writer.flush()
