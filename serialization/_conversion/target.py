"""The target of a conversion."""

from typing import NamedTuple, Optional

from ...registry._targets import Target, target
from ...registry.errors import UnknownTargetError, shown
from ..keras.target import KerasTarget

PLAIN = "plain"


class ConversionTarget(NamedTuple):
    """A TensorFlow, and whether scalekeeper is installed beside it. For plain Keras, what it cannot read is dropped."""

    keras: KerasTarget
    is_plain: bool = False

    @property
    def target(self) -> Target:
        """The TensorFlow."""
        return self.keras.target

    def __str__(self) -> str:
        return ("plain " if self.is_plain else "") + str(self.keras)


def conversion_target(given: Optional[str] = None) -> ConversionTarget:
    """Return the target of a name: that of a TensorFlow, ``plain``, or both. The default is the installed TensorFlow.

    >>> from scalekeeper.serialization._conversion.target import conversion_target
    >>> conversion_target("2.3").is_plain, conversion_target("2.10-plain").target.name
    (False, '2.10')

    Raises:
        UnknownTargetError: There is no such target.
    """
    if given is None or given == PLAIN:
        return ConversionTarget(KerasTarget(target()), given == PLAIN)
    name, dash, last = given.rpartition("-")
    is_plain = bool(dash) and last == PLAIN
    try:
        return ConversionTarget(KerasTarget(target(name if is_plain else given)), is_plain)
    except UnknownTargetError:
        raise UnknownTargetError(
            f"unknown target {shown(given)}; valid: 2.0 to 2.21, 2.16-tf_keras to 2.21-tf_keras, tf_keras, keras3, "
            "each also with -plain, for Keras without scalekeeper; or plain alone, for the installed TensorFlow"
        ) from None
