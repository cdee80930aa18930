"""The check of inner optimizers that exchange gradients with other workers."""

from typing import Any, Callable, Dict, List

import numpy as np

from ._check import NotRun, check, require
from ._inner_optimizer import InnerOptimizer, new_model

# the methods in which a wrapper can exchange gradients, in the order in which one step calls them
METHODS = ("get_gradients", "_compute_gradients", "compute_gradients", "_aggregate_gradients", "aggregate_gradients")
_REMEDY = (
    'Exchange gradients in one of the methods of docs/optimizer.md, "Wrappers that average over workers", which are '
    "called in every step, before the decision"
)


@check(tensorflow=True)
def one_exchange(subject: InnerOptimizer) -> None:
    """Gradients are exchanged once in each step, applied or skipped, and the decision sees what the exchange gave."""
    from ..optimizer._keras.aggregation import is_overridden

    model = new_model()
    inner = subject.make(model)
    names = [name for name in METHODS if hasattr(inner, name) and is_overridden(inner, name)]
    if subject.exchanges is None and not names:
        raise NotRun(
            f"{type(inner).__name__} has none of these methods of its own: {', '.join(METHODS)}. If it exchanges "
            "gradients elsewhere, give a function that counts exchanges: exchanges=…"
        )
    for is_traced in (True, False):
        if is_traced or "get_gradients" not in names[:1]:  # which differentiates a graph
            _require_one(subject, names[:1], is_traced)


def _require_one(subject: InnerOptimizer, names: List[str], is_traced: bool) -> None:
    import tensorflow as tf

    model = new_model()
    optimizer = subject.wrapped(model)
    wires = {name: _Wire(optimizer.inner_optimizer, name) for name in names}
    variables = list(model.trainable_variables)
    values = [each if callable(each.value) else each.value for each in variables]
    slope = tf.Variable(1.0, trainable=False)

    def loss() -> Any:
        return slope * tf.add_n([tf.reduce_sum(each) for each in values])

    def step() -> None:
        if "get_gradients" in names and not hasattr(optimizer.inner_optimizer, "_aggregate_gradients"):
            optimizer.get_updates(loss(), variables)  # of TensorFlow 2.0 and 2.1; nothing else asks for gradients
        else:
            optimizer.minimize(loss, variables)

    run: Callable[[], Any] = tf.function(step, autograph=False) if is_traced else step
    how = "in a tf.function" if is_traced else "in eager mode"
    cases: Dict[str, Callable[[], None]] = {
        "an applied step": lambda: slope.assign(1.0),
        "a skipped step": lambda: slope.assign(np.nan),
        "an applied step after it": lambda: slope.assign(1.0),
    }
    for name, prepare in cases.items():
        prepare()
        before = _count(subject, wires)
        run()
        count = _count(subject, wires) - before
        require(count == 1, f"{name}, {how}, exchanged gradients {count} times", _REMEDY)
    if wires:
        weights = [each.numpy().tolist() for each in values]
        skipped = optimizer.telemetry.skipped
        next(iter(wires.values())).poison.assign(np.nan)
        run()
        require(
            optimizer.telemetry.skipped == skipped + 1 and weights == [each.numpy().tolist() for each in values],
            f"a NaN of another worker in the result of {names[0]} was applied, {how}",
            _REMEDY,
        )


def _count(subject: InnerOptimizer, wires: Dict[str, "_Wire"]) -> int:
    if subject.exchanges is not None:
        return int(subject.exchanges())
    return sum(int(each.calls.numpy()) for each in wires.values())


class _Wire:
    """Counts the executions of a method of an optimizer, and adds ``poison`` to the gradients that it returns."""

    def __init__(self, optimizer: Any, name: str) -> None:
        import tensorflow as tf

        self.calls = tf.Variable(0, trainable=False, dtype=tf.int64)
        self.poison = tf.Variable(0.0, trainable=False)
        method = getattr(optimizer, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            results = list(method(*args, **kwargs))
            with tf.control_dependencies([self.calls.assign_add(1)]):
                return [self._poisoned(each) for each in results]

        vars(optimizer)[name] = counted

    def _poisoned(self, result: Any) -> Any:
        """Return a gradient, or a pair of a gradient and a variable, with poison."""
        import tensorflow as tf

        if isinstance(result, tuple):
            return (self._poisoned(result[0]), result[1])
        return None if result is None else tf.convert_to_tensor(result) + self.poison
