"""The machine as both shells need it: wall clock, socket options, discovery, places in a program."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import sys
from collections.abc import Callable
from datetime import UTC, datetime

from understudy.client.core.url.options import Connector, DiscoveryGroup
from understudy.cluster.discovery.carriers import Carrier, MemberList, Multicast
from understudy.cluster.discovery.jgroups import read_stack
from understudy.cluster.discovery.sockets import member_places, member_socket, multicast_listener
from understudy.dataclass import dataclass
from understudy.errors import ConfigError, Unreachable
from understudy.limits import JGROUPS_BYTES_MAX
from understudy.tls.contexts import reason_of
from understudy.wire.core.broadcast import to_channel


def system_wall_ms() -> int:
    """Wall time of the system, milliseconds since 1970 UTC."""
    return int(datetime.now(UTC).timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Wall clock and randomness of a client."""

    wall_ms: Callable[[], int] = system_wall_ms
    """Wall time in epoch milliseconds, for time stamps and expiry."""
    entropy: Callable[[int], bytes] = os.urandom
    """Returns the given number of random bytes, for names and duplicate ids."""


def creation_place() -> str:
    """File and line of the first caller outside this package and the libraries of loops and threads, for warnings."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if not module.startswith(("understudy.client", "asyncio", "concurrent", "threading")):
            break
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def tune(connection: socket.socket, connector: Connector) -> None:
    """Set the socket options that the URL asks for (``tcpNoDelay``, ``tcpSendBufferSize``, ``tcpReceiveBufferSize``).

    Raises:
        OSError: the system refuses one of them.
    """
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, int(connector.tcp_no_delay))
    for option, size_bytes in (
        (socket.SO_SNDBUF, connector.tcp_send_buffer_size),
        (socket.SO_RCVBUF, connector.tcp_receive_buffer_size),
    ):
        if size_bytes:
            connection.setsockopt(socket.SOL_SOCKET, option, size_bytes)


def dial_error(connector: Connector, error: Exception) -> Unreachable:
    """The error of a dial, the same in both clients: asyncio repeats the address instead of the system's reason."""
    own_codes = isinstance(error, (ssl.SSLError, socket.gaierror))
    if isinstance(error, OSError) and not own_codes and error.errno and error.filename is None:
        return Unreachable(f"{connector}: {os.strerror(error.errno)}")
    return Unreachable(f"{connector}: {reason_of(error)}")


def carrier_of(group: DiscoveryGroup) -> Carrier:
    """How the broadcasts of a discovery group travel; reads the file of a JGroups stack.

    Raises:
        ConfigError: the file cannot be read, or a protocol in it cannot be mapped.
    """
    if not group.jgroups_file:
        return Multicast(group.address, group.port, group.local_bind_address)
    try:
        with open(group.jgroups_file, "rb") as file:
            data = file.read(JGROUPS_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=group.jgroups_file) from error
    return read_stack(data, group.jgroups_channel, file=group.jgroups_file)


def listening_socket(carrier: Multicast | MemberList) -> socket.socket:
    """A socket that receives broadcasts, without waiting. Raises OSError: it cannot be opened."""
    return multicast_listener(carrier) if isinstance(carrier, Multicast) else member_socket(carrier, any_port=True)


def ask_members(carrier: MemberList, sending: socket.socket) -> None:
    """Ask every member of a list for its broadcast; hosts that have no address are left out."""
    for place in member_places(carrier):
        with contextlib.suppress(OSError):
            sending.sendto(to_channel(carrier.channel, b""), place)
