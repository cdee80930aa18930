"""Protocol buffers, as far as a few fields of a message need them: no classes that a version may lack."""

from typing import Any, Iterable, Iterator, List, Tuple, Union

_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5


def fields(message: Any) -> Iterator[Tuple[int, Any]]:
    """Number and value of each field: an int, or a view of the bytes. What is nested is not looked into."""
    data = memoryview(message)
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, place = _varint(data, place)
            yield number, value
            continue
        if kind == _LENGTH:
            size, place = _varint(data, place)
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
            size = 8 if kind == _EIGHT_BYTES else 4
        else:
            raise ValueError(f"a field of kind {kind}, which protocol buffers do not have")
        if number == 0 or place + size > len(data):
            raise ValueError("a protocol buffer that is cut off")
        yield number, data[place : place + size]
        place += size


def all_of(message: Any, number: int) -> List[Any]:
    """The values of a repeated field."""
    return [value for each, value in fields(message) if each == number]


def last_of(message: Any, number: int, default: Any) -> Any:
    """The value of a field that stands once; the default if it does not."""
    found = all_of(message, number)
    return found[-1] if found else default


def text(value: Any) -> str:
    """A string's value."""
    if isinstance(value, int):
        raise ValueError("a number where text belongs")
    return bytes(value).decode("utf-8")


def _varint(data: Any, place: int) -> Tuple[int, int]:
    value = shift = 0
    while True:
        if place >= len(data) or shift > 63:
            raise ValueError("a protocol buffer that is cut off")
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7


def encoded(values: Iterable[Tuple[int, Union[int, str, bytes]]]) -> bytes:
    """A message of these fields: number and value each."""
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
