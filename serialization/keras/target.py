"""The Keras of a target TensorFlow that need not be installed: what its files of models look like."""

from typing import List, NamedTuple, Optional

from ...registry._targets import TF_KERAS, Target
from ._model_config_rules import ModelConfigRules
from .profile import KerasProfile, profile_for, profiles_on, skipped_steps_of_keras

_FIRST_WITH_KERAS_ZIP, _FIRST_WITH_LAYERS_GROUP = (2, 13), (2, 15)


class KerasTarget(NamedTuple):
    """The Keras of a target; capabilities instead of version numbers."""

    target: Target

    @property
    def package(self) -> str:
        """The package of Keras's classes: keras or tf_keras."""
        return TF_KERAS if self.target.name.endswith(TF_KERAS) else "keras"

    @property
    def version(self) -> str:
        """The version of Keras, as files name it."""
        return str(self.target.table["keras"])

    @property
    def profiles(self) -> List[KerasProfile]:
        """The generations of optimizers that it has, newest first."""
        return profiles_on(self.target)

    @property
    def profile(self) -> KerasProfile:
        """The generation of its default optimizers."""
        return profile_for(self.target)

    def profile_for(self, family: Optional[str]) -> KerasProfile:
        """Return the generation for a family of optimizers; the default one if it lacks the family."""
        return profile_for(self.target, family)

    @property
    def skipped_steps(self) -> Optional[str]:
        """What its own LossScaleOptimizer does with iterations when a step is skipped: "advance" or "hold"."""
        return skipped_steps_of_keras(self.version)

    @property
    def writes_modules(self) -> bool:
        """Whether the configuration of an optimizer names the module of its class."""
        return self.profile.writes_modules(self.target.version)

    @property
    def model_config_rules(self) -> ModelConfigRules:
        """How it writes the configuration of a model."""
        return self.profile.model_config_rules(self.writes_modules)

    @property
    def reads_keras_zip(self) -> bool:
        """Whether it reads ``.keras`` files; before, Keras writes HDF5 under that name."""
        return self.target.version >= _FIRST_WITH_KERAS_ZIP

    @property
    def keras_zip_layers_group(self) -> str:
        """The group of a model's layers in ``.keras`` files."""
        has_layers = self.target.version >= _FIRST_WITH_LAYERS_GROUP
        return "layers" if has_layers else "_layer_checkpoint_dependencies"

    def __str__(self) -> str:
        return str(self.target)
