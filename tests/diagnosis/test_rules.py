"""Findings, advice and the recommended loss scale, from records that are written by hand."""

import json

import numpy as np
import pytest

from scalekeeper.diagnosis._recording import (
    ACTIVATIONS,
    BACKWARD,
    FORWARD,
    GRADIENTS,
    LOSS,
    WEIGHT_GRADIENTS,
    WEIGHTS,
    BadData,
    Constant,
    LayerRecord,
    Operation,
    OperationRecord,
    Origin,
    RunRecord,
    ScaleFacts,
)
from scalekeeper.diagnosis._result import diagnosis_of, settled_scale


def record(path="dense", dtype="float16", built_in=True, cls="Dense", **arrays):
    found = LayerRecord(path, cls, built_in, dtype, "float32")
    found.output_dtypes.add(dtype)
    for kind, values in {
        ACTIVATIONS: [1.0],
        GRADIENTS: [0.1],
        WEIGHTS: [1.0],
        WEIGHT_GRADIENTS: [0.1],
        **arrays,
    }.items():
        found.counted(kind).observe(np.array(values, np.float32))
    return found


def run(*layers, operations=(), constants=(), origin=None, largest=0.1, is_float32=True):
    found = RunRecord()
    found.layers = {each.path: each for each in layers}
    found.operations = dict(operations)
    found.constants, found.origin, found.is_float32 = set(constants), origin, is_float32
    found.batches, found.largest_gradients = 1, [largest]
    return found


def operation(largest=1.0, dtype="float32", divisor=None, inside=False, overflowed=False):
    found = OperationRecord()
    found.largest, found.smallest_divisor, found.is_sum_inside = largest, divisor, inside
    found.overflowed = overflowed
    found.dtypes.add(dtype)
    return found


def diagnosed(exact, replay=None, bad=(), facts=None, difference=0.0):
    return diagnosis_of(exact, replay, bad, ScaleFacts() if facts is None else facts, difference, ())


def kinds(found):
    return [(each.kind, each.level, each.layer) for each in found.findings]


SCALED = ScaleFacts(1024.0, True)


def test_nothing_is_found_in_a_healthy_run():
    """There is a recommended loss scale with room for twice the gradients, and its policy."""
    found = diagnosed(run(record()), run(record()), facts=SCALED)
    assert found.findings == ()
    assert found.is_healthy
    assert found.loss_scale == 2.0**18  # 0.1 × 2^18 is 26214, and twice that still fits
    assert found.policy == {"name": "dynamic", "initial_loss_scale": 2.0**18}
    assert found.notes == ()


def test_outputs_above_the_range():
    """They are an error, but not for a layer that computes in float32."""
    layer = record(activations=[1.0, 7e4])
    found = diagnosed(run(layer), run(record()), facts=SCALED, difference=None)
    assert kinds(found) == [("overflow", "error", "dense")]
    assert "7e+04: 50.00%" in found.findings[0].message
    assert "dtype='float32'" in found.findings[0].advice
    assert diagnosed(run(layer), run(record(dtype="float32")), facts=SCALED).findings == ()


SQUARE = Operation("dense", "Square", FORWARD)


def test_operation_inside_a_layer():
    """It is a finding if float16 really overflowed there, or without a replay in a layer of the caller."""
    exact = run(record(built_in=False), operations={SQUARE: operation(1e5)})
    replays = [
        run(record(), operations={SQUARE: operation(0.0, dtype, overflowed=overflowed)})
        for dtype, overflowed in (("float16", True), ("float16", False), ("float32", True))
    ]
    found = [kinds(diagnosed(exact, replay, facts=SCALED, difference=0.5)) for replay in (*replays, None)]
    error = [("overflow", "error", "dense")]
    assert found == [error, [], [], error]
    assert diagnosed(run(record(), operations={SQUARE: operation(1e5)})).findings == ()


def test_sum_inside_an_operation():
    """It is a warning, because devices differ; Keras adds in float32 for its own normalizations."""
    mean = Operation("dense", "Mean", FORWARD)
    found = diagnosed(run(record(), operations={mean: operation(7e4, inside=True)}))
    assert kinds(found) == [("overflow", "warning", "dense")]
    layer = record(cls="LayerNormalization")
    assert diagnosed(run(layer, operations={mean: operation(7e4, inside=True)})).findings == ()


@pytest.mark.parametrize(("divisor", "is_found"), [(2.0**-25, True), (2.0**-24, False)])
def test_divisors(divisor, is_found):
    """A divisor up to 2^-25 becomes 0 in float16."""
    division = Operation("dense", "RealDiv", FORWARD)
    exact = run(record(), operations={division: operation(divisor=divisor)})
    replay = run(record(), operations={division: operation(dtype="float16")})
    expected = [("divisor", "error", "dense")] if is_found else []
    assert kinds(diagnosed(exact, replay, facts=SCALED, difference=0.5)) == expected


@pytest.mark.parametrize(
    ("value", "replayed", "is_found"), [(1e-8, 0.0, True), (1e-8, 1e-8, False), (1e-7, 0.0, False), (0.0, 0.0, False)]
)
def test_constants(value, replayed, is_found):
    """A constant that is added is found if it is not zero in float32 and is in float16."""
    exact = run(record(), constants=[Constant("dense", "AddV2", value)])
    replay = run(record(), constants=[Constant("dense", "AddV2", replayed)])
    expected = [("constant", "error", "dense")] if is_found else []
    assert kinds(diagnosed(exact, replay, facts=SCALED, difference=0.5)) == expected


def _broken_inside(**layer):
    """An overflow, a divisor and a constant in one layer, and the run of the layer as it is."""
    division = Operation("dense", "RealDiv", FORWARD)
    exact = run(
        record(**layer),
        operations={SQUARE: operation(1e9), division: operation(divisor=1e-9)},
        constants=[Constant("dense", "AddV2", 1e-8)],
    )
    operations = {SQUARE: operation(0.0, "float16", overflowed=True), division: operation(dtype="float16")}
    return exact, operations, [Constant("dense", "AddV2", 0.0)]


def test_what_does_no_harm_is_a_warning():
    """If the float16 run is finite, and the layer and the model agree with float32, the same findings are warnings."""
    exact, operations, constants = _broken_inside()
    same, zero = (
        run(record(activations=values), operations=operations, constants=constants) for values in ([1.0], [0.0])
    )
    broken = run(record(), operations=operations, constants=constants, origin=Origin("dense", None, FORWARD, 0))
    for replay, difference, level in (
        (same, 0.001, "warning"),
        (same, 0.5, "error"),
        (same, None, "error"),
        (zero, 0.001, "error"),
        (broken, 0.001, "error"),
    ):
        found = diagnosed(exact, replay, facts=SCALED, difference=difference)
        levels = {each.kind: each.level for each in found.findings if each.kind != "nonfinite"}
        assert levels == dict.fromkeys(("overflow", "divisor", "constant"), level)
        assert all(("agree with float32" in each.message) is (level == "warning") for each in found.findings)
    layer = run(record(activations=[1.0, 1e9]))
    found = diagnosed(layer, run(record()), facts=SCALED)
    assert kinds(found) == [("overflow", "warning", "dense")]
    assert "for a mask" in found.findings[0].advice


def test_epsilon_of_the_optimizer():
    """It counts if the variables are float16, which the facts tell."""
    found = diagnosed(run(record()), facts=ScaleFacts(epsilon=1e-8))
    assert kinds(found) == [("constant", "error", None)]
    assert diagnosed(run(record()), facts=ScaleFacts(epsilon=1e-7)).findings == ()


def test_loss_scale_that_is_too_high():
    """With a fixed scale it is an error that tells the scale to use."""
    exact = run(record(gradients=[10.0], weight_gradients=[1.0]), largest=10.0)
    replay = run(record(), origin=Origin("dense", "MatMul", BACKWARD, 0))
    found = diagnosed(exact, replay, facts=ScaleFacts(2.0**20))
    assert kinds(found) == [("loss_scale_too_high", "error", "dense")]
    assert "2^11" in found.findings[0].advice
    assert settled_scale(exact, replay, ScaleFacts(2.0**20, True)) == 2.0**11
    assert settled_scale(exact, replay, ScaleFacts(2.0**20)) is None


def test_overflow_that_no_loss_scale_prevents():
    """Gradients that overflow at a scale of 1 are not blamed on the scale."""
    exact = run(record(gradients=[1e6]), largest=1e6)
    found = diagnosed(exact, run(record(), origin=Origin("dense", None, BACKWARD, 0)), facts=ScaleFacts(1.0))
    assert kinds(found) == [("nonfinite", "error", "dense")]
    assert "gradients reach 1e+06 at a loss scale of 1" in found.findings[0].message
    assert "scale the targets" in found.findings[0].advice
    assert found.loss_scale is None
    assert found.policy is None


def test_vanishing_gradients():
    """They are an error if all are lost; the advice is a higher scale, or float32 if others would overflow."""
    small = {"gradients": [1e-9], "weight_gradients": [1e-9]}
    found = diagnosed(run(record(**small), largest=1e-9), run(record(weight_gradients=[0.0])), facts=ScaleFacts(1.0))
    assert kinds(found) == [("vanishing_gradients", "error", "dense")]
    assert "at least 2^5" in found.findings[0].advice
    both = run(record(**small), record("large", gradients=[1e4], weight_gradients=[1e4]), largest=1e4)
    replay = run(record(weight_gradients=[0.0]), record("large"))
    found = diagnosed(both, replay, facts=ScaleFacts(1.0))
    assert kinds(found) == [("vanishing_gradients", "error", "dense")]
    assert "no loss scale suits" in found.findings[0].advice


def test_gradients_that_are_zero_in_any_type():
    """No loss scale helps, and a variable without a gradient is told apart."""
    found = diagnosed(run(record(weight_gradients=[0.0])))
    assert kinds(found) == [("no_gradient", "warning", "dense")]
    layer = record()
    del layer.magnitudes[WEIGHT_GRADIENTS]
    layer.asked, layer.disconnected = 1, {"kernel"}
    found = diagnosed(run(layer))
    assert kinds(found) == [("no_gradient", "warning", "dense")]
    assert "does not depend" in found.findings[0].message


def test_frozen_layers_and_attributions_are_notes():
    """A model with nothing but notes is healthy."""
    layer = record()
    layer.trainable = False
    found = diagnosed(run(layer), facts=ScaleFacts(overflows={"dense": 3}))
    assert kinds(found) == [("frozen", "note", "dense"), ("attributed", "note", "dense")]
    assert found.is_healthy


def test_weights():
    """NaN among the weights, and weights above the range, are errors."""
    assert kinds(diagnosed(run(record(weights=[np.nan])))) == [("weights", "error", "dense")]
    assert kinds(diagnosed(run(record(weights=[7e4])))) == [("weights", "error", "dense")]


def test_data():
    """NaN in the data is always an error; large numbers are one if they break something."""
    nan, large = BadData("x", False, (3,), 1.0), BadData("x", True, (4,), 1e6)
    healthy = run(record())
    broken = run(record(), origin=Origin("dense", "Cast", FORWARD, 0, (4,)))
    assert kinds(diagnosed(healthy, healthy, [nan], SCALED)) == [("data", "error", "x")]
    assert diagnosed(healthy, healthy, [large], SCALED).findings == ()
    assert kinds(diagnosed(healthy, broken, [large], SCALED))[0] == ("data", "error", "x")


@pytest.mark.parametrize(
    ("samples", "others", "expected"),
    [((3,), 0, "sample 3"), ((3, 5), 0, "samples 3, 5"), ((3,), 1, "sample 3 and 1 other"), (range(10), 2000, "2,000")],
)
def test_samples_in_messages(samples, others, expected):
    """A message names the first samples and counts the others, of the data and of the origin."""
    found = diagnosed(run(record()), run(record()), [BadData("x", False, tuple(samples), 1.0, others)], SCALED)
    assert expected in found.findings[0].message
    every = tuple(range(3, 3 + len(samples) + others)) if others else tuple(samples)
    found = diagnosed(run(record()), run(record(), origin=Origin("dense", "Exp", FORWARD, 0, every)), facts=SCALED)
    listed = f"sample{'s' if len(every) > 1 else ''} {', '.join(map(str, every[:10]))}"
    more = f" and {len(every) - 10:,} others" if len(every) > 10 else ""
    assert f"in batch 0, {listed}{more}; " in found.findings[0].message + "; "


def test_not_finite_in_float32_either():
    """Then float16 is not to blame, and no loss scale is recommended."""
    exact = run(record(), origin=Origin(LOSS, "Log", FORWARD, 0))
    found = diagnosed(exact, run(record()), facts=SCALED)
    assert kinds(found) == [("nonfinite", "error", "loss")]
    assert "float16 is not the cause" in found.findings[0].advice
    assert found.loss_scale is None


def test_without_a_run_in_float32():
    """Nothing is said of float32 if the model could not run in it."""
    origin = Origin("dense", "Exp", FORWARD, 0)
    exact = run(record(), origin=origin, is_float32=False)
    found = diagnosed(exact, run(record(), origin=origin), facts=SCALED)
    assert kinds(found) == [("nonfinite", "error", "dense")]
    assert "float32" not in found.findings[0].message
    assert "dtype='float32'" in found.findings[0].advice


def test_notes():
    """They tell what the results do not hold for."""
    assert "is predicted" in diagnosed(run(record())).notes[0]
    assert "could not be compared" in diagnosed(run(record()), run(record()), facts=SCALED, difference=None).notes[0]
    assert "differ" in diagnosed(run(record()), run(record()), facts=SCALED, difference=0.5).notes[0]
    cast = run(record(), operations={SQUARE: operation(dtype="float16")})
    assert "because of a cast" in diagnosed(cast, run(record()), facts=SCALED).notes[0]


def test_json_and_text():
    """JSON has all figures; the text has findings, advice, the loss scale and a row for each layer."""
    both = run(record(activations=[7e4]), record("second")), run(record(), record("second"))
    found = diagnosed(*both, facts=SCALED, difference=0.05)
    assert found.findings[0].level == "warning"
    found = diagnosed(*both, facts=SCALED, difference=0.5)
    data = json.loads(json.dumps(found.for_json(), allow_nan=False))
    assert data["healthy"] is False
    assert data["findings"][0]["layer"] == "dense"
    assert data["layers"][0]["activations"]["powers"] == {"16": 1}
    assert data["policy"]["initial_loss_scale"] == 2.0**18
    lines = str(found).splitlines()
    assert lines[0] == "1 finding: 2 layers, 1 batch, in float32 and as it is"
    assert lines[1].startswith("  error: dense: outputs up to 7e+04")
    assert lines[3].startswith("loss scale: 2^18. ")
    assert [line.split()[0] for line in lines[5:8]] == ["layer", "dense", "second"]


def test_infinite_figures_are_none_in_json():
    """A sum inside an operation may be infinite; JSON has no infinity."""
    softmax = Operation("dense", "Softmax", FORWARD)
    found = diagnosed(run(record(), operations={softmax: operation(np.inf, inside=True)}))
    assert json.dumps(found.for_json(), allow_nan=False)
