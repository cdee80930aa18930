"""Fixtures of the tests of several readers."""

import pytest


def _varint(value):
    data = b""
    while value > 0x7F:
        data += bytes([value & 0x7F | 0x80])
        value >>= 7
    return data + bytes([value])


@pytest.fixture
def field():
    """A function that writes one field of a protocol buffer: a number, text, or a message."""

    def write(number, value):
        if isinstance(value, int):
            return _varint(number << 3) + _varint(value)
        value = value.encode() if isinstance(value, str) else value
        return _varint(number << 3 | 2) + _varint(len(value)) + value

    return write
