"""Checks of ``state`` and ``load_state``."""

from ._check import check, require
from ._steps import exact, gradients, plain, step_results
from ._subject import Subject


@check(pure_step=True)
def state_round_trip(subject: Subject) -> None:
    """load_state restores everything that state() returned, and the next steps are the same."""
    first, second = subject.make(), subject.make()
    first.load_state(subject.moved_state())
    state = first.state()
    require(
        exact(state) == exact(subject.moved_state()),
        f"load_state was given {subject.moved_state()}, and state() is {state} after it",
        "Have load_state take, and state() give, every piece of the state: LossScale's own do",
    )
    second.load_state(state)
    steps = gradients(60)
    require(
        step_results(second, steps) == step_results(first, steps),
        f"two policies that both have the state {state} take other steps from there",
        "Keep all that a step remembers in the state",
    )


@check(pure_step=True)
def other_states_are_refused(subject: Subject) -> None:
    """load_state refuses a state with an entry too many or too few, and does not change the policy's own state."""
    policy = subject.make()
    moved, initial = subject.moved_state(), plain(policy.initial_state())
    others = [{**moved, "no_such_piece": 1.0}, *([{}] if moved else [])]
    for other in others:
        try:
            policy.load_state(other)
            is_refused = False
        except (ValueError, TypeError, KeyError):
            is_refused = True
        require(
            is_refused and exact(policy.state()) == exact(initial),
            f"load_state was given {other}, " + ("and took a part of it" if is_refused else "and did not refuse it"),
            "Leave load_state to LossScale, or call super().load_state(state) first: it refuses a state whole",
        )
