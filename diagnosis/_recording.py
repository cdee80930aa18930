"""Records of a model's run: plain numbers and names, without TensorFlow."""

from typing import Dict, List, Mapping, NamedTuple, Optional, Set, Tuple

from types import MappingProxyType

from ._magnitudes import Magnitudes

LOSS = "loss"  # what is computed outside of the layers
FORWARD, BACKWARD = "forward", "backward"
ACTIVATIONS, GRADIENTS, WEIGHTS, WEIGHT_GRADIENTS = "activations", "gradients", "weights", "weight_gradients"
KINDS = (ACTIVATIONS, GRADIENTS, WEIGHTS, WEIGHT_GRADIENTS)


class LayerRecord:
    """The record of one layer.

    Attributes:
        path: The names of the layers around it and its own, joined by slashes.
        cls: The name of its class.
        is_built_in: Whether the class belongs to Keras.
        compute_dtype: The type that the layer computes in, in the caller's model.
        variable_dtype: The type of its variables.
        trainable: Whether the layer is trainable.
        output_dtypes: The types of its outputs.
        magnitudes: The counted magnitudes, by kind.
        disconnected: The variables that training asks for a gradient of and that have none.
        asked: The number of variables that training asks for a gradient of.
    """

    def __init__(self, path: str, cls: str, is_built_in: bool, compute_dtype: str, variable_dtype: str) -> None:
        self.path, self.cls, self.is_built_in = path, cls, is_built_in
        self.compute_dtype, self.variable_dtype = compute_dtype, variable_dtype
        self.trainable = True
        self.output_dtypes: Set[str] = set()
        self.magnitudes: Dict[str, Magnitudes] = {}
        self.disconnected: Set[str] = set()
        self.asked = 0

    def counted(self, kind: str) -> Magnitudes:
        """Return the counter of a kind."""
        return self.magnitudes.setdefault(kind, Magnitudes())


class Operation(NamedTuple):
    """An operation of a layer: the layer, the type of the operation, and forward or backward."""

    layer: str
    type: str
    phase: str


class OperationRecord:
    """The record of an operation.

    Attributes:
        largest: The largest finite magnitude of its results, and of sums that it computes on the way.
        is_sum_inside: Whether the largest one is such a sum.
        overflowed: Whether a result was not finite.
        smallest_divisor: The smallest magnitude above zero of what it divides by, or takes the logarithm of.
        dtypes: The types of its results.
    """

    def __init__(self) -> None:
        self.largest = 0.0
        self.is_sum_inside = False
        self.overflowed = False
        self.smallest_divisor: Optional[float] = None
        self.dtypes: Set[str] = set()


class Constant(NamedTuple):
    """A constant that an operation adds or compares with, before it is cast."""

    layer: str
    operation: str
    value: float


class Origin(NamedTuple):
    """Where the first non-finite number came from.

    Attributes:
        layer: The path of the layer, or ``loss``.
        operation: The type of the operation; None if it is not known.
        phase: ``forward`` or ``backward``.
        batch: The number of the batch, from 0.
        samples: The samples of the batch whose results are not finite, if that can be told.

    Example:
        >>> from scalekeeper.diagnosis import Origin
        >>> origin = Origin("dense", "Log", "forward", batch=0, samples=(3, 5))
        >>> origin.layer, origin.samples
        ('dense', (3, 5))
    """

    layer: str
    operation: Optional[str]
    phase: str
    batch: int
    samples: Tuple[int, ...] = ()


class BadData(NamedTuple):
    """An input, target or weight of the data that float16 cannot hold: NaN, infinite, or above 65504.

    Attributes:
        name: The name of the input, or ``y`` or ``sample_weight``.
        is_finite: Whether all numbers are finite.
        samples: The first samples with such numbers.
        largest: The largest finite magnitude.
        others: The number of samples with such numbers that are not among the first ones.
    """

    name: str
    is_finite: bool
    samples: Tuple[int, ...]
    largest: float
    others: int = 0


class RunRecord:
    """One run of some batches.

    Attributes:
        layers: The layers in the order in which they were called first.
        operations: The operations of the layers.
        constants: Constants that are added or compared with.
        origin: Where the first non-finite number came from; None if loss and gradients are finite.
        batches: The number of batches.
        largest_gradients: The largest gradient of each batch, of those that float16 would hold.
        is_float32: Whether every layer computed in float32.
    """

    def __init__(self) -> None:
        self.layers: Dict[str, LayerRecord] = {}
        self.operations: Dict[Operation, OperationRecord] = {}
        self.constants: Set[Constant] = set()
        self.origin: Optional[Origin] = None
        self.batches = 0
        self.largest_gradients: List[float] = []
        self.is_float32 = False


class ScaleFacts(NamedTuple):
    """The loss scaling of the model's optimizer.

    Attributes:
        scale: The loss scale in use; None without loss scaling.
        adapts: Whether the policy changes it after an overflow.
        epsilon: The epsilon of the inner optimizer, if it has one.
        overflows: Layer → how often gradients of its variables were not finite, if the optimizer attributes overflows.
        settled: The loss scale that the policy would have come down to, if it adapts and the one in use overflows.
        settled_origin: Where the one in use overflowed first.
    """

    scale: Optional[float] = None
    adapts: bool = False
    epsilon: Optional[float] = None
    overflows: Mapping[str, int] = MappingProxyType({})
    settled: Optional[float] = None
    settled_origin: Optional[Origin] = None
