"""A pytest plugin for the environments of the matrix: the fast part of the tests, and a record of what ran.

``pytest -p scalekeeper_test_support.matrix_plugin --record FILE`` writes the results to a JSON file. With ``--fast``,
only the tests that ``fast_selection`` chooses run. ``compat_tests/selection.py`` compares the records of a fast run;
``compat_tests/versions.py`` makes a table of all.
"""

import json
import os
import time

from scalekeeper_test_support import tensorflow_versions
from scalekeeper_test_support.fast_selection import (
    CollectedTest,
    cases_by_function,
    fast_selection,
    values_of_generation,
)

COLLECTED = "scalekeeper_collected"


def pytest_addoption(parser):
    parser.addoption("--fast", action="store_true", help="run the fast part of the tests")
    parser.addoption("--record", metavar="FILE", help="write what was collected, and the results, to a JSON file")


def pytest_configure(config):
    if config.getoption("--fast"):
        environment = tensorflow_versions.original(os.environ["SCALEKEEPER_ENVIRONMENT"])
        config.pluginmanager.register(FastSelection(environment), "scalekeeper_fast")
    # with xdist, one process receives the results of all
    if config.getoption("--record") and not hasattr(config, "workeroutput"):
        config.pluginmanager.register(Record(config.getoption("--record")), "scalekeeper_record")


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
    if mark is None:
        shared_by = tensorflow_versions.generation_of(environment)
        share = (0, 1) if item.get_closest_marker("whole") else tensorflow_versions.share_of(environment)
        return CollectedTest(item.nodeid, function, parameters, shared_by, share=share)
    unit = item.nodeid if mark.kwargs.get("is_divided") else function.partition("::")[0]
    return CollectedTest(item.nodeid, function, parameters, mark.args or tensorflow_versions.FAST_NAMES, unit)


class FastSelection:
    """Deselects what the fast run leaves out, in each process that runs tests."""

    def __init__(self, environment):
        self.environment = environment

    def pytest_collection_modifyitems(self, config, items):
        tests = [described(item, self.environment) for item in items]
        chosen = fast_selection(tests, self.environment)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
        items[:] = [item for item in items if item.nodeid in chosen]
        collected = {}
        for cases in cases_by_function(tests):
            wanted = values_of_generation(cases)
            for test in cases:
                collected[test.node] = [test.function, sorted(test.targets & wanted), list(test.shared_by)]
        if hasattr(config, "workeroutput"):
            config.workeroutput[COLLECTED] = json.dumps(collected)
        else:
            config.scalekeeper_collected = collected


class Record:
    """Writes the results of all processes."""

    def __init__(self, path):
        self.path = path
        self.collected = {}
        self.results = {}

    def pytest_testnodedown(self, node, error):
        self.collected.update(json.loads(getattr(node, "workeroutput", {}).get(COLLECTED, "{}")))

    def pytest_runtest_logreport(self, report):
        outcome, seconds = self.results.get(report.nodeid, ("passed", 0.0))
        self.results[report.nodeid] = (
            outcome if report.outcome == "passed" else report.outcome,
            round(seconds + report.duration, 3),
        )

    def pytest_sessionfinish(self, session):
        self.collected.update(getattr(session.config, "scalekeeper_collected", {}))
        os.makedirs(os.path.dirname(os.path.abspath(self.path)), exist_ok=True)
        with open(self.path, "w", encoding="utf-8") as stream:
            record = {"date": time.strftime("%Y-%m-%d"), "collected": self.collected, "results": self.results}
            json.dump(record, stream)
