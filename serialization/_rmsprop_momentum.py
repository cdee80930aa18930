"""The momentum of RMSprop: 2.10's experimental one has it without the learning rate in it, all others with it."""

from typing import Any, Callable

import dataclasses

import numpy as np

from ..registry.errors import TranslationError
from .training_state import Contents, Value


def with_rates(contents: Contents) -> Contents:
    """The same state with momenta as all but 2.10's experimental RMSprop have them."""
    if not contents.has_bare_momentum:
        return contents
    rate = contents.learning_rate
    if rate is None:
        raise TranslationError(
            "the momentum of 2.10's experimental RMSprop can't be moved with a learning-rate schedule, as others have "
            "the learning rate in it: restore it into a model with scalekeeper.restore"
        )
    slots = {
        owner: {
            name: value._replace(read=_multiplied(value, rate)) if name == "momentum" else value
            for name, value in each.items()
        }
        for owner, each in contents.slots.items()
    }
    return dataclasses.replace(contents, slots=slots, has_bare_momentum=False)


def _multiplied(value: Value, rate: float) -> Callable[[], Any]:
    return lambda: (np.asarray(value.read(), np.float64) * np.float32(rate)).astype(value.dtype)
