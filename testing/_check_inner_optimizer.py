"""``check_inner_optimizer``: whether an optimizer keeps the contract of an inner optimizer."""

from typing import Any, Callable, Iterable, Mapping, Optional, Tuple

from ._check import Check
from ._check_runner import known_checks, outcome_of
from ._exchange_check import one_exchange
from ._inner_optimizer import InnerOptimizer
from ._inner_optimizer_checks import (
    equal_in_fit,
    equal_training,
    iterations,
    new_optimizers,
    skipped_steps,
    sparse_gradients,
)
from ._inner_optimizer_copies import deep_copy, from_config, pickled, state_checks
from ._report import CheckReport


def inner_optimizer_checks_in_order() -> Tuple[Check, ...]:
    """Return all checks of inner optimizers in the order in which they run, with one for each registered format."""
    return (
        new_optimizers,
        equal_training,
        sparse_gradients,
        skipped_steps,
        iterations,
        equal_in_fit,
        one_exchange,
        from_config,
        deep_copy,
        pickled,
        *state_checks(),
    )


INNER_OPTIMIZER_CHECKS = inner_optimizer_checks_in_order()
"""The checks of :func:`check_inner_optimizer`, in the order in which they run.

Example:
    >>> from scalekeeper.testing import INNER_OPTIMIZER_CHECKS
    >>> [check.name for check in INNER_OPTIMIZER_CHECKS][:3]
    ['new_optimizers', 'equal_training', 'sparse_gradients']
"""


def check_inner_optimizer(
    make_optimizer: Callable[..., Any],
    *,
    leave_out: Iterable[str] = (),
    exchanges: Optional[Callable[[], int]] = None,
    custom_objects: Optional[Mapping[str, Any]] = None,
) -> CheckReport:
    """Check that an optimizer works inside a LossScaleOptimizer: run every check of :data:`INNER_OPTIMIZER_CHECKS`.

    Args:
        make_optimizer: A function that returns a new optimizer each time. If it has a parameter without a default, it
            gets the model that the optimizer is to train, whose layers are ``first``, ``second`` and ``third``.
        leave_out: The names of checks to skip.
        exchanges: For an optimizer that exchanges gradients with other workers: a function that returns how many
            exchanges were executed so far. Without it, the methods that scalekeeper calls for an exchange are counted.
        custom_objects: Classes and functions by name, which the configuration of the optimizer refers to. The classes
            of the optimizer and of those inside it need not be given.

    Returns:
        A report with the outcome of every check. A check that was not run, or was refused, has a reason.

    Raises:
        BrokenContractError: A check failed; the error lists all that did.
        InvalidSpecError: ``make_optimizer`` is not a function, or a name in ``leave_out`` is not that of a check.

    Example:
        >>> import tensorflow as tf
        >>> from scalekeeper.testing import INNER_OPTIMIZER_CHECKS, check_inner_optimizer
        >>> others = [check.name for check in INNER_OPTIMIZER_CHECKS if check.name != "new_optimizers"]
        >>> check_inner_optimizer(lambda: tf.keras.optimizers.SGD(0.1), leave_out=others).summary()
        'SGD: 1 passed, 0 failed, ... not run'
    """
    checks = inner_optimizer_checks_in_order()
    left_out = known_checks(leave_out, checks)
    subject = InnerOptimizer(make_optimizer, exchanges=exchanges, custom_objects=custom_objects)
    outcomes = [outcome_of(check, subject, check.name in left_out)[0] for check in checks]
    report = CheckReport(_label(subject), outcomes)
    report.raise_if_failed()
    return report


def _label(subject: InnerOptimizer) -> str:
    try:
        return subject.label
    except Exception:  # the function itself raises an error, which every check reports
        return "inner optimizer"
