"""Findings from what was recorded: what breaks in float16, in which layer, and what to do about it."""

from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from ._magnitudes import LARGEST, ROUNDS_TO_ZERO, Spread, power_text
from ._recording import (
    ACTIVATIONS,
    BACKWARD,
    FORWARD,
    GRADIENTS,
    LOSS,
    WEIGHT_GRADIENTS,
    WEIGHTS,
    BadData,
    LayerRecord,
    Operation,
    OperationRecord,
    Origin,
    RunRecord,
    ScaleFacts,
)

ERROR, WARNING, NOTE = "error", "warning", "note"
LEVELS = (ERROR, WARNING, NOTE)
DATA, NONFINITE, OVERFLOW, CONSTANT, DIVISOR, WEIGHT, SCALE_TOO_HIGH, VANISHING, NO_GRADIENT, FROZEN, ATTRIBUTED = (
    "data",
    "nonfinite",
    "overflow",
    "constant",
    "divisor",
    "weights",
    "loss_scale_too_high",
    "vanishing_gradients",
    "no_gradient",
    "frozen",
    "attributed",
)
DIFFERENT = 0.1  # share of the largest output; float16 alone gives a few thousandths
MOST_LOST = 0.01  # share of a layer's gradients that may round to zero at a loss scale that suits it
_VANISHING = 0.5  # share of a layer's gradients whose loss is a finding
_MOST_SAMPLES = 10  # of those that a message lists
# operations of Keras's own layers that compute in the layer's type; most others adapt to it
_HEAVY = ("Mean", "Softmax", "LogSoftmax", "MatMul", "BatchMatMul", "Conv", "Einsum", "Sum", "AvgPool")
_AGREES = "; with these batches the outputs agree with float32 nevertheless"
_MASK = "for a mask, use a number that float16 has, such as -1e4; otherwise "
_IN_FLOAT32 = "Normalization"  # layers of Keras whose sums are float32 anyway


class Finding(NamedTuple):
    """Something that breaks in float16, or that does so in any type.

    Attributes:
        kind: A stable identifier for programs, such as ``overflow``.
        level: ``error``: training breaks; ``warning``: it may, or is worse for it; ``note``: worth knowing.
        layer: The path of the layer; the name of an input or target; ``loss`` for what is outside of all layers; None
            if it concerns the optimizer.
        operation: The type of TensorFlow's operation, if it is known.
        phase: ``forward``, ``backward``, or None.
        message: The problem, in a sentence.
        advice: The remedy, in a sentence.

    Example:
        >>> from scalekeeper.diagnosis import Finding
        >>> message, advice = "3 of 64 outputs overflow", "compute it in float32"
        >>> finding = Finding("overflow", "error", "dense", "Exp", "forward", message, advice)
        >>> finding.level, finding.layer
        ('error', 'dense')
    """

    kind: str
    level: str
    layer: Optional[str]
    operation: Optional[str]
    phase: Optional[str]
    message: str
    advice: str


class LayerSpreads(NamedTuple):
    """The counted magnitudes of a layer, by kind; None if there was nothing to count."""

    record: LayerRecord
    activations: Optional[Spread]
    gradients: Optional[Spread]
    weights: Optional[Spread]
    weight_gradients: Optional[Spread]

    @property
    def deciding_gradients(self) -> Optional[Spread]:
        """The gradients that tell whether the layer learns: those of its weights, or else of its outputs."""
        return self.weight_gradients or self.gradients

    @property
    def highest_scale(self) -> Optional[float]:
        """The largest power of two at which none of the layer's gradients leaves float16's range."""
        scales = [each.largest_scale() for each in (self.gradients, self.weight_gradients) if each is not None]
        known = [scale for scale in scales if scale is not None]
        return min(known) if known else None

    @property
    def lowest_scale(self) -> Optional[float]:
        """The smallest power of two at which at most 1 % of the layer's gradients round to zero."""
        return None if self.deciding_gradients is None else self.deciding_gradients.smallest_scale(MOST_LOST)


def spreads_of(record: LayerRecord) -> LayerSpreads:
    """Return what was counted of a layer."""
    kinds = (ACTIVATIONS, GRADIENTS, WEIGHTS, WEIGHT_GRADIENTS)
    found = [record.magnitudes[kind].spread() if kind in record.magnitudes else None for kind in kinds]
    return LayerSpreads(record, *found)


class Evidence(NamedTuple):
    """Everything that the rules look at.

    Attributes:
        run: The run in float32.
        replay: The run of the model as it is; None if no layer of it computes in float16.
        layers: The records of the run, in order.
        bad_data: Values of the data that float16 cannot hold.
        facts: The loss scaling of the optimizer.
        best_scale: The recommended loss scale.
        difference: How far the outputs of both runs differ, as a share of the largest; None if they were not compared.
    """

    run: RunRecord
    replay: Optional[RunRecord]
    layers: Sequence[LayerSpreads]
    bad_data: Sequence[BadData]
    facts: ScaleFacts
    best_scale: Optional[float]
    difference: Optional[float]

    @property
    def origin(self) -> Optional[Origin]:
        """Where the first non-finite number came from, in float32 if there is one."""
        return self.run.origin or (None if self.replay is None else self.replay.origin)

    @property
    def scale(self) -> float:
        """The loss scale in use, or the recommended one for a model that does not compute in float16."""
        if self.replay is None:
            return self.best_scale or 1.0
        return self.facts.settled or self.facts.scale or 1.0

    def is_float16(self, layer: LayerRecord) -> bool:
        """Return whether the outputs of a layer are float16; for a model without float16, whether they would be."""
        if self.replay is None:
            return True
        replayed = self.replay.layers.get(layer.path)
        return replayed is not None and "float16" in replayed.output_dtypes

    @property
    def agrees(self) -> bool:
        """Whether the run in float16 ended with finite numbers and the outputs of the run in float32."""
        if self.replay is None or self.origin is not None:
            return False
        return self.run.is_float32 and self.difference is not None and self.difference <= DIFFERENT

    def agrees_in(self, path: str) -> bool:
        """Return whether :attr:`agrees` holds, and the outputs of this layer have the same magnitudes in both runs."""
        if not self.agrees or self.replay is None:
            return False
        records = [run.layers.get(path) for run in (self.run, self.replay)]
        one, other = (None if each is None else spreads_of(each).activations for each in records)
        if one is None or other is None:
            return True  # the loss, which is finite
        return abs(one.zero - other.zero) <= MOST_LOST and abs(one.largest - other.largest) <= DIFFERENT * one.largest


def findings_of(evidence: Evidence) -> List[Finding]:
    """Return all findings, the most severe first; one for each layer and kind."""
    rules: Sequence[Callable[[Evidence], Iterator[Finding]]] = (
        _data,
        _weights,
        _origin,
        _settling,
        _activations,
        _operations,
        _divisors,
        _constants,
        _epsilon,
        _vanishing,
        _without_gradients,
        _frozen,
        _attributed,
    )
    found: Dict[Tuple[Optional[str], str], Finding] = {}
    for rule in rules:
        for finding in rule(evidence):
            found.setdefault((finding.layer, finding.kind), finding)
    return sorted(found.values(), key=lambda finding: LEVELS.index(finding.level))


def _float32_advice(layer: str) -> str:
    if layer == LOSS:
        return "compute the loss in float32: give the last layer dtype='float32', and cast in a loss of your own"
    return f"keep the layer {layer} in float32: dtype='float32'"


def _listed(samples: Sequence[int], others: int) -> str:
    """Return some samples, and how many others there are, as text."""
    more = f" and {others:,} other{'s' if others > 1 else ''}" if others else ""
    return f"sample{'s' if len(samples) > 1 else ''} {', '.join(map(str, samples))}{more}"


# Problems in any type


def _data(evidence: Evidence) -> Iterator[Finding]:
    for each in evidence.bad_data:
        where = f" in {_listed(each.samples, each.others)}" if each.samples else ""
        if not each.is_finite:
            message = f"NaN or infinity{where}"
            yield Finding(DATA, ERROR, each.name, None, None, message, "remove or repair these samples")
        elif evidence.replay is None or evidence.replay.origin is not None:
            message = f"numbers up to {each.largest:.3g}{where}, and float16 ends at {LARGEST:g}"
            advice = "remove or repair these samples, or scale the inputs before the model casts them to float16"
            yield Finding(DATA, ERROR, each.name, None, None, message, advice)


def _weights(evidence: Evidence) -> Iterator[Finding]:
    for each in evidence.layers:
        weights = each.weights
        if weights is None:
            continue
        path = each.record.path
        if weights.nonfinite:
            message = f"{weights.nonfinite:,} of {weights.elements:,} weights are NaN or infinite already"
            advice = "training has broken before: load an earlier checkpoint, and skip non-finite steps from then on"
            yield Finding(WEIGHT, ERROR, path, None, None, message, advice)
        elif weights.overflow and evidence.is_float16(each.record):
            message = f"weights up to {weights.largest:.3g} leave float16's range"
            yield Finding(WEIGHT, ERROR, path, None, None, message, _float32_advice(path))


def _origin(evidence: Evidence) -> Iterator[Finding]:
    origin = evidence.origin
    if origin is None:
        return
    is_compared = evidence.run.is_float32  # otherwise nothing is known of float32
    operation = f" of {origin.operation}" if origin.operation else ""
    what = "gradient" if origin.phase == BACKWARD else "result"
    where = "in the loss, outside of all layers" if origin.layer == LOSS else f"in the layer {origin.layer}"
    first = origin.samples[:_MOST_SAMPLES]
    samples = f", {_listed(first, len(origin.samples) - len(first))}" if first else ""
    message = (
        f"the first number that is not finite is a {what}{operation} {where}, on the way "
        f"{'back' if origin.phase == BACKWARD else 'forward'}, in batch {origin.batch}{samples}"
    )
    level = ERROR
    if is_compared and evidence.run.origin is not None:
        message += "; it is not finite in float32 either"
        advice = (
            "float16 is not the cause: look at the data, at divisions, logarithms and powers, and the learning rate"
        )
        if evidence.bad_data:
            advice = "repair the data first"
    elif origin.phase == BACKWARD and _is_scale_to_blame(evidence):
        message += f"; the loss scale is {power_text(evidence.scale)}"
        advice = "lower the loss scale, or use the policy 'dynamic'"
        if evidence.best_scale is not None:
            advice = f"lower the loss scale to {power_text(evidence.best_scale)}, or use the policy 'dynamic'"
        yield Finding(SCALE_TOO_HIGH, ERROR, origin.layer, origin.operation, origin.phase, message, advice)
        return
    else:
        message += "; in float32 it is finite" if is_compared else ""
        largest = _largest_gradient(evidence)
        if origin.phase == BACKWARD and largest > LARGEST:
            message += f", but gradients reach {largest:.3g} at a loss scale of 1, and float16 ends at {LARGEST:g}"
            advice = "make the loss smaller: scale the targets, or the weights of samples and losses"
        else:
            advice = _float32_advice(origin.layer)
    yield Finding(NONFINITE, level, origin.layer, origin.operation, origin.phase, message, advice)


def _is_scale_to_blame(evidence: Evidence) -> bool:
    """Return whether gradients that fit into float16 do not fit with the loss scale."""
    highest = [each.highest_scale for each in evidence.layers if evidence.is_float16(each.record)]
    lowest = min((scale for scale in highest if scale is not None), default=None)
    return lowest is not None and 1 <= lowest < evidence.scale


def _largest_gradient(evidence: Evidence) -> float:
    """Return the largest gradient that float16 has to hold at a loss scale of 1."""
    layers = [each for each in evidence.layers if evidence.is_float16(each.record)]
    spreads = [spread for each in layers for spread in (each.gradients, each.weight_gradients) if spread is not None]
    return max((spread.largest for spread in spreads), default=0.0)


def _settling(evidence: Evidence) -> Iterator[Finding]:
    origin, facts = evidence.facts.settled_origin, evidence.facts
    if origin is not None and facts.scale is not None and facts.settled is not None:
        message = f"gradients overflow at the loss scale of {power_text(facts.scale)}, and the policy lowers it"
        advice = f"begin with {power_text(facts.settled)} to skip no step"
        yield Finding(SCALE_TOO_HIGH, NOTE, origin.layer, origin.operation, BACKWARD, message, advice)


# Overflow of float16's range


def _activations(evidence: Evidence) -> Iterator[Finding]:
    for each in evidence.layers:
        spread, path = each.activations, each.record.path
        if spread is None or not spread.overflow or not evidence.is_float16(each.record):
            continue
        message = f"outputs up to {spread.largest:.3g}: {spread.overflow:.2%} leave float16's range ({LARGEST:g})"
        advice = _float32_advice(path) + ", or make its inputs or weights smaller"
        if evidence.agrees:
            yield Finding(OVERFLOW, WARNING, path, None, FORWARD, message + _AGREES, _MASK + advice)
        else:
            yield Finding(OVERFLOW, ERROR, path, None, FORWARD, message, advice)


def _operations(evidence: Evidence) -> Iterator[Finding]:
    for operation, record in evidence.run.operations.items():
        if operation.phase != FORWARD or record.largest <= LARGEST or not _is_in_float16(evidence, operation):
            continue
        if record.is_sum_inside:
            message = f"a sum inside {operation.type} reaches {record.largest:.3g}, above float16's {LARGEST:g}"
            advice = _float32_advice(operation.layer) + ": some devices add in float16"
            yield Finding(OVERFLOW, WARNING, operation.layer, operation.type, FORWARD, message, advice)
        elif _has_overflowed(evidence, operation):
            where = "in the loss" if operation.layer == LOSS else "inside the layer"
            message = f"{operation.type} {where} reaches {record.largest:.3g}, above float16's {LARGEST:g}"
            level, advice = ERROR, _float32_advice(operation.layer)
            if evidence.agrees_in(operation.layer):
                level, message, advice = WARNING, message + _AGREES, _MASK + advice
            yield Finding(OVERFLOW, level, operation.layer, operation.type, FORWARD, message, advice)


def _is_in_float16(evidence: Evidence, operation: Operation) -> bool:
    """Return whether an operation computes in float16; without a replay, whether it probably would."""
    replayed = _replayed(evidence, operation)
    if evidence.replay is not None:
        return replayed is not None and "float16" in replayed.dtypes
    layer = evidence.run.layers.get(operation.layer)
    if layer is None:
        return False  # the loss: the last layer decides its type
    return not layer.is_built_in or (operation.type.startswith(_HEAVY) and _IN_FLOAT32 not in layer.cls)


def _replayed(evidence: Evidence, operation: Operation) -> Optional[OperationRecord]:
    return None if evidence.replay is None else evidence.replay.operations.get(operation)


def _has_overflowed(evidence: Evidence, operation: Operation) -> bool:
    replayed = _replayed(evidence, operation)
    return replayed is None or replayed.overflowed


# Underflow to zero in float16


def _divisors(evidence: Evidence) -> Iterator[Finding]:
    for operation, record in evidence.run.operations.items():
        smallest = record.smallest_divisor
        if operation.phase != FORWARD or smallest is None or smallest > ROUNDS_TO_ZERO:
            continue
        if not _is_in_float16(evidence, operation):
            continue
        message = f"{operation.type} of a number that is {smallest:.3g} and becomes 0 in float16"
        advice = "add an epsilon of at least 1e-4 before it, or " + _float32_advice(operation.layer)
        level, end = (WARNING, _AGREES) if evidence.agrees_in(operation.layer) else (ERROR, "")
        yield Finding(DIVISOR, level, operation.layer, operation.type, FORWARD, message + end, advice)


def _constants(evidence: Evidence) -> Iterator[Finding]:
    replayed: Set[Tuple[str, str]] = set()
    if evidence.replay is not None:
        replayed = {(each.layer, each.operation) for each in evidence.replay.constants if not each.value}
    for each in sorted(evidence.run.constants):
        if not 0 < abs(each.value) <= ROUNDS_TO_ZERO:
            continue
        operation = Operation(each.layer, each.operation, FORWARD)
        if evidence.replay is None and not _is_custom(evidence, each.layer):
            continue
        if evidence.replay is not None and ((each.layer, each.operation) not in replayed):
            continue
        message = f"the constant {each.value:.3g} of {operation.type} is 0 in float16"
        advice = f"use an epsilon of at least 1e-4, or {_float32_advice(each.layer)}"
        level, end = (WARNING, _AGREES) if evidence.agrees_in(each.layer) else (ERROR, "")
        yield Finding(CONSTANT, level, each.layer, operation.type, FORWARD, message + end, advice)


def _is_custom(evidence: Evidence, path: str) -> bool:
    layer = evidence.run.layers.get(path)
    return layer is not None and not layer.is_built_in


def _epsilon(evidence: Evidence) -> Iterator[Finding]:
    epsilon = evidence.facts.epsilon
    if epsilon is not None and 0 < epsilon <= ROUNDS_TO_ZERO:
        message = f"the optimizer's epsilon {epsilon:g} is 0 in float16, and the model has float16 variables"
        advice = "use epsilon=1e-4, or the dtype policy mixed_float16, whose variables are float32"
        yield Finding(CONSTANT, ERROR, None, None, None, message, advice)


# Loss scale


def _vanishing(evidence: Evidence) -> Iterator[Finding]:
    if evidence.origin is not None:
        return
    for each in reversed(evidence.layers):
        gradients = each.deciding_gradients
        if gradients is None or not gradients.powers or not evidence.is_float16(each.record):
            continue
        lost = _lost(evidence, each, gradients)
        if lost < _VANISHING:
            continue
        path, lowest = each.record.path, each.lowest_scale
        message = f"at a loss scale of {power_text(evidence.scale)}, {lost:.0%} of the gradients become 0"
        level = ERROR if lost > 0.99 else WARNING
        if lowest is not None and evidence.best_scale is not None and lowest <= evidence.best_scale:
            advice = (
                f"raise the loss scale to at least {power_text(lowest)}; {power_text(evidence.best_scale)} suits all"
            )
            if evidence.facts.scale is None:
                advice = f"scale the loss: wrap the optimizer in LossScaleOptimizer(optimizer, 'dynamic'), or {advice}"
        else:
            advice = (
                f"no loss scale suits this layer and the others: it needs {power_text(lowest)}, where others overflow. "
                f"{_float32_advice(path).capitalize()}, or make its gradients larger"
            )
        yield Finding(VANISHING, level, path, None, BACKWARD, message, advice)


def _lost(evidence: Evidence, layer: LayerSpreads, gradients: Spread) -> float:
    """Return the share of the gradients that are not zero in float32 and are zero in float16.

    The float16 run decides: gradients may vanish on the way to this layer.
    """
    replayed = None if evidence.replay is None else evidence.replay.layers.get(layer.record.path)
    if replayed is None:
        return gradients.lost_at(evidence.scale)
    found = spreads_of(replayed).deciding_gradients
    if found is None or not found.counted:
        return 0.0
    return max(0.0, (found.zero - gradients.zero) / (1 - gradients.zero))


# Layers that do not learn


def _without_gradients(evidence: Evidence) -> Iterator[Finding]:
    for each in evidence.layers:
        record, spread = each.record, each.weight_gradients
        if record.asked and len(record.disconnected) and spread is None:
            message = "the loss does not depend on the weights: they have no gradient"
            advice = "connect the layer to the loss, or set trainable=False"
            yield Finding(NO_GRADIENT, WARNING, record.path, None, BACKWARD, message, advice)
        elif spread is not None and spread.counted and not spread.powers and not spread.nonfinite:
            message = "all gradients of the weights are 0 in float32 too"
            advice = "no loss scale helps: look for units that are never active, saturation, and stop_gradient"
            yield Finding(NO_GRADIENT, WARNING, record.path, None, BACKWARD, message, advice)


def _frozen(evidence: Evidence) -> Iterator[Finding]:
    for each in evidence.layers:
        if not each.record.trainable and each.weights is not None:
            message = "trainable is False: the weights have no gradients"
            advice = "set trainable=True and compile again, if the layer is meant to learn"
            yield Finding(FROZEN, NOTE, each.record.path, None, None, message, advice)


def _attributed(evidence: Evidence) -> Iterator[Finding]:
    for layer, count in evidence.facts.overflows.items():
        message = f"the optimizer counted {count:,} non-finite gradients of its variables in skipped steps"
        advice = "diagnose the batch of a skipped step, with the loss scale of that step: loss_scale=…"
        yield Finding(ATTRIBUTED, NOTE, layer, None, BACKWARD, message, advice)
