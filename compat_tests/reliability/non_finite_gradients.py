"""Gradients that no one wishes for, in every type and size: what ours does with them, and what TensorFlow's own class.

    python compat_tests/reliability/non_finite_gradients.py [--record]

``TRIALS`` holds what is given, and what has to come out: the same on every TensorFlow. A trial is taken in several
ways: eagerly and traced, with gradients that are handed over as they are and with such that ``get_unscaled_gradients``
divides by the scale. TensorFlow's own class takes it in the documented way: traced, and divided by the scale.
"""

from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import argparse
import itertools
import warnings

import numpy as np
import tensorflow as tf

from scalekeeper import LossScaleOptimizer
from scalekeeper_test_support import reliability_results
from scalekeeper_test_support.counting_sgd import COUNTING_SGD
from scalekeeper_test_support.installed_keras import IS_KERAS_3, OPTIMIZERS, compiled, state_of, upstream

NAN, INF = float("nan"), float("inf")
SCALE = 1024.0
DYNAMIC = {"initial_loss_scale": SCALE, "increment_period": 1}  # each good step doubles it, each bad one halves it
APPLIED, SKIPPED = "applied", "skipped"
FUNCTIONS = {
    "eager": lambda step: step,
    "traced": lambda step: tf.function(step, autograph=False),
    "compiled": compiled,
}
# how a step is run, and whether its gradients are scaled: the documented way is the last
WAYS = [(name, is_scaled) for name in ("eager", "traced") for is_scaled in (False, True)]

# One step has gradients of all of these: the finite check and unscaling go another way for each.
SHAPES = {
    "scalar": (),
    "small": (3,),
    **{f"stacked {number}": (2,) for number in range(5)},
    "empty": (0, 3),
    "medium": (4097,),
    "large": (65537,),
}
SPARSE = "sparse"  # three rows, two of them for one index, in a table of five
PLACES = [name for name in (*SHAPES, SPARSE) if name != "empty"]

# type → its largest number
LARGEST = {
    tf.float16: 65504.0,
    tf.bfloat16: 2.0**128 - 2.0**120,
    tf.float32: 2.0**128 - 2.0**104,
    tf.float64: float(np.finfo(np.float64).max),
    tf.complex64: 2.0**128 - 2.0**104,
    tf.complex128: float(np.finfo(np.float64).max),
}


# Optimizers


def inner(kind: str, dtype: Any = tf.float32) -> Any:
    """Gradient descent by just the gradient. Not every version's own can do complex numbers, a user's own can."""
    make = COUNTING_SGD[kind] if dtype.is_complex else OPTIMIZERS[kind].SGD
    return make(learning_rate=1.0)


def ours(optimizer: Any) -> Any:
    return LossScaleOptimizer(optimizer, {"name": "dynamic", **DYNAMIC})


def tensorflows(optimizer: Any) -> Any:
    return upstream(optimizer, DYNAMIC)


def unscaled(optimizer: Any, grads: List[Any]) -> List[Any]:
    """Return what is given to ``apply_gradients``, which in Keras 3's own class divides by the scale itself."""
    return optimizer.get_unscaled_gradients(grads) if hasattr(optimizer, "get_unscaled_gradients") else grads


# Numbers in gradients of every size


class Numbers:
    """Steps of one optimizer, on a variable of each shape, all of them zero before each step."""

    def __init__(self, wrap: Callable[[Any], Any], kind: str, dtype: Any, way: Tuple[str, bool]) -> None:
        name, self.is_scaled = way
        self.dtype = dtype
        self.optimizer = wrap(inner(kind, dtype))
        make = tf.keras.Variable if IS_KERAS_3 and dtype == tf.float32 else tf.Variable
        shapes = [*SHAPES.values(), (5, 2)]
        self.variables = [make(np.zeros(shape), dtype=dtype.name) for shape in shapes]
        if IS_KERAS_3:
            self.optimizer.build(self.variables)
        self.step = FUNCTIONS[name](self._step)
        if name == "compiled":  # XLA compiles no function that makes variables
            self._step(tf.ones([], dtype), tf.ones([len(shapes)], dtype))

    def _step(self, common: Any, last: Any) -> Any:
        grads = [_filled(shape, common, last[place]) for place, shape in enumerate(SHAPES.values())]
        values = _filled((3, 2), tf.ones([], self.dtype), last[len(SHAPES)])
        grads.append(tf.IndexedSlices(values, tf.constant([3, 0, 3]), tf.constant([5, 2])))
        if self.is_scaled:
            grads = unscaled(self.optimizer, grads)
        self.optimizer.apply_gradients(zip(grads, self.variables))
        return common  # XLA wants a result

    def outcome(self, common: Any, last: Dict[str, Any]) -> str:
        """Return what a step does whose gradients hold one number, but for the last element of some of them."""
        for variable in self.variables:
            variable.assign(np.zeros(variable.shape))
        before = state_of(self.optimizer)
        numbers = [last.get(place, 1.0 if place == SPARSE else common) for place in (*SHAPES, SPARSE)]
        self.step(self._tensor(common), self._tensor(numbers))
        found = [np.asarray(variable.numpy()).astype(np.complex128) for variable in self.variables]
        divisor = before["current_loss_scale"] if self.is_scaled else 1.0
        with np.errstate(all="ignore"):  # inf and NaN are among the numbers on purpose
            wanted = [-each / divisor for each in self._gradients(common, numbers)]
        growth = state_of(self.optimizer)["current_loss_scale"] / before["current_loss_scale"]
        if growth == 2.0 and all(map(np.array_equal, found, wanted)):
            return APPLIED
        if growth == 0.5 and not any(each.any() for each in found):
            return SKIPPED
        moved = "finite" if all(np.isfinite(each).all() for each in found) else "not finite"
        return f"weights {moved}, scale × {growth:g}"

    def outcome_of_bad(self, common: Any, last: Dict[str, Any]) -> str:
        """The same for a step after which the next one has to be as if nothing had happened."""
        first, then = self.outcome(common, last), self.outcome(1.0, {})
        return first if then == APPLIED else f"{first}, then {then}"

    def _tensor(self, numbers: Any) -> Any:
        wide = tf.complex128 if self.dtype.is_complex else tf.float64
        return tf.cast(tf.constant(np.array(numbers, wide.as_numpy_dtype)), self.dtype)

    def _gradients(self, common: Any, numbers: Sequence[Any]) -> List[Any]:
        """Once more, in NumPy."""
        arrays = []
        for shape, number in zip(SHAPES.values(), numbers):
            array = np.full(shape, common, np.complex128)
            array.reshape(-1)[-1:] = number
            arrays.append(array)
        table = np.zeros((5, 2), np.complex128)
        table[0], table[3] = [1, 1], [2, 1 + numbers[-1]]
        return [*arrays, table]


def _filled(shape: Tuple[int, ...], common: Any, last: Any) -> Any:
    size = int(np.prod(shape))
    if not size:
        return tf.zeros(shape, last.dtype)
    return tf.reshape(tf.concat([tf.fill([size - 1], common), [last]], 0), shape)


def outcomes_of_numbers(numbers: Numbers, are_all: bool = True) -> Dict[str, List[str]]:
    """Return what is given → what comes out: every bad number in every place, or each in one and a few places."""
    largest = LARGEST[numbers.dtype]
    places = PLACES if are_all else ["small", "stacked 2", "large", SPARSE]

    def outcomes(*bad: Any) -> List[str]:
        pairs = itertools.product(places, bad) if are_all else zip(places, itertools.cycle(bad))
        return [numbers.outcome_of_bad(1.0, {place: number}) for place, number in pairs]

    found = {"NaN, inf or −inf in one gradient": outcomes(NAN, INF, -INF)}
    if numbers.dtype.is_complex:
        imaginary = [complex(1, number) for number in (INF, -INF, NAN)]
        found["NaN, inf or −inf in an imaginary part of one gradient"] = outcomes(*imaginary)
    found["ordinary numbers"] = [numbers.outcome(1.0, {})]
    found["the largest numbers, whose sum overflows"] = [numbers.outcome(number, {}) for number in (largest, -largest)]
    found["the largest numbers, of both signs"] = [numbers.outcome(largest, dict.fromkeys(SHAPES, -largest))]
    among = places if are_all else places[-2:]
    found["the largest numbers, and −inf among them"] = [
        numbers.outcome_of_bad(largest, {place: -INF}) for place in among
    ]
    return found


EXPECTED_OF_NUMBERS = {
    "NaN, inf or −inf in one gradient": SKIPPED,
    "NaN, inf or −inf in an imaginary part of one gradient": SKIPPED,
    "ordinary numbers": APPLIED,
    "the largest numbers, whose sum overflows": APPLIED,
    "the largest numbers, and −inf among them": SKIPPED,
    "the largest numbers, of both signs": APPLIED,
}


# Gradients of odd kinds


class Trial(NamedTuple):
    """Gradients and variables; ``make(factor)`` gives gradients that are so many times as large."""

    given: str
    make: Callable[[float], List[Tuple[Any, Any]]]
    expected: Any  # the numbers in all variables after the step, SKIPPED, NOTHING, an error's name, or AS_BARE
    handed: Tuple[bool, ...] = (False, True)  # scaled gradients, and such that are not


NOTHING = "nothing moved"
AS_BARE = "as without a wrapper"
UNSCALED, SCALED = (False,), (True,)


def _variable(numbers: Any, dtype: Any = tf.float32) -> Any:
    return tf.Variable(tf.cast(tf.constant(numbers), dtype))


def _rows(values: Sequence[float], indices: Sequence[int], size: int, dtype: Any = tf.float32) -> Any:
    """A sparse gradient of a table with one column."""
    column = tf.cast(tf.reshape(tf.constant(values, tf.float64), [-1, 1]), dtype)
    return tf.IndexedSlices(column, tf.constant(indices, tf.int32), tf.constant([size, 1]))


TRIALS = [
    Trial("an empty list", lambda factor: [], NOTHING),
    Trial("None for every variable", lambda factor: [(None, _variable(1.0)), (None, _variable(2.0))], "ValueError"),
    Trial(
        "None for one variable",
        lambda factor: [(None, _variable(1.0)), (tf.constant(0.5 * factor), _variable(2.0))],
        [1.0, 1.5],
    ),
    Trial(
        "None for one variable, NaN for another",
        lambda factor: [(None, _variable(1.0)), (tf.constant(NAN), _variable(2.0))],
        SKIPPED,
    ),
    Trial(
        "None for an integer variable",
        lambda factor: [(None, tf.Variable(5)), (tf.constant(0.5 * factor), _variable(2.0))],
        [5.0, 1.5],
    ),
    Trial(
        "an integer gradient",
        lambda factor: [(tf.constant(int(3 * factor)), _variable(5.0))],
        AS_BARE,
        UNSCALED,
    ),
    Trial(
        "an integer gradient, scaled", lambda factor: [(tf.constant(int(3 * factor)), _variable(5.0))], [2.0], SCALED
    ),
    Trial(
        "an integer gradient of an integer variable",
        lambda factor: [(tf.constant(int(3 * factor)), tf.Variable(5))],
        AS_BARE,
        UNSCALED,
    ),
    Trial(
        "a float16 gradient of a float32 variable",
        lambda factor: [(tf.constant(3.0 * factor, tf.float16), _variable(5.0))],
        AS_BARE,
    ),
    Trial(
        "a float32 gradient of a float16 variable",
        lambda factor: [(tf.constant(3.0 * factor), _variable(5.0, tf.float16))],
        AS_BARE,
    ),
    Trial(
        "a float64 gradient of a float32 variable",
        lambda factor: [(tf.constant(3.0 * factor, tf.float64), _variable(5.0))],
        AS_BARE,
    ),
    Trial("a NumPy array", lambda factor: [(np.float32([0.5 * factor]), _variable([2.0]))], [1.5]),
    Trial("a variable without elements, alone", lambda factor: [(tf.zeros([0, 2]), tf.Variable(tf.zeros([0, 2])))], []),
    Trial("a sparse gradient without rows", lambda factor: [(_rows([], [], 2), _variable([[1.0], [2.0]]))], [1.0, 2.0]),
    Trial(
        "a sparse gradient without rows, beside NaN",
        lambda factor: [(_rows([], [], 2), _variable([[1.0], [2.0]])), (tf.constant(NAN), _variable(3.0))],
        SKIPPED,
    ),
    Trial(
        "a sparse gradient, rows out of order and one index twice",
        lambda factor: [(_rows([1.0 * factor, 2.0 * factor, 4.0 * factor], [2, 0, 2], 3), _variable([[0.0]] * 3))],
        [-2.0, 0.0, -5.0],
    ),
    Trial(
        "NaN in the last row of a table of 100,000",
        lambda factor: [(_rows([1.0, NAN], [7, 99999], 100000), tf.Variable(tf.zeros([100000, 1])))],
        SKIPPED,
    ),
    Trial(
        "a sparse gradient, one index twice: the sum overflows",
        lambda factor: [(_rows([2.0**127, 2.0**127], [1, 1], 2), _variable([[0.0], [0.0]]))],
        SKIPPED,
        UNSCALED,
    ),
    Trial(
        "a sparse float16 gradient, one index twice: the sum overflows",
        lambda factor: [(_rows([4e4, 4e4], [1, 1], 2, tf.float16), _variable([[0.0], [0.0]], tf.float16))],
        SKIPPED,
        UNSCALED,
    ),
    Trial(
        "a sparse gradient, one index twice: the scaled sum overflows, the unscaled does not",
        lambda factor: [(_rows([2.0**127, 2.0**127], [1, 1], 2), _variable([[0.0], [0.0]]))],
        [0.0, -(2.0**118)],
        SCALED,
    ),
    Trial(
        "denormals and −0.0",
        lambda factor: [(tf.constant([1e-40, -1e-45, 2.0**-126, -0.0]), _variable([0.0] * 4))],
        AS_BARE,
        UNSCALED,
    ),
    Trial(
        "float16 gradients that unscaling takes to the smallest denormal, and below",
        lambda factor: [(tf.constant([2.0**-14, 2.0**-16], tf.float16), _variable([0.0, 0.0], tf.float16))],
        [-(2.0**-24), 0.0],
        SCALED,
    ),
]


def outcome_of(trial: Trial, optimizer: Any, way: Tuple[str, bool]) -> str:
    """Return what one step does: the numbers in all variables if they moved, or the name of an error."""
    name, is_scaled = way
    is_bare = not hasattr(optimizer, "inner_optimizer") and not hasattr(optimizer, "_optimizer")
    pairs = trial.make(SCALE if is_scaled and not is_bare else 1.0)
    before = _numbers(pairs)
    try:
        if hasattr(optimizer, "build") and pairs:
            optimizer.build([variable for _, variable in pairs])

        def step() -> None:
            grads = [grad for grad, _ in pairs]
            if is_scaled and not is_bare:
                grads = unscaled(optimizer, grads)
            optimizer.apply_gradients(list(zip(grads, [variable for _, variable in pairs])))

        FUNCTIONS[name](step)()
    except (TypeError, ValueError, tf.errors.OpError) as error:
        return _caught_as(error)
    growth = 2.0 if is_bare else state_of(optimizer)["current_loss_scale"] / SCALE
    if _numbers(pairs) != before or growth == 2.0:
        return f"{APPLIED}: {_numbers(pairs)}" + ("" if growth == 2.0 else f", scale × {growth:g}")
    return SKIPPED if growth == 0.5 else NOTHING


def _numbers(pairs: Sequence[Tuple[Any, Any]]) -> List[float]:
    """The first few numbers of all variables; −0.0 is told from 0.0."""
    return [float(each) for _, variable in pairs for each in np.asarray(variable.numpy()).reshape(-1)[:4]]


def expected_of(trial: Trial, kind: str, way: Tuple[str, bool]) -> str:
    if trial.expected == AS_BARE:
        return outcome_of(trial, inner(kind), way)
    return f"{APPLIED}: {trial.expected}" if isinstance(trial.expected, list) else trial.expected


def is_as_expected(expected: str, found: str) -> bool:
    """Which error an inner optimizer raises depends on how far it came; that it raises one does not."""
    return expected == found or (expected.endswith("Error") and expected != "ValueError" and found.endswith("Error"))


# The scale at its bounds


def at_the_floor(kind: str, steps: int) -> Dict[str, Any]:
    """As many non-finite steps, all but the first few with a scale of 1, and then three good ones."""
    policy = {"name": "dynamic", "initial_loss_scale": SCALE, "increment_period": 1}
    optimizer = LossScaleOptimizer(inner(kind), policy, skipped_steps="hold", attribute_overflows=True)
    variable, traces = tf.Variable([1.0], name="only"), []

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([1])])
    def step(gradient: Any) -> None:
        traces.append(1)
        optimizer.apply_gradients([(gradient, variable)])

    bad, good, memory = tf.constant([NAN]), tf.constant([0.5]), 0
    for number in range(steps):
        step(bad)
        if number == 0:
            traces.clear()
        if number == steps // 10:
            memory = resident()
    told = optimizer.telemetry
    found = {
        "weight": float(variable.numpy()[0]),
        "steps": told.steps,
        "skipped": told.skipped,
        "skipped in a row": told.skipped_in_a_row,
        "last skipped step": told.last_skipped_step,
        "overflows": told.overflows,
        "scale": told.loss_scale,
        "iterations": int(optimizer.iterations.numpy()),
        "memory at the end": resident() / memory,
    }
    for _ in range(3):
        step(good)
    told = optimizer.telemetry
    return {
        **found,
        "weight after three good steps": float(variable.numpy()[0]),
        "scale after three good steps": told.loss_scale,
        "skipped in a row then": told.skipped_in_a_row,
        "traces after the first step": len(traces),
    }


NEAR_THE_CEILING = {"initial_loss_scale": 2.0**120, "increment_period": 1}
STEPS_AT_CEILING, WEIGHT_AT_CEILING = 20, -10.0


def ours_near_the_ceiling(kind: str) -> Any:
    return LossScaleOptimizer(inner(kind), {"name": "dynamic", **NEAR_THE_CEILING})


def at_the_ceiling(optimizer: Any, way: str, steps: int) -> float:
    """The weight after steps that each move it by −0.5, from 0, in a loop that scales and unscales."""
    variable = tf.Variable(0.0)
    if hasattr(optimizer, "build"):
        optimizer.build([variable])
    else:
        optimizer.apply_gradients([(tf.constant(0.0), variable)])

    def step(factor: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = factor * variable
            has_words = hasattr(optimizer, "get_scaled_loss")
            loss = optimizer.get_scaled_loss(loss) if has_words else optimizer.scale_loss(loss)
        grads = unscaled(optimizer, tape.gradient(loss, [variable]))
        optimizer.apply_gradients(zip(grads, [variable]))
        return factor

    function = FUNCTIONS[way](step)
    for _ in range(steps):
        function(tf.constant(0.5))
    return float(variable.numpy())


def resident() -> int:
    """The memory of this process, in pages."""
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1])


# All of it, on the installed TensorFlow


def results_of_ours(kind: str) -> List[bool]:
    """For each run of scalekeeper, whether it came out as expected."""
    results = []
    for dtype in LARGEST:
        for way in WAYS:
            for given, found in outcomes_of_numbers(Numbers(ours, kind, dtype, way)).items():
                results += [each == EXPECTED_OF_NUMBERS[given] for each in found]
    for trial in TRIALS:
        for way in WAYS:
            if way[1] in trial.handed:
                found = outcome_of(trial, ours(inner(kind)), way)
                results.append(is_as_expected(expected_of(trial, kind, way), found))
    for way in FUNCTIONS:
        results.append(at_the_ceiling(ours_near_the_ceiling(kind), way, STEPS_AT_CEILING) == WEIGHT_AT_CEILING)
    return results


def _caught_as(error: Exception) -> str:
    """Return the class of an error that a program catches: the built-in one, or TensorFlow's."""
    return next(each.__name__ for each in type(error).__mro__ if not each.__module__.startswith("scalekeeper"))


def trials_of_tensorflows(kind: str) -> Iterator[Tuple[str, str, str]]:
    """Return what is given, what is expected, and what TensorFlow's own class makes of it."""
    for dtype in LARGEST:
        try:
            outcomes = outcomes_of_numbers(Numbers(tensorflows, kind, dtype, ("traced", True)))
        except (TypeError, ValueError, tf.errors.OpError) as error:  # it can't do this type at all
            outcomes = {"ordinary numbers": [type(error).__name__]}
        for given, found in outcomes.items():
            yield f"{dtype.name}: {given}", EXPECTED_OF_NUMBERS[given], ", ".join(sorted(set(found)))
    for trial in TRIALS:
        if any(trial.handed) or not IS_KERAS_3:  # whose own class takes scaled gradients only
            way = ("traced", any(trial.handed))
            yield trial.given, expected_of(trial, kind, way), outcome_of(trial, tensorflows(inner(kind)), way)
    for way in FUNCTIONS:
        optimizer = upstream(inner(kind), NEAR_THE_CEILING)
        moved = at_the_ceiling(optimizer, way, STEPS_AT_CEILING)
        given = f"{STEPS_AT_CEILING} steps of −0.5 while the scale grows from 2^120 on, {way}"
        yield given, f"{APPLIED}: [{WEIGHT_AT_CEILING}]", f"{APPLIED}: [{moved}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="keep the figures for docs/reliability.md")
    parser.add_argument("--steps", type=int, default=10_000, help="non-finite steps with the scale at its floor")
    options = parser.parse_args()
    summary, differences = [], []
    for kind in OPTIMIZERS:
        results = results_of_ours(kind)
        trials = list(trials_of_tensorflows(kind))
        others = [each for each in trials if not is_as_expected(*each[1:])]
        floor = at_the_floor(kind, options.steps)
        summary.append(
            {
                "optimizers": kind,
                "runs": len(results),
                "as expected": sum(results),
                "non-finite steps at the floor": floor["skipped in a row"],
                "memory at their end, to that after a tenth": round(floor["memory at the end"], 4),
                "trials of TensorFlow's own class": len(trials),
                "as expected there": len(trials) - len(others),
            }
        )
        print(summary[-1], flush=True)
        for given, expected, found in others:
            row = {"optimizers": kind, "given": given, "expected, and ours": expected, "TensorFlow's own class": found}
            differences.append(row)
            print("   ", given, "|", expected, "|", found)
    if options.record:
        reliability_results.record("bad-numbers", summary)
        reliability_results.record("bad-numbers-of-tensorflow", differences)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    tf.get_logger().setLevel("ERROR")
    main()
