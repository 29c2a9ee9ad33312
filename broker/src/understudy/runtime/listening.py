"""Listening sockets, bound with a minimum descriptor number."""

from __future__ import annotations

import errno
import fcntl
import socket


def bound_socket(family: int, address: tuple[object, ...], floor: int = 0) -> socket.socket:
    """A non-blocking TCP socket bound to ``address``.

    Args:
        family: AF_INET or AF_INET6; the latter accepts IPv6 connections only.
        address: As ``getaddrinfo`` gives it.
        floor: The descriptor's number is at least this; see ``Descriptors.listener_floor``.

    Raises:
        OSError: the address cannot be bound.
    """
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.setblocking(False)
        made.bind(address)
        return _moved(made, floor)
    except BaseException:
        made.close()
        raise


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
