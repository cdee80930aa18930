"""A file or a folder is the old one or the new one, never half of one."""

import os
import random
import subprocess
import sys
import time

import pytest

from scalekeeper.serialization.atomic import replacing

KILLS = int(os.environ.get("SCALEKEEPER_KILLS", "5"))

WRITER = """
import itertools, os, sys
from scalekeeper.serialization.atomic import replacing
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
"""


def written(path):
    """Everything that stands in a file, or in the files of a folder."""
    if os.path.isfile(path):
        with open(path) as stream:
            return stream.read().split()
    return [
        word for folder, _, names in os.walk(path) for name in names for word in written(os.path.join(folder, name))
    ]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_kill_at_any_moment_leaves_one_whole_version(kind, tmp_path):
    """After each of many kills the target holds all of one version: as many numbers as were written, all equal."""
    path = str(tmp_path / kind)
    seen = set()
    for _ in range(KILLS):
        with subprocess.Popen([sys.executable, "-c", WRITER, kind, path], stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            time.sleep(random.uniform(0.0, 0.05))
            process.kill()
        if os.path.exists(path):
            words = written(path)
            assert len(words) == (600 if kind == "folder" else 200)
            assert len(set(words)) == 1
            seen.add(words[0])
    assert seen, "the writer was never quick enough to write once"


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
