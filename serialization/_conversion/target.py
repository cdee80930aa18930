"""Whom a converted file is for."""

from typing import NamedTuple, Optional

from ...registry._targets import KERAS_3, TF_KERAS, Target, target
from ...registry.errors import UnknownTargetError, shown
from ..keras import _native_skip_behavior

PLAIN = "plain"
FIRST_WITH_NEW_WORDS, FIRST_WITH_NEW_OPTIMIZERS, FIRST_WITH_MODULES = (2, 4), (2, 11), (2, 12)
FIRST_WITH_ONE_OBJECT = (2, 3)  # from here on a wrapper's slots are its own in a checkpoint


class Aim(NamedTuple):
    """A TensorFlow, and whether this package is beside it: if not, what Keras alone can't read is lost."""

    target: Target
    is_plain: bool = False

    @property
    def is_keras_3(self) -> bool:
        return self.target.name.endswith(KERAS_3)

    @property
    def package(self) -> str:
        """The package that Keras's classes are in."""
        return TF_KERAS if self.target.name.endswith(TF_KERAS) else "keras"

    @property
    def keras(self) -> str:
        """The version of Keras."""
        return str(self.target.table["keras"])

    @property
    def skipped_steps(self) -> Optional[str]:
        """What the target's own class does with iterations when a step is skipped."""
        return _native_skip_behavior.of_keras(self.keras)

    def __str__(self) -> str:
        return ("plain " if self.is_plain else "") + str(self.target)


def aim(given: Optional[str] = None) -> Aim:
    """The aim of this name: a target's, ``plain``, or both. Without a target it is the installed TensorFlow.

    >>> from scalekeeper.serialization._conversion.target import aim
    >>> aim("2.3").is_plain, aim("2.10-plain").target.name, aim("keras3-plain").is_plain
    (False, '2.10', True)
    """
    if given is None or given == PLAIN:
        return Aim(target(), given == PLAIN)
    name, dash, last = given.rpartition("-")
    is_plain = bool(dash) and last == PLAIN
    try:
        return Aim(target(name if is_plain else given), is_plain)
    except UnknownTargetError:
        raise UnknownTargetError(
            f"unknown target {shown(given)}; valid: 2.0 to 2.21, 2.16-tf_keras to 2.21-tf_keras, tf_keras, keras3, "
            "each also with -plain, for a file that Keras reads without this package; or plain alone, for the installed"
        ) from None
