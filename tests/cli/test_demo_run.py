"""The folder and the processes of a demo: nothing is overwritten, and no process is left behind."""

import os

import pytest

from scalekeeper.cli._demo import demo_run
from scalekeeper.cli._demo.demo_run import Request, last_lines, run_processes


@pytest.fixture
def request_in(tmp_path):
    """A request whose folder has a folder for logs."""
    (tmp_path / "compared").mkdir()
    return Request("", "", str(tmp_path), 2)


@pytest.fixture
def command(tmp_path):
    """``command("key", code)`` writes a module with this code, and is its name with an argument."""

    def made(key, code):
        (tmp_path / f"module_{key}.py").write_text(code)
        return key, [f"module_{key}", key]

    return made


def test_each_tells_how_it_ended(command, request_in):
    """Exit codes and signals; what it says is in its log, and it runs in the given folder with its arguments."""
    commands = [
        command("good", "import os, sys; print(sys.argv[1:], os.getcwd())"),
        command("bad", "import sys; sys.exit('it went wrong')"),
        command("killed", "import os; os.kill(os.getpid(), 9)"),
    ]
    ended = {key: (code, seconds) for key, code, seconds in run_processes(dict(commands), request_in)}
    assert {key: code for key, (code, _) in ended.items()} == {"good": 0, "bad": 1, "killed": -9}
    folder = os.path.realpath(request_in.folder)
    assert last_lines(request_in.compared("good.log")) == [f"['good'] {folder}"]
    assert last_lines(request_in.compared("bad.log")) == ["it went wrong"]
    assert all(seconds > 0 for _, seconds in ended.values())


def test_none_is_left_behind(command, request_in):
    """Closing the generator, as Ctrl-C does, kills the processes that still run."""
    slow = [command(f"slow{number}", "import time; time.sleep(60)") for number in range(2)]
    results = run_processes(dict([command("quick", ""), *slow]), request_in)
    assert next(results)[0] == "quick"
    left = [process for process, _ in results.gi_frame.f_locals["running"].values()]
    results.close()
    assert [process.returncode for process in left] == [-9] * len(left)


def test_the_end_of_a_log(tmp_path):
    """The last lines, without those of TensorFlow's log in any of its spellings."""
    log = tmp_path / "log"
    log.write_text(
        "first\nTraceback\n\n"
        "2026-11-17 11:00:00.123456: I tensorflow/core/platform/cpu_feature_guard.cc:210] …\n"
        "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
        "I0000 00:00:1794913718.568061    7401 port.cc:153] oneDNN custom operations are on.\n"
        "ValueError: the end\n"
    )
    assert last_lines(str(log), 2) == ["Traceback", "ValueError: the end"]


def test_a_new_folder_is_always_another_one(tmp_path, monkeypatch):
    """The name, then the name with a number; a file of that name counts too."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scalekeeper-demo-2").write_text("")
    assert [demo_run.new_folder() for _ in range(3)] == [
        "scalekeeper-demo",
        "scalekeeper-demo-3",
        "scalekeeper-demo-4",
    ]
    assert os.path.getsize("scalekeeper-demo-2") == 0


def test_a_free_folder(tmp_path):
    """One that is not there, or has nothing in it; not a file, nor a link to nowhere."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    os.symlink("nowhere", str(tmp_path / "link"))
    free = [name for name in ("absent", "empty", "file", "link", ".") if demo_run.is_free(str(tmp_path / name))]
    assert free == ["absent", "empty"]
