"""Losses and metrics of a compiled model, translated from one Keras to another."""

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from ._model_config_rules import ModelConfigRules

_MODULES = {"loss": "losses", "metrics": "metrics", "weighted_metrics": "metrics"}
_METRIC_OF_FUNCTION = "MeanMetricWrapper"  # how Keras 2 keeps a metric that was given by its name
_DEFERRED = "auto"  # a loss's reduction in Keras 2, which depends on whether there are replicas


def translate_compile_config(
    training: Optional[Mapping[str, Any]], rules: ModelConfigRules, writes_modules: bool = False
) -> Tuple[Dict[str, Any], List[str]]:
    """Return what a model is compiled with, without its optimizer, for another Keras; and what is dropped.

    Args:
        training: The arguments of ``compile``, as a file of any Keras has them.
        rules: How the target writes configurations.
        writes_modules: Whether classes have their modules although the rules do not ask for it, as in the ``.keras``
            files of Keras 2.

    Returns:
        The arguments, and a sentence for each object that is dropped.
    """
    training = training or {}
    translation = _Translation(rules, writes_modules or rules.writes_modules, [])
    found: Dict[str, Any] = {"loss_weights": training.get("loss_weights")}
    for name, module in _MODULES.items():
        found[name] = translation.nest(training.get(name), module)
    if rules.lists_no_metrics:
        found["metrics"] = found["metrics"] or []
    return {**found, **rules.compile_defaults}, translation.dropped


class _Translation(NamedTuple):
    rules: ModelConfigRules
    writes_modules: bool
    dropped: List[str]

    def nest(self, value: Any, module: str) -> Any:
        """Return the same nest with translated objects; names stay names."""
        if isinstance(value, Mapping) and "class_name" in value:
            return self._object(value, module)
        if isinstance(value, Mapping):
            return {name: self.nest(each, module) for name, each in value.items()}
        if isinstance(value, (list, tuple)):
            found = [self.nest(each, module) for each in value]
            return [new for new, old in zip(found, value) if new is not None or old is None]
        return value

    def _object(self, value: Mapping[str, Any], module: str) -> Any:
        class_name, config = value["class_name"], value.get("config")
        if not isinstance(config, Mapping):
            return config  # the name of a function
        if class_name == _METRIC_OF_FUNCTION:
            function = config.get("fn")
            return function if isinstance(function, str) else config.get("name")
        if value.get("registered_name") not in (None, class_name):
            self.dropped.append(f"{class_name} among the {module}: a custom class")
            return None
        config = {name: each for name, each in config.items() if name != "fn"}  # the class implies it
        if isinstance(config.get("dtype"), Mapping):
            config["dtype"] = config["dtype"]["config"]["name"]
        if not self.rules.defers_loss_reduction and config.get("reduction") == _DEFERRED:
            config["reduction"] = "sum_over_batch_size"
        if not self.rules.keeps_loss_dtype and module == "losses":
            config.pop("dtype", None)
        if not self.writes_modules:
            return {"class_name": class_name, "config": config}
        return {"module": f"keras.{module}", "class_name": class_name, "config": config, "registered_name": None}
