"""Slots of optimizers that have none: new Keras optimizers keep lists of variables, one for each trainable variable."""

from typing import Any, Dict, List, Sequence

from ...serialization.keras._slots import attribute_names


def slot_attributes(optimizer: Any, variables: Sequence[Any]) -> Dict[str, str]:
    """Slot → attribute, of all the lists that an optimizer with these variables of its own has."""
    found = _lists_of_variables(optimizer, variables)
    known = attribute_names(cls.__name__ for cls in type(optimizer).__mro__)
    attributes = {slot: name for slot, names in known.items() for name in names if name in found}
    unnamed = [attribute for attribute in found if attribute not in attributes.values()]
    return {**attributes, **{attribute.strip("_"): attribute for attribute in unnamed}}


def _lists_of_variables(optimizer: Any, variables: Sequence[Any]) -> List[str]:
    """The attributes that hold one variable of the optimizer's own for each trainable variable."""
    own = {id(variable) for variable in variables}
    found = []
    for name, value in vars(optimizer).items():
        is_list = isinstance(value, (list, tuple)) and len(value) > 0
        if is_list and name != "_variables" and all(each is None or id(each) in own for each in value):
            found.append(name)
    return found
