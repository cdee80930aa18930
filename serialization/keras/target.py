"""The target of a conversion: a TensorFlow that need not be installed, and what its Keras writes and reads."""

from typing import Any, Callable, Collection, Dict, List, NamedTuple, Optional

import functools
import json
import pkgutil

from ...registry._targets import TF_KERAS, Target, target
from ...registry.errors import UnknownTargetError, shown
from ._model_config_rules import ModelConfigRules
from .profile import KerasProfile, profiles_on, skipped_steps_of_keras

PLAIN = "plain"
_FIRST_WITH_KERAS_ZIP, _FIRST_WITH_LAYERS_GROUP = (2, 13), (2, 15)


class KerasTarget:
    """The Keras of a target; capabilities instead of version numbers.

    Attributes:
        target: The target.
        package: The package of Keras's classes: keras or tf_keras.
        version: The version of Keras, as files name it.
        profiles: The generations of optimizers that it has, newest first.
        profile: The generation of its default optimizers.
        tensorflow: The version of TensorFlow.
        writes_modules: Whether the configuration of an optimizer names the module of its class.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self._title = str(target)
        self.tensorflow = target.version
        self.package = TF_KERAS if target.name.endswith(TF_KERAS) else "keras"
        self.version = str(target.table["keras"])
        self.profiles = profiles_on(target)
        self.profile = self.profiles[0]
        self.writes_modules = self.profile.writes_modules(self.tensorflow)

    def profile_for(self, family: Optional[str]) -> KerasProfile:
        """Return the generation for a family of optimizers; the default one if it lacks the family."""
        return next((each for each in self.profiles if each.family == family), self.profile)

    @property
    def skipped_steps(self) -> Optional[str]:
        """Whether its own LossScaleOptimizer advances iterations when a step is skipped: "advance" or "hold"."""
        return skipped_steps_of_keras(self.version)

    @property
    def model_config_rules(self) -> ModelConfigRules:
        """How it writes the configuration of a model."""
        return self.profile.model_config_rules(self.writes_modules)

    @property
    def reads_keras_zip(self) -> bool:
        """Whether it reads ``.keras`` files; before, Keras writes HDF5 under that name."""
        return self.tensorflow >= _FIRST_WITH_KERAS_ZIP

    @property
    def keras_zip_layers_group(self) -> str:
        """The group of a model's layers in ``.keras`` files."""
        has_layers = self.tensorflow >= _FIRST_WITH_LAYERS_GROUP
        return "layers" if has_layers else "_layer_checkpoint_dependencies"

    def __str__(self) -> str:
        return self._title


def layer_arguments(target: Target) -> Callable[[str], Optional[Collection[str]]]:
    """Return a function that maps a layer's class to its argument names on a target; None if it has no such layer.

    ``compat_tests/signatures/record_layers.py`` records the table, ``layer_signatures.json``, on real installations.
    """
    table = _table()
    bit = 1 << table["targets"].index(target.name)

    def accepted(class_name: str) -> Optional[List[str]]:
        arguments = table["layers"].get(class_name, {})
        found = [name for name, targets in arguments.items() if targets & bit]
        return found or None  # the class itself is recorded as an argument without a name

    return accepted


def layer_classes() -> List[str]:
    """Return the classes of all layers that any Keras has."""
    return list(_table()["layers"])


@functools.lru_cache(maxsize=None)
def _table() -> Dict[str, Any]:
    data = pkgutil.get_data(__package__, "layer_signatures.json")
    assert data is not None
    table: Dict[str, Any] = json.loads(data.decode("utf-8"))
    return table


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

    >>> from scalekeeper.serialization.keras.target import conversion_target
    >>> conversion_target("2.3").is_plain, conversion_target("2.10-plain").target.name
    (False, '2.10')

    Raises:
        UnknownTargetError: There is no such target.
    """
    if given is None or given == PLAIN:
        return ConversionTarget(KerasTarget(target()), given == PLAIN)
    if not isinstance(given, str):
        return ConversionTarget(KerasTarget(target(given)), False)  # an error
    name, dash, last = given.rpartition("-")
    is_plain = bool(dash) and last == PLAIN
    try:
        return ConversionTarget(KerasTarget(target(name if is_plain else given)), is_plain)
    except UnknownTargetError:
        raise UnknownTargetError(
            f"unknown target {shown(given)}; valid: 2.0 to 2.21, 2.16-tf_keras to 2.21-tf_keras, tf_keras, keras3, "
            "each also with -plain, for Keras without scalekeeper; or plain alone, for the installed TensorFlow"
        ) from None
