"""The profile of TensorFlow 2.4 to 2.10, and of the ``legacy`` optimizers of later versions: OptimizerV2."""

from typing import Any, Iterator, Mapping, Optional, Sequence, Tuple

import numpy as np

from ._model_config_rules import KERAS_2_12_RULES, KERAS_2_RULES, ModelConfigRules
from .profile import (
    ADVANCE,
    LEGACY,
    Frame,
    KerasProfile,
    OptimizerVariables,
    Version,
    keras_number,
)

_FIRST_WITH_LEGACY_MODULE = (2, 11)


class OptimizerV2Profile(KerasProfile):
    """Optimizers with slots, whose hyperparameters are variables."""

    name = "optimizer_v2"
    family = LEGACY
    first_tensorflow = (2, 4)

    old_wrapper_class_names: Tuple[str, ...] = ("LossScaleOptimizerV1",)
    omits_unset_clipping = True

    has_slots = True
    classes_with_other_order = ("Ftrl",)

    iterations_child = "iter"
    learning_rate_child = "learning_rate"
    scalar_children: Mapping[str, str] = {"momentum_cache": "_m_cache"}
    placeholder_child = "base_optimizer"
    proving_children = ("iter",)
    skipped_steps_by_child: Mapping[str, str] = {"base_optimizer": ADVANCE}
    foreign_children: Mapping[str, str] = {
        **dict.fromkeys(("inner_optimizer", "_trainable_variables"), "an optimizer of Keras 3"),
        **dict.fromkeys(("_iterations", "_variables"), "a new optimizer of Keras 2, or of one of Keras 3"),
    }

    formats_with_slots = ("h5",)

    def is_in(self, keras: Any) -> bool:
        has_new_default = hasattr(keras.optimizers.SGD, "update_step")
        return not has_new_default and hasattr(keras.mixed_precision, "LossScaleOptimizer")

    def optimizers_in(self, keras: Any) -> Any:
        if hasattr(keras, "Operation"):
            return None  # the module that Keras 3 has under that name holds placeholders
        has_new_default = hasattr(keras.optimizers.SGD, "update_step")
        return getattr(keras.optimizers, "legacy", None) if has_new_default else keras.optimizers

    def optimizers_path(self, version: Version) -> str:
        return "optimizers" if version < _FIRST_WITH_LEGACY_MODULE else "optimizers.legacy"

    def skipped_steps_of_keras(self, version: str) -> Optional[str]:
        return ADVANCE if (2, 4) <= keras_number(version) < (3, 0) else None

    def recognizes_inner(self, config: Mapping[str, Any]) -> bool:
        arguments = config["config"]
        if "is_legacy_optimizer" in arguments:
            return bool(arguments["is_legacy_optimizer"])
        return str(config.get("module")).endswith(".legacy") or "decay" in arguments

    def recognizes_wrapper(self, config: Mapping[str, Any], wrapper: Mapping[str, Any]) -> bool:
        name = config.get("class_name")
        return name in self.old_wrapper_class_names or (name == self.wrapper_class_name and "dynamic" in wrapper)

    def slot_variable_name(self, owner: str, slot: str, class_name: str) -> str:
        return f"{owner}/{slot}"

    def weight_list_frames(self, scalars: Sequence[str], state: Mapping[str, str]) -> Iterator[Frame]:
        yield {"iterations": "i", **dict.fromkeys(scalars, "f")}, {}

    def h5_variables(self, variables: OptimizerVariables) -> Iterator[Tuple[str, Any]]:
        name = variables.class_name
        yield f"{name}/iter:0", np.int64(variables.iterations)
        for scalar, value in variables.scalars.items():
            yield f"{name}/{scalar}:0", value
        for owner, slot in self.ordered_slots(variables.slots, name, variables.owners):
            yield f"{name}/{self.slot_variable_name(owner, slot, name)}:0", variables.slots[owner][slot]

    def keras_zip_variables(self, variables: OptimizerVariables) -> None:
        return None

    def model_config_rules(self, writes_modules: bool) -> ModelConfigRules:
        return KERAS_2_12_RULES if writes_modules else KERAS_2_RULES


OPTIMIZER_V2 = OptimizerV2Profile()
