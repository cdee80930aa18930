"""Old names of :mod:`.profile`, until the callers have moved."""

from .profile import SKIPPED_STEPS_CHILD as NAME
from .profile import skipped_steps_of_keras as of_keras

__all__ = ["NAME", "of_keras"]
