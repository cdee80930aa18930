"""Checkpoints of ``tf.train.Checkpoint`` and ``model.save_weights``, of every version.

The object graph of a checkpoint is interpreted in ``_checkpoint_layout`` and rewritten for a target in
``_checkpoint_rewriter``.
"""

from typing import Any, Callable, Iterator, Optional

import importlib
import os

from .._atomic import replacing_checkpoint
from .._loaded_source import LoadedSource
from ..training_state import TrainingState
from . import ConversionRequest, Format, ModelInCode, ResumeContext, WritePlan, _checkpoint_rewriter
from ._checkpoint_layout import layout_of, prefix_of, tensorflow_for


class CheckpointFormat(Format):
    """The codec of checkpoints. They hold values, and no classes or layers."""

    name = "checkpoint"
    title = "TensorFlow checkpoint"
    phrase = "a checkpoint"
    label = "checkpoint"
    endings = (".ckpt",)
    written_by = "tf.train.Checkpoint"
    loaded_by = "Checkpoint.restore"
    run_files = ("checkpoint",)

    @property
    def default_ending(self) -> str:
        return ""

    def matches(self, path: str) -> bool:
        if os.path.isdir(path):
            return not os.path.exists(os.path.join(path, "saved_model.pb"))
        return path.endswith(".index") or (not os.path.isfile(path) and os.path.exists(path + ".index"))

    def path_of(self, folder: str, name: str) -> Optional[str]:
        if name.lower().endswith(".index"):
            return os.path.join(folder, name[: -len(".index")])
        return super().path_of(folder, name)

    def read(self, path: str, class_name: Optional[str] = None) -> TrainingState:
        return read(path, class_name)

    def read_for(self, path: str, class_name: Optional[str], model: ModelInCode) -> TrainingState:
        return layout_of(path, class_name, model).state

    def resolve(self, path: str) -> str:
        return prefix_of(path)

    def marker(self, path: str) -> str:
        return path + ".index"

    def checkpoint_prefix(self, path: str) -> Optional[str]:
        return path

    def needs_model(self, source: LoadedSource) -> bool:
        return source.codec.checkpoint_prefix(source.path) is None

    def plan(self, request: ConversionRequest) -> WritePlan:
        dropped = [*self.dropped(request.source), *request.dropped_by_plain_keras(_unknown_to_plain_keras(request))]
        return WritePlan(dropped, lambda destination: _convert(destination, request))

    def dropped(self, source: LoadedSource) -> Iterator[str]:
        yield from super().dropped(source)
        if source.declaration is not None:
            yield "classes and arguments of the optimizer and its loss scale: a checkpoint holds values only"

    def replace(self, destination: str, write: Callable[[str], None]) -> None:
        write(destination)  # which replaces several files atomically

    def save_run(self, model: Any, folder: str) -> None:
        _trackable(model).save(os.path.join(folder, *self.run_files, "ckpt"))

    def resume_run(self, folder: str, context: ResumeContext) -> Any:
        model = context.compile_model(context.optimizer)
        prefix = tensorflow_for(folder).train.latest_checkpoint(os.path.join(folder, *self.run_files))
        _trackable(model).restore(prefix)
        return model


CODEC = CheckpointFormat()


# Writing


def _unknown_to_plain_keras(request: ConversionRequest) -> Iterator[str]:
    others = set(request.source.state.loss_scale_state) - {"current_loss_scale", "good_steps"}
    if others and not request.target.keras.profile.keeps_every_policy:
        yield f"{', '.join(sorted(others))} of the loss scale: {request.target.keras} has no such loss scale"


def _convert(destination: str, request: ConversionRequest) -> None:
    """Write a checkpoint for a target: that of the source, or one of the model that was built from it."""
    source = request.source
    with replacing_checkpoint(destination) as (temporary, pieces):
        prefix = source.codec.checkpoint_prefix(source.path)
        if prefix is None:
            prefix = temporary + ".installed"
            _trackable(source.model).write(prefix)
        layout = layout_of(prefix, source.class_name)
        if source.model is not None:  # the installed optimizer has another loss scale than the source
            layout.state.loss_scale_state = source.state.loss_scale_state
            layout.state.skipped_steps, layout.state.skips = source.state.skipped_steps, source.state.skips
        graph, values = _checkpoint_rewriter.rewrite(layout, request.target, source.class_name)
        _checkpoint_rewriter.write(temporary, graph, values, pieces)


def _trackable(model: Any) -> Any:
    tf: Any = importlib.import_module("tensorflow")
    return tf.train.Checkpoint(model=model, optimizer=model.optimizer)


# Reading


def read(path: str, class_name: Optional[str] = None) -> TrainingState:
    """Return what a checkpoint holds. Arrays stay in its files until they are read.

    Args:
        path: The prefix that was given to ``save`` or ``write``, the ``.index`` file, or a folder, whose latest
            checkpoint is read.
        class_name: The class of the inner optimizer, which a checkpoint does not store.
    """
    return layout_of(path, class_name).state
