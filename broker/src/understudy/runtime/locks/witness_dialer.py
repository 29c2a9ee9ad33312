"""Connections of a node to its witness."""

from __future__ import annotations

import asyncio

from understudy.ha.witness.client import Link
from understudy.runtime.base.turn import Turn
from understudy.runtime.net.connector import CONNECT_TIMEOUT_S, ClientConnection


class LoopWitnessDialer:
    """Implements ``ha.witness.client.WitnessDialer`` on the running loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, turn: Turn) -> None:
        self._loop = loop
        self._turn = turn
        self._tasks: set[asyncio.Task[None]] = set()

    def dial(self, host: str, port: int, link: Link) -> None:
        """Connect on the loop; the link is called with the result."""
        task = self._loop.create_task(self._dial(host, port, link))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _dial(self, host: str, port: int, link: Link) -> None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await self._loop.create_connection(lambda: ClientConnection(link, self._turn), host, port)
        except (OSError, TimeoutError) as error:
            link.disconnected(str(error) or type(error).__name__)
