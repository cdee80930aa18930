"""The definition of a check: a name, a sentence, and a function that raises an error if the sentence is false."""

from typing import Any, Callable, NamedTuple, Union

Function = Callable[[Any], None]  # of the subject: a policy, or an inner optimizer


class CheckFailedError(AssertionError):
    """Raised by a check: what it observed, and a remedy."""

    def __init__(self, seen: str, remedy: str) -> None:
        super().__init__(f"{seen}. {remedy}.")


class NotRun(Exception):  # noqa: N818 - not an error
    """Raised by a check that does not apply, with the reason."""


class Refused(Exception):  # noqa: N818 - not an error
    """Raised by a check that an error of scalekeeper, Keras or Python has ended: a limit that is not silent."""


class Check(NamedTuple):
    """A property that every policy, or every inner optimizer, must have."""

    name: str
    sentence: str
    function: Function
    needs_tensorflow: bool = False
    needs_pure_step: bool = False


def check(*, tensorflow: bool = False, pure_step: bool = False) -> Callable[[Function], Check]:
    """Return a decorator that makes a check of a function; its docstring is the sentence."""

    def decorate(function: Function) -> Check:
        sentence = " ".join((function.__doc__ or "").split())
        return Check(function.__name__, sentence, function, tensorflow, pure_step)

    return decorate


def require(holds: Union[bool, object], seen: str, remedy: str) -> None:
    """Raise a :class:`CheckFailedError` unless ``holds`` is true."""
    if not holds:
        raise CheckFailedError(seen, remedy)
