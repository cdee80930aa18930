"""Every error a user can cause, and the one-sentence problems they are made of."""

from typing import Any, Iterable, NamedTuple, Optional, Sequence, Tuple, Union

import difflib
import reprlib

Path = Tuple[Union[str, int], ...]


class Problem(NamedTuple):
    """One thing that is wrong with a specification.

    ``path`` leads to it from the top of the specification; ``at_key`` says that the key itself is wrong, not its value.
    ``kind`` is stable and meant for programs, ``message`` is meant for people.
    """

    path: Path
    message: str
    kind: str
    at_key: bool = False

    def under(self, *prefix: Union[str, int]) -> "Problem":
        """The same problem, seen from further up."""
        return self._replace(path=tuple(prefix) + self.path)

    def __str__(self) -> str:
        return f"{dotted(self.path)}: {self.message}" if self.path else self.message


class ScalekeeperError(Exception):
    """Base of all errors of this package."""


class InvalidSpecError(ScalekeeperError, ValueError):
    """A specification does not describe what it should. ``problems`` lists everything that is wrong with it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: Tuple[Problem, ...] = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def __reduce__(self) -> Any:
        return type(self), (self.problems,)


class StateMismatchError(InvalidSpecError):
    """Raised when a training state does not fit the optimizer or model it is loaded into.

    ``problems`` lists everything that does not fit. Derives from :class:`InvalidSpecError` for programs that catch it.
    """


class ArgumentError(ScalekeeperError, ValueError):
    """Raised when an argument has a value that the function does not accept."""


class ArgumentTypeError(ScalekeeperError, TypeError):
    """Raised when an argument has a type that the function does not accept."""


class StrategyError(ScalekeeperError, ValueError):
    """Raised when loss scaling cannot work under the current ``tf.distribute`` strategy or context."""


class DemoError(ScalekeeperError, RuntimeError):
    """Raised when the training run of ``scalekeeper demo`` fails."""


class UnsupportedOperationError(ScalekeeperError, RuntimeError):
    """Raised when an operation is not possible in the current state of the optimizer or program."""


class MissingFileError(ScalekeeperError, FileNotFoundError):
    """Raised when a file, SavedModel or checkpoint does not exist."""


class DestinationExistsError(ScalekeeperError, FileExistsError):
    """Raised when the destination of a conversion exists and may not be replaced."""


class NameTakenError(ScalekeeperError, ValueError):
    """A name is registered for another class already."""


class PluginLoadError(ScalekeeperError, ImportError):
    """A plugin's module could not be imported, or does not hold what its name promises."""


class UnknownTargetError(ScalekeeperError, ValueError):
    """A target TensorFlow that is not in the table of signatures."""


class TranslationError(ScalekeeperError, ValueError):
    """What one Keras wrote has no words on another, and leaving it out would change what it does."""


class UnreadableFileError(ScalekeeperError, ValueError):
    """A file is cut off, or it is not what its name or its place says it is."""


class ConversionError(ScalekeeperError, ValueError):
    """A file can't become what was asked for."""


class LossyConversionError(ConversionError):
    """A file would hold less after its conversion. ``losses`` lists what."""

    def __init__(self, message: str, losses: Sequence[str]) -> None:
        self.losses: Tuple[str, ...] = tuple(losses)
        super().__init__(message)

    def __reduce__(self) -> Any:
        return type(self), (self.args[0], self.losses)


class MissingPackageError(ScalekeeperError, ImportError):
    """What was asked for needs a package that is not installed."""


class NothingRestoredError(ScalekeeperError, ValueError):
    """Nothing in a file fits the model that it was to be restored into."""


class TooManySkipsError(ScalekeeperError, RuntimeError):
    """So many steps in a row were skipped that training goes nowhere.

    ``skipped_in_a_row``, ``step``, ``loss_scale`` and ``variables`` say how many, up to which step, at which scale, and
    whose gradients were not finite at that step.
    """

    def __init__(self, skipped_in_a_row: int, step: int, loss_scale: float, variables: Sequence[str]) -> None:
        self.skipped_in_a_row, self.step, self.loss_scale = skipped_in_a_row, step, loss_scale
        self.variables: Tuple[str, ...] = tuple(variables)
        super().__init__(
            f"{skipped_in_a_row} steps in a row were skipped, the last of them step {step}; the loss scale is "
            f"{loss_scale:g} now. Not finite: {_listed(self.variables)}. {WHAT_TO_TRY}"
        )

    def __reduce__(self) -> Any:
        return type(self), (self.skipped_in_a_row, self.step, self.loss_scale, self.variables)


class BrokenContractError(ScalekeeperError, AssertionError):
    """A loss-scale policy does not hold the contract. ``failures`` lists each check that failed, and its message."""

    def __init__(self, summary: str, failures: Iterable[Tuple[str, str]]) -> None:
        self.summary = summary
        self.failures: Tuple[Tuple[str, str], ...] = tuple(failures)
        super().__init__("\n".join([summary, *(f"  {check}: {message}" for check, message in self.failures)]))

    def __reduce__(self) -> Any:
        return type(self), (self.summary, self.failures)


WHAT_TO_TRY = (
    "What to try: look for NaN or infinity in the data and in the weights; lower the learning rate, or clip "
    "(clipnorm=1.0 of the inner optimizer); give dtype='float32' to layers that leave float16's range (softmax, "
    "normalization, exponentials, the loss); begin with a lower scale if it was still falling, or allow a lower "
    "minimum; or raise stop_after_skips."
)
_MOST_NAMES = 10


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "") or "(no variable is known)"


def not_loaded(what: str, error: BaseException) -> PluginLoadError:
    """The error for code of somebody else's that could not be imported."""
    return PluginLoadError(f"{what} could not be loaded: {type(error).__name__}: {error}")


def dotted(path: Path) -> str:
    """Write a path as a reader would: ``optimizer.learning_rate``, ``values[2]``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else ("." if text else "") + str(part)
    return text


def shown(value: Any) -> str:
    """A value as it may stand in a message: never longer than a line."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = 60
    try:
        return short.repr(value)
    except Exception:
        return f"<{type(value).__name__}>"


def did_you_mean(given: Any, valid: Sequence[str]) -> Optional[str]:
    """The valid name nearest to the given one, if any is near."""
    if not isinstance(given, str) or len(given) > 100:
        return None
    by_lower = {name.lower(): name for name in valid}
    near = difflib.get_close_matches(given.lower(), list(by_lower), n=1, cutoff=0.6)
    return by_lower[near[0]] if near else None


def unknown(kind: str, given: Any, valid: Sequence[str], *, of: str = "", remedy: str = "") -> str:
    """The text for a name that is not there: what was given, what was perhaps meant, what is allowed, what to do."""
    near = did_you_mean(given, valid)
    subject = f"unknown {kind} {shown(given)}" + (f" of {of}" if of else "")
    meant = f"; did you mean {shown(near)}? Valid: " if near is not None else "; valid: "
    return f"{subject}{meant}{', '.join(valid)}. {remedy}".rstrip()
