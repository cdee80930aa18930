"""Old names of :mod:`._slots` and :mod:`._optimizer_config`, until the callers have moved."""

from ._optimizer_config import inner_class, inner_config
from ._slots import (
    attribute_names,
    attributes_of_slot,
    class_with_slots,
    owner_and_slot,
    slots_of_class,
)
from ._slots import class_of_parts as class_of_words
from ._slots import ending_part as ending_word
from ._slots import name_parts as words_of
from ._slots import owner_after_part as owner_after_word
from ._slots import scalar_name as scalar_named
from ._slots import slot_of_part as slot_of_word
from ._slots import slot_part as word_of
from .keras3 import KERAS_3_PROFILE

KERAS_3_STATE = dict(KERAS_3_PROFILE.state_names)
__all__ = [
    "KERAS_3_STATE",
    "attribute_names",
    "attributes_of_slot",
    "class_of_words",
    "class_with_slots",
    "ending_word",
    "inner_class",
    "inner_config",
    "owner_after_word",
    "owner_and_slot",
    "scalar_named",
    "slot_of_word",
    "slots_of_class",
    "word_of",
    "words_of",
]
