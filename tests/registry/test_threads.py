"""The package in several threads at once, in a fresh process: what is done on first use is done by all of them."""

import os
import subprocess
import sys

import pytest

# what uses each part of the package first, by its public names
USES = [
    "resolve('dynamic')",
    "simulate",
    "inspect",
    "DynamicLossScale",
    "convert",
    "load_document({'optimizer': 'adam'}, target='2.3')",
    "build",
    "write_trace(scalekeeper.Trace([1.0]), 'trace.csv')",
]
TOGETHER = """
import sys, threading
import scalekeeper

def together(*several):
    "What each of these functions returns, or its error, all of them called at the same time."
    sys.setswitchinterval(1e-6)
    start, found = threading.Barrier(len(several)), [None] * len(several)
    def run(place, work):
        start.wait()
        try:
            found[place] = work()
        except BaseException as error:
            found[place] = error
    threads = [threading.Thread(target=run, args=each) for each in enumerate(several)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return found
"""


@pytest.fixture
def run(tmp_path):
    """Run code in a fresh process, beside an installed package that announces a policy; gives the words it prints."""
    info = tmp_path / "announced-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: announced\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text("[scalekeeper.loss_scales]\ntheirs = announced:Theirs\n")
    (tmp_path / "announced.py").write_text(
        "import scalekeeper\n@scalekeeper.register('theirs')\nclass Theirs(scalekeeper.DynamicLossScale): pass\n"
    )

    def run_code(code):
        environment = dict(os.environ, PYTHONPATH=str(tmp_path))
        command = [sys.executable, "-c", TOGETHER + code]
        return subprocess.check_output(command, env=environment, cwd=str(tmp_path), text=True, timeout=60).split()

    return run_code


def test_a_room_is_imported_before_any_part_of_it(run):
    """Any name may be used first.

    Python holds the lock of a module while it imports the package around it. A thread that begins with the module, and
    one that begins with the package, would wait for each other, and one of them would get Python's _DeadlockError.
    """
    code = f"""
import builtins, importlib.util, h5py
import_as_usual, early = builtins.__import__, set()

def watched(name, names=None, local_names=None, parts=(), level=0):
    package = (names or {{}}).get("__package__") or ""
    if level > 0 and package.startswith("scalekeeper"):
        full = importlib.util.resolve_name("." * level + name, package)
        room = ".".join(full.split(".")[:2])
        if full != room and room not in sys.modules:
            early.add(full)
    return import_as_usual(name, names, local_names, parts, level)

builtins.__import__ = watched
for use in {USES!r}:
    for name in [each for each in sys.modules if each.partition(".")[0] == "scalekeeper"]:
        del sys.modules[name]
    import scalekeeper
    eval("scalekeeper." + use)
print(*sorted(early), "end")
"""
    assert run(code) == ["end"]


def test_the_first_use_of_every_room_at_once(run):
    """Each thread uses another part of the package first: all get what they asked for."""
    code = f"""
found = together(*(lambda use=use: eval("scalekeeper." + use) for use in {USES!r}))
print(*(repr(each) for each in found if isinstance(each, BaseException)), len(found))
"""
    assert run(code) == [str(len(USES))]


def test_the_first_use_of_an_announced_policy_at_once(run):
    """Its module, which also registers it, is imported once: all get objects of one class."""
    code = """
found = together(*(lambda name=name: type(scalekeeper.resolve(name)) for name in ["theirs"] * 8 + ["log_max"] * 2))
print(*(getattr(each, "__name__", each) for each in found), len(set(found)))
"""
    assert run(code) == ["Theirs"] * 8 + ["LogMaxLossScale"] * 2 + ["2"]


def test_the_registry_alone_has_the_built_in_policies():
    """No other room is imported before the first use, which may come from several threads that import it first, too."""
    code = """
import sys, threading
sys.setswitchinterval(1e-6)
start, found = threading.Barrier(4), []
def run(statement):
    start.wait()
    names = {}
    exec(statement, names)
    found.append("scalekeeper.lossscales.dynamic" == type(names["resolve"]("dynamic")).__module__)
statements = ["from scalekeeper.registry import resolve", "from scalekeeper import resolve"] * 2
threads = [threading.Thread(target=run, args=(each,)) for each in statements]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(found)
"""
    command = [sys.executable, "-c", code]
    assert subprocess.check_output(command, text=True, timeout=60).strip() == str([True] * 4)
    code = "import sys, scalekeeper.registry as r; print('scalekeeper.lossscales' in sys.modules, r.resolve(8)())"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["False", "8.0"]
