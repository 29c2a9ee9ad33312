"""Listening for brokers that broadcast their connectors: one UDP socket in a multicast group, on the event loop.

It never sends. Rules for trusting datagrams are in ``core.discovery``.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from understudy.client.core.discovery import Discovery
from understudy.client.core.options import ClientUrl, Connector
from understudy.client.host import join_group
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
        Unreachable: the group cannot be joined, or no broker was heard within discoveryInitialWaitTimeout.
    """
    group = url.discovery
    assert group is not None, "the URL has a discovery group"
    loop = asyncio.get_running_loop()
    heard: asyncio.Future[None] = loop.create_future()
    discovery = Discovery(group, url.template or Connector("", 0), lambda text: _log.warning("discovery: %s", text))
    try:
        listening = join_group(group)
    except OSError as error:
        raise Unreachable(f"{group}: cannot listen: {error}") from error
    transport, _ = await loop.create_datagram_endpoint(lambda: _Listener(discovery, heard), sock=listening)
    try:
        await asyncio.wait_for(heard, group.initial_wait_timeout_ms / 1000)
        await asyncio.sleep(_GATHER_S)
    except TimeoutError:
        raise Unreachable(discovery.nothing_heard()) from None
    finally:
        transport.close()
    return discovery.connectors(int(loop.time() * 1000))
