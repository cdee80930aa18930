"""Checks of the configuration of a policy."""

from typing import Any, Set

import json

from ..lossscales.contract import LossScale
from ..registry._parameters import parameter_model
from ..registry._plugins import loss_scales
from ..registry.errors import ScalekeeperError
from ._check import check, require
from ._steps import step_results
from ._subject import Subject

_NAME = "policy-that-is-checked"


@check()
def config_round_trip(subject: Subject) -> None:
    """get_config returns every parameter; from_config and the registry create an equal policy from it."""
    policy, cls = subject.make(), subject.cls
    config = policy.get_config()
    missing = sorted(set(parameter_model(cls).model_fields) - set(config) - _left_out_as_in_tensorflow(policy))
    require(
        not missing,
        f"get_config leaves out {', '.join(missing)}",
        "A policy whose value is not the default would come back with the default: put every parameter into get_config",
    )
    with loss_scales.temporary_registration(_NAME, cls, override=True):
        by_name = loss_scales.resolve({"name": _NAME, **config})
    for source, again in (("from_config", cls.from_config(dict(config))), ("the registry", by_name)):
        _require_equal(subject, config, again, source)


def _left_out_as_in_tensorflow(policy: Any) -> Set[str]:
    """Return the parameters that TensorFlow's class of the same name lacks, and that have their defaults."""
    if not getattr(policy, "tensorflow_parameters", ()) or not hasattr(policy, "params"):
        return set()
    return set(policy.Params.model_fields) - set(LossScale.get_config(policy))


def _require_equal(subject: Subject, config: Any, again: Any, source: str) -> None:
    require(
        type(again) is subject.cls,
        f"{source} made a {type(again).__name__} of the configuration of a {subject.cls.__name__}",
        "Write from_config as a classmethod that returns cls(**config)",
    )
    require(
        again.get_config() == config,
        f"the configuration was {config}, and is {again.get_config()} after {source}",
        "Have get_config give what the constructor was given, and nothing that it has made of it",
    )
    steps = subject.gradients(60)
    require(
        step_results(again, steps) == step_results(subject.make(), steps),
        f"the policy that {source} made of {config} takes other steps than the one that gave it",
        "Make everything that a step depends on a parameter, or a piece of the state",
    )


@check()
def json_round_trip(subject: Subject) -> None:
    """The configuration and the state are unchanged after a round trip through JSON, so every file can hold them."""
    policy = subject.make()
    config = policy.get_config()
    read = _through_json(config, "the configuration")
    try:
        again = subject.cls.from_config(read).get_config()
    except ScalekeeperError as error:
        again = f"refused ({error})"
    require(
        again == config,
        f"the configuration was {config}, and is {again} after JSON",
        "JSON has numbers, text, true, false, null, lists and mappings with text as keys: use only these as parameters",
    )
    if subject.is_pure:
        policy.load_state(subject.moved_state())
        state = policy.state()
        require(
            _through_json(state, "the state") == state,
            f"the state {state} is not the same after JSON",
            "Have state() give Python's own numbers, as LossScale.state does",
        )


def _through_json(value: Any, what: str) -> Any:
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        require(
            False,
            f"{what}, {value}, can't be written as JSON: {error}",
            "Give plain finite values: Python's own numbers (value.item() of a NumPy one), text, lists and mappings",
        )
