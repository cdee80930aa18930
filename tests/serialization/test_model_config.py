"""Models' configurations in the words of another Keras."""

import json
import os

import pytest

from scalekeeper import TranslationError
from scalekeeper.serialization.keras._model_config import translate_model_config
from scalekeeper.serialization.keras._model_config_rules import (
    KERAS_2_3_RULES,
    KERAS_2_12_RULES,
    KERAS_2_RULES,
    KERAS_3_RULES,
)

DATA = os.path.join(os.path.dirname(__file__), "data", "models")


def read(name):
    with open(os.path.join(DATA, name + ".json"), encoding="utf-8") as stream:
        return json.load(stream)["config"]


def layers_of(config):
    return {layer["config"]["name"]: layer for layer in config["config"]["layers"]}


def sequential(*layers, **config):
    entries = [{"class_name": class_name, "config": arguments} for class_name, arguments in layers]
    return {"class_name": "Sequential", "config": {"name": "model", "layers": entries, **config}}


def tensor(layer, call=0, output=0):
    config = {"shape": [None], "dtype": "float32", "keras_history": [layer, call, output]}
    return {"class_name": "__keras_tensor__", "config": config}


def test_an_input_shape_becomes_an_input_layer():
    """TensorFlow 2.0 has it in the first layer; Keras 3 wants a layer of its own, with modules everywhere."""
    found = translate_model_config(read("dense-2.0"), KERAS_3_RULES)
    first, second = found["config"]["layers"][:2]
    assert first == {
        "module": "keras.layers",
        "class_name": "InputLayer",
        "config": {"name": "d1_input", "dtype": "float32", "sparse": False, "batch_shape": [None, 3]},
        "registered_name": None,
    }
    assert second["config"]["kernel_initializer"] == {
        "module": "keras.initializers",
        "class_name": "GlorotUniform",
        "config": {},
        "registered_name": None,
    }
    assert "batch_input_shape" not in second["config"]
    assert (found["module"], found["class_name"], found["registered_name"]) == ("keras", "Sequential", None)


def test_keras_2_gets_no_modules():
    """Nor anything else that only Keras 3 writes."""
    found = translate_model_config(read("dense-Keras_3"), KERAS_2_RULES)
    text = json.dumps(found)
    for word in ("module", "registered_name", "build_config", "DTypePolicy", "batch_shape"):
        assert word not in text
    assert found["config"]["layers"][0]["config"]["batch_input_shape"] == [None, 3]


@pytest.mark.parametrize(
    ("target", "name"), [(KERAS_2_RULES, "Model"), (KERAS_2_12_RULES, "Functional"), (KERAS_3_RULES, "Functional")]
)
def test_the_name_of_functional_models(target, name):
    """It was Model up to 2.2, which all of Keras 2 before 2.12 knows."""
    for file in ("images-2.0", "images-2.15", "images-Keras_3"):
        assert translate_model_config(read(file), target)["class_name"] == name


def test_calls_of_nested_models_are_counted_otherwise():
    """Keras 2 counts those of a nested model from 1, Keras 3 from 0, but for outputs that a functional model makes."""
    expected_2 = {
        "sub": [[["tower", 1, 0, {}], ["inner", 2, 0, {}]]],
        "tower": [[["inner", 1, 0, {}]], [["inner", 2, 0, {}]]],
    }
    expected_3 = {
        "sub": [{"args": [[tensor("tower"), tensor("inner", 1)]], "kwargs": {}}],
        "tower": [{"args": [tensor("inner")], "kwargs": {}}, {"args": [tensor("inner", 1)], "kwargs": {}}],
    }
    for source in ("shared-2.0", "shared-2.10", "shared-Keras_3", "shared-Keras_3-H5"):
        found = translate_model_config(read(source), KERAS_2_RULES)["config"]
        calls = {layer["name"]: layer["inbound_nodes"] for layer in found["layers"]}
        assert {name: calls[name] for name in expected_2} == expected_2, source
        assert found["output_layers"] == [["sub", 0, 0], ["tower", 2, 0]]
        assert found["input_layers"] == [["a", 0, 0], ["b", 0, 0]]
    for source in ("shared-2.0", "shared-2.10"):
        found = translate_model_config(read(source), KERAS_3_RULES)["config"]
        calls = {layer["name"]: layer["inbound_nodes"] for layer in found["layers"]}
        assert {name: calls[name] for name in expected_3} == expected_3, source
        assert found["output_layers"] == [["sub", 0, 0], ["tower", 1, 0]]


def test_one_output_of_a_nested_functional_model():
    """Keras 3 counts it from 1, too, and has no list around a single one."""
    inner = {"class_name": "Model", "config": {"name": "inner", "layers": [], "input_layers": [], "output_layers": []}}
    layer = {**inner, "name": "inner", "inbound_nodes": []}
    config = {"name": "outer", "layers": [layer], "input_layers": [["inner", 1, 0]], "output_layers": [["inner", 1, 0]]}
    found = translate_model_config({"class_name": "Model", "config": config}, KERAS_3_RULES)["config"]
    assert found["output_layers"] == ["inner", 1, 0]
    back = translate_model_config({"class_name": "Functional", "config": {**found}}, KERAS_2_RULES)["config"]
    assert back["output_layers"] == [["inner", 1, 0]]


def test_arguments_of_calls():
    """Tensors by name, states of recurrent layers, and positions that Keras 2 has no place for."""
    calls = {
        name: layer["inbound_nodes"]
        for name, layer in layers_of(translate_model_config(read("attention-Keras_3"), KERAS_2_12_RULES)).items()
    }
    assert calls["mha"] == [[["q", 0, 0, {"value": ["v", 0, 0]}]]]
    assert calls["mha2"] == [[["mha", 0, 0, {"value": ["mha", 0, 0]}]]]
    back = layers_of(translate_model_config(read("attention-2.10"), KERAS_3_RULES))
    assert back["mha"]["inbound_nodes"] == [{"args": [tensor("q")], "kwargs": {"value": tensor("v")}}]
    states = layers_of(translate_model_config(read("states-Keras_3"), KERAS_2_RULES))
    assert states["g"]["inbound_nodes"] == [[["x", 0, 0, {}], ["h", 0, 0, {}]]]
    states = layers_of(translate_model_config(read("states-2.0"), KERAS_3_RULES))
    assert states["g"]["inbound_nodes"] == [{"args": [tensor("x")], "kwargs": {"initial_state": [tensor("h")]}}]


@pytest.mark.parametrize("name", ["words-Keras_3", "words-Keras_3-H5"])
def test_masks_that_keras_3_computes_are_left_to_keras_2(name):
    """The operation is gone, and nothing refers to it."""
    found = translate_model_config(read(name), KERAS_2_RULES)
    assert list(layers_of(found)) == ["words", "emb", "lstm", "ln", "gru", "act"]
    assert "not_equal" not in json.dumps(found)


def test_operations_that_are_no_layers():
    """Layers that stand for TensorFlow functions, from TensorFlow 2.4 on; before, an error that names the operation."""
    config = read("words-Keras_3")
    for layer in config["config"]["layers"]:
        layer["config"].pop("mask_zero", None)
    found = layers_of(translate_model_config(config, KERAS_2_RULES))["not_equal"]
    assert (found["class_name"], found["config"]["function"]) == ("TFOpLambda", "math.not_equal")
    with pytest.raises(TranslationError, match="'not_equal' by 'NotEqual', an operation of Keras 3.*restore"):
        translate_model_config(config, KERAS_2_3_RULES)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (KERAS_3_RULES, "mixed_float16"),
        (KERAS_2_12_RULES, {"class_name": "Policy", "config": {"name": "mixed_float16"}}),
        (KERAS_2_RULES, {"class_name": "Policy", "config": {"name": "mixed_float16"}}),
    ],
)
@pytest.mark.parametrize("source", ["mixed-2.3", "mixed-2.15", "mixed-Keras_3"])
def test_policies_of_layers(source, target, expected):
    """Only the name counts: the loss scale, which old ones have in them, belongs to the optimizer."""
    found = layers_of(translate_model_config(read(source), target))
    assert (found["m1"]["config"]["dtype"], found["m2"]["config"]["dtype"]) == (expected, "float32")


def test_a_target_that_keeps_no_policies():
    """An error that says so."""
    with pytest.raises(TranslationError, match="'mixed_float16'.*restore"):
        translate_model_config(read("mixed-2.3"), KERAS_2_RULES, lambda name: None if name == "Policy" else {"units"})


def test_names_that_have_changed():
    """Slopes, activations, initializers, regularizers, and the axis of a normalization."""
    he = {"class_name": "HeNormal", "config": {"seed": None}, "module": "keras.initializers", "registered_name": None}
    l2 = {"class_name": "L2", "config": {"l2": 0.5}}
    config = sequential(
        ("Dense", {"name": "d", "activation": "silu", "kernel_initializer": he, "kernel_regularizer": l2}),
        ("LeakyReLU", {"name": "l", "negative_slope": 0.25}),
        ("BatchNormalizationV1", {"name": "b", "axis": [3]}),
    )
    old = layers_of(translate_model_config(config, KERAS_2_RULES))
    assert old["d"]["config"] == {
        "name": "d",
        "activation": "swish",
        "kernel_initializer": {
            "class_name": "VarianceScaling",
            "config": {"scale": 2.0, "mode": "fan_in", "distribution": "truncated_normal"},
        },
        "kernel_regularizer": {"class_name": "L1L2", "config": {"l1": 0.0, "l2": 0.5}},
    }
    assert old["l"]["config"] == {"name": "l", "alpha": 0.25}
    assert old["b"] == {"class_name": "BatchNormalization", "config": {"name": "b", "axis": 3}}
    assert layers_of(translate_model_config(sequential(("LeakyReLU", {"name": "l", "alpha": 0.5})), KERAS_3_RULES))[
        "l"
    ]["config"] == {
        "name": "l",
        "negative_slope": 0.5,
    }


def test_arguments_that_say_nothing():
    """They are left out where a layer does not have them; what says something is an error."""

    def accepts(name):
        return {"units"}

    quiet = {"name": "d", "units": 3, "groups": 1, "seed": 7, "quantization_config": None, "implementation": 2}
    found = translate_model_config(sequential(("Dense", quiet)), KERAS_2_RULES, accepts)
    assert layers_of(found)["d"]["config"] == {"name": "d", "units": 3}
    with pytest.raises(TranslationError, match="groups=2 of the layer 'd'.*accepts dtype, name.*restore"):
        translate_model_config(sequential(("Dense", {**quiet, "groups": 2})), KERAS_2_RULES, accepts)


def test_a_layer_that_is_not_there():
    """An error that says what to do; a class of the user's own keeps its arguments."""
    config = sequential(("Mine", {"name": "m", "surprise": (1, 2)}))
    with pytest.raises(TranslationError, match="no layer 'Mine'.*custom_objects.*restore"):
        translate_model_config(config, KERAS_2_RULES, lambda name: None)
    found = translate_model_config(config, KERAS_2_RULES, lambda name: None, custom_names=["Mine"])
    assert layers_of(found)["m"] == {"class_name": "Mine", "config": {"name": "m", "surprise": [1, 2]}}


def test_code_is_never_run():
    """A Lambda layer is refused on every target."""
    for target in (KERAS_2_RULES, KERAS_2_12_RULES, KERAS_3_RULES):
        with pytest.raises(TranslationError, match="Lambda.*restore"):
            translate_model_config(sequential(("Lambda", {"name": "x", "function": ["4wEAAAA", None, None]})), target)


def test_what_is_no_such_model():
    """A subclassed model has no configuration that could be translated."""
    with pytest.raises(TranslationError, match="MyModel"):
        translate_model_config({"class_name": "MyModel", "config": {}}, KERAS_3_RULES)


def test_a_call_for_inference_only():
    """Keras 3 does not keep it: an error, as a normalization would begin to learn."""
    layer = {"class_name": "BatchNormalization", "config": {"name": "b"}, "name": "b"}
    config = {
        "name": "model",
        "layers": [{**layer, "inbound_nodes": [[["x", 0, 0, {"training": False}]]]}],
        "input_layers": [["x", 0, 0]],
        "output_layers": [["b", 0, 0]],
    }
    with pytest.raises(TranslationError, match="training=False.*restore"):
        translate_model_config({"class_name": "Functional", "config": config}, KERAS_3_RULES)
    found = translate_model_config({"class_name": "Functional", "config": config}, KERAS_2_RULES)
    assert found["config"]["layers"][0]["inbound_nodes"] == [[["x", 0, 0, {"training": False}]]]


def test_shapes_and_tuples_of_saved_models():
    """A SavedModel's metadata marks them; here they are lists."""
    shape = {"class_name": "TensorShape", "items": [None, 3]}
    dense = {"name": "d", "batch_input_shape": {"class_name": "__tuple__", "items": [None, 3]}, "dtype": "float32"}
    found = translate_model_config(sequential(("Dense", dense), build_input_shape=shape), KERAS_3_RULES)["config"]
    assert found["build_input_shape"] == [None, 3]
    assert found["layers"][0]["config"]["batch_shape"] == [None, 3]


def test_the_given_configuration_is_left_alone():
    """Translating makes a new one."""
    for name in ("images-2.15", "shared-Keras_3"):
        for target in (KERAS_2_RULES, KERAS_3_RULES):
            config = read(name)
            translate_model_config(config, target)
            assert config == read(name)
