"""Old names of :mod:`._optimizer_config`, until the callers have moved."""

from typing import Any

from ._optimizer_config import EncodedConfig, OptimizerConfig, encode_config
from .target import KerasTarget


class Said(EncodedConfig):
    losses = property(lambda self: self.dropped)
    in_full = property(lambda self: self.full_config)


def said_to(aim: Any, declaration: OptimizerConfig) -> Any:
    return Said(*encode_config(KerasTarget(aim.target), declaration))
