"""How much a part of a file may become when it is unpacked: files that nobody vouches for promise what they like."""

ALWAYS_FINE = 64 * 2**20  # bytes
_LARGEST_GROWTH = 200  # what becomes more than this many times its size in the file is neither a variable nor a model


def most_of(stored: int) -> int:
    """The most bytes that so many bytes in a file may become."""
    return max(ALWAYS_FINE, _LARGEST_GROWTH * stored)
