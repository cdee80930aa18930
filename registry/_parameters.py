"""Parameter models of classes, from ``Params`` or the constructor, and their errors as problems."""

import typing
from typing import Any, Dict, List, Mapping, Sequence, Tuple, Type, TypeVar

import inspect
import numbers

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema, create_model
from typing_extensions import Annotated, Literal

from ._foreign_names import own_name, remedy_for
from ._number_texts import as_boolean, as_number
from .errors import InvalidSpecError, Problem, shown, unknown
from .field_types import FLOAT32_ABOVE_ONE, FLOAT32_BELOW_ONE, FLOAT32_MAX, FLOAT32_TINY, StrictModel, WholeNumber

Model = TypeVar("Model", bound=BaseModel)


def _number(value: Any) -> Any:
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number or not -FLOAT32_MAX <= value <= FLOAT32_MAX:
        raise ValueError(f"{shown(value)} must be a finite number")
    return value


# An argument with the default 3 and no annotation may be an integer or a float: accept any number unchanged.
_AsGiven = Annotated[Any, BeforeValidator(_number), WithJsonSchema({"type": "number"})]
_BY_TYPE: Dict[Any, Any] = {int: WholeNumber}
_BY_DEFAULT: Dict[type, Any] = {bool: bool, int: _AsGiven, float: float, str: str}


def parameter_model(cls: type) -> Type[BaseModel]:
    """Return the parameter model of a class: its ``Params``, or the signature of a constructor that overrides it."""
    for ancestor in cls.__mro__:
        params = ancestor.__dict__.get("Params")
        if inspect.isclass(params) and issubclass(params, BaseModel):
            return params
        if "__init__" in ancestor.__dict__ and ancestor is not object:
            return _model_of_signature(cls)
    return _model_of_signature(cls)


def with_defaults(model: Type[BaseModel], defaults: Mapping[str, Any], owner: str) -> Type[BaseModel]:
    """Return the model with other defaults, or raise an error if they are not valid."""
    values = dict(defaults)
    try:
        valid = dict(checked(model, defaults, owner))
        values = {name: valid[name] for name in defaults}
    except InvalidSpecError as error:
        problems = [problem for problem in error.problems if problem.kind != "missing"]
        if problems:
            raise InvalidSpecError(problems) from None
    fields: Dict[str, Any] = {}
    for name, value in values.items():
        field = model.model_fields[name]
        annotation: Any = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
        fields[name] = (annotation, Field(value, description=field.description))
    return create_model(model.__name__, __base__=model, **fields)


def _model_of_signature(cls: type) -> Type[BaseModel]:
    try:
        signature = inspect.signature(cls)
    except (TypeError, ValueError):
        signature = inspect.Signature()
    try:
        hints = typing.get_type_hints(cls.__init__)  # type: ignore[misc]
    except Exception:  # a name that exists only for type checkers
        hints = {}
    fields: Dict[str, Any] = {}
    extra: Literal["forbid", "allow"] = "forbid"
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            extra = "allow"
        elif parameter.kind is not parameter.VAR_POSITIONAL and not parameter.name.startswith("_"):
            default = ... if parameter.default is parameter.empty else parameter.default
            annotation = hints.get(parameter.name, _BY_DEFAULT.get(type(default), Any))
            fields[parameter.name] = (_BY_TYPE.get(annotation, annotation), default)

    class Base(StrictModel):
        model_config = ConfigDict(extra=extra, arbitrary_types_allowed=True)

    return create_model(cls.__name__ + "Parameters", __base__=Base, **fields)


def checked(model: Type[Model], values: Mapping[str, Any], owner: str) -> Model:
    """Validate, or raise :class:`InvalidSpecError` with one problem for each thing that is wrong."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise InvalidSpecError(problems_of(error, list(model.model_fields), owner)) from None


def problems_of(error: ValidationError, names: Sequence[str], owner: str) -> List[Problem]:
    """Return the errors of pydantic as problems."""
    return [_problem(detail, names, owner) for detail in error.errors(include_url=False)]


def _problem(detail: Any, names: Sequence[str], owner: str) -> Problem:
    path: Tuple[Any, ...] = tuple(detail["loc"])
    kind, given = detail["type"], detail["input"]
    if kind == "extra_forbidden" and len(path) == 1:
        near, remedy = own_name(path[-1], names), remedy_for(path[-1], names)
        return Problem(path, unknown("parameter", path[-1], names, of=owner, remedy=remedy, near=near), kind, True)
    if kind == "extra_forbidden":
        return Problem(path, "not a known key", kind, True)
    if kind == "missing":
        return Problem(path[:-1], f"{owner} needs {shown(path[-1])}, which is not given", kind)
    if kind in ("rule", "exclusive"):
        return Problem(path + (detail["ctx"]["field"],), detail["ctx"]["message"], kind)
    if kind == "value_error":
        return Problem(path, str(detail["ctx"].get("error", detail["msg"])), kind)
    return Problem(path, f"{shown(given)} {_must(detail)}", kind)


def _must(detail: Any) -> str:
    context = detail.get("ctx", {})
    if context.get("ge") == FLOAT32_TINY:
        return "must be greater than 0, and no smaller than float32 can hold (1.2e-38)"
    if context.get("ge") == FLOAT32_ABOVE_ONE:
        return "must be greater than 1"
    if context.get("le") == FLOAT32_BELOW_ONE:
        return "must be less than 1"
    if context.get("le") == FLOAT32_MAX:
        return "must not be larger than float32 can hold (3.4e38)"
    text = str(detail["msg"]).replace("Input should be a valid ", "must be a ").replace("Input should be ", "must be ")
    text = text.replace("must be a integer", "must be an integer")
    given = detail["input"]
    if not isinstance(given, str):
        return text
    if detail["type"] == "list_type":
        return f"{text}: write [{given}]"
    meant = as_boolean(given) if detail["type"] == "bool_type" else ""
    meant = as_number(given) if detail["type"] in ("float_type", "int_type") else meant
    if meant:
        return f"{text}: write {meant}" + (" without quotes" if meant == given else "")
    return text
