"""Slots of optimizers that have none: new Keras optimizers keep lists of variables, one for each trainable variable."""

from typing import Any, Dict, List, Sequence

# class → slot in the documentation → attribute that holds the list; without an entry, a slot is named as its attribute
_ADAM = {"m": "_momentums", "v": "_velocities", "vhat": "_velocity_hats"}
_ATTRIBUTES: Dict[str, Dict[str, str]] = {
    "SGD": {"momentum": "momentums"},
    "Adam": _ADAM,
    "AdamW": _ADAM,
    "Nadam": _ADAM,
    "RMSprop": {"rms": "_velocities", "momentum": "_momentums", "mg": "_average_gradients"},
    "Adagrad": {"accumulator": "_accumulators"},
    "Adadelta": {"accum_grad": "_accumulated_grads", "accum_var": "_accumulated_delta_vars"},
    "Adamax": {"m": "_m", "v": "_u"},
    "Ftrl": {"accumulator": "_accumulators", "linear": "_linears"},
}


def slot_attributes(optimizer: Any, variables: Sequence[Any]) -> Dict[str, str]:
    """Slot → attribute, of all the lists that an optimizer with these variables of its own has."""
    found = _lists_of_variables(optimizer, variables)
    known = next((_ATTRIBUTES[cls.__name__] for cls in type(optimizer).__mro__ if cls.__name__ in _ATTRIBUTES), {})
    attributes = {slot: attribute for slot, attribute in known.items() if attribute in found}
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
