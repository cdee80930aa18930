"""The methods by which a LossScaleOptimizer gives out its state and takes it back."""

from typing import Any, Dict, List, Mapping, Optional, Sequence

from ...registry.errors import InvalidSpecError, Problem
from ...serialization._optimizer_weight_lists import Expected, decoded
from ...serialization._variable_matching import match_owners, owners_of
from ...serialization.formats.npz import contents_of_state_dict, state_dict_of
from ...serialization.training_state import Contents
from .._step.gate import state_variables
from . import state_transfer


class KeepsState:
    """A base of LossScaleOptimizer: ``state_dict``, ``load_state_dict`` and ``set_weights``."""

    def state_dict(self) -> Dict[str, Any]:
        """Everything that is needed to go on from here: plain values and NumPy arrays, by name.

        The inner optimizer's configuration, iterations and slots by variable, the policy and its state, and whether a
        skipped step counts. The same on every version; ``scalekeeper.save_state`` writes it to a file.
        """
        return state_dict_of(self._contents())

    def load_state_dict(self, given: Mapping[str, Any], variables: Optional[Sequence[Any]] = None) -> None:
        """Go on from what ``state_dict`` gave, on this version or another. A state that does not fit is refused whole.

        ``variables`` are those that the optimizer trains; it knows them once it has taken a step.
        """
        contents = contents_of_state_dict(given)
        variables = list(self._known_variables() if variables is None else variables)
        if contents.slots and not variables:
            raise ValueError(
                "the optimizer does not know its variables yet: give load_state_dict(state, model.trainable_variables)"
            )
        shapes = {owner: tuple(each.shape) for owner, each in zip(owners_of(variables), variables)}
        matching = match_owners(shapes, contents.owners)
        problems = [Problem((owner,), "the state has no such variable", "missing") for owner in matching.missing]
        problems += [Problem((owner,), "the optimizer has no such variable", "unused") for owner in matching.unused]
        if problems:
            raise InvalidSpecError(problems)
        state_transfer.take(self, contents, variables, matching.pairs, is_strict=True)

    def set_weights(self, weights: Sequence[Any], layout: Optional[str] = None) -> None:
        """Take a list of weights that ``get_weights`` or ``variables`` of any version gave.

        What is what is told by shape, type and sign. Where that leaves a choice, say ``layout``: ``"blocks"`` (2.0 to
        2.10: one slot of all variables, then the next) or ``"interleaved"`` (Keras 3: all slots of one variable, then
        of the next).
        """
        if not len(weights) and not self.weights:  # type: ignore[attr-defined]
            return
        expected = self._expected()
        contents = state_transfer.contents_of_list(decoded(weights, expected, layout))
        self._take(contents, self._known_variables(), {owner: owner for owner in expected.slots})

    # For the files

    def _contents(self) -> Contents:
        return state_transfer.contents_of(self)

    def _take(self, contents: Contents, variables: Sequence[Any], pairs: Mapping[str, str]) -> state_transfer.Taken:
        return state_transfer.take(self, contents, variables, pairs)

    def _expected(self, variables: Optional[Sequence[Any]] = None) -> Expected:
        if variables is not None:
            state_transfer.make_slots(self, variables)
        return state_transfer.expected_of(self)

    def _ordered_state(self) -> Dict[str, Any]:
        """The variables of the loss scale, in the order in which Keras 3 lists them."""
        variables = state_variables(self._policy)  # type: ignore[attr-defined]
        first = [name for name in ("good_steps", "current_loss_scale") if name in variables]
        return {name: variables[name] for name in (*first, *(each for each in variables if each not in first))}

    # The variables that the optimizer has met

    def _known_variables(self) -> List[Any]:
        return list(self.__dict__.get("_scalekeeper_variables", {}).values())

    def _remember(self, variables: Sequence[Any]) -> None:
        # not by setattr: what Keras finds in an attribute, it saves
        known = self.__dict__.setdefault("_scalekeeper_variables", {})
        known.update({id(variable): variable for variable in variables})
