"""The child ``_variables`` of new optimizers in checkpoints: a list whose places mean other things in other versions.

From 2.11 on its first variable is the iterations; before, they are not in it, and all others stand one place earlier.
TensorFlow restores by place, and gives wrong slots in silence. Nearly all of these variables are in the file twice: in
a list such as ``_momentums`` too, where places mean the same in all versions.
"""

from typing import Any

ITERATIONS, LIST = "_iterations", "_variables"


def put_right(place: Any, inner: Any) -> None:
    """Correct the tree of a file, as it is in memory, by the place of the iterations, if it counts in the other way.

    The list is left what no other list has, at the places that these have here.
    """
    nodes, iterations = place.checkpoint.object_graph_proto.nodes, place._proto_id
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
            raise ValueError(
                "The checkpoint holds the state of RMSprop, whose momentum has the learning rate in it from 2.11 on, "
                "and before that has not. Checkpoint.restore and load_weights can't translate it: call "
                "scalekeeper.restore(model, path) instead."
            )
        known = {*children.values(), *(each.node_id for number in children.values() for each in nodes[number].children)}
        left = [(each.node_id, int(each.local_name)) for each in listed if each.node_id not in known]
        del listed[:]
        for number, position in left:
            listed.add(node_id=number, local_name=str(position + (1 if counts_here else -1)))
