"""The error classes of scalekeeper, and functions that format their messages."""

from typing import Any, Iterable, NamedTuple, Optional, Sequence, Tuple, Type, TypeVar, Union

import difflib
import reprlib

from ._source_text import Position

Path = Tuple[Union[str, int], ...]


_Error = TypeVar("_Error", bound=Exception)


class Problem(NamedTuple):
    """One problem of a spec.

    Attributes:
        path: The keys and indices that lead to it from the top of the spec.
        message: A sentence for people.
        kind: A stable identifier for programs.
        at_key: Whether the key itself is wrong, and not its value.

    Example:
        >>> from scalekeeper.registry import Problem
        >>> problem = Problem(("loss_scale", "minimum"), "expected a number above 0", "greater_than")
        >>> str(problem)
        'loss_scale.minimum: expected a number above 0'
    """

    path: Path
    message: str
    kind: str
    at_key: bool = False

    def under(self, *prefix: Union[str, int]) -> "Problem":
        """Return the same problem with a prefix before its path.

        Args:
            *prefix: Keys and indices.
        """
        return self._replace(path=tuple(prefix) + self.path)

    def __str__(self) -> str:
        return f"{dotted(self.path)}: {self.message}" if self.path else self.message


class ScalekeeperError(Exception):
    """Base class of all errors that scalekeeper raises.

    Example:
        >>> import scalekeeper
        >>> try:
        ...     scalekeeper.resolve("dynamik")
        ... except scalekeeper.ScalekeeperError as error:
        ...     print(type(error).__name__)
        InvalidSpecError
    """


def _passes_through_autograph(cls: Type[_Error]) -> Type[_Error]:
    """Let AutoGraph re-raise an error of this class as it is.

    AutoGraph does that only for classes with the constructor of Exception. Otherwise a traced function raises a
    StagingError, which ``except ValueError`` does not catch.
    """
    setattr(cls, "__init__", Exception.__init__)  # noqa: B010 - mypy refuses the assignment
    return cls


class InvalidSpecError(ScalekeeperError, ValueError):
    """Raised when a spec is not valid.

    Attributes:
        problems: Everything that is wrong with it, a tuple of :class:`Problem`.

    Example:
        >>> import scalekeeper
        >>> try:
        ...     scalekeeper.resolve({"name": "dynamic", "increment_period": 0, "minimum": -1.0})
        ... except scalekeeper.InvalidSpecError as error:
        ...     print([problem.path for problem in error.problems])
        [('increment_period',), ('minimum',)]
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: Tuple[Problem, ...] = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def __reduce__(self) -> Any:
        return type(self), (self.problems,)


class InvalidSpecTypeError(InvalidSpecError, TypeError):
    """Raised when a spec has a type that is not allowed. TensorFlow's own class raises TypeError from 2.4 on.

    Example:
        >>> import scalekeeper
        >>> scalekeeper.resolve(None)
        Traceback (most recent call last):
        scalekeeper.registry.errors.InvalidSpecTypeError: None is not a loss scale...
    """


class StateMismatchError(InvalidSpecError):
    """Raised when a training state does not fit the optimizer or model it is loaded into.

    ``problems`` lists everything that does not fit. Derives from :class:`InvalidSpecError` for programs that catch it.

    Example:
        >>> import scalekeeper
        >>> scalekeeper.DynamicLossScale().load_state({"current_loss_scale": 8.0})
        Traceback (most recent call last):
        scalekeeper.registry.errors.StateMismatchError: good_steps: not in the given state
    """


class Finding(NamedTuple):
    """A problem of a document, its line and column, and an excerpt of the text.

    ``source`` names the included file or the override in which it is; empty: the document itself.
    """

    problem: Problem
    place: Optional[Position]
    excerpt: str
    source: str = ""


class DocumentError(ScalekeeperError, ValueError):
    """Raised when a document is not valid.

    Attributes:
        name: The name of the document.
        findings: All problems, each with ``problem``, ``place`` (line and column), ``excerpt`` and ``source``.

    Example:
        >>> import scalekeeper
        >>> try:
        ...     scalekeeper.load_document("examples/train.yaml", overrides=["loss_scale.minimum=-1"])
        ... except scalekeeper.DocumentError as error:
        ...     print([finding.problem.path for finding in error.findings])
        [('loss_scale', 'minimum')]
    """

    def __init__(self, name: str, findings: Iterable[Finding]) -> None:
        self.name = name
        self.findings: Tuple[Finding, ...] = tuple(findings)
        super().__init__("\n".join(self._text(finding) for finding in self.findings))

    def _text(self, finding: Finding) -> str:
        position = "{}:{}:".format(*finding.place) if finding.place else ""
        text = f"{finding.source or self.name}:{position} {finding.problem}"
        return text + "\n" + finding.excerpt if finding.excerpt else text

    def __reduce__(self) -> Any:
        return type(self), (self.name, self.findings)


@_passes_through_autograph
class PolicyContractError(ScalekeeperError, TypeError):
    """Raised when a method of a policy does not return what its contract requires, or fails.

    Example:
        >>> import scalekeeper
        >>> class Undecided(scalekeeper.DynamicLossScale):
        ...     def should_apply(self, state, report, ops):
        ...         return None
        >>> try:
        ...     _ = Undecided().update([1.0])
        ... except scalekeeper.PolicyContractError:
        ...     print("run scalekeeper.testing.check_loss_scale(Undecided)")
        run scalekeeper.testing.check_loss_scale(Undecided)
    """


class StateTypeError(PolicyContractError):
    """Raised when the step of a policy changes the names or types of its state.

    Example:
        >>> import scalekeeper
        >>> class Forgetful(scalekeeper.DynamicLossScale):
        ...     def next_state(self, state, report, ops):
        ...         return {}
        >>> _ = Forgetful().update([1.0])
        Traceback (most recent call last):
        scalekeeper.registry.errors.StateTypeError: ...
    """


@_passes_through_autograph
class ArgumentError(ScalekeeperError, ValueError):
    """Raised when an argument has a value that the function does not accept.

    Example:
        >>> import scalekeeper
        >>> scalekeeper.register("not a name")
        Traceback (most recent call last):
        scalekeeper.registry.errors.ArgumentError: 'not a name' can't be a name...
    """


@_passes_through_autograph
class ArgumentTypeError(ScalekeeperError, TypeError):
    """Raised when an argument has a type that the function does not accept.

    Example:
        >>> import scalekeeper
        >>> scalekeeper.register("mine")(42)
        Traceback (most recent call last):
        scalekeeper.registry.errors.ArgumentTypeError: only a class can be a loss scale...
    """


@_passes_through_autograph
class WrongArgumentError(ArgumentTypeError, ArgumentError):
    """Raised when TensorFlow's own class refuses an argument, with TypeError or ValueError depending on the version.

    Example:
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> scalekeeper.LossScaleOptimizer("adam")
        Traceback (most recent call last):
        scalekeeper.registry.errors.WrongArgumentError: expected a Keras optimizer...
    """


class ReadOnlyError(ScalekeeperError, AttributeError):
    """Raised when an attribute is set that cannot be changed.

    Versions:
        Only the optimizers of Keras 3 raise it. Elsewhere Python raises :class:`AttributeError`, its base class.

    Example:
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1))
        >>> try:
        ...     optimizer.initial_scale = 8.0
        ... except AttributeError:
        ...     print("set initial_loss_scale of the policy instead")
        set initial_loss_scale of the policy instead
    """


@_passes_through_autograph
class StrategyError(ScalekeeperError, ValueError):
    """Raised when loss scaling cannot work under the current ``tf.distribute`` strategy or context.

    Example:
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> strategy = tf.distribute.MirroredStrategy(["CPU:0"])
        >>> with strategy.scope():
        ...     variable = tf.Variable(1.0)
        >>> optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1))
        >>> try:
        ...     with strategy.scope():
        ...         optimizer.apply_gradients([(tf.constant(1.0), variable)])
        ... except scalekeeper.StrategyError:
        ...     print("create the optimizer in the scope, and call it in strategy.run")
        create the optimizer in the scope, and call it in strategy.run
    """


class DemoError(ScalekeeperError, RuntimeError):
    """Raised when the training run of ``scalekeeper demo`` fails.

    Example:
        >>> import subprocess, sys
        >>> import scalekeeper
        >>> def run_demo(*options):
        ...     finished = subprocess.run([sys.executable, "-m", "scalekeeper", "demo", *options])
        ...     if finished.returncode:
        ...         raise scalekeeper.DemoError("see the output of the command")
    """


@_passes_through_autograph
class UnsupportedOperationError(ScalekeeperError, RuntimeError):
    """Raised when an operation is not possible in the current state of the optimizer or program.

    Example:
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> shared = scalekeeper.SharedLossScale("dynamic")
        >>> optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1), shared)
        >>> optimizer.get_unscaled_gradients([tf.constant(1.0)])
        Traceback (most recent call last):
        scalekeeper.registry.errors.UnsupportedOperationError: ...outside of a step...
    """


class MissingFileError(ScalekeeperError, FileNotFoundError):
    """Raised when a file, SavedModel or checkpoint does not exist.

    Example:
        >>> import scalekeeper
        >>> try:
        ...     scalekeeper.inspect("missing.h5")
        ... except FileNotFoundError as error:
        ...     print(type(error).__name__)
        MissingFileError
    """


class DestinationExistsError(ScalekeeperError, FileExistsError):
    """Raised when the destination of a conversion exists and may not be replaced.

    Example:
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1))
        >>> for name in ("first.npz", "second.npz"):
        ...     scalekeeper.save_state(optimizer, name)
        >>> try:
        ...     scalekeeper.convert("first.npz", "second.npz")
        ... except scalekeeper.DestinationExistsError:
        ...     print(scalekeeper.convert("first.npz", "second.npz", force=True).written)
        True
    """


class NameTakenError(ScalekeeperError, ValueError):
    """Raised when a name is already registered for another class.

    Example:
        >>> import scalekeeper
        >>> @scalekeeper.register("dynamic")
        ... class Mine(scalekeeper.DynamicLossScale):
        ...     pass
        Traceback (most recent call last):
        scalekeeper.registry.errors.NameTakenError: the loss scale name 'dynamic' is taken...
    """


class PluginLoadError(ScalekeeperError, ImportError):
    """Raised when a plugin can't be imported, or is not a valid plugin.

    Example:
        >>> import scalekeeper
        >>> scalekeeper.resolve("no_such_module:Mine", allow=["no_such_module:Mine"])
        Traceback (most recent call last):
        scalekeeper.registry.errors.PluginLoadError: ...
    """


class UnknownTargetError(ScalekeeperError, ValueError):
    """Raised when a target is not a known TensorFlow version.

    Example:
        >>> from scalekeeper.registry import target
        >>> target("1.15")
        Traceback (most recent call last):
        scalekeeper.registry.errors.UnknownTargetError: unknown target '1.15'...
    """


class TranslationError(ScalekeeperError, ValueError):
    """Raised when a configuration has no equivalent in the target Keras, and dropping it would change its meaning.

    Example:
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> config = {"class_name": "SGD", "config": {"learning_rate": 0.1}}
        >>> scalekeeper.LossScaleOptimizer.from_config(config)
        Traceback (most recent call last):
        scalekeeper.registry.errors.TranslationError: SGD has no loss scale...
    """


class UnreadableFileError(ScalekeeperError, ValueError):
    """Raised when a file is truncated, corrupt, or has another format than expected.

    Example:
        >>> import scalekeeper
        >>> with open("broken.h5", "wb") as stream:
        ...     _ = stream.write(b"not an H5 file")
        >>> scalekeeper.inspect("broken.h5")
        Traceback (most recent call last):
        scalekeeper.registry.errors.UnreadableFileError: broken.h5...
    """


class ConversionError(ScalekeeperError, ValueError):
    """Raised when a file can't be converted to the requested format or target.

    Example:
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> scalekeeper.convert("examples/train.yaml", "model.h5")
        Traceback (most recent call last):
        scalekeeper.registry.errors.ConversionError: examples/train.yaml...
    """


class LossyConversionError(ConversionError):
    """Raised when a conversion would drop something.

    Attributes:
        losses: The state that it would drop, in sentences; also ``dropped``.

    Example:
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1))
        >>> scalekeeper.save_state(optimizer, "state.npz")
        >>> try:
        ...     scalekeeper.convert("state.npz", "lossy.json")
        ... except scalekeeper.LossyConversionError as error:
        ...     print(error.dropped)
        (...)
    """

    def __init__(self, message: str, losses: Sequence[str]) -> None:
        self.losses: Tuple[str, ...] = tuple(losses)
        super().__init__(message)

    @property
    def dropped(self) -> Tuple[str, ...]:
        """The state that the conversion would drop."""
        return self.losses

    def __reduce__(self) -> Any:
        return type(self), (self.args[0], self.losses)


class MissingPackageError(ScalekeeperError, ImportError):
    """Raised when an operation needs a package that is not installed.

    Example:
        >>> import scalekeeper
        >>> def draw(diagnosis):
        ...     try:
        ...         diagnosis.plot("layers.svg")
        ...     except scalekeeper.MissingPackageError as error:
        ...         print(f"no picture: {error}")
    """


class IncompleteRestoreError(ScalekeeperError, ValueError):
    """Raised when a file does not have all variables of a model, or all slots of its optimizer.

    Nothing has been changed.

    Attributes:
        report: What was found, matched, missing and unused: a :class:`RestoreReport`.

    Example:
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> def model_with(*names):
        ...     layers = [tf.keras.layers.Dense(2, name=name) for name in names]
        ...     model = tf.keras.Sequential([tf.keras.Input((2,)), *layers])
        ...     model.compile(scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1)), "mse")
        ...     return model
        >>> scalekeeper.save_model(model_with("first"), "small.h5", probe=False)
        >>> try:
        ...     scalekeeper.restore(model_with("first", "second"), "small.h5")
        ... except scalekeeper.IncompleteRestoreError as error:
        ...     print(len(error.report.missing))
        2
    """

    def __init__(self, message: str, report: Any = None) -> None:
        self.report = report
        super().__init__(message)

    def __reduce__(self) -> Any:
        return type(self), (self.args[0], self.report)


class NothingRestoredError(IncompleteRestoreError):
    """Raised when nothing in a file matches the model to restore into.

    Example:
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> def model_with(name, width):
        ...     model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(width, name=name)])
        ...     model.compile(scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1)), "mse")
        ...     return model
        >>> scalekeeper.save_model(model_with("first", 3), "other.h5", probe=False)
        >>> try:
        ...     scalekeeper.restore(model_with("second", 5), "other.h5", partial=True)
        ... except scalekeeper.NothingRestoredError:
        ...     print("another model")
        another model
    """


class AmbiguousMatchError(ScalekeeperError, ValueError):
    """Raised when several objects of a file may be meant.

    The message names them. Give ``mapping`` or ``optimizer`` to :func:`restore`.

    Example:
        >>> import scalekeeper
        >>> def restore_generator(model, path):
        ...     try:
        ...         return scalekeeper.restore(model, path)
        ...     except scalekeeper.AmbiguousMatchError:
        ...         return scalekeeper.restore(model, path, optimizer="generator_optimizer")
    """


class IncompleteRestoreWarning(UserWarning):
    """Warns that a restore was not complete: something of the target or of the file is left over.

    :func:`restore` and :func:`load_model` give it. The report of ``restore`` lists what is left over.

    Example:
        >>> import warnings
        >>> import scalekeeper
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("error", scalekeeper.IncompleteRestoreWarning)  # a restore is complete, or fails
    """


class AssumedOrderWarning(UserWarning):
    """Warns that a file does not distinguish some variables, which were taken in order, as Keras takes them.

    :func:`restore` and :func:`load_model` give it.

    Example:
        >>> import warnings
        >>> import scalekeeper
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("error", scalekeeper.AssumedOrderWarning)  # nothing is assumed
    """


class ForgottenScalingWarning(UserWarning):
    """Warns that gradients are applied and the loss was not scaled, or the gradients were not unscaled.

    Example:
        >>> import warnings
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1))
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     _ = optimizer.apply_gradients([(tf.constant(1.0), tf.Variable(1.0))])
        >>> scalekeeper.ForgottenScalingWarning in [warning.category for warning in caught]
        True
    """


class UntestedVersionWarning(UserWarning):
    """Warns that the installed TensorFlow is newer than all that scalekeeper is tested with.

    Example:
        >>> import warnings
        >>> import scalekeeper
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore", scalekeeper.UntestedVersionWarning)
        ...     target = scalekeeper.registry.target()
    """


class ModelDiffersError(ScalekeeperError, ValueError):
    """Raised when a loaded model does not compute what it computed when it was saved.

    Attributes:
        layer: The first layer that differs; None if the difference is in no layer that can be compared.
        difference: How much its output differs; None if the model cannot be called.

    Example:
        >>> import scalekeeper
        >>> def load(path):
        ...     try:
        ...         return scalekeeper.load_model(path)
        ...     except scalekeeper.ModelDiffersError as error:
        ...         print(f"{error.layer} differs by {error.difference}")
        ...         return scalekeeper.load_model(path, probe=False)
    """

    def __init__(self, message: str, layer: Optional[str] = None, difference: Optional[float] = None) -> None:
        self.layer, self.difference = layer, difference
        super().__init__(message)

    def __reduce__(self) -> Any:
        return type(self), (self.args[0], self.layer, self.difference)


class TooManySkipsError(ScalekeeperError, RuntimeError):
    """Raised when too many steps in a row were skipped.

    Attributes:
        skipped_in_a_row: The number of skipped steps.
        step: The last of them.
        loss_scale: The current loss scale.
        variables: The names of the variables whose gradients were not finite at the last step.

    Example:
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1), stop_after_skips=2)
        >>> variable = tf.Variable(1.0)
        >>> try:
        ...     for _ in range(10):
        ...         loss = optimizer.get_scaled_loss(tf.constant(1.0))
        ...         grads = optimizer.get_unscaled_gradients([tf.constant(float("nan"))])
        ...         applied = optimizer.apply_gradients(zip(grads, [variable]))
        ... except scalekeeper.TooManySkipsError as error:
        ...     print(error.skipped_in_a_row, error.loss_scale)
        2 8192.0
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
    """Raised when a policy or an inner optimizer breaks its contract.

    Attributes:
        summary: The counts of the outcomes, in one line.
        failures: The checks that failed, each with its message.

    Example:
        >>> import scalekeeper
        >>> from scalekeeper.testing import CheckReport, Outcome
        >>> try:
        ...     CheckReport("mine", [Outcome("bounds", "failed", "3 is above 2")]).raise_if_failed()
        ... except scalekeeper.BrokenContractError as error:
        ...     print(error.failures)
        (('bounds', '3 is above 2'),)
    """

    def __init__(self, summary: str, failures: Iterable[Tuple[str, str]]) -> None:
        self.summary = summary
        self.failures: Tuple[Tuple[str, str], ...] = tuple(failures)
        super().__init__("\n".join([summary, *(f"  {check}: {message}" for check, message in self.failures)]))

    def __reduce__(self) -> Any:
        return type(self), (self.summary, self.failures)


WHAT_TO_TRY = (
    "What to try: look for NaN or infinity in the data and in the weights; lower the learning rate, or clip "
    "(clipnorm=1.0 of the inner optimizer); give the dtype float32 to layers that leave the range of float16 "
    "(softmax, normalization, exponentials, the loss); begin with a lower scale if it was still falling, or allow a "
    "lower minimum; or raise stop_after_skips."
)
_MOST_NAMES = 10


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "") or "(no variable is known)"


def not_loaded(what: str, error: BaseException) -> PluginLoadError:
    """Return the error for a plugin that could not be imported."""
    return PluginLoadError(f"{what} could not be loaded: {type(error).__name__}: {error}")


def dotted(path: Path) -> str:
    """Format a path: ``optimizer.learning_rate``, ``values[2]``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else ("." if text else "") + str(part)
    return text


def shown(value: Any) -> str:
    """Return a short representation of a value for a message."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = 60
    try:
        return short.repr(value)
    except Exception:
        return f"<{type(value).__name__}>"


def did_you_mean(given: Any, valid: Sequence[str]) -> Optional[str]:
    """Return the valid name that is closest to a name, or None if none is close."""
    if not isinstance(given, str) or len(given) > 100:
        return None
    by_lower = {name.lower(): name for name in valid}
    near = difflib.get_close_matches(given.lower(), list(by_lower), n=1, cutoff=0.6)
    return by_lower[near[0]] if near else None


def unknown(
    kind: str, given: Any, valid: Sequence[str], *, of: str = "", remedy: str = "", near: Optional[str] = None
) -> str:
    """Return the message for an unknown name: the given name, the closest one, the valid ones, and a remedy.

    ``near`` is the name that is meant, if the caller knows it.
    """
    near = did_you_mean(given, valid) if near is None else near
    subject = f"unknown {kind} {shown(given)}" + (f" of {of}" if of else "")
    meant = f"; did you mean {shown(near)}? Valid: " if near is not None else "; valid: "
    return f"{subject}{meant}{', '.join(valid)}. {remedy}".rstrip()
