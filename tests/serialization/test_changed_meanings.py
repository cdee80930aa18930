"""Names with other meanings in Keras 2 and Keras 3 are translated so that the meaning stays."""

import pytest

from scalekeeper import TranslationError
from scalekeeper.serialization.keras._changed_meanings import activation_for, with_old_defaults
from scalekeeper.serialization.keras._model_config import translate_model_config
from scalekeeper.serialization.keras._model_config_rules import KERAS_2_12_RULES, KERAS_3_RULES


@pytest.mark.parametrize(
    ("name", "written_by", "target", "expected"),
    [
        ("hard_sigmoid", 2, 2, "hard_sigmoid"),
        ("hard_sigmoid", 3, 3, "hard_sigmoid"),
        ("hard_sigmoid", 2, 3, "scalekeeper>keras2_hard_sigmoid"),
        ("hard_sigmoid", 3, 2, "scalekeeper>keras3_hard_sigmoid"),
        ("scalekeeper>keras2_hard_sigmoid", 3, 2, "hard_sigmoid"),
        ("scalekeeper>keras2_hard_sigmoid", 3, 3, "scalekeeper>keras2_hard_sigmoid"),
        ("hard_swish", 3, 2, "scalekeeper>keras3_hard_silu"),
        ("tanh", 2, 3, "tanh"),
    ],
)
def test_activations(name, written_by, target, expected):
    """An activation has its own name where it means the same, and one of scalekeeper's elsewhere."""
    assert activation_for(name, written_by, target) == expected


def test_defaults_that_have_changed():
    """An argument that a file omits has the default of the Keras that wrote it."""
    found = with_old_defaults("ConvLSTM2D", {"filters": 2}, written_by=2, target=3)
    assert found == {"filters": 2, "recurrent_activation": "hard_sigmoid"}
    found = with_old_defaults("ConvLSTM2D", {"recurrent_activation": "tanh"}, written_by=2, target=3)
    assert found == {"recurrent_activation": "tanh"}
    assert with_old_defaults("ConvLSTM2D", {}, written_by=3, target=2) == {"recurrent_activation": "sigmoid"}
    assert with_old_defaults("ConvLSTM2D", {}, written_by=3, target=3) == {}
    assert with_old_defaults("Dense", {}, written_by=2, target=3) == {}


def layer(class_name, config, node="x"):
    return {"class_name": class_name, "config": config, "name": config["name"], "inbound_nodes": [[[node, 0, 0, {}]]]}


def functional(*layers):
    config = {"batch_input_shape": [None, 3], "dtype": "float32", "sparse": False, "name": "x"}
    first = {"class_name": "InputLayer", "config": config, "name": "x", "inbound_nodes": []}
    ends = {"input_layers": [["x", 0, 0]], "output_layers": [[layers[-1]["name"], 0, 0]]}
    return {"class_name": "Functional", "config": {"name": "m", "layers": [first, *layers], **ends}}


def test_a_layer_of_keras_2_alone():
    """ThresholdedReLU is a ReLU with a threshold in Keras 3."""
    config = functional(layer("ThresholdedReLU", {"name": "t", "theta": 0.5}))
    found = translate_model_config(config, KERAS_3_RULES)["config"]["layers"][1]
    assert (found["class_name"], found["config"]) == ("ReLU", {"name": "t", "threshold": 0.5})


def test_a_target_without_scalekeeper():
    """An activation that would mean something else there is an error that names the layer."""
    config = functional(layer("Activation", {"name": "a", "activation": "hard_sigmoid"}))
    found = translate_model_config(config, KERAS_3_RULES)["config"]["layers"][1]["config"]["activation"]
    assert found["config"] == "scalekeeper>keras2_hard_sigmoid"
    with pytest.raises(TranslationError, match="activation='hard_sigmoid' of the layer 'a'.*restore"):
        translate_model_config(config, KERAS_3_RULES, has_scalekeeper=False)


def test_names_with_slashes():
    """Keras 3 takes no slash in the name of a layer; connections follow the new names."""
    config = functional(layer("Dense", {"name": "a/b", "units": 2}), layer("Dense", {"name": "c", "units": 2}, "a/b"))
    found = translate_model_config(config, KERAS_3_RULES)["config"]
    assert [each["name"] for each in found["layers"]] == ["x", "a_b", "c"]
    assert found["layers"][1]["config"]["name"] == "a_b"
    (node,) = found["layers"][2]["inbound_nodes"]
    assert node["args"][0]["config"]["keras_history"] == ["a_b", 0, 0]
    kept = translate_model_config(config, KERAS_2_12_RULES)["config"]["layers"]
    assert [each["name"] for each in kept] == ["x", "a/b", "c"]
