"""The asyncio shell of the client: a transport that ends takes its state with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from understudy.client.aio.link import Link
from understudy.client.core.connection.tracing import NO_TRACING
from understudy.client.core.url.parsing import parse_url
from understudy.client.host import Surroundings


class FakeTransport(asyncio.Transport):
    """Takes everything and sends nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.aborted = False

    def write(self, data: Any) -> None:
        pass

    def abort(self) -> None:
        self.aborted = True


async def dialled(made: list[asyncio.Protocol], number: int) -> asyncio.Protocol:
    """The protocol of a dial, once its transport is open."""
    async with asyncio.timeout(5):
        while len(made) < number:
            await asyncio.sleep(0.001)
    return made[number - 1]


async def lose_a_paused_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, made = asyncio.get_running_loop(), list[asyncio.Protocol]()
    transports: list[FakeTransport] = []

    async def create_connection(factory: Callable[[], asyncio.Protocol], host: str, port: int) -> Any:
        transport, protocol = FakeTransport(), factory()
        transports.append(transport)
        protocol.connection_made(transport)
        made.append(protocol)
        return transport, protocol

    monkeypatch.setattr(loop, "create_connection", create_connection)
    url = parse_url("tcp://a:61616?reconnectAttempts=-1&initialConnectAttempts=-1&retryInterval=1")
    link = Link(url, None, None, Surroundings(wall_ms=lambda: 0), NO_TRACING, 0)
    link.core.connect(loop.create_future())
    first = await dialled(made, 1)
    first.pause_writing()
    assert not link.writable
    waiting = asyncio.ensure_future(link.wait_writable())
    await asyncio.sleep(0)
    first.connection_lost(ConnectionResetError())
    async with asyncio.timeout(5):
        await waiting
    second = await dialled(made, 2)
    assert link.writable
    # the end of the first one is not that of the second
    second.pause_writing()
    first.connection_lost(None)
    assert not link.writable
    assert [each.aborted for each in transports] == [True, False]
    link.close()


def test_a_transport_that_ends_while_it_is_paused_does_not_pause_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of a large message, and every send that waited for space in the buffer, waited without end."""
    asyncio.run(lose_a_paused_transport(monkeypatch))
