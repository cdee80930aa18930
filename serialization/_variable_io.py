"""Names that moved to ``_variables``."""

from ._variables import assign as assign
from ._variables import value_of as value_of
