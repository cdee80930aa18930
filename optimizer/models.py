"""Functions on files that need an optimizer: to load, save, restore and convert models.

They hand the optimizer to ``scalekeeper.serialization``, which does the work and does not import this package.
"""

from typing import TYPE_CHECKING, Any, Callable, List, Mapping, Optional

from .. import serialization as serialization  # whole, before a part of it: docs/architecture.md
from ..serialization.models import save_model as save_model
from ..serialization.optimizer_adapter import provide_adapters
from ..serialization.restore import restore as restore

if TYPE_CHECKING:
    from ..serialization.conversion import Conversion, Outcome
    from ..serialization.optimizer_adapter import OptimizerAdapter
    from ..serialization.verification import Verification


def _make_optimizer(config: Mapping[str, Any], custom_objects: Optional[Mapping[str, Any]]) -> Any:
    from .. import optimizer

    optimizer_class: Any = optimizer.LossScaleOptimizer
    if "class_name" in config:  # without a loss scale
        from ._keras.bare_optimizer import create_bare_optimizer

        return create_bare_optimizer(config, custom_objects or {})
    return optimizer_class.from_config(config, custom_objects)


def _state_adapter(model: Any) -> "Optional[OptimizerAdapter]":
    from .. import optimizer

    _ = optimizer.LossScaleOptimizer  # imports TensorFlow, or says that it cannot
    from ._keras.bare_optimizer import state_adapter

    return state_adapter(model)


provide_adapters(_state_adapter)


def load_model(
    path: Any,
    custom_objects: Optional[Mapping[str, Any]] = None,
    compile: bool = True,
    *,
    allow_partial: bool = False,
    probe: bool = True,
) -> Any:
    """Load a model and its training state from a file that any TensorFlow wrote.

    The optimizer is a :class:`LossScaleOptimizer` with the policy, loss scale, counters, iterations and slots of the
    file. For a file without a loss scale it is the bare optimizer, with its state.

    Args:
        path: An H5 file, a SavedModel or a ``.keras`` file.
        custom_objects: Classes by name: layers, losses, and policies that are not registered.
        compile: Whether to compile the model.
        allow_partial: Whether the model may have variables that the file has no values for.
        probe: Whether to call the model and compare what it computes with the probe that :func:`save_model` recorded.

    Returns:
        The model. If the file lacks a part of the optimizer's state, an :class:`IncompleteRestoreWarning` tells which.

    Raises:
        IncompleteRestoreError: The file has no value for a variable of the model, or slots for some variables only.
        ModelDiffersError: The model computes something else than the model that was saved.
        UnreadableFileError: The file holds no model, is corrupt, or the installed Keras cannot rebuild its model.
        MissingFileError: There is no such file.

    Example:
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
        >>> model.compile(scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1), 1024), "mse")
        >>> scalekeeper.save_model(model, "model.h5")
        >>> scalekeeper.load_model("model.h5").optimizer.loss_scale
        FixedLossScale(1024.0)
    """
    from ..serialization import models

    return models.load_model(
        path,
        custom_objects,
        compile,
        allow_partial=allow_partial,
        probe=probe,
        make_optimizer=_make_optimizer,
    )


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
    probe: bool = True,
) -> "Conversion":
    """Convert a file to another format or for another TensorFlow.

    The source is only read. The destination is written atomically.

    Args:
        source: A file, SavedModel or checkpoint.
        destination: The path to write.
        to: The target: ``2.0`` … ``2.21``, ``tf_keras`` or ``keras3``. With ``-plain`` appended, or ``plain`` alone
            for the installed TensorFlow, the file is for Keras without scalekeeper. Default: the installed TensorFlow.
        format: The destination's format: h5, keras, saved_model, checkpoint, npz or config. Default: by its ending.
        allow_loss: Whether to convert even if something is dropped.
        force: Whether to replace an existing destination.
        dry_run: Whether to only report what would be done.
        custom_objects: Classes of the model by name.
        probe: Whether to call the model that is built for the conversion, and the written one if it is for the
            installed TensorFlow, and compare what they compute with the probe of the source.

    Returns:
        The report: the steps of the conversion, and the state that it dropped.

    Raises:
        ModelDiffersError: The converted model computes something else.
        LossyConversionError: Something would be dropped, and ``allow_loss`` is not given.
        DestinationExistsError: The destination exists, and ``force`` is not given.
        ConversionError: The source cannot become what was asked for.
        UnreadableFileError: The source is corrupt or has an unknown format.

    Example:
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
        >>> model.compile(scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1)), "mse")
        >>> scalekeeper.save_model(model, "model.h5", probe=False)
        >>> scalekeeper.convert("model.h5", "model-2.0.h5", "2.0", force=True).dropped
        []
    """
    from ..serialization import conversion

    return conversion.convert(
        source,
        destination,
        to,
        make_optimizer=_make_optimizer,
        format=format,
        allow_loss=allow_loss,
        force=force,
        dry_run=dry_run,
        custom_objects=custom_objects,
        probe=probe,
    )


def verify(
    first: Any,
    second: Any,
    *,
    tolerance: float = 0.0,
    outputs: bool = True,
    custom_objects: Optional[Mapping[str, Any]] = None,
) -> "Verification":
    """Compare two files: a file and its conversion, or two saved models.

    Configuration, weights, slots, iterations and loss scale are compared, and what the models compute if the installed
    Keras can build both. Without TensorFlow, everything else is compared.

    Args:
        first: A file, SavedModel or checkpoint.
        second: Another one; it may have another format, and come from another TensorFlow.
        tolerance: The largest difference of weights and slots that is not reported.
        outputs: Whether to build the models and compare what they compute.
        custom_objects: Classes of the model by name.

    Returns:
        The comparison, with each difference by name; ``equal`` is the verdict.

    Raises:
        UnreadableFileError: A file is corrupt or has an unknown format.
        MissingFileError: There is no such file.

    Example:
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1))
        >>> scalekeeper.save_state(optimizer, "state.npz")
        >>> scalekeeper.verify("state.npz", "state.npz").verdict
        'equal'
    """
    from ..serialization import verification

    return verification.verify(
        first,
        second,
        make_optimizer=_make_optimizer,
        tolerance=tolerance,
        outputs=outputs,
        custom_objects=custom_objects,
    )


def convert_folder(
    source: Any,
    destination: Any,
    to: Optional[str] = None,
    *,
    format: Optional[str] = None,
    progress: Optional[Callable[[List[str]], Any]] = None,
    **options: Any,
) -> "List[Outcome]":
    """Convert every file, SavedModel and checkpoint under a folder. A file that fails does not stop the rest.

    Args:
        source: The folder.
        destination: The folder to write to; files keep their relative paths.
        to: The target, as in :func:`convert`.
        format: The format of all destinations. Default: each file keeps its own.
        progress: A function that takes the list of paths and returns an iterable of them, such as a progress bar.
        **options: Other arguments of :func:`convert`.

    Returns:
        The outcome of each file: a conversion or an error.

    Raises:
        ConversionError: The source is not a folder, or holds nothing that can be converted.

    Example:
        >>> import os
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> os.makedirs("states", exist_ok=True)
        >>> optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1))
        >>> scalekeeper.save_state(optimizer, "states/run.npz")
        >>> outcomes = scalekeeper.convert_folder("states", "converted", "2.3", dry_run=True)
        >>> [outcome.error for outcome in outcomes]
        [None]
    """
    from ..serialization import conversion

    return conversion.convert_folder(
        source, destination, to, make_optimizer=_make_optimizer, format=format, progress=progress, **options
    )
