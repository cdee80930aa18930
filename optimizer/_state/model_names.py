"""The names of nested models in a checkpoint, which TensorFlow numbers, and the connections of layers.

Two nested models may have layers of equal names and shapes. Nothing else in a checkpoint distinguishes them, and
their numbers change with the order in which a program calls them.
"""

from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

import sys
import weakref

import tensorflow as tf

from ...serialization._connections import connections_in
from ...serialization._keras_introspection import all_layers, holds_models, is_model, named_layers_in
from ...serialization._matching import needs_connections
from ...serialization._object_paths import tracked_children
from ...serialization._variables import owners_of, shapes_by_owner, weights_of
from ...serialization.keras.profile import MODEL_NAMES_CHILD, MODEL_NAMES_CONNECTIONS, MODEL_NAMES_TRAINED
from ...serialization.restore import nested_names

_MOST_FRAMES = 100
_DEPTH = 4  # of a model below the root of a checkpoint


class _Reference(NamedTuple):
    """A child, as TensorFlow lists it up to 2.8."""

    name: str
    ref: Any


class ModelNames(tf.Module):  # type: ignore[misc]
    """A node of the object graph that leads to the nested models of all models in a checkpoint, by their names.

    It has no values, so that other readers pass over it. It exists only while a checkpoint with nested models is saved.
    """

    def __init__(self) -> None:
        super().__init__(name=MODEL_NAMES_CHILD)
        self.__dict__["_named"] = {}  # setattr would make the models children, and keep them alive
        self.__dict__["_connections"] = weakref.WeakKeyDictionary()

    def children(self, optimizer: Any) -> Dict[str, Any]:
        """Return this node as a child of the optimizer, if a checkpoint with nested models is being saved."""
        models = list(_models_being_saved())
        named = {
            f"{index}/{name}": each for index, model in enumerate(models) for name, each in _nested_models(model, ())
        }
        connected = {model: self._connections_of(model) for model in models}
        if named and optimizer._profile.trained_child is None and not optimizer._profile.has_slots:
            # slots have the names of their variables only, which may be the same in two nested models
            trained = optimizer._known_variables()
            if any("#" in owner for owner in owners_of(trained)):
                named.update({f"{MODEL_NAMES_TRAINED}/{index}": each for index, each in enumerate(trained)})
        named.update({f"{MODEL_NAMES_CONNECTIONS}/{text}": model for model, text in connected.items() if text})
        self.__dict__["_named"] = {name: weakref.ref(each) for name, each in named.items()}
        return {MODEL_NAMES_CHILD: self} if named else {}

    def _connections_of(self, model: Any) -> str:
        """Return the connections of a model as JSON, if layers that Keras has named differ in them; otherwise empty."""
        if model not in self._connections:
            shapes = shapes_by_owner(weights_of(model))
            if not shapes:  # it is not built yet
                return ""
            found = connections_in(model) if len(set(shapes.values())) < len(shapes) else None
            classes = {type(layer).__name__ for layer in all_layers(model)}
            is_needed = found is not None and needs_connections(shapes, nested_names(model), classes, found)
            self._connections[model] = found.to_json() if found is not None and is_needed else ""
        return str(self._connections[model])

    # Called by TensorFlow

    @property
    def _checkpoint_dependencies(self) -> List[_Reference]:
        return [_Reference(name, each()) for name, each in self._named.items() if each() is not None]

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> Dict[str, Any]:
        return dict(self._checkpoint_dependencies)

    def _lookup_dependency(self, name: str, *cached: Any, **more: Any) -> None:
        """Return no child: the models are restored where the program has them."""


def _models_being_saved() -> Iterator[Any]:
    """Yield the models in the checkpoint that TensorFlow is writing; none if it writes none.

    TensorFlow asks an object for its children without telling for what. Its function that writes a checkpoint is found
    by name on the stack.
    """
    frame: Any = sys._getframe(2)
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return
        if frame.f_code.co_name == "save":
            view: Any = getattr(frame.f_locals.get("self"), "_graph_view", None)
            if type(view).__name__ == "ObjectGraphView":  # that of a SavedModel, whose children are fixed, is another
                yield from _models_below(view.root)
                return
        frame = frame.f_back


def _models_below(root: Any) -> Iterator[Any]:
    level, seen = [root], {id(root)}
    for _ in range(_DEPTH):
        following = []
        for each in level:
            if is_model(each):
                yield each
                continue
            for _, child in tracked_children(each):
                if id(child) not in seen and not hasattr(child, "assign"):
                    seen.add(id(child))
                    following.append(child)
        level = following


def _nested_models(model: Any, names: Tuple[str, ...]) -> Iterator[Tuple[str, Any]]:
    for layer in named_layers_in(model):
        if holds_models(layer):
            path = (*names, layer.name)
            yield "/".join(path), layer
            yield from _nested_models(layer, path)
