"""What a skipped step did to ``iterations`` under the Keras that wrote a file."""

from typing import Optional

import re

from ...registry._documents import ADVANCE, HOLD

NAME = "skipped_steps_advance"  # of ours in a checkpoint: 0 or 1, a child of the optimizer


def of_keras(version: Optional[str]) -> Optional[str]:
    """By the version that a file names; None if it names none, or a Keras that knows no loss scale.

    TensorFlow 2.0 to 2.2 call theirs 2.2.4-tf and 2.3.0-tf, and hold; 2.3, the first that advances, calls it 2.4.0.
    """
    found = re.match(r"([0-9]{1,4})\.([0-9]{1,4})", version or "")
    if version is None or found is None:
        return None
    number = (int(found.group(1)), int(found.group(2)))
    if number >= (3, 0):
        return HOLD
    if number >= (2, 4):
        return ADVANCE
    return HOLD if version.endswith("-tf") else None
