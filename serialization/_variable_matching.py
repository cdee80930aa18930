"""Names that moved to ``_variables``."""

from ._variables import match_owners as match_owners
from ._variables import owners_of as owners_of
