"""The PyTorch programs that the pages change run as they were."""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "compat_tests", "pages"))
from programs import PYTORCH, all_changes, run_old_program, where_it_runs  # noqa: E402


def test_pytorch_programs():
    """Each diff that says ``before: pytorch``."""
    for page, _, block in all_changes():
        if where_it_runs(block) == PYTORCH:
            run_old_program(block, os.path.splitext(os.path.basename(page))[0])
