"""Optimizers and learning-rate schedules of a document, checked against the signatures of the target."""

from typing import Any, ClassVar, Dict, List, Mapping, NamedTuple, Optional, Tuple, Type

import functools

from pydantic import Field, create_model, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import Annotated

from ._parameters import checked
from ._targets import Target, ranges
from .errors import InvalidSpecError, Problem, shown, unknown
from .field_types import (
    FLOAT32_MAX,
    AtLeastTwoInt,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    Number,
    PositiveFloat,
    PositiveInt,
    StrictModel,
    broken_rule,
)

OPTIMIZERS, SCHEDULES = "optimizers", "schedules"
_KINDS = {OPTIMIZERS: "optimizer", SCHEDULES: "learning-rate schedule"}
_NAME_KEYS = {OPTIMIZERS: "name", SCHEDULES: "schedule"}

_NonPositiveFloat = Annotated[float, Field(ge=-FLOAT32_MAX, le=0)]

# Type and description of each argument. The table of a target has its arguments and defaults.
_ARGUMENTS: Dict[str, Tuple[Any, str]] = {
    "adam_beta_1": (Fraction, "Decay of the first moment, for the variables that Adam updates."),
    "adam_beta_2": (Fraction, "Decay of the second moment, for the variables that Adam updates."),
    "adam_lr_ratio": (NonNegativeFloat, "Learning rate of the variables that Adam updates, as a factor."),
    "adam_weight_decay": (NonNegativeFloat, "Weight decay of the variables that Adam updates."),
    "adaptive_epsilon": (bool, "Adapt epsilon to the size of the gradients."),
    "alpha": (NonNegativeFloat, "The lowest learning rate, as a share of the initial one."),
    "amsgrad": (bool, "Use the AMSGrad variant."),
    "beta": (NonNegativeFloat, "The term beta of the published rule."),
    "beta_1": (Fraction, "Decay of the running mean of the gradients."),
    "beta_2": (Fraction, "Decay of the running mean of their squares."),
    "beta_2_decay": (Number, "Exponent by which beta_2 depends on the step."),
    "boundaries": (Annotated[List[NonNegativeInt], Field(min_length=1)], "Steps after which the next value holds."),
    "centered": (bool, "Divide by the estimated variance, not by the second moment."),
    "clip_threshold": (PositiveFloat, "Updates are clipped to this root mean square."),
    "clipnorm": (PositiveFloat, "Each gradient is scaled down to this norm."),
    "clipvalue": (PositiveFloat, "Each gradient is clipped to this magnitude."),
    "cycle": (bool, "Start again after the last step."),
    "decay": (NonNegativeFloat, "The learning rate is divided by 1 + decay × iterations."),
    "decay_rate": (NonNegativeFloat, "How strongly the learning rate decays."),
    "decay_steps": (PositiveInt, "Over how many steps it decays."),
    "ema_momentum": (Fraction, "Momentum of the moving average of the weights."),
    "ema_overwrite_frequency": (PositiveInt, "Every so many steps the average replaces the weights."),
    "end_learning_rate": (NonNegativeFloat, "The learning rate at the end."),
    "epsilon": (NonNegativeFloat, "A small number that keeps divisions stable."),
    "epsilon_1": (NonNegativeFloat, "A small number that keeps divisions stable."),
    "epsilon_2": (NonNegativeFloat, "The lowest learning rate relative to a variable's size."),
    "exclude_embeddings": (bool, "Leave embeddings to Adam."),
    "exclude_layers": (List[str], "Layers, by parts of their names, that are left to Adam."),
    "first_decay_steps": (PositiveInt, "Steps of the first period."),
    "global_clipnorm": (PositiveFloat, "All gradients together are scaled down to this norm."),
    "gradient_accumulation_steps": (AtLeastTwoInt, "Gradients of so many steps are averaged into one update."),
    "initial_accumulator_value": (NonNegativeFloat, "Where the accumulators start."),
    "initial_learning_rate": (NonNegativeFloat, "The learning rate at the start."),
    "initial_variance": (NonNegativeFloat, "Variance of the noise at the start."),
    "jit_compile": (bool, "Compile the update with XLA."),
    "l1_regularization_strength": (NonNegativeFloat, "Weight of the L1 penalty."),
    "l2_regularization_strength": (NonNegativeFloat, "Weight of the L2 penalty."),
    "l2_shrinkage_regularization_strength": (NonNegativeFloat, "Weight of the L2 shrinkage penalty."),
    "learning_rate": (NonNegativeFloat, "How far a step goes: a number or a schedule."),
    "learning_rate_power": (_NonPositiveFloat, "How the learning rate falls with the accumulated gradients."),
    "m_mul": (NonNegativeFloat, "Each period starts at the learning rate of the one before times this."),
    "momentum": (Fraction, "Share of the last update that is kept."),
    "muon_a": (Number, "First coefficient of the Newton-Schulz iteration."),
    "muon_b": (Number, "Second coefficient of the Newton-Schulz iteration."),
    "muon_c": (Number, "Third coefficient of the Newton-Schulz iteration."),
    "nesterov": (bool, "Use Nesterov's momentum."),
    "ns_steps": (PositiveInt, "Newton-Schulz iterations in a step."),
    "num_periods": (NonNegativeFloat, "Periods of the cosine."),
    "power": (NonNegativeFloat, "Degree of the polynomial."),
    "relative_step": (bool, "Make the learning rate relative to the step."),
    "rho": (Fraction, "Decay of the running averages."),
    "rms_rate": (NonNegativeFloat, "Updates are scaled to this root mean square."),
    "staircase": (bool, "Decay in steps, not continuously."),
    "t_mul": (PositiveFloat, "Each period is this many times as long as the one before."),
    "use_ema": (bool, "Keep a moving average of the weights."),
    "values": (Annotated[List[NonNegativeFloat], Field(min_length=1)], "Learning rates, one more than boundaries."),
    "variance_decay": (NonNegativeFloat, "How strongly the noise's variance decays."),
    "warmup_steps": (NonNegativeInt, "Steps over which the learning rate grows first."),
    "warmup_target": (NonNegativeFloat, "The learning rate at the end of the growth."),
    "weight_decay": (NonNegativeFloat, "Share of the weights that is taken away each step."),
}

# Arguments of Keras that a document can't have, with the alternative.
_NOT_IN_A_DOCUMENT = {
    "name": "Keras's name for the object can't be given.",
    "loss_scale_factor": "The loss scale is given by the document's 'loss_scale'.",
}
_INSTEAD = dict(_NOT_IN_A_DOCUMENT, lr="Write 'learning_rate'.")


class Arguments(StrictModel):
    """Base class of the models that are made from the table of a target."""

    exclusive: ClassVar[Tuple[Tuple[str, str], ...]] = ()

    @model_validator(mode="after")
    def _rules(self) -> "Arguments":
        for first, second in self.exclusive:
            if getattr(self, first) is not None and getattr(self, second) is not None:
                message = f"{first} and {second} can't be given together here: choose one"
                raise PydanticCustomError("exclusive", "{message}", {"field": second, "message": message})
        boundaries, values = getattr(self, "boundaries", None), getattr(self, "values", None)
        if boundaries is not None and values is not None:
            if len(values) != len(boundaries) + 1:
                message = f"{len(boundaries)} boundaries need {len(boundaries) + 1} values, but {len(values)} are given"
                raise broken_rule("values", message)
            if sorted(set(boundaries)) != boundaries:
                raise broken_rule("boundaries", "boundaries must grow from one to the next")
        return self


class OptimizerSpec(NamedTuple):
    """A valid optimizer or learning-rate schedule of a document.

    Attributes:
        name: The name in the document.
        class_path: The path of its class below ``tf.keras``.
        arguments: The arguments of its constructor.

    Example:
        >>> import scalekeeper
        >>> spec = scalekeeper.load_document({"optimizer": {"name": "sgd", "momentum": 0.9}}, target="2.3").optimizer
        >>> spec.name, spec.class_path, spec.arguments
        ('sgd', 'optimizers.SGD', {'momentum': 0.9})
    """

    name: str
    class_path: str
    arguments: Dict[str, Any]


def check_optimizer(spec: Any, target: Target) -> OptimizerSpec:
    """Check ``"adam"`` or ``{name: adam, learning_rate: …}``."""
    if isinstance(spec, str):
        spec = {"name": spec}
    if not isinstance(spec, Mapping):
        raise InvalidSpecError(
            [Problem((), f"{shown(spec)} is not an optimizer: give a name, or a mapping with a name", "type")]
        )
    problems: List[Problem] = []
    arguments = dict(spec)
    rate = arguments.get("learning_rate")
    if isinstance(rate, Mapping):
        arguments.pop("learning_rate")
        try:
            rate = _check(SCHEDULES, rate, target)
        except InvalidSpecError as error:
            problems += [problem.under("learning_rate") for problem in error.problems]
    try:
        checked_spec = _check(OPTIMIZERS, arguments, target)
    except InvalidSpecError as error:
        raise InvalidSpecError(problems + list(error.problems)) from None
    if problems:
        raise InvalidSpecError(problems)
    if isinstance(rate, OptimizerSpec):
        checked_spec.arguments["learning_rate"] = rate
    return checked_spec


def _check(kind: str, spec: Mapping[str, Any], target: Target) -> OptimizerSpec:
    values = dict(spec)
    name_key = _NAME_KEYS[kind]
    if name_key not in values:
        message = "{} needs {!r}; valid: {}".format(_KINDS[kind], name_key, ", ".join(names(kind, target)))
        raise InvalidSpecError([Problem((), message, "missing")])
    given = values.pop(name_key)
    name = spellings(kind, target).get(given) if isinstance(given, str) else None
    if name is None:
        message = unknown(_KINDS[kind], given, names(kind, target), remedy=_other_targets(kind, given, None, target))
        raise InvalidSpecError([Problem((name_key,), message, "unknown_name")])
    model = argument_model(kind, name, target)
    try:
        model_values = checked(model, values, name)
    except InvalidSpecError as error:
        raise InvalidSpecError([_explained(problem, kind, name, target) for problem in error.problems]) from None
    arguments = {key: getattr(model_values, key) for key in values}
    return OptimizerSpec(name, target.table[kind][name]["class"], arguments)


def _explained(problem: Problem, kind: str, name: str, target: Target) -> Problem:
    """Add to the problem of an unknown argument which targets have it, or an alternative."""
    if problem.kind != "extra_forbidden" or len(problem.path) != 1:
        return problem
    argument = str(problem.path[0])
    remedy = _INSTEAD[argument] if argument in _INSTEAD else _other_targets(kind, name, argument, target)
    return problem._replace(message=f"{problem.message} {remedy}".strip())


def _other_targets(kind: str, name: Any, argument: Optional[str], target: Target) -> str:
    """Return a sentence on the targets that have a name or an argument."""

    def has_it(other: Target) -> bool:
        entry = other.table[kind].get(spellings(kind, other).get(name)) if isinstance(name, str) else None
        return entry is not None and (argument is None or argument in entry["arguments"])

    having = ranges(has_it)
    return "The target here is {}; on {} it is there.".format(target.name, " and ".join(having)) if having else ""


def names(kind: str, target: Target) -> List[str]:
    """Return the names of the optimizers or schedules of a target."""
    return sorted(target.table[kind])


def spellings(kind: str, target: Target) -> Dict[str, str]:
    """Return every accepted spelling → name: ``adam``, ``Adam``, ``legacy.Adam``."""
    found = {}
    for name, entry in target.table[kind].items():
        prefix = name.rpartition(".")[0]
        class_name = entry["class"].rpartition(".")[2]
        found[name] = name
        found[prefix + "." + class_name if prefix else class_name] = name
    return found


@functools.lru_cache(maxsize=None)
def argument_model(kind: str, name: str, target: Target) -> Type[Arguments]:
    """Return the model of the arguments of an optimizer or schedule. Schedules as learning rates are checked apart."""
    entry = target.table[kind][name]
    fields: Dict[str, Any] = {}
    for argument, default in entry["arguments"].items():
        if argument in _NOT_IN_A_DOCUMENT:
            continue
        annotation, description = _ARGUMENTS[argument]
        if argument in entry["nonzero"]:
            annotation = Annotated[annotation, Field(gt=0)]
        if argument in entry["required"]:
            fields[argument] = (annotation, Field(description=description))
        elif default is not None:
            fields[argument] = (annotation, Field(default, description=description))
        elif argument in entry["nullable"]:
            fields[argument] = (Optional[annotation], Field(None, description=description))
        else:  # optional, but not null
            fields[argument] = (annotation, Field(default_factory=lambda: None, description=description))
    pairs = tuple((first, second) for first, second in entry["exclusive"])
    base = type("Arguments", (Arguments,), {"exclusive": pairs, "__annotations__": {}, "__module__": __name__})
    return create_model(name, __base__=base, **fields)
