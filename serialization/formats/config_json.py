"""JSON files that hold a configuration as ``get_config``, ``serialize`` or ``to_json`` give it."""

from typing import Any, Mapping, Optional

from ...registry.errors import UnreadableFileError
from .._json_text import LONGEST, parsed
from ..training_state import Contents, Writer


def read(path: str) -> Contents:
    """What a configuration in a JSON file declares."""
    config = config_in(path)
    if config is None:
        raise UnreadableFileError(f"{path}: JSON, but no configuration of an optimizer or a model")
    contents = Contents(Writer("config", keras=_text(config.get("keras_version"))))
    if _is_model(config):
        contents.model_config = dict(config)
    else:
        contents.optimizer_config = dict(config)
    return contents


def config_in(path: str) -> Optional[Mapping[str, Any]]:
    """The configuration of an optimizer or a model that is the whole of a JSON file; None for anything else."""
    with open(path, "rb") as stream:
        data = stream.read(LONGEST + 1)
    if len(data) > LONGEST:
        return None
    try:
        config = parsed(data.decode("utf-8"))
    except ValueError:
        return None
    if not isinstance(config, dict):
        return None
    return config if _is_object(config) or any(_is_object(config.get(name)) for name in _INNER) else None


_INNER = ("inner_optimizer", "optimizer")


def _is_object(config: Any) -> bool:
    return isinstance(config, dict) and isinstance(config.get("class_name"), str) and _is_mapping(config.get("config"))


def _is_mapping(value: Any) -> bool:
    return isinstance(value, dict)


def _is_model(config: Mapping[str, Any]) -> bool:
    inside = config.get("config")
    return isinstance(inside, dict) and isinstance(inside.get("layers"), list)


def _text(value: Any) -> Optional[str]:
    return value if isinstance(value, str) else None
