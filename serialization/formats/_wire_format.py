"""Protocol buffers: the few fields of TensorFlow's messages that are needed, without generated classes."""

from typing import Any, Iterable, Iterator, List, Tuple, Union

_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5


def fields(message: Any) -> Iterator[Tuple[int, Any]]:
    """Yield number and value of each field: an int, or a view of the bytes. Nested messages are not parsed."""
    data = memoryview(message)
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            value, position = _varint(data, position)
            yield number, value
            continue
        if wire_type == _LENGTH:
            size, position = _varint(data, position)
        elif wire_type in (_EIGHT_BYTES, _FOUR_BYTES):
            size = 8 if wire_type == _EIGHT_BYTES else 4
        else:
            raise ValueError(f"unknown wire type {wire_type} in a protocol buffer")
        if number == 0 or position + size > len(data):
            raise ValueError("truncated protocol buffer")
        yield number, data[position : position + size]
        position += size


def all_of(message: Any, number: int) -> List[Any]:
    """Return the values of a repeated field."""
    return [value for each, value in fields(message) if each == number]


def last_of(message: Any, number: int, default: Any) -> Any:
    """Return the last value of a field, or the default if there is none."""
    found = all_of(message, number)
    return found[-1] if found else default


def text(value: Any) -> str:
    """Return the value of a string field."""
    if isinstance(value, int):
        raise ValueError("expected text, got a number")
    return bytes(value).decode("utf-8")


def _varint(data: Any, position: int) -> Tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise ValueError("truncated protocol buffer")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def encoded(values: Iterable[Tuple[int, Union[int, str, bytes]]]) -> bytes:
    """Return a message of fields, given as number and value."""
    data = bytearray()
    for number, value in values:
        if isinstance(value, int):
            data += _encoded_varint(number << 3 | _VARINT) + _encoded_varint(value)
        else:
            content = value.encode("utf-8") if isinstance(value, str) else value
            data += _encoded_varint(number << 3 | _LENGTH) + _encoded_varint(len(content)) + content
    return bytes(data)


def _encoded_varint(value: int) -> bytes:
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(data + bytes([value]))
