"""Files that TensorFlow's own class and ours wrote, on many versions: all that they hold comes back here.

The installed TensorFlow reads a part of the cells that covers every producer, format, policy and optimizer. All of them
are read by ``python -m tox -e py311-tf215-compat`` and its like, whose results are kept in ``results/`` and are held to
the same expectations.
"""

import functools
import io
import os
import sys
import tarfile

import pytest

from scalekeeper_test_support import tensorflow_versions
from scalekeeper_test_support.golden import archives, gaps, matrix, results, scenario
from scalekeeper_test_support.repository import load_script

pytestmark = pytest.mark.each_environment

# each version has much to say of the files of another

consume = load_script("compat_tests/golden/consume.py")
generate = load_script("compat_tests/golden/generate.py")

KNOWN_GAPS = gaps.lines()
# of a minor without results of its own, those that stand closest to it
CONSUMERS = [consumer for consumer in matrix.CONSUMERS if consumer in scenario.installed_flavours()]
# in the fast run, the environments of a generation share the cells
IS_SHARED = os.environ.get("SCALEKEEPER_ENVIRONMENT") in tensorflow_versions.FAST_NAMES
SHARED_BY = {consumer: matrix.alike(consumer) if IS_SHARED else (consumer,) for consumer in CONSUMERS}
PART = [
    cell
    for consumer in CONSUMERS
    for cell in matrix.part(matrix.OURS, SHARED_BY[consumer])
    if cell.consumer == consumer
]


RENDER = load_script("compat_tests/golden/render.py")


@pytest.fixture(scope="module")
def golden():
    with consume.Golden() as opened:
        yield opened


# Files that these tests read


@pytest.mark.parametrize("cell", PART, ids=lambda cell: cell.name)
def test_all_that_the_file_holds_comes_back(cell, golden):
    """The grade is what the file holds, or what a line of known gaps says: more is as wrong as less."""
    with consume.quiet():
        row = consume.consume(cell, golden)
    assert row["grade"] == gaps.expected_grade(cell, KNOWN_GAPS), row["reason"]


def test_the_part_has_every_producer_format_way_policy_and_optimizer():
    """For each consumer, or those that share the cells, and each producer in every format that it writes."""
    for consumers in SHARED_BY.values():
        part = matrix.part(matrix.OURS, consumers)
        whole = [cell for consumer in consumers for cell in matrix.cells(matrix.OURS, consumer)]
        for what in (
            lambda cell: (cell.case.producer, cell.format),
            lambda cell: (cell.case.producer, cell.case.policy),
            lambda cell: (cell.format, cell.way, cell.case.policy),
            lambda cell: (cell.format, cell.way, cell.case.optimizer),
        ):
            assert {what(cell) for cell in part} == {what(cell) for cell in whole}
        assert len(part) < len(whole) / 4


# Recorded results of reading all files


@pytest.mark.parametrize("consumer", matrix.CONSUMERS)
def test_the_kept_results_have_every_cell(consumer):
    """Of both classes, for every consumer; none is left over."""
    _, rows = results.read(consumer)
    expected = [*matrix.cells(matrix.OURS, consumer), *matrix.cells(matrix.OWN, consumer)]
    assert {results.cell_of(row) for row in rows} == set(expected)


@pytest.mark.parametrize("consumer", matrix.CONSUMERS)
def test_the_kept_results_are_what_is_expected(consumer):
    """All that the file holds, or what a known gap says."""
    _, rows = results.read(consumer)
    ours = [row for row in rows if row["consumer_class"] == matrix.OURS]
    others = [
        (results.cell_of(row).name, row["grade"], row["reason"])
        for row in ours
        if row["grade"] != gaps.expected_grade(results.cell_of(row), KNOWN_GAPS)
    ]
    assert others == []


@pytest.mark.parametrize("consumer", matrix.CONSUMERS)
def test_plain_tensorflow_reads_ours_as_well_as_its_own(consumer):
    """On the version that wrote a file with a fixed or a dynamic scale, TensorFlow reads no less of scalekeeper's.

    Where it does, a line of lock_ins.json says why.
    """
    _, rows = results.read(consumer)
    worse, compared = RENDER.locked_in([row for row in rows if matrix.is_same_version(row["flavour"], consumer)])
    assert compared
    known = gaps.lines(gaps.LOCK_INS)
    unknown = [row for row in worse if not any(gaps.matches(line, results.cell_of(row)) for line in known)]
    assert [(results.cell_of(row).name, row["grade"], row["reason"]) for row in unknown] == []


def test_every_known_gap_is_one():
    """A line is about some cells, says less than their files hold, and gives a reason."""
    whole = [cell for consumer in matrix.CONSUMERS for cell in matrix.cells(matrix.OURS, consumer)]
    for line in KNOWN_GAPS:
        assert set(line) <= {*gaps.KEYS, "grade", "reason"}
        assert len(line["reason"]) > 20
        about = [cell for cell in whole if gaps.matches(line, cell)]
        assert about
        assert all(line["grade"] < matrix.holds(cell.case, cell.format) for cell in about), line


def test_the_pages_are_what_the_results_render_to():
    """docs/compatibility.md and docs/compatibility.html are never edited by hand."""
    rows, _ = RENDER.all_rows()
    with open(RENDER.PAGE, encoding="utf-8") as stream:
        assert stream.read() == RENDER.page(rows, KNOWN_GAPS)
    with open(RENDER.INTERACTIVE, encoding="utf-8") as stream:
        assert stream.read() == RENDER.interactive(rows)


def test_results_survive_the_disk(tmp_path):
    """Rows that are written and read again are the same."""
    cells = matrix.part(matrix.OURS, ("tf215",))[:20]
    rows = [
        results.row_of(cell, place % 5, "because" if place % 5 != matrix.holds(cell.case, cell.format) else None)
        for place, cell in enumerate(cells)
    ]
    results.write("tf215", {"tensorflow": "2.15.1"}, rows, str(tmp_path))
    versions, again = results.read("tf215", str(tmp_path))
    assert versions == {"tensorflow": "2.15.1"}
    assert sorted(map(str, again)) == sorted(map(str, rows))


# The training run


# a scale that is too small, or a counter at 0
WRONG_STATES = [
    ("dynamic", {"current_loss_scale": 256.0, "good_steps": 2}),
    ("dynamic", {"current_loss_scale": 512.0, "good_steps": 0}),
    ("dynamic4", {"current_loss_scale": 64.0, "good_steps": 2}),
    ("dynamic4", {"current_loss_scale": 256.0, "good_steps": 0}),
    ("custom", {"present_scale": 128.0, "overflows": 1}),
    ("custom", {"present_scale": 512.0, "overflows": 0}),
]
# one that began anew: it skips one spike for another, which moves the weights of Adam and RMSprop by as much
FRESH_STATES = [
    ("dynamic", {"current_loss_scale": 1024.0, "good_steps": 0}),
    ("dynamic4", {"current_loss_scale": 1024.0, "good_steps": 0}),
    ("custom", {"present_scale": 1024.0, "overflows": 0}),
]


@pytest.mark.parametrize(
    ("policy", "state", "optimizer"),
    [
        *((*wrong, optimizer) for wrong in WRONG_STATES for optimizer in matrix.OPTIMIZERS),
        *((*fresh, "sgd") for fresh in FRESH_STATES),
    ],
)
def test_a_wrong_state_ends_with_other_weights(policy, state, optimizer):
    """So L4 tells, and not only L3, whether scale and counters came back."""
    wrong, right = trained(policy, optimizer, state), trained_without_change(policy, optimizer)
    assert scenario.difference(wrong, right) > 100 * consume.TOLERANCE


def trained(policy, optimizer, state):
    """The weights at the end of a run whose scale has, after the fifth step, another state."""
    flavour = next(iter(scenario.installed_flavours()))
    model, made = scenario.make_model(), scenario.make_optimizer(matrix.OURS, flavour, policy, optimizer)
    scenario.train(model, made, policy, 1, scenario.SAVED_AFTER)
    made.loss_scale.load_state({**made.loss_scale.state(), **state})
    scenario.train(model, made, policy, scenario.SAVED_AFTER + 1, scenario.LAST)
    return scenario.weights_of(model)


@functools.lru_cache(maxsize=None)
def trained_without_change(policy, optimizer):
    return trained(policy, optimizer, {})


@pytest.mark.parametrize("optimizer", matrix.OPTIMIZERS)
def test_a_wrong_multiplier_ends_with_other_weights(optimizer):
    """So L4 tells a policy that came back from another."""
    flavour = next(iter(scenario.installed_flavours()))
    ends = []
    for policy in ("dynamic", "dynamic4"):
        model, made = scenario.make_model(), scenario.make_optimizer(matrix.OURS, flavour, policy, optimizer)
        made.loss_scale.load_state({"current_loss_scale": 256.0, "good_steps": 2})
        scenario.train(model, made, policy, scenario.SAVED_AFTER + 1, scenario.LAST)
        ends.append(scenario.weights_of(model))
    assert scenario.difference(*ends) > 100 * consume.TOLERANCE


# Golden files


@pytest.mark.parametrize("producer", matrix.producers(), ids=lambda producer: producer.name)
def test_every_golden_file_is_there(producer, golden):
    """A missing one fails; each says who wrote it, and is far from where training began."""
    for case in matrix.cases(producer):
        expected = golden.expected(case)
        assert [expected[key] for key in ("class", "flavour", "policy", "optimizer")] == list(case)
        assert list(expected["files"]) == matrix.formats(*producer)
        for file_format, said in expected["files"].items():
            assert golden.path(matrix.Cell(case, file_format, None, None, None))
            assert said["grade"] == matrix.holds(case, file_format)
        generate.require_far_from_start(case, expected)


def test_golden_files_are_small():
    """All of them together take less than 3 MB."""
    assert sum(os.path.getsize(archives.path_of(producer)) for producer in matrix.producers()) < 3e6


def test_golden_files_are_never_overwritten(tmp_path, monkeypatch):
    """The generator refuses, and so does the archive."""
    flavour = next(iter(scenario.installed_flavours()))
    path = archives.path_of(matrix.Producer(matrix.OWN, flavour), str(tmp_path))
    os.makedirs(os.path.dirname(path))
    with open(path, "wb") as stream:
        stream.write(b"kept")
    monkeypatch.setattr(sys, "argv", ["generate.py", matrix.OWN, flavour, "--archives", str(tmp_path)])
    with pytest.raises(SystemExit, match="never overwritten"):
        generate.main()
    with pytest.raises(FileExistsError):
        archives.pack(results.RESULTS, path)
    with open(path, "rb") as stream:
        assert stream.read() == b"kept"


@pytest.mark.parametrize("name", ["../outside", "/outside", "folder/../../outside", "a//b", "link"])
def test_an_archive_writes_nothing_outside(name, tmp_path):
    """Names that lead elsewhere, and links, are refused."""
    path = str(tmp_path / "bad.tar.xz")
    with tarfile.open(path, "w:xz") as archive:
        member = tarfile.TarInfo(name)
        if name == "link":
            member.type, member.linkname = tarfile.SYMTYPE, "/etc"
        archive.addfile(member, io.BytesIO())
    os.makedirs(str(tmp_path / "target"))
    with pytest.raises(ValueError, match="is not a plain file inside it"):
        archives.unpack(path, str(tmp_path / "target"))
    assert os.listdir(str(tmp_path / "target")) == []
