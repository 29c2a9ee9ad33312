"""Ports for servers of tests, which no other process takes before the server listens, or while it is started again.

A port of the kernel's own choice is one that it also gives to any other process that asks for one: it can be gone when
its server comes. These lie outside of that range, and each process takes them from blocks of its own.

Servers outlive tests that are killed. A broker that was left over connects to the ports in its configuration without
end, with the password that all tests have: a broker of a later test on such a port would become a member of its
cluster, and lose messages to it. So a block with any listener is left alone, its other ports included.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_BLOCK: Final = 100
#: As many as a few processes with hundreds of tests each need.
_PORTS: Final = 12_000


def _ports() -> Iterator[int]:
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    below, above = range(max(low - _PORTS, 10_000), low, _BLOCK), range(high + 1, 2**16, _BLOCK)
    for block in (*below, *above):
        mark = socket.socket(socket.AF_UNIX)
        try:
            # a name that goes with the process
            mark.bind(f"\0understudy-tests-{block}")
        except OSError:
            mark.close()
            continue
        ports = range(block, min(block + _BLOCK, low if block < low else 2**16))
        if any(map(has_listener, ports)):
            mark.close()
            continue
        _marks.append(mark)
        yield from ports
    while True:
        # the kernel gives out every port there is: then its choice is as good as any
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            yield int(probe.getsockname()[1])


def has_listener(port: int) -> bool:
    """Whether a server listens at the port, on any address. Connections that have ended do not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return True
    return False


_marks: list[socket.socket] = []
_given = _ports()


def free_port() -> int:
    """A port without a listener, and none that was given before."""
    for port in _given:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise AssertionError("there is always one more")
