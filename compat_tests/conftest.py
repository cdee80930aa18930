"""TensorFlow warns of many things that are not ours to mend; the tests hold us to none of them."""

import gc
import importlib.util
import warnings

import pytest

# py311-originals has PyTorch and no TensorFlow, the other environments the reverse
collect_ignore = [] if importlib.util.find_spec("torch") else ["originals"]

if importlib.util.find_spec("tensorflow"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorflow.python.eager import context

        from scalekeeper_test_support import replica_threads

    # A new Keras session makes TensorFlow drop its cache of kernels. No result depends on the cache, and filling it
    # again took a quarter of the time of the tests that begin with a new session.
    context.context().clear_kernel_cache = lambda: None
    replica_threads.look_often()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Files stay together, as their tests share what one process has trained; pages share nothing, and take long."""
    from xdist.scheduler import LoadFileScheduling

    class PagesApart(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return nodeid if nodeid.startswith("compat_tests/docs/test_pages.py") else super()._split_scope(nodeid)

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
