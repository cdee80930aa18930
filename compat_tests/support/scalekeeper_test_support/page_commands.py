"""Console blocks: commands of ours are run, those for the world outside are checked against the checkout.

With ``$ `` before commands, the lines below each are compared with what it really prints; ``…`` stands for anything.
Without it, each line is a command.
"""

import configparser
import os
import re
import shlex
import subprocess
import sys

from scalekeeper_test_support.page_blocks import BlockError
from scalekeeper_test_support.repository import ROOT

SECONDS = 300
# what TensorFlow's libraries say of themselves, whatever they are told
_LOGS = re.compile(r"^(?:[IWE]\d{4} \d\d:|WARNING: All log messages before absl).*\n", re.MULTILINE)


def run_block(block):
    """Run or check each command of a block; ``<!-- exit: 1 -->`` before it is the last one's exit code."""
    commands = commands_of(block.text)
    for place, (command, expected) in enumerate(commands):
        is_last = place == len(commands) - 1
        run_command(command, expected, int(block.notes.get("exit", 0)) if is_last else 0)


def commands_of(text):
    """Pairs of a command, and what it prints or None."""
    lines = text.replace("\\\n", " ").splitlines()
    if not any(line.startswith("$ ") for line in lines):
        return [(line, None) for line in lines if line.strip() and not line.startswith("#")]
    if not lines[0].startswith("$ "):
        raise BlockError(f"a block with commands begins with one, not with {lines[0]!r}")
    found = []
    for line in lines:
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return [(command, "\n".join(expected)) for command, expected in found]


def run_command(command, expected, code):
    """Run what can be run, compare what it prints; a chain with && part by part."""
    printed, ended = [], 0
    for part in command.split(" && "):
        if ended == 0 and not is_checked(part):
            ended, text = run(part)
            printed.append(text)
    if ended != code:
        raise BlockError(f"$ {command}\nended with {ended}, not {code}:\n{''.join(printed)}")
    if expected is not None and printed:
        compare(command, expected, "".join(printed))


def run(command):
    """The exit code, and what is printed to a pipe."""
    environment = dict(os.environ, PYTHONWARNINGS="ignore", TF_CPP_MIN_LOG_LEVEL="3")
    environment.pop("COLUMNS", None)  # 80, as in every pipe
    environment["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), environment.get("PATH", "")])
    ended = subprocess.run(
        ["sh", "-c", command],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=SECONDS,
    )
    return ended.returncode, _LOGS.sub("", ended.stdout.decode("utf-8"))


def compare(command, expected, printed):
    """The lines are the same but for spaces at their ends; … or ... matches anything, also several lines."""

    def stripped(text):
        return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())

    parts = re.split(r"…|\.\.\.", stripped(expected))
    if re.fullmatch(".*".join(map(re.escape, parts)), stripped(printed), flags=re.DOTALL) is None:
        raise BlockError(f"$ {command}\nprinted\n{stripped(printed)}\nand not\n{stripped(expected)}")


# Commands that are not run


def is_checked(command):
    """Whether it is one of those that are checked, and passes; False for what is to be run; any other is an error."""
    words = shlex.split(command, comments=True)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        del words[0]
    if words[:1] == ["scalekeeper"] or words[:3] == ["python", "-m", "scalekeeper"]:
        return False
    if words[:1] == ["python"] and words[1].endswith(".py"):
        return not os.path.exists(words[1]) and checks_script(words[1], words[2:])
    for start, check in CHECKED.items():
        if words[: len(start)] == list(start):
            check(words[len(start) :])
            return True
    raise BlockError(f"$ {command}\nis no command that a test runs or checks")


def checks_script(script, arguments):
    """One of the checkout that takes minutes: it is there, and has the options."""
    with open(existing(script), encoding="utf-8") as stream:
        text = stream.read()
    for option in arguments:
        if option.startswith("--") and option not in text:
            raise BlockError(f"{script} has no option {option}")
    return True


def existing(path):
    """A path of the checkout, which has to be there."""
    whole = os.path.join(ROOT, path)
    if not os.path.exists(whole):
        raise BlockError(f"{path} does not exist")
    return whole


def check_install(words):
    """Extras are those of pyproject.toml, files are there; other requirements are their own affair."""
    if words[:1] != ["install"]:
        raise BlockError(f"pip {' '.join(words)}: only `pip install` is known")
    for before, word in zip(words, words[1:]):
        match = re.fullmatch(r"(\.|scalekeeper)\[(.*)\]", word)
        if match:
            for extra in match.group(2).split(","):
                if extra not in extras():
                    raise BlockError(f"pyproject.toml has no extra {extra}; it has {', '.join(sorted(extras()))}")
        elif before in ("-r", "-e", "-c") or word.startswith("./"):
            existing(word)


def extras():
    """The names in pyproject.toml."""
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as stream:
        return parsed_toml(stream.read().decode("utf-8"))["project"]["optional-dependencies"].keys()


def parsed_toml(text):
    try:
        import tomllib
    except ImportError:  # up to Python 3.10; pytest brings it
        import tomli as tomllib
    return tomllib.loads(text)


def check_tox(words):
    """The environments are in tox.ini."""
    names = [words[place + 1] for place, word in enumerate(words) if word == "-e"]
    for name in ",".join(names).split(",") if names else ():
        if name not in environments():
            raise BlockError(f"tox.ini has no environment {name}")


def environments():
    """The names of all environments of tox.ini, those that are run by hand too."""
    ini = configparser.RawConfigParser()
    ini.read(os.path.join(ROOT, "tox.ini"), encoding="utf-8")
    patterns = ini["tox"]["env_list"].split("\n")
    patterns += [section.partition(":")[2] for section in ini.sections() if section.startswith("testenv:")]
    return {name for pattern in patterns for name in spelled_out(pattern.strip())}


def spelled_out(pattern):
    """``py{37, 38}-core`` is py37-core and py38-core."""
    match = re.search(r"\{([^{}]*)\}", pattern)
    if match is None:
        return [pattern]
    start, end = pattern[: match.start()], pattern[match.end() :]
    return [name for each in match.group(1).split(",") for name in spelled_out(start + each.strip() + end)]


def check_pytest(words):
    """The paths are there."""
    for word in words:
        if not word.startswith("-"):
            existing(word.partition("::")[0])


def check_pre_commit(words):
    """There is a hook for it."""
    existing(".pre-commit-hooks.yaml")


def accept(words):
    """Nothing in the checkout could tell."""


CHECKED = {
    ("pip",): check_install,
    ("uv", "pip"): check_install,
    ("python", "-m", "pip"): check_install,
    ("uv", "venv"): accept,
    ("python", "-m", "venv"): accept,
    (".",): accept,
    ("pyenv", "install"): accept,
    ("git", "clone"): accept,
    ("git", "switch"): accept,
    ("python", "-m", "tox"): check_tox,
    ("tox",): check_tox,
    ("pytest",): check_pytest,
    ("python", "-m", "pytest"): check_pytest,
    ("pre-commit",): check_pre_commit,
}
