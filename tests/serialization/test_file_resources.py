"""Files that are opened once for many reads."""

import io

import pytest

from scalekeeper.serialization._file_resources import keep_files_open, open_file


@pytest.fixture
def opener():
    """A function that opens something new each time, and remembers it."""

    def open_one():
        open_one.files.append(io.StringIO("text"))
        return open_one.files[-1]

    open_one.files = []
    return open_one


def read_twice(opener):
    """How many times it was opened, and whether the last file is open still."""
    for _ in range(2):
        with open_file("key", opener) as file:
            assert not file.closed
    return len(opener.files), not opener.files[-1].closed


def test_by_default_nothing_stays_open(opener):
    """Each read opens and closes."""
    assert read_twice(opener) == (2, False)


def test_inside_it_a_file_is_opened_once(opener):
    """And is open until the end."""
    with keep_files_open():
        assert read_twice(opener) == (1, True)


def test_it_is_closed_afterwards(opener):
    """Then each read opens and closes again."""
    with keep_files_open():
        read_twice(opener)
    assert opener.files[0].closed
    assert read_twice(opener) == (3, False)


def test_it_is_closed_after_an_error(opener):
    """Too."""

    @keep_files_open()
    def fail():
        read_twice(opener)
        raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert opener.files[0].closed
    assert read_twice(opener) == (3, False)


def test_nested_the_outer_one_counts(opener):
    """A file that was opened inside stays open for later reads."""
    with keep_files_open():
        with keep_files_open():
            read_twice(opener)
        assert read_twice(opener) == (1, True)
    assert opener.files[0].closed
