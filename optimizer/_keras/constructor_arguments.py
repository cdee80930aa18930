"""The policy that a constructor's arguments ask for, in the words of any TensorFlow."""

from typing import Any, Dict, Optional

from ...registry._plugins import loss_scales


def policy_of_arguments(
    loss_scale: Any, dynamic: Optional[bool], initial_scale: Optional[float], dynamic_growth_steps: Optional[int]
) -> Any:
    """``loss_scale``, or what 2.4 and later say instead: ``dynamic``, ``initial_scale``, ``dynamic_growth_steps``."""
    theirs = {"dynamic": dynamic, "initial_scale": initial_scale, "dynamic_growth_steps": dynamic_growth_steps}
    given = [name for name, value in theirs.items() if value is not None]
    if not given:
        return loss_scales.resolve(loss_scale)
    if loss_scale != "dynamic":
        raise ValueError(f"loss_scale and {', '.join(given)} were given: both say what the scale is, so give one")
    return loss_scales.resolve(spec_of_newer_words(dynamic is not False, initial_scale, dynamic_growth_steps))


def spec_of_newer_words(
    dynamic: bool, initial_scale: Optional[float], dynamic_growth_steps: Optional[int]
) -> Dict[str, Any]:
    """A policy's specification from the words of 2.4 and later."""
    if dynamic:
        parameters = {"initial_loss_scale": initial_scale, "increment_period": dynamic_growth_steps}
        return {"name": "dynamic", **{name: value for name, value in parameters.items() if value is not None}}
    if initial_scale is None:
        raise ValueError("dynamic=False was given without initial_scale: give the scale that stays")
    if dynamic_growth_steps is not None:
        raise ValueError("dynamic=False and dynamic_growth_steps were given: a fixed scale does not grow")
    return {"name": "fixed", "loss_scale_value": initial_scale}
