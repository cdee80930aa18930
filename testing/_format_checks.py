"""Checks of the state in every format: a small model is saved and loaded for real, and training continues."""

from typing import Any, Callable, List

import tempfile
import warnings

import numpy as np

from ..lossscales.contract import has_pure_step
from ..registry.errors import ForgottenScalingWarning
from ..serialization import formats
from ..serialization._keras_introspection import installed_keras
from ._check import Check, NotRun, check, require
from ._steps import BAD, state_of
from ._subject import Subject

# after what was loaded: good steps, bad ones alone and in a row, and good ones
_AFTER = (1.0, BAD[0], 2.0, BAD[1], BAD[2], 1.0, 0.5, 0.0, 3.0)
_LONG = 60  # steps to move a scale in TensorFlow's style


@check(tensorflow=True)
def state_in_state_dict(subject: Subject) -> None:
    """A changed state is restored by the optimizer's state_dict, and training continues as if uninterrupted."""

    def resume(model: Any, folder: str) -> Any:
        other = _model(subject.make())
        other.set_weights(model.get_weights())
        other.optimizer.load_state_dict(model.optimizer.state_dict(), other.trainable_variables)
        return other

    _goes_on(subject, resume, "state_dict and load_state_dict")


def format_checks() -> List[Check]:
    """Return one check for each format that holds state; those of the optimizer's state alone come first."""
    return [_check_of(codec) for codec in codecs_with_state()]


def codecs_with_state() -> List[formats.Format]:
    """Return the codecs of formats that hold state; those of the optimizer's state alone come first."""
    codecs = [codec for codec in formats.formats() if codec.holds_state]
    return sorted(codecs, key=lambda codec: codec.holds_weights)


def require_can_save(codec: formats.Format) -> None:
    """End a check that the installed Keras cannot run."""
    if not codec.can_save(installed_keras()):
        raise NotRun(f"the installed Keras cannot save a model as {codec.phrase} and train it further")


def _check_of(codec: formats.Format) -> Check:
    def function(subject: Subject) -> None:
        require_can_save(codec)
        _goes_on(subject, lambda model, folder: _resumed(subject, codec, model, folder), codec.phrase)

    sentence = (
        f"A changed state is restored from {codec.phrase} of {codec.written_by}, and training continues as if "
        "uninterrupted."
    )
    return Check(f"state_in_{codec.name}", sentence, function, needs_tensorflow=True)


def _resumed(subject: Subject, codec: formats.Format, model: Any, folder: str) -> Any:
    """Save a model in a format, and return another one that continues from the files."""
    from ..optimizer import load_model

    def load(path: str) -> Any:
        return load_model(path, custom_objects={subject.cls.__name__: subject.cls})

    codec.save_run(model, folder)
    return codec.resume_run(folder, formats.ResumeContext(_optimizer(subject.make()), _compiled_and_built, load))


def _compiled_and_built(optimizer: Any) -> Any:
    """Return a model whose optimizer has all its variables: a checkpoint is restored into existing ones."""
    model = _compiled(optimizer)
    _step(model, 0.0)
    return model


def _goes_on(subject: Subject, again: Callable[[Any, str], Any], where: str) -> None:
    """Save a model whose policy has moved, load it, and take the same steps with both."""
    policy = _moved(subject)
    model = _model(policy)
    _step(model, 1.0)
    before = state_of(policy)
    with tempfile.TemporaryDirectory() as folder:
        other = again(model, folder)
    loaded = other.optimizer.loss_scale
    require(
        type(loaded) is subject.cls and loaded.get_config() == policy.get_config(),
        f"{policy!r} was saved, and {loaded!r} came back from {where}",
        "See to config_round_trip and json_round_trip first: a file holds the class by its name, and the configuration",
    )
    remedy = (
        "See to state_round_trip first, and leave load_state and move_state to LossScale: they write the variables "
        "of the optimizer"
        if has_pure_step(policy)
        else "Keep every tf.Variable in an attribute of its own, or write the pure step, whose state is in every format"
    )
    require(
        state_of(loaded) == before,
        f"the state {before} was saved, and {state_of(loaded)} came back from {where}",
        remedy,
    )
    for number, gradient in enumerate(_AFTER):
        found = [_after_step(each, gradient) for each in (model, other)]
        require(
            found[0] == found[1],
            f"step {number} after {where} gives {found[1]}, and {found[0]} without it",
            remedy,
        )


def _moved(subject: Subject) -> Any:
    policy = subject.make()
    if subject.is_pure:
        policy.load_state(subject.moved_state())
        return policy
    start = float(policy())
    for gradient in subject.gradients(_LONG):
        policy.update([gradient])
        if float(policy()) != start:
            return policy
    raise NotRun(f"no step of {_LONG} changes the scale, so nothing would show that it is lost")


def _model(policy: Any) -> Any:
    return _compiled(_optimizer(policy))


def _optimizer(policy: Any) -> Any:
    from ..optimizer import LossScaleOptimizer

    return LossScaleOptimizer(installed_keras().optimizers.SGD(0.125), policy)


def _compiled(optimizer: Any) -> Any:
    keras = installed_keras()
    inputs = keras.Input((1,), name="inputs")
    model = keras.Model(inputs, keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", name="dense")(inputs))
    model.compile(optimizer, "mse")
    return model


def _step(model: Any, gradient: float) -> None:
    import tensorflow as tf

    (variable,) = model.trainable_variables
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ForgottenScalingWarning)  # there is no loss to scale
        model.optimizer.apply_gradients([(tf.constant([[gradient]], tf.float32), variable)])


def _after_step(model: Any, gradient: float) -> List[str]:
    """State and weight after a step, as text."""
    _step(model, gradient)
    weight = np.asarray(model.trainable_variables[0].numpy()).item()
    return [str(state_of(model.optimizer.loss_scale)), f"weight {weight!r}"]
