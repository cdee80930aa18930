"""Losses and metrics of a compiled model in the words of another Keras."""

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from .._conversion.target import Aim

_KINDS = {"loss": "losses", "metrics": "metrics", "weighted_metrics": "metrics"}
_FUNCTION_IN_METRIC = "MeanMetricWrapper"  # how Keras 2 keeps a metric that was given by its name
_DECIDED_LATER = "auto"  # a loss's reduction in Keras 2: by whether there are replicas


def translated(
    training: Optional[Mapping[str, Any]], aim: Aim, with_modules: bool = False
) -> Tuple[Dict[str, Any], List[str]]:
    """What a model was compiled with, beside its optimizer; and what of it has no words on the target.

    Keras 3 has modules with classes, and so have the ``.keras`` files of Keras 2.
    """
    training = training or {}
    losses: List[str] = []
    translation = _Translation(aim.is_keras_3, with_modules or aim.is_keras_3, losses)
    found: Dict[str, Any] = {"loss_weights": training.get("loss_weights")}
    for name, module in _KINDS.items():
        found[name] = translation.each(training.get(name), module)
    if aim.is_keras_3:
        found.update(run_eagerly=False, steps_per_execution=1, jit_compile=False)
    else:
        found["metrics"] = found["metrics"] or []
        found["sample_weight_mode"] = None  # which 2.0 and 2.1 ask for
    return found, losses


class _Translation(NamedTuple):
    is_keras_3: bool
    with_modules: bool
    losses: List[str]

    def each(self, value: Any, module: str) -> Any:
        """Names stay names; lists and mappings by output keep their form."""
        if isinstance(value, Mapping) and "class_name" in value:
            return self._object(value, module)
        if isinstance(value, Mapping):
            return {name: self.each(each, module) for name, each in value.items()}
        if isinstance(value, (list, tuple)):
            found = [self.each(each, module) for each in value]
            return [new for new, old in zip(found, value) if new is not None or old is None]
        return value

    def _object(self, value: Mapping[str, Any], module: str) -> Any:
        class_name, config = value["class_name"], value.get("config")
        if not isinstance(config, Mapping):
            return config  # a function, by its name
        if class_name == _FUNCTION_IN_METRIC:
            function = config.get("fn")
            return function if isinstance(function, str) else config.get("name")
        if value.get("registered_name") not in (None, class_name):
            self.losses.append(f"{class_name} among the {module}: a class of one's own, which is left out")
            return None
        config = {name: each for name, each in config.items() if name != "fn"}  # which its class says already
        if isinstance(config.get("dtype"), Mapping):
            config["dtype"] = config["dtype"]["config"]["name"]
        if self.is_keras_3 and config.get("reduction") == _DECIDED_LATER:
            config["reduction"] = "sum_over_batch_size"
        if not self.is_keras_3 and module == "losses":
            config.pop("dtype", None)
        if not self.with_modules:
            return {"class_name": class_name, "config": config}
        return {"module": f"keras.{module}", "class_name": class_name, "config": config, "registered_name": None}
