"""Parameter names of other libraries, and what they are called here."""

from typing import Optional, Sequence

# name here → names in PyTorch, Apex, DeepSpeed, Megatron, ColossalAI, Flax, jmp, Paddle, MindSpore, Keras and others
_NAMES = {
    "initial_loss_scale": ("init_scale", "initial_scale", "init_loss_scale", "init_loss_scale_value"),
    "increment_period": (
        "dynamic_growth_steps",
        "growth_interval",
        "incr_every_n_steps",
        "loss_scale_window",
        "period",
        "scale_window",
        "step_window",
        "up_scale_window",
    ),
    "multiplier": ("factor", "scale_factor", "step_factor"),
    "growth_factor": ("incr_ratio", "growth_ratio"),
    "backoff_factor": ("decr_ratio", "backoff_ratio"),
    "minimum": ("min_loss_scale", "min_scale", "minimum_scale", "minimum_loss_scale", "scale_min"),
    "maximum": ("max_loss_scale", "max_scale", "maximum_scale", "maximum_loss_scale", "scale_max"),
    "hysteresis": ("decr_every_n_nan_or_inf", "delayed_shift"),
    "loss_scale_value": ("loss_scale", "scale", "static_loss_scale", "initial_loss_scale", "initial_scale", "value"),
}
# names whose values mean something else here → what to write
_OTHER_VALUES = {
    "initial_scale_power": "Write initial_loss_scale as 2 to that power, such as 65536 for 16.",
    "consecutive_hysteresis": "Write refill: on_good_step for true, and refill: on_growth for false.",
}


def own_name(given: object, valid: Sequence[str]) -> Optional[str]:
    """Return the valid name for a parameter's name in another library, or None."""
    return next((name for name in valid if isinstance(given, str) and given.lower() in _NAMES.get(name, ())), None)


def remedy_for(given: object, valid: Sequence[str]) -> str:
    """Return what to write instead of a parameter of another library whose values differ; empty for other names."""
    has_dynamic_names = "initial_loss_scale" in valid and "refill" in valid
    return _OTHER_VALUES.get(given.lower(), "") if isinstance(given, str) and has_dynamic_names else ""
