"""The formats that the installed version has: what each writes, and how a new process goes on from it."""

from typing import Any, Callable, Dict, List, Tuple

import json
import os

import numpy as np

from ...serialization import load_model, read_state, restore, save_model, save_state
from ...serialization._atomic import replacing
from ...serialization._keras_introspection import installed_keras, is_keras_3, keeps_policies

Making = Callable[..., Any]  # a model as it is before the first step, with the optimizer that is given


class Format:
    """One way to save a run. ``key`` names it in file names, ``title`` for people."""

    key = title = loaded_with = ""
    files: Tuple[str, ...] = ()  # what is written; a folder counts with all that is in it

    def save(self, model: Any, folder: str) -> None:
        raise NotImplementedError

    def load(self, folder: str, optimizer: Any, make: Making) -> Any:
        """The model, with an optimizer that goes on; the given one is fresh, as its document says."""
        raise NotImplementedError

    def size(self, folder: str) -> int:
        """In bytes, of all that was written."""
        return sum(os.path.getsize(each) for name in self.files for each in _files_at(os.path.join(folder, name)))


def _files_at(path: str) -> List[str]:
    if not os.path.isdir(path):
        return [path]
    return [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]


class WholeModel(Format):
    """A file or folder that Keras can load without any code of ours, and what Keras would leave out beside."""

    def __init__(self, key: str, title: str, name: str) -> None:
        self.key, self.title, self.files = key, title, (name,)
        # 2.0 writes a layer that computes in float16 as one that computes in float32: docs/saving.md
        self._rebuilds = keeps_policies(installed_keras())
        self.loaded_with = "load_model" if self._rebuilds else "restore"

    def save(self, model: Any, folder: str) -> None:
        save_model(model, os.path.join(folder, self.files[0]))

    def load(self, folder: str, optimizer: Any, make: Making) -> Any:
        path = os.path.join(folder, self.files[0])
        if self._rebuilds:
            policy = type(optimizer.loss_scale)  # of the caller's own, perhaps: then no registry knows it
            return load_model(path, custom_objects={policy.__name__: policy})
        model = make(optimizer)
        restore(model, path)
        return model


class Checkpoint(Format):
    """TensorFlow's own way, with nothing of ours in it."""

    key, title, files = "checkpoint", "checkpoint", ("checkpoint",)
    loaded_with = "Checkpoint.restore"

    def save(self, model: Any, folder: str) -> None:
        self._of(model).save(os.path.join(folder, *self.files, "ckpt"))

    def load(self, folder: str, optimizer: Any, make: Making) -> Any:
        import tensorflow as tf

        model = make(optimizer)
        self._of(model).restore(tf.train.latest_checkpoint(os.path.join(folder, *self.files)))
        return model

    def _of(self, model: Any) -> Any:
        import tensorflow as tf

        return tf.train.Checkpoint(model=model, optimizer=model.optimizer)


class State(Format):
    """The optimizer's state beside the weights as Keras saves them."""

    key, title, files = "state", "state", ("state.npz", "model.weights.h5")
    loaded_with = "restore, load_weights"

    def save(self, model: Any, folder: str) -> None:
        state, weights = (os.path.join(folder, name) for name in self.files)
        model.save_weights(weights)
        save_state(model.optimizer, state)

    def load(self, folder: str, optimizer: Any, make: Making) -> Any:
        state, weights = (os.path.join(folder, name) for name in self.files)
        model = make(optimizer)
        # in this order: Keras 2.15 fails to read weights where an optimizer has no variables yet
        restore(model, state)
        model.load_weights(weights)
        return model


class Configuration(Format):
    """Without a file format: what the optimizer says of itself, and arrays."""

    key, title = "config", "config"
    files = ("optimizer.json", "optimizer.npz", "weights.npz")
    loaded_with = "from_config, load_state_dict"

    def save(self, model: Any, folder: str) -> None:
        config, state, weights = (os.path.join(folder, name) for name in self.files)
        with replacing(config) as temporary, open(temporary, "w", encoding="utf-8") as stream:
            json.dump(model.optimizer.get_config(), stream, indent=2)
        save_state(model.optimizer, state)
        save_arrays(weights, {str(place): weight for place, weight in enumerate(model.get_weights())})

    def load(self, folder: str, optimizer: Any, make: Making) -> Any:
        config, state, weights = (os.path.join(folder, name) for name in self.files)
        policy = type(optimizer.loss_scale)
        with open(config, encoding="utf-8") as stream:
            optimizer = type(optimizer).from_config(json.load(stream), {policy.__name__: policy})
        model = make(optimizer)
        arrays = read_arrays(weights)
        model.set_weights([arrays[str(place)] for place in range(len(arrays))])
        model.optimizer.load_state_dict(read_state(state), model.trainable_variables)
        return model


def save_arrays(path: str, arrays: Dict[str, Any]) -> None:
    """A ``.npz`` file, whole or not at all."""
    with replacing(path) as temporary, open(temporary, "wb") as stream:
        np.savez(stream, **arrays)


def read_arrays(path: str) -> Dict[str, Any]:
    """What such a file holds."""
    with np.load(path, allow_pickle=False) as found:
        return {name: found[name] for name in found.files}


def formats() -> List[Format]:
    """All that the installed version has; asked by what it can do."""
    keras = installed_keras()
    found: List[Format] = [WholeModel("h5", "H5", "model.h5")]
    # Keras 3 exports SavedModels that can't be trained on, and 2.0 fails to write one of layers that compute in float16
    if not is_keras_3(keras) and keeps_policies(keras):
        found.append(WholeModel("saved_model", "SavedModel", "model"))
    if is_keras_3(keras) or hasattr(getattr(keras, "saving", None), "load_model"):
        found.append(WholeModel("keras", ".keras", "model.keras"))
    return [*found, Checkpoint(), State(), Configuration()]
