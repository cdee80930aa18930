"""There and back again: what a file says before two conversions, and after them."""

import re

import numpy as np

from scalekeeper.serialization._conversion import loaded_source
from scalekeeper.serialization.keras._optimizer_config import plain_numbers

# what says nothing, or is there on some versions only and, in these files, at its default
UNTOLD = (
    *("name", "jit_compile", "is_legacy_optimizer", "adaptive_epsilon", "gradient_accumulation_steps"),
    *("loss_scale_factor", "use_ema", "ema_momentum", "ema_overwrite_frequency", "weight_decay", "decay"),
    *("clipnorm", "clipvalue", "global_clipnorm"),
)


def told(path, with_model=False):
    """Everything that a file says of a training run, with all arrays."""
    run = loaded_source.opened(path)
    if with_model:
        run = loaded_source.with_model(run, None)
    contents, declaration = run.contents, run.declaration
    found = {
        "iterations": contents.iterations,
        "state": {name: float(value) for name, value in contents.loss_scale_state.items()},
        "skipped_steps": contents.skipped_steps,
        "skips": contents.skips,
        "slots": {
            owner: {name: value.read() for name, value in slots.items()} for owner, slots in contents.slots.items()
        },
        "variables": {owner: value.read() for owner, value in contents.variables.items()},
    }
    if run.model is not None:
        found["variables"] = {each.name: each.numpy() for each in run.model.weights}
    if declaration is not None:
        arguments = plain_numbers(declaration.arguments)
        found["class"] = declaration.class_name
        found["arguments"] = {name: _number(arguments[name]) for name in arguments if name not in UNTOLD}
        found["policy"] = declaration.policy
    return found


def _number(value):
    return float(np.float32(value)) if isinstance(value, float) else value


def difference(one, other):
    """What differs, in words; None if nothing does."""
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
