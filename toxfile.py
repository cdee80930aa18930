"""The tox environments with a TensorFlow, and what tox says about interpreters that are missing.

tox loads this file by itself. ``compat_tests/support/scalekeeper_test_support/tensorflow_versions.py`` has the list of
versions. The sections ``[tensorflow]`` and ``[tensorflow-…]`` of tox.ini say what the environments run.
"""

import atexit
import functools
import importlib.util
import os
import pathlib
import shutil
import subprocess

from tox.config.loader.memory import MemoryLoader
from tox.config.loader.str_convert import StrConvert
from tox.config.types import EnvList
from tox.plugin import impl
from tox.tox_env.python.pip.req_file import PythonDeps

ROOT = pathlib.Path(__file__).resolve().parent
STARTED = set()


def load_versions():
    """Return the list of versions as a module: tox's own environment does not have the package that it belongs to."""
    path = ROOT / "compat_tests" / "support" / "scalekeeper_test_support" / "tensorflow_versions.py"
    spec = importlib.util.spec_from_file_location("tensorflow_versions", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


VERSIONS = load_versions()


@impl
def tox_extend_envs():
    """Return the names of all environments with a TensorFlow."""
    return VERSIONS.all_names()


@impl
def tox_add_core_config(core_conf, state):
    """Set up the environments with a TensorFlow, the list of those that run without ``-e``, and the labels."""
    for variant in VERSIONS.VARIANTS:
        sections = ([f"tensorflow-{variant}"] if variant else []) + ["tensorflow", "testenv"]
        for environment in VERSIONS.ENVIRONMENTS:
            add_environment(state, VERSIONS.variant_name(environment, variant), environment, sections)
    for python in VERSIONS.SUBSTITUTE_PYTHONS:
        for name in set(VERSIONS.SUBSTITUTED) & set(VERSIONS.FAST_NAMES):
            environment = VERSIONS.environment(name)
            add_environment(state, VERSIONS.on_python(name, python), environment, ["tensorflow", "testenv"])
    (written,) = (loader for loader in core_conf.loaders if "env_list" in loader.found_keys())
    first = StrConvert.to_env_list(written.load_raw("env_list", state.conf, None)).envs
    fast = VERSIONS.fast_run(first)
    if getattr(state.conf.options, "skip_missing_interpreters", None) != "false":
        fast = with_found_pythons(fast)
    if getattr(state.conf.options, "parallel", 0) != 0 and len(with_tensorflow(fast)) > 1:
        os.environ.setdefault("SCALEKEEPER_PROCESSES", "0")  # the environments use all cores together
    labels = {label: EnvList(names) for label, names in VERSIONS.labels(first).items()}
    core_conf.loaders.insert(0, MemoryLoader(env_list=EnvList(fast), labels=labels))
    is_provisioned = importlib.util.find_spec("tox_uv") is not None  # otherwise tox starts itself again, with tox-uv
    names = getattr(state.conf.options, "env", None)
    if is_provisioned and names is not None and names.is_default_list and not state.conf.options.labels:
        announce(fast)
        shutil.rmtree(core_conf["work_dir"] / "fast_run", ignore_errors=True)  # the records of an earlier run
    atexit.register(print_untested, state)


def add_environment(state, name, environment, sections):
    """Add the settings of an environment with a TensorFlow: those of the sections of tox.ini, and what it installs."""
    deps = PythonDeps("\n".join(["-e compat_tests/support[tests]", *environment.requirements]), ROOT)
    state.conf.memory_seed_loaders[name].append(MemoryLoader(base=sections, deps=deps))


def with_found_pythons(names):
    """Return the names with another Python for some of those whose Python is missing."""
    found = next((python for python in VERSIONS.SUBSTITUTE_PYTHONS if is_found(python)), None)
    if found is None or is_found("3.13"):
        return names
    return [VERSIONS.on_python(name, found) if name in VERSIONS.SUBSTITUTED else name for name in names]


def with_tensorflow(names):
    """Return the names of the environments that have a TensorFlow and whose Python is found."""
    return [name for name in names if "-tf" in name and is_found(python_of(name))]


def python_of(name):
    """Return the Python version in the name of an environment, or None: py38-tf23 → 3.8."""
    start = name.partition("-")[0]
    return f"3.{start[3:]}" if start[:3] == "py3" and start[3:].isdigit() else None


@functools.lru_cache(maxsize=None)
def is_found(version):
    """Return whether python3.X is on the path and runs; a shim of pyenv may be there without its Python."""
    command = shutil.which(f"python{version}")
    if command is None:
        return False
    chosen = {**os.environ, "PYENV_VERSION": version}  # as [testenv] chooses it
    answer = subprocess.run([command, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=chosen)
    return answer.stdout.decode().startswith(f"Python {version}.")


def announce(names):
    """Print which environments lack an interpreter, and how to install it."""
    versions = sorted({python_of(name) for name in names} - {None}, key=lambda version: int(version[2:]))
    missing = [version for version in versions if not is_found(version)]
    if missing:
        print(
            "Python {} not found: these environments are left out, unless uv can download it: {}\n"
            "To run them: pyenv install {}".format(
                ", ".join(missing),
                ", ".join(name for name in names if python_of(name) in missing),
                " ".join(missing),
            ),
            flush=True,
        )


@impl
def tox_before_run_commands(tox_env):
    """Remember the environments that run."""
    STARTED.add(tox_env.name)


def print_untested(state):
    """Print the environments that did not run, as the last line."""
    if STARTED:
        missing = [name for name in state.envs.iter() if name not in STARTED]
        if missing:
            print(f"Not tested: {', '.join(missing)}", flush=True)
