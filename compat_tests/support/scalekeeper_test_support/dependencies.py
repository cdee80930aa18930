"""What the package says it depends on, and what is installed."""

from typing import Dict, List

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from scalekeeper.registry._compat import metadata
from scalekeeper_test_support.repository import repository_path

try:
    import tomllib
except ImportError:  # Python 3.10 and older; pytest brings it along there
    import tomli as tomllib

LOWEST = repository_path("tests", "supply", "lowest.txt")


def project():
    with open(repository_path("pyproject.toml"), "rb") as stream:
        return tomllib.load(stream)


def declared() -> Dict[str, Requirement]:
    """Each dependency of pyproject.toml by name, those of the extras as well."""
    table = project()["project"]
    texts = [*table["dependencies"], *(text for extra in table["optional-dependencies"].values() for text in extra)]
    requirements = [Requirement(text) for text in texts]
    return {canonicalize_name(requirement.name): requirement for requirement in requirements}


def bound(requirement: Requirement, operator: str) -> Version:
    """The lower bound (``>=``) or the upper one (``<``); ValueError unless there is exactly one."""
    (found,) = (clause.version for clause in requirement.specifier if clause.operator == operator)
    return Version(found)


def lowest() -> Dict[str, Version]:
    """The versions of lowest.txt."""
    with open(LOWEST, encoding="utf-8") as stream:
        lines = [line.split("#")[0].strip() for line in stream]
    requirements = [Requirement(line) for line in lines if line]
    return {canonicalize_name(requirement.name): bound(requirement, "==") for requirement in requirements}


def installed(name: str):
    """The version of a distribution, or None."""
    try:
        return Version(metadata.version(name))
    except metadata.PackageNotFoundError:
        return None


def required_by(name: str) -> List[Requirement]:
    """What an installed distribution needs in this environment, without its extras."""
    requirements = [Requirement(text) for text in metadata.requires(name) or ()]
    return [each for each in requirements if each.marker is None or each.marker.evaluate({"extra": ""})]


def closure(names) -> Dict[str, Version]:
    """These distributions and all that they need, as far as they are installed."""
    found: Dict[str, Version] = {}
    waiting = [canonicalize_name(name) for name in names]
    while waiting:
        name = waiting.pop()
        version = installed(name)
        if version is None or name in found:
            continue
        found[name] = version
        waiting += [canonicalize_name(requirement.name) for requirement in required_by(name)]
    return found


def unmet(names) -> List[str]:
    """What these distributions, and all that they need, lack here: what ``pip check`` looks for."""
    found = closure(names)
    return [
        f"{name} {found[name]} needs {requirement}, and {installed(requirement.name)} is there"
        for name in found
        for requirement in required_by(name)
        if not requirement.specifier.contains(found.get(canonicalize_name(requirement.name), "0"), prereleases=True)
    ]
