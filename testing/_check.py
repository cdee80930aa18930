"""What a check is: a name, a sentence of what must hold, and a function that raises where it does not."""

from typing import TYPE_CHECKING, Callable, NamedTuple, Union

if TYPE_CHECKING:
    from ._subject import Subject

Function = Callable[["Subject"], None]


class CheckFailedError(AssertionError):
    """What was seen, and what to do about it."""

    def __init__(self, seen: str, remedy: str) -> None:
        super().__init__(f"{seen}. {remedy}.")


class NotRun(Exception):  # noqa: N818 - not an error
    """Why a check says nothing here."""


class Check(NamedTuple):
    """One thing that must hold of every policy."""

    name: str
    sentence: str
    function: Function
    needs_tensorflow: bool = False
    needs_pure_step: bool = False


def check(*, tensorflow: bool = False, pure_step: bool = False) -> Callable[[Function], Check]:
    """A decorator: the function's name is the check's, and its docstring the sentence."""

    def decorate(function: Function) -> Check:
        sentence = " ".join((function.__doc__ or "").split())
        return Check(function.__name__, sentence, function, tensorflow, pure_step)

    return decorate


def require(holds: Union[bool, object], seen: str, remedy: str) -> None:
    """Fail unless it holds."""
    if not holds:
        raise CheckFailedError(seen, remedy)
