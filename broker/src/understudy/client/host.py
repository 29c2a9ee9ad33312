"""The machine as both shells need it: wall clock, socket options, multicast groups, places in a program."""

from __future__ import annotations

import ipaddress
import socket
import sys
from datetime import UTC, datetime

from understudy.client.core.options import Connector, DiscoveryGroup


def system_wall_ms() -> int:
    """Wall time of the system, milliseconds since 1970 UTC."""
    return int(datetime.now(UTC).timestamp() * 1000)


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


def join_group(group: DiscoveryGroup) -> socket.socket:
    """A socket that receives datagrams of a multicast group; several processes can listen at a time.

    Raises:
        OSError: the group cannot be joined.
    """
    address = ipaddress.ip_address(group.address)
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_DGRAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Bound to the group itself, so that datagrams that are sent to this host alone are not received.
        listening.bind((group.address, group.port))
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, address.packed + (0).to_bytes(4, "big"))
        else:
            interface = ipaddress.ip_address(group.local_bind_address or "0.0.0.0").packed
            listening.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, address.packed + interface)
        listening.setblocking(False)
    except (OSError, ValueError) as error:
        listening.close()
        raise OSError(str(error)) from error
    return listening
