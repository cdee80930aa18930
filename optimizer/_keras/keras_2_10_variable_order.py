"""The child ``_variables`` of new optimizers in checkpoints: a list whose order differs between versions.

From 2.11 on its first variable is the iterations; before, they are not in it, and all others have an index lower by
one. TensorFlow restores by index, and would assign wrong slots without an error. Nearly all of these variables are in
the file twice: also in a list such as ``_momentums``, whose order is the same in all versions.
"""

from typing import Any

from ...registry.errors import Problem, StateMismatchError

ITERATIONS, LIST = "_iterations", "_variables"


def correct_variable_order(position: Any, inner: Any) -> None:
    """Correct the tree of a file in memory if its list has another order than the list of the inner optimizer.

    The list keeps the variables that no other list has, at the indices that they have here.
    """
    nodes, iterations = position.checkpoint.object_graph_proto.nodes, position._proto_id
    counts_here = any(variable is inner._iterations for variable in inner._variables)
    for node in nodes:
        children = {child.local_name: child.node_id for child in node.children}
        if children.get(ITERATIONS) != iterations or LIST not in children:
            continue
        listed = nodes[children.pop(LIST)].children
        if counts_here == any(each.node_id == iterations for each in listed):
            continue
        has_momentum = "_momentums" in children and len(nodes[children["_momentums"]].children) > 0
        if has_momentum and any(cls.__name__ == "RMSprop" for cls in type(inner).__mro__):
            message = (
                "The checkpoint holds the state of RMSprop, whose momentum includes the learning rate from 2.11 on, "
                "and not before. Checkpoint.restore and load_weights can't translate it: call "
                "scalekeeper.restore(model, path) instead."
            )
            raise StateMismatchError([Problem(("momentum",), message, "learning_rate")])
        known = {*children.values(), *(each.node_id for number in children.values() for each in nodes[number].children)}
        left = [(each.node_id, int(each.local_name)) for each in listed if each.node_id not in known]
        del listed[:]
        for number, index in left:
            listed.add(node_id=number, local_name=str(index + (1 if counts_here else -1)))
