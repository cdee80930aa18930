"""The profile of TensorFlow 2.0 to 2.3: ``tf.keras.mixed_precision.experimental.LossScaleOptimizer``."""

from typing import Any, Dict, Mapping, Optional

from ._model_config_rules import KERAS_2_3_RULES, ModelConfigRules
from .optimizer_v2 import OptimizerV2Profile
from .profile import HOLD, POLICY_KEY, Policy, Version, keras_number

_FIRST_WITHOUT_INNER_CHILD = (2, 3)  # from here on the wrapper takes the inner optimizer's place in a checkpoint


class Tf20To23Profile(OptimizerV2Profile):
    """The same optimizers as TensorFlow 2.4; the wrapper keeps a LossScale object."""

    name = "tf_2_0_to_2_3"
    first_tensorflow = (2, 0)
    last_tensorflow = (2, 3)

    inner_key = "optimizer"
    old_wrapper_class_names = ()
    scale_keys = (POLICY_KEY,)
    keeps_every_policy = True

    def is_in(self, keras: Any) -> bool:
        return not hasattr(getattr(keras, "mixed_precision", None), "LossScaleOptimizer")

    def skipped_steps_of_keras(self, version: str) -> Optional[str]:
        """TensorFlow 2.0 to 2.2 write 2.2.4-tf and 2.3.0-tf; 2.3, the first to advance, writes 2.4.0 as 2.4 does."""
        return HOLD if version.endswith("-tf") and keras_number(version) < (2, 4) else None

    def recognizes_wrapper(self, config: Mapping[str, Any], wrapper: Mapping[str, Any]) -> bool:
        return self.inner_key in wrapper

    def decode_loss_scale(self, wrapper: Mapping[str, Any]) -> Optional[Dict[str, Any]]:
        return None  # the key of the policy is read for every generation

    def native_scale_keys(self, policy: Policy) -> Optional[Dict[str, Any]]:
        return {POLICY_KEY: policy}

    def inner_child(self, version: Version) -> Optional[str]:
        return "base_optimizer" if version < _FIRST_WITHOUT_INNER_CHILD else None

    def writes_loss_scale_child(self, version: Version, has_state: bool) -> bool:
        return has_state or version < _FIRST_WITHOUT_INNER_CHILD

    def model_config_rules(self, writes_modules: bool) -> ModelConfigRules:
        return KERAS_2_3_RULES


TF_2_0_TO_2_3 = Tf20To23Profile()
