"""Names that moved to ``_record``."""

from . import _record

NAME, COUNTERS, OVERFLOWS = _record.SKIPS, _record.SKIP_COUNTERS, _record.OVERFLOWS
TOTAL, IN_A_ROW, LAST = COUNTERS
whole = _record.complete_skips
