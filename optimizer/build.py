"""Build an optimizer from a document."""

from typing import TYPE_CHECKING, Any, Iterable, Mapping, Union

from ..registry._documents import load_document
from ..registry._optimizer_spec import OptimizerSpec

if TYPE_CHECKING:
    import os

__all__ = ["build"]


def build(
    document: "Union[str, os.PathLike[str], Mapping[str, Any]]",
    *,
    allow: Iterable[str] = (),
    overrides: Iterable[str] = (),
    allow_include: "Iterable[Union[str, os.PathLike[str]]]" = (),
    allow_env: Iterable[str] = (),
) -> Any:
    """Create the :class:`LossScaleOptimizer` that a document describes, with the installed TensorFlow.

    The document is checked before TensorFlow is imported.

    Args:
        document: A YAML or JSON file, or a mapping.
        allow: Import paths of policies that the document may name.
        overrides: Changes, in order: ``loss_scale.increment_period=100`` sets a value, ``~loss_scale.maximum`` deletes
            one.
        allow_include: Folders from which the document may include files, besides its own.
        allow_env: Environment variables that the document may refer to.

    Returns:
        The optimizer.

    Raises:
        DocumentError: If the document or an override is not valid.

    Example:
        >>> import scalekeeper
        >>> import tensorflow as tf
        >>> optimizer = scalekeeper.build({"optimizer": "sgd", "loss_scale": 128})
        >>> float(optimizer.loss_scale)
        128.0
        >>> optimizer = scalekeeper.build("examples/train.yaml", overrides=["optimizer.learning_rate=1e-4"])
        >>> round(float(optimizer.lr.numpy()), 6)
        0.0001
    """
    checked = load_document(
        document, allow=allow, overrides=overrides, allow_include=allow_include, allow_env=allow_env
    )
    from . import LossScaleOptimizer

    inner = _keras_object(checked.optimizer)
    return LossScaleOptimizer(inner, checked.loss_scale, checked.skipped_steps, **checked.monitoring.said())


def _keras_object(spec: OptimizerSpec) -> Any:
    """Create the optimizer or learning-rate schedule of a checked spec."""
    import tensorflow as tf

    found: Any = tf.keras
    for part in spec.class_path.split("."):
        found = getattr(found, part)
    return found(
        **{
            name: _keras_object(value) if isinstance(value, OptimizerSpec) else value
            for name, value in spec.arguments.items()
        }
    )
