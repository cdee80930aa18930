"""What the codecs of whole models share: H5, .keras and SavedModel, which Keras writes and ``load_model`` reads."""

from typing import Any, Iterator

import os

from .._conversion.loaded_source import LoadedSource, ModelPayload
from .._conversion.plain_keras import dropped_by_plain_keras
from . import ConversionRequest, Format, ResumeContext, WritePlan


class WholeModelFormat(Format):
    """The codec of a format that holds layers, weights and optimizer."""

    holds_layers = True
    names_modules = False  # whether Keras 2 writes the module of each class into the configurations
    written_by = "save_model"
    loaded_by = "load_model"

    def needs_model(self, source: LoadedSource) -> bool:
        return True

    def plan(self, request: ConversionRequest) -> WritePlan:
        dropped = dropped_by_plain_keras(request, self._not_read_by_plain_keras(request))
        payload = ModelPayload.of(
            request.source,
            request.target,
            request.encoded,
            with_modules=self.names_modules,
            custom_objects=request.custom_objects,
        )
        return WritePlan([*dropped, *payload.dropped], lambda path: self.write_model(path, payload))

    def write_model(self, path: str, payload: ModelPayload) -> None:
        """Write a model for a target to a new file."""
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
