"""How one Keras writes the configuration of a model: the differences that a conversion must know."""

from typing import Any, Dict, Mapping, NamedTuple


class ModelConfigRules(NamedTuple):
    """The rules of one Keras. The defaults are those of Keras 2.12 to 2.15 and tf_keras."""

    generation: int = 2  # the first number of its version
    functional_class_name: str = "Functional"
    functional_module: str = "{package}.src.engine.functional"
    writes_modules: bool = False  # in every format; Keras 2 does so in .keras files only
    has_keras_tensors: bool = False  # whether calls are args and kwargs with tensors in them; otherwise nested lists
    input_shape_key: str = "batch_input_shape"
    leaky_relu_slope_key: str = "alpha"
    keeps_attention_shapes: bool = True  # whether from_config of MultiHeadAttention takes the shapes of its inputs
    names_dtype_policies: bool = False  # whether a dtype policy is written by its name only
    silu_name: str = "swish"
    has_derived_initializers: bool = True  # HeNormal and others that are variants of VarianceScaling; L1 and L2
    keeps_seed_generators: bool = True
    has_function_layers: bool = True  # TFOpLambda and SlicingOpLambda
    defers_loss_reduction: bool = True  # whether the reduction "auto" exists
    keeps_loss_dtype: bool = False
    lists_no_metrics: bool = True  # whether no metrics are an empty list, not null
    compile_defaults: Mapping[str, Any] = {"sample_weight_mode": None}  # which TensorFlow 2.0 and 2.1 require


KERAS_2_RULES = ModelConfigRules(
    functional_class_name="Model", has_derived_initializers=False, keeps_seed_generators=False
)
KERAS_2_3_RULES = KERAS_2_RULES._replace(has_function_layers=False)
KERAS_2_12_RULES = ModelConfigRules()
_KERAS_3_COMPILE: Dict[str, Any] = {"run_eagerly": False, "steps_per_execution": 1, "jit_compile": False}
KERAS_3_RULES = ModelConfigRules(
    generation=3,
    functional_module="keras.src.models.functional",
    writes_modules=True,
    has_keras_tensors=True,
    input_shape_key="batch_shape",
    leaky_relu_slope_key="negative_slope",
    keeps_attention_shapes=False,
    names_dtype_policies=True,
    silu_name="silu",
    defers_loss_reduction=False,
    keeps_loss_dtype=True,
    lists_no_metrics=False,
    compile_defaults=_KERAS_3_COMPILE,
)
