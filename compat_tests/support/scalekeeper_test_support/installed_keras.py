"""One interface to every installed Keras: its LossScaleOptimizer, and names that have changed since 2.0.

Tests that use this module run unchanged on every TensorFlow. Versions are told apart by their capabilities.
"""

import inspect

import tensorflow as tf

mixed_precision = tf.keras.mixed_precision
IS_KERAS_3 = hasattr(tf.keras, "Operation")
# up to 2.3 the class takes LossScale objects, and is experimental
HAS_LOSS_SCALE_OBJECTS = not hasattr(mixed_precision, "LossScaleOptimizer")
UPSTREAM = (
    mixed_precision.experimental.LossScaleOptimizer if HAS_LOSS_SCALE_OBJECTS else mixed_precision.LossScaleOptimizer
)
HAS_POLICIES_WITH_LOSS_SCALE = hasattr(mixed_precision, "experimental")
HAS_NEW_OPTIMIZERS = hasattr(tf.keras.optimizers.SGD, "update_step")
# Keras 2.11's own class for new optimizers cannot list its variables: a model with it cannot be saved as H5
LISTS_VARIABLES = not tf.__version__.startswith("2.11.")
COUNTS_SKIPPED_STEPS = not IS_KERAS_3 and (not HAS_LOSS_SCALE_OBJECTS or "_restore_slot_variable" in vars(UPSTREAM))
# Keras 3's own class asks the first replica whether the gradients are finite, and decides by it for all: gradients
# that are not finite on another replica alone are applied
LOOKS_AT_FIRST_REPLICA_ONLY = IS_KERAS_3
# name → the optimizers of that kind: from 2.11 on there are two
OPTIMIZERS = {"default": tf.keras.optimizers}
if HAS_NEW_OPTIMIZERS and not IS_KERAS_3:
    OPTIMIZERS["legacy"] = tf.keras.optimizers.legacy
# what file names end with, for weights alone and for a whole model with its optimizer; Keras 3 also writes H5 models,
# but one with its own class in it does not load and train
WRITES_KERAS_FILES = hasattr(tf.keras.Model, "save_own_variables")  # from 2.13 on; before, H5 files have that ending
WEIGHTS_SUFFIXES = [".weights.h5"] if IS_KERAS_3 else [".h5", ".tf"]
MODEL_SUFFIXES = [".keras"] if IS_KERAS_3 else [".h5", "", *([".keras"] if WRITES_KERAS_FILES else [])]
# TensorFlow's own LossScale classes, which since 2.4 live with TensorFlow 1's names only
LOSS_SCALE_CLASSES = tf.train.experimental if HAS_LOSS_SCALE_OBJECTS else tf.compat.v1.mixed_precision


# what tf.function calls it, the newer name first; 2.0 has neither
COMPILES = [
    name for name in ("jit_compile", "experimental_compile") if name in inspect.signature(tf.function).parameters
]


class InexpressibleError(Exception):
    """TensorFlow's class has no equivalent of this loss scale."""


def upstream(inner, loss_scale="dynamic"):
    """Wrap an optimizer in TensorFlow's class; the loss scale is "dynamic", a number, or parameters of dynamic."""
    parameters = loss_scale if isinstance(loss_scale, dict) else {}
    is_dynamic = loss_scale == "dynamic" or isinstance(loss_scale, dict)
    if HAS_LOSS_SCALE_OBJECTS:
        policies = tf.train.experimental
        return UPSTREAM(inner, policies.DynamicLossScale(**parameters) if is_dynamic else loss_scale)
    if parameters.get("multiplier", 2.0) != 2.0 or (IS_KERAS_3 and not is_dynamic):
        raise InexpressibleError(loss_scale)
    if not is_dynamic:
        return UPSTREAM(inner, dynamic=False, initial_scale=loss_scale)
    names = {"initial_loss_scale": "initial_scale", "increment_period": "dynamic_growth_steps"}
    return UPSTREAM(inner, **{names[name]: value for name, value in parameters.items() if name in names})


def aggregates_first(optimizer):
    """Return whether an optimizer of TensorFlow's class aggregates gradients before it checks them: not up to 2.4."""
    return any("aggregate_gradients" in name for name in type(optimizer).apply_gradients.__code__.co_names)


def builds_in_one_graph():
    """Return whether all threads build models in one graph, as up to 2.3."""
    return hasattr(tf.keras.Input((1,)), "graph")


def compiled(step):
    """Return the step compiled by XLA; it must return a value."""
    if COMPILES:
        return tf.function(step, autograph=False, **{COMPILES[0]: True})
    return tf.function(lambda *args: tf.xla.experimental.compile(step, list(args)), autograph=False)


def state_of(optimizer):
    """Return the scale and the counter of either class; the counter of a fixed scale is None."""
    loss_scale = getattr(optimizer, "loss_scale", None)
    if hasattr(loss_scale, "state"):
        state = loss_scale.state()
        scale = state.get("current_loss_scale")  # of a fixed one, there is no state
        return {
            "current_loss_scale": float(loss_scale()) if scale is None else scale,
            "good_steps": state.get("good_steps"),
        }
    if IS_KERAS_3:
        if not optimizer.built:
            return {"current_loss_scale": float(optimizer.initial_scale), "good_steps": 0}
        return {
            "current_loss_scale": float(optimizer.dynamic_scale.numpy()),
            "good_steps": int(optimizer.step_counter.numpy()),
        }
    if HAS_LOSS_SCALE_OBJECTS:
        counter = getattr(loss_scale, "_num_good_steps", None)
        loss_scale = loss_scale()
    else:
        counter = optimizer.dynamic_counter
    return {"current_loss_scale": number(loss_scale), "good_steps": None if counter is None else int(number(counter))}


def apply_unscaled(optimizer, grads_and_vars, **options):
    """Apply unscaled gradients with either class; Keras 3's class accepts only scaled ones."""
    if IS_KERAS_3 and not hasattr(optimizer, "get_unscaled_gradients"):
        scale = state_of(optimizer)["current_loss_scale"]
        grads_and_vars = [(None if grad is None else grad * scale, variable) for grad, variable in grads_and_vars]
    return optimizer.apply_gradients(grads_and_vars, **options)


def inner_of(optimizer):
    """Return the inner optimizer; a bare optimizer is returned as it is."""
    return getattr(optimizer, "inner_optimizer", getattr(optimizer, "_optimizer", optimizer))


def variables_of(optimizer):
    """Return the list of variables, which is a method or a property."""
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)


def number(value):
    """Return a variable, a tensor or a number as a Python number, in every mode."""
    if hasattr(value, "numpy") and tf.executing_eagerly():
        return value.numpy().item()
    return float(value) if IS_KERAS_3 else tf.keras.backend.get_value(value).item()


def global_policy():
    return mixed_precision.global_policy() if hasattr(mixed_precision, "global_policy") else _old().global_policy()


def set_global_policy(policy):
    """Set the global dtype policy: a name, or a result of ``global_policy``."""
    setter = mixed_precision.set_global_policy if hasattr(mixed_precision, "set_global_policy") else _old().set_policy
    setter(policy)


def layer_policy(name, **options):
    """Return a dtype policy; ``loss_scale`` is an option up to 2.3."""
    return (_old() if HAS_POLICIES_WITH_LOSS_SCALE else mixed_precision).Policy(name, **options)


def _old():
    return mixed_precision.experimental
