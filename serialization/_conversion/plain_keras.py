"""What plain Keras, without scalekeeper, would leave out of a converted file."""

from typing import Iterable, Iterator, List

from ..formats import ConversionRequest
from .loaded_source import LoadedSource

_COUNTING = {"hold": "do not count", "advance": "count"}


def dropped_by_plain_keras(request: ConversionRequest, by_format: Iterable[str] = ()) -> List[str]:
    """Return what plain Keras leaves out, in sentences; empty if scalekeeper is beside the target.

    Args:
        request: The conversion.
        by_format: What plain Keras does not read from the format.
    """
    if not request.target.is_plain:
        return []
    encoded = request.encoded
    return [*(() if encoded is None else encoded.dropped), *by_format, *_skip_behavior(request)]


def _skip_behavior(request: ConversionRequest) -> Iterator[str]:
    source, native = request.source, request.target.keras.skipped_steps
    if _may_skip(source) and source.state.skipped_steps not in (None, native):
        yield (
            f"that skipped steps {_COUNTING[str(source.state.skipped_steps)]} in iterations: with "
            f"{request.target.keras} they {_COUNTING[str(native)]}"
        )


def _may_skip(source: LoadedSource) -> bool:
    """Return whether the policy skips steps; a fixed one has no state and skips none."""
    policy = None if source.declaration is None else source.declaration.policy
    return bool(source.state.loss_scale_state) or (policy is not None and policy["class_name"] != "FixedLossScale")
