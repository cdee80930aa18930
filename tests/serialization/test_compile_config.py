"""Losses and metrics for another Keras."""

from scalekeeper.registry import target
from scalekeeper.serialization.keras._model_config import translate_compile_config
from scalekeeper.serialization.keras.target import KerasTarget

LOSS = {"class_name": "BinaryCrossentropy", "config": {"reduction": "auto", "name": "bce", "from_logits": True}}


def translated(training, name):
    return translate_compile_config(training, KerasTarget(target(name)).model_config_rules)


def test_names_stay_names():
    """In lists and in mappings by output, too."""
    given = {"loss": {"a": "mse", "b": "mae"}, "metrics": ["mae", ["mse"]], "loss_weights": [1.0, 2.0]}
    found, dropped = translated(given, "2.3")
    assert found["loss"] == {"a": "mse", "b": "mae"}
    assert found["metrics"] == ["mae", ["mse"]]
    assert found["loss_weights"] == [1.0, 2.0]
    assert dropped == []


def test_objects_get_the_words_of_keras_3_and_lose_them_again():
    """Its module, and a reduction that is not decided later."""
    there, _ = translated({"loss": LOSS}, "keras3")
    assert there["loss"] == {
        "module": "keras.losses",
        "class_name": "BinaryCrossentropy",
        "config": {"reduction": "sum_over_batch_size", "name": "bce", "from_logits": True},
        "registered_name": None,
    }
    there["loss"]["config"]["dtype"] = "float32"  # as Keras 3 writes it
    back, _ = translated({"loss": there["loss"]}, "2.10")
    assert back["loss"] == {
        "class_name": "BinaryCrossentropy",
        "config": {"reduction": "sum_over_batch_size", "name": "bce", "from_logits": True},
    }


def test_a_metric_that_was_given_by_name_is_a_name_again():
    """As Keras 2 has it in an object, and Keras 3 as a function."""
    wrapped = {"class_name": "MeanMetricWrapper", "config": {"name": "mae", "fn": "mean_absolute_error"}}
    function = {"module": "builtins", "class_name": "function", "config": "mse", "registered_name": "function"}
    found, dropped = translated({"metrics": [wrapped, function]}, "keras3")
    assert found["metrics"] == ["mean_absolute_error", "mse"]
    assert dropped == []


def test_a_class_of_ones_own_is_a_loss():
    """It is left out, and named."""
    own = {"class_name": "Mine", "config": {}, "registered_name": "pack>Mine"}
    found, dropped = translated({"metrics": [own]}, "keras3")
    assert found["metrics"] == []
    assert len(dropped) == 1
    assert dropped[0].startswith("Mine among the metrics")
