"""New processes: all of them run, how each ended is told, and none is left behind."""

import os

import pytest

from scalekeeper.cli._demo.worker_processes import Job, last_lines, run


@pytest.fixture
def job(tmp_path):
    """``job("key", code)`` is a module with this code."""

    def made(key, code):
        (tmp_path / f"module_{key}.py").write_text(code)
        return Job(key, f"module_{key}", [key], str(tmp_path / f"{key}.log"))

    return made


def test_each_tells_how_it_ended(job, tmp_path):
    """Exit codes and signals; what it says is in its log, and it runs in the given folder with its arguments."""
    jobs = [
        job("good", "import os, sys; print(sys.argv[1:], os.getcwd())"),
        job("bad", "import sys; sys.exit('it went wrong')"),
        job("killed", "import os; os.kill(os.getpid(), 9)"),
    ]
    ended = {each.key: each for each in run(jobs, str(tmp_path))}
    assert {key: each.code for key, each in ended.items()} == {"good": 0, "bad": 1, "killed": -9}
    assert last_lines(jobs[0].log) == [f"['good'] {os.path.realpath(str(tmp_path))}"]
    assert last_lines(jobs[1].log) == ["it went wrong"]
    assert all(each.seconds > 0 for each in ended.values())


def test_none_is_left_behind(job, tmp_path):
    """Whoever stops listening, as Ctrl-C does, has ended those that still run when that is done."""
    told = run([job("quick", ""), *(job(f"slow{n}", "import time; time.sleep(60)") for n in range(2))], str(tmp_path))
    assert next(told).key == "quick"
    left = [each.process for each in told.gi_frame.f_locals["running"].values()]
    told.close()
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
