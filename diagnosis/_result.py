"""The result of a diagnosis."""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import math

from ..simulation._recommendation import recommend
from ..simulation._traces import Trace
from ._magnitudes import Spread
from ._recording import BACKWARD, BadData, Origin, RunRecord, ScaleFacts
from ._rules import DIFFERENT, NOTE, Evidence, Finding, LayerSpreads, findings_of, spreads_of


class LayerFigures(NamedTuple):
    """The figures of a layer.

    Attributes:
        path: The names of the layers around it and its own, joined by slashes.
        cls: The name of its class.
        compute_dtype: The type that it computes in.
        activations: Its outputs, in float32.
        gradients: The gradients of its outputs, in float32 and at a loss scale of 1.
        weights: Its weights.
        weight_gradients: Their gradients, likewise.
        lowest_scale: The smallest power of two at which at most 1 % of its gradients round to zero in float16.
        highest_scale: The largest power of two at which none of its gradients leaves float16's range.

    Example:
        >>> import numpy as np
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
        >>> found = scalekeeper.diagnose(model, np.ones((8, 2), "float32"), np.ones((8, 1), "float32"), loss="mse")
        >>> figures = found.layers[-1]
        >>> figures.compute_dtype, figures.weights.elements
        ('float32', 3)
    """

    path: str
    cls: str
    compute_dtype: str
    activations: Optional[Spread]
    gradients: Optional[Spread]
    weights: Optional[Spread]
    weight_gradients: Optional[Spread]
    lowest_scale: Optional[float]
    highest_scale: Optional[float]


class Diagnosis(NamedTuple):
    """Where a model breaks in float16; printed as a table.

    Attributes:
        findings: Problems with advice, the most severe first. A healthy model has none.
        layers: The figures of each layer, in the order of the first call.
        origin: Where the first non-finite number came from; None if loss and gradients are finite.
        loss_scale: The recommended loss scale; None if no scale suits.
        reason: Why.
        scale_in_use: The loss scale of the model's optimizer; None without loss scaling.
        is_replayed: Whether the model was also run as it is, because layers of it compute in float16.
        difference: How far its outputs in float16 are from those in float32, as a share of the largest; None if
            they were not compared.
        batches: The number of batches.
        notes: The limits of these results.

    Example:
        >>> import numpy as np
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
        >>> found = scalekeeper.diagnose(model, np.ones((8, 2), "float32"), np.ones((8, 1), "float32"), loss="mse")
        >>> found.is_healthy, found.origin, [layer.path for layer in found.layers][-1:] == [model.layers[-1].name]
        (True, None, True)
    """

    findings: Tuple[Finding, ...]
    layers: Tuple[LayerFigures, ...]
    origin: Optional[Origin]
    loss_scale: Optional[float]
    reason: str
    scale_in_use: Optional[float]
    is_replayed: bool
    difference: Optional[float]
    batches: int
    notes: Tuple[str, ...]

    @property
    def is_healthy(self) -> bool:
        """Whether there is no finding but notes."""
        return all(finding.level == NOTE for finding in self.findings)

    @property
    def policy(self) -> Optional[Dict[str, Any]]:
        """The spec of a policy that begins with the recommended loss scale; None if no scale suits."""
        return None if self.loss_scale is None else {"name": "dynamic", "initial_loss_scale": self.loss_scale}

    def for_json(self) -> Dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "healthy": self.is_healthy,
            "findings": [finding._asdict() for finding in self.findings],
            "origin": None if self.origin is None else self.origin._asdict(),
            "loss_scale": self.loss_scale,
            "policy": self.policy,
            "reason": self.reason,
            "scale_in_use": self.scale_in_use,
            "replayed": self.is_replayed,
            "difference": self.difference,
            "batches": self.batches,
            "notes": list(self.notes),
            "layers": [
                {
                    name: value.for_json() if isinstance(value, Spread) else value
                    for name, value in each._asdict().items()
                }
                for each in self.layers
            ],
        }

    def plot(self, path: Any) -> None:
        """Write a picture of all layers and their magnitudes to a ``.png`` or ``.svg`` file, atomically.

        Args:
            path: The file.

        Raises:
            ArgumentError: The path has another ending.
            MissingPackageError: matplotlib is not installed.
        """
        from ._plot import plot

        plot(self, path)

    def __str__(self) -> str:
        from ._table import text_of

        return text_of(self)


def diagnosis_of(
    run: RunRecord,
    replay: Optional[RunRecord],
    bad_data: Sequence[BadData],
    facts: ScaleFacts,
    difference: Optional[float],
    notes: Sequence[str],
) -> Diagnosis:
    """Return the diagnosis of a run in float32 and, of a model that computes in float16, of its own run."""
    layers = [spreads_of(record) for record in run.layers.values() if record.magnitudes or record.asked]
    loss_scale, reason = _recommended(run)
    found = findings_of(Evidence(run, replay, layers, bad_data, facts, loss_scale, difference))
    origin = run.origin or (None if replay is None else replay.origin)
    return Diagnosis(
        tuple(found),
        tuple(map(_figures, layers)),
        origin,
        loss_scale,
        reason,
        facts.scale,
        replay is not None,
        difference,
        run.batches,
        (*notes, *_notes(run, replay, difference)),
    )


def settled_scale(run: RunRecord, replay: RunRecord, facts: ScaleFacts) -> Optional[float]:
    """Return the loss scale that an adapting policy comes down to after a replay overflowed; None if it does not."""
    if not facts.adapts or facts.scale is None or run.origin is not None:
        return None
    if replay.origin is None or replay.origin.phase != BACKWARD:
        return None
    best = _recommended(run)[0]
    return best if best is not None and best < facts.scale else None


def _recommended(run: RunRecord) -> Tuple[Optional[float], str]:
    if run.origin is not None:
        return None, "Loss or gradients are not finite in float32: no loss scale helps."
    largest = [each for each in run.largest_gradients if math.isfinite(each)]
    found = recommend(Trace(largest))
    return found.fixed_scale, found.fixed_reason


def _figures(layer: LayerSpreads) -> LayerFigures:
    record = layer.record
    return LayerFigures(
        record.path,
        record.cls,
        record.compute_dtype,
        *layer[1:],
        layer.lowest_scale,
        layer.highest_scale,
    )


def _notes(run: RunRecord, replay: Optional[RunRecord], difference: Optional[float]) -> List[str]:
    notes = []
    if replay is None:
        notes.append(
            "No layer computes in float16: what would happen there is predicted, and constants and operations of Keras "
            "that adapt to the type are not. Diagnose the model under the dtype policy mixed_float16 to try it."
        )
    elif difference is None:
        notes.append(
            "The outputs in float32 and in float16 could not be compared: they are not all finite, or the model's "
            "train_step does not call the model itself."
        )
    elif difference > DIFFERENT:
        notes.append(
            f"The outputs in float16 differ from those in float32 by {difference:.0%} of the largest: the model is "
            "sensitive to the type, or computes something else in it."
        )
    kept = sorted({operation.layer for operation, each in run.operations.items() if "float16" in each.dtypes})
    if run.is_float32 and kept:
        notes.append(
            f"{', '.join(kept)}: computes in float16 whatever the dtype policy, because of a cast. The figures "
            "do not show what is lost there."
        )
    return notes
