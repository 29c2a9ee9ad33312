"""Listening sockets, bound with a minimum descriptor number; sizes of the buffers of the sockets that they accept."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import socket
from typing import Final

from understudy.ports import ListeningPlace


async def bound_sockets(place: ListeningPlace, floor: int = 0) -> list[socket.socket]:
    """One socket for each address of the host of ``place``, with descriptors from ``floor`` on. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(
        place.host or None, place.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    bound: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((entry[0], entry[4]) for entry in found):
            bound.append(bound_socket(family, address, floor))
            resize_buffers(bound[-1], place.send_buffer_bytes, place.receive_buffer_bytes)
            reserve_port(bound[-1])
    except BaseException:
        for one in bound:
            one.close()
        raise
    return bound


#: TCP keepalive of accepted sockets: after 30 s without a byte, every 10 s, lost after three probes without an answer.
_KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))


def bound_socket(family: int, address: tuple[object, ...], floor: int = 0) -> socket.socket:
    """A non-blocking TCP socket bound to ``address``.

    Args:
        family: AF_INET or AF_INET6; the latter accepts IPv6 connections only.
        address: Address as ``getaddrinfo`` gives it.
        floor: The descriptor's number is at least this; see ``Descriptors.listener_floor``.

    Raises:
        OSError: the address cannot be bound.
    """
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # accepted sockets have it too: a client without heartbeats whose host is gone is noticed nowhere else
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.setblocking(False)
        made.bind(address)
        return _moved(made, floor)
    except BaseException:
        made.close()
        raise


def resize_buffers(made: socket.socket, send_bytes: int, receive_bytes: int) -> None:
    """Set the sizes of the buffers of a socket before it listens; accepted sockets have the same sizes.

    A size that the system does not grant in full (``net.core.rmem_max``, ``net.core.wmem_max``) is left to the system:
    the buffers that it sizes itself may grow beyond those limits, and do not once a size was set.

    Args:
        made: Does not listen yet.
        send_bytes: tcpSendBufferSize; 0 or less: left to the system.
        receive_bytes: tcpReceiveBufferSize, likewise.
    """
    for option, size_bytes in ((socket.SO_SNDBUF, send_bytes), (socket.SO_RCVBUF, receive_bytes)):
        if size_bytes <= 0:
            continue
        with socket.socket(made.family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, option, size_bytes)
            # Linux answers with twice the size that it granted
            granted = probe.getsockopt(socket.SOL_SOCKET, option) >= 2 * size_bytes
        if granted:
            made.setsockopt(socket.SOL_SOCKET, option, size_bytes)


def reserve_port(bound: socket.socket) -> None:
    """Let no other socket listen at the address of a bound one, which does not listen yet.

    While SO_REUSEADDR is set, Linux lets a second socket bind the address of a first one that does not listen, and
    listen there.
    """
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)


def allow_listening(bound: socket.socket) -> None:
    """Prepare a socket of ``reserve_port`` to listen: without SO_REUSEADDR, connections of an earlier process that
    closed a minute ago would prevent it.
    """
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def _moved(made: socket.socket, floor: int) -> socket.socket:
    """The socket with a descriptor number of at least ``floor``; unchanged if there is no free one."""
    if made.fileno() >= floor:
        return made
    try:
        number = fcntl.fcntl(made.fileno(), fcntl.F_DUPFD_CLOEXEC, floor)
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.EINVAL):
            raise
        return made
    made.close()
    moved = socket.socket(fileno=number)
    moved.setblocking(False)
    return moved
