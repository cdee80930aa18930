"""What a policy does with a run's gradients: recorded or made up, and without TensorFlow."""

from .. import lossscales as lossscales  # whole, before a part: docs/architecture.md, "Decisions worth knowing"
from .recommending import Recommendation as Recommendation
from .recommending import recommend as recommend
from .results import Simulation as Simulation
from .simulator import simulate as simulate
from .simulator import simulate_every_step as simulate_every_step
from .synthetic import MODELS as MODELS
from .synthetic import overflowing_above as overflowing_above
from .synthetic import parse_model as parse_model
from .synthetic import synthetic as synthetic
from .trace_files import read_trace as read_trace
from .trace_files import write_trace as write_trace
from .trace_writing import TraceWriter as TraceWriter
from .traces import Trace as Trace
