"""Whole models with their LossScaleOptimizer: saved so that nothing is lost, and loaded from files of any version."""

from typing import Any, Dict, Iterator, Mapping, Optional

import inspect
import os
import threading
import warnings

from ..registry._argument_checks import path_of, require_model, unexpected
from ..registry._optimizer_spec import OPTIMIZERS
from ..registry.errors import (
    ArgumentError,
    AssumedOrderWarning,
    IncompleteRestoreWarning,
    TranslationError,
    UnreadableFileError,
)
from . import formats
from ._atomic import replacing
from ._keras_introspection import has_layer_names, installed_keras, metric_variables
from ._keras_saving import by_scalekeeper
from ._matching import Matching
from ._object_paths import attributes_of, keras_paths
from ._rebuilt_models import can_load, rebuild
from ._variables import by_owner, lazy_values, weights_of
from .formats._keras_weights_h5 import owners_of_model
from .keras._model_config import rules_of_installed_keras, translate_compile_config
from .keras._optimizer_config import config_with_policy, decode_config, encode_config, has_loss_scale, shipped
from .keras.profile import profile_of_package
from .keras.target import conversion_target
from .optimizer_adapter import OptimizerFactory
from .probe import probe_of, require_same
from .restore import RestoreReport, adapter_of, match_loaded, nested_names, restore_state
from .training_state import TrainingState, Writer, own_version, rename_owners

# Up to TF 2.3, Keras builds the models of all threads in one graph, which they would corrupt. The h5py of that time
# can crash when one thread reads what another one closes.
_lock = threading.RLock()


def save_model(model: Any, path: Any, *, probe: bool = True) -> None:
    """Save a model with its optimizer, atomically.

    Keras writes the same as without scalekeeper, and can read it without scalekeeper. State that Keras leaves out (the
    loss scale's state, the slots of some optimizers, whether skipped steps count) is added where Keras ignores it.

    Args:
        model: A compiled model.
        path: The file: ``.h5`` for H5, ``.keras``, or anything else for a SavedModel.
        probe: Whether to record what the model computes from inputs that a fixed rule makes, in inference mode.
            :func:`load_model` compares it with what the loaded model computes. The model is called for it.

    Raises:
        ArgumentError: The installed Keras cannot save a trainable model to such a path.
        ArgumentTypeError: ``model`` is not a Keras model, or ``path`` is not a path.

    Versions:
        Keras 3 has no SavedModels that can be trained further, and raises the error for them.

    Example:
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
        >>> model.compile(scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1)), "mse")
        >>> scalekeeper.save_model(model, "model.h5")
        >>> scalekeeper.inspect("model.h5").loss_scale.state
        {'current_loss_scale': 32768.0, 'good_steps': 0.0}
    """
    require_model(model, "save_model(model, path)")
    path = path_of(path, "save_model(model, path)")
    if not path.endswith((".keras", ".h5", ".hdf5")) and not _saves_trainable_saved_models():
        raise ArgumentError(
            f"{path}: the installed Keras saves trainable models as .keras or .h5 only: choose one of these endings"
        )
    state = _named_state(model, path)
    _warn_of_lost_precision(model, path)
    with replacing(path) as temporary:
        _save_with_keras(model, temporary)
        codec = formats.detect(temporary)
        if probe:
            state = TrainingState(Writer("npz", scalekeeper=own_version())) if state is None else state
            state.probe = probe_of(model)
        if state is not None and codec is not None:
            codec.add_state(temporary, state)


def _named_state(model: Any, path: str) -> Optional[TrainingState]:
    """Return the state of a model's optimizer with the names of the model's variables; None without an optimizer."""
    optimizer = adapter_of(model)
    if optimizer is None:
        return None
    state = optimizer._give_state()
    owners = {id(variable): owner for owner, variable in by_owner(weights_of(model)).items()}
    trained = by_owner(optimizer._known_variables())
    rename_owners(state, {owner: owners.get(id(variable), owner) for owner, variable in trained.items()})
    metrics = {id(each) for each in metric_variables(model)}
    saved = {owner: each for owner, each in by_owner(weights_of(model)).items() if id(each) not in metrics}
    state.model_variables = {owner: tuple(each.shape) for owner, each in saved.items()}
    state.model_names = nested_names(model)
    if not has_layer_names(model):
        state.model_attributes = _only(saved, attributes_of(model))
    if path.endswith((".keras", ".weights.h5")):
        paths = keras_paths(model) if not has_layer_names(model) else owners_of_model(model)
        state.model_paths = _only(saved, paths)
    return state


def _only(owners: Mapping[str, Any], paths: Mapping[str, str]) -> Dict[str, str]:
    return {owner: path for owner, path in paths.items() if owner in owners}


def _saves_trainable_saved_models() -> bool:
    return profile_of_package(installed_keras()).saves_trainable_saved_models


def _warn_of_lost_precision(model: Any, path: str) -> None:
    """Warn that TF 2.0 saves a layer with a mixed dtype policy as one that computes in float32."""
    policies: Dict[str, Any] = {layer.name: getattr(layer, "_dtype_policy", None) for layer in _leaf_layers(model)}
    mixed = {name: policy for name, policy in policies.items() if getattr(policy, "name", "").startswith("mixed_")}
    if not mixed:
        return
    # ask one of Keras's own layers: a user's layer need not have a configuration
    policy = next(iter(mixed.values()))
    saved = installed_keras().layers.Activation("linear", dtype=policy, name="any").get_config()["dtype"]
    if saved in ("float16", "bfloat16", "float32"):
        warnings.warn(
            f"{path}: the installed Keras saves the dtype policy {policy.name} as {saved} (layers "
            f"{', '.join(sorted(mixed))}), so load_model will not return the same model. Build it in code instead, and "
            "call scalekeeper.restore(model, path)",
            stacklevel=3,
        )


def _leaf_layers(model: Any) -> Iterator[Any]:
    """Yield the layers that compute something, also in nested models."""
    for layer in model.layers:
        if hasattr(layer, "layers"):
            yield from _leaf_layers(layer)
        elif not isinstance(layer, installed_keras().layers.InputLayer):
            yield layer


def _save_with_keras(model: Any, path: str) -> None:
    compiled: Any = getattr(model, "_compile_config", None)
    config = dict(compiled.config) if hasattr(compiled, "config") else None
    with by_scalekeeper():
        model.save(path)
    if config is not None:  # Keras 3 removes the optimizer from it when it writes H5, and the next file would lack it
        compiled.config.update(config)


def save_weights(model: Any, path: Any, **options: Any) -> None:
    """Save the weights of a model and the state of its optimizer.

    Keras's checkpoints hold both. To an H5 file, scalekeeper adds what Keras leaves out, and writes it atomically.

    Args:
        model: A built model.
        path: As for ``model.save_weights``.
        **options: Other arguments of ``model.save_weights``.
    """
    path = os.fspath(path)
    state = _named_state(model, path) if path.endswith((".h5", ".hdf5", ".keras")) else None
    if state is None:
        model.save_weights(path, **options)
        return
    with replacing(path) as temporary:
        model.save_weights(temporary, **options)
        codec = formats.detect(temporary)
        assert codec is not None
        codec.add_state(temporary, state)


def training_state_of(model: Any) -> TrainingState:
    """Return the training state of a compiled model: its weights and its optimizer's state."""
    optimizer = adapter_of(model)
    assert optimizer is not None
    state = optimizer._give_state()
    state.variables = lazy_values(by_owner(weights_of(model)))
    return state


def load_model(
    path: Any,
    custom_objects: Optional[Mapping[str, Any]] = None,
    compile: bool = True,
    *,
    allow_partial: bool = False,
    probe: bool = True,
    make_optimizer: OptimizerFactory,
) -> Any:
    """Load a model with its optimizer; see ``scalekeeper.load_model``, which passes ``make_optimizer``."""
    path = path_of(path, "load_model(path)")
    if not isinstance(custom_objects, (Mapping, type(None))):
        raise unexpected("load_model(path, custom_objects={'Name': Class})", "a mapping of names", custom_objects)
    codec = formats.detect(path)
    if codec is None:
        raise UnreadableFileError(formats.no_known_format(path))
    if not codec.holds_layers:
        raise UnreadableFileError(
            f"{path}: {codec.phrase} holds no model; build the model in code, compile it, and call "
            "scalekeeper.restore(model, path)"
        )
    with _lock:
        state = codec.read(path)
        codec.require_self_contained(path)
        model, state = rebuild(path, state, custom_objects)
        matching = match_loaded(model, state, path, partial=allow_partial)
        if compile and state.optimizer_config is not None:
            report = compile_with_state(
                model, path, state, make_optimizer, custom_objects, matching, partial=allow_partial
            )
            if not report.complete and not allow_partial:
                warnings.warn(f"Not everything was restored.\n{report}", IncompleteRestoreWarning, stacklevel=3)
            for each in report.assumptions:
                warnings.warn(f"{path}: {each}", AssumedOrderWarning, stacklevel=3)
        elif compile and (state.weight_list or state.slots):
            warnings.warn(
                f"{path}: holds the variables of an optimizer and not its configuration, so the model is not compiled. "
                "Keras 3 writes such a .keras file if the same model was saved as H5 before. Compile it, and call "
                "scalekeeper.restore(model, path)",
                IncompleteRestoreWarning,
                stacklevel=3,
            )
        if probe:
            require_same(model, state.probe, path)
    return model


def compile_with_state(
    model: Any,
    path: str,
    state: TrainingState,
    make_optimizer: OptimizerFactory,
    custom_objects: Optional[Mapping[str, Any]] = None,
    matching: Optional[Matching] = None,
    *,
    partial: bool = True,
) -> RestoreReport:
    """Compile a model that has its weights with the optimizer, the loss scale and the state of a file."""
    optimizer = make_optimizer(_optimizer_config(state, custom_objects), custom_objects)
    _freeze_layers(model, state.model_config)
    model.compile(optimizer=optimizer, **_compile_arguments(state, custom_objects))
    return restore_state(
        model, state, path, with_weights=False, partial=partial, may_lack_slots=True, matching=matching
    )


def _optimizer_config(state: TrainingState, custom_objects: Optional[Mapping[str, Any]]) -> Any:
    """Return the configuration of a file's optimizer for the installed Keras; a bare one stays bare."""
    config: Any = state.optimizer_config
    if state.loss_scale is not None or has_loss_scale(config):
        return config_with_policy(config, state.loss_scale)
    decoded = decode_config(config)
    if decoded.class_name in (custom_objects or {}) or decoded.class_name not in shipped(OPTIMIZERS):
        return config
    return encode_config(conversion_target().keras, decoded).config


def _freeze_layers(model: Any, config: Any) -> None:
    """Freeze the layers that are frozen in a model's configuration: some versions lose that in a SavedModel."""
    inside = config.get("config") if isinstance(config, Mapping) else None
    configs = inside.get("layers") if isinstance(inside, Mapping) else None
    layers = {layer.name: layer for layer in getattr(model, "layers", ())}
    for each in configs if isinstance(configs, list) else ():
        arguments: Any = each.get("config") if isinstance(each, Mapping) else None
        layer = layers.get(arguments.get("name")) if isinstance(arguments, Mapping) else None
        if layer is not None:
            if arguments.get("trainable") is False and layer.trainable:
                layer.trainable = False
            _freeze_layers(layer, each)


def _compile_arguments(state: TrainingState, custom_objects: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
    """Return losses and metrics as they were compiled."""
    config = state.training_config or {}
    if not can_load(state):
        rules = rules_of_installed_keras()
        config, dropped = translate_compile_config(config, rules, custom_names=custom_objects or ())
        if dropped:
            raise TranslationError(f"pass your own classes in custom_objects; missing: {'; '.join(dropped)}")
    keras = installed_keras()
    arguments: Dict[str, Any] = {}
    for name, module in (("loss", keras.losses), ("metrics", keras.metrics), ("weighted_metrics", keras.metrics)):
        if config.get(name):
            arguments[name] = _deserialize(config[name], module, dict(custom_objects or {}))
    accepted = inspect.signature(keras.Model.compile).parameters
    for name, default in {"loss_weights": None, "run_eagerly": False, "steps_per_execution": 1}.items():
        if config.get(name, default) not in (None, default) and name in accepted:
            arguments[name] = config[name]
    return arguments


def _deserialize(config: Any, module: Any, custom_objects: Mapping[str, Any]) -> Any:
    """Return the objects of a configuration; names stay names, lists and mappings by output keep their form."""
    if isinstance(config, Mapping) and "class_name" in config:
        return module.deserialize(dict(config), custom_objects=custom_objects)
    if isinstance(config, Mapping):
        return {name: _deserialize(each, module, custom_objects) for name, each in config.items()}
    if isinstance(config, (list, tuple)):
        return [_deserialize(each, module, custom_objects) for each in config]
    return custom_objects.get(config, config) if isinstance(config, str) else config
