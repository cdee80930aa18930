"""A pytest plugin: runs the part of the tests that ``fast_selection`` chooses, and records it.

``pytest -p scalekeeper_test_support.fast_run_plugin --fast-run RECORD`` writes to the JSON file ``RECORD`` what was
collected, what ran with which result, and how long it took; ``compat_tests/selection.py`` compares the records.
"""

import json
import os

from scalekeeper_test_support import tensorflow_versions
from scalekeeper_test_support.fast_selection import CollectedTest, fast_selection

COLLECTED = "scalekeeper_collected"


def pytest_addoption(parser):
    parser.addoption("--fast-run", metavar="RECORD", help="run the fast part of the tests, and write what ran")


def pytest_configure(config):
    if config.getoption("--fast-run"):
        config.pluginmanager.register(FastRun(config.getoption("--fast-run")), "scalekeeper_fast_run")


def described(item, environment):
    """Return a pytest item as a ``CollectedTest``."""
    function = item.nodeid.partition("[")[0]
    # one identifier for each parametrize, which may have several parameters
    values = item.callspec._idlist if hasattr(item, "callspec") else ()
    parameters = {str(position): value for position, value in enumerate(values)}
    mark = item.get_closest_marker("slow")
    if item.get_closest_marker("long"):
        return CollectedTest(item.nodeid, function, parameters, ())
    if item.get_closest_marker("each_environment"):
        return CollectedTest(item.nodeid, function, parameters, (environment,))
    if mark is None or environment not in tensorflow_versions.FAST_NAMES:
        return CollectedTest(item.nodeid, function, parameters, tensorflow_versions.generation_of(environment))
    unit = item.nodeid if mark.kwargs.get("is_divided") else function.partition("::")[0]
    return CollectedTest(item.nodeid, function, parameters, mark.args or tensorflow_versions.FAST_NAMES, unit)


class FastRun:
    """Deselects tests in the processes that run them, and collects the results in the one that starts them."""

    def __init__(self, record):
        self.record = record
        self.environment = os.environ["SCALEKEEPER_ENVIRONMENT"]
        self.collected = {}
        self.results = {}

    def pytest_collection_modifyitems(self, config, items):
        tests = [described(item, self.environment) for item in items]
        chosen = fast_selection(tests, self.environment)
        kept = [item for item in items if item.nodeid in chosen]
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
        items[:] = kept
        for test in tests:
            self.collected[test.node] = [test.function, sorted(test.targets), list(test.shared_by)]
        if hasattr(config, "workeroutput"):
            config.workeroutput[COLLECTED] = json.dumps(self.collected)

    def pytest_testnodedown(self, node, error):
        self.collected.update(json.loads(getattr(node, "workeroutput", {}).get(COLLECTED, "{}")))

    def pytest_runtest_logreport(self, report):
        _, seconds = self.results.get(report.nodeid, ("", 0.0))
        outcome = self.results.get(report.nodeid, ("passed",))[0]
        if report.outcome != "passed":
            outcome = report.outcome
        self.results[report.nodeid] = (outcome, seconds + report.duration)

    def pytest_sessionfinish(self, session):
        if hasattr(session.config, "workeroutput"):
            return
        os.makedirs(os.path.dirname(os.path.abspath(self.record)), exist_ok=True)
        with open(self.record, "w", encoding="utf-8") as stream:
            json.dump({"collected": self.collected, "results": self.results}, stream)
