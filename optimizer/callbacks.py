"""Callbacks for ``fit``: complete checkpoints, the loss scale in the logs, and the gradients of a run in a file."""

from typing import Any, Dict, Iterator, Optional

import contextlib
import math

import tensorflow as tf

from ..registry.errors import ArgumentError
from ..serialization.models import save_model, save_weights
from ..simulation._trace_writer import TraceWriter
from ._state.state_transfer import installed_versions
from .loss_scale_optimizer import LossScaleOptimizer

__all__ = ["LossScaleLogger", "ModelCheckpoint", "TraceRecorder"]

_TRACED = ("largest_magnitude", "zero_share")


def _is_progress_bar_first() -> bool:
    """Return whether Keras calls the progress bar before the callbacks of the caller: in 2.4 to 2.6."""
    callbacks = getattr(tf.keras.callbacks, "CallbackList", None)  # up to 2.2 it is not public
    if callbacks is None:
        return False
    first = callbacks([tf.keras.callbacks.Callback()], add_progbar=True).callbacks[0]
    return isinstance(first, tf.keras.callbacks.ProgbarLogger)


_PROGRESS_BAR_IS_FIRST = _is_progress_bar_first()


class ModelCheckpoint(tf.keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """Keras's ``ModelCheckpoint``, with files that are complete and written atomically.

    A whole model is saved by :func:`scalekeeper.save_model`. With ``save_weights_only=True``, the file also holds the
    state of the optimizer, which ``scalekeeper.restore(model, path)`` restores.

    Args:
        filepath: The path, with fields such as ``{epoch}``, as for Keras's callback.
        *arguments: Arguments of Keras's callback.
        probe: Whether to record a probe of a whole model; see :func:`scalekeeper.save_model`.
        **options: The other arguments of Keras's callback: ``monitor``, ``save_best_only``, ``save_freq``, …

    Raises:
        ArgumentError: ``options`` of TensorFlow are given for whole models.

    Example:
        >>> import numpy as np
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
        >>> model.compile(scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1)), "mse")
        >>> x, y = np.ones((8, 2), "float32"), np.ones((8, 1), "float32")
        >>> history = model.fit(x, y, verbose=0, callbacks=[scalekeeper.ModelCheckpoint("model-{epoch}.h5")])
        >>> scalekeeper.inspect("model-1.h5").iterations
        1
    """

    __module__ = "scalekeeper"  # its public address

    def __init__(self, filepath: Any, *arguments: Any, probe: bool = True, **options: Any) -> None:
        super().__init__(filepath, *arguments, **options)
        self._records_probe = probe
        if options.get("options") is not None and not self.save_weights_only:
            raise ArgumentError(
                "options of TensorFlow are for Keras's own writer, and scalekeeper.save_model writes whole models: "
                "omit them, or give save_weights_only=True"
            )

    def _save_model(self, *arguments: Any, **more: Any) -> None:
        """Save as Keras's callback does, and if it would."""
        with self._saving_completely():
            super()._save_model(*arguments, **more)

    @contextlib.contextmanager
    def _saving_completely(self) -> Iterator[None]:
        """Let Keras's callback save a model through scalekeeper in the block."""
        attribute = "_model" if "_model" in vars(self) else "model"
        model = getattr(self, attribute)
        setattr(self, attribute, _CompleteModel(model, self._records_probe))
        try:
            yield
        finally:
            setattr(self, attribute, model)


class _CompleteModel:
    """A model as Keras's ``ModelCheckpoint`` uses it, whose files scalekeeper writes."""

    def __init__(self, model: Any, records_probe: bool) -> None:
        self._model, self._records_probe = model, records_probe

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def save(self, path: Any, **options: Any) -> None:
        save_model(self._model, path, probe=self._records_probe)

    def save_weights(self, path: Any, **options: Any) -> None:
        save_weights(self._model, path, **options)


class _LossScaleCallback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """A callback for models that are compiled with a LossScaleOptimizer."""

    __module__ = "scalekeeper"  # its public address

    @property
    def _optimizer(self) -> Any:
        optimizer = getattr(self.model, "optimizer", None)
        if not isinstance(optimizer, LossScaleOptimizer):
            raise ArgumentError(
                f"{type(self).__name__} needs a scalekeeper.LossScaleOptimizer, and the model is compiled with "
                f"{type(optimizer).__name__}: wrap it, LossScaleOptimizer(optimizer, 'dynamic')"
            )
        return optimizer


class LossScaleLogger(_LossScaleCallback):
    """Adds ``loss_scale``, ``skipped_steps`` and ``skip_rate`` to the logs of ``fit``.

    The progress bar, History, CSVLogger and TensorBoard show them. ``skipped_steps`` counts since the beginning of
    training, ``skip_rate`` is the share of skipped steps in this epoch. The values are read from the device once per
    epoch, and after every ``every`` batches. Each time, a run that has reached ``stop_after_skips`` ends with an error.
    Put this callback first: callbacks before it do not see what it adds.

    Args:
        every: The number of batches after which the logs are updated within an epoch; None for once per epoch only.

    Raises:
        ArgumentError: If ``every`` is not a positive integer.

    Example:
        >>> import numpy as np
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
        >>> model.compile(scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1)), "mse")
        >>> x, y = np.ones((8, 2), "float32"), np.ones((8, 1), "float32")
        >>> history = model.fit(x, y, verbose=0, callbacks=[scalekeeper.LossScaleLogger(every=100)])
        >>> history.history["loss_scale"], history.history["skipped_steps"]
        ([32768.0], [0])
    """

    def __init__(self, every: Optional[int] = None) -> None:
        super().__init__()
        self._supports_tf_logs = True  # Keras passes the logs that the progress bar shows, not a copy
        if every is not None and (isinstance(every, bool) or not isinstance(every, int) or every < 1):
            raise ArgumentError(f"every is {every!r}; expected a number of batches of at least 1, or None")
        self.every = every
        self._batches = self._steps = self._skipped = 0

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        """Check the optimizer, and announce the names: up to 2.1 the progress bar needs them before training."""
        _ = self._optimizer
        shown = (self.params or {}).get("metrics")
        if isinstance(shown, list):
            shown += [name for name in ("loss_scale", "skipped_steps", "skip_rate") if name not in shown]

    def on_epoch_begin(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Record the counters at the beginning of the epoch."""
        telemetry = self._optimizer.telemetry
        self._batches, self._steps, self._skipped = 0, telemetry.steps, telemetry.skipped

    def on_train_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Update the logs after every ``every`` batches."""
        self._batches += 1
        is_due = self.every is not None and self._batches % self.every == 0
        if is_due or (_PROGRESS_BAR_IS_FIRST and self._can_be_last_batch()):
            self._update(logs)

    def _can_be_last_batch(self) -> bool:
        """Return whether the epoch may end with this batch; Keras copies the logs of the last one for the epoch."""
        batches = (self.params or {}).get("steps")
        return batches is None or self._batches >= batches

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Update the logs."""
        self._update(logs)

    def _update(self, logs: Optional[Dict[str, Any]]) -> None:
        optimizer = self._optimizer
        optimizer.raise_if_stuck()
        telemetry = optimizer.telemetry
        steps, skipped = telemetry.steps - self._steps, telemetry.skipped - self._skipped
        if logs is not None:
            logs["loss_scale"] = telemetry.loss_scale
            logs["skipped_steps"] = telemetry.skipped
            logs["skip_rate"] = skipped / steps if steps else 0.0


class TraceRecorder(_LossScaleCallback):
    """Writes statistics of the gradients of every step to a ``.csv`` or ``.npz`` file.

    ``scalekeeper simulate --trace`` and ``scalekeeper recommend`` read it. The gradients are read once more, and values
    are read from the device after each batch: use it for a part of a run. For a step that overflows, only the loss
    scale is known; with a low scale (``LossScaleOptimizer(optimizer, "none")``) fewer steps overflow.

    Args:
        path: The file.
        resume: Whether to continue an existing file.
        flush_seconds: How often the file is written, in seconds.

    Versions:
        Up to TensorFlow 2.1, a second ``fit`` with this callback traces no steps.

    Example:
        >>> import numpy as np
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
        >>> model.compile(scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1)), "mse")
        >>> x, y = np.ones((8, 2), "float32"), np.ones((8, 1), "float32")
        >>> history = model.fit(x, y, batch_size=4, verbose=0, callbacks=[scalekeeper.TraceRecorder("trace.csv")])
        >>> len(scalekeeper.read_trace("trace.csv"))
        2
    """

    def __init__(self, path: Any, *, resume: bool = False, flush_seconds: float = 60.0) -> None:
        super().__init__()
        facts = {"written_by": installed_versions()}
        self._writer = TraceWriter(path, facts=facts, resume=resume, flush_seconds=flush_seconds)
        self._steps, self._scale = 0, 1.0

    def set_model(self, model: Any) -> None:
        """Measure the steps that are traced from now on. Up to 2.1, a second ``fit`` traces none."""
        super().set_model(model)
        if self._optimizer._monitor.watch(_TRACED) and getattr(model, "train_function", None) is not None:
            model.train_function = None  # Keras traces it again

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        """Record the counters at the beginning of training."""
        telemetry = self._optimizer.telemetry
        self._steps, self._scale = telemetry.steps, telemetry.loss_scale

    def on_train_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Add one step to the trace.

        Raises:
            ArgumentError: If the step was traced before this callback was set, or several steps were taken at once.
        """
        telemetry = self._optimizer.telemetry
        largest, zero_share = telemetry.largest_magnitude, telemetry.zero_share
        if largest is None or zero_share is None or math.isnan(zero_share):
            raise ArgumentError(
                "the steps are not measured: they were traced before TraceRecorder was set. Compile the model again, "
                f"or create the optimizer with watch={list(_TRACED)}"
            )
        if telemetry.steps != self._steps + 1:
            raise ArgumentError(
                f"{telemetry.steps - self._steps} steps were taken in one batch, and TraceRecorder expects one: "
                "compile the model with steps_per_execution=1, and without accumulating gradients"
            )
        self._writer.append(largest, self._scale, zero_share)
        self._steps, self._scale = telemetry.steps, telemetry.loss_scale

    def on_train_end(self, logs: Optional[Dict[str, Any]] = None) -> None:
        """Write the rest of the trace."""
        self._writer.flush()
