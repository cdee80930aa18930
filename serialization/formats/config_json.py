"""JSON files with a configuration as ``get_config``, ``serialize`` or ``to_json`` return it."""

from typing import Any, Iterator, Mapping, Optional

import json
import os

from ...registry.errors import ConversionError, UnreadableFileError
from .._file_resources import MAX_JSON_LENGTH, parse_json
from .._loaded_source import LoadedSource
from ..training_state import TrainingState, Writer
from . import ConversionRequest, Format, ResumeContext, WritePlan
from .npz import read_arrays, read_state, save_arrays, save_state

_INNER = ("inner_optimizer", "optimizer")


class ConfigFormat(Format):
    """The codec of configurations. They hold no state."""

    name = "config"
    title = "configuration in JSON"
    phrase = "a configuration"
    label = "config"
    endings = (".json",)
    holds_weights = False
    holds_state = False
    written_by = "get_config"
    loaded_by = "from_config, load_state_dict"
    run_files = ("optimizer.json", "optimizer.npz", "weights.npz")

    def matches(self, path: str) -> bool:
        return os.path.isfile(path) and not path.endswith(".index") and config_in(path) is not None

    def path_of(self, folder: str, name: str) -> Optional[str]:
        path = super().path_of(folder, name)
        return path if path is not None and config_in(path) is not None else None

    def read(self, path: str, class_name: Optional[str] = None) -> TrainingState:
        config = config_in(path)
        if config is None:
            raise UnreadableFileError(f"{path}: JSON, but not the configuration of an optimizer or a model")
        version = config.get("keras_version")
        state = TrainingState(Writer("config", keras=version if isinstance(version, str) else None))
        if _is_model(config):
            state.model_config = dict(config)
        else:
            state.optimizer_config = dict(config)
        return state

    def usage(self, path: str, state: TrainingState) -> str:
        if state.model_config is not None:
            return f"model = tf.keras.models.model_from_json(open({path!r}).read())"
        part = "['config']" if "class_name" in (state.optimizer_config or {}) else ""
        return f"optimizer = scalekeeper.LossScaleOptimizer.from_config(json.load(open({path!r})){part})"

    def needs_model(self, source: LoadedSource) -> bool:
        return False

    def plan(self, request: ConversionRequest) -> WritePlan:
        encoded, is_plain = request.encoded, request.target.is_plain
        unread = encoded.dropped if encoded is not None and is_plain else []

        def write(path: str) -> None:
            if encoded is None:
                raise ConversionError(f"{request.source.path}: contains no class and arguments of an optimizer")
            _write_json(path, encoded.config if is_plain else encoded.full_config)

        return WritePlan([*self.dropped(request.source), *unread], write)

    def dropped(self, source: LoadedSource) -> Iterator[str]:
        if source.state.variables:
            yield "the weights of the model: a configuration holds none"
        if source.state.iterations is not None or source.state.slots or source.state.loss_scale_state:
            yield "iterations, slots and the loss scale's state: a configuration holds none"

    def save_run(self, model: Any, folder: str) -> None:
        config, state, weights = (os.path.join(folder, name) for name in self.run_files)
        self.replace(config, lambda path: _write_json(path, model.optimizer.get_config(), indent=2))
        save_state(model.optimizer, state)
        save_arrays(weights, {str(index): weight for index, weight in enumerate(model.get_weights())})

    def resume_run(self, folder: str, context: ResumeContext) -> Any:
        config, state, weights = (os.path.join(folder, name) for name in self.run_files)
        policy = type(context.optimizer.loss_scale)  # perhaps a class of the caller that is not registered
        with open(config, encoding="utf-8") as stream:
            optimizer = type(context.optimizer).from_config(json.load(stream), {policy.__name__: policy})
        model = context.compile_model(optimizer)
        arrays = read_arrays(weights)
        model.set_weights([arrays[str(index)] for index in range(len(arrays))])
        model.optimizer.load_state_dict(read_state(state), model.trainable_variables)
        return model


CODEC = ConfigFormat()


def config_in(path: str) -> Optional[Mapping[str, Any]]:
    """Return the configuration of an optimizer or a model that a JSON file consists of; None for anything else."""
    with open(path, "rb") as stream:
        data = stream.read(MAX_JSON_LENGTH + 1)
    if len(data) > MAX_JSON_LENGTH:
        return None
    try:
        config = parse_json(data.decode("utf-8"))
    except ValueError:
        return None
    if not isinstance(config, dict):
        return None
    return config if _is_object(config) or any(_is_object(config.get(name)) for name in _INNER) else None


def _is_object(config: Any) -> bool:
    return (
        isinstance(config, dict)
        and isinstance(config.get("class_name"), str)
        and isinstance(config.get("config"), dict)
    )


def _is_model(config: Mapping[str, Any]) -> bool:
    inside = config.get("config")
    return isinstance(inside, dict) and isinstance(inside.get("layers"), list)


def _write_json(path: str, config: Any, indent: Optional[int] = None) -> None:
    with open(path, "w", encoding="utf-8") as stream:
        json.dump(config, stream, indent=indent)
