"""Diagnosis of float16: figures, findings and advice from what was recorded of a run. Imports no TensorFlow."""

from .. import registry as registry  # whole, before a part of it: docs/architecture.md, "Decisions worth knowing"
from .. import simulation as simulation  # likewise
from ._magnitudes import Spread
from ._recording import Origin
from ._result import Diagnosis, LayerFigures
from ._rules import Finding

__all__ = ["Diagnosis", "Finding", "LayerFigures", "Origin", "Spread"]
