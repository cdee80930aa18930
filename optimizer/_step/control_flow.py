"""AutoGraph, conditionals and XLA: how the functions of a step become operations of a graph."""

from typing import Any, Callable, TypeVar, cast

import importlib

import tensorflow as tf

Function = TypeVar("Function", bound=Callable[..., Any])


def without_autograph(function: Function) -> Function:
    """Keep AutoGraph from rewriting a function, and all that it calls, inside a traced step."""
    return cast(Function, tf.autograph.experimental.do_not_convert(function))


def unlowered_cond(condition: Any, if_true: Callable[[], Any], if_false: Callable[[], Any]) -> Any:
    """Run ``tf.cond`` as a single operation of the graph.

    TensorFlow lowers a conditional into switches, one for each tensor that its branches use. With hundreds of gradients
    and variables the switches cost more than the branches.
    """
    result = tf.cond(condition, if_true, if_false)
    if not tf.executing_eagerly():
        operation = result.op
        while operation.type == "Identity":
            operation = operation.inputs[0].op
        if operation.type in ("If", "StatelessIf"):
            operation._set_attr("_lower_using_switch_merge", tf.compat.v1.AttrValue(b=False))
    return result


def is_compiled_by_xla() -> bool:
    """Return whether the code is traced for a function that XLA compiles."""
    if tf.executing_eagerly():
        return False
    control_flow_util = importlib.import_module("tensorflow.python.ops.control_flow_util")  # not a public module
    return bool(control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))


def rounded(value: Any) -> Any:
    """Return a floating-point tensor, rounded to its dtype and not fused with the operations around it.

    It replaces numbers beyond the largest one by infinity. No such number exists, but a compiler does not know that and
    keeps the operations before and after apart. Both signs, as it may know that a square is positive.
    """
    largest, infinity = float(value.dtype.max), float("inf")
    for beyond, sign in ((tf.less, -1), (tf.greater, 1)):
        is_beyond = beyond(value, tf.constant(sign * largest, value.dtype))
        value = tf.where(is_beyond, tf.constant(sign * infinity, value.dtype), value)
    return value
