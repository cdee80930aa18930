"""``convert`` and ``convert_folder``: the training state of one file in another format, for another TensorFlow."""

from typing import Any, Callable, Iterator, List, Mapping, NamedTuple, Optional

import os

from pydantic import BaseModel

from ..registry._argument_checks import path_of
from ..registry.errors import (
    ConversionError,
    DestinationExistsError,
    LossyConversionError,
    ScalekeeperError,
    UnreadableFileError,
)
from . import formats
from ._keras_introspection import installed_keras
from ._loaded_source import LoadedSource, open_source, with_model
from .formats import ConversionRequest, Format
from .keras.target import ConversionTarget, conversion_target
from .optimizer_adapter import OptimizerFactory
from .probe import probe_of, require_same


class Conversion(BaseModel):
    """The report of a conversion that was done, or would be done.

    Attributes:
        source: The source.
        source_format: Its format, in words.
        destination: The destination.
        destination_format: Its format, in words.
        target: The TensorFlow and Keras that the destination is for.
        losses: State that the source holds and the destination does not; also ``dropped``.
        notes: Remarks, in sentences.
        written: Whether the destination was written; False after a dry run.

    Example:
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1))
        >>> scalekeeper.save_state(optimizer, "state.npz")
        >>> result = scalekeeper.convert("state.npz", "state.json", "2.3", dry_run=True)
        >>> result.written, result.target
        (False, 'TensorFlow 2.3...')
    """

    source: str
    source_format: str
    destination: str
    destination_format: str
    target: str  # its TensorFlow and Keras
    losses: List[str]  # what the source holds and the destination does not
    notes: List[str]
    written: bool  # False: a dry run

    @property
    def dropped(self) -> List[str]:
        """The state that the conversion leaves out: the same as ``losses``."""
        return self.losses


def convert(
    source: Any,
    destination: Any,
    to: Optional[str] = None,
    *,
    make_optimizer: OptimizerFactory,
    format: Optional[str] = None,
    allow_loss: bool = False,
    force: bool = False,
    dry_run: bool = False,
    custom_objects: Optional[Mapping[str, Any]] = None,
    probe: bool = True,
) -> Conversion:
    """Convert a file; see ``scalekeeper.convert``, which passes ``make_optimizer``."""
    call = "convert(source, destination)"
    source, destination = path_of(source, call), path_of(destination, call)
    target = conversion_target(to)
    source_codec = formats.detect(source)
    if source_codec is None:
        raise ConversionError(f"{source}: a document or other text, which holds no training state to convert")
    codec = formats.format_by_name(format) if format else _format_of_destination(destination, source_codec)
    obstacle = _obstacle(source_codec, codec, target)
    if obstacle is not None:
        raise ConversionError(f"{source}: {obstacle}")
    _require_free(source, source_codec, destination, codec, force)
    try:
        loaded = open_source(source, source_codec)
        if codec.needs_model(loaded):
            loaded = with_model(loaded, make_optimizer, custom_objects)
            if probe:
                require_same(loaded.model, loaded.state.probe, source)
        encoded = loaded.encoded_for(target)
        plan = codec.plan(ConversionRequest(loaded, target, encoded, make_optimizer, custom_objects))
        if plan.dropped and not allow_loss and not dry_run:
            raise LossyConversionError(
                f"{source}: a conversion to {destination} for {target} would drop\n"
                + "".join(f"  {each}\n" for each in plan.dropped)
                + "Nothing was written. To write it anyway, give --allow-loss, or allow_loss=True in Python.",
                plan.dropped,
            )
        if not dry_run:
            check = _check_of(loaded, codec, target, custom_objects) if probe else None
            codec.replace(destination, plan.write if check is None else lambda path: check(path, plan.write))
    except (ScalekeeperError, OSError):
        raise
    except Exception as error:  # h5py, NumPy, Keras and TensorFlow raise many types for corrupt files
        reason = next(iter(str(error).splitlines()), "")
        raise UnreadableFileError(f"{source}: cannot be converted: {type(error).__name__}: {reason}") from error
    return Conversion(
        source=source,
        source_format=source_codec.name,
        destination=destination,
        destination_format=codec.name,
        target=str(target),
        losses=plan.dropped,
        notes=list(loaded.notes or loaded.state.notes),
        written=not dry_run,
    )


def _check_of(
    source: LoadedSource, codec: Format, target: ConversionTarget, custom_objects: Optional[Mapping[str, Any]]
) -> Optional[Callable[[str, Callable[[str], None]], None]]:
    """Return a function that writes a file and compares its model with the source's; None if Keras cannot open it."""
    if source.model is None or not codec.holds_layers or target.target != conversion_target().target:
        return None
    probe = source.state.probe or probe_of(source.model)

    def write_and_compare(path: str, write: Callable[[str], None]) -> None:
        write(path)
        model = installed_keras().models.load_model(path, custom_objects=dict(custom_objects or {}), compile=False)
        require_same(model, probe, source.path)

    return write_and_compare


def _format_of_destination(destination: str, source: Format) -> Format:
    """Return the format that a name ends with; without an ending, that of a source that needs none either."""
    codec = formats.format_by_ending(destination)
    if codec is not None:
        return codec
    if not source.default_ending:
        return source
    endings = ", ".join(ending for each in formats.formats() for ending in each.endings)
    names = ", ".join(each.name for each in formats.formats())
    raise ConversionError(f"{destination}: no format has this ending; use one of {endings}, or give --format ({names})")


def _obstacle(source: Format, codec: Format, target: ConversionTarget) -> Optional[str]:
    """Return why one format cannot be converted to another for a target; None if it can."""
    if not source.holds_state and codec.holds_state:
        return "a configuration holds no state, so it can only become a configuration"
    if not source.holds_weights and codec.holds_weights:
        return "a training state holds no model; build one in code, call scalekeeper.restore(model, path) and save it"
    return codec.obstacle(target)


def _require_free(source: str, source_codec: Format, destination: str, codec: Format, force: bool) -> None:
    """Protect the source, existing files unless ``force`` is given, and existing folders unless SavedModels."""
    existing = codec.marker(destination)
    real_source, real_destination = os.path.realpath(source_codec.resolve(source)), os.path.realpath(destination)
    if _is_inside(real_source, real_destination) or _is_inside(real_destination, real_source):
        raise ConversionError(f"{destination}: overlaps with the source: choose another path")
    if os.path.isdir(existing) and not _is_folder_format(existing):
        raise ConversionError(f"{destination}: is a folder, which is never replaced: choose another path")
    if os.path.lexists(existing) and not force:
        raise DestinationExistsError(f"{destination}: exists; to replace it, give --force, or force=True in Python")


def _is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(os.path.join(folder, ""))


def _is_folder_format(path: str) -> bool:
    return any(codec.is_folder and codec.matches(path) for codec in formats.formats())


# Folders


class Outcome(NamedTuple):
    """The result of one file of a folder: a conversion, or an error."""

    source: str
    destination: str
    conversion: Optional[Conversion]
    error: Optional[str]


def convert_folder(
    source: Any,
    destination: Any,
    to: Optional[str] = None,
    *,
    make_optimizer: OptimizerFactory,
    format: Optional[str] = None,
    progress: Optional[Callable[[List[str]], Any]] = None,
    **options: Any,
) -> List[Outcome]:
    """Convert a folder; see ``scalekeeper.convert_folder``, which passes ``make_optimizer``."""
    call = "convert_folder(source, destination)"
    source, destination = path_of(source, call), path_of(destination, call)
    if not os.path.isdir(source):
        raise ConversionError(f"{source}: not a folder; to convert a single file, omit --recursive")
    found = list(files_in(source))
    if not found:
        raise ConversionError(f"{source}: holds no files that can be converted")
    outcomes = []
    for path in progress(found) if progress is not None else found:
        target = destination
        try:
            codec = formats.format_by_name(format) if format else formats.detect(path)
            if codec is None:
                raise ConversionError(f"{path}: a document or other text, which holds no training state to convert")
            target = os.path.join(destination, _renamed(os.path.relpath(path, source), codec))
            done = convert(path, target, to, make_optimizer=make_optimizer, format=codec.name, **options)
            outcomes.append(Outcome(path, target, done, None))
        except (ScalekeeperError, OSError) as error:
            outcomes.append(Outcome(path, target, None, str(error)))
    return outcomes


def files_in(folder: str) -> Iterator[str]:
    """Yield what can be converted, judged by names: files with known endings, SavedModels, prefixes of checkpoints."""
    for parent, folders, names in os.walk(folder):
        folders.sort()
        if _is_folder_format(parent):
            folders.clear()
            yield parent
            continue
        for name in sorted(names):
            found = (codec.path_of(parent, name) for codec in formats.formats())
            yield from [path for path in found if path is not None][:1]


def _renamed(name: str, codec: Format) -> str:
    """Return the name of a file with the ending of a format."""
    current = formats.format_by_ending(name)
    if current is codec:
        return name
    return (name if current is None else os.path.splitext(name)[0]) + codec.default_ending
