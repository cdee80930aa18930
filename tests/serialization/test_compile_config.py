"""Losses and metrics for another Keras."""

from scalekeeper.serialization._conversion.target import conversion_target
from scalekeeper.serialization.keras._compile_config import translated

LOSS = {"class_name": "BinaryCrossentropy", "config": {"reduction": "auto", "name": "bce", "from_logits": True}}


def test_names_stay_names():
    """In lists and in mappings by output, too."""
    given = {"loss": {"a": "mse", "b": "mae"}, "metrics": ["mae", ["mse"]], "loss_weights": [1.0, 2.0]}
    found, losses = translated(given, conversion_target("2.3"))
    assert found["loss"] == {"a": "mse", "b": "mae"}
    assert found["metrics"] == ["mae", ["mse"]]
    assert found["loss_weights"] == [1.0, 2.0]
    assert losses == []


def test_objects_get_the_words_of_keras_3_and_lose_them_again():
    """Its module, and a reduction that is not decided later."""
    there, _ = translated({"loss": LOSS}, conversion_target("keras3"))
    assert there["loss"] == {
        "module": "keras.losses",
        "class_name": "BinaryCrossentropy",
        "config": {"reduction": "sum_over_batch_size", "name": "bce", "from_logits": True},
        "registered_name": None,
    }
    there["loss"]["config"]["dtype"] = "float32"  # as Keras 3 writes it
    back, _ = translated({"loss": there["loss"]}, conversion_target("2.10"))
    assert back["loss"] == {
        "class_name": "BinaryCrossentropy",
        "config": {"reduction": "sum_over_batch_size", "name": "bce", "from_logits": True},
    }


def test_a_metric_that_was_given_by_name_is_a_name_again():
    """As Keras 2 has it in an object, and Keras 3 as a function."""
    wrapped = {"class_name": "MeanMetricWrapper", "config": {"name": "mae", "fn": "mean_absolute_error"}}
    function = {"module": "builtins", "class_name": "function", "config": "mse", "registered_name": "function"}
    found, losses = translated({"metrics": [wrapped, function]}, conversion_target("keras3"))
    assert found["metrics"] == ["mean_absolute_error", "mse"]
    assert losses == []


def test_a_class_of_ones_own_is_a_loss():
    """It is left out, and named."""
    own = {"class_name": "Mine", "config": {}, "registered_name": "pack>Mine"}
    found, losses = translated({"metrics": [own]}, conversion_target("keras3"))
    assert found["metrics"] == []
    assert losses == ["Mine among the metrics: a class of one's own, which is left out"]
