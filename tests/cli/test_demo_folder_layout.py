"""The folder that a demo leaves."""

import os

from scalekeeper.cli._demo import folder_layout


def test_a_new_folder_is_always_another_one(tmp_path, monkeypatch):
    """The name, then the name with a number; a file of that name counts too."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scalekeeper-demo-2").write_text("")
    assert [folder_layout.new_folder() for _ in range(3)] == [
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
    free = [name for name in ("absent", "empty", "file", "link", ".") if folder_layout.is_free(str(tmp_path / name))]
    assert free == ["absent", "empty"]
