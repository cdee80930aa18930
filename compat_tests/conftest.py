"""TensorFlow warns of many things that are not ours to mend; the tests hold us to none of them."""

import gc
import os
import sys
import warnings

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tensorflow  # noqa: F401
    from tensorflow.python.eager import context

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # for installed_keras, which all tests share

# A new session of Keras makes TensorFlow forget how it runs each operation. No result depends on that, and to find it
# out again took a quarter of the time of the tests that begin with a new session.
context.context().clear_kernel_cache = lambda: None

import replica_threads  # noqa: E402

replica_threads.look_often()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Files stay together, as their tests share what one process has trained; pages share nothing, and take long."""
    from xdist.scheduler import LoadFileScheduling

    class PagesApart(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return nodeid if nodeid.startswith("compat_tests/pages/") else super()._split_scope(nodeid)

    return PagesApart(config, log)


@pytest.fixture(scope="module", autouse=True)
def little_garbage(request):
    """What is there before the tests of a file is there to stay: it is no garbage, and need not be looked at again.

    Keras 3 collects garbage with each new session, and Python does while TensorFlow makes the many objects of a graph.
    Hypothesis asks who holds an object, and is not told of frozen ones: its tests do without.
    """
    gc.set_threshold(20000)
    if hasattr(request.module, "hypothesis"):
        gc.unfreeze()
    else:
        gc.collect()
        gc.freeze()
