"""What a plain ``tf.train.Checkpoint``, or ``model.load_weights``, finds in a LossScaleOptimizer.

A checkpoint is a tree of objects with named children. It is restored along the same names, level by level: TensorFlow
asks an object for each child that the file has (``_lookup_dependency``), keeps what is not there yet for later
(``_deferred_dependencies``), and reads values when it has gone through all of the tree.

What is listed when a file is written stays as TensorFlow's own class of the installed version has it. What can be found
when one is read is more, so that the trees of other versions fit:

- 2.0 to 2.2: optimizer → base_optimizer → iter, hyperparameters, slots; optimizer → loss_scale
- 2.3 on, and legacy optimizers: optimizer → iter, hyperparameters, slots, loss_scale, an empty base_optimizer
- new optimizers: optimizer → _iterations, _learning_rate, _variables, lists of variables, loss_scale
- Keras 3: optimizer → inner_optimizer → …; optimizer → dynamic_scale, step_counter
"""

from typing import Any, Callable, ClassVar, Dict, List, NoReturn, Optional, Set

import tensorflow as tf

from ...serialization import _skip_record
from ...serialization.keras.profile import SKIPPED_STEPS_CHILD
from .._step.gate import HOLD, hold_in_graph
from .iterations_on_skip import SkippedSteps
from .skip_counters import Skips


class InCheckpoints:
    """A base of LossScaleOptimizer: its children in a checkpoint."""

    _skipping: SkippedSteps
    _skips: Skips
    _in_file: Callable[..., Dict[str, Any]]
    _forget_kept: Callable[[], None]
    _policy: Any
    _profile: ClassVar[Any]

    # Writing

    @property
    def _checkpoint_dependencies(self) -> Any:
        """Up to 2.8."""
        listed = super()._checkpoint_dependencies  # type: ignore[misc]
        more = self._in_file(is_saved_model=False).items()
        return [*listed, *(type(listed[0])(name=name, ref=child) for name, child in more)]

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> Dict[str, Any]:
        """From 2.9 on."""
        children = super()._trackable_children(save_type, **kwargs)  # type: ignore[misc]
        return {**children, **self._in_file(is_saved_model=save_type == "savedmodel")}

    def _list_extra_dependencies_for_serialization(self, *args: Any) -> Dict[str, Any]:
        """Up to 2.8: what SavedModels have more, and checkpoints have not listed."""
        children = super()._list_extra_dependencies_for_serialization(*args)  # type: ignore[misc]
        listed = self._in_file(is_saved_model=False)
        more = {name: child for name, child in self._in_file(is_saved_model=True).items() if name not in listed}
        return {**children, **more}

    # Reading

    def _unlisted(self) -> Dict[str, Any]:
        """Children that a file may have and ours do without."""
        return {
            SKIPPED_STEPS_CHILD: self._skipping.variable,
            _skip_record.NAME: self._skips.module,
            "loss_scale": hold_in_graph(self._policy),
        }

    def _lookup_dependency(self, name: str, *cached: Any, **more: Any) -> Any:
        if not self._is_complete():  # TensorFlow's own constructor asks too
            return super()._lookup_dependency(name, *cached, **more)  # type: ignore[misc]
        if name in self._profile.skipped_steps_by_child:
            # the values that a file has come later: if this choice, or a counter, is among them, it wins
            self._skipping.choice = self._profile.skipped_steps_by_child[name]
            self._skips.load({})
            self._forget_kept()
        found = super()._lookup_dependency(name, *cached, **more)  # type: ignore[misc]
        if found is None and name in self._profile.foreign_children:
            self._refuse(self._profile.foreign_children[name])
        return self._unlisted().get(name) if found is None else found

    def _is_complete(self) -> bool:
        return "_skipping" in vars(self)

    def _single_restoration_from_checkpoint_position(self, checkpoint_position: Any, **queue: Any) -> Any:
        """Up to 2.9; from 2.3 on, TensorFlow's own class looks children up in the inner optimizer, past ours."""
        restored = super()._single_restoration_from_checkpoint_position(checkpoint_position, **queue)  # type: ignore[misc]
        for child in checkpoint_position.object_proto.children:
            self._lookup_dependency(child.local_name)
        for name, child in self._unlisted().items():
            self._handle_deferred_dependencies(name, child)  # type: ignore[attr-defined]
        return restored

    def _refuse(self, writer: str) -> NoReturn:
        inner = type(self.inner_optimizer)  # type: ignore[attr-defined]
        raise ValueError(
            f"The checkpoint holds the state of {writer}, and here the inner optimizer is {inner.__module__}."
            f"{inner.__name__}, which keeps its state in another way. Checkpoint.restore and load_weights can't "
            "translate it: call scalekeeper.restore(model, path) instead."
        )


def siblings(place: Any, name: str) -> Set[str]:
    """The names of all children that a file has of the object whose child of this name is at the place."""
    nodes = place.checkpoint.object_graph_proto.nodes
    parents = [{child.local_name: child.node_id for child in node.children} for node in nodes]
    return {sibling for parent in parents if parent.get(name) == place._proto_id for sibling in parent}


def count_as_restored(place: Any, child: Any) -> None:
    """Have TensorFlow's ``assert_consumed`` know that a child has got all that a file has, though it is not there."""
    objects = place.checkpoint.object_by_proto_id
    objects[min(0, *objects.keys()) - 1] = child  # a number that no object in a file has


class Arrivals:
    """Stands for ``_deferred_dependencies``, where TensorFlow puts the places in a file of children that it can't find.

    A child that is hidden from it comes here. With its place in the file there is all of the file's tree to look at,
    before TensorFlow goes a level deeper and before it reads any value. ``owner_of`` looks, and says whose child it is.
    """

    def __init__(self, owner_of: Callable[[str, Any], Any], kept: Optional[Dict[str, List[Any]]] = None) -> None:
        self._owner_of, self._kept = owner_of, {} if kept is None else kept
        self._name = ""

    def setdefault(self, name: str, places: List[Any]) -> "Arrivals":
        """What TensorFlow appends the place of a child to."""
        self._name = name
        return self

    def pop(self, name: str, *default: Any) -> Any:
        """What TensorFlow restores a child from that has come to be there."""
        return self._kept.pop(name, *default)

    def append(self, place: Any) -> None:
        """Do what TensorFlow would have done with the child, had it not been hidden."""
        owner = self._owner_of(self._name, place)
        owner._maybe_initialize_trackable()
        child = owner._lookup_dependency(self._name)
        if child is None:
            owner._deferred_dependencies.setdefault(self._name, []).append(place)
        else:
            place.restore(child)


class InnerOfOldFiles(tf.Module):  # type: ignore[misc]
    """The child ``base_optimizer`` of 2.0 to 2.2, for versions where the inner optimizer is no child.

    It has no children to write, and finds the inner optimizer's. TensorFlow's own placeholder finds the slots only, so
    that the iterations and hyperparameters of such a file are lost.
    """

    def __init__(self, optimizer: Any) -> None:
        super().__init__(name="base_optimizer")
        self.__dict__["_optimizer"] = optimizer  # not by setattr, which makes children

    @property
    def _inner(self) -> Any:
        return self._optimizer.inner_optimizer

    def _lookup_dependency(self, name: str, *cached: Any, **more: Any) -> Any:
        self._optimizer.skipped_steps = HOLD
        return None if name == "iter" else self._inner._lookup_dependency(name)

    @property
    def _deferred_dependencies(self) -> Any:
        return Arrivals(self._owner)

    def _owner(self, name: str, place: Any) -> Any:
        if name == "iter":
            count_as_restored(place, self._optimizer._skipping.variable)
        return self._inner

    def _create_or_restore_slot_variable(self, *args: Any, **kwargs: Any) -> Any:
        return self._inner._create_or_restore_slot_variable(*args, **kwargs)

    def get_slot_names(self) -> Any:
        """None: those of the inner optimizer are written with the LossScaleOptimizer."""
        return []
