"""Simulation of policies on recorded or synthetic gradients, without TensorFlow."""

from .. import lossscales as lossscales  # whole, before a part: docs/architecture.md, "Decisions worth knowing"
from ._recommendation import Recommendation, recommend
from ._result import Simulation
from ._simulator import simulate, simulate_every_step
from ._sweep import Sweep, SweepPoint, sweep
from ._synthetic_traces import MODELS, overflowing_above, parse_model, synthetic
from ._trace_files import read_trace, write_trace
from ._trace_writer import TraceWriter
from ._traces import Trace

__all__ = [
    "MODELS",
    "Recommendation",
    "Simulation",
    "Sweep",
    "SweepPoint",
    "Trace",
    "TraceWriter",
    "overflowing_above",
    "parse_model",
    "read_trace",
    "recommend",
    "simulate",
    "simulate_every_step",
    "sweep",
    "synthetic",
    "write_trace",
]
