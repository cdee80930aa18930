"""The PyTorch programs that the pages change run as they were."""

import os

from scalekeeper_test_support.page_programs import PYTORCH, all_changes, run_old_program, where_it_runs


def test_pytorch_programs():
    """Each diff that says ``before: pytorch``."""
    for page, _, block in all_changes():
        if where_it_runs(block) == PYTORCH:
            run_old_program(block, os.path.splitext(os.path.basename(page))[0])
