"""docs/testing.md says what the checks are."""

import os
import re

from scalekeeper.testing import CHECKS

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def test_the_table_is_the_list_of_checks():
    """Each check in its order, with its sentence and what it needs."""
    with open(os.path.join(ROOT, "docs", "testing.md"), encoding="utf-8") as stream:
        rows = re.findall(r"^\| `(\w+)` \| (.*?) \| ?(.*?) ?\|$", stream.read(), re.MULTILINE)
    needs = {(False, False): "", (True, False): "TensorFlow", (False, True): "the pure step"}
    assert rows == [
        (check.name, check.sentence, needs[check.needs_tensorflow, check.needs_pure_step]) for check in CHECKS
    ]
