"""Sockets and files of the carriers, for the shells of nodes and of clients. Nothing here waits for a datagram."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import ipaddress
import os
import random
import socket
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

from understudy.cluster.discovery.carriers import AnnouncementDirectory, MemberList, Multicast
from understudy.limits import BROADCAST_BYTES_MAX, BROADCAST_NODES_MAX

#: Ports of a sender with a local address and without a local port, and attempts to bind one, as in Artemis.
_SENDER_PORTS: Final = (3_000, 4_000)
_SENDER_ATTEMPTS: Final = 100
#: Bytes read of a datagram: one more than a broadcast may have with the header of a channel, so that a longer one is
#: seen to be longer.
DATAGRAM_BYTES: Final = BROADCAST_BYTES_MAX + 1024
_SUFFIX: Final = ".announcement"


def multicast_listener(carrier: Multicast) -> socket.socket:
    """A socket that receives the datagrams of a group; several processes can listen at a time.

    Raises:
        OSError: the group cannot be joined.
    """
    address = ipaddress.ip_address(carrier.address)
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_DGRAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # bound to the group, so that datagrams to this host alone are not received
        listening.bind((carrier.address, carrier.port))
        if family == socket.AF_INET6:
            interface = _interface_index(carrier.bind_address).to_bytes(4, "little")
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, address.packed + interface)
        else:
            local = ipaddress.ip_address(carrier.bind_address or "0.0.0.0").packed
            listening.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, address.packed + local)
        listening.setblocking(False)
    except (OSError, ValueError) as error:
        listening.close()
        raise OSError(str(error)) from error
    return listening


def multicast_sender(carrier: Multicast) -> socket.socket:
    """A socket that sends to a group.

    Raises:
        OSError: it cannot be bound.
    """
    address = ipaddress.ip_address(carrier.address)
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    sending = socket.socket(family, socket.SOCK_DGRAM)
    try:
        if carrier.bind_port > 0:
            sending.bind((carrier.bind_address or "", carrier.bind_port))
        elif carrier.bind_address is not None:
            _bind_any(sending, carrier.bind_address)
        if family == socket.AF_INET6:
            sending.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, carrier.ttl)
            if index := _interface_index(carrier.bind_address):
                sending.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
        else:
            sending.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, carrier.ttl)
            if carrier.bind_address is not None:
                local = ipaddress.ip_address(carrier.bind_address).packed
                sending.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, local)
        sending.setblocking(False)
    except (OSError, ValueError) as error:
        sending.close()
        raise OSError(str(error)) from error
    return sending


def _bind_any(sending: socket.socket, address: str) -> None:
    """Bind to a free port as Artemis does, and leave the port to the system where none is found."""
    for _ in range(_SENDER_ATTEMPTS):
        try:
            sending.bind((address, random.randint(*_SENDER_PORTS)))  # a port is no secret
            return
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    sending.bind((address, 0))


def _interface_index(address: str | None) -> int:
    """The interface of an IPv6 address with a zone, such as ``fe80::1%eth0``; 0: the choice of the system."""
    _, zone, name = (address or "").partition("%")
    return socket.if_nametoindex(name) if zone else 0


def member_socket(carrier: MemberList, *, any_port: bool = False) -> socket.socket:
    """A socket that sends to the hosts of a list and receives from them.

    Args:
        carrier: The list.
        any_port: Bind to any port, for a client that asks the members.

    Raises:
        OSError: no port is free.
    """
    host = carrier.bind_address or ""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_DGRAM)
    ports = [0] if any_port else range(carrier.bind_port, carrier.bind_port + carrier.bind_range + 1)
    reason: OSError | None = None
    for port in ports:
        try:
            bound.bind((host, port))
            bound.setblocking(False)
            return bound
        except OSError as error:
            reason = error
    bound.close()
    assert reason is not None
    raise reason


def member_places(carrier: MemberList) -> list[tuple[str, int]]:
    """Hosts and ports to which a datagram is sent, as text."""
    return [
        (host, port + above)
        for host, port in carrier.hosts
        for above in range(carrier.port_range + 1)
        if port + above < 65_536
    ]


def _folder(carrier: AnnouncementDirectory) -> str:
    return os.path.join(carrier.path, quote(carrier.channel, safe="").replace(".", "%2E"))


def _file(carrier: AnnouncementDirectory, name: str) -> str:
    return os.path.join(_folder(carrier), hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:32] + _SUFFIX)


def write_announcement(carrier: AnnouncementDirectory, name: str, datagram: bytes) -> None:
    """Write or replace the file of a sender. Raises OSError."""
    path = _file(carrier, name)
    os.makedirs(_folder(carrier), exist_ok=True)
    with open(f"{path}.new", "wb") as file:
        file.write(datagram)
    os.replace(f"{path}.new", path)


def remove_announcement(carrier: AnnouncementDirectory, name: str) -> None:
    """Remove the file of a sender, if it exists. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.remove(_file(carrier, name))


class AnnouncementReader:
    """Reads the files of a directory that were written since the last time."""

    def __init__(self, carrier: AnnouncementDirectory) -> None:
        self._carrier = carrier
        self._seen: dict[str, tuple[int, int]] = {}
        """Inode and time of modification of each file."""

    def read(self) -> list[tuple[bytes, str]]:
        """Contents and names of new and replaced files. Raises OSError; a missing directory is an empty one."""
        found: dict[str, tuple[int, int]] = {}
        read: list[tuple[bytes, str]] = []
        for path in self._paths():
            try:
                with open(path, "rb") as file:
                    status = os.fstat(file.fileno())
                    found[path] = status.st_ino, status.st_mtime_ns
                    if self._seen.get(path) != found[path]:
                        read.append((file.read(DATAGRAM_BYTES), os.path.basename(path)))
            except FileNotFoundError:
                continue
        self._seen = found
        return read

    def _paths(self) -> Iterator[str]:
        try:
            with os.scandir(_folder(self._carrier)) as entries:
                names = sorted(each.name for each in entries if each.name.endswith(_SUFFIX) and each.is_file())
        except FileNotFoundError:
            return
        for name in names[: BROADCAST_NODES_MAX * 2]:
            yield os.path.join(_folder(self._carrier), name)
