"""The inner optimizer that is checked: a function that makes one, and the trainings that the checks compare."""

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

import inspect
import json

import numpy as np

from ..registry.errors import InvalidSpecError, Problem, shown
from ..serialization._keras_introspection import installed_keras, package_of
from ._optimizer_variables import Numbers, numbers_of, optimizers_in

DYNAMIC = {"name": "dynamic", "initial_loss_scale": 8, "increment_period": 5}  # powers of two, so unscaling is exact
LAYERS = ("first", "second", "third")
_SIZE = 3
_KERAS = ("keras", "tf_keras", "tensorflow", "tensorflow_core")

Gradients = List[Any]


class InnerOptimizer:
    """A function that makes optimizers, as its author passed it.

    Attributes:
        label: The name in reports and test ids.
        exchanges: Returns how many exchanges the optimizers have executed so far; None if that is not known.
    """

    is_pure = True  # no check depends on the pure step of a policy

    def __init__(
        self,
        make_optimizer: Callable[..., Any],
        label: Optional[str] = None,
        exchanges: Optional[Callable[[], int]] = None,
        custom_objects: Optional[Mapping[str, Any]] = None,
    ) -> None:
        is_object = hasattr(make_optimizer, "apply_gradients") and not isinstance(make_optimizer, type)
        if is_object or not callable(make_optimizer):
            message = (
                f"expected a function that returns a new optimizer each time, got {shown(make_optimizer)}: write "
                "lambda: MyOptimizer(…)"
            )
            raise InvalidSpecError([Problem((), message, "not_a_function")])
        self._make = make_optimizer
        self._custom_objects = dict(custom_objects or {})
        self._label = label
        self.exchanges = exchanges

    @property
    def label(self) -> str:
        if self._label is None:
            name = getattr(self._make, "__name__", type(self._make).__name__)
            self._label = type(self.make(new_model())).__name__ if name == "<lambda>" else str(name)
        return self._label

    @property
    def cls(self) -> Any:
        return type(self.make(new_model()))

    def make(self, model: Any) -> Any:
        """Return a new optimizer for a model, which the function gets if it has a parameter for it."""
        optimizer = self._make(model) if _takes_model(self._make) else self._make()
        if not hasattr(optimizer, "apply_gradients"):
            message = f"the function must return a Keras optimizer, and returned {shown(optimizer)}"
            raise InvalidSpecError([Problem((), message, "not_an_optimizer")])
        if hasattr(optimizer, "inner_optimizer"):
            message = f"the function returned a {type(optimizer).__name__}: return its inner optimizer"
            raise InvalidSpecError([Problem((), message, "not_an_inner_optimizer")])
        return optimizer

    def wrapped(self, model: Any, loss_scale: Any = None, skipped_steps: str = "hold") -> Any:
        """Return a new optimizer for a model, with a loss scale."""
        from ..optimizer import LossScaleOptimizer

        return LossScaleOptimizer(self.make(model), DYNAMIC if loss_scale is None else loss_scale, skipped_steps)

    def custom_objects(self) -> Dict[str, Any]:
        """Return the classes by which files name the optimizer and those inside it, unless Keras has them."""
        classes = [type(each) for each in optimizers_in(self.make(new_model()))]
        found = {cls.__name__: cls for cls in classes if package_of(cls) not in _KERAS}
        return {**found, **self._custom_objects}


def _takes_model(make_optimizer: Any) -> bool:
    if isinstance(make_optimizer, type):
        return False
    parameters = inspect.signature(make_optimizer).parameters.values()
    return any(
        each.default is each.empty and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
        for each in parameters
    )


class Training:
    """A small model, and an optimizer that trains it by a loop with ``apply_gradients``.

    Args:
        optimizer: The optimizer, bare or with a loss scale.
        model: The model.
        is_traced: Whether the steps run in a ``tf.function``.
        is_sparse: Whether the gradients of matrices are sparse.
    """

    def __init__(self, optimizer: Any, model: Any, is_traced: bool = True, is_sparse: bool = False) -> None:
        self.optimizer, self.model = optimizer, model
        self._step = _step_of(optimizer, model, is_sparse)
        if is_traced:
            import tensorflow as tf

            self._step = tf.function(self._step)

    @property
    def inner(self) -> Any:
        return getattr(self.optimizer, "inner_optimizer", self.optimizer)

    def step(self, gradients: Gradients) -> None:
        """Take one step with these gradients."""
        import tensorflow as tf

        self._step([tf.constant(each) for each in gradients])

    def numbers(self) -> Numbers:
        """Return the weights of the model and all variables of the inner optimizer."""
        return numbers_of(self.inner, self.model)


def _step_of(optimizer: Any, model: Any, is_sparse: bool) -> Callable[[Sequence[Any]], None]:
    import tensorflow as tf

    from ..optimizer import LossScaleOptimizer
    from ..optimizer._step.control_flow import without_autograph

    is_scaled = isinstance(optimizer, LossScaleOptimizer)
    variables = list(model.trainable_variables)
    tensorflow_variables = [each if callable(each.value) else each.value for each in variables]
    rows = list(range(_SIZE))[::-1] + [0]  # one of them twice

    def product(variable: Any, gradient: Any) -> Any:
        if is_sparse and len(variable.shape) > 1:
            return tf.reduce_sum(tf.gather(variable, rows) * tf.gather(gradient, rows))
        return tf.reduce_sum(variable * gradient)

    @without_autograph
    def loss_of(gradients: Sequence[Any]) -> Any:
        loss = tf.add_n([product(*each) for each in zip(tensorflow_variables, gradients)])
        return optimizer.get_scaled_loss(loss) if is_scaled else loss

    @without_autograph
    def pairs_of(tape: Any, loss: Any) -> Any:
        found = tape.gradient(loss, tensorflow_variables)
        return list(zip(optimizer.get_unscaled_gradients(found) if is_scaled else found, variables))

    def step(gradients: Sequence[Any]) -> None:
        with tf.GradientTape() as tape:
            loss = loss_of(gradients)
        optimizer.apply_gradients(pairs_of(tape, loss))

    return step


def new_model() -> Any:
    """Return a model of equal layers with the same weights each time."""
    keras = installed_keras()
    inputs = keras.Input((_SIZE,), name="inputs")
    outputs = inputs
    for name in LAYERS:
        outputs = keras.layers.Dense(_SIZE, name=name, dtype="float32")(outputs)
    model = keras.Model(inputs, outputs)
    random = np.random.RandomState(5)
    for weight in model.weights:
        weight.assign(random.uniform(-1, 1, weight.shape).astype(np.float32))
    return model


def gradients_of_steps(count: int, seed: int = 3) -> List[Gradients]:
    """Return finite gradients for the variables of the model, of several sizes and with zeros."""
    random = np.random.RandomState(seed)
    shapes = [(_SIZE, _SIZE), (_SIZE,)] * len(LAYERS)
    found = []
    for number in range(count):
        size = 2.0 ** random.randint(-6, 3)
        found.append([(random.uniform(-size, size, shape)).astype(np.float32) for shape in shapes])
        if number % 5 == 4:
            found[-1][1][:] = 0
    return found


def bad(gradients: Gradients, value: float, index: int = 0) -> Gradients:
    """Return gradients with one number replaced."""
    changed = [each.copy() for each in gradients]
    changed[index].flat[-1] = value
    return changed


def through_json(config: Mapping[str, Any]) -> Any:
    """Return a configuration as a file gives it back."""
    return json.loads(json.dumps(config))
