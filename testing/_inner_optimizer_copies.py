"""Checks of copies of an inner optimizer, and of its state in every format."""

from typing import Any, Callable, List, Tuple

import copy
import os
import pickle
import tempfile

import numpy as np

from ..registry.errors import ScalekeeperError
from ..serialization import formats
from ._check import Check, Refused, check, require
from ._format_checks import codecs_with_state, require_can_save
from ._inner_optimizer import Gradients, InnerOptimizer, Training, bad, gradients_of_steps, new_model, through_json
from ._optimizer_variables import Numbers, difference, fill_with_unique_numbers, identity, owner_names

_REMEDY = (
    "Keep every variable in an attribute, a list or a mapping of the optimizer, and return every argument in get_config"
)
_BEFORE = gradients_of_steps(3, seed=8)
# what Python and Keras raise for a class or an object that they cannot pickle or describe
_REFUSALS = (ScalekeeperError, pickle.PicklingError, NotImplementedError)


@check(tensorflow=True)
def from_config(subject: InnerOptimizer) -> None:
    """from_config makes the same optimizer of what get_config returned, also after JSON, or an error refuses it."""
    from ..optimizer import LossScaleOptimizer

    model = new_model()
    training = Training(subject.wrapped(model), model)
    config = _or_refused(lambda: through_json(training.optimizer.get_config()))
    twin = _or_refused(lambda: LossScaleOptimizer.from_config(config, subject.custom_objects()))
    require(
        type(twin.inner_optimizer) is type(training.inner),
        "from_config made {1} of the configuration of {0}".format(*_classes(training.inner, twin.inner_optimizer)),
        "Write from_config as a classmethod that returns cls(**config)",
    )
    other = Training(twin, new_model())
    for number, gradients in enumerate(_after()):
        training.step(gradients)
        other.step(gradients)
        found = difference(training.numbers(), other.numbers())
        require(not found, f"at step {number} of an optimizer that from_config made, {found}", _REMEDY)


@check(tensorflow=True)
def deep_copy(subject: InnerOptimizer) -> None:
    """copy.deepcopy copies every variable, however deep, and the copy continues alike; or an error refuses it."""
    training = _filled(subject)
    before = training.numbers()
    twin = _or_refused(lambda: copy.deepcopy(training.optimizer))
    found = difference(before, Training(twin, training.model, is_traced=False).numbers(), is_loaded=True)
    require(not found, f"in a copy of copy.deepcopy, {found}", _REMEDY)
    _require_same_steps(training, twin, before, "copy.deepcopy")


@check(tensorflow=True)
def pickled(subject: InnerOptimizer) -> None:
    """pickle copies every variable, however deep, and the copy continues alike; or an error refuses it."""
    training = _filled(subject)
    before = training.numbers()
    twin = _or_refused(lambda: pickle.loads(_pickled(training.optimizer)))
    _require_same_steps(training, twin, before, "pickle")


def _pickled(optimizer: Any) -> bytes:
    try:
        return pickle.dumps(optimizer)
    except (AttributeError, TypeError) as error:  # what Python raises for a function or a local class
        if "pickle" not in str(error):
            raise
        raise pickle.PicklingError(str(error)) from None


def _classes(first: Any, second: Any) -> Tuple[str, str]:
    """Return what to call the classes of two optimizers; a wrapper may have the name of the class that it wraps."""
    name, other = (type(each).__name__ for each in (first, second))
    return f"a {name}", f"a {other}" if name != other else f"an optimizer of another class with the name {other}"


def _require_same_steps(training: Training, twin: Any, before: Numbers, where: str) -> None:
    """Require that an optimizer and its copy take the same steps from the same weights."""
    results = []
    for optimizer in (training.optimizer, twin):
        for weight in training.model.weights:
            weight.assign(before[_name_of(weight, training.model)])
        each = Training(optimizer, training.model)
        found = []
        for gradients in _after():
            each.step(gradients)
            found.append(each.numbers())
        results.append(found)
    for number, (one, other) in enumerate(zip(*results)):
        found_difference = difference(one, other)
        require(not found_difference, f"at step {number} of a copy of {where}, {found_difference}", _REMEDY)


def _name_of(weight: Any, model: Any) -> str:
    return owner_names(model)[identity(weight)]


def state_checks() -> List[Check]:
    """Return the checks of ``state_dict`` and of each format that holds state."""
    return [state_in_state_dict, *map(_check_of, codecs_with_state())]


@check(tensorflow=True)
def state_in_state_dict(subject: InnerOptimizer) -> None:
    """Every variable, however deep, comes back through state_dict, and training continues to the bit; or is refused."""

    def resume(training: Training, folder: str) -> Any:
        model, optimizer = _compiled(subject)
        for weight, other in zip(model.weights, training.model.weights):
            weight.assign(np.array(other.numpy()))
        optimizer.load_state_dict(training.optimizer.state_dict(), model.trainable_variables)
        return model

    _require_continues(subject, resume, "state_dict and load_state_dict")


def _check_of(codec: formats.Format) -> Check:
    def function(subject: InnerOptimizer) -> None:
        require_can_save(codec)
        resume = _resumed if codec.holds_layers or not codec.holds_weights else _restored
        _require_continues(subject, lambda training, folder: resume(subject, codec, training, folder), codec.phrase)

    sentence = (
        f"Every variable, however deep, comes back from {codec.phrase}, and training continues to the bit; or an error "
        "refuses it."
    )
    return Check(f"state_in_{codec.name}", sentence, function, needs_tensorflow=True)


def _restored(subject: InnerOptimizer, codec: formats.Format, training: Training, folder: str) -> Any:
    """Resume as TensorFlow restores a checkpoint; if it lacks a variable, ``scalekeeper.restore`` has to refuse it."""
    from ..optimizer import restore

    before = training.numbers()
    model = _resumed(subject, codec, training, folder)
    found = difference(before, Training(model.optimizer, model, is_traced=False).numbers(), is_loaded=True)
    if found:
        try:
            restore(model, os.path.join(folder, *codec.run_files))
        except ScalekeeperError as error:
            raise Refused(
                f"TensorFlow does not put every variable into a checkpoint ({found}), and scalekeeper.restore refuses "
                f"it: {_short(error)}"
            ) from None
    return model


def _resumed(subject: InnerOptimizer, codec: formats.Format, training: Training, folder: str) -> Any:
    """Save a model in a format, and return another one that continues from the files."""
    from ..optimizer import load_model

    codec.save_run(training.model, folder)
    model, optimizer = _compiled(subject)

    def compile_model(optimizer: Any) -> Any:
        # a checkpoint is restored into variables that exist
        Training(optimizer, model, is_traced=False).step([np.zeros_like(each) for each in _BEFORE[0]])
        return model

    def load(path: str) -> Any:
        return load_model(path, custom_objects=subject.custom_objects())

    return codec.resume_run(folder, formats.ResumeContext(optimizer, compile_model, load))


def _compiled(subject: InnerOptimizer) -> Tuple[Any, Any]:
    model = new_model()
    optimizer = subject.wrapped(model)
    model.compile(optimizer, "mse")
    return model, optimizer


def _filled(subject: InnerOptimizer) -> Training:
    """Return a training after some steps, in which every weight and variable has numbers of its own."""
    model, optimizer = _compiled(subject)
    training = Training(optimizer, model)
    for gradients in (*_BEFORE, bad(_BEFORE[0], np.inf)):
        training.step(gradients)
    fill_with_unique_numbers(training.inner, model)
    return training


def _after() -> List[Gradients]:
    """Return the gradients of the steps after what was loaded."""
    steps = gradients_of_steps(6, seed=9)
    return [*steps[:2], bad(steps[0], np.nan), *steps[2:]]


def _require_continues(subject: InnerOptimizer, resume: Callable[[Training, str], Any], where: str) -> None:
    """Save a training, load it, and take the same steps with both."""
    training = _filled(subject)
    before, scale = training.numbers(), training.optimizer.loss_scale.state()
    with tempfile.TemporaryDirectory() as folder:
        model = _or_refused(lambda: resume(training, folder))
    other = Training(model.optimizer, model)
    require(
        type(other.inner) is type(training.inner),
        "{} was saved, and {} came back from {}".format(*_classes(training.inner, other.inner), where),
        "See to from_config first: a file holds the class by its name, and the configuration",
    )
    found = difference(before, other.numbers(), is_loaded=True)
    require(not found, f"what came back from {where} differs: {found}", _REMEDY)
    require(
        model.optimizer.loss_scale.state() == scale,
        f"the loss scale was {scale}, and is {model.optimizer.loss_scale.state()} after {where}",
        "Leave the loss scale to the LossScaleOptimizer",
    )
    for number, gradients in enumerate(_after()):
        training.step(gradients)
        other.step(gradients)
        found = difference(training.numbers(), other.numbers())
        require(not found, f"at step {number} after {where}, {found}", _REMEDY)


def _or_refused(run: Callable[[], Any]) -> Any:
    """Return what a function returns, or end the check if an error refuses what it asks for."""
    try:
        return run()
    except _REFUSALS as error:
        raise Refused(_short(error)) from None


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
