"""The policy that is checked: a class, an object, a name or a mapping, from which each check makes new objects."""

from typing import Any, Dict, List, Mapping, Optional

import inspect
import itertools

from ..lossscales.contract import LossScale, has_pure_step
from ..registry._plugins import loss_scales
from ..registry.errors import InvalidSpecError, Problem
from ._check import NotRun
from ._steps import bad_reports, exact, good_reports, gradients, mixed_reports, plain, states_after

_LONG = 10_000  # steps to find a changed state; 0.1 seconds in NumPy


class Subject:
    """A policy as its author passed it. ``companions`` are all subjects that are checked together."""

    def __init__(self, spec: Any) -> None:
        self.spec = spec
        self.label = label_of(spec)
        self.companions: List[Subject] = [self]
        self.replica_results: Optional[Dict[str, Any]] = None
        self._moved: Optional[Dict[str, Any]] = None
        if inspect.isclass(spec):
            _require_no_parameters(loss_scales.plugin_of(spec), "class")

    def make(self) -> Any:
        """Return a new object in its initial state."""
        if isinstance(self.spec, str):
            _require_no_parameters(loss_scales.plugin(self.spec), "name")
        if inspect.isclass(self.spec) or isinstance(self.spec, (str, Mapping)):
            return loss_scales.resolve(self.spec)
        return _another(loss_scales.resolve(self.spec))

    @property
    def cls(self) -> Any:
        return type(self.make())

    @property
    def is_pure(self) -> bool:
        """Whether the policy has a pure step."""
        return has_pure_step(self.make())

    def gradients(self, count: int, seed: int = 7) -> List[Any]:
        """Return gradients for ``update``: NumPy arrays, or tensors for a class without a pure step."""
        several = gradients(count, seed)
        if self.is_pure:
            return several
        import tensorflow as tf

        return [tf.constant(each) for each in several]

    def moved_state(self) -> Dict[str, Any]:
        """Return a state, as plain numbers, that differs from the initial one in as many values as possible."""
        if self._moved is None:
            self._moved = self._most_moved()
        initial = plain(self.make().initial_state())
        if initial and exact(self._moved) == exact(initial):
            raise NotRun(
                f"no step of {_LONG:,} changes the state, so nothing would show that it is lost: give parameters with "
                "which it changes"
            )
        return self._moved

    def _most_moved(self) -> Dict[str, Any]:
        policy = self.make()
        start = policy.initial_state()
        initial, best = exact(plain(start)), dict(plain(start))
        good, bad = good_reports(policy.needs), bad_reports(policy.needs)
        # finite steps at the end, so that counters are not 0
        runs = (mixed_reports(policy.needs), [*bad, *bad, *good], itertools.islice(itertools.cycle(good), _LONG))
        most = 0
        for reports in runs:
            for state in states_after(policy, start, reports):
                values = plain(state)
                moved = sum(text != initial[name] for name, text in exact(values).items())
                if moved > most:
                    most, best = moved, values
            if most == len(initial):
                break
        return best


def label_of(spec: Any) -> str:
    """Return the name of a spec in reports and test ids."""
    if inspect.isclass(spec):
        return str(spec.__name__)
    if isinstance(spec, Mapping):
        parameters = ",".join(f"{key}={value}" for key, value in spec.items() if key != "name")
        return f"{spec.get('name')}({parameters})" if parameters else str(spec.get("name"))
    return str(spec) if isinstance(spec, (str, int, float)) else type(spec).__name__


def _require_no_parameters(plugin: Any, given_as: str) -> None:
    required = [name for name, default in plugin.defaults().items() if default == "(required)"]
    if required:
        given = ", ".join(f"{name}=…" for name in required)
        message = (
            f"{plugin.cls.__name__} has no default for {', '.join(required)}: check an object, "
            f"{plugin.cls.__name__}({given}), or a mapping with its name and parameters, instead of the {given_as}"
        )
        raise InvalidSpecError([Problem((), message, "missing")])


def _another(policy: Any) -> Any:
    """Return a new object with the parameters of a given one, whose state may have changed."""
    cls = type(policy)
    if isinstance(policy, LossScale) and hasattr(policy, "params"):
        return cls.from_params(policy.params)
    return cls.from_config(policy.get_config())
