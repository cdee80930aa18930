"""Make the two pictures and the table of docs/why.md: gradients that float16 loses, and what a loss scale saves.

    python benchmarks/vanishing_gradients.py --record    # trains three times, about three minutes; Keras 3
    python benchmarks/vanishing_gradients.py             # the page and its pictures from what was recorded

Drawing needs matplotlib, and no TensorFlow.
"""

from typing import Any, Dict, List, Tuple

import hashlib
import io
import json
import os
import sys

import numpy as np

from scalekeeper.serialization._atomic import replacing
from scalekeeper.simulation._plot import COLORS
from scalekeeper_test_support.generated_pages import DOCS, rewrite

RECORDED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "vanishing_gradients.json")
SIDE, STEPS, EVERY = 512, 600, 10
RUNS: Dict[str, Tuple[str, Any]] = {
    "float32": ("float32", "none"),
    "float16, no scale": ("mixed_float16", "none"),
    "float16, dynamic scale": ("mixed_float16", "dynamic"),
}
BINS = np.arange(-44, 1)  # powers of two
_SMALLEST, _NORMAL, _LARGEST = -24, -14, 16  # powers of two: float16's smallest number, smallest normal one, its end
_SCALE = 15  # of the dynamic scale at the end of its run, as a power of two


def image() -> Tuple[Any, Any]:
    """What is known of each pixel, waves over the place where it is; and its brightness, which is to be learned."""
    places = (np.indices((SIDE, SIDE)).reshape(2, -1).T / SIDE * 2 - 1).astype("float32")
    angles = places @ (np.random.RandomState(0).randn(2, 8).astype("float32") * 3)
    distance = np.hypot(places[:, :1], places[:, 1:])
    brightness = 0.5 * np.exp(-4 * distance**2) * np.cos(12 * places[:, :1])
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1), brightness.astype("float32")


def trained(kind: str, policy: Any) -> Dict[str, Any]:
    """One run: its losses, and of its last step how large the gradients of a layer's outputs are, in powers of two."""
    import tensorflow as tf

    import scalekeeper

    tf.keras.utils.set_random_seed(0)
    tf.keras.mixed_precision.set_global_policy(kind)
    layers = [tf.keras.layers.Dense(24, activation="tanh") for _ in range(3)]
    layers.append(tf.keras.layers.Dense(1, dtype="float32"))
    tf.keras.mixed_precision.set_global_policy("float32")
    inputs, targets = (tf.constant(each) for each in image())
    optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.Adam(0.005), policy)

    def forward(tape: Any) -> Tuple[Any, Any]:
        values, inner = inputs, None
        for layer in layers:
            values = layer(values)
            if layer is layers[1]:
                inner = values
                tape.watch(inner)
        return inner, tf.reduce_mean((values - targets) ** 2)

    @tf.function
    def step() -> Tuple[Any, Any]:
        with tf.GradientTape() as tape:
            inner, loss = forward(tape)
            scaled_loss = optimizer.get_scaled_loss(loss)
        *gradients, of_inner = tape.gradient(scaled_loss, [*variables, inner])
        optimizer.apply_gradients(zip(optimizer.get_unscaled_gradients(gradients), variables))
        return loss, of_inner

    with tf.GradientTape() as tape:
        forward(tape)  # makes the variables, outside of the traced step
    variables = [variable for layer in layers for variable in layer.trainable_variables]
    losses = []
    for number in range(STEPS):
        loss, of_inner = step()
        if number % EVERY == 0 or number == STEPS - 1:
            losses.append([number, float(f"{float(loss):.5g}")])
    scale = float(optimizer.loss_scale())
    return {"losses": losses, "scale": scale, **counted(of_inner.numpy().astype("float64") / scale)}


def counted(gradients: Any) -> Dict[str, Any]:
    """A histogram of magnitudes by their power of two, and how many gradients are zero."""
    sizes = np.abs(gradients[gradients != 0])
    counts = np.histogram(np.log2(sizes), bins=[*BINS, np.inf])[0]
    return {"counts": counts.tolist(), "zeros": int((gradients == 0).sum()), "gradients": int(gradients.size)}


def table(found: Dict[str, Any]) -> str:
    """Rows of a Markdown table."""
    lines = ["| | loss after 600 steps | gradients that are zero |", "| --- | --: | --: |"]
    for label, run in found.items():
        zeros = 100 * run["zeros"] / run["gradients"]
        lines.append(f"| {label} | {run['losses'][-1][1]:.2e} | {zeros:.1f} % |")
    return "\n".join(lines)


def figure(height: float) -> Tuple[Any, Any]:
    from matplotlib.figure import Figure

    made = Figure(figsize=(8.4, height), layout="constrained")
    return made, made.subplots()


def draw_histogram(found: Dict[str, Any]) -> Any:
    """The gradients as float32 has them, against what float16 can hold of them, and the same times 2^15."""
    made, axes = figure(3.1)
    counts = np.array(found["float32"]["counts"]) / found["float32"]["gradients"] * 100
    axes.axvspan(BINS[0], _SMALLEST - 1, color="#d55e00", alpha=0.13, linewidth=0)
    axes.axvspan(_SMALLEST - 1, _NORMAL, color="#e69f00", alpha=0.15, linewidth=0)
    axes.axvspan(_LARGEST, _LARGEST + 4, color="#d55e00", alpha=0.13, linewidth=0)
    axes.stairs(counts, [*BINS, 1], color=COLORS[1], linewidth=1.6, label="gradients")
    axes.stairs(counts, [*(BINS + _SCALE), _SCALE + 1], color=COLORS[0], linewidth=1.6, label="the same × 2^15")
    top = counts.max() * 1.2
    for place, text in ((-35, "become 0"), (-19.5, "lose bits"), (1, "exact to 11 bits"), (18, "inf")):
        axes.text(place, top * 0.97, text, ha="center", va="top")
    axes.set(xlim=(BINS[0], _LARGEST + 4), ylim=(0, top), ylabel="% of all gradients", xlabel="size, as a power of two")
    axes.legend(loc="center", bbox_to_anchor=(0.74, 0.55), frameon=False)
    return made


def draw_losses(found: Dict[str, Any]) -> Any:
    """The losses of the three runs; float32 is wide and pale, as the scaled run lies on it."""
    made, axes = figure(3.1)
    looks: List[Dict[str, Any]] = [
        {"color": "#999999", "linewidth": 5, "alpha": 0.6},
        {"color": COLORS[1], "linewidth": 1.6},
        {"color": COLORS[0], "linewidth": 1.6},
    ]
    for (label, run), look in zip(found.items(), looks):
        axes.plot(*zip(*run["losses"]), label=label, **look)
    axes.set(yscale="log", ylabel="loss", xlabel="step", xlim=(0, STEPS))
    axes.legend(frameon=False)
    return made


def pictures(found: Dict[str, Any]) -> Dict[str, str]:
    """The name of each file, and what is in it: small, as text stays text."""
    import matplotlib

    settings = {"font.size": 9, "svg.hashsalt": "scalekeeper", "axes.spines.top": False, "axes.spines.right": False}
    with matplotlib.rc_context({**settings, "svg.fonttype": "none"}):
        drawn = {
            "gradients_and_float16.svg": draw_histogram(found),
            "losses_with_and_without_scale.svg": draw_losses(found),
        }
        return {name: as_svg(made, source(found)) for name, made in drawn.items()}


def as_svg(made: Any, text: str) -> str:
    stream = io.StringIO()
    made.savefig(stream, format="svg", metadata={"Date": None, "Creator": None, "Description": text})
    return stream.getvalue()


def source(found: Dict[str, Any]) -> str:
    """What a picture says of the record that it was made from: versions of matplotlib draw differently."""
    digest = hashlib.sha256(json.dumps(found, sort_keys=True).encode("utf-8")).hexdigest()
    return f"benchmarks/vanishing_gradients.json, {digest[:16]}"


def recorded() -> Dict[str, Any]:
    with open(RECORDED, encoding="utf-8") as stream:
        return json.load(stream)


def main() -> None:
    if "--record" in sys.argv:
        found = {label: trained(*run) for label, run in RUNS.items()}
        lines = ",\n".join(f"{json.dumps(label)}: {json.dumps(run)}" for label, run in found.items())
        with replacing(RECORDED) as temporary, open(temporary, "w", encoding="utf-8") as stream:
            stream.write("{\n" + lines + "\n}\n")
    found = recorded()
    for name, content in pictures(found).items():
        with replacing(os.path.join(DOCS, name)) as temporary, open(temporary, "w", encoding="utf-8") as stream:
            stream.write(content)
    rewrite("why.md", {"losses": table(found)})


if __name__ == "__main__":
    main()
