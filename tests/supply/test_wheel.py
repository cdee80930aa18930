"""The wheel holds the files of the repository, and nothing else."""

import base64
import hashlib
import os

from scalekeeper.registry._compat import metadata
from scalekeeper_test_support.repository import ROOT
from scalekeeper_test_support.source_code import rooms

OF_THE_INSTALLATION = ("scalekeeper-", "../")  # metadata, and the command in the folder of commands
DATA = (".json", ".yaml", "py.typed")


def installed_files():
    """Path → the file, of what the record of the installation names; Python's own cache is not ours."""
    files = {str(path).replace(os.sep, "/"): path for path in metadata.files("scalekeeper")}
    return {name: path for name, path in files.items() if "__pycache__" not in name}


def files_of_the_checkout():
    """Path in the package → path in the checkout."""
    found = {}
    for package, folder in rooms().items():
        for name in os.listdir(os.path.join(ROOT, folder)):
            if name.endswith((".py", *DATA)):
                found[f"{package.replace('.', '/')}/{name}"] = os.path.join(ROOT, folder, name)
    return found


def digest(path):
    with open(path, "rb") as stream:
        return base64.urlsafe_b64encode(hashlib.sha256(stream.read()).digest()).rstrip(b"=").decode()


def test_the_files_are_those_of_the_repository():
    """None is missing, none is left over from an earlier build, and each is the same to the byte."""
    names = {name for name in installed_files() if not name.startswith(OF_THE_INSTALLATION)}
    checkout = files_of_the_checkout()
    assert names == set(checkout)
    assert [name for name in names if digest(installed_files()[name].locate()) != digest(checkout[name])] == []


def test_the_record_names_every_file():
    """Nothing lies in the package's folder that was not installed."""
    home = installed_files()["scalekeeper/__init__.py"].locate().parent
    found = {
        os.path.relpath(os.path.join(folder, name), home.parent).replace(os.sep, "/")
        for folder, _, names in os.walk(home)
        for name in names
        if "__pycache__" not in folder
    }
    assert found == {name for name in installed_files() if name.startswith("scalekeeper/")}


def test_the_record_has_the_hash_of_every_file():
    """And it is the right one."""
    ours = {name: path for name, path in installed_files().items() if name.startswith("scalekeeper/")}
    assert {name: path.hash.value for name, path in ours.items()} == {
        name: digest(path.locate()) for name, path in ours.items()
    }
