"""Settings of all tests that need TensorFlow: warnings, speed, and which folders an environment can collect."""

import gc
import importlib.util
import os
import warnings

import pytest

# All other warnings are errors (pyproject.toml). A warning counts for the module that it names as its source.
IGNORED_WARNINGS = [
    # TensorFlow and Keras about their own code: aliases of collections and numpy that newer versions drop, arguments
    # that a newer Keras would write otherwise. Tests run unchanged on every version and cannot avoid them.
    r"ignore:::(tensorflow|tensorflow_core|tensorflow_estimator|keras|tf_keras|gast|astor|google|jax|tensorboard)(\.|$)",
    # Keras up to 2.15 calls random.randint(1, 1e9), and Python 3.10 and 3.11 warn in the module random
    "ignore:non-integer arguments to randrange:DeprecationWarning:random",
    # many tests have no loss, but gradients that they wrote down; a loss that is scaled, and whose gradients are never
    # unscaled, is an error here too
    "ignore:apply_gradients is called without get_scaled_loss:UserWarning",
    # strategies of TensorFlow 2.6 to 2.8 leave a pool of threads to the garbage collector
    "ignore:unclosed running multiprocessing pool:ResourceWarning",
    # the environment of the nightly TensorFlow; test_environment.py checks that no other one gets it
    "ignore:scalekeeper is not tested beyond:UserWarning",
]

# py311-originals has PyTorch and no TensorFlow, the other environments the reverse
collect_ignore = [] if importlib.util.find_spec("torch") else ["originals"]

# the real packages with optimizers are in environments of their own, each with its file
if "-packages-" not in os.environ.get("SCALEKEEPER_ENVIRONMENT", ""):
    collect_ignore.append("packages")

# the pages of the documentation run on the last of the old TensorFlows and on the newest
if not os.environ.get("SCALEKEEPER_ENVIRONMENT", "").startswith(("py38-tf23", "py313-tf221-keras3")):
    collect_ignore.append("docs/test_pages.py")

if importlib.util.find_spec("tensorflow"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorflow.python.eager import context

        from scalekeeper_test_support import replica_threads

    # A new Keras session makes TensorFlow drop its cache of kernels. No result depends on the cache, and filling it
    # again took a quarter of the time of the tests that begin with a new session.
    context.context().clear_kernel_cache = lambda: None
    replica_threads.poll_often()


def pytest_configure(config):
    for each in IGNORED_WARNINGS:
        config.addinivalue_line("filterwarnings", each)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Keep the tests of a file in one process, as they share trained models; distribute pages, which are slow."""
    from xdist.scheduler import LoadFileScheduling

    class PagesApart(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return nodeid if nodeid.startswith("compat_tests/docs/test_pages.py") else super()._split_scope(nodeid)

    return PagesApart(config, log)


@pytest.fixture(scope="module", autouse=True)
def frozen_garbage_collector(request):
    """Exclude the objects that exist before a file's tests from garbage collection, which saves much time.

    Keras 3 collects garbage with each new session, and Python does while TensorFlow creates the objects of a graph.
    Hypothesis looks for referrers, and frozen objects are not found: its tests run without this.
    """
    gc.set_threshold(20000)
    if hasattr(request.module, "hypothesis"):
        gc.unfreeze()
    else:
        gc.collect()
        gc.freeze()
