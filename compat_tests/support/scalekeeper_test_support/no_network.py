"""Take the network away from this process, for good, and count who asks for it.

Python's own sockets are refused and counted. Where the system lets a process have a network of its own, it gets one
without any interface: then C++ has none either, and the kernel counts what it tries to send.
"""

from typing import Any, List

import ctypes
import os
import socket
import sys

_NEW_NETWORK, _NEW_USER = 0x40000000, 0x10000000  # of Linux, for unshare
_LOCAL = (getattr(socket, "AF_UNIX", None),)
_LOOK_UPS = ("getaddrinfo", "gethostbyname", "gethostbyname_ex", "gethostbyaddr", "getnameinfo")
# what the kernel counts when something is to be sent, in /proc/self/net
_COUNTERS = {
    "snmp": ("Ip:OutRequests", "Ip:OutNoRoutes", "Tcp:ActiveOpens", "Udp:OutDatagrams"),
    "snmp6": ("Ip6OutRequests", "Ip6OutNoRoutes", "Udp6OutDatagrams"),
}
_tried: List[str] = []


class NoNetworkError(OSError):
    """There is none, and nobody should have asked."""


def take_away() -> bool:
    """From now on there is no network; whether the kernel sees to it as well."""
    if hasattr(sys, "addaudithook"):
        sys.addaudithook(_refuse_events)
    else:
        _replace_functions()
    return _leave_the_network()


def tried() -> List[str]:
    """Return what was tried so far, by Python, and by anything else as far as the kernel has counted it."""
    return [*_tried, *(f"{count} × {name}" for name, count in _sent() if count)]


def _refuse(what: str) -> None:
    _tried.append(what)
    raise NoNetworkError(f"{what}: there is no network here")


def _refuse_events(event: str, arguments: Any) -> None:
    if event == "socket.__new__":
        if arguments[1] not in (*_LOCAL, -1):  # -1 is the family of a socket that is there already
            _refuse(f"a socket of family {arguments[1]}")
    elif event.startswith("socket.") and event[len("socket.") :] in _LOOK_UPS:
        _refuse(event)


def _replace_functions() -> None:
    """Where Python tells of no events."""

    class Refused(socket.socket):
        def __init__(self, family: int = socket.AF_INET, *others: Any, **more: Any) -> None:
            if family not in (*_LOCAL, -1):
                _refuse(f"a socket of family {family}")
            super().__init__(family, *others, **more)

    socket.socket = Refused  # type: ignore[misc]
    for name in _LOOK_UPS:
        setattr(socket, name, lambda *arguments, name=name, **more: _refuse(f"socket.{name}"))


def _leave_the_network() -> bool:
    """Have a new network, in a new user namespace if necessary."""
    unshare = getattr(ctypes.CDLL(None, use_errno=True), "unshare", None) if sys.platform == "linux" else None
    return unshare is not None and (unshare(_NEW_NETWORK) == 0 or unshare(_NEW_NETWORK | _NEW_USER) == 0)


def _sent() -> Any:
    for file, names in _COUNTERS.items():
        path = f"/proc/self/net/{file}"
        if os.path.exists(path):
            with open(path, encoding="ascii") as stream:
                counters = dict(_counters(stream.read().splitlines()))
            yield from ((name, counters.get(name, 0)) for name in names)


def _counters(lines: List[str]) -> Any:
    """``snmp`` has a line of names before each line of numbers, ``snmp6`` a name and a number in each line."""
    names: List[str] = []
    for line in lines:
        words = line.split()
        if not words[0].endswith(":"):
            yield words[0], int(words[1])
        elif words[1].lstrip("-").isdigit():
            yield from ((f"{words[0]}{name}", int(number)) for name, number in zip(names, words[1:]))
        else:
            names = words[1:]
