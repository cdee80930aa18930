"""The list of all checks, in the order in which they run."""

from typing import Tuple

from ._bounds import bounds
from ._check import Check
from ._config_checks import config_round_trip, json_round_trip
from ._format_checks import format_checks, state_in_state_dict
from ._graph_checks import graph_step, no_retracing
from ._pure_step_checks import decision, initial_state, needs_are_honoured, step_is_pure
from ._replica_checks import replicas_agree
from ._state_checks import other_states_are_refused, state_round_trip
from ._thread_checks import objects_share_nothing


def all_checks() -> Tuple[Check, ...]:
    """Return all checks, with one for each registered format."""
    return (
        config_round_trip,
        json_round_trip,
        initial_state,
        step_is_pure,
        needs_are_honoured,
        decision,
        bounds,
        state_round_trip,
        other_states_are_refused,
        objects_share_nothing,
        graph_step,
        no_retracing,
        state_in_state_dict,
        *format_checks(),
        replicas_agree,
    )


CHECKS = all_checks()
"""The checks of :func:`check_loss_scale`, in the order in which they run.

Example:
    >>> from scalekeeper.testing import CHECKS
    >>> [check.name for check in CHECKS if not check.needs_tensorflow][:3]
    ['config_round_trip', 'json_round_trip', 'initial_state']
"""
