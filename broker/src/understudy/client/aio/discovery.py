"""Listening for brokers that broadcast their connectors: one UDP socket in a multicast group.

It only ever receives. Part of ``aio``; what is believed of what comes is decided in ``discovery``.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from typing import Final

from understudy.client.core.discovery import Discovery
from understudy.client.core.options import ClientUrl, Connector, DiscoveryGroup
from understudy.errors import Unreachable

_log = logging.getLogger("understudy.client")
#: After the first broadcast, time for those of other brokers that already wait in the socket.
_GATHER_S: Final = 0.02


class _Listener(asyncio.DatagramProtocol):
    def __init__(self, discovery: Discovery, heard: asyncio.Future[None]) -> None:
        self._discovery = discovery
        self._heard = heard
        self._loop = asyncio.get_running_loop()

    def datagram_received(self, data: bytes, addr: object) -> None:
        if self._discovery.receive(data, int(self._loop.time() * 1000)) and not self._heard.done():
            self._heard.set_result(None)


async def discover(url: ClientUrl) -> tuple[Connector, ...]:
    """The brokers that broadcast in the group of the URL.

    Raises:
        Unreachable: the group cannot be joined, or none was heard within discoveryInitialWaitTimeout.
    """
    group = url.discovery
    assert group is not None, "the URL has a discovery group"
    loop = asyncio.get_running_loop()
    heard: asyncio.Future[None] = loop.create_future()
    discovery = Discovery(group, url.template or Connector("", 0), lambda text: _log.warning("discovery: %s", text))
    try:
        listening = _join(group)
    except OSError as error:
        raise Unreachable(f"{group}: cannot listen: {error}") from error
    transport, _ = await loop.create_datagram_endpoint(lambda: _Listener(discovery, heard), sock=listening)
    try:
        await asyncio.wait_for(heard, group.initial_wait_timeout_ms / 1000)
        await asyncio.sleep(_GATHER_S)
    except TimeoutError:
        refused = f"; {discovery.refused} datagram(s) were something else" if discovery.refused else ""
        raise Unreachable(f"{group}: no broker heard for {group.initial_wait_timeout_ms} ms{refused}") from None
    finally:
        transport.close()
    return discovery.connectors(int(loop.time() * 1000))


def _join(group: DiscoveryGroup) -> socket.socket:
    """A socket that receives what is sent to the group; several processes can listen at a time."""
    address = ipaddress.ip_address(group.address)
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_DGRAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # bound to the group itself, so that nothing sent to this host alone is taken
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
