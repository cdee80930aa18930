"""Traces in files: what is written comes back, and what is broken is said."""

import io
import json
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import scalekeeper
from scalekeeper import ScalekeeperError, Trace, UnreadableFileError, read_trace, write_trace
from scalekeeper.simulation import _trace_files

INF = float("inf")
floats = st.floats(0, float(np.finfo(np.float32).max), width=32) | st.just(INF)
rows = st.lists(st.tuples(floats, st.floats(2.0**-149, 2.0**127, width=32), st.floats(0, 1, width=32)), max_size=20)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("traces")


@pytest.mark.parametrize("ending", ["csv", "npz"])
@given(rows=rows, with_share=st.booleans())
def test_every_trace_comes_back_bit_for_bit(folder, ending, rows, with_share):
    """Arrays, limit and facts."""
    largest, scale, share = np.array(rows, np.float32).reshape(-1, 3).T
    path = folder / f"trace.{ending}"
    write_trace(Trace(largest, scale, share if with_share else None, limit=100, facts={"model": "ä"}), path)
    again = read_trace(path)
    assert again.largest.tobytes() == largest.tobytes()
    assert again.scale.tobytes() == scale.tobytes()
    assert again.zero_share is None if not with_share else again.zero_share.tobytes() == share.tobytes()
    assert (again.limit, again.facts["model"]) == (100.0, "ä")
    assert again.facts["written_by"] == {"scalekeeper": scalekeeper.__version__}


def test_a_csv_file_is_for_people(tmp_path):
    """Facts, names, and a line for each step."""
    write_trace(Trace([0.5, INF], [1024, 2048], facts={"written_by": {}}), tmp_path / "run.csv")
    assert (tmp_path / "run.csv").read_text().splitlines() == [
        '# {"format": "scalekeeper trace", "version": 1, "limit": 65504.0, "written_by": {}}',
        "step,largest,scale",
        "0,0.5,1024",
        "1,inf,2048",
    ]


def test_numpy_reads_an_npz_file(tmp_path):
    """Without us, and without pickle."""
    write_trace(Trace([0.5, INF], [1024, 2048]), tmp_path / "run.npz")
    with np.load(tmp_path / "run.npz", allow_pickle=False) as file:
        assert file["largest"].tolist() == [0.5, INF]


def test_handmade_files_are_traces_too(tmp_path):
    """One column, from a spreadsheet with quotes and a mark for the byte order, or arrays of float64."""
    (tmp_path / "by_hand.csv").write_bytes(b'\xef\xbb\xbf"largest"\r\n"1"\r\n2e3\r\n\r\n')
    np.savez(tmp_path / "by_hand.npz", largest=np.array([1.0, 2e3]), scale=np.array([1, 1]))
    for name in ("by_hand.csv", "by_hand.npz"):
        assert read_trace(tmp_path / name).largest.tolist() == [1.0, 2000.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ":1: not a trace: its columns are to be named here, 'largest' among them (step, largest, scale, "),
        ("1,2\n", ":1: not a trace"),
        ("largest;scale\n1;2\n", ":1: not a trace"),
        ("largest,scales\n1,2\n", ":1: unknown column 'scales'; did you mean 'scale'? Valid: step, largest, scale, "),
        ("largest,largest\n1,2\n", ":1: the column 'largest' is there twice"),
        ("largest,scale\n1,2\n3\n", ":3: 1 values for 2 columns: '3'"),
        ("largest\n1\nx\n", ":3: 'x' is not a number"),
        ("largest\n1\n-1\n", ":3: largest: -1 is not a magnitude"),
        ("largest\n1\n1e39\n", ":3: largest: 1e+39 is larger than float32 holds (3.4e38)"),
        ("largest,scale\n1,1\n1,0\n", ":3: scale: 0 is not a scale"),
        ("largest\n1\n\n2\n", ":3: an empty line between steps"),
        ("largest\n" + "1" * 5000, ":2: longer than 1000 characters, so it is not a step"),
        ("# {}\nlargest\n1\n", ':1: the facts do not say "format": "scalekeeper trace", but {}'),
        ("# {\nlargest\n1\n", ":1: not a trace: what stands there is not JSON"),
        ("# " + "[" * 5000 + "\nlargest\n1\n", ":1: not a trace: what stands there is not JSON"),
        ('# {"format": "scalekeeper trace", "version": 2}\nlargest\n1\n', ":1: version 2 of the format is not known"),
        (
            '# {"format": "scalekeeper trace", "version": 1, "limit": -1}\nlargest\n1\n',
            ":1: the limit -1 must be a finite number above 0",
        ),
    ],
)
def test_a_bad_csv_file_is_one_clear_error(tmp_path, text, message):
    """File, line, what is wrong."""
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(UnreadableFileError) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}{message}")


def archive(**members):
    """A zip file with these members."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(name.replace("_", "."), data)
    return stream.getvalue()


def npy(array, **changes):
    """An array as NumPy writes it, with other words in its header."""
    stream = io.BytesIO()
    np.save(stream, array)
    data = stream.getvalue()
    for old, new in changes.values():
        assert old in data
        data = data.replace(old, new)
    return data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (archive(), "not a trace: there is no array 'largest' in it"),
        (archive(largest_npy=b""), "largest: not a one-dimensional array of numbers"),
        (archive(largest_npy=npy(np.ones((2, 2)))), "largest: not a one-dimensional array of numbers"),
        (archive(largest_npy=npy(np.array(["x"]))), "largest: not a one-dimensional array of numbers"),
        (archive(largest_npy=npy(np.ones(3), a=(b"(3,)", b"(4,)"))), "largest: the header declares 4 values"),
        (archive(largest_npy=npy(np.ones(3), a=(b"(3,), }" + b" " * 9, b"(999999999,), } "))), "999999999 steps are"),
        (archive(largest_npy=npy(np.ones(3), a=(b"(3,), }", b"(-3,),}"))), "largest: not a one-dimensional array of"),
        (archive(largest_npy=npy(-np.ones(3))), "largest[0]: -1 is not a magnitude"),
        (archive(largest_npy=npy(np.ones(3)), scale_npy=npy(np.ones(2))), "scale: 2 values for 3 steps"),
        (archive(largest_npy=npy(np.ones(3)), facts_json="[]"), "facts.json: the facts do not say"),
        (archive(largest_npy=npy(np.ones(3)), facts_json=" " * 10**6), "facts.json has more than 65536 bytes"),
        (archive(largest_npy=npy(np.ones(3)))[:60], "cut off, or not an .npz file"),
        (b"\xff\xfe\x00", "neither text nor an .npz file"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_npz_file_is_one_clear_error(tmp_path, data, message):
    """No memory is taken for what is only promised, and nothing is unpickled."""
    path = tmp_path / "bad.npz"
    path.write_bytes(data)
    with pytest.raises(UnreadableFileError) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}: {message}") or message in str(caught.value)
    assert str(caught.value).startswith(str(path))


def outcome(path):
    """Return what reading comes to; any error but ours is not caught."""
    try:
        read_trace(path)
    except ScalekeeperError as error:
        return "our error" if str(path) in str(error) else f"an error that does not name the file: {error}"
    return "a trace"


@given(data=st.binary(max_size=300), start=st.sampled_from([b"", b"PK\x03\x04", b"largest\n", b"# {"]))
def test_random_bytes_are_a_trace_or_our_error(folder, data, start):
    """And nothing else."""
    path = folder / "noise"
    path.write_bytes(start + data)
    assert outcome(path) in ("a trace", "our error")


@given(place=st.integers(0, 10**6), value=st.integers(0, 255), cut=st.booleans())
def test_a_damaged_npz_file_is_a_trace_or_our_error(folder, place, value, cut):
    """With a byte changed, or its end gone."""
    path = folder / "damaged.npz"
    write_trace(Trace([0.5, 1, INF], [1, 2, 3], [0, 0, 1]), path)
    data = bytearray(path.read_bytes())
    place %= len(data)
    data[place] = value
    path.write_bytes(data[:place] if cut else data)
    assert outcome(path) in ("a trace", "our error")


@pytest.mark.parametrize("ending", ["csv", "npz"])
def test_a_huge_file_is_refused(tmp_path, monkeypatch, ending):
    """With a limit that a test can reach."""
    write_trace(Trace([1, 2, 3]), tmp_path / f"run.{ending}")
    monkeypatch.setattr(_trace_files, "MOST_STEPS", 2)
    with pytest.raises(UnreadableFileError, match=r"more than (2 steps|a trace may have \(2\))"):
        read_trace(tmp_path / f"run.{ending}")


def test_a_file_that_is_not_there(tmp_path):
    """As with open()."""
    with pytest.raises(FileNotFoundError):
        read_trace(tmp_path / "gone.csv")
    with pytest.raises(UnreadableFileError, match="null"):
        read_trace("a\0b")


def test_writing_needs_an_ending(tmp_path):
    """Which of the two formats is meant; nothing is written."""
    with pytest.raises(ValueError, match="must end with .csv or .npz"):
        write_trace(Trace([1]), tmp_path / "run.txt")
    assert list(tmp_path.iterdir()) == []


def test_writing_that_fails_leaves_the_old_file(tmp_path):
    """Facts that are not JSON are found half-way."""
    write_trace(Trace([1]), tmp_path / "run.npz")
    with pytest.raises(TypeError, match="JSON"):
        write_trace(Trace([1, 2], facts={"model": object()}), tmp_path / "run.npz")
    assert len(read_trace(tmp_path / "run.npz")) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["run.npz"]
    assert json.loads(zipfile.ZipFile(tmp_path / "run.npz").read("facts.json"))["version"] == 1
