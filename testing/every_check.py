"""All checks, in the order in which they are run: what others rest on comes first."""

from typing import Tuple

from .bounds import bounds
from .checks import Check
from .configs import config_round_trip, json_round_trip
from .formats import (
    state_in_checkpoint,
    state_in_h5,
    state_in_keras,
    state_in_npz,
    state_in_saved_model,
    state_in_state_dict,
)
from .graph_steps import graph_step, no_retracing
from .pure_steps import decision, initial_state, needs_are_honoured, quiet_steps, step_is_pure
from .replicas import replicas_agree
from .states import other_states_are_refused, state_round_trip
from .threads import objects_share_nothing

CHECKS: Tuple[Check, ...] = (
    config_round_trip,
    json_round_trip,
    initial_state,
    step_is_pure,
    needs_are_honoured,
    decision,
    quiet_steps,
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
