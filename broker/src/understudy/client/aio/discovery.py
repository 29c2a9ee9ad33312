"""Listening for brokers that broadcast their connectors, on the event loop.

Only the members of a list are asked; otherwise nothing is sent. Rules for trusting datagrams are in ``core.discovery``.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from understudy.client.core.connection.discovery import Discovery
from understudy.client.core.url.options import ClientUrl, Connector
from understudy.client.host import ask_members, carrier_of, listening_socket
from understudy.cluster.discovery.carriers import AnnouncementDirectory, MemberList, Multicast
from understudy.cluster.discovery.sockets import AnnouncementReader
from understudy.errors import Unreachable
from understudy.texts import reason_of

_log = logging.getLogger("understudy.client")
#: After the first broadcast, time for those of other brokers that already wait in the socket.
_GATHER_S: Final = 0.02
#: Pause between two requests to the members of a list, and between two reads of a directory.
_ASK_S: Final = 0.25


class _Listener(asyncio.DatagramProtocol):
    def __init__(self, discovery: Discovery, heard: asyncio.Future[None]) -> None:
        self._discovery = discovery
        self._heard = heard
        self._loop = asyncio.get_running_loop()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if self._discovery.receive(data, int(self._loop.time() * 1000), addr[0]) and not self._heard.done():
            self._heard.set_result(None)


async def discover(url: ClientUrl) -> tuple[Connector, ...]:
    """The brokers that broadcast in the group of the URL.

    Raises:
        ConfigError: the JGroups stack of the URL cannot be used.
        Unreachable: the group cannot be joined, or no broker was heard within discoveryInitialWaitTimeout.
    """
    group = url.discovery
    assert group is not None, "the URL has a discovery group"
    loop = asyncio.get_running_loop()
    carrier = await loop.run_in_executor(None, carrier_of, group)
    discovery = Discovery(
        group, url.template or Connector("", 0), lambda text: _log.warning("discovery: %s", text), carrier.channel
    )
    try:
        async with asyncio.timeout(group.initial_wait_timeout_ms / 1000):
            if isinstance(carrier, AnnouncementDirectory):
                await _read(carrier, discovery)
            else:
                await _listen(carrier, discovery)
    except TimeoutError:
        raise Unreachable(discovery.nothing_heard()) from None
    except OSError as error:
        raise Unreachable(f"{group}: cannot listen: {reason_of(error)}") from error
    return discovery.connectors(int(loop.time() * 1000))


async def _listen(carrier: Multicast | MemberList, discovery: Discovery) -> None:
    loop = asyncio.get_running_loop()
    heard: asyncio.Future[None] = loop.create_future()
    listening = listening_socket(carrier)
    transport, _ = await loop.create_datagram_endpoint(lambda: _Listener(discovery, heard), sock=listening)
    try:
        while isinstance(carrier, MemberList) and not heard.done():
            # names of hosts may have to be looked up
            await loop.run_in_executor(None, ask_members, carrier, listening)
            await asyncio.wait([heard], timeout=_ASK_S)
        await heard
        await asyncio.sleep(_GATHER_S)
    finally:
        transport.close()


async def _read(carrier: AnnouncementDirectory, discovery: Discovery) -> None:
    loop = asyncio.get_running_loop()
    reader = AnnouncementReader(carrier)
    while True:
        found = await loop.run_in_executor(None, reader.read)
        heard = [discovery.receive(data, int(loop.time() * 1000), name) for data, name in found]
        if any(heard):
            return
        await asyncio.sleep(_ASK_S)
