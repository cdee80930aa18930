"""What a loss scale per group of layers would bring, and cost: the figures of docs/layerwise.md.

    python benchmarks/layerwise_prototype.py [--seconds 60] [--width 128] [--models chain towers residual]

Three small float16 models of eight groups: *chain*, 24 sigmoid layers, whose gradients shrink by 2² with each layer on
the way back; *towers*, eight networks side by side, each with a loss 2⁶ times smaller than the one before; *residual*,
eight residual blocks, as models are built today. For each, the best that powers of two can do:

    one scale   the largest with which nothing overflows
    afterwards  the same, and the gradients scaled once more when they have been computed
    passes      a backward pass for each group, with a loss scale of its own
    layers      layers between the groups, which scale the gradient as it flows back
    bfloat16    no scale at all, in a type with the range of float32

A gradient is lost if it is zero where that of the same model in float32 is not. Times are those of a whole traced
training step of *chain*, interleaved in random order, medians, divided by that of the step with one scale.
"""

from typing import Any, Callable, Dict, List, Sequence

import argparse
import statistics

import numpy as np
import tensorflow as tf

from scalekeeper import LossScaleOptimizer
from scalekeeper_test_support.benchmark_results import interleaved, machine
from scalekeeper_test_support.installed_keras import set_global_policy

GROUPS, WIDTH, BATCH = 8, 64, 64
layers = tf.keras.layers


class ScaleGradient(layers.Layer):
    """Passes values on as they are, and multiplies the gradient that comes back."""

    def __init__(self, factor: Any, **options: Any) -> None:
        super().__init__(**options)
        self.factor = factor

    def call(self, inputs: Any) -> Any:
        @tf.custom_gradient
        def passed(values: Any) -> Any:
            return tf.identity(values), lambda gradient: gradient * tf.cast(self.factor, gradient.dtype)

        return passed(inputs)


class Residual(layers.Layer):
    """A normalization, two dense layers, and the way around them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.parts = [layers.LayerNormalization(), layers.Dense(width, activation="relu"), layers.Dense(width)]

    def call(self, inputs: Any) -> Any:
        hidden = inputs
        for part in self.parts:
            hidden = part(hidden)
        return inputs + hidden


def dense(width: int, activation: str) -> Any:
    return tf.keras.Sequential([layers.Dense(width, activation=activation) for _ in range(3)])


class Chain:
    """Groups of layers one after the other, a factor for the gradient that flows into each, and a fixed batch."""

    def __init__(self, policy: str, width: int = WIDTH) -> None:
        set_global_policy(policy)
        self.factors = [tf.Variable(1.0, trainable=False) for _ in range(GROUPS)]
        self.rescaling = [self._rescaling(factor) for factor in self.factors]
        self.groups = [self._group(width) for _ in range(GROUPS)]
        rng = np.random.RandomState(0)
        self.inputs = tf.constant(rng.randn(BATCH, width), tf.float32)
        self.targets = tf.constant(rng.rand(BATCH, width), tf.float32)
        self.loss(range(GROUPS))  # makes the variables
        for variable in self.kernels(range(GROUPS)):
            variable.assign(rng.randn(width, width) / np.sqrt(width))

    def _group(self, width: int) -> Any:
        return dense(width, "sigmoid")

    def _rescaling(self, factor: Any) -> Any:
        return ScaleGradient(factor)

    def loss(self, rescaled: Sequence[int] = ()) -> Any:
        """In float32; for the groups in ``rescaled``, the gradient is scaled where it flows into them."""
        hidden = self.inputs
        self.given = []  # the input of each group
        for place, group in enumerate(self.groups):
            self.given.append(hidden)
            hidden = group(hidden)
            if place in rescaled:
                hidden = self.rescaling[place](hidden)
        return tf.reduce_mean((tf.cast(hidden, tf.float32) - self.targets) ** 2)

    def divisors(self) -> List[float]:
        """By what the gradients of each group have been multiplied, when all factors are in use."""
        factors = [float(factor.numpy()) for factor in self.factors]
        return [float(np.prod(factors[place:])) for place in range(GROUPS)]

    def variables(self) -> List[List[Any]]:
        return [list(group.trainable_variables) for group in self.groups]

    def kernels(self, places: Sequence[int]) -> List[Any]:
        return [each for place in places for each in self.variables()[place] if len(each.shape) == 2]

    def choose_factors(self, gradients_at: Callable[[float], Any]) -> float:
        """Choose from the loss backwards, each as large as it can be; return the loss scale."""

        def is_fine(place: int, scale: float) -> bool:
            groups, given = gradients_at(scale)
            return finite([groups[place], given[place]])

        scale = largest(lambda value: is_fine(GROUPS - 1, value))
        for place in reversed(range(GROUPS - 1)):

            def is_fine_with(factor: float, place: int = place) -> bool:
                self.factors[place].assign(factor)
                return is_fine(place, scale)

            self.factors[place].assign(largest(is_fine_with, -10, 15))
        return scale


class ResidualBlocks(Chain):
    def _group(self, width: int) -> Any:
        return Residual(width)


class Towers(Chain):
    """The groups side by side, each with its own share of the loss."""

    def _group(self, width: int) -> Any:
        return dense(width, "relu")

    def _rescaling(self, factor: Any) -> Any:
        return ScaleGradient(factor, dtype="float32")  # between the loss and the cast to float16

    def loss(self, rescaled: Sequence[int] = ()) -> Any:
        self.given = []
        losses = []
        for place, group in enumerate(self.groups):
            hidden = tf.cast(group(self.inputs), tf.float32)
            if place in rescaled:
                hidden = self.rescaling[place](hidden)
            losses.append(2.0 ** (-6 * place) * tf.reduce_mean((hidden - self.targets) ** 2))
        return tf.add_n(losses)

    def divisors(self) -> List[float]:
        return [float(factor.numpy()) for factor in self.factors]

    def choose_factors(self, gradients_at: Callable[[float], Any]) -> float:
        for place, factor in enumerate(self.factors):

            def is_fine_with(value: float, place: int = place, factor: Any = factor) -> bool:
                factor.assign(value)
                return finite([gradients_at(1.0)[0][place]])

            factor.assign(largest(is_fine_with))
        return 1.0


MODELS = {"chain": Chain, "towers": Towers, "residual": ResidualBlocks}


class Measured:
    """The gradients of a model's groups at any scale, and the true ones."""

    def __init__(self, make: Callable[[str], Any], policy: str) -> None:
        self.network = make(policy)
        self._traced = traced_gradients(self.network)
        self.truth = split(traced_gradients(make("float32"))(tf.constant(1.0)))[0]

    def at(self, scale: float) -> Any:
        """The scaled gradients of each group's variables, and of what each group is given."""
        return split(self._traced(tf.constant(scale, tf.float32)))

    def row(self, way: str, gradients: Sequence[Any]) -> Dict[str, Any]:
        """What became of unscaled gradients: shares by group, and errors relative to the true ones."""
        pairs = list(zip(gradients, self.truth))
        errors = [float(np.linalg.norm(got - true) / np.linalg.norm(true)) for got, true in pairs]
        return {
            "way": way,
            "lost": [float(np.mean(got[true != 0] == 0)) for got, true in pairs],
            "overflowed": [float(np.mean(~np.isfinite(got))) for got, _ in pairs],
            "median error": statistics.median(errors),
            "largest error": max(errors),
        }


def traced_gradients(network: Any) -> Any:
    @tf.function
    def gradients(scale: Any) -> Any:
        with tf.GradientTape() as tape:
            scaled = network.loss(range(GROUPS)) * scale
        return tape.gradient(scaled, [network.variables(), list(network.given)])

    return gradients


def split(found: Any) -> Any:
    """As NumPy's float64: one array for each group's variables, one for what it is given."""
    variables, given = found
    groups = [np.concatenate([np.ravel(each.numpy()).astype("float64") for each in group]) for group in variables]
    return groups, [np.zeros(1) if each is None else each.numpy().astype("float64") for each in given]


def finite(arrays: Sequence[Any]) -> bool:
    return all(np.isfinite(each).all() for each in arrays)


def largest(is_fine: Callable[[float], bool], first: int = 0, last: int = 80) -> float:
    """The largest power of two between these that is fine, as all smaller ones are."""
    while first < last:
        middle = (first + last + 1) // 2
        first, last = (middle, last) if is_fine(2.0**middle) else (first, middle - 1)
    return 2.0**first


def flat(lists: Sequence[Any]) -> List[Any]:
    return [each for several in lists for each in several]


def accuracy(make: Callable[[str], Any]) -> List[Dict[str, Any]]:
    """What each way does to the gradients of one model."""
    measured = Measured(make, "mixed_float16")
    scale = largest(lambda value: finite(measured.at(value)[0]))
    single = measured.at(scale)[0]
    rows = [
        measured.row("one scale", [each / scale for each in single]),
        measured.row("afterwards", [each * 1024 / (scale * 1024) for each in single]),
        measured.row("one scale, twice as large", [each / (2 * scale) for each in measured.at(2 * scale)[0]]),
    ]
    scales = [
        largest(lambda value, place=place: finite([measured.at(value)[0][place]]))  # type: ignore[misc]
        for place in range(GROUPS)
    ]
    rows.append(measured.row("passes", [measured.at(each)[0][place] / each for place, each in enumerate(scales)]))
    base = measured.network.choose_factors(measured.at)
    divisors = [base * each for each in measured.network.divisors()]
    gradients = [each / divisor for each, divisor in zip(measured.at(base)[0], divisors)]
    rows.append(measured.row("layers", gradients))
    rows[0]["scales"], rows[3]["scales"], rows[4]["scales"] = [scale] * GROUPS, scales, divisors
    rounded = Measured(make, "mixed_bfloat16")
    rows.append(rounded.row("bfloat16", rounded.at(1.0)[0]))
    return rows


OPTIMIZERS = {
    "SGD(0.1)": lambda: tf.keras.optimizers.SGD(0.1),
    "Adam(0.001)": lambda: tf.keras.optimizers.Adam(0.001),
    "Adam(0.001, epsilon=1e-20)": lambda: tf.keras.optimizers.Adam(0.001, epsilon=1e-20),
}


def moved(make: Callable[[str], Any], places: Sequence[int]) -> Dict[str, float]:
    """The share of these groups' weights that one step with the true gradients changes, for each optimizer."""
    shares = {}
    for name, make_optimizer in OPTIMIZERS.items():
        network = make("float32")
        kernels = network.kernels(places)
        before = [kernel.numpy() for kernel in kernels]
        with tf.GradientTape() as tape:
            loss = network.loss()
        make_optimizer().apply_gradients(list(zip(tape.gradient(loss, kernels), kernels)))
        shares[name] = float(np.mean([kernel.numpy() != old for kernel, old in zip(kernels, before)]))
    return shares


def training_step(way: str, parts: int, width: int) -> Callable[[], Any]:
    """One step of *chain* with so many loss scales, traced and run once."""
    network = Chain("mixed_float16", width)
    optimizer = LossScaleOptimizer(tf.keras.optimizers.SGD(0.1), "dynamic")
    size = GROUPS // parts
    by_part = [flat(network.variables()[first : first + size]) for first in range(0, GROUPS, size)]
    variables = flat(by_part)
    ends = range(size - 1, GROUPS - 1, size) if way == "layers" else ()
    factors = [2.0 ** (parts - 1 - part) for part in range(parts)]
    for end in ends:
        network.factors[end].assign(2.0)

    @tf.function
    def step() -> Any:
        with tf.GradientTape(persistent=way == "passes") as tape:
            loss = network.loss(ends)
            scaled = optimizer.get_scaled_loss(loss)
            losses = [scaled * factor for factor in factors] if way == "passes" else []
        if way == "passes":
            found = [tape.gradient(each, part) for each, part in zip(losses, by_part)]
        else:
            found = tape.gradient(scaled, by_part)
        if way != "one scale":
            found = [[each / factor for each in part] for part, factor in zip(found, factors)]
        unscaled = optimizer.get_unscaled_gradients(flat(found))
        optimizer.apply_gradients(list(zip(unscaled, variables)))
        return loss

    step()
    return lambda: step().numpy()


def times(seconds: float, width: int) -> Dict[str, float]:
    """Ratios to the step with one scale."""
    steps = {name: training_step("one scale", 1, width) for name in ("one scale", "one scale again")}
    for parts in (2, 4, 8):
        for way in ("passes", "layers"):
            steps[f"{way}, {parts} groups"] = training_step(way, parts, width)
    taken = interleaved(steps, seconds)
    medians = {name: statistics.median(several) for name, several in taken.items()}
    print(f"one scale: {medians['one scale']:.2f} ms, {len(taken['one scale'])} turns")
    return {name: median / medians["one scale"] for name, median in medians.items()}


def powers(scales: Any) -> str:
    return " ".join(f"{np.log2(each):.0f}" for each in scales or [])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=float, default=60.0, help="for all times together")
    arguments.add_argument("--width", type=int, default=128, help="of the layers whose time is taken")
    arguments.add_argument("--models", nargs="*", default=list(MODELS), help="whose gradients are looked at")
    options = arguments.parse_args()
    print(machine())
    print("| model | way | lost | overflowed | median error | largest error | lost by group | log2 of the scales |")
    for name in options.models:
        make = MODELS[name]
        rows = accuracy(make)
        for row in rows:
            by_group = " ".join(f"{100 * share:.0f}" for share in row["lost"])
            shares = f"{np.mean(row['lost']):.2%} | {np.mean(row['overflowed']):.2%}"
            errors = f"{row['median error']:.4f} | {row['largest error']:.4f}"
            print(
                f"| {name} | {row['way']} | {shares} | {errors} | {by_group} | {powers(row.get('scales'))} |",
                flush=True,
            )
        places = [place for place, share in enumerate(rows[0]["lost"]) if share > 0.5]
        for optimizer, share in moved(make, places).items() if places else ():
            print(
                f"groups {places}: one step of {optimizer} with the true gradients changes {share:.2%} of the weights"
            )
    for name, ratio in times(options.seconds, options.width).items():
        print(f"| {name} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
