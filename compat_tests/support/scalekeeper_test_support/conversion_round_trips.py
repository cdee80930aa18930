"""Compare the content of a file before and after two conversions, there and back."""

import re

import numpy as np

from scalekeeper.optimizer.models import _make_optimizer
from scalekeeper.serialization import _loaded_source
from scalekeeper.serialization.formats import detect
from scalekeeper.serialization.keras.profile import plain_numbers

# what says nothing, or is there on some versions only and, in these files, at its default
UNTOLD = (
    *("name", "jit_compile", "is_legacy_optimizer", "adaptive_epsilon", "gradient_accumulation_steps"),
    *("loss_scale_factor", "use_ema", "ema_momentum", "ema_overwrite_frequency", "weight_decay", "decay"),
    *("clipnorm", "clipvalue", "global_clipnorm"),
)


def told(path, with_model=False):
    """Return everything that a file holds of a training run, with all arrays."""
    source = _loaded_source.open_source(path, detect(path))
    if with_model:
        source = _loaded_source.with_model(source, _make_optimizer)
    state, declaration = source.state, source.declaration
    found = {
        "iterations": state.iterations,
        "state": {name: float(value) for name, value in state.loss_scale_state.items()},
        "skipped_steps": state.skipped_steps,
        "skips": state.skips,
        "slots": {owner: {name: value.read() for name, value in slots.items()} for owner, slots in state.slots.items()},
        "variables": {owner: value.read() for owner, value in state.variables.items()},
    }
    if source.model is not None:
        found["variables"] = {each.name: each.numpy() for each in source.model.weights}
    if declaration is not None:
        arguments = plain_numbers(declaration.arguments)
        found["class"] = declaration.class_name
        found["arguments"] = {name: _number(arguments[name]) for name in arguments if name not in UNTOLD}
        found["policy"] = declaration.policy
    return found


def _number(value):
    return float(np.float32(value)) if isinstance(value, float) else value


def difference(one, other):
    """Return a description of the first difference, or None."""
    for key in one:
        if key not in ("slots", "variables") and one[key] != other[key]:
            return f"{key}: {one[key]} → {other[key]}"
    for key in ("slots", "variables"):
        if len(one[key]) != len(other[key]):
            return f"{key}: {sorted(one[key])} → {sorted(other[key])}"
    for owner, slots, others in _paired(one["slots"], other["slots"]):
        if set(slots) != set(others):
            return f"slots of {owner}: {sorted(slots)} → {sorted(others)}"
        for name, value in slots.items():
            if not np.array_equal(value, others[name]):
                return f"{owner}/{name}: {value} → {others[name]}"
    for owner, value, again in _paired(one["variables"], other["variables"]):
        if not np.array_equal(value, again):
            return f"{owner}: {value} → {again}"
    return None


def _paired(one, other):
    """By name, without the number that an old Keras gives a name that it knows already; or else in their order."""
    named = {re.sub(r"_\d+/", "/", owner): value for owner, value in other.items()}
    names = [re.sub(r"_\d+/", "/", owner) for owner in one]
    others = [named[name] for name in names] if set(names) == set(named) else list(other.values())
    return zip(one, one.values(), others)
