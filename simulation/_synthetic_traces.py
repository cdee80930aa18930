"""Synthetic traces: gradients from named models."""

from typing import Any, Callable, Dict, List, Tuple, Type

import numpy as np
from pydantic import Field

from ..registry._parameters import checked
from ..registry.errors import InvalidSpecError, Problem, shown, unknown
from ..registry.field_types import Fraction, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, StrictModel
from ._traces import FLOAT16_LARGEST, MOST_STEPS, Trace

DEFAULT_STEPS = 100_000
Array = Any
_LARGEST_LOG2 = 120.0  # keeps magnitudes within float32


def overflowing_above(scale: float, steps: int = DEFAULT_STEPS, limit: float = FLOAT16_LARGEST) -> Trace:
    """Return a trace whose steps overflow at every loss scale above a limit.

    Args:
        scale: The largest loss scale that does not overflow.
        steps: The number of steps.
        limit: The largest representable gradient.

    Returns:
        The trace.

    Raises:
        InvalidSpecError: The scale or the number of steps is out of range.

    Example:
        >>> from scalekeeper.simulation import overflowing_above
        >>> overflowing_above(1024, steps=2).overflows_at(1024).tolist()
        [False, False]
        >>> overflowing_above(1024, steps=2).overflows_at(1025).tolist()
        [True, True]
    """
    if not 1e-30 <= scale <= 1e30:
        raise InvalidSpecError([Problem((), f"{shown(scale)} must be a number between 1e-30 and 1e30", "value")])
    above = np.nextafter(np.float32(scale), np.float32(np.inf))  # recorded as the scale of every step
    facts = {"synthetic": {"overflow_above": float(scale)}}
    return Trace(np.full(_checked_steps(steps), np.inf, np.float32), above, limit=limit, facts=facts)


class Model(StrictModel):
    """Base class of the models."""

    seed: NonNegativeInt = Field(0, description="Another seed gives other gradients by the same rule.")


class Lognormal(Model):
    """Magnitudes with a log-normal distribution, independent of each other."""

    median: PositiveFloat = Field(1e-2, description="Half of the steps are larger.")
    spread: NonNegativeFloat = Field(1.0, le=20, description="Standard deviation of the logarithm to base 2.")

    def log2(self, steps: int, random: Array) -> Array:
        return np.log2(self.median) + self.spread * random.standard_normal(steps)


class Decaying(Lognormal):
    """Lognormal with a median that decays during training."""

    halving: PositiveInt = Field(20_000, description="Steps in which the median halves.")

    def log2(self, steps: int, random: Array) -> Array:
        return super().log2(steps, random) - np.arange(steps) / self.halving


class Spikes(Lognormal):
    """Lognormal with rare, much larger steps."""

    share: Fraction = Field(1e-3, description="The share of steps that are spikes.")
    height: PositiveFloat = Field(1024.0, description="How many times as large a spike is.")

    def log2(self, steps: int, random: Array) -> Array:
        usual = super().log2(steps, random)
        return np.where(random.random_sample(steps) < self.share, usual + np.log2(self.height), usual)


class Drifting(Lognormal):
    """Lognormal with a median that drifts, as after a change of data or learning rate."""

    drift: NonNegativeFloat = Field(0.02, le=20, description="Standard deviation of the median's move in a step.")
    pull: Fraction = Field(1e-4, description="The share of its way back that the median goes in a step.")

    def log2(self, steps: int, random: Array) -> Array:
        moves = (self.drift * random.standard_normal(steps)).tolist()
        offsets, offset, stay = [], 0.0, 1.0 - self.pull
        for move in moves:
            offset = offset * stay + move
            offsets.append(offset)
        return super().log2(steps, random) + np.array(offsets)


MODELS: Dict[str, Type[Lognormal]] = {
    "lognormal": Lognormal,
    "decaying": Decaying,
    "spikes": Spikes,
    "drifting": Drifting,
}
"""Name → the parameters of each model of :func:`synthetic`.

Example:
    >>> from scalekeeper.simulation import MODELS
    >>> sorted(MODELS)
    ['decaying', 'drifting', 'lognormal', 'spikes']
    >>> MODELS["spikes"]().seed
    0
"""


def synthetic(model: str, steps: int = DEFAULT_STEPS, limit: float = FLOAT16_LARGEST, **parameters: Any) -> Trace:
    """Return a synthetic trace.

    Args:
        model: The name of a model: ``lognormal``, ``decaying``, ``spikes`` or ``drifting``.
        steps: The number of steps.
        limit: The largest representable gradient.
        **parameters: The parameters of the model.

    Returns:
        The trace.

    Raises:
        InvalidSpecError: The model, a parameter or the number of steps is not valid.

    Example:
        >>> from scalekeeper.simulation import synthetic
        >>> trace = synthetic("spikes", steps=1000, share=0.01, seed=7)
        >>> len(trace), len(trace) == len(synthetic("lognormal", steps=1000))
        (1000, True)
    """
    if model not in MODELS:
        raise InvalidSpecError([Problem((), unknown("model", model, list(MODELS)), "unknown_name")])
    chosen = checked(MODELS[model], parameters, model)
    # RandomState gives the same numbers for a seed in every NumPy
    random = np.random.RandomState(np.array([chosen.seed % 2**32, chosen.seed // 2**32], np.uint32))
    log2 = np.clip(chosen.log2(_checked_steps(steps), random), -_LARGEST_LOG2, _LARGEST_LOG2)
    facts = {"synthetic": {"model": model, **chosen.model_dump()}}
    return Trace(np.exp2(log2).astype(np.float32), limit=limit, facts=facts)


def parse_model(text: str) -> Tuple[str, Dict[str, Any]]:
    """Parse ``NAME`` or ``NAME:key=value,key=value`` into a name and parameters.

    Args:
        text: The text.

    Returns:
        The name and the parameters, for :func:`synthetic`.

    Raises:
        InvalidSpecError: The model, or a parameter, is not valid.

    Example:
        >>> from scalekeeper.simulation import parse_model
        >>> parse_model("spikes:share=0.01,seed=7")
        ('spikes', {'share': 0.01, 'seed': 7})
    """
    name, _, rest = text.partition(":")
    parameters: Dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        key, is_given, value = (piece.strip() for piece in part.partition("="))
        if not is_given:
            message = f"{shown(part)} is not key=value; a model is NAME or NAME:key=value,key=value"
            raise InvalidSpecError([Problem((), message, "syntax")])
        if key in parameters:
            raise InvalidSpecError([Problem((key,), "given twice", "syntax")])
        parameters[key] = _number(value)
    return name.strip(), parameters


def _number(text: str) -> Any:
    kinds: List[Callable[[str], Any]] = [int, float]
    for kind in kinds:
        try:
            return kind(text)
        except ValueError:
            pass
    return text  # pydantic raises an error for it


def _checked_steps(steps: Any) -> int:
    if isinstance(steps, bool) or not isinstance(steps, (int, np.integer)) or not 1 <= steps <= MOST_STEPS:
        raise InvalidSpecError([Problem(("steps",), f"{shown(steps)} must be between 1 and {MOST_STEPS}", "value")])
    return int(steps)
