"""The probe in a scalekeeper record: the rule that makes its inputs, digests of results, comparison, validation.

The inputs are not in the file. Element ``i`` of input ``k`` is made from the 64-bit integer
``mix((k + 1) * 2**32 + i)``, where ``mix`` is the finalizer of SplitMix64: three xor-shifts and two multiplications
modulo 2**64. Its highest byte ``b`` becomes ``b / 128 - 1`` in a floating-point type, which float16 and bfloat16 hold
exactly, ``b % below`` in an integer type or for an Embedding layer, and ``b % 2`` in a boolean one. The same rule
gives the signs of a projection. It never changes: files depend on it.
"""

from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

import functools
import math
import operator

import numpy as np

from ..registry.errors import Problem, shown

PROBE = "probe"  # the key of the record
RULE = 1  # the number of the rule above

FLOATS = ("bfloat16", "float16", "float32", "float64")
# integer types and the number of values that an input has if nothing else is known
INTEGERS = {"uint8": 256, "int8": 2, "int16": 2, "int32": 2, "int64": 2, "uint16": 2, "uint32": 2, "uint64": 2}
BOOLEAN = "bool"
MOST_ELEMENTS = 2**24  # of an input
MOST_INPUTS = 64
_FIRST = 64  # values of an output that are recorded
_MOST_LAYERS = 256  # recorded ones; of a deeper model every second, third, … layer
_SAMPLE = 2**14  # the most elements that a digest is made from


class Digest(NamedTuple):
    """The digest of an array: a projection on signs, the root mean square, the number of non-finite values."""

    projection: float
    rms: float
    non_finite: int

    def difference(self, other: "Digest") -> float:
        """Return the difference; infinite if other values are not finite."""
        if self.non_finite != other.non_finite:
            return math.inf
        return max(abs(self.projection - other.projection), abs(self.rms - other.rms))


class Computed(NamedTuple):
    """The outputs of a model for a probe's inputs."""

    outputs: List[Any]  # arrays
    layers: Dict[str, List[Digest]]  # in the order of computation


# The rule that makes numbers


def mixed(first: int, count: int) -> Any:
    """Return the highest bytes of ``mix(first)``, ``mix(first + 1)``, … as int64."""
    bits = np.arange(count, dtype=np.uint64) + np.uint64(first)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    bits = bits ^ (bits >> np.uint64(31))
    return (bits >> np.uint64(56)).astype(np.int64)


def values(index: int, spec: Mapping[str, Any]) -> Any:
    """Return the values of the input with an index: float64, int64 or bool."""
    shape, dtype = spec["shape"], spec["dtype"]
    data = mixed((index + 1) * 2**32, int(np.prod(shape, dtype=np.int64))).reshape(shape)
    if dtype == BOOLEAN:
        return data % 2 == 1
    if "below" in spec:
        return data % spec["below"]
    return data / 128.0 - 1.0


def digest(array: Any) -> Digest:
    """Return the digest of an array. Of a large one, it is made from a sample of all channels."""
    flat = np.ravel(array)[:: _stride(np.shape(array))].astype(np.float64)
    finite = np.isfinite(flat)
    non_finite = int(flat.size - np.count_nonzero(finite))
    flat = np.where(finite, flat, 0.0) if non_finite else flat
    count = max(flat.size, 1)
    # without products of vectors, for which NumPy may wait for threads on a busy machine
    projection = np.sum(flat * _signs()[: flat.size]) / math.sqrt(count)
    return Digest(_rounded(projection), _rounded(math.sqrt(np.sum(flat * flat) / count)), non_finite)


def _stride(shape: Tuple[int, ...]) -> int:
    """Return the distance between sampled elements, which has no divisor in common with the number of channels."""
    size = functools.reduce(operator.mul, shape, 1)
    stride = -(-size // _SAMPLE) or 1
    while stride > 1 and math.gcd(stride, shape[-1]) > 1:
        stride += 1
    return stride


@functools.lru_cache(maxsize=None)
def _signs() -> Any:
    return 1.0 - 2.0 * (mixed(0, _SAMPLE) % 2)


def _rounded(number: Any) -> float:
    """Return a number with the digits that a record keeps."""
    return float(f"{number:.9g}")


# Recording and comparing


def results_of(computed: Computed) -> Dict[str, Any]:
    """Return the part of a probe that holds results, ready for JSON."""
    layers = list(computed.layers.items())
    step = -(-len(layers) // _MOST_LAYERS) or 1
    return {
        "outputs": [
            {
                "shape": list(array.shape),
                "first": [_rounded(each) if math.isfinite(each) else None for each in np.ravel(array)[:_FIRST]],
                "digest": list(digest(array)),
            }
            for array in computed.outputs
        ],
        "layers": [[name, [list(each) for each in digests]] for name, digests in layers[::step]],
    }


class Difference(NamedTuple):
    """The first thing that differs."""

    name: str  # "layer 'dense'", "output 0"
    layer: Optional[str]
    amount: float
    limit: float


def first_difference(probe: Mapping[str, Any], computed: Computed, tolerance: float = 0.0) -> Optional[Difference]:
    """Return the first layer, or else the first output, that differs. Layers without a counterpart do not count."""
    tolerance = max(probe["tolerance"], tolerance)
    for name, listed in probe["layers"]:
        expected, found = [Digest(*each) for each in listed], computed.layers.get(name, [])
        for one, other in zip(expected, found) if len(expected) == len(found) else ():
            limit = tolerance * (1 + one.rms)
            if not one.difference(other) <= limit:
                return Difference(f"the layer {name!r}", name, one.difference(other), limit)
    expected_shapes, shapes = ([tuple(each["shape"]) for each in probe["outputs"]], [a.shape for a in computed.outputs])
    if expected_shapes != shapes:
        return Difference(f"the shapes of the outputs ({shapes}, not {expected_shapes})", None, math.inf, 0.0)
    for index, (one, array) in enumerate(zip(probe["outputs"], computed.outputs)):
        amount, limit = _output_difference(one, array, tolerance)
        if not amount <= limit:
            return Difference(f"output {index}", None, amount, limit)
    return None


def _output_difference(expected: Mapping[str, Any], array: Any, tolerance: float) -> Tuple[float, float]:
    whole = Digest(*expected["digest"])
    amount = whole.difference(digest(array))
    pairs = list(zip(expected["first"], np.ravel(array)))
    finite = [(one, other) for one, other in pairs if one is not None and math.isfinite(other)]
    if len(finite) != sum(one is not None for one, _ in pairs):
        amount = math.inf
    amount = max([amount, *(abs(one - other) for one, other in finite)])
    return amount, tolerance * (1 + max([whole.rms, *(abs(one) for one, _ in finite)]))


# Validation of what a record holds


def problems(probe: Any) -> Iterator[Problem]:
    """Yield what is wrong with the probe of a record."""
    if probe is None:
        return
    if not isinstance(probe, Mapping):
        yield Problem((PROBE,), f"expected a mapping, got {shown(probe)}", "type")
        return
    if isinstance(probe.get("none"), str) or (_is_count(probe.get("rule")) and probe["rule"] != RULE):
        return  # no probe, or one of a newer scalekeeper, which is not replayed
    checks = {
        "rule": _is_count(probe.get("rule")),
        "inputs": _is_list(probe.get("inputs"), _is_input) and len(probe["inputs"]) <= MOST_INPUTS,
        "tolerance": _is_real(probe.get("tolerance")),
        "outputs": _is_list(probe.get("outputs"), _is_output),
        "layers": _is_list(probe.get("layers"), _is_layer),
    }
    checks["structure"] = checks["inputs"] and _is_structure(probe.get("structure"), len(probe["inputs"]))
    for name, is_valid in checks.items():
        if not is_valid:
            yield Problem((PROBE, name), f"expected a part of a probe, got {shown(probe.get(name))}", "type")


def _is_list(value: Any, accepts: Any) -> bool:
    return isinstance(value, list) and all(map(accepts, value))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_ELEMENTS


def _is_real(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300


def _is_shape(value: Any) -> bool:
    return _is_list(value, _is_count) and functools.reduce(operator.mul, value, 1) <= MOST_ELEMENTS


def _is_input(value: Any) -> bool:
    if not isinstance(value, dict) or not _is_shape(value.get("shape")):
        return False
    is_valid = value.get("dtype") in (*FLOATS, *INTEGERS, BOOLEAN)
    return is_valid and ("below" not in value or (_is_count(value["below"]) and value["below"] > 0))


def _is_structure(value: Any, count: int) -> bool:
    if isinstance(value, dict):
        return all(_is_structure(each, count) for each in value.values())
    return _is_list(value, lambda each: _is_structure(each, count)) or (_is_count(value) and value < count)


def _is_digest(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and _is_list(value, _is_real)


def _is_output(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and _is_shape(value.get("shape"))
        and _is_list(value.get("first"), lambda each: each is None or _is_real(each))
        and _is_digest(value.get("digest"))
    )


def _is_layer(value: Any) -> bool:
    is_pair = isinstance(value, list) and len(value) == 2 and isinstance(value[0], str)
    return is_pair and _is_list(value[1], _is_digest)
