"""A conditional that stays one operation."""

from typing import Any, Callable

import tensorflow as tf


def unlowered_cond(condition: Any, if_true: Callable[[], Any], if_false: Callable[[], Any]) -> Any:
    """``tf.cond`` that stays one operation in the graph.

    TensorFlow turns a conditional into switches, one for each tensor that its branches use: with hundreds of gradients
    and variables those cost more than what is inside.
    """
    result = tf.cond(condition, if_true, if_false)
    if not tf.executing_eagerly():
        operation = result.op
        while operation.type == "Identity":
            operation = operation.inputs[0].op
        if operation.type in ("If", "StatelessIf"):
            attribute = tf.compat.v1.AttrValue(b=False)
            operation._set_attr("_lower_using_switch_merge", attribute)
    return result
