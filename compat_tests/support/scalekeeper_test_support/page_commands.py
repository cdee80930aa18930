"""Console blocks: the commands of scalekeeper run; others are checked against the checkout.

With ``$ `` before commands, the lines below each are compared with what it really prints; ``…`` stands for anything.
Without it, each line is a command. ``<!-- environment: py313-install -->`` before a block names the environment of tox
that runs its commands; the page then only checks that it does.
"""

import configparser
import os
import re
import shlex
import subprocess
import sys

from scalekeeper_test_support import tensorflow_versions
from scalekeeper_test_support.page_blocks import BlockError
from scalekeeper_test_support.repository import ROOT

SECONDS = 300
# what TensorFlow's libraries say of themselves, whatever they are told
_LOGS = re.compile(r"^(?:[IWE]\d{4} \d\d:|WARNING: All log messages before absl).*\n", re.MULTILINE)


def run_block(block):
    """Run or check each command of a block; ``<!-- exit: 1 -->`` before it is the last one's exit code."""
    commands = commands_of(block.text)
    if "environment" in block.notes:
        for command, _ in commands:
            check_environment(command, block.notes["environment"])
        return
    for place, (command, expected) in enumerate(commands):
        is_last = place == len(commands) - 1
        run_command(command, expected, int(block.notes.get("exit", 0)) if is_last else 0)


def commands_of(text):
    """Return pairs of a command and its expected output or None."""
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
    """Return the exit code and the output in a pipe."""
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
    """Return whether the lines are equal up to trailing spaces; … and ... match anything, also several lines."""

    def stripped(text):
        return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())

    parts = re.split(r"…|\.\.\.", stripped(expected))
    if re.fullmatch(".*".join(map(re.escape, parts)), stripped(printed), flags=re.DOTALL) is None:
        raise BlockError(f"$ {command}\nprinted\n{stripped(printed)}\nand not\n{stripped(expected)}")


# Commands that are not run


def is_checked(command):
    """Check a command; return False if it has to run instead; raise BlockError for an unknown one."""
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
    raise BlockError(f"$ {command}\nis not a command that a test runs or checks")


def checks_script(script, arguments):
    """Check that a slow script exists and has these options."""
    with open(existing(script), encoding="utf-8") as stream:
        text = stream.read()
    for option in arguments:
        if option.startswith("--") and option not in text:
            raise BlockError(f"{script} has no option {option}")
    return True


def existing(path):
    """Return an existing path of the checkout."""
    whole = os.path.join(ROOT, path)
    if not os.path.exists(whole):
        raise BlockError(f"{path} does not exist")
    return whole


def check_install(words):
    """Check that extras are in pyproject.toml and files exist."""
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
    """Return the names of the extras in pyproject.toml."""
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as stream:
        return parsed_toml(stream.read().decode("utf-8"))["project"]["optional-dependencies"].keys()


def parsed_toml(text):
    try:
        import tomllib
    except ImportError:  # up to Python 3.10; pytest brings it
        import tomli as tomllib
    return tomllib.loads(text)


def check_tox(words):
    """Check that tox has the environments and the labels."""
    for place, word in enumerate(words):
        if word == "-m" and words[place + 1] not in tensorflow_versions.labels(()):
            raise BlockError(f"tox has no label {words[place + 1]}")
    names = [words[place + 1] for place, word in enumerate(words) if word == "-e"]
    for name in ",".join(names).split(",") if names else ():
        if name not in environments():
            raise BlockError(f"tox has no environment {name}")


def check_environment(command, name):
    """Check that an environment of tox.ini runs the parts of a command; it may give the last of them more options."""
    for part in command.split(" && "):
        if not any(line == part or line.startswith(part + " --") for line in commands_of_environment(name)):
            raise BlockError(f"$ {command}\n{name} does not run {part!r}")


def commands_of_environment(name):
    """Return the commands of an environment of tox.ini, without what else Python needs to start them."""
    ini = tox_ini()
    found = [section for section in ini.sections() if name in spelled_out(section.partition(":")[2])]
    if not found:
        raise BlockError(f"tox.ini has no section for the environment {name}")
    lines = ini[found[0]]["commands"].strip().split("\n")
    factors = [re.fullmatch(r"(?:([\w-]+): )?(?:python -m )?(.*)", line.strip()).groups() for line in lines]
    return [command for factor, command in factors if factor is None or factor in name.split("-")]


def environments():
    """Return the names of all environments of tox, including those run by hand."""
    sections = [section.partition(":")[2] for section in tox_ini().sections() if section.startswith("testenv:")]
    written = {name for pattern in sections for name in spelled_out(pattern)}
    return written.union(env_list(), tensorflow_versions.all_names())


def env_list():
    """Return the environments that tox.ini lists; those with a TensorFlow are in ``tensorflow_versions``."""
    return [name for line in tox_ini()["tox"]["env_list"].strip().split("\n") for name in spelled_out(line)]


def tox_ini():
    """Return the sections of tox.ini."""
    ini = configparser.RawConfigParser()
    ini.read(os.path.join(ROOT, "tox.ini"), encoding="utf-8")
    return ini


def spelled_out(pattern):
    """``py{37, 38}-core`` is py37-core and py38-core."""
    match = re.search(r"\{([^{}]*)\}", pattern)
    if match is None:
        return [pattern]
    start, end = pattern[: match.start()], pattern[match.end() :]
    return [name for each in match.group(1).split(",") for name in spelled_out(start + each.strip() + end)]


def check_pytest(words):
    """Check that the paths exist."""
    for word in words:
        if not word.startswith("-"):
            existing(word.partition("::")[0])


def check_pre_commit(words):
    """Check that the repository has a pre-commit hook."""
    existing(".pre-commit-hooks.yaml")


def check_gpu(words):
    """Check that there is the script for a person with a GPU, which a test of its own runs."""
    existing("testing/gpu.py")


def accept(words):
    """Accept a command that the checkout cannot check."""


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
    ("python", "-m", "scalekeeper.testing.gpu"): check_gpu,
}
