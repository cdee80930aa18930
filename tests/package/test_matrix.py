"""The list of TensorFlow versions is complete, and the fast run and the long run together run every test."""

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalekeeper_test_support import tensorflow_versions
from scalekeeper_test_support.fast_selection import FEWEST_VALUES, CollectedTest, fast_selection
from scalekeeper_test_support.page_commands import env_list, tox_ini
from scalekeeper_test_support.repository import ROOT, load_script
from scalekeeper_test_support.tensorflow_versions import ENVIRONMENTS, FAST, FAST_NAMES, environment

selection = load_script("compat_tests/selection.py")


def test_every_minor_version_has_an_environment():
    """2.0 to 2.21; from 2.16 on, with Keras 3 and with tf_keras."""
    minors = [environment.name.partition("-")[2] for environment in ENVIRONMENTS]
    expected = [f"tf2{minor}" for minor in range(16)]
    expected += [f"tf2{minor}-{keras}" for minor in range(16, 22) for keras in ("tfkeras", "keras3")]
    assert minors[: len(expected)] == expected
    assert len(set(tensorflow_versions.all_names())) == len(tensorflow_versions.all_names())


def test_every_minor_version_of_keras_3_has_an_environment():
    """3.0 to 3.15, on the first and on the last TensorFlow of the list that accept it."""
    keras = {each.requirements[-1] for each in ENVIRONMENTS if re.search(r"-keras3\d+$", each.name)}
    assert keras | {"keras==3.15.1"} == {f"keras=={version}" for version in tensorflow_versions.KERAS_3}
    assert [int(version.split(".")[1]) for version in tensorflow_versions.KERAS_3] == list(range(16))


def test_each_environment_installs_the_versions_in_its_name():
    """py38-tf24 installs tensorflow-cpu 2.4, py312-tf216-keras30 installs Keras 3.0."""
    for each in ENVIRONMENTS:
        series = "tf" + "".join(each.tensorflow.split(".")[:2])
        assert each.name.split("-")[1] == series
        assert re.fullmatch(rf"tensorflow(-cpu)?=={re.escape(each.tensorflow)}", each.requirements[0])


def test_the_fast_run_has_every_generation():
    """The environments of the README, each of which exists."""
    assert [name for names in FAST for name in names] == list(FAST_NAMES)
    assert {environment(name).name for name in FAST_NAMES} == set(FAST_NAMES)


def test_environments_that_wait_run_beside_a_long_one():
    """tox starts what depends on other environments after all others: core, which takes long, comes just before."""
    assert env_list()[-4:] == ["py313-core", "py37-install", "py313-install", "py313-sdist"]
    for section in ("testenv:py{37, 38, 313}-install", "testenv:py313-sdist{,-every}"):
        assert "depends" in tox_ini()[section]


def test_an_unknown_environment_is_an_error():
    """A wrong name never runs on some other TensorFlow."""
    with pytest.raises(KeyError):
        environment("py38-tf230")


def test_one_python_is_enough_to_test_something():
    """On another Python, the tests without TensorFlow and those of the newest TensorFlow run as on 3.13."""
    for name in tensorflow_versions.SUBSTITUTED:
        assert name in tensorflow_versions.fast_run(env_list())
        for python in tensorflow_versions.SUBSTITUTE_PYTHONS:
            substitute = tensorflow_versions.on_python(name, python)
            assert substitute in tensorflow_versions.all_names()
            assert tensorflow_versions.original(substitute) == name
    assert environment("py312-tf221-keras3") == environment("py313-tf221-keras3")
    assert environment("py312-tf219-keras3").tensorflow.startswith("2.19.")


def test_the_long_run_leaves_nothing_out():
    """`-m every` has all tests of every TensorFlow: no folder, marker or part is excluded by its commands."""
    labels = tensorflow_versions.labels(env_list())
    assert set(env_list()) < set(labels["every"])
    assert {f"{each.name}-every" for each in ENVIRONMENTS} < set(labels["every"])
    for command in tox_ini()["tensorflow-every"]["commands"].strip().split("\n"):
        words = re.split(r"[\s:{}]+", command)
        assert [word for word in words if word.startswith("-")] == []
        assert {"tests/serialization", "compat_tests"} <= set(words)
    assert tox_ini()["shared"]["processes"] == "-n {env:SCALEKEEPER_PROCESSES:2} --max-worker-restart 0 --dist loadfile"
    assert "--fast" not in tox_ini()["tensorflow-every"]["record"]


def test_only_three_folders_are_not_collected_everywhere():
    """The conftest leaves out the originals and the packages, which have environments of their own, and the pages."""
    with open(os.path.join(ROOT, "compat_tests", "conftest.py"), encoding="utf-8") as stream:
        text = stream.read()
    assert re.findall(r'"(originals|packages|docs/[\w.]+)"', text) == ["originals", "packages", "docs/test_pages.py"]
    assert text.count("collect_ignore") == 3
    assert "compat_tests/originals" in tox_ini()["testenv:py311-originals"]["commands"]


# The rule of the fast run


@st.composite
def functions(draw):
    """Tests of one function: some of the combinations of values of up to three parameters."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=0, max_size=3))
    combinations = [()]
    for size in sizes:
        combinations = [(*each, value) for each in combinations for value in range(size)]
    kept = draw(st.sets(st.sampled_from(combinations), min_size=1))
    shared_by = draw(st.sampled_from(FAST))
    unit = draw(st.sampled_from(["", "file.py"]))
    name = draw(st.text("abc", min_size=1))
    return [
        CollectedTest(f"{name}{each}", name, dict(zip("012", map(str, each))), shared_by, unit) for each in sorted(kept)
    ]


@given(functions())
def test_the_environments_of_a_generation_cover_every_value(tests):
    """Each function and each value of each parameter runs in one of the environments that share the tests."""
    chosen = set.union(*(fast_selection(tests, name) for name in tests[0].shared_by))
    covered = {target for test in tests if test.node in chosen for target in test.targets}
    assert covered == {target for test in tests for target in test.targets}


@given(st.sets(st.text("abcdef", min_size=1), min_size=1))
def test_generations_divide_many_values(values):
    """Each generation runs at least one value, and the generations together run every one."""
    covered = []
    for names in FAST:
        share = tensorflow_versions.share_of(names[0])
        tests = [CollectedTest(f"t[{each}]", "t", {"0": each}, names, share=share) for each in values]
        chosen = set.union(*(fast_selection(tests, name) for name in names))
        covered.append({test.parameters["0"] for test in tests if test.node in chosen})
        assert len(covered[-1]) >= min(FEWEST_VALUES, len(values))
    assert set.union(*covered) == values


def test_values_of_legacy_optimizers_are_not_divided():
    """Only one generation has them: another one that they were assigned to could not run them."""
    names = ("default", "legacy", "legacy-Adam", "legacy-SGD")
    tests = [CollectedTest(f"t[{each}]", "t", {"0": each}, FAST[2], share=(2, 4)) for each in names]
    chosen = set.union(*(fast_selection(tests, name) for name in FAST[2]))
    assert chosen >= {"t[legacy]", "t[legacy-Adam]", "t[legacy-SGD]"}


def test_consecutive_versions_outside_of_the_fast_run_divide_many_values():
    """Four versions in a row run every value together, and each at least one of them."""
    names = [names[0] for names in tensorflow_versions.GROUPS[:4]]
    covered = []
    for name in names:
        share = tensorflow_versions.share_of(name)
        tests = [CollectedTest(f"t[{each}]", "t", {"0": str(each)}, (name,), share=share) for each in range(50)]
        covered.append(fast_selection(tests, name))
    assert names == ["py38-tf24", "py39-tf25", "py39-tf26", "py39-tf27"]
    assert min(map(len, covered)) >= FEWEST_VALUES
    assert set.union(*covered) == {f"t[{each}]" for each in range(50)}


def test_two_tensorflows_with_one_minor_version_of_keras_3_share_its_tests():
    """The first and the last TensorFlow that accept Keras 3.5 run each test in one of them, and 3.0 has only one."""
    pairs = [names for names in tensorflow_versions.GROUPS if len(names) > 1]
    assert ("py312-tf216-keras35", "py312-tf219-keras35") in pairs
    assert sorted(name for names in tensorflow_versions.GROUPS for name in names) == sorted(
        each.name for each in ENVIRONMENTS if each.name not in FAST_NAMES
    )
    assert all(len({environment(name).keras for name in names}) == 1 for names in pairs)


def test_slow_cases_take_no_value_from_the_others():
    """A case that another environment runs does not stand for the cases of this one."""
    alone, other = FAST[1][0], FAST[3][0]
    tests = [CollectedTest(f"t[{each}]", "t", {"0": each, "1": "x"}, (alone,)) for each in "ab"]
    tests.append(CollectedTest("t[c]", "t", {"0": "c", "1": "x"}, (other,), "file.py"))
    assert fast_selection(tests, alone) == {"t[a]", "t[b]"}
    assert fast_selection(tests, other) == {"t[c]"}


@given(functions())
def test_tests_of_one_unit_run_in_one_environment(tests):
    """Slow tests of a file share what a fixture has made."""
    running = [name for name in tests[0].shared_by if fast_selection(tests, name)]
    assert len(running) == 1 or not tests[0].unit


@given(functions())
def test_other_environments_run_nothing_of_it(tests):
    """Only the environments that share a test run it."""
    assert fast_selection(tests, "py39-tf27") == set()


def test_long_tests_are_left_to_the_long_run():
    """No environment of the fast run has them, and the check does not miss them."""
    test = CollectedTest("t", "t", {}, ())
    assert [fast_selection([test], name) for name in FAST_NAMES] == [set()] * len(FAST_NAMES)
    assert selection.uncovered({FAST_NAMES[0]: {"collected": {"t": ["t", [["", ""]], []]}, "results": {}}}) == []


# The check after a fast run


def record(node, outcome, shared_by):
    function = node.partition("[")[0]
    value = node.partition("[")[2].rstrip("]")
    return {"collected": {node: [function, [["0", value]], list(shared_by)]}, "results": {node: [outcome, 1.5]}}


def test_a_value_that_did_not_run_is_reported():
    """A test that every environment leaves to another one is found."""
    first, second = FAST[2]
    records = {first: record("t[a]", "passed", FAST[2]), second: record("t[b]", "passed", FAST[2])}
    assert selection.uncovered(records) == []
    del records[second]["results"]["t[b]"]
    assert selection.uncovered(records) == [(FAST[2], ("t", "0", "b"))]


def test_a_skipped_test_has_to_run_in_another_generation():
    """If it is skipped wherever it is assigned, nothing has tested it."""
    alone, other = FAST[1][0], FAST[3][0]
    records = {alone: record("t[a]", "skipped", [alone]), other: record("t[a]", "skipped", [other])}
    assert len(selection.uncovered(records)) == 2
    records[other]["results"]["t[a]"] = ["passed", 1.5]
    assert selection.uncovered(records) == []


def test_an_environment_that_did_not_run_is_not_counted():
    """With one interpreter, the share of the others is not reported as left out; tox names these environments."""
    first, second = FAST[2]
    records = {first: record("t[a]", "passed", FAST[2])}
    records[first]["collected"]["t[b]"] = ["t", [["0", "b"]], list(FAST[2])]
    assert selection.uncovered(records) == []
    records[second] = {"collected": {}, "results": {}}
    assert selection.uncovered(records) == [(FAST[2], ("t", "0", "b"))]


def test_the_slowest_tests():
    """The slowest first, with their environments."""
    records = {name: record("t[a]", "passed", [name]) for name in ("py37-tf20", "py38-tf23")}
    records["py38-tf23"]["results"]["t[a]"][1] = 9.0
    assert selection.slowest(records) == [(9.0, "py38-tf23", "t[a]"), (1.5, "py37-tf20", "t[a]")]
