"""What a policy does with a run's gradients: recorded or made up, and without TensorFlow."""

from .trace_files import read_trace as read_trace
from .trace_files import write_trace as write_trace
from .trace_writing import TraceWriter as TraceWriter
from .traces import Trace as Trace
