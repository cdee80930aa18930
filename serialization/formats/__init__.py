"""File formats: the codec interface and the registry, the only list of formats, endings and titles.

One module holds one codec: how a format is detected, read, written and described. A new format is a subclass of
:class:`Format` that is passed to :func:`register_format`.
"""

from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

import os
import zipfile

from ...registry.errors import ConversionError, MissingFileError, NameTakenError, TranslationError, UnreadableFileError
from ...registry.errors import unknown as unknown_name
from .._atomic import replacing

if TYPE_CHECKING:
    from .._loaded_source import LoadedSource, ModelPayload
    from .._matching import Matching
    from ..keras._optimizer_config import EncodedConfig
    from ..keras.target import ConversionTarget
    from ..optimizer_adapter import OptimizerFactory
    from ..training_state import TrainingState

__all__ = [
    "ConversionRequest",
    "Format",
    "ModelInCode",
    "ResumeContext",
    "WholeModelFormat",
    "WritePlan",
    "detect",
    "format_by_ending",
    "format_by_name",
    "formats",
    "read",
    "register_format",
    "unregister_format",
]

_COUNTING = {"hold": "do not count", "advance": "count"}


class ConversionRequest(NamedTuple):
    """The source and the target of a conversion, for :meth:`Format.plan`.

    Attributes:
        source: The source.
        target: The target.
        encoded: The optimizer's configuration for the target, if it is known.
        make_optimizer: A function that creates an optimizer from a configuration.
        custom_objects: Classes of the model by name.

    Example:
        >>> from scalekeeper.serialization.formats import Format, WritePlan
        >>> class Empty(Format):
        ...     def plan(self, request):
        ...         return WritePlan(request.dropped_by_plain_keras(), lambda path: open(path, "w").close())
    """

    source: "LoadedSource"
    target: "ConversionTarget"
    encoded: "Optional[EncodedConfig]"  # the optimizer's configuration for the target, if it is known
    make_optimizer: "OptimizerFactory"
    custom_objects: Optional[Mapping[str, Any]] = None

    def dropped_by_plain_keras(self, by_format: Iterable[str] = ()) -> List[str]:
        """Return what plain Keras leaves out, in sentences; empty if scalekeeper is beside the target.

        Args:
            by_format: The state in the format that plain Keras does not read.
        """
        if not self.target.is_plain:
            return []
        return [*(() if self.encoded is None else self.encoded.dropped), *by_format, *self._skip_behavior()]

    def _skip_behavior(self) -> Iterator[str]:
        given, native = self.source.state.skipped_steps, self.target.keras.skipped_steps
        if self.source.may_skip_steps and given not in (None, native):
            yield (
                f"that skipped steps {_COUNTING[str(given)]} in iterations: with {self.target.keras} they "
                f"{_COUNTING[str(native)]}"
            )


class ModelInCode(NamedTuple):
    """The model that a file is read for, where the file may hold several models.

    Attributes:
        match: A function that matches its variables with those of a training state.
        has_optimizer: Whether the state of an optimizer is wanted.
        optimizer: The path of the optimizer in the file, if the caller gives it.
        root: The path of the model in the file, if the caller gives it.

    Example:
        >>> from scalekeeper.serialization.formats import ModelInCode
        >>> ModelInCode(match=lambda state: None, optimizer="generator_optimizer").has_optimizer
        True
    """

    match: "Callable[[TrainingState], Matching]"  # matches it with the variables of a training state
    has_optimizer: bool = True  # whether the state of an optimizer is wanted
    optimizer: Optional[str] = None  # the path of the optimizer in the file, as the caller says
    root: Optional[str] = None  # the path of the model in the file, as the caller says


class WritePlan(NamedTuple):
    """A file that is ready to be written, and what of the source it leaves out.

    Attributes:
        dropped: The state that is left out, in sentences.
        write: The function that writes it to the path that it gets.

    Example:
        >>> from scalekeeper.serialization.formats import WritePlan
        >>> plan = WritePlan(["the layers of the model"], lambda path: None)
        >>> plan.dropped
        ['the layers of the model']
    """

    dropped: List[str]  # in sentences
    write: Callable[[str], None]  # takes the path of a new file


class ResumeContext(NamedTuple):
    """The input of :meth:`Format.resume_run`, which continues training in another process.

    Attributes:
        optimizer: A new optimizer.
        compile_model: A function that builds the model in code and compiles it with an optimizer.
        load_model: The function that loads a model; None if the installed Keras cannot rebuild the model.

    Example:
        >>> from scalekeeper.serialization.formats import ResumeContext
        >>> context = ResumeContext("sgd", compile_model=lambda optimizer: f"a model with {optimizer}")
        >>> context.compile_model(context.optimizer)
        'a model with sgd'
    """

    optimizer: Any  # a new one
    compile_model: Callable[[Any], Any]  # builds the model in code and compiles it with an optimizer
    load_model: Optional[Callable[[str], Any]] = None  # None: the installed Keras cannot rebuild the model


class Format:
    """The codec of one format.

    A format that stores a whole training state needs ``name``, ``title``, ``phrase``, ``endings``, :meth:`matches`,
    :meth:`read` and :meth:`write`; the rest has defaults.

    Attributes:
        name: The name, as in ``convert(format=…)`` and ``Inspection.format``.
        title: The format in words, such as ``"H5 file"``.
        phrase: The same in a sentence, such as ``"an H5 file"``.
        label: The same in a table, such as ``"H5"``.
        endings: The endings of file names.
        holds_layers: Whether it holds a whole model, which Keras writes and ``load_model`` reads.
        holds_weights: Whether it holds the values of the model's variables.
        holds_state: Whether it holds iterations, slots and the state of the loss scale.
        is_folder: Whether it is a folder.
        written_by: The function that writes it, in words.
        loaded_by: The function that reads it, in words.
        run_files: The files that ``save_run`` writes.

    Example:
        >>> from scalekeeper.serialization.formats import Format
        >>> class Pickled(Format):
        ...     name, title, phrase, endings = "pickled", "pickled file", "a pickled file", (".pkl",)
        ...     def matches(self, path):
        ...         return path.endswith(".pkl")
        >>> Pickled().default_ending
        '.pkl'
    """

    name = ""  # as in ``convert(format=…)`` and ``Inspection.format``
    title = ""  # for people: "H5 file"
    phrase = ""  # the same in a sentence: "an H5 file"
    label = ""  # the same in a table: "H5"
    endings: Tuple[str, ...] = ()  # of file names
    holds_layers = False  # a whole model, which Keras writes and ``load_model`` reads
    holds_weights = True  # the values of the model's variables
    holds_state = True  # iterations, slots, loss-scale state
    is_folder = False
    written_by = "scalekeeper"  # the function that writes it, for people
    loaded_by = "restore"  # the function that reads it, for people
    run_files: Tuple[str, ...] = ()  # what ``save_run`` writes

    @property
    def default_ending(self) -> str:
        """The ending that a renamed file gets."""
        return self.endings[0] if self.endings else ""

    # Detection

    def matches(self, path: str) -> bool:
        """Return whether the file or folder at a path has this format, judged by what is inside.

        Args:
            path: The path.
        """
        raise NotImplementedError

    def path_of(self, folder: str, name: str) -> Optional[str]:
        """Return the path to convert if a file in a folder belongs to this format, judged by its name.

        Args:
            folder: The folder.
            name: The name of a file in it.
        """
        return os.path.join(folder, name) if _ending(name) in self.endings else None

    # Reading

    def read(self, path: str, class_name: Optional[str] = None) -> "TrainingState":
        """Return what a file holds. Arrays stay in the file until they are read.

        Args:
            path: A path that :meth:`matches`.
            class_name: The class of the inner optimizer, if the caller knows it. A checkpoint does not store it.
        """
        raise NotImplementedError

    def read_for(self, path: str, class_name: Optional[str], model: ModelInCode) -> "TrainingState":
        """Return what a file holds of a model in code, where a file may hold several models and optimizers.

        Args:
            path: A path that :meth:`matches`.
            class_name: The class of the inner optimizer, if the caller knows it.
            model: The model that the file is read for.
        """
        return self.read(path, class_name)

    def resolve(self, path: str) -> str:
        """Return the path of the data, where a path may also be a folder that contains it.

        Args:
            path: The path that a user has given.
        """
        return path

    def marker(self, path: str) -> str:
        """Return the file or folder that exists if there is data at a path.

        Args:
            path: The path.
        """
        return path

    def require_self_contained(self, path: str) -> None:
        """Raise an error if a file refers to others. Called before Keras opens it.

        Args:
            path: The path.

        Raises:
            UnreadableFileError: The file refers to others.
        """

    def checkpoint_prefix(self, path: str) -> Optional[str]:
        """Return the prefix of the checkpoint that the format contains; None if it contains none.

        Args:
            path: The path.
        """
        return None

    # Description

    def describe(self, state: "TrainingState") -> str:
        """Return what kind of file it is, in a few words.

        Args:
            state: The contents of the file.
        """
        return self.title

    def usage(self, path: str, state: "TrainingState") -> str:
        """Return the line of code that uses a file.

        Args:
            path: The path.
            state: The contents of the file.
        """
        if state.model_config is not None and state.variables:
            return f"model = scalekeeper.load_model({path!r})"
        return f"scalekeeper.restore(model, {path!r})  # a model that is built and compiled in code"

    # Writing: save_model

    def add_state(self, path: str, state: "TrainingState") -> None:
        """Add what Keras leaves out to a file that Keras has just written, where Keras ignores it.

        Args:
            path: The file.
            state: The training state of the model in it.
        """
        raise NotImplementedError

    # Writing: convert

    def obstacle(self, target: "ConversionTarget") -> Optional[str]:
        """Return why this format cannot be written for a target; None if it can.

        Args:
            target: The target.
        """
        return None

    def needs_model(self, source: "LoadedSource") -> bool:
        """Return whether writing needs the source's model, built by the installed Keras.

        Args:
            source: The source of a conversion.
        """
        return bool(source.state.weight_list)

    def plan(self, request: ConversionRequest) -> WritePlan:
        """Return how to write a source for a target.

        Args:
            request: The source and the target.

        Raises:
            TranslationError: Something cannot be translated for the target.
        """
        from .._loaded_source import state_for_writing

        if request.target.is_plain:
            raise TranslationError(
                f"plain Keras cannot read {self.phrase} of scalekeeper: choose a checkpoint or drop '-plain'"
            )
        state = state_for_writing(request.source, request.encoded)
        return WritePlan(list(self.dropped(request.source)), lambda path: self.write(path, state))

    def dropped(self, source: "LoadedSource") -> Iterator[str]:
        """Yield what this format cannot hold of a source, whatever the target, in sentences.

        Args:
            source: The source of a conversion.
        """
        if source.state.model_config is not None and not self.holds_layers:
            yield f"the layers of the model: {self.phrase} holds values only"

    def write(self, path: str, state: "TrainingState") -> None:
        """Write a training state to a new file.

        Args:
            path: The path of a new file.
            state: The training state.
        """
        raise NotImplementedError

    def replace(self, destination: str, write: Callable[[str], None]) -> None:
        """Write a file atomically.

        Args:
            destination: The file.
            write: A function that writes to the path that it gets.
        """
        with replacing(destination) as temporary:
            write(temporary)

    # Saving a run and resuming it in another process

    @property
    def run_name(self) -> str:
        """The name of this way to save a run, in ``scalekeeper demo``."""
        return self.name

    def can_save(self, keras: Any, *, mixed_precision: bool = False) -> bool:
        """Return whether an installed Keras can save a model in this format and train it further.

        Args:
            keras: The module of the installed Keras.
            mixed_precision: Whether the model computes in float16.
        """
        return True

    def is_distinct(self, keras: Any) -> bool:
        """Return whether the files of an installed Keras differ from those of the other formats.

        Args:
            keras: The module of the installed Keras.
        """
        return True

    def save_run(self, model: Any, folder: str) -> None:
        """Save a model that is being trained to ``run_files`` in a folder.

        Args:
            model: The model.
            folder: The folder.
        """
        from ..models import training_state_of

        path = os.path.join(folder, self.run_files[0])
        self.replace(path, lambda temporary: self.write(temporary, training_state_of(model)))

    def resume_run(self, folder: str, context: ResumeContext) -> Any:
        """Return a model that continues from what ``save_run`` wrote.

        Args:
            folder: The folder.
            context: How to build the model.
        """
        from ..restore import restore

        model = context.compile_model(context.optimizer)
        restore(model, os.path.join(folder, self.run_files[0]))
        return model


class WholeModelFormat(Format):
    """The base class of the codecs of H5, ``.keras`` and SavedModel: a file with layers, weights and optimizer.

    Attributes:
        names_modules: Whether Keras 2 writes the module of each class into the configurations.

    Example:
        >>> from scalekeeper.serialization.formats import WholeModelFormat, format_by_name
        >>> isinstance(format_by_name("h5"), WholeModelFormat), isinstance(format_by_name("npz"), WholeModelFormat)
        (True, False)
    """

    holds_layers = True
    names_modules = False  # whether Keras 2 writes the module of each class into the configurations
    written_by = "save_model"
    loaded_by = "load_model"

    def needs_model(self, source: "LoadedSource") -> bool:
        return True

    def plan(self, request: ConversionRequest) -> WritePlan:
        from .._loaded_source import ModelPayload

        dropped = request.dropped_by_plain_keras(self._not_read_by_plain_keras(request))
        payload = ModelPayload.of(
            request.source,
            request.target,
            request.encoded,
            with_modules=self.names_modules,
            custom_objects=request.custom_objects,
        )
        return WritePlan([*dropped, *payload.dropped], lambda path: self.write_model(path, payload))

    def write_model(self, path: str, payload: "ModelPayload") -> None:
        """Write a model for a target to a new file.

        Args:
            path: The path of a new file.
            payload: The model for the target.
        """
        raise NotImplementedError

    def _not_read_by_plain_keras(self, request: ConversionRequest) -> Iterator[str]:
        """Yield what ``load_model`` of plain Keras does not restore; measured, see docs/compatibility.md."""
        state, encoded, target = request.source.state, request.encoded, request.target.keras
        assert encoded is not None
        if (state.slots or state.iterations) and not encoded.profile.restores_slots(self.name, encoded.has_wrapper):
            yield (
                f"iterations and slots: {target} reads none from {self.phrase} with such an optimizer; a checkpoint "
                "keeps them"
            )
        if state.loss_scale_state and not encoded.profile.restores_loss_scale(self.name):
            numbers = ", ".join(f"{name} {value:g}" for name, value in state.loss_scale_state.items())
            yield f"the loss scale's state ({numbers}): {target} reads none from {self.phrase}; a checkpoint keeps it"

    def save_run(self, model: Any, folder: str) -> None:
        from ..models import save_model

        save_model(model, os.path.join(folder, self.run_files[0]))

    def resume_run(self, folder: str, context: ResumeContext) -> Any:
        if context.load_model is None:
            return super().resume_run(folder, context)
        return context.load_model(os.path.join(folder, self.run_files[0]))


_built_in: Dict[str, Format] = {}
_registered: Dict[str, Format] = {}


def register_format(codec: Format) -> Format:
    """Add a format. It is tried before those of scalekeeper when a file is detected.

    Args:
        codec: The codec; its ``name`` and ``endings`` must be free.

    Returns:
        The codec.

    Raises:
        NameTakenError: Another format has the name or one of the endings.

    Example:
        >>> from scalekeeper.serialization.formats import Format, format_by_ending, register_format, unregister_format
        >>> class Pickled(Format):
        ...     name, title, phrase, endings = "pickled", "pickled file", "a pickled file", (".pkl",)
        ...     def matches(self, path):
        ...         return path.endswith(".pkl")
        >>> codec = register_format(Pickled())
        >>> format_by_ending("state.pkl") is codec
        True
        >>> unregister_format("pickled")
    """
    if codec.name in _all():
        raise NameTakenError(f"a format {codec.name!r} is registered already: choose another name")
    for ending in codec.endings:
        if any(ending in other.endings for other in formats()):
            raise NameTakenError(f"the ending {ending!r} belongs to another format: choose another one")
    _registered[codec.name] = codec
    return codec


def unregister_format(name: str) -> None:
    """Remove a format that was added with :func:`register_format`.

    Args:
        name: The name of the format.

    Example:
        >>> from scalekeeper.serialization.formats import Format, register_format, unregister_format
        >>> class Pickled(Format):
        ...     name, title, phrase, endings = "pickled", "pickled file", "a pickled file", (".pkl",)
        >>> codec = register_format(Pickled())
        >>> unregister_format("pickled")
    """
    del _registered[name]


def formats() -> Tuple[Format, ...]:
    """Return all formats.

    Returns:
        The formats of scalekeeper, then those that were added.

    Example:
        >>> from scalekeeper.serialization.formats import formats
        >>> [codec.name for codec in formats()]
        ['h5', 'keras', 'saved_model', 'checkpoint', 'npz', 'config']
    """
    return tuple(_all().values())


def _all() -> Dict[str, Format]:
    """Return all formats by name. The codecs of this package are imported on first use."""
    if not _built_in:
        from . import checkpoint, config_json, h5, keras_zip, npz, saved_model

        modules = (h5, keras_zip, saved_model, checkpoint, npz, config_json)
        _built_in.update({module.CODEC.name: module.CODEC for module in modules})  # at once: threads may wait for it
    return {**_built_in, **_registered}


def format_by_name(name: Any) -> Format:
    """Return the format of a name.

    Args:
        name: The name.

    Returns:
        The format.

    Raises:
        ConversionError: There is no such format.

    Example:
        >>> from scalekeeper.serialization.formats import format_by_name
        >>> format_by_name("h5").title
        'H5 file'
    """
    found = _all().get(name) if isinstance(name, str) else None
    if found is None:
        raise ConversionError(unknown_name("format", name, list(_all())))
    return found


def format_by_ending(path: str) -> Optional[Format]:
    """Return the format that the name of a file ends with; None if no format has such an ending.

    Args:
        path: The path, which need not exist.

    Returns:
        The format.

    Example:
        >>> from scalekeeper.serialization.formats import format_by_ending
        >>> format_by_ending("model.keras").name
        'keras'
    """
    ending = _ending(path)
    return next((codec for codec in formats() if ending in codec.endings), None)


def _ending(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def detect(path: Any) -> Optional[Format]:
    """Return the format of a file, SavedModel or checkpoint, judged by what is inside and not by its name.

    Args:
        path: The path of a file or folder.

    Returns:
        The format; None for text of another kind, which may be a document.

    Raises:
        MissingFileError: There is nothing at the path.
        UnreadableFileError: No format matches.

    Example:
        >>> from scalekeeper.serialization.formats import detect
        >>> print(detect("examples/train.yaml"))
        None
    """
    path = os.fsdecode(path)
    for codec in sorted(formats(), key=lambda codec: codec.name in _built_in):
        if codec.matches(path):
            return codec
    if os.path.isdir(path):
        raise MissingFileError(
            f"{path}: a folder that is not a SavedModel and has no checkpoint; give the path of a file in it"
        )
    if not os.path.isfile(path):
        raise MissingFileError(f"{path}: no such file, SavedModel or checkpoint")
    if zipfile.is_zipfile(path):
        raise UnreadableFileError(f"{path}: a zip file with neither a Keras model nor a scalekeeper record in it")
    if _is_text(path):
        return None
    raise UnreadableFileError(no_known_format(path))


def _is_text(path: str) -> bool:
    with open(path, "rb") as stream:
        return b"\0" not in stream.read(4096)


def no_known_format(path: Any) -> str:
    """Return the message for a file of no format."""
    path = os.fsdecode(path)
    if os.path.getsize(path) == 0:
        return f"{path}: the file is empty; was it cut off when it was written?"
    what = "a text file" if _is_text(path) else "unknown format"
    return f"{path}: {what}; expected one of: {known_titles()}"


def known_titles(codecs: Optional[Sequence[Format]] = None) -> str:
    """Return the titles of formats as a list for people."""
    return ", ".join(codec.title for codec in codecs or formats())


def read(path: Any, class_name: Optional[str] = None, model: Optional[ModelInCode] = None) -> "TrainingState":
    """Return what a file of any format holds.

    Args:
        path: A file, SavedModel or checkpoint.
        class_name: The class of the inner optimizer, if the caller knows it. A checkpoint does not store it.
        model: The model to read, where a file may hold several.

    Returns:
        The training state. Arrays stay in the file until they are read.

    Raises:
        MissingFileError: There is nothing at the path.
        UnreadableFileError: No format matches, or the file is corrupt.

    Example:
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> from scalekeeper.serialization.formats import read
        >>> optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1))
        >>> scalekeeper.save_state(optimizer, "state.npz")
        >>> state = read("state.npz")
        >>> int(state.iterations), state.slots
        (0, {})
    """
    codec = detect(path)
    if codec is None:
        raise UnreadableFileError(no_known_format(path))
    if model is not None:
        return codec.read_for(os.fspath(path), class_name, model)
    return codec.read(os.fspath(path), class_name)
