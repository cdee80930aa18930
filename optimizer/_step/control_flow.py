"""AutoGraph and conditionals: how the functions of a step become operations of a graph."""

from typing import Any, Callable, TypeVar, cast

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
