"""Ask for the network that was taken away, once by Python and once past it, and print what was noticed."""

import ctypes
import json
import socket
import struct

from scalekeeper_test_support import no_network


def past_python():
    """Connect to port 9 of this machine with the C library alone."""
    library = ctypes.CDLL(None, use_errno=True)
    descriptor = library.socket(socket.AF_INET, socket.SOCK_STREAM, 0)
    address = struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", 9, bytes([127, 0, 0, 1]))
    return library.connect(descriptor, address, len(address))


def attempt(function, *arguments):
    try:
        function(*arguments)
    except no_network.NoNetworkError:
        return True
    return False


kernel = no_network.take_away()
refused = [
    attempt(socket.socket),
    attempt(socket.socket, socket.AF_INET6),
    attempt(socket.create_connection, ("127.0.0.1", 9)),
    attempt(socket.getaddrinfo, "localhost", 9),
]
local = [each.close() for each in socket.socketpair()]
by_python = len(no_network.tried())
connected = past_python()
print(
    json.dumps(
        {
            "kernel": kernel,
            "refused": refused,
            "local sockets": len(local),
            "tried by Python": by_python,
            "connected": connected,
            "tried past Python": len(no_network.tried()) - by_python,
        }
    )
)
