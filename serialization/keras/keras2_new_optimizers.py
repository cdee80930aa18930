"""The profile of the new optimizers of Keras 2: TensorFlow 2.11 to 2.15, tf_keras, and 2.10's experimental ones."""

from typing import Any, Iterator, Mapping, Sequence, Tuple

import numpy as np

from ._model_config_rules import KERAS_2_12_RULES, KERAS_2_RULES, ModelConfigRules
from ._slots import name_parts
from .profile import ADVANCE, NEW, Frame, KerasProfile, OptimizerVariables


def is_preview(cls: Any) -> bool:
    """Return whether a class is an experimental optimizer of TensorFlow 2.9, which has no list of its variables."""
    return hasattr(cls, "update_step") and hasattr(cls, "_flatten")  # a tf.Module


class Keras2NewOptimizersProfile(KerasProfile):
    """Optimizers with ``update_step`` and lists of variables instead of slots."""

    name = "keras2_new_optimizers"
    family = NEW
    first_tensorflow = (2, 11)

    wrapper_class_name = "LossScaleOptimizerV3"
    extra_arguments: Mapping[str, Any] = {"is_legacy_optimizer": False}

    classes_with_other_order = ("RMSprop",)
    has_unused_momentum = True

    proving_children = ("_iterations",)
    skipped_steps_by_child: Mapping[str, str] = {"loss_scale": ADVANCE}
    foreign_children: Mapping[str, str] = {
        **dict.fromkeys(("iter", "base_optimizer"), "a legacy optimizer of Keras 2"),
        **dict.fromkeys(("inner_optimizer", "_trainable_variables"), "an optimizer of Keras 3"),
    }

    formats_with_slots = ("keras",)
    formats_with_slots_unwrapped = ("h5",)  # the wrapper of Keras 2 writes them and cannot read them

    def is_in(self, keras: Any) -> bool:
        return hasattr(keras.optimizers.SGD, "update_step") and not hasattr(keras, "Operation")

    def optimizers_in(self, keras: Any) -> Any:
        if hasattr(keras, "Operation"):
            return None
        has_them = hasattr(keras.optimizers.SGD, "update_step")
        if has_them:
            return keras.optimizers
        experimental = getattr(keras.optimizers, "experimental", None)
        return None if is_preview(getattr(experimental, "Optimizer", None)) else experimental

    def skipped_steps_of_keras(self, version: str) -> None:
        return None  # a version does not tell them from the legacy optimizers, which behave alike

    def recognizes_inner(self, config: Mapping[str, Any]) -> bool:
        arguments = config["config"]
        if "is_legacy_optimizer" in arguments:
            return not arguments["is_legacy_optimizer"]
        if "decay" in arguments or str(config.get("module")).endswith(".legacy"):
            return False
        return "jit_compile" in arguments or str(config["class_name"]).startswith("Custom>")

    def recognizes_wrapper(self, config: Mapping[str, Any], wrapper: Mapping[str, Any]) -> bool:
        return config.get("class_name") == self.wrapper_class_name

    def slot_variable_name(self, owner: str, slot: str, class_name: str) -> str:
        return f"{name_parts(slot, class_name)[0]}/{owner}"

    def weight_list_frames(self, scalars: Sequence[str], state: Mapping[str, str]) -> Iterator[Frame]:
        yield {"iterations": "i"}, {}  # Nadam does not list its product of momenta
        yield {"iterations": "i"}, dict.fromkeys(scalars, "f")

    def h5_variables(self, variables: OptimizerVariables) -> Iterator[Tuple[str, Any]]:
        name = variables.class_name
        yield "iteration:0", np.int64(variables.iterations)
        for owner, slot in self.ordered_slots(variables.slots, name, variables.owners):
            yield f"{self.slot_variable_name(owner, slot, name)}:0", variables.slots[owner][slot]
        for scalar, value in variables.scalars.items():
            yield f"{scalar}:0", value

    def model_config_rules(self, writes_modules: bool) -> ModelConfigRules:
        return KERAS_2_12_RULES if writes_modules else KERAS_2_RULES


KERAS_2_NEW_OPTIMIZERS = Keras2NewOptimizersProfile()
