"""Checks of the step in TensorFlow: eager, and in a tf.function."""

from typing import Any, Callable, List, Sequence

from ._check import check, require
from ._steps import StepResult, gradients, shown, step_results
from ._subject import Subject

_STEPS, _EAGER_STEPS = 300, 60  # an eager step of some policies takes ten times as long as a traced one
_FEW = 30


@check(tensorflow=True)
def graph_step(subject: Subject) -> None:
    """Scale, state and decision of each step are equal to the bit in NumPy, eager TensorFlow and a tf.function."""
    steps = gradients(_STEPS)
    eager = step_results(held(subject.make()), _tensors(steps[:_EAGER_STEPS]))
    policy = held(subject.make())
    traced = step_results(policy, _tensors(steps), traced_update(policy))
    if subject.is_pure:
        expected = step_results(subject.make(), steps)
        _require_equal(expected, eager, steps, "NumPy", "eager TensorFlow")
        _require_equal(expected, traced, steps, "NumPy", "a tf.function")
    else:
        _require_equal(eager, traced, steps, "eager TensorFlow", "a tf.function")


@check(tensorflow=True)
def no_retracing(subject: Subject) -> None:
    """A step in a tf.function is traced only once, also in a long run."""
    policy = held(subject.make())
    calls: List[Any] = []

    def counting(gradients: Sequence[Any]) -> Any:
        calls.append(gradients)
        return policy.update(gradients)

    step = traced_update(policy, counting)
    for gradient in _tensors(gradients(_FEW)):
        step(gradient)
    require(
        len(calls) == 1,
        f"{_FEW} steps were traced {len(calls)} times",
        "Make variables in the constructor, or as pieces of the state, and never in a step; and let nothing in a step "
        "depend on a Python number that changes",
    )


def held(policy: Any) -> Any:
    """Return the policy with its state in TensorFlow variables, as in an optimizer."""
    from ..optimizer._step.graph_state import hold_in_graph

    hold_in_graph(policy)
    return policy


def _tensors(several: Sequence[Any]) -> List[Any]:
    import tensorflow as tf

    return [tf.constant(each) for each in several]


def traced_update(policy: Any, update: Any = None) -> Callable[[Any], Any]:
    """Return a tf.function of one gradient that calls ``policy.update``, or another function."""
    import tensorflow as tf

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def step(gradient: Any) -> Any:
        _, applied = (update or policy.update)([gradient])
        return tf.convert_to_tensor(applied)

    return lambda gradient: (None, step(gradient))


def _require_equal(
    expected: List[StepResult], actual: List[StepResult], steps: List[Any], one: str, other: str
) -> None:
    index = next((index for index, pair in enumerate(zip(expected, actual)) if pair[0] != pair[1]), None)
    if index is not None:
        require(
            False,
            f"at step {index}, with the gradient {shown(steps[index])}, {one} gives {expected[index]}; {other} gives "
            f"{actual[index]}",
            "Compute with ops and Python's operators alone; multiply by ops.float32(1) / ops.float32(x) instead of "
            "dividing by a constant, put ops.rounded(…) around each of several float operations in a row but the last, "
            "and take what is below 2**-126 as zero",
        )
