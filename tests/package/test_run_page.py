"""The runner of the documentation's code blocks sees what is wrong with a page."""

import os
import subprocess
import sys

import pytest

from scalekeeper_test_support import page_blocks, page_commands, page_programs
from scalekeeper_test_support.repository import ROOT

SCRIPT = os.path.join(ROOT, "compat_tests", "docs", "run_page.py")
# all blocks of these run where there is no TensorFlow, too
WITHOUT_TENSORFLOW = [
    "docs/adding.md",
    "docs/architecture.md",
    "docs/behaviours.md",
    "docs/command_line.md",
    "docs/compatibility.md",
    "docs/configuration.md",
    "docs/documents.md",
    "docs/examples.md",
    "docs/index.md",
    "docs/installing.md",
    "docs/models.md",
    "docs/performance.md",
    "docs/policies.md",
    "docs/reliability.md",
    "docs/simulating.md",
]


def run(path):
    """The exit code and the messages of a run in a process of its own."""
    command = [sys.executable, "-W", "ignore", SCRIPT, str(path)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return ended.returncode, ended.stdout.decode("utf-8")


@pytest.fixture
def run_text(tmp_path):
    """A function: the exit code and the messages of a page with this text."""

    def run_text(text):
        (tmp_path / "page.md").write_text(text, encoding="utf-8")
        return run(tmp_path / "page.md")

    return run_text


@pytest.mark.parametrize("page", WITHOUT_TENSORFLOW)
def test_pages_that_need_no_tensorflow(page):
    """All their blocks do what they show."""
    code, messages = run(os.path.join(ROOT, page))
    assert code == 0, messages


GOOD = """
<!--- invisible-code-block: python
number = 4
-->
```python
number += 1
import os
assert os.path.isfile("examples/train.yaml")
```

- in a list

  ```pycon
  >>> number
  5
  ```

<!-- file: folder/mine.yaml -->
```yaml
optimizer: sgd
```

```console
$ scalekeeper validate folder/mine.yaml --target 2.0
folder/mine.yaml: ok (sgd with …, for TensorFlow 2.0.4, …)
$ scalekeeper --help
Usage: …
```

<!-- exit: 1 -->
```console
scalekeeper validate missing.yaml
```

<!-- file: mine.py -->
```python
print("of mine")
```

```console
$ python mine.py
of mine
```

```console
pip install ".[tensorflow]" && scalekeeper list   # not installed again
python -m tox -e py38-tf23,py313-tf221-keras3
python benchmarks/load_model.py
```

<!--- skip: next if(True, reason="to see that it is skipped") -->
```python
raise SystemExit("not skipped")
```

<!--- skip: next if(number == 6, reason="to see that it is not skipped") -->
```python
number = 7
```

```pycon
>>> number
7
```

<!-- before: nowhere, because it is no program -->
```diff
-this is no program
+number = 1
 assert number == 1
```
"""


def test_a_good_page(run_text):
    """Hidden set-up, one namespace, files, commands, exit codes, skips and changes; what was skipped is told."""
    code, messages = run_text(GOOD)
    assert code == 0, messages
    assert messages.splitlines()[-1] == '[[52, "True"]]'


BAD = {
    "no language": ("```\nx\n```", "a block in no language; known are console"),
    "unknown language": ("```rust\nx\n```", "a block in rust"),
    "an error": ("```python\n1 / 0\n```", "page.md:1: ZeroDivisionError"),
    "another result": ("```pycon\n>>> 1 + 1\n3\n```", "Expected:\n    3\nGot:\n    2"),
    "no tf for blocks": ('<!--- skip: next if(False, reason="x") -->\n```python\ntf\n```', "name 'tf' is not defined"),
    "another output": ("```console\n$ scalekeeper list\nnothing\n```", "and not\nnothing"),
    "another exit code": ("```console\nscalekeeper validate missing.yaml\n```", "ended with 1, not 0"),
    "success": ("<!-- exit: 1 -->\n```console\nscalekeeper list\n```", "ended with 0, not 1"),
    "a foreign command": ("```console\nrm -r examples\n```", "is no command that a test runs or checks"),
    "an unknown extra": ('```console\npip install ".[tensorflw]"\n```', "pyproject.toml has no extra tensorflw"),
    "an unknown environment": ("```console\npython -m tox -e py38-tf99\n```", "tox has no environment py38-tf99"),
    "an unknown file": ("```console\npython benchmarks/nothing.py\n```", "benchmarks/nothing.py does not exist"),
    "an unknown option": ("```console\npython benchmarks/load_model.py --x\n```", "has no option --x"),
    "a command that its environment does not run": (
        "<!-- environment: py313-install -->\n```console\npip install . && scalekeeper list\n```",
        "py313-install does not run 'pip install .'",
    ),
    "a command of another factor": (
        '<!-- environment: py37-install -->\n```console\npip install ".[tensorflow]"\n```',
        "py37-install does not run",
    ),
    "an environment of no section": (
        "<!-- environment: py399-install -->\n```console\nscalekeeper list\n```",
        "no section for the environment py399-install",
    ),
    "output before a command": ("```console\nx\n$ scalekeeper list\n```", "begins with one, not with 'x'"),
    "an invalid document": ("```yaml\noptimizer: addam\n```", "did you mean 'adam'"),
    "one for another target": ("<!-- target: 2.0 -->\n```yaml\noptimizer: lion\n```", "lion"),
    "no YAML": ("```yaml\n[\n```", "ParserError"),
    "no JSON": ("```json\n{'a': 1}\n```", "JSONDecodeError"),
    "no TOML": ("```toml\na = \n```", "TOMLDecodeError"),
    "no INI": ("```ini\na = 1\n```", "MissingSectionHeaderError"),
    "an unknown note": ("<!-- fil: a.yaml -->\n```text\nx\n```", "a note called fil"),
    "a way out": ("<!-- file: ../a.yaml -->\n```text\nx\n```", "leads out of the page's folder"),
    "a skip without condition": ("<!--- skip: next -->\n```python\n1\n```", "a skip is <!--- skip: next if("),
    "a skip without reason": ("<!--- skip: next if(True) -->\n```python\n1\n```", "a skip is <!--- skip: next if("),
    "a long skip": ('<!--- skip: start if(True, reason="x") -->\n```python\n1\n```', "a skip is"),
    "a change from nowhere": ("```diff\n-1\n+2\n```", "says where the old program runs"),
    "without a reason": ("<!-- before: nowhere, because -->\n```diff\n-1\n+2\n```", "gives a reason"),
    "a wrong new program": ("<!-- before: True -->\n```diff\n-1\n+1 / 0\n```", "ZeroDivisionError"),
    "no change": ("<!-- before: True -->\n```diff\n1\n```", "begins with neither a space, + nor -"),
}


@pytest.mark.parametrize("kind", sorted(BAD))
def test_a_bad_page(kind, run_text):
    """It fails, and the message says why."""
    text, message = BAD[kind]
    code, messages = run_text(text)
    assert code == 1
    assert message in messages


def test_old_and_new_programs():
    """Lines without a sign are in both."""
    block = page_blocks.Block("diff", " a\n-b\n+c\n\n d\n", {}, 0)
    assert page_programs.old_program(block).split() == ["a", "b", "d"]
    assert page_programs.new_program(block).split() == ["a", "c", "d"]


def test_environments_of_tox():
    """Names with several braces, and those that are run by hand."""
    assert page_commands.spelled_out("py{37, 38}-tf{20, 21}") == ["py37-tf20", "py37-tf21", "py38-tf20", "py38-tf21"]
    names = {"py37-tf20", "py38-tf24-every", "py312-install", "py313-tf221-keras3-compat", "fuzz", "lint"}
    assert names <= page_commands.environments()
