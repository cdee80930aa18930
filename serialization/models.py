"""Whole models with their LossScaleOptimizer: written so that nothing is lost, and read from any version's files."""

from typing import Any, Dict, Iterator, Mapping, Optional

import importlib
import inspect
import json
import os
import shutil
import threading
import warnings
import zipfile

from ..registry.errors import UnreadableFileError
from ._atomic import replacing
from ._keras_introspection import installed_keras, is_keras_3
from .formats.detection import format_of, read
from .formats.npz import record_of
from .keras._optimizer_config import config_with_policy, has_loss_scale
from .restore import restore_contents
from .training_state import Contents

_PIECE = 60000  # an attribute of an H5 file holds 64 kB
_one_at_a_time = threading.RLock()


def save_model(model: Any, path: Any) -> None:
    """Save a model with its optimizer, whole or not at all: H5, ``.keras``, or a SavedModel, by the path's ending.

    Keras writes what it always writes, and reads it back without this package. What it would leave out (the loss
    scale's state, slots of some optimizers, whether a skipped step counts) stands beside, where it does not look.
    """
    path = os.fspath(path)
    if is_keras_3(installed_keras()) and not path.endswith((".keras", ".h5", ".hdf5")):
        raise ValueError(f"{path}: Keras 3 saves models that can be trained on as .keras or .h5: choose one of them")
    contents = model.optimizer._contents() if hasattr(model.optimizer, "_contents") else None
    _warn_of_lost_precision(model, path)
    with replacing(path) as temporary:
        _save_as_keras_does(model, temporary)
        if contents is not None:
            _ADDITIONS[format_of(temporary)](temporary, contents)


def _warn_of_lost_precision(model: Any, path: str) -> None:
    """TensorFlow 2.0 writes a layer that computes in mixed precision as one that computes in float32."""
    policies: Dict[str, Any] = {layer.name: getattr(layer, "_dtype_policy", None) for layer in _layers_of(model)}
    mixed = {name: policy for name, policy in policies.items() if getattr(policy, "name", "").startswith("mixed_")}
    if not mixed:
        return
    # of a layer of Keras's own: one of the caller's need not have a configuration
    policy = next(iter(mixed.values()))
    written = installed_keras().layers.Activation("linear", dtype=policy, name="any").get_config()["dtype"]
    if written in ("float16", "bfloat16", "float32"):
        warnings.warn(
            f"{path}: the installed Keras writes {policy.name} as {written} (layers {', '.join(sorted(mixed))}): "
            "load_model will not give the same model. Build it in code, and call scalekeeper.restore(model, path)",
            stacklevel=3,
        )


def _layers_of(model: Any) -> Iterator[Any]:
    """Those that compute something, also in models within the model."""
    for layer in model.layers:
        if hasattr(layer, "layers"):
            yield from _layers_of(layer)
        elif not isinstance(layer, installed_keras().layers.InputLayer):
            yield layer


def _save_as_keras_does(model: Any, path: str) -> None:
    compiled: Any = getattr(model, "_compile_config", None)
    kept = dict(compiled.config) if hasattr(compiled, "config") else None
    model.save(path)
    if kept is not None:  # Keras 3 takes the optimizer out of it when it writes H5, and the next file would miss it
        compiled.config.update(kept)


def _add_to_h5(path: str, contents: Contents) -> None:
    add_record_to_h5(path, contents)
    import h5py

    with h5py.File(path, "a") as file:
        if not len(file.get("optimizer_weights", ())):
            add_slots(file, contents)


def add_record_to_h5(path: str, contents: Contents) -> None:
    """What Keras has no place for, as attributes of the root."""
    import h5py

    from .formats.h5 import RECORD

    text = json.dumps(record_of(contents))
    with h5py.File(path, "a") as file:
        pieces = [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]
        for number, piece in enumerate(pieces):
            file.attrs[RECORD if len(pieces) == 1 else f"{RECORD}{number}"] = piece


def _add_to_keras(path: str, contents: Contents) -> None:
    """Into the members that are there: some versions unpack a file with one more, and then can't read the weights."""
    import h5py

    from .formats.keras_zip import METADATA, RECORD, WEIGHTS
    from .formats.keras_zip import read as read_keras

    has_slots = bool(read_keras(path).weight_list)
    weights, copy = path + ".weights", path + ".copy"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(copy, "w") as new:
        for name in old.namelist():
            with old.open(name) as stream:
                if name == METADATA:
                    new.writestr(name, json.dumps({**json.load(stream), RECORD: record_of(contents)}))
                    continue
                with open(weights, "wb") as file:
                    shutil.copyfileobj(stream, file)
            if name == WEIGHTS and not has_slots:
                with h5py.File(weights, "a") as store:
                    add_slots(store, contents)
            new.write(weights, name)
    os.remove(weights)
    os.replace(copy, path)


def add_slots(file: Any, contents: Contents) -> None:
    """The slots, where Keras writes none of them."""
    from .formats._keras_weights_h5 import ADDED_SLOTS

    for owner, slots in contents.slots.items():
        for name, value in slots.items():
            file[f"{ADDED_SLOTS}/{owner}/{name}"] = value.read()


def _add_to_saved_model(path: str, contents: Contents) -> None:
    from .formats.saved_model import RECORD

    place = os.path.join(path, RECORD)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with open(place, "w", encoding="utf-8") as stream:
        json.dump(record_of(contents), stream)


_ADDITIONS = {"h5": _add_to_h5, "keras": _add_to_keras, "saved_model": _add_to_saved_model}


def load_model(path: Any, custom_objects: Optional[Mapping[str, Any]] = None, compile: bool = True) -> Any:
    """Load a model from an H5 file, a SavedModel or a ``.keras`` file that any TensorFlow wrote, and all its state.

    The optimizer is our :class:`LossScaleOptimizer`, with the policy, the scale, the counters, the iterations and the
    slots that are in the file. ``custom_objects`` holds classes by name: layers, losses, and policies that are not
    registered. A file without a loss scale is loaded as Keras does.
    """
    path = os.fspath(path)
    kind = format_of(path)
    if kind not in _ADDITIONS:
        raise UnreadableFileError(
            f"{path}: holds no model: build the model in code, compile it, and call scalekeeper.restore(model, path)"
        )
    # up to 2.3, Keras builds the models of all threads in one graph, which they break together; and the h5py of that
    # time can crash when one thread reads what another lets go of
    with _one_at_a_time:
        contents = read(path)
        _require_self_contained(path, kind)
        if not compile or not _scales(contents):
            return installed_keras().models.load_model(path, custom_objects=_known(custom_objects), compile=compile)
        model = _rebuilt(path, contents, custom_objects)
        compile_with_state(model, path, contents, custom_objects)
    return model


def _require_self_contained(path: str, kind: str) -> None:
    """Before Keras opens it, which follows links. Whoever reads arrays alone, as ``restore`` does, follows none."""
    from ._external_links import require_self_contained
    from ._untrusted_hdf5 import H5
    from .formats.keras_zip import WEIGHTS, h5_member

    if kind in ("h5", "keras"):
        require_self_contained(H5.at(path) if kind == "h5" else h5_member(path, WEIGHTS))


def compile_with_state(
    model: Any, path: str, contents: Contents, custom_objects: Optional[Mapping[str, Any]] = None
) -> None:
    """Compile a model that has its weights with the optimizer, the loss scale and all the state of a file."""
    optimizer_of = importlib.import_module("..optimizer", __package__).LossScaleOptimizer
    optimizer = optimizer_of.from_config(
        config_with_policy(contents.optimizer_config, contents.loss_scale), custom_objects
    )
    model.compile(optimizer=optimizer, **_compile_arguments(contents.training_config or {}, custom_objects))
    report = restore_contents(model, contents, path, with_weights=False)
    if report.unused:
        warnings.warn(f"Not all of the file could be used.\n{report}", stacklevel=3)


def _scales(contents: Contents) -> bool:
    """Whether a loss scale is in the file."""
    return contents.loss_scale is not None or has_loss_scale(contents.optimizer_config)


def _rebuilt(path: str, contents: Contents, custom_objects: Optional[Mapping[str, Any]]) -> Any:
    """The model with its weights: as the installed Keras reads it, or from a translated configuration."""
    try:
        model = installed_keras().models.load_model(path, custom_objects=_known(custom_objects), compile=False)
        if not hasattr(model, "compile"):
            raise TypeError(f"its class, {type(model).__name__}, is not known here")
        return model
    except Exception as error:  # whatever this Keras says to a file of another one
        if contents.model_config is None:
            raise _beyond_reading(path, error) from error
        reason = error
    try:
        model = model_of_config(contents.model_config, custom_objects)
    except Exception as error:
        raise _beyond_reading(path, reason) from error
    restore_contents(model, contents, path)
    return model


def model_of_config(config: Mapping[str, Any], custom_objects: Optional[Mapping[str, Any]] = None) -> Any:
    """The model that a configuration of any version describes, of the installed Keras's own classes and the caller's.

    No code and no other class that the configuration may name is looked for.
    """
    from .keras._model_config import translate_for_installed_keras

    translated = translate_for_installed_keras(config, custom_objects)
    return installed_keras().models.model_from_json(json.dumps(translated), custom_objects=_known(custom_objects))


def _beyond_reading(path: str, error: Exception) -> UnreadableFileError:
    return UnreadableFileError(
        f"{path}: the installed Keras can't rebuild the model ({type(error).__name__}: {error}): build it in code, "
        "compile it with a LossScaleOptimizer, and call scalekeeper.restore(model, path)"
    )


def _compile_arguments(config: Mapping[str, Any], custom_objects: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
    """Losses and metrics as they were compiled."""
    keras = installed_keras()
    arguments: Dict[str, Any] = {}
    for name, module in (("loss", keras.losses), ("metrics", keras.metrics), ("weighted_metrics", keras.metrics)):
        if config.get(name):
            arguments[name] = _made(config[name], module, _known(custom_objects))
    accepted = inspect.signature(keras.Model.compile).parameters
    for name, usual in {"loss_weights": None, "run_eagerly": False, "steps_per_execution": 1}.items():
        if config.get(name, usual) not in (None, usual) and name in accepted:
            arguments[name] = config[name]
    return arguments


def _made(config: Any, module: Any, custom_objects: Mapping[str, Any]) -> Any:
    """Names stay names; what has a class is made; lists and mappings by output keep their form."""
    if isinstance(config, Mapping) and "class_name" in config:
        return module.deserialize(dict(config), custom_objects=custom_objects)
    if isinstance(config, Mapping):
        return {name: _made(each, module, custom_objects) for name, each in config.items()}
    if isinstance(config, (list, tuple)):
        return [_made(each, module, custom_objects) for each in config]
    return custom_objects.get(config, config) if isinstance(config, str) else config


def _known(custom_objects: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
    return dict(custom_objects or {})
