"""Every code block of every page runs, on the last of the old TensorFlows and on the newest."""

import json
import os

import pytest

from scalekeeper_test_support import script_runner
from scalekeeper_test_support.installed_keras import IS_KERAS_3
from scalekeeper_test_support.page_blocks import all_pages, skips
from scalekeeper_test_support.repository import ROOT, repository_path

pytestmark = pytest.mark.slow("py38-tf23", "py313-tf221-keras3", is_divided=True)

INSTALLED = "Keras 3" if IS_KERAS_3 else "2.3"
# (page, condition) → where blocks are skipped, which is one of the two and never both; a new one needs a reason
SKIPPED = {
    ("docs/coming_from/keras_3.md", 'not hasattr(tf.keras.optimizers.Optimizer, "scale_loss")'): "2.3",
    ("docs/coming_from/tensorflow_2_0_to_2_3.md", 'not hasattr(tf, "mixed_precision")'): "Keras 3",
    ("docs/files.md", 'not hasattr(tf.keras.Model, "get_compile_config")'): "2.3",
    ("docs/optimizer.md", 'hasattr(tf.keras.mixed_precision, "set_global_policy")'): "Keras 3",
    ("docs/optimizer.md", 'not hasattr(tf.keras.mixed_precision, "set_global_policy")'): "2.3",
}


# py313-install and compat_tests/cli/test_demo.py run the demo too
LONG = ["docs/demo.md"]


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.long) if page in LONG else page for page in all_pages()]
)
def test_page(page):
    """Its blocks do what they show; those that can't on this TensorFlow are the ones listed above."""
    printed = script_runner.run(repository_path("compat_tests", "docs", "run_page.py"), os.path.join(ROOT, page))
    skipped = {(page, condition) for _, condition in json.loads(printed.splitlines()[-1])}
    assert skipped == {each for each, where in SKIPPED.items() if each[0] == page and where == INSTALLED}


def test_skips():
    """Each skip of a page stands above, with the one place where it applies."""
    assert {(page, each) for page in all_pages() for each in skips(os.path.join(ROOT, page))} == set(SKIPPED)
    assert set(SKIPPED.values()) <= {"2.3", "Keras 3"}
