"""The list of all checks, in the order in which they run."""

from typing import Tuple

from ._bounds import bounds
from ._check import Check
from ._config_checks import config_round_trip, json_round_trip
from ._format_checks import (
    state_in_checkpoint,
    state_in_h5,
    state_in_keras,
    state_in_npz,
    state_in_saved_model,
    state_in_state_dict,
)
from ._graph_checks import graph_step, no_retracing
from ._pure_step_checks import decision, initial_state, needs_are_honoured, step_is_pure
from ._replica_checks import replicas_agree
from ._state_checks import other_states_are_refused, state_round_trip
from ._thread_checks import objects_share_nothing

CHECKS: Tuple[Check, ...] = (
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
    state_in_npz,
    state_in_h5,
    state_in_keras,
    state_in_saved_model,
    state_in_checkpoint,
    replicas_agree,
)
