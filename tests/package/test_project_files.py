"""The files that describe the project to its tools agree with tox.ini and pyproject.toml."""

import configparser
import re

import pytest
import yaml

from scalekeeper_test_support import tensorflow_versions
from scalekeeper_test_support.dependencies import project
from scalekeeper_test_support.page_commands import env_list
from scalekeeper_test_support.repository import repository_path


def parsed(*path):
    with open(repository_path(*path), encoding="utf-8") as stream:
        return yaml.safe_load(stream)


@pytest.fixture(scope="module")
def tox():
    ini = configparser.RawConfigParser()
    ini.read(repository_path("tox.ini"), encoding="utf-8")
    return ini


def jobs():
    """Return environment → version of Python, from the matrix of the workflow."""
    matrix = parsed(".github", "workflows", "tests.yml")["jobs"]["tox"]["strategy"]["matrix"]["include"]
    return {job["environment"]: job["python"] for job in matrix}


def test_the_workflow_has_one_job_for_each_environment():
    """Each environment of the fast run has a job, in the same order; each job has its own Python."""
    assert [*jobs(), tensorflow_versions.LAST] == tensorflow_versions.fast_run(env_list())


def test_each_job_installs_the_python_in_its_name():
    """A job without a version in its name runs on the newest Python."""
    versions = {name: re.match(r"py3(\d+)-", name) for name in jobs()}
    expected = {name: f"3.{match.group(1)}" if match else "3.13" for name, match in versions.items()}
    assert jobs() == expected


def scheduled(job):
    """Return a job of the scheduled workflow, its commands, and the versions of Python that it installs."""
    found = parsed(".github", "workflows", "scheduled.yml")["jobs"][job]
    (python,) = (step["with"]["python-version"] for step in found["steps"] if "setup-python" in step.get("uses", ""))
    return found, [step["run"] for step in found["steps"] if "run" in step], python.split()


def schedules():
    """Return the schedules of the scheduled workflow; YAML 1.1 reads its key, ``on``, as true."""
    return [each["cron"] for each in parsed(".github", "workflows", "scheduled.yml")[True]["schedule"]]


def test_the_nightly_job_may_fail():
    """It runs every night with the nightly TensorFlow, and a failure does not fail the workflow."""
    job, commands, pythons = scheduled("nightly")
    assert commands == ["python -m pip install tox", "python -m tox -e py313-nightly"]
    assert (pythons, job["continue-on-error"]) == (["3.13"], True)
    assert schedules()[0].split()[2:] == ["*", "*", "*"]
    assert job["if"] == f"github.event.schedule != '{schedules()[1]}'"


def test_the_weekly_job_runs_every_environment():
    """It has all interpreters of the matrix, the newest last, and its failure counts."""
    job, commands, pythons = scheduled("every")
    assert commands == ["python -m pip install tox", "python -m tox -m every"]
    assert pythons == list(dict.fromkeys(tensorflow_versions.TENSORFLOWS.values()))
    assert "continue-on-error" not in job
    assert schedules()[1].split()[2:] == ["*", "*", "6"]
    assert job["if"] == f"github.event.schedule != '{schedules()[0]}'"


def test_the_hooks_of_contributors_use_the_pinned_ruff(tox):
    """pre-commit and tox format the code alike."""
    (pinned,) = (line for line in tox["testenv:lint"]["deps"].split() if line.startswith("ruff=="))
    (repository,) = parsed(".pre-commit-config.yaml")["repos"]
    hooks = {hook["id"]: hook.get("additional_dependencies") for hook in repository["hooks"]}
    assert hooks == {"ruff-check": [pinned], "ruff-format": [pinned], "mypy": None}


def test_the_citation_names_this_version():
    """CITATION.cff has the version, the license and the description of the package."""
    citation, package = parsed("CITATION.cff"), project()["project"]
    assert (citation["title"], citation["version"]) == (package["name"], package["version"])
    assert (citation["abstract"], citation["keywords"]) == (package["description"], package["keywords"])
    assert citation["license"] == "Apache-2.0"


def test_contributors_find_every_page():
    """CONTRIBUTING.md links the pages on security and conduct."""
    with open(repository_path("CONTRIBUTING.md"), encoding="utf-8") as stream:
        text = stream.read()
    assert {"SECURITY.md", "CODE_OF_CONDUCT.md"} <= set(re.findall(r"\]\(([\w./]+)\)", text))


def test_git_ignores_the_folder_of_the_demo():
    """`scalekeeper demo` in a checkout leaves nothing to commit."""
    with open(repository_path(".gitignore"), encoding="utf-8") as stream:
        assert "scalekeeper-demo*/" in stream.read().splitlines()
