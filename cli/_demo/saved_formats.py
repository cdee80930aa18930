"""The formats of the registry as ways to save a run of the demo and to continue it in a new process."""

from typing import Any, Callable, List, Tuple

import os

from ...optimizer import load_model
from ...serialization import formats as registry
from ...serialization._keras_introspection import installed_keras, keeps_policies
from ...serialization.formats.npz import read_arrays as read_arrays
from ...serialization.formats.npz import save_arrays as save_arrays


class Format:
    """One way to save a run. ``key`` names it in file names, ``title`` for people."""

    def __init__(self, codec: registry.Format, can_rebuild: bool) -> None:
        self.key, self.title, self.files = codec.run_name, codec.label, codec.run_files
        self.loaded_with = codec.loaded_by if can_rebuild or not codec.holds_layers else "restore"
        self._codec, self._can_rebuild = codec, can_rebuild

    def save(self, model: Any, folder: str) -> None:
        """Save a model that is being trained."""
        self._codec.save_run(model, folder)

    def load(self, folder: str, optimizer: Any, compile_model: Callable[[Any], Any]) -> Any:
        """Return a model that continues; the given optimizer is new, as its document declares it."""
        policy = type(optimizer.loss_scale)  # perhaps a class of the caller that is not registered

        def load(path: str) -> Any:
            return load_model(path, custom_objects={policy.__name__: policy})

        context = registry.ResumeContext(optimizer, compile_model, load if self._can_rebuild else None)
        return self._codec.resume_run(folder, context)

    def size(self, folder: str) -> int:
        """Return the bytes of everything that was written."""
        return sum(os.path.getsize(each) for name in self.files for each in _files_at(os.path.join(folder, name)))


def _files_at(path: str) -> Tuple[str, ...]:
    if not os.path.isdir(path):
        return (path,)
    return tuple(os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)


def formats() -> List[Format]:
    """Return all formats in which the installed version can save the demo's mixed-precision model."""
    keras = installed_keras()
    can_rebuild = keeps_policies(keras)  # TF 2.0 saves a layer that computes in float16 as one of float32
    distinct = [codec for codec in registry.formats() if codec.is_distinct(keras)]
    return [Format(codec, can_rebuild) for codec in distinct if codec.can_save(keras, mixed_precision=True)]
