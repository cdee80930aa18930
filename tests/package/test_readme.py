"""The README's commands are the ones that are really run, and its table of versions is what tox has."""

import configparser
import os
import re

from scalekeeper_test_support.page_commands import spelled_out
from scalekeeper_test_support.repository import ROOT


def read(name):
    with open(os.path.join(ROOT, *name.split("/")), encoding="utf-8") as stream:
        return stream.read()


def test_ci_runs_the_readmes_test_command():
    """The last line of .ci/run stands in the README as it is."""
    command = read(".ci/run").strip().splitlines()[-1]
    assert command == "python -m pip install tox && python -m tox"
    assert f"```console\n{command}\n```" in read("README.md")


def test_the_first_command_is_tried_to_the_letter():
    """With pip on the newest Python, and on the others that the newest TensorFlows have."""
    assert '```console\npip install ".[tensorflow]" && scalekeeper demo\n```' in read("README.md")
    tox = read("tox.ini")
    assert 'py313: python -m pip install ".[tensorflow]"\n    py313: scalekeeper demo' in tox
    others = tox.partition("[testenv:py{39, 310, 311, 312}-install]")[2].partition("\n[")[0]
    assert "extras = tensorflow\n" in others
    assert "    scalekeeper demo --folder" in others


def test_the_table_of_versions_is_what_tox_runs():
    """A TensorFlow and a Python for each environment of the matrix, in its order."""
    table = re.search("<!-- versions -->\n(.*?)<!-- end -->", read("README.md"), re.DOTALL).group(1)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    ini = configparser.RawConfigParser()
    ini.read(os.path.join(ROOT, "tox.ini"), encoding="utf-8")
    names = [name for name in ini["tox"]["env_list"].split() if re.fullmatch(r"py\d+-tf\d+(-\w+)?", name)]
    pins = dict(re.findall(r"^(tf\d+): tensorflow(?:-cpu)?==(\S+)$", ini["testenv"]["deps"], re.MULTILINE))
    assert [(row[0], "py" + row[1].replace(".", "")) for row in rows] == [
        (pins[name.split("-")[1]], name.split("-")[0]) for name in names
    ]
    assert [row[2].startswith(("tf_keras", "Keras 3")) for row in rows] == ["tf221" in name for name in names]


def test_every_environment_has_commands():
    """What is in the list and has none would be shown as green without having done anything."""
    ini = configparser.RawConfigParser()
    ini.read(os.path.join(ROOT, "tox.ini"), encoding="utf-8")
    sections = {name for section in ini.sections() for name in spelled_out(section.partition("testenv:")[2]) if name}
    factors = set(re.findall(r"[\w]+(?=[,:])", "".join(spelled_commands(ini["testenv"]["commands"]))))
    for name in (each for line in ini["tox"]["env_list"].split("\n") for each in spelled_out(line) if each):
        assert name in sections or factors & set(name.split("-")), name


def spelled_commands(text):
    """The factors before each command, with a colon after the last."""
    heads = [line.partition(": ")[0] for line in text.strip().splitlines() if not line.startswith(";")]
    return [f"{factor}," for head in heads for factor in spelled_out(head)]
