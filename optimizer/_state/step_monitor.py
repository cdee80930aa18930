"""The part of a LossScaleOptimizer that keeps an eye on its steps."""

from typing import Any, Dict, Iterable, Optional

import numpy as np
import tensorflow as tf

from ...registry._monitor_options import Monitoring
from ...registry.errors import TooManySkipsError
from ...serialization._skip_record import IN_A_ROW, LAST, TOTAL
from ...serialization._variable_io import value_of
from .._step.gate import ADVANCE
from .._step.graph_state import make_variable
from .iterations_on_skip import SkippedSteps
from .skip_counters import Skips
from .state_transfer import tensorflow_variable
from .telemetry import Telemetry


class Monitored:
    """A base of LossScaleOptimizer: telemetry, and an end to a run that goes nowhere."""

    inner_optimizer: Any
    _policy: Any
    _skipping: SkippedSteps
    _monitoring: Monitoring
    _skips: Skips

    def _monitor(self, monitoring: Monitoring) -> None:
        self._monitoring = monitoring
        self._skips = Skips(self._monitoring)
        # not by setattr: what Keras finds in an attribute, it saves
        self.__dict__["_scalekeeper_watched"] = {}
        self._watch(self._monitoring.watch)

    @property
    def _watched(self) -> Dict[str, Any]:
        watched: Dict[str, Any] = self.__dict__["_scalekeeper_watched"]
        return watched

    def _watch(self, names: Iterable[str]) -> bool:
        """Measure this of every step that is traced from now on; says whether that is new."""
        new = [name for name in names if name not in self._watched]
        for name in new:
            self._watched[name] = make_variable(name, np.float32("nan"))  # until a step is measured
        return bool(new)

    # In a step

    def _counted_steps(self) -> Any:
        """TensorFlow's variable that counts the inner optimizer's steps."""
        return tensorflow_variable(self.inner_optimizer.iterations)

    def _count_skipped(self, key: Any, bad: Any) -> Any:
        """What happens when a step is skipped, and nothing else does."""
        is_counted = self._skipping.variable.read_value() > 0
        iterations = tf.cast(self._counted_steps().read_value(), tf.int64)
        counted = self._skips.count(iterations, is_counted, self._policy(), key, bad)
        with tf.control_dependencies([] if tf.executing_eagerly() else [iterations]):
            return [*counted, self._skip()]

    def _skip(self) -> Any:
        return self._skipping.skip(self.inner_optimizer.iterations)

    # Between steps

    @property
    def telemetry(self) -> Telemetry:
        """Steps, skipped steps and what else is watched, as it is now: the device is asked when this is read."""
        counters = self._read_counters()
        measured = {name: float(value_of(variable)) for name, variable in self._watched.items()}
        return Telemetry(
            steps=counters["steps"],
            skipped=counters[TOTAL],
            skipped_in_a_row=counters[IN_A_ROW],
            last_skipped_step=counters[LAST] or None,
            loss_scale=self._scale_now(),
            overflows=self._skips.overflows() if self._monitoring.attribute_overflows else {},
            last_overflows=self._skips.last_overflows(),
            largest_magnitude=measured.get("largest_magnitude"),
            zero_share=measured.get("zero_share"),
        )

    def raise_if_stuck(self, after: Optional[int] = None) -> None:
        """Raise :class:`TooManySkipsError` if the last ``after`` steps, or more, were all skipped.

        Without a number it is ``stop_after_skips``; without that, nothing is ever enough.
        """
        after = self._monitoring.stop_after_skips if after is None else after
        if after is None:
            return
        counters = self._read_counters()
        if counters[IN_A_ROW] >= after:
            raise TooManySkipsError(
                counters[IN_A_ROW], counters["steps"], self._scale_now(), self._skips.last_overflows()
            )

    def _read_counters(self) -> Dict[str, int]:
        is_counted = self._skipping.choice == ADVANCE
        return self._skips.read(int(value_of(self._counted_steps())), is_counted)

    def _scale_now(self) -> float:
        scale = self._policy()
        return float(scale if tf.executing_eagerly() else tf.keras.backend.get_value(scale))

    # For the generations' files

    def _in_file(self, is_saved_model: bool) -> Dict[str, Any]:
        """Children that our files have and TensorFlow's own do without."""
        watched = {f"watched_{name}": variable for name, variable in self._watched.items()}
        return {
            **self._skipping.in_file(is_saved_model),
            **self._skips.in_file(is_saved_model),
            **(watched if is_saved_model else {}),
        }
