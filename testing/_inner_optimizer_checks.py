"""Checks of the steps of an inner optimizer: equal to the bare one, and untouched by a skipped step."""

from typing import Any, List

import numpy as np

from ._check import NotRun, check, require
from ._inner_optimizer import Gradients, InnerOptimizer, Training, bad, gradients_of_steps, new_model
from ._optimizer_variables import difference, held_variables, optimizers_in

_STEPS, _EAGER_STEPS = 24, 6  # 24: averages, synchronized weights and accumulated gradients have usual periods below
_BAD = (np.inf, np.nan, -np.inf)
_HOW = {True: "in a tf.function", False: "in eager mode"}


@check(tensorflow=True)
def new_optimizers(subject: InnerOptimizer) -> None:
    """Each call of the function returns another optimizer, which shares no variable and trains to the same numbers."""
    trainings = [_bare(subject) for _ in range(2)]
    first, second = trainings
    require(
        first.inner is not second.inner,
        "the function returned one optimizer twice",
        "Construct a new optimizer in each call",
    )
    for gradients in gradients_of_steps(_EAGER_STEPS):
        for each in trainings:
            each.step(gradients)
    held = [{id(each) for each in held_variables(each.inner, each.model).values()} for each in trainings]
    require(
        not held[0] & held[1],
        "two optimizers of the function share a variable",
        "Construct everything that holds a variable in each call: schedules, optimizers inside",
    )
    found = difference(first.numbers(), second.numbers())
    require(
        not found,
        f"two optimizers of the function, with the same gradients, give different numbers: {found}",
        "Give random numbers a fixed seed: every check compares trainings",
    )


@check(tensorflow=True)
def equal_training(subject: InnerOptimizer) -> None:
    """With a loss scale of 1 and of 2^15, weights and optimizer variables equal the bare optimizer's to the bit."""
    for is_traced in (True, False):
        steps = gradients_of_steps(_STEPS if is_traced else _EAGER_STEPS)
        for scale in (1, 2**15, {"name": "dynamic", "initial_loss_scale": 2**15}):
            _require_equal(subject, scale, steps, is_traced)


@check(tensorflow=True)
def sparse_gradients(subject: InnerOptimizer) -> None:
    """With sparse gradients, too, weights and optimizer variables equal the bare optimizer's to the bit."""
    steps = gradients_of_steps(_EAGER_STEPS)
    try:
        _bare(subject, is_sparse=True).step(steps[0])
    except Exception as error:
        raise NotRun(f"the bare optimizer does not take sparse gradients: {_short(error)}") from None
    _require_equal(subject, {"name": "dynamic", "initial_loss_scale": 2**15}, steps, True, is_sparse=True)


@check(tensorflow=True)
def skipped_steps(subject: InnerOptimizer) -> None:
    """A skipped step changes no variable of model or optimizer, however deep; later steps are as if it never was."""
    for is_traced in (True, False):
        good = gradients_of_steps(_STEPS if is_traced else _EAGER_STEPS)
        bare = _bare(subject, is_traced)
        model = new_model()
        training = Training(subject.wrapped(model), model, is_traced)
        _skip(training, bad(good[0], np.nan), 1, is_traced)  # before any variable exists
        skipped = 1
        for number, gradients in enumerate(good):
            bare.step(gradients)
            training.step(gradients)
            if number % 2 == 0:
                before = training.numbers()
                skipped += 1
                # in each variable in turn
                non_finite = bad(gradients, _BAD[number % 3], number % len(gradients))
                _skip(training, non_finite, skipped, is_traced)
                found = difference(before, training.numbers())
                require(
                    not found,
                    f"the skipped step after step {number}, {_HOW[is_traced]}, changed a variable: {found}",
                    "Change variables only in the methods that apply gradients, and not in those that build the "
                    "optimizer, or compute or aggregate gradients",
                )
            found = difference(bare.numbers(), training.numbers())
            require(
                not found,
                f"after step {number} and {skipped} skipped steps, {_HOW[is_traced]}, {found}",
                "Keep all that a step remembers in variables, which a skipped step leaves as they are, and not in "
                "attributes of Python",
            )


@check(tensorflow=True)
def iterations(subject: InnerOptimizer) -> None:
    """iterations is one variable, shared as in the bare optimizer; a skipped step counts only if that is chosen."""
    steps = gradients_of_steps(_EAGER_STEPS)
    bare = _bare(subject)
    for gradients in steps:
        bare.step(gradients)
    for choice in ("hold", "advance"):
        model = new_model()
        training = Training(subject.wrapped(model, skipped_steps=choice), model)
        for gradients in steps:
            training.step(gradients)
        counts = [int(each.iterations) for each in (training.optimizer, training.inner, bare.inner)]
        require(
            len(set(counts)) == 1,
            f"{len(steps)} steps are {counts[0]} iterations of the LossScaleOptimizer, {counts[1]} of the inner "
            f"optimizer, and {counts[2]} of the bare one",
            "Leave iterations to Keras, or override it by a property that returns one variable",
        )
        shared, own = _sharing(training.inner), _sharing(bare.inner)
        require(
            shared == own,
            f"the optimizers inside share iterations as {shared}, and as {own} in the bare optimizer",
            "Share the variable where gradients are applied, in every step, and not in the constructor alone",
        )
        before = int(training.inner.iterations)
        training.step(bad(steps[0], np.inf))
        accumulates = getattr(training.inner, "gradient_accumulation_steps", None)
        expected = before + (choice == "advance" and not accumulates)
        require(
            int(training.inner.iterations) == expected,
            f"a skipped step took iterations from {before} to {int(training.inner.iterations)}, with "
            f"skipped_steps={choice!r}",
            "Leave iterations to Keras: the LossScaleOptimizer adds to the variable that the property returns",
        )


@check(tensorflow=True)
def equal_in_fit(subject: InnerOptimizer) -> None:
    """fit with a loss scale of 1 and of 2^15 gives the weights and variables of fit with the bare optimizer."""
    model = new_model()
    bare = _fitted(subject.make(model), model)
    for scale in (1, {"name": "dynamic", "initial_loss_scale": 2**15}):
        model = new_model()
        found = difference(bare, _fitted(subject.wrapped(model, scale), model))
        require(
            not found,
            f"after fit with the loss scale {_scale_shown(scale)}, {found}",
            "See to equal_training first; then look at the methods that fit calls: compute_gradients, "
            "aggregate_gradients, minimize",
        )


def _skip(training: Training, gradients: Gradients, skipped: int, is_traced: bool) -> None:
    """Take a step with a non-finite gradient, and require that it is the latest of so many skipped steps."""
    training.step(gradients)
    counted = training.optimizer.telemetry.skipped
    require(
        counted == skipped,
        f"of {skipped} steps with a non-finite gradient, {counted} were skipped, {_HOW[is_traced]}",
        "Do not replace non-finite gradients where gradients are computed or aggregated",
    )


def _fitted(optimizer: Any, model: Any) -> Any:
    random = np.random.RandomState(1)
    inputs = random.uniform(-1, 1, [24, 3]).astype(np.float32)
    options = {"jit_compile": False} if hasattr(model, "jit_compile") else {}  # XLA rounds differently
    model.compile(optimizer, "mse", **options)
    if model.optimizer is not optimizer:
        raise NotRun("the global dtype policy makes Keras wrap the bare optimizer: set the policy float32")
    model.fit(inputs, inputs[:, ::-1], batch_size=4, epochs=2, shuffle=False, verbose=0)
    return Training(optimizer, model, is_traced=False).numbers()


def _bare(subject: InnerOptimizer, is_traced: bool = True, is_sparse: bool = False) -> Training:
    model = new_model()
    return Training(subject.make(model), model, is_traced, is_sparse)


def _require_equal(
    subject: InnerOptimizer, scale: Any, steps: List[Gradients], is_traced: bool, is_sparse: bool = False
) -> None:
    bare = _bare(subject, is_traced, is_sparse)
    model = new_model()
    training = Training(subject.wrapped(model, scale), model, is_traced, is_sparse)
    for number, gradients in enumerate(steps):
        bare.step(gradients)
        training.step(gradients)
        found = difference(bare.numbers(), training.numbers())
        require(
            not found,
            f"at step {number}, {_HOW[is_traced]}, with the loss scale {_scale_shown(scale)}, {found}",
            "Apply gradients alike inside a conditional, and whether they are aggregated already or not",
        )


def _scale_shown(scale: Any) -> str:
    return f"{scale} (fixed)" if isinstance(scale, int) else f"{scale['initial_loss_scale']} (dynamic)"


def _sharing(optimizer: Any) -> List[int]:
    """Return for each optimizer inside the position of the first one with the same variable for iterations."""
    ids = [id(getattr(each, "_iterations", None)) for each in optimizers_in(optimizer)]
    return [ids.index(each) for each in ids]


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
