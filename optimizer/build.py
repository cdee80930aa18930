"""From a document to an optimizer."""

from typing import TYPE_CHECKING, Any, Iterable, Mapping, Union

import importlib

from ..registry._documents import load_document
from ..registry._optimizer_spec import OptimizerSpec

if TYPE_CHECKING:
    import os


def build(document: "Union[str, os.PathLike[str], Mapping[str, Any]]", *, allow: Iterable[str] = ()) -> Any:
    """Make the :class:`LossScaleOptimizer` that a document describes, with the installed TensorFlow.

    The document, a YAML or JSON file or a mapping, is checked first, before TensorFlow is imported.
    """
    checked = load_document(document, allow=allow)
    wrapper: Any = importlib.import_module(__package__).LossScaleOptimizer
    options = checked.monitoring.said()
    return wrapper(_made(checked.optimizer), checked.loss_scale, checked.skipped_steps, **options)


def _made(spec: OptimizerSpec) -> Any:
    """The Keras object of a checked specification, with the schedule that may be among its arguments."""
    found: Any = importlib.import_module("tensorflow").keras
    for part in spec.class_path.split("."):
        found = getattr(found, part)
    arguments = {
        name: _made(value) if isinstance(value, OptimizerSpec) else value for name, value in spec.arguments.items()
    }
    return found(**arguments)
