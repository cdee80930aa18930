"""The children of a LossScaleOptimizer in a ``tf.train.Checkpoint`` or ``model.load_weights``.

A checkpoint is a tree of objects with named children. It is restored along these names, level by level: TensorFlow asks
an object for each child in the file (``_lookup_dependency``), defers children that do not exist yet
(``_deferred_dependencies``), and reads values when it has visited the whole tree.

The children that are written stay those of Keras's own class in the installed version. The children that can be read
are more, so that the trees of other versions fit:

- 2.0 to 2.2: optimizer → base_optimizer → iter, hyperparameters, slots; optimizer → loss_scale
- 2.3 on, and legacy optimizers: optimizer → iter, hyperparameters, slots, loss_scale, an empty base_optimizer
- new optimizers: optimizer → _iterations, _learning_rate, _variables, lists of variables, loss_scale
- Keras 3: optimizer → inner_optimizer → …; optimizer → dynamic_scale, step_counter
"""

from typing import Any, Callable, Dict, List, NoReturn, Optional, Set

import tensorflow as tf

from ...registry._documents import HOLD
from ...registry.errors import Problem, StateMismatchError
from ...serialization.keras.profile import MODEL_NAMES_CHILD, SKIPPED_STEPS_CHILD
from ...serialization.training_state import SKIPS
from .state_transfer import set_pending_state


def written_children(optimizer: Any) -> Dict[str, Any]:
    """Return the children in a checkpoint that Keras's own class does not write."""
    return {**optimizer._monitor.children(is_saved_model=False), **optimizer._monitor.model_names.children(optimizer)}


def readable_children(optimizer: Any) -> Dict[str, Any]:
    """Return the children that a file may have although the installed version does not write them."""
    return {
        SKIPPED_STEPS_CHILD: optimizer._monitor.advance.variable,
        SKIPS: optimizer._monitor.counters.module,
        MODEL_NAMES_CHILD: optimizer._monitor.model_names,
        "loss_scale": optimizer._graph_policy.trackable,
    }


def begin_restore(optimizer: Any, child: str) -> None:
    """Set what a file implies if it has this child; the values in the file are read later and take precedence."""
    if child in optimizer._profile.skipped_steps_by_child:
        optimizer._monitor.advance.choice = optimizer._profile.skipped_steps_by_child[child]
        optimizer._monitor.counters.load({})
        set_pending_state(optimizer, None)


def find_child(optimizer: Any, name: str, found: Any) -> Any:
    """Return the child of this name, given what TensorFlow found; raise for a file that cannot be restored."""
    if found is None and name in optimizer._profile.foreign_children:
        refuse(optimizer, optimizer._profile.foreign_children[name])
    return readable_children(optimizer).get(name) if found is None else found


def restore_other_children(optimizer: Any, position: Any) -> None:
    """Visit the children of a file in the optimizer itself.

    From 2.3 to 2.9 Keras's own class looks children up in the inner optimizer and passes over these.
    """
    for child in position.object_proto.children:
        optimizer._lookup_dependency(child.local_name)
    for name, child in readable_children(optimizer).items():
        optimizer._handle_deferred_dependencies(name, child)


def refuse(optimizer: Any, writer: str) -> NoReturn:
    """Raise :class:`StateMismatchError` for a checkpoint of an optimizer with another kind of state."""
    inner = type(optimizer.inner_optimizer)
    message = (
        f"The checkpoint holds the state of {writer}, and here the inner optimizer is {inner.__module__}."
        f"{inner.__name__}, which keeps its state in another layout. Checkpoint.restore and load_weights can't "
        "translate it: call scalekeeper.restore(model, path) instead."
    )
    raise StateMismatchError([Problem((), message, "foreign_checkpoint")])


def siblings(position: Any, name: str) -> Set[str]:
    """Return the names of all children of the object whose child of this name is at a position of the file."""
    nodes = position.checkpoint.object_graph_proto.nodes
    parents = [{child.local_name: child.node_id for child in node.children} for node in nodes]
    return {sibling for parent in parents if parent.get(name) == position._proto_id for sibling in parent}


def count_as_restored(position: Any, child: Any) -> None:
    """Make ``assert_consumed`` accept a child that the file does not have."""
    objects = position.checkpoint.object_by_proto_id
    objects[min(0, *objects.keys()) - 1] = child  # a number that no object in a file has


class DeferredChildren:
    """Stands for ``_deferred_dependencies``, to which TensorFlow adds the positions of children that it cannot find.

    A child that is hidden from TensorFlow comes here. From its position the whole tree of the file is visible, before
    TensorFlow goes a level deeper and before it reads any value.

    Args:
        owner_of: Returns the object that a child belongs to, by the child's name and position.
        deferred: The dependencies that are deferred already.
    """

    def __init__(self, owner_of: Callable[[str, Any], Any], deferred: Optional[Dict[str, List[Any]]] = None) -> None:
        self._owner_of, self._deferred = owner_of, {} if deferred is None else deferred
        self._name = ""

    def setdefault(self, name: str, positions: List[Any]) -> "DeferredChildren":
        """Return the object to which TensorFlow appends the position of a child."""
        self._name = name
        return self

    def pop(self, name: str, *default: Any) -> Any:
        """Return the positions from which TensorFlow restores a child that now exists."""
        return self._deferred.pop(name, *default)

    def append(self, position: Any) -> None:
        """Do what TensorFlow would have done with the child if it had not been hidden."""
        owner = self._owner_of(self._name, position)
        owner._maybe_initialize_trackable()
        child = owner._lookup_dependency(self._name)
        if child is None:
            owner._deferred_dependencies.setdefault(self._name, []).append(position)
        else:
            position.restore(child)


class BaseOptimizerChild(tf.Module):  # type: ignore[misc]
    """The child ``base_optimizer`` of 2.0 to 2.2, for versions where the inner optimizer is not a child.

    It writes no children, and finds those of the inner optimizer. TensorFlow's own placeholder finds the slots only,
    which loses the iterations and hyperparameters of such a file.
    """

    def __init__(self, optimizer: Any) -> None:
        super().__init__(name="base_optimizer")
        self.__dict__["_optimizer"] = optimizer  # setattr would make it a child

    @property
    def _inner(self) -> Any:
        return self._optimizer.inner_optimizer

    def _lookup_dependency(self, name: str, *cached: Any, **more: Any) -> Any:
        self._optimizer.skipped_steps = HOLD
        return None if name == "iter" else self._inner._lookup_dependency(name)

    @property
    def _deferred_dependencies(self) -> Any:
        return DeferredChildren(self._owner)

    def _owner(self, name: str, position: Any) -> Any:
        if name == "iter":
            count_as_restored(position, self._optimizer._monitor.advance.variable)
        return self._inner

    def _create_or_restore_slot_variable(self, *args: Any, **kwargs: Any) -> Any:
        return self._inner._create_or_restore_slot_variable(*args, **kwargs)

    def get_slot_names(self) -> Any:
        """Return no names: the slots are written with the LossScaleOptimizer."""
        return []
