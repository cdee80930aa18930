"""Convert one file."""

from typing import Any, List, Mapping, Optional

import json
import os

from pydantic import BaseModel

from ..registry.errors import ConversionError, LossyConversionError, ScalekeeperError, UnreadableFileError, shown
from ._atomic import replacing, replacing_checkpoint
from ._conversion import loaded_source
from ._conversion.dropped import losses_of
from ._conversion.model_payload import for_writing, packed
from ._conversion.target import Aim, aim
from .formats import _checkpoint_writer, _h5_writer, _keras_zip_writer, checkpoint
from .formats.detection import DOCUMENT, format_of, read
from .formats.npz import state_dict_of, write_state
from .keras._config_encoder import said_to
from .models import compile_with_state, save_model

FORMATS = ("h5", "keras", "saved_model", "checkpoint", "npz", "config")
ENDINGS = {".h5": "h5", ".hdf5": "h5", ".keras": "keras", ".npz": "npz", ".json": "config", ".ckpt": "checkpoint"}


class Conversion(BaseModel):
    """What a conversion did, or would do."""

    source: str
    source_format: str
    destination: str
    destination_format: str
    target: str  # its TensorFlow and Keras
    losses: List[str]  # what the source holds and the destination does not
    notes: List[str]
    written: bool  # False: it was a dry run


def convert(
    source: Any,
    destination: Any,
    to: Optional[str] = None,
    *,
    format: Optional[str] = None,
    allow_loss: bool = False,
    force: bool = False,
    dry_run: bool = False,
    custom_objects: Optional[Mapping[str, Any]] = None,
) -> Conversion:
    """Write what one file holds as another, for the TensorFlow ``to``: ``2.0`` … ``2.21``, ``tf_keras``, ``keras3``.

    With ``-plain`` after it, or as ``plain`` alone for the installed one, the file is for Keras without this package.
    The destination's format is told by its ending, or by ``format``: one of h5, keras, saved_model, checkpoint, npz,
    config. What would be lost is an error without ``allow_loss``, and so is a destination that is there already without
    ``force``. The source is only read; the destination is written whole or not at all.
    """
    source, destination = os.fspath(source), os.fspath(destination)
    goal = aim(to)
    kind = format_of(source)
    wanted = format or format_by_name(destination, kind)
    _require_possible(source, kind, wanted, goal)
    _require_free(source, kind, destination, wanted, force)
    try:
        run = loaded_source.opened(source)
        if _needs_model(run, wanted):
            run = loaded_source.with_model(run, custom_objects)
        writer = _Writer(run, wanted, goal, custom_objects)
        losses = [*losses_of(run, wanted, goal), *writer.losses]
        if losses and not allow_loss and not dry_run:
            raise LossyConversionError(
                f"{source}: converted to {destination} for {goal}, it would lose\n"
                + "".join(f"  {loss}\n" for loss in losses)
                + "Nothing was written; --allow-loss, or allow_loss=True, writes it without.",
                losses,
            )
        if not dry_run:
            writer.write(destination)
    except (ScalekeeperError, OSError):
        raise
    except Exception as error:  # of h5py, NumPy, Keras and TensorFlow, whatever they find wrong with a file
        reason = next(iter(str(error).splitlines()), "")
        raise UnreadableFileError(f"{source}: can't be converted: {type(error).__name__}: {reason}") from error
    return Conversion(
        source=source,
        source_format=kind,
        destination=destination,
        destination_format=wanted,
        target=str(goal),
        losses=losses,
        notes=list(run.notes or run.contents.notes),
        written=not dry_run,
    )


def format_by_name(destination: str, kind: str) -> str:
    """The format that a name ends with; without an ending, that of the source, if it has none either."""
    ending = os.path.splitext(destination)[1].lower()
    if ending in ENDINGS:
        return ENDINGS[ending]
    if kind in ("checkpoint", "saved_model"):
        return kind
    raise ConversionError(
        f"{destination}: its name does not tell the format: end it with {', '.join(ENDINGS)}, or say --format "
        f"({', '.join(FORMATS)})"
    )


def _require_possible(source: str, kind: str, wanted: str, goal: Aim) -> None:
    if wanted not in FORMATS:
        raise ConversionError(f"unknown format {shown(wanted)}; valid: {', '.join(FORMATS)}")
    reason = _reason_against(kind, wanted, goal)
    if reason is not None:
        raise ConversionError(f"{source}: {reason}")


def _reason_against(kind: str, wanted: str, goal: Aim) -> Optional[str]:
    """Why one format can't become another for the target; None if it can."""
    if kind == DOCUMENT:
        return "a document, or any other text, holds no training state to convert"
    if kind == "config" and wanted != "config":
        return "a configuration holds no state, and can become a configuration only"
    if kind == "npz" and wanted not in ("npz", "config"):
        return "a training state holds no model: build one in code, call scalekeeper.restore(model, path), and save it"
    if wanted == "keras" and goal.target.version < _keras_zip_writer.FIRST_VERSION:
        return f"{goal.target} reads no .keras files: choose .h5"
    if wanted == "saved_model" and goal.is_keras_3:
        return f"{goal.target} writes no SavedModels that can be trained on: choose .keras"
    if wanted == "saved_model" and goal.target != aim().target:
        return (
            f"a SavedModel holds graphs, which only the TensorFlow that it is for can make: install {goal.target}, "
            "or choose .h5 or a checkpoint"
        )
    return None


def _require_free(source: str, kind: str, destination: str, wanted: str, force: bool) -> None:
    """The source is never written to, and nothing else is replaced unasked; a folder only if it is a SavedModel."""
    place = destination + ".index" if wanted == "checkpoint" else destination
    origin = os.path.realpath(checkpoint.prefix_of(source) if kind == "checkpoint" else source)
    if _is_inside(origin, os.path.realpath(destination)) or _is_inside(os.path.realpath(destination), origin):
        raise ConversionError(f"{destination}: is the source, or a part of it, or has it in it: choose another place")
    if os.path.isdir(place) and not os.path.exists(os.path.join(place, "saved_model.pb")):
        raise ConversionError(f"{destination}: is a folder, which is never replaced: choose a name that is free")
    if os.path.lexists(place) and not force:
        raise FileExistsError(f"{destination}: is there already; --force, or force=True, replaces it")


def _is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(os.path.join(folder, ""))


def _needs_model(run: loaded_source.Run, wanted: str) -> bool:
    """A whole model is made of one; and slots without names get those of its variables."""
    if wanted in ("h5", "keras", "saved_model"):
        return True
    if wanted == "checkpoint":
        return run.format in ("h5", "keras")
    return wanted == "npz" and bool(run.contents.weight_list)


class _Writer:
    """One run on its way into one format; what can't be translated is an error before anything is written."""

    def __init__(
        self, run: loaded_source.Run, wanted: str, goal: Aim, custom_objects: Optional[Mapping[str, Any]]
    ) -> None:
        self._run = run
        self._wanted = wanted
        self._goal = goal
        self._custom_objects = custom_objects
        self._parcel: Any = packed(run, goal, wanted, custom_objects) if wanted in ("h5", "keras") else None
        self.losses = self._parcel.losses if self._parcel is not None else []

    def write(self, destination: str) -> None:
        if self._wanted == "checkpoint":
            self._write_checkpoint(destination)
            return
        write = {
            "h5": lambda path: _h5_writer.write(path, self._parcel),
            "keras": lambda path: _keras_zip_writer.write(path, self._parcel),
            "saved_model": self._write_saved_model,
            "npz": self._write_npz,
            "config": self._write_config,
        }[self._wanted]
        with replacing(destination) as temporary:
            write(temporary)

    def _write_npz(self, path: str) -> None:
        run = self._run
        said = None if run.declaration is None else said_to(self._goal, run.declaration)
        write_state(path, state_dict_of(for_writing(run.contents, said)))

    def _write_config(self, path: str) -> None:
        declaration = self._run.declaration
        if declaration is None:
            raise ConversionError(f"{self._run.path}: does not say the optimizer's class and arguments")
        said = said_to(self._goal, declaration)
        with open(path, "w", encoding="utf-8") as stream:
            json.dump(said.config if self._goal.is_plain else said.in_full, stream)

    def _write_saved_model(self, path: str) -> None:
        model, source = self._run.model, self._run.path
        compile_with_state(model, source, read(source), self._custom_objects)
        if self._goal.is_plain:
            model.save(path)
        else:
            save_model(model, path)

    def _write_checkpoint(self, destination: str) -> None:
        run = self._run
        class_name = None if run.declaration is None else run.declaration.class_name
        with replacing_checkpoint(destination) as (temporary, pieces):
            layout = checkpoint.layout_of(self._checkpoint(temporary), class_name)
            contents = layout.contents
            if run.model is not None:  # the installed optimizer's, of which the loss scale is not the source's
                contents.loss_scale_state = run.contents.loss_scale_state
                contents.skipped_steps, contents.skips = run.contents.skipped_steps, run.contents.skips
            graph, values = _checkpoint_writer.retold(layout, self._goal, class_name)
            _checkpoint_writer.write(temporary, graph, values, pieces)

    def _checkpoint(self, temporary: str) -> str:
        """Where the source is a checkpoint, or else one of the model that was built of it."""
        if self._run.format == "checkpoint":
            return self._run.path
        if self._run.format == "saved_model":
            return os.path.join(self._run.path, "variables", "variables")
        import tensorflow as tf

        path = temporary + ".installed"
        model = self._run.model
        tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(path)
        return path
