"""Checks of the state in every way of saving: a small model is saved and loaded for real, and goes on."""

from typing import Any, Callable, List

import os
import tempfile

import numpy as np

from ..lossscales.contract import has_pure_step
from ..serialization._keras_introspection import installed_keras, is_keras_3
from ._check import NotRun, check, require
from ._steps import BAD, state_of
from ._subject import Subject

# after what was loaded: good steps, bad ones alone and in a row, and good ones
_AFTER = (1.0, BAD[0], 2.0, BAD[1], BAD[2], 1.0, 0.5, 0.0, 3.0)
_LONG = 60  # steps to move a scale in TensorFlow's style


@check(tensorflow=True)
def state_in_state_dict(subject: Subject) -> None:
    """A moved state comes back through the optimizer's state_dict, and training goes on as if uninterrupted."""

    def again(model: Any, folder: str) -> Any:
        return _with_state(subject, model, model.optimizer.state_dict())

    _goes_on(subject, again, "state_dict and load_state_dict")


@check(tensorflow=True)
def state_in_npz(subject: Subject) -> None:
    """A moved state comes back from save_state's .npz file, and training goes on as if uninterrupted."""
    from ..serialization import read_state, save_state

    def again(model: Any, folder: str) -> Any:
        path = os.path.join(folder, "state.npz")
        save_state(model.optimizer, path)
        return _with_state(subject, model, read_state(path))

    _goes_on(subject, again, "an .npz file")


@check(tensorflow=True)
def state_in_h5(subject: Subject) -> None:
    """A moved state comes back from an H5 file of save_model, and training goes on as if uninterrupted."""
    _goes_on(subject, _saved_as(subject, "model.h5"), "an H5 file")


@check(tensorflow=True)
def state_in_keras(subject: Subject) -> None:
    """A moved state comes back from a .keras file of save_model, and training goes on as if uninterrupted."""
    _goes_on(subject, _saved_as(subject, "model.keras"), "a .keras file")


@check(tensorflow=True)
def state_in_saved_model(subject: Subject) -> None:
    """A moved state comes back from a SavedModel of save_model, and training goes on as if uninterrupted."""
    if is_keras_3(installed_keras()):
        raise NotRun("the installed Keras has no SavedModel that can be trained on")
    _goes_on(subject, _saved_as(subject, "model"), "a SavedModel")


@check(tensorflow=True)
def state_in_checkpoint(subject: Subject) -> None:
    """A moved state comes back from a plain tf.train.Checkpoint, and training goes on as if uninterrupted."""
    import tensorflow as tf

    def again(model: Any, folder: str) -> Any:
        prefix = os.path.join(folder, "checkpoint")
        path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(prefix)
        other = _model(subject.make())
        _step(other, 0.0)
        tf.train.Checkpoint(model=other, optimizer=other.optimizer).restore(path)
        return other

    _goes_on(subject, again, "a checkpoint")


def _with_state(subject: Subject, model: Any, state: Any) -> Any:
    """A new model with the weights of another, and an optimizer that goes on from a state."""
    other = _model(subject.make())
    other.set_weights(model.get_weights())
    other.optimizer.load_state_dict(state, other.trainable_variables)
    return other


def _saved_as(subject: Subject, name: str) -> Callable[[Any, str], Any]:
    from ..serialization import load_model, save_model

    def again(model: Any, folder: str) -> Any:
        path = os.path.join(folder, name)
        save_model(model, path)
        return load_model(path, custom_objects={subject.cls.__name__: subject.cls})

    return again


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
    from ..optimizer import LossScaleOptimizer

    keras = installed_keras()
    inputs = keras.Input((1,), name="inputs")
    model = keras.Model(inputs, keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", name="dense")(inputs))
    model.compile(LossScaleOptimizer(keras.optimizers.SGD(0.125), policy), "mse")
    return model


def _step(model: Any, gradient: float) -> None:
    import tensorflow as tf

    (variable,) = model.trainable_variables
    model.optimizer.apply_gradients([(tf.constant([[gradient]], tf.float32), variable)])


def _after_step(model: Any, gradient: float) -> List[str]:
    """State and weight after a step, as text."""
    _step(model, gradient)
    weight = np.asarray(model.trainable_variables[0].numpy()).item()
    return [str(state_of(model.optimizer.loss_scale)), f"weight {weight!r}"]
