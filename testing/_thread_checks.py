"""The check that objects of a class share no state."""

from typing import Any, Callable, List, Sequence

import functools
import sys
import threading

from ._check import check, require
from ._steps import StepResult, step_results
from ._subject import Subject

_OBJECTS, _STEPS, _STEPS_IN_TENSORFLOW = 4, 120, 20
_REMEDY = "Keep nothing that a step writes in the class, the module or another object: the state is the place for it"


@check()
def objects_share_nothing(subject: Subject) -> None:
    """Several objects, stepped in turn or at once in threads, have the same results as one alone."""
    count = _STEPS if subject.is_pure else _STEPS_IN_TENSORFLOW
    several = [subject.gradients(count, seed) for seed in range(_OBJECTS)]
    alone = [step_results(subject.make(), steps) for steps in several]
    policies = [subject.make() for _ in several]
    in_turn: List[List[StepResult]] = [[] for _ in several]
    for number in range(count):
        for found, policy, steps in zip(in_turn, policies, several):
            found += step_results(policy, steps[number : number + 1])
    _require_equal(in_turn, alone, "in turn")
    policies = [subject.make() for _ in several]
    works = [functools.partial(step_results, *each) for each in zip(policies, several)]
    _require_equal(_at_once(works), alone, "in threads at once")


def _require_equal(found: List[Any], alone: List[Any], how: str) -> None:
    for one, other in zip(found, alone):
        if isinstance(one, Exception):
            raise one
        index = next((index for index, pair in enumerate(zip(one, other)) if pair[0] != pair[1]), None)
        require(
            index is None,
            ""
            if index is None
            else f"{_OBJECTS} objects stepped {how} differ from one stepped alone: at step {index}, "
            f"{one[index]}; alone, {other[index]}",
            _REMEDY,
        )


def _at_once(works: Sequence[Callable[[], Any]]) -> List[Any]:
    """Call all functions at once in threads; return their results or errors."""
    start = threading.Barrier(len(works))
    found: List[Any] = [None] * len(works)

    def run(index: int) -> None:
        start.wait()
        try:
            found[index] = works[index]()
        except Exception as error:
            found[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(works))]
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(usual)
    return found
