"""Models rebuilt from the configuration in a file, and which of their variables is which in the file.

The layers of the model and of the file come from the same configuration, so they are paired by name, and their
variables by name and position in the layer. Names of variables alone would not do: Keras 3 calls ``kernel`` what Keras
2 calls ``depthwise_kernel``, and the name of a nested model may be a part of them or not.
"""

from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import dataclasses
import json

from ..registry.errors import TranslationError, UnreadableFileError, shown
from ._keras_introspection import finalize_layers, installed_keras, version_of
from ._matching import SAME_NAMES
from ._variables import assign_all, by_owner, weights_of
from .keras._changed_meanings import activations, register_activations
from .restore import name_variables, restore_state
from .training_state import TrainingState, rename_owners

# layers of Keras 2 that some versions do not find by themselves when they load a model
_FORGOTTEN = ("AdditiveAttention", "Attention", "SpectralNormalization")


class RebuiltModel(NamedTuple):
    """A model with the weights of a file, and the file's state with the names of the model's variables."""

    model: Any
    state: TrainingState


def rebuild(path: str, state: TrainingState, custom_objects: Optional[Mapping[str, Any]]) -> RebuiltModel:
    """Return the model of a file: as the installed Keras loads it, or from a translated configuration.

    Only the Keras generation that wrote a file loads it by itself: another one computes something else with some
    layers, in silence.

    Raises:
        UnreadableFileError: Neither can rebuild the model; the message names the layer.
    """
    if can_load(state):
        try:
            model = load_with_keras(path, custom_objects, compile=False)
            if not hasattr(model, "compile"):
                raise TypeError(f"its class {type(model).__name__} is unknown")
            finalize_layers(model)
            return RebuiltModel(model, named_after(model, state))
        except Exception as error:  # Keras raises many types for files of another version
            if state.model_config is None:
                raise _not_rebuilt(path, error, None) from error
    try:
        model = model_from_config(state.model_config or {}, custom_objects, state.writer.keras)
    except TranslationError as error:
        raise UnreadableFileError(f"{path}: the installed Keras cannot rebuild the model: {error}") from error
    except Exception as error:
        raise _not_rebuilt(path, error, _failing_layer(error, state.model_config)) from error
    state = named_after(model, state)
    _fill(model, state, path)
    return RebuiltModel(model, state)


def can_load(state: TrainingState) -> bool:
    """Return whether the installed Keras shall load a file: its own generation wrote it, or it holds no layers.

    A Lambda layer has Python's byte code in it, which may crash another version: that of Keras must be the same.
    """
    from .keras._model_config import describes_layers, generation_of, rules_of_installed_keras

    if state.model_config is None or not describes_layers(state.model_config):
        return True
    if _has_lambda(state.model_config) and state.writer.keras != version_of(installed_keras()):
        return False
    return generation_of(state.writer.keras, state.model_config) == rules_of_installed_keras().generation


def _has_lambda(config: Any) -> bool:
    if isinstance(config, Mapping):
        return config.get("class_name") == "Lambda" or any(map(_has_lambda, config.values()))
    return isinstance(config, list) and any(map(_has_lambda, config))


def load_with_keras(path: str, custom_objects: Optional[Mapping[str, Any]], compile: bool) -> Any:
    """Return the model as the installed Keras loads it."""
    register_activations()
    return installed_keras().models.load_model(path, custom_objects=_known_objects(custom_objects), compile=compile)


def model_from_config(
    config: Mapping[str, Any],
    custom_objects: Optional[Mapping[str, Any]] = None,
    keras_version: Optional[str] = None,
) -> Any:
    """Return the model that a configuration of any version describes.

    Only classes of the installed Keras and of ``custom_objects`` are used; nothing else that the configuration may
    name is imported or run.
    """
    from .keras._model_config import translate_for_installed_keras

    translated = translate_for_installed_keras(config, custom_objects, keras_version)
    return installed_keras().models.model_from_json(
        json.dumps(translated), custom_objects=_known_objects(custom_objects)
    )


def _known_objects(custom_objects: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
    """Return classes and functions by name: those of the user, of scalekeeper, and what Keras itself forgets."""
    layers = installed_keras().layers
    forgotten = {name: getattr(layers, name) for name in _FORGOTTEN if hasattr(layers, name)}
    return {**forgotten, **activations(), **(custom_objects or {})}


def _not_rebuilt(path: str, error: Exception, layer: Optional[str]) -> UnreadableFileError:
    what = "model" if layer is None else f"layer {shown(layer)}"
    # before these words, Keras 3 repeats the configurations of all layers around
    message = str(error).rpartition("Exception encountered: ")[2]
    return UnreadableFileError(
        f"{path}: the installed Keras cannot rebuild the {what} and raises {type(error).__name__}({message}). If the "
        "model has classes or functions of your own, call load_model(path, custom_objects={'Name': Class}); or build "
        "the model in code, compile it with a LossScaleOptimizer, and call scalekeeper.restore(model, path)"
    )


def _failing_layer(error: Optional[BaseException], model_config: Any) -> Optional[str]:
    """Return the layer that Keras was rebuilding when it raised an error, which may not name it.

    It is the last one among the arguments of the functions that the error has passed: a layer, or its configuration.
    """
    names = set(_names_of_leaves(model_config))
    found = None
    while error is not None:
        traceback, error = error.__traceback__, error.__context__  # Keras 3 raises another error at each level
        while traceback is not None:
            frame = traceback.tb_frame
            for argument in frame.f_code.co_varnames[: frame.f_code.co_argcount]:
                name = _name_of_layer(frame.f_locals.get(argument))
                found = name if isinstance(name, str) and name in names else found
            traceback = traceback.tb_next
    return found


def _name_of_layer(value: Any) -> Any:
    """Return the name of a layer, which may be half made, or of a layer's configuration; None for anything else."""
    if isinstance(value, installed_keras().layers.Layer):
        value = vars(value)
    return value.get("name", value.get("_name")) if isinstance(value, dict) else None


def _fill(model: Any, state: TrainingState, path: str) -> None:
    """Assign the weights of a file to a model.

    Raises:
        IncompleteRestoreError: The file lacks some of them.
    """
    live = by_owner(weights_of(model))
    if live.keys() <= state.variables.keys():
        assign_all((variable, state.variables[owner]) for owner, variable in live.items())
    else:
        restore_state(model, state, path)
    finalize_layers(model)


# Names


def named_after(model: Any, state: TrainingState) -> TrainingState:
    """Return the state with the names of a model's variables, if the layers say which is which."""
    name_variables(state)  # Keras itself goes by numbers in a layer
    pairs = pairs_by_layer(model, state)
    if pairs is None:
        return state
    names = {in_file: owner for owner, in_file in pairs.items()}
    variables = {names[owner]: value for owner, value in state.variables.items() if owner in names}
    numbered = frozenset(names[owner] for owner in names if state.names_by_attribute.get(owner, "")[-1:].isdigit())
    state = dataclasses.replace(state, variables=variables, layers={}, numbered=numbered, names_by_attribute={})
    rename_owners(state, names)
    return state


def pairs_by_layer(model: Any, state: TrainingState) -> Optional[Dict[str, str]]:
    """Return owner in the model → owner in the file, for a model that was built from the file's configuration.

    None if the file does not tell its layers, or if they do not have the variables of the model's layers.
    """
    owners = {id(variable): owner for owner, variable in by_owner(weights_of(model)).items()}
    if state.layers:
        in_file = list(state.layers.items())
        in_model = [(layer.name, [*layer.trainable_weights, *layer.non_trainable_weights]) for layer in model.layers]
    else:
        in_file = list(_by_layer_in_config(state))
        in_model = [(layer.name, weights_of(layer)) for layer in _leaves(model)]
    groups: Dict[str, List[List[str]]] = {}
    for name, names in in_file:
        groups.setdefault(name.replace("/", "_"), []).append(names)
    pairs: Dict[str, str] = {}
    for name, variables in in_model:
        if not variables:
            continue
        of_layer = groups.get(name.replace("/", "_"))
        found = of_layer and _pairs_in_layer(
            [owners[id(each)] for each in variables], variables, of_layer.pop(0), state
        )
        if not found:
            return None
        pairs.update(found)
    return pairs if len(set(pairs.values())) == len(owners) else None


def _pairs_in_layer(
    owners: Sequence[str], variables: Sequence[Any], in_file: Sequence[str], state: TrainingState
) -> Optional[Dict[str, str]]:
    """Pair the variables of one layer: by their last names if these differ, otherwise by shape or position."""
    if len(in_file) > len(owners):
        in_file = _without_copies(in_file, state)
    own_names, file_names = [[_last_name(owner) for owner in each] for each in (owners, in_file)]
    if len(set(own_names)) == len(own_names) and set(own_names) <= set(file_names):
        if len(set(file_names)) < len(file_names):
            return None
        found = {owner: in_file[file_names.index(name)] for owner, name in zip(owners, own_names)}
    elif len(owners) == len(in_file) and all(
        own == name or own.isdigit() or name.isdigit() for own, name in zip(own_names, file_names)
    ):
        found = dict(zip(owners, in_file))
    else:
        return None
    shapes = {owner: tuple(variable.shape) for owner, variable in zip(owners, variables)}
    if all(state.variables[name].shape == shapes[owner] for owner, name in found.items()):
        return found
    by_shape = {state.variables[name].shape: name for name in in_file}
    is_unique = len(by_shape) == len(in_file) == len(shapes) and by_shape.keys() == {*shapes.values()}
    are_unnamed = all(name.isdigit() for name in file_names)
    return {owner: by_shape[shape] for owner, shape in shapes.items()} if is_unique and are_unnamed else None


def _without_copies(owners: Sequence[str], state: TrainingState) -> List[str]:
    """Return the variables of a layer without those that a layer in it has too: a file holds both."""
    found: Dict[Any, str] = {}
    for owner in owners:
        value = state.variables[owner]
        found.setdefault((value.shape, value.dtype, value.read().tobytes()), owner)
    return list(found.values())


def _last_name(owner: str) -> str:
    name = owner.split("#")[0].split("/")[-1]
    return SAME_NAMES.get(name, name)


def _by_layer_in_config(state: TrainingState) -> Iterator[Tuple[str, List[str]]]:
    """Yield the layers of a file whose owners begin with the names of layers in the configuration."""
    names = sorted(_names_of_leaves(state.model_config), key=len, reverse=True)
    current: Tuple[Optional[str], str, List[str]] = (None, "", [])
    for owner in state.variables:
        layer = next((name for name in names if f"/{name}/" in f"/{owner}"), None)
        if layer is None:
            return
        copy = (
            owner[: f"/{owner}".index(f"/{layer}/")] + owner.partition("#")[2]
        )  # in a nested model, or the second one
        if current[:2] != (layer, copy):
            if current[0] is not None:
                yield current[0], current[2]
            current = (layer, copy, [])
        current[2].append(owner)
    if current[0] is not None:
        yield current[0], current[2]


def _names_of_leaves(entry: Any) -> Iterator[str]:
    config = entry.get("config") if isinstance(entry, Mapping) else None
    if not isinstance(config, Mapping):
        return
    if isinstance(config.get("layers"), list):
        for each in config["layers"]:
            yield from _names_of_leaves(each)
    elif isinstance(config.get("name"), str):
        yield config["name"]


def _leaves(model: Any) -> Iterator[Any]:
    """Yield the layers of a model, and those of the models in it instead of these models."""
    for layer in model.layers:
        if hasattr(layer, "layers"):
            yield from _leaves(layer)
        else:
            yield layer
