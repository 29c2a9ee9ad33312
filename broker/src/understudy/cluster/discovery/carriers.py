"""How broadcasts travel, and the port of the shells that carry them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from understudy.dataclass import dataclass

Receive = Callable[[bytes, str], None]
"""Called with a datagram and the address of its sender."""


@dataclass(frozen=True, slots=True)
class Multicast:
    """A multicast group that carries datagrams."""

    address: str
    port: int
    bind_address: str | None = None
    """Local address: interface to listen on, and source of sent datagrams; None: the choice of the system."""
    bind_port: int = -1
    """Local port of the sender; -1: any, from 3000 to 4000 with a local address, as in Artemis."""
    ttl: int = 1
    """Routers that a datagram may pass, plus one."""
    channel: str | None = None
    """Name in front of each datagram; None: datagrams as Artemis sends them."""

    def __str__(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"udp://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class MemberList:
    """Datagrams to each host of a list."""

    hosts: tuple[tuple[str, int], ...]
    channel: str
    port_range: int = 1
    """Ports above that of a host that are tried as well."""
    bind_address: str | None = None
    bind_port: int = 7800
    """Port on which datagrams are received."""
    bind_range: int = 10
    """Number of higher ports of which the first free one is taken if the port is in use."""

    def __str__(self) -> str:
        return "list of " + ", ".join(f"{host}:{port}" for host, port in self.hosts)


@dataclass(frozen=True, slots=True)
class AnnouncementDirectory:
    """Files of a directory that every member reaches; each holds one datagram."""

    path: str
    channel: str

    def __str__(self) -> str:
        return f"directory {self.path}, channel {self.channel}"


Carrier = Multicast | MemberList | AnnouncementDirectory


class Endpoint(Protocol):
    """Sending and receiving of datagrams of one node."""

    def listen(self, receive: Receive) -> None:
        """Call ``receive`` with every datagram from now on, in a turn of the node. Raises OSError."""

    def open_sender(self) -> None:
        """Prepare for ``send``. Raises OSError."""

    def send(self, datagram: bytes, name: str) -> None:
        """Send a datagram to every listener.

        Args:
            datagram: Without the header of a channel.
            name: Name of the sender; a later datagram of the same name replaces this one where datagrams are kept.

        Raises:
            OSError: it cannot be sent.
        """

    def close_sender(self) -> None:
        """Send nothing any more; files of the sender are removed."""

    def close(self) -> None:
        """Receive and send nothing any more."""
