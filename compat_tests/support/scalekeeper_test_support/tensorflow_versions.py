"""The list of TensorFlow versions that scalekeeper is tested on, and the tox environments made from it.

``toxfile.py`` creates the environments, and ``compat_tests/test_environment.py`` checks that each runs on the
TensorFlow in its name. A new TensorFlow is one row here. This module imports nothing but the standard library, because
tox loads it from the checkout.
"""

from typing import Dict, List, NamedTuple, Sequence, Tuple

# TensorFlow → the Python that its environment uses
TENSORFLOWS = {
    "2.0.4": "3.7",
    "2.1.4": "3.7",
    "2.2.3": "3.8",
    "2.3.4": "3.8",
    "2.4.4": "3.8",
    "2.5.3": "3.9",
    "2.6.5": "3.9",
    "2.7.4": "3.9",
    "2.8.4": "3.10",
    "2.9.3": "3.10",
    "2.10.1": "3.10",
    "2.11.1": "3.10",
    "2.12.1": "3.11",
    "2.13.1": "3.11",
    "2.14.1": "3.11",
    "2.15.1": "3.11",
    "2.16.2": "3.12",
    "2.17.1": "3.12",
    "2.18.1": "3.12",
    "2.19.1": "3.12",
    "2.20.0": "3.13",
    "2.21.0": "3.13",
}
# TensorFlow → what its own tf.keras.__version__ begins with; 2.16 and later use the installed Keras 3 or tf_keras
KERAS_OF_TENSORFLOW = {
    "2.0.4": "2.2.4-tf",
    "2.1.4": "2.3.0-tf",
    "2.2.3": "2.3.0-tf",
    "2.3.4": "2.4.0",
    "2.4.4": "2.4.0",
    "2.5.3": "2.5.0",
}
# the newest release of each minor version of Keras 3 → the first and the last TensorFlow that accept it
KERAS_3 = {
    "3.0.5": ("2.16.2",),
    "3.1.1": ("2.16.2",),
    "3.2.1": ("2.16.2", "2.17.1"),
    "3.3.3": ("2.16.2", "2.17.1"),
    "3.4.1": ("2.16.2", "2.17.1"),
    "3.5.0": ("2.16.2", "2.19.1"),
    "3.6.0": ("2.16.2", "2.19.1"),
    "3.7.0": ("2.16.2", "2.19.1"),
    "3.8.0": ("2.16.2", "2.19.1"),
    "3.9.2": ("2.16.2", "2.19.1"),
    "3.10.0": ("2.16.2", "2.20.0"),
    "3.11.3": ("2.16.2", "2.20.0"),
    "3.12.4": ("2.16.2", "2.21.0"),
    "3.13.2": ("2.16.2", "2.21.0"),
    "3.14.1": ("2.16.2", "2.21.0"),
    "3.15.1": ("2.16.2", "2.21.0"),
}
NEWEST_KERAS_3 = "3.15.1"
# beside the newest TensorFlow only: a second backend, which scalekeeper must refuse, and a package for TensorBoard
WITH_NEWEST = ("jax", "tensorboard")
# The environments of the fast run, by Keras generation. The environments of a generation share its tests.
FAST = (
    ("py37-tf20", "py37-tf21", "py38-tf22", "py38-tf23"),
    ("py310-tf210",),
    ("py311-tf215", "py313-tf221-tfkeras"),
    ("py313-tf221-keras3",),
)

# What an environment runs, as the end of its name: nothing is the fast run. tox.ini has a section for each.
VARIANTS = ("", "every", "long", "compat", "converted", "reliability")


class Environment(NamedTuple):
    """One tox environment with a TensorFlow.

    >>> environment("py38-tf24").requirements
    ('tensorflow-cpu==2.4.4', 'numpy<2', 'protobuf<3.21')
    """

    name: str
    tensorflow: str
    keras: str  # what tf.keras.__version__ begins with
    requirements: Tuple[str, ...]


def _series(version: str) -> Tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _short(version: str) -> str:
    return "{}{}".format(*_series(version))


def _requirements(tensorflow: str) -> Tuple[str, ...]:
    """Return TensorFlow, and what its own metadata leaves open but its code does not support."""
    series = _series(tensorflow)
    package = "tensorflow" if series == (2, 0) else "tensorflow-cpu"  # 2.0 has no CPU package for every Python
    found = [f"{package}=={tensorflow}"]
    if series < (2, 12):
        found.append("numpy<2")
        found.append("protobuf<3.21")
    return tuple(found)


def _environments() -> List[Environment]:
    found = []
    for tensorflow, python in TENSORFLOWS.items():
        start = f"py{_short(python)}-tf{_short(tensorflow)}"
        needs = _requirements(tensorflow)
        if _series(tensorflow) < (2, 16):
            minor = "{}.{}.".format(*_series(tensorflow))
            found.append(Environment(start, tensorflow, KERAS_OF_TENSORFLOW.get(tensorflow, minor), needs))
            continue
        minor = "{}.{}".format(*_series(tensorflow))
        found.append(Environment(f"{start}-tfkeras", tensorflow, f"{minor}.", (*needs, f"tf_keras=={minor}.*")))
        needs = (*needs, f"keras=={NEWEST_KERAS_3}")
        if tensorflow == max(TENSORFLOWS, key=_series):
            needs = (*needs, *WITH_NEWEST)
        found.append(Environment(f"{start}-keras3", tensorflow, "3.", needs))
    for keras, tensorflows in KERAS_3.items():
        if keras != NEWEST_KERAS_3:
            for tensorflow in tensorflows:
                name = f"py{_short(TENSORFLOWS[tensorflow])}-tf{_short(tensorflow)}-keras{_short(keras)}"
                needs = (*_requirements(tensorflow), f"keras=={keras}")
                found.append(Environment(name, tensorflow, keras, needs))
    return found


ENVIRONMENTS = tuple(_environments())
FAST_NAMES = tuple(each.name for each in ENVIRONMENTS for names in FAST if each.name in names)
# Environments that ``python -m tox`` runs on another Python if 3.13 is missing: one Python is enough to test something
SUBSTITUTED = ("py313-core", "py313-tf221-keras3")
SUBSTITUTE_PYTHONS = ("3.12", "3.11", "3.10")  # the newest TensorFlow supports them
# the fast run's last environment, which compares what the others have recorded
LAST = "selection"
# the environments with real packages that have optimizers, which tox.ini defines; run by hand
PACKAGES = (
    "py310-packages-addons",
    "py311-packages-addons",
    "py311-packages-transformers",
    "py311-packages-models",
    "py313-packages-hub",
    "py310-packages-horovod",
)
# the environments with builds that have CUDA, which tox.ini defines; run by hand
GPU = ("py38-gpu", "py310-gpu", "py311-gpu", "py313-gpu-keras3", "py313-gpu-tfkeras")
# the environments of the long run that have no TensorFlow in their names and are not in tox.ini's env_list
OTHERS = ("py313-core-every", "py313-sdist-every", *(f"py{python}-install" for python in (38, 39, 310, 311, 312)))


def original(name: str) -> str:
    """Return the environment that another Python may take the place of, or the name itself.

    >>> original("py312-tf221-keras3"), original("py312-tf219-keras3")
    ('py313-tf221-keras3', 'py312-tf219-keras3')
    """
    return next(
        (each for each in SUBSTITUTED for python in SUBSTITUTE_PYTHONS if name == on_python(each, python)), name
    )


def on_python(name: str, python: str) -> str:
    """Return the name of the same environment on another Python.

    >>> on_python("py313-core", "3.12")
    'py312-core'
    """
    return f"py{_short(python)}-" + name.partition("-")[2]


def environment(name: str) -> Environment:
    """Return the environment with this name; a suffix such as ``-every`` is ignored, and 3.13 may be another Python.

    Raises:
        KeyError: No environment of the list has this name.
    """
    name = original(name)
    matches = [each for each in ENVIRONMENTS if name == each.name or name.startswith(each.name + "-")]
    if not matches:
        raise KeyError(name)
    return max(matches, key=lambda each: len(each.name))


def variant_name(environment: Environment, variant: str) -> str:
    """Return the name of a variant of an environment: ``py38-tf23-every``."""
    return f"{environment.name}-{variant}" if variant else environment.name


def all_names() -> List[str]:
    """Return the names of all environments with a TensorFlow, with variants, and of those on another Python."""
    substitutes = [on_python(name, python) for name in SUBSTITUTED for python in SUBSTITUTE_PYTHONS]
    return [variant_name(each, variant) for variant in VARIANTS for each in ENVIRONMENTS] + substitutes


def fast_run(first: Sequence[str]) -> List[str]:
    """Return what ``python -m tox`` runs; ``first`` is the env_list of tox.ini.

    The environments that take longest come first: side by side with others, none is left over at the end.
    """
    return [*reversed(FAST_NAMES), *first, LAST]


def labels(first: Sequence[str]) -> Dict[str, List[str]]:
    """Return the labels of tox: ``every``, ``versions`` (the fast run on every TensorFlow), ``packages``, ``gpu``."""
    every = [variant_name(each, "every") for each in ENVIRONMENTS]
    versions = [each.name for each in ENVIRONMENTS]
    return {"every": [*first, *OTHERS, *every], "versions": versions, "packages": list(PACKAGES), "gpu": list(GPU)}


def _groups() -> Tuple[Sequence[str], ...]:
    """Return the environments outside of the fast run, grouped by the tests that they share: Keras 3.5 is a group."""
    found: Dict[str, List[str]] = {}
    for each in ENVIRONMENTS:
        if each.name not in FAST_NAMES:
            is_minor = each.keras in KERAS_3
            found.setdefault(each.keras if is_minor else each.name, []).append(each.name)
    return tuple(tuple(names) for names in found.values())


GROUPS = _groups()


def generation_of(name: str) -> Sequence[str]:
    """Return the environments that share the tests of the fast part with this one, itself included.

    >>> generation_of("py311-tf215")
    ('py311-tf215', 'py313-tf221-tfkeras')
    >>> generation_of("py38-tf24")
    ('py38-tf24',)
    >>> generation_of("py312-tf219-keras35")
    ('py312-tf216-keras35', 'py312-tf219-keras35')
    """
    name = environment(name).name
    return next(names for names in (*FAST, *GROUPS) if name in names)


def share_of(name: str) -> Tuple[int, int]:
    """Return the number of the part of the values that an environment has, and how many parts there are.

    The generations of the fast run divide the values of parameters. Outside of it, as many consecutive versions do.

    >>> share_of("py313-tf221-tfkeras"), share_of("py38-tf24"), share_of("py39-tf25")
    ((2, 4), (0, 4), (1, 4))
    """
    names = generation_of(name)
    return ((FAST if names in FAST else GROUPS).index(names) % len(FAST), len(FAST))
