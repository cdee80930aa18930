"""The check that objects of a class have nothing in common."""

from typing import Any, Callable, List, Sequence

import functools
import sys
import threading

from ._check import check, require
from ._steps import Moment, moments
from ._subject import Subject

_OBJECTS, _STEPS, _STEPS_IN_TENSORFLOW = 4, 120, 20
_REMEDY = "Keep nothing that a step writes in the class, the module or another object: the state is the place for it"


@check()
def objects_share_nothing(subject: Subject) -> None:
    """Several objects, stepped in turn and in threads at once, each do what one does alone."""
    count = _STEPS if subject.is_pure else _STEPS_IN_TENSORFLOW
    several = [subject.gradients(count, seed) for seed in range(_OBJECTS)]
    alone = [moments(subject.make(), steps) for steps in several]
    policies = [subject.make() for _ in several]
    in_turn: List[List[Moment]] = [[] for _ in several]
    for number in range(count):
        for found, policy, steps in zip(in_turn, policies, several):
            found += moments(policy, steps[number : number + 1])
    _require_equal(in_turn, alone, "in turn")
    policies = [subject.make() for _ in several]
    works = [functools.partial(moments, *each) for each in zip(policies, several)]
    _require_equal(_at_once(works), alone, "in threads at once")


def _require_equal(found: List[Any], alone: List[Any], how: str) -> None:
    for one, other in zip(found, alone):
        if isinstance(one, Exception):
            raise one
        place = next((place for place, pair in enumerate(zip(one, other)) if pair[0] != pair[1]), None)
        require(
            place is None,
            ""
            if place is None
            else f"{_OBJECTS} objects stepped {how} differ from one stepped alone: at step {place}, "
            f"{one[place]}; alone, {other[place]}",
            _REMEDY,
        )


def _at_once(works: Sequence[Callable[[], Any]]) -> List[Any]:
    """What each function returns, or its error: all are called at the same time, and take turns often."""
    start = threading.Barrier(len(works))
    found: List[Any] = [None] * len(works)

    def run(place: int) -> None:
        start.wait()
        try:
            found[place] = works[place]()
        except Exception as error:
            found[place] = error

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(works))]
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
