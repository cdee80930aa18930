"""The README's commands are the ones that are really run, and its table of versions is what tox has."""

import os
import re

from scalekeeper.registry import loss_scales
from scalekeeper.testing import CHECKS, check_loss_scale
from scalekeeper_test_support.page_blocks import blocks
from scalekeeper_test_support.page_commands import commands_of_environment, env_list, spelled_out, tox_ini
from scalekeeper_test_support.repository import ROOT, load_script, repository_path
from scalekeeper_test_support.tensorflow_versions import FAST_NAMES, LAST, OTHERS, VARIANTS, environment


def read(name):
    with open(os.path.join(ROOT, *name.split("/")), encoding="utf-8") as stream:
        return stream.read()


def test_ci_runs_the_readmes_test_command():
    """The last line of .ci/run stands in the README as it is."""
    command = read(".ci/run").strip().splitlines()[-1]
    assert command == "python -m pip install tox && python -m tox -p auto"
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
    assert [(row[0], "py" + row[1].replace(".", "")) for row in rows] == [
        (environment(name).tensorflow, name.split("-")[0]) for name in FAST_NAMES
    ]
    assert [row[2].startswith(("tf_keras", "Keras 3")) for row in rows] == ["tf221" in name for name in FAST_NAMES]


def test_the_readme_is_short():
    """It has at most 120 lines, and each block of the uses at most 12."""
    assert len(read("README.md").splitlines()) <= 120
    uses = [block for block in blocks(repository_path("README.md")) if block.language != "console"]
    assert [block.language for block in uses] == ["python", "python", "python", "yaml"]
    assert max(len(block.text.splitlines()) for block in uses) <= 12


def test_a_newcomer_needs_few_commands():
    """Ten at most, of the README alone, from nothing to a model with an own policy that was trained, saved and loaded.

    py313-install runs them.
    """
    files, commands = load_script("compat_tests/newcomer.py").files_and_commands()
    assert len(commands) <= 10
    for call in ("@scalekeeper.register", "model.fit", "scalekeeper.save_model", "scalekeeper.load_model"):
        assert call in files["program.py"]
    newcomer = "python compat_tests/newcomer.py {env_tmp_dir}{/}newcomer"
    assert newcomer in commands_of_environment("py313-install")


def test_the_policy_of_the_readme_fulfils_the_contract(monkeypatch):
    """It passes every check that needs no TensorFlow, as docs/testing.md recommends for any policy."""
    assert "halving" not in loss_scales.names()  # the built-in ones are registered before the copy is made
    monkeypatch.setattr(loss_scales, "_names", dict(loss_scales._names))
    namespace = {"__name__": __name__}
    exec(blocks(repository_path("README.md"))[2].text, namespace)
    left_out = [check.name for check in CHECKS if check.needs_tensorflow]
    report = check_loss_scale(namespace["HalvingLossScale"], leave_out=left_out)
    assert len(report.passed) == len(CHECKS) - len(left_out)


def test_every_environment_has_commands():
    """What is in the list and has none would be shown as green without having done anything."""
    ini = tox_ini()
    sections = {name: section for section in ini.sections() for name in spelled_out(section.partition("testenv:")[2])}
    for name in [*env_list(), *OTHERS, LAST]:
        assert ini[sections.get(name, "testenv")].get("commands", "").strip(), name
    for variant in VARIANTS:
        assert ini["-".join(["tensorflow", variant]).rstrip("-")]["commands"].strip(), variant
