"""The target of a conversion."""

from typing import NamedTuple, Optional

from ...registry._targets import KERAS_3, TF_KERAS, Target, target
from ...registry.errors import UnknownTargetError, shown
from ..keras import _native_skip_behavior

PLAIN = "plain"
FIRST_WITH_NEW_WORDS, FIRST_WITH_NEW_OPTIMIZERS, FIRST_WITH_MODULES = (2, 4), (2, 11), (2, 12)
FIRST_WITH_ONE_OBJECT = (2, 3)  # from here on the wrapper owns the slots in a checkpoint


class ConversionTarget(NamedTuple):
    """A TensorFlow, and whether scalekeeper is installed beside it. For plain Keras, what it cannot read is dropped."""

    target: Target
    is_plain: bool = False

    @property
    def is_keras_3(self) -> bool:
        return self.target.name.endswith(KERAS_3)

    @property
    def package(self) -> str:
        """The package of Keras's classes."""
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


def conversion_target(given: Optional[str] = None) -> ConversionTarget:
    """Return the target of a name: that of a TensorFlow, ``plain``, or both. The default is the installed TensorFlow.

    >>> from scalekeeper.serialization._conversion.target import conversion_target
    >>> conversion_target("2.3").is_plain, conversion_target("2.10-plain").target.name
    (False, '2.10')

    Raises:
        UnknownTargetError: There is no such target.
    """
    if given is None or given == PLAIN:
        return ConversionTarget(target(), given == PLAIN)
    name, dash, last = given.rpartition("-")
    is_plain = bool(dash) and last == PLAIN
    try:
        return ConversionTarget(target(name if is_plain else given), is_plain)
    except UnknownTargetError:
        raise UnknownTargetError(
            f"unknown target {shown(given)}; valid: 2.0 to 2.21, 2.16-tf_keras to 2.21-tf_keras, tf_keras, keras3, "
            "each also with -plain, for Keras without scalekeeper; or plain alone, for the installed TensorFlow"
        ) from None


Aim = ConversionTarget
aim = conversion_target
