"""Protocol buffers, read field by field."""

import pytest

from scalekeeper.serialization.formats._wire_format import all_of, fields, last_of, text


def test_fields_of_every_kind():
    """A number, bytes, eight bytes and four, by their field numbers."""
    message = b"\x08\x96\x01" + b"\x12\x02ab" + b"\x19" + bytes(8) + b"\x25" + bytes(4)
    found = [(number, value if isinstance(value, int) else bytes(value)) for number, value in fields(message)]
    assert found == [(1, 150), (2, b"ab"), (3, bytes(8)), (4, bytes(4))]


def test_repeated_and_single_fields():
    """All values of one, the last of the other, and the default for what is not there."""
    message = b"\x0a\x01a\x0a\x01b"
    assert [text(value) for value in all_of(message, 1)] == ["a", "b"]
    assert text(last_of(message, 1, b"")) == "b"
    assert last_of(message, 2, "none") == "none"


@pytest.mark.parametrize("message", [b"\x0a\x05ab", b"\x0a", b"\x08\x80", b"\x0b", b"\xff" * 11, b"\x02\x00"])
def test_a_broken_message_is_an_error(message):
    """Cut off in a length, a number or a value, or of no known kind."""
    with pytest.raises(ValueError, match="protocol buffer"):
        list(fields(message))
