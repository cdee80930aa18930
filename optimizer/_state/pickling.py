"""Copies of a LossScaleOptimizer, by ``copy`` and by ``pickle``.

Keras's optimizers hold objects of TensorFlow that some versions can't copy, and what others copy is not all of the
state. So a copy is made anew: of the inner optimizer's class and configuration, of the policy, and of the whole state.
A slot belongs to a variable. In another process these come with the first step; until then, the copy keeps their slots.
"""

from typing import Any, ClassVar, Dict, Optional, Sequence, Tuple

import copy
import dataclasses

import numpy as np
import tensorflow as tf

from ...registry.errors import InvalidSpecError, Problem
from ...serialization._variable_matching import match_owners, owners_of
from ...serialization.formats.npz import contents_of_state_dict, state_dict_of
from ...serialization.training_state import Contents
from .._step.gate import has_pure_step, replicas_can_meet
from . import state_transfer

_KEPT = "_scalekeeper_kept"  # not by setattr: what Keras finds in an attribute, it saves


class Copied:
    """A base of LossScaleOptimizer: ``copy.copy``, ``copy.deepcopy`` and ``pickle``."""

    inner_optimizer: Any
    _policy: Any
    _skipping: Any
    _monitoring: Any
    _public_class: ClassVar[Any] = None  # the one that was called to make an object

    def __copy__(self) -> Any:
        """Another object that shares everything with this one."""
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        return twin

    def __deepcopy__(self, memo: Dict[int, Any]) -> Any:
        """One with a state of its own, for the same variables, or for their copies where these are copied too."""
        twin = memo[id(self)] = _made_anew(*copy.deepcopy(self._parts(), memo))
        twin.__setstate__(state_dict_of(state_transfer.contents_of(self)))
        known = self._known_variables()  # type: ignore[attr-defined]
        variables = [memo.get(id(variable), variable) for variable in known]
        state_transfer.make_slots(twin, variables)
        twin._hand_out(variables)
        return twin

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _made_anew, self._parts(), state_dict_of(state_transfer.contents_of(self))

    def __setstate__(self, given: Dict[str, Any]) -> None:
        self._keep(contents_of_state_dict(given))

    def _parts(self) -> Tuple[Any, ...]:
        """What ``_made_anew`` takes; classes are pickled by their names."""
        inner, policy = self.inner_optimizer, self._policy
        options = {**self._skipping.in_config(), **self._monitoring.said()}
        name = self.get_config().get("name")  # type: ignore[attr-defined]
        options.update({} if name is None else {"name": name})
        # one with a state in its own way may hold what can't be copied; its variables are in the state
        made_of = (policy, None) if has_pure_step(policy) else (type(policy), policy.get_config())
        return (self._public_class, type(inner), _with_own_numbers(inner.get_config()), *made_of, options)

    # Slots whose variables are not known yet

    def _keep(self, contents: Contents) -> None:
        """Take the state, but for the slots, and these when their variables are there."""
        state_transfer.take(self, contents, (), {})
        if contents.slots or contents.scalars:
            vars(self)[_KEPT] = contents

    def _kept(self) -> Optional[Contents]:
        return vars(self).get(_KEPT)

    def _forget_kept(self) -> None:
        vars(self).pop(_KEPT, None)

    def _hand_out(self, variables: Sequence[Any]) -> None:
        """Fill the slots of these variables, which the optimizer has made, with what was kept for them."""
        kept = self._kept()
        if kept is None:
            return
        if tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context():
            if not replicas_can_meet():
                raise RuntimeError(
                    "a copied optimizer takes over its slots with the first step, which replicas that XLA compiles "
                    "can't do together: before it, call "
                    "optimizer.load_state_dict(optimizer.state_dict(), model.trainable_variables)"
                )
            tf.distribute.get_replica_context().merge_call(lambda strategy: self._hand_out(variables))
            return
        shapes = {owner: tuple(variable.shape) for owner, variable in zip(owners_of(variables), variables)}
        matching = match_owners(shapes, kept.owners)
        if kept.owners and not matching.pairs:
            problems = [Problem((owner,), "the copied optimizer has no such variable", "missing") for owner in shapes]
            raise InvalidSpecError(problems)
        self._forget_kept()
        slots = {owner: kept.slots[theirs] for owner, theirs in matching.pairs.items() if theirs in kept.slots}
        with tf.init_scope():  # a step that is being traced may be the first
            now = state_transfer.contents_of(self)
            state_transfer.take(
                self,
                dataclasses.replace(now, slots={**now.slots, **slots}, scalars=kept.scalars or now.scalars),
                self._known_variables(),  # type: ignore[attr-defined]
                {owner: owner for owner in now.owners},
            )
        left = {owner: shape for owner, shape in kept.owners.items() if owner in matching.unused}
        if left:  # as in a training whose steps are about one part of the variables, and then about another
            slots = {owner: each for owner, each in kept.slots.items() if owner in left}
            vars(self)[_KEPT] = dataclasses.replace(kept, owners=left, slots=slots, scalars={})


def _with_own_numbers(config: Dict[str, Any]) -> Dict[str, Any]:
    """Python's for NumPy's, which up to 2.10 a constructor takes for variables."""
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in config.items()}


def _made_anew(cls: Any, inner_class: Any, inner_config: Any, policy: Any, policy_config: Any, options: Any) -> Any:
    made = policy if policy_config is None else policy.from_config(policy_config)
    with tf.init_scope():
        return cls(inner_class.from_config(inner_config), made, **options)
