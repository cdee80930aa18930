"""A model with its training state in the words of a target, ready to be written."""

from typing import Any, Dict, List, Mapping, NamedTuple, Optional

import dataclasses
import functools

from ...registry._compat import metadata
from ..keras import _compile_config, _model_config
from ..keras._config_encoder import Said, said_to
from ..keras._layer_signatures import accepted_on
from ..keras._slot_names import inner_config
from ..keras.target import KerasTarget
from ..training_state import Contents, Writer
from .loaded_source import Run
from .target import Aim


class Parcel(NamedTuple):
    """What the writers of formats take."""

    aim: Aim
    said: Said
    class_name: str  # of the inner optimizer
    state: Contents  # the optimizer's, by the names of the model's variables
    model: Any  # with its weights
    model_config: Dict[str, Any]
    training_config: Dict[str, Any]
    losses: List[str]

    @property
    def has_state(self) -> bool:
        return self.state.iterations is not None

    @property
    def learning_rate(self) -> Optional[float]:
        """As a variable of the optimizer's; None for a schedule."""
        declared = inner_config(self.said.config)["config"].get("learning_rate")
        return float(declared) if isinstance(declared, (int, float)) else None

    @property
    def scale(self) -> float:
        """What a dynamic scale is now; where the file has none, what it begins with."""
        policy = self.state.loss_scale or {"config": {}}
        return float(
            self.state.loss_scale_state.get("current_loss_scale", policy["config"].get("initial_loss_scale", 1))
        )


def packed(run: Run, aim: Aim, wanted: str, custom_objects: Optional[Mapping[str, Any]] = None) -> Parcel:
    """The run of a whole model for a target, in a format."""
    assert run.declaration is not None
    assert run.contents.model_config is not None
    said = said_to(aim, run.declaration)
    users = frozenset(custom_objects or ())
    training, losses = _compile_config.translated(run.contents.training_config, aim, with_modules=wanted == "keras")
    return Parcel(
        aim,
        said,
        run.declaration.class_name,
        for_writing(run.contents, said),
        run.model,
        _model_config.translated(
            run.contents.model_config,
            KerasTarget(aim.target).model_config_rules,
            accepted_on(aim.target),
            users,
            where=str(aim.target),
            package=aim.package if wanted == "keras" else None,
        ),
        training,
        losses,
    )


def for_writing(contents: Contents, said: Optional[Said]) -> Contents:
    """The state as a record has it: this package writes it, and the optimizer is in the target's words."""
    writer = Writer("npz", scalekeeper=_version())
    config = contents.optimizer_config if said is None else said.config
    return dataclasses.replace(contents, writer=writer, optimizer_config=config)


@functools.lru_cache(maxsize=None)
def _version() -> str:
    return metadata.version("scalekeeper")
