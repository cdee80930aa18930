"""What a policy does with a run's gradients: recorded or made up, and without TensorFlow."""

from .. import lossscales as lossscales  # whole, before a part: docs/architecture.md, "Decisions worth knowing"
from ._recommendation import Recommendation as Recommendation
from ._recommendation import recommend as recommend
from ._result import Simulation as Simulation
from ._simulator import simulate as simulate
from ._simulator import simulate_every_step as simulate_every_step
from ._synthetic_traces import MODELS as MODELS
from ._synthetic_traces import overflowing_above as overflowing_above
from ._synthetic_traces import parse_model as parse_model
from ._synthetic_traces import synthetic as synthetic
from ._trace_files import read_trace as read_trace
from ._trace_files import write_trace as write_trace
from ._trace_writer import TraceWriter as TraceWriter
from ._traces import Trace as Trace
