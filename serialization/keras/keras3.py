"""The profile of Keras 3."""

from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from ._model_config_rules import KERAS_3_RULES, ModelConfigRules
from ._slots import name_parts
from .profile import (
    HOLD,
    KERAS_3,
    Frame,
    KerasProfile,
    OptimizerVariables,
    Policy,
    Version,
    encode_newer_keys,
    keras_number,
)


class Keras3Profile(KerasProfile):
    """Wrapper and inner optimizer are two objects; the scale's state is among the wrapper's variables."""

    name = "keras3"
    family = KERAS_3
    keras_major = 3
    first_tensorflow = (2, 16)

    scale_keys = ("dynamic", "initial_scale", "dynamic_growth_steps")
    inner_scale_key = "loss_scale_factor"
    writes_wrapper_name = True

    native_skipped_steps = HOLD
    classes_with_other_order = ("RMSprop",)
    lists_learning_rate = True
    lists_scalars = True
    lists_placeholders = True
    state_names: Mapping[str, str] = {"step_counter": "good_steps", "dynamic_scale": "current_loss_scale"}

    loss_scale_child = None
    trained_child = "_trainable_variables"
    variables_child = "_variables"
    proving_children = ("_trainable_variables",)
    skipped_steps_by_child: Mapping[str, str] = {"inner_optimizer": HOLD}
    foreign_children: Mapping[str, str] = {
        **dict.fromkeys(("iter", "base_optimizer"), "a legacy optimizer of Keras 2"),
        **dict.fromkeys(("_index_dict", "loss_scale"), "an optimizer of Keras 2"),
    }

    variable_suffix = ""
    saves_trainable_saved_models = False
    attention_prefix = ""
    formats_with_slots = ("keras",)
    formats_with_scale = ("keras",)

    def is_in(self, keras: Any) -> bool:
        return hasattr(keras, "Operation")

    def optimizers_in(self, keras: Any) -> Any:
        return keras.optimizers if hasattr(keras, "Operation") else None

    def skipped_steps_of_keras(self, version: str) -> Optional[str]:
        return HOLD if keras_number(version) >= (3, 0) else None

    def writes_modules(self, version: Version) -> bool:
        return True

    def recognizes_inner(self, config: Mapping[str, Any]) -> bool:
        arguments = config["config"]
        is_keras_2 = any(name in arguments for name in ("is_legacy_optimizer", "decay", "jit_compile"))
        is_keras_2 = is_keras_2 or str(config.get("module")).endswith(".legacy")
        return "use_ema" in arguments and not is_keras_2 and not str(config["class_name"]).startswith("Custom>")

    def recognizes_wrapper(self, config: Mapping[str, Any], wrapper: Mapping[str, Any]) -> bool:
        name = config.get("class_name")
        is_keras_2 = name in ("LossScaleOptimizerV1", "LossScaleOptimizerV3") or "optimizer" in wrapper
        is_keras_2 = is_keras_2 or (name == self.wrapper_class_name and "dynamic" in wrapper)
        return config.get("module") == "keras.optimizers" and not is_keras_2

    def native_scale_keys(self, policy: Policy) -> Optional[Dict[str, Any]]:
        keys = encode_newer_keys(policy)
        return keys if keys is not None and keys.pop("dynamic") else None

    def _plain_keys(self, policy: Policy) -> Tuple[Optional[Dict[str, Any]], Dict[str, Any]]:
        if policy["class_name"] == "FixedLossScale":
            return None, {self.inner_scale_key: policy["config"]["loss_scale_value"]}
        return super()._plain_keys(policy)

    def wrapper_entry(self, config: Dict[str, Any], package: str, writes_modules: bool) -> Dict[str, Any]:
        name = self.wrapper_class_name
        return {"module": "keras.optimizers", "class_name": name, "config": config, "registered_name": None}

    def inner_child(self, version: Version) -> Optional[str]:
        return "inner_optimizer"

    def slot_variable_name(self, owner: str, slot: str, class_name: str) -> str:
        return f"{owner.replace('/', '_')}_{name_parts(slot, class_name)[1]}"

    def weight_list_frames(self, scalars: Sequence[str], state: Mapping[str, str]) -> Iterator[Frame]:
        counters = {"iterations": "i", "learning rate": "f"}
        others = dict.fromkeys(scalars, "f")
        yield counters, others
        yield {"iterations of the wrapper": "i", "learning rate of the wrapper": "f", **state, **counters}, others

    def h5_variables(self, variables: OptimizerVariables) -> Iterator[Tuple[str, Any]]:
        name, prefix = variables.class_name.lower(), ""
        if variables.loss_scale_state is not None:
            prefix = "loss_scale_optimizer/"
            names = ("iteration", "learning_rate", *self.state_names)
            for own, value in zip(names, self._wrapper_values(variables.loss_scale_state)):
                yield prefix + own, value
        yield f"{name}/iteration", np.int64(variables.iterations)
        if variables.learning_rate is not None:
            yield f"{name}/learning_rate", np.float32(variables.learning_rate)
        for owner, slot in self.ordered_slots(variables.slots, variables.class_name, variables.owners):
            own = self.slot_variable_name(owner, slot, variables.class_name)
            yield f"{prefix}{name}/{own}", variables.slots[owner][slot]
        for scalar, value in variables.scalars.items():
            yield f"{name}/{scalar}", value

    def keras_zip_variables(self, variables: OptimizerVariables) -> Optional[Tuple[List[Any], List[Any]]]:
        found = super().keras_zip_variables(variables)
        assert found is not None
        inner = [*found[1], *variables.scalars.values()]  # Keras 2 does not list them
        state = variables.loss_scale_state
        return ([] if state is None else self._wrapper_values(state)), inner

    @staticmethod
    def _wrapper_values(state: Mapping[str, Any]) -> List[Any]:
        """Iterations and learning rate of the wrapper, which Keras does not use; then the loss scale's state."""
        scale = np.float32(state.get("current_loss_scale", 1))
        return [np.int64(0), np.float32(0), np.int64(state.get("good_steps", 0)), scale]

    def model_config_rules(self, writes_modules: bool) -> ModelConfigRules:
        return KERAS_3_RULES


KERAS_3_PROFILE = Keras3Profile()
