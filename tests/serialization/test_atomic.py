"""A file or a folder is the old one or the new one, never half of one."""

import contextlib
import os
import random
import subprocess
import sys
import threading
import time

import pytest

from scalekeeper.serialization import _atomic
from scalekeeper.serialization._atomic import replacing

KILLS = int(os.environ.get("SCALEKEEPER_KILLS", "5"))

WRITER = """
import itertools, os, sys
from scalekeeper.serialization._atomic import replacing
kind, path = sys.argv[1:]
print("ready", flush=True)
for number in itertools.count(1):
    with replacing(path) as temporary:
        if kind == "folder":
            os.makedirs(os.path.join(temporary, "deep"))
        for name in (["deep/one", "deep/two", "three"] if kind == "folder" else [""]):
            with open(os.path.join(temporary, name) if name else temporary, "w") as stream:
                for _ in range(200):
                    stream.write(str(number) + " ")
                    stream.flush()
    if number == 1:
        print("written", flush=True)
"""


STOPS_WHILE_WRITING = """
import sys, time
from scalekeeper.serialization._atomic import replacing
with replacing(sys.argv[1]) as temporary:
    open(temporary, "w").close()
    print("writing", flush=True)
    time.sleep(300)
"""


def written(path):
    """Everything that stands in a file, or in the files of a folder."""
    if os.path.isfile(path):
        with open(path) as stream:
            return stream.read().split()
    return [
        word for folder, _, names in os.walk(path) for name in names for word in written(os.path.join(folder, name))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_kill_at_any_moment_leaves_one_whole_version(kind, tmp_path):
    """After each of many kills the target holds all of one version: as many numbers as were written, all equal."""
    path = str(tmp_path / kind)
    seen = set()
    for kill in range(KILLS):
        with subprocess.Popen([sys.executable, "-c", WRITER, kind, path], stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            if kill > 0:  # the first kill may come before the first version
                process.stdout.readline()
            time.sleep(random.uniform(0.0, 0.05))
            process.kill()
        if os.path.exists(path):
            words = written(path)
            assert len(words) == (600 if kind == "folder" else 200)
            assert len(set(words)) == 1
            seen.add(words[0])
    assert seen, "the writer never wrote"


def write(path, text, is_folder, error=None):
    with replacing(str(path)) as temporary:
        if is_folder:
            os.mkdir(temporary)
        with open(os.path.join(temporary, "inside") if is_folder else temporary, "w") as stream:
            stream.write(text)
        if error is not None:
            raise error


@pytest.mark.parametrize("is_folder", [False, True])
def test_an_error_leaves_the_old_one(is_folder, tmp_path):
    """What was begun is gone, and what was there is as it was."""
    path = tmp_path / "target"
    write(path, "old", is_folder)
    with pytest.raises(OSError, match="a full disk"):
        write(path, "new", is_folder, OSError("a full disk"))
    assert written(str(path)) == ["old"]
    assert os.listdir(str(tmp_path)) == ["target"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have no call that swaps two folders")
def test_a_folder_takes_the_place_of_another_in_one_step(tmp_path, monkeypatch):
    """There is no moment in which the old one has been moved away and the new one is not there."""

    def rename(old, new):
        raise AssertionError(f"{old} was moved to {new}")

    write(tmp_path / "target", "old", True)
    monkeypatch.setattr(os, "rename", rename)
    write(tmp_path / "target", "new", True)
    assert written(str(tmp_path / "target")) == ["new"]


def test_a_folder_takes_the_place_of_a_folder_with_other_files(tmp_path):
    """Nothing of the old one stays."""
    path = tmp_path / "target"
    for name in ("old", "new"):
        with replacing(str(path)) as temporary:
            os.mkdir(temporary)
            open(os.path.join(temporary, name), "w").close()
    assert os.listdir(str(path)) == ["new"]


# What killed processes leave


@contextlib.contextmanager
def killed_while_writing(path):
    """A process that has begun to write to a path; it is killed before it is done, when the block ends."""
    with subprocess.Popen([sys.executable, "-c", STOPS_WHILE_WRITING, str(path)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"writing\n"
            yield
        finally:
            process.kill()


def folders_beside(folder):
    return sorted(name for name in os.listdir(str(folder)) if name.startswith(".scalekeeper-saving-"))


def test_the_next_write_clears_what_killed_processes_left(tmp_path):
    """Whatever it writes: names with numbers, of which each is written once, would let it pile up otherwise."""
    with killed_while_writing(tmp_path / "model-1"):
        pass
    (tmp_path / ".scalekeeper-saving-12345678").mkdir()  # killed before it had locked its folder
    assert len(folders_beside(tmp_path)) == 2
    write(tmp_path / "model-2", "new", False)
    assert os.listdir(str(tmp_path)) == ["model-2"]


def test_what_a_living_process_writes_is_left_alone(tmp_path):
    """Its folder is there as long as it lives, and is cleared when it was killed."""
    with killed_while_writing(tmp_path / "one"):
        beside = folders_beside(tmp_path)
        write(tmp_path / "other", "new", False)
        assert folders_beside(tmp_path) == beside
        assert len(beside) == 1
    write(tmp_path / "other", "new", False)
    assert folders_beside(tmp_path) == []


def test_threads_leave_each_others_alone(tmp_path):
    """A lock belongs to the one write that took it, not to the process: each of many at once is whole."""

    def write_often(number):
        for _ in range(100):
            write(tmp_path / str(number), str(number), number % 2 == 0)
        done.append(number)

    done = []
    threads = [threading.Thread(target=write_often, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [0, 1, 2, 3]
    assert [written(str(tmp_path / str(number))) for number in range(4)] == [[str(number)] for number in range(4)]
    assert folders_beside(tmp_path) == []


def test_an_old_folder_that_was_put_aside_is_kept_until_there_is_a_new_one(tmp_path):
    """Where two folders can't be swapped, a kill between two steps leaves no other copy than this one."""
    aside = tmp_path / ".scalekeeper-saving-12345678" / "new" / "model.put-aside"
    aside.mkdir(parents=True)
    write(tmp_path / "other", "new", False)
    assert aside.is_dir()
    write(tmp_path / "model", "new", True)
    write(tmp_path / "other", "new", False)
    assert folders_beside(tmp_path) == []


def test_an_old_folder_is_put_aside_under_a_name_of_its_own(tmp_path, monkeypatch):
    """The name that clearing looks for."""
    write(tmp_path / "model", "old", True)
    monkeypatch.setattr(_atomic, "_exchanged", lambda one, other: False)
    moved = []
    rename = os.rename
    monkeypatch.setattr(os, "rename", lambda old, new: (moved.append((old, new)), rename(old, new)))
    write(tmp_path / "model", "new", True)
    assert [os.path.basename(new) for _, new in moved] == ["model.put-aside", "model"]
    assert written(str(tmp_path / "model")) == ["new"]


def test_without_locks_nothing_is_cleared(tmp_path, monkeypatch):
    """Where no lock can tell who lives, as on Windows, writing goes on, and what others left stays."""
    with killed_while_writing(tmp_path / "model"):
        pass
    left = folders_beside(tmp_path)
    monkeypatch.setattr(_atomic, "fcntl", None)
    write(tmp_path / "model", "new", False)
    assert folders_beside(tmp_path) == left
    assert written(str(tmp_path / "model")) == ["new"]
