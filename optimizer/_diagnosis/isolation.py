"""Running training steps of a model that leave the model, its optimizers and all random states as they were."""

from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import contextlib
import functools
import importlib
import inspect
import sys
import threading
import types

import numpy as np
import tensorflow as tf

from ...serialization._keras_introspection import all_layers, is_model, is_user_class
from ...serialization._variables import assign_all, values_of
from ...serialization.probe import unchanged

_APPLIES = ("apply_gradients", "apply")
_SCALES = ("get_scaled_loss", "scale_loss")
_ASSIGNMENTS = (
    "assign",
    "assign_add",
    "assign_sub",
    "scatter_add",
    "scatter_nd_add",
    "scatter_nd_sub",
    "scatter_nd_update",
    "scatter_sub",
    "scatter_update",
)
_ATTRIBUTES = ("_run_eagerly", "train_function", "train_tf_function", "stop_training")


def optimizers_of(model: Any) -> List[Any]:
    """Return the optimizers of a model and of the models inside it, and those that they wrap.

    They are in attributes, or the functions of the caller's own classes use them by name.
    """
    found: List[Any] = []
    queue = [getattr(model, "optimizer", None)]
    for each in filter(is_model, all_layers(model)):
        queue += [*vars(each).values(), *_used_by_name(type(each))]
    while queue:
        each = queue.pop(0)
        if isinstance(each, (list, tuple)):
            queue += each
        elif isinstance(each, dict):
            queue += each.values()
        elif isinstance(each, (type, types.ModuleType)):
            continue
        elif hasattr(each, "apply_gradients") and not any(each is known for known in found):
            found.append(each)
            queue += [getattr(each, "inner_optimizer", None), getattr(each, "_optimizer", None)]
    return found


def _used_by_name(cls: Any) -> Iterator[Any]:
    """Yield the global variables, and those of functions around, that the functions of a class use."""
    for base in filter(is_user_class, cls.__mro__[:-1]):
        for function in vars(base).values():
            function = getattr(function, "python_function", function)  # of a tf.function
            if inspect.isfunction(function):
                with contextlib.suppress(ValueError):  # a variable that has no value yet
                    variables = inspect.getclosurevars(function)
                    yield from (*variables.nonlocals.values(), *variables.globals.values())


@contextlib.contextmanager
def without_updates(model: Any, loss_scale: Optional[float]) -> Iterator[None]:
    """Let optimizers apply no gradients in the block, and multiply losses by the given loss scale, if any."""
    patched: List[Tuple[Any, Dict[str, Any]]] = []
    try:
        for optimizer in optimizers_of(model):
            replacement = _applying_nothing(optimizer)
            replacements: Dict[str, Any] = {name: replacement for name in _APPLIES if hasattr(optimizer, name)}
            if loss_scale is not None:
                scales = [name for name in _SCALES if hasattr(optimizer, name)]
                replacements.update({name: _scaling(loss_scale) for name in scales})
                if hasattr(optimizer, "get_unscaled_gradients"):
                    replacements["get_unscaled_gradients"] = list
            before = {name: vars(optimizer)[name] for name in replacements if name in vars(optimizer)}
            patched.append((optimizer, {name: before.get(name) for name in replacements}))
            vars(optimizer).update(replacements)
        yield
    finally:
        for optimizer, before in patched:
            for name, value in before.items():
                vars(optimizer).pop(name)
                if value is not None:
                    vars(optimizer)[name] = value


def _applying_nothing(optimizer: Any) -> Callable[..., Any]:
    policy = getattr(optimizer, "_graph_policy", None)  # of a LossScaleOptimizer

    def apply_gradients(*args: Any, return_decision: bool = False, **kwargs: Any) -> Any:
        """Take the arguments of ``apply_gradients`` and apply nothing."""
        if policy is not None:
            policy.in_step(optimizer)  # a step of a SharedLossScale expects it
        return tf.constant(False) if return_decision else None

    return apply_gradients


@contextlib.contextmanager
def data_as_in_fit(model: Any, is_bare: bool) -> Iterator[None]:
    """Give ``train_step`` in the block what ``fit`` gives it; ``train_on_batch`` gives a tuple, in Keras 3 with None.

    Args:
        model: The model.
        is_bare: Whether ``fit`` gives the inputs alone, and not in a tuple.
    """
    train_step = getattr(model, "train_step", None)
    if train_step is None:  # up to 2.1
        yield
        return

    def train_step_of_fit(data: Any) -> Any:
        given = tuple(data)
        while len(given) > 1 and given[-1] is None:
            given = given[:-1]
        return train_step(given[0] if is_bare and len(given) == 1 else given)

    before = dict(vars(model))
    vars(model)["train_step"] = train_step_of_fit
    try:
        yield
    finally:
        del vars(model)["train_step"]
        if "train_step" in before:
            vars(model)["train_step"] = before["train_step"]


def _scaling(loss_scale: float) -> Callable[[Any], Any]:
    def scaled(loss: Any) -> Any:
        return (lambda: tf.cast(loss(), tf.float32) * loss_scale) if callable(loss) else _times(loss, loss_scale)

    return scaled


def _times(loss: Any, loss_scale: float) -> Any:
    return loss if loss_scale == 1 else tf.cast(loss, tf.float32) * loss_scale


@contextlib.contextmanager
def restored(model: Any) -> Iterator[None]:
    """Give variables, random states and attributes of Keras the values that they had before the block."""
    candidates = [*model.variables, *(each for metric in model.metrics for each in metric.variables)]
    for optimizer in optimizers_of(model):
        candidates += variables_of(optimizer)
    candidates += [getattr(model, name) for name in ("_train_counter",) if hasattr(model, name)]
    candidates += [generator.state for generator in _generators_of(model)]
    variables = list({id(each): each for each in candidates if hasattr(each, "assign")}.values())
    before = values_of(variables)
    attributes = {name: vars(model)[name] for name in _ATTRIBUTES if name in vars(model)}
    try:
        with random_states_kept(model), _assignments_undone():
            yield
    finally:
        after = values_of(variables)
        pairs = [(each, old) for each, old, new in zip(variables, before, after) if not _is_same(old, new)]
        assign_all(pairs)
        for name in _ATTRIBUTES:
            if name in attributes:
                vars(model)[name] = attributes[name]
            elif name in vars(model):
                delattr(model, name)


@contextlib.contextmanager
def random_states_kept(model: Any) -> Iterator[None]:
    """Restore the random states of Python, NumPy, TensorFlow and Keras, and what a call of the model changes."""
    with _keras_seeds(), unchanged(model):
        yield


@contextlib.contextmanager
def _assignments_undone() -> Iterator[None]:
    """Give variables that this thread assigns to in the block their values back, whatever they belong to.

    A model does not list all of its variables: the states of a recurrent layer, or those of another object. A variable
    that is created in the block stays as it is.
    """
    base = importlib.import_module("tensorflow.python.ops.resource_variable_ops").BaseResourceVariable
    # some versions repeat the methods in a derived class
    classes = [base, *base.__subclasses__()]
    originals = [(cls, name, vars(cls)[name]) for cls in classes for name in _ASSIGNMENTS if name in vars(cls)]
    before: Dict[int, Tuple[Any, Any]] = {}
    created: List[Any] = []
    thread = threading.get_ident()

    def noting(original: Any) -> Any:
        @functools.wraps(original)
        def assign(self: Any, *args: Any, **kwargs: Any) -> Any:
            is_in_run = threading.get_ident() == thread or hasattr(threading.current_thread(), "replica_id")
            if is_in_run and tf.executing_eagerly() and id(self) not in before:
                before[id(self)] = (self, self.numpy())
            return original(self, *args, **kwargs)

        return assign

    def create(creator: Any, **kwargs: Any) -> Any:
        created.append(creator(**kwargs))
        return created[-1]

    try:
        for cls, name, original in originals:
            setattr(cls, name, noting(original))
        with tf.variable_creator_scope(create):
            yield
    finally:
        for cls, name, original in originals:
            setattr(cls, name, original)
        for each in created:
            before.pop(id(each), None)
        assign_all([pair for pair in before.values() if not _is_same(pair[1], pair[0].numpy())])


def _generators_of(model: Any) -> List[Any]:
    """Return the random generators in the attributes of layers, and TensorFlow's global one if it is in use."""
    cls = getattr(tf.random, "Generator", None) or tf.random.experimental.Generator
    values = [value for layer in all_layers(model) for value in list(vars(layer).values())]
    values = [getattr(value, "_generator", value) for value in values]  # that of Keras has TensorFlow's inside
    values.append(importlib.import_module("tensorflow.python.ops.stateful_random_ops").global_generator)
    return [value for value in values if isinstance(value, cls)]


def _is_same(old: Any, new: Any) -> bool:
    first, second = (np.ascontiguousarray(each).reshape(-1).view(np.uint8) for each in (old, new))  # NaN too
    return np.array_equal(first, second)


def variables_of(optimizer: Any) -> List[Any]:
    """Return the variables that an optimizer has created."""
    try:
        variables = optimizer.variables
        return list(variables() if callable(variables) else variables)
    except AttributeError:  # it has none, or Keras's own class cannot list them
        return []


@contextlib.contextmanager
def _keras_seeds() -> Iterator[None]:
    """Restore the generators from which Keras takes the seeds of random layers, if the installed Keras has them."""
    states: List[Callable[[], None]] = []
    for module in _modules("backend"):
        generator = getattr(getattr(module, "_SEED_GENERATOR", None), "generator", None)
        if generator is not None:
            states.append(_setter(generator.setstate, generator.getstate()))
    for module in _modules("backend.common.global_state"):
        generator = module.get_global_attribute("global_seed_generator")
        if generator is None:
            states.append(_setter(module.set_global_attribute, "global_seed_generator", None))
        else:
            states.append(_setter(generator.state.assign, np.array(generator.state)))
    try:
        yield
    finally:
        for restore in states:
            restore()


def _modules(name: str) -> List[Any]:
    """Return the loaded modules of this name in the packages that Keras has lived in."""
    packages = ("keras", "keras.src", "tf_keras", "tf_keras.src", "tensorflow.python.keras")
    return [sys.modules[f"{package}.{name}"] for package in packages if f"{package}.{name}" in sys.modules]


def _setter(function: Callable[..., Any], *args: Any) -> Callable[[], None]:
    def restore() -> None:
        function(*args)

    return restore


@contextlib.contextmanager
def running_eagerly(model: Any) -> Iterator[None]:
    """Run functions that the program has traced eagerly in the block."""
    setter = getattr(tf.config, "run_functions_eagerly", None) or tf.config.experimental_run_functions_eagerly
    getter: Any = getattr(tf.config, "functions_run_eagerly", None)
    if getter is None:  # up to 2.2
        module = importlib.import_module("tensorflow.python.eager.def_function")
        getter = lambda: module.RUN_FUNCTIONS_EAGERLY  # noqa: E731
    was_eager = getter()
    setter(True)
    try:
        if hasattr(model, "train_on_batch"):
            model.run_eagerly = True
            model.train_function = None  # Keras makes one that is not traced
        yield
    finally:
        setter(was_eager)
