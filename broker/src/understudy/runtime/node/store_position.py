"""The position of the store of a replicated node outside of its host: compared before an activation, noted after it.

Not here: the numbers and when they are written (``ha.locks.noted_position``), the comparison (``store.seen``). ADR
0118.
"""

from __future__ import annotations

import asyncio

from understudy.errors import BrokerError, DiskFailed
from understudy.ha.life.activation import Step
from understudy.ha.locks.noted_position import NotedPosition, PositionNotes
from understudy.ha.replication.ports import Authority
from understudy.ports import Worker
from understudy.runtime.base.parts import NodeParts
from understudy.runtime.node.standby import NodeStandby
from understudy.store.messages.message_store import MessageStore
from understudy.store.seen import Position, position_of


class StorePosition:
    """Position of one node's store as noted at its lock manager."""

    def __init__(self, parts: NodeParts, authority: Authority, worker: Worker, standby: NodeStandby) -> None:
        """Begin without reading the position.

        Args:
            standby: Reads the log.
            authority: Has the numbers, if there is a lock manager.
            worker: Reads the log once more if it seems to be too short.
        """
        self._parts = parts
        self._authority = authority
        self._worker = worker
        self.notes = PositionNotes(authority.position_numbers, parts.turn)
        self._standby = standby

    def steps(self) -> tuple[Step, Step]:
        """The first steps of an activation. The comparison comes before anything is claimed: a node that was put back
        to an older state takes nothing from the other one. The undo of the second step belongs after the replica has
        executed everything, and before the permission is given back.
        """
        return (
            Step("compare the log with the noted position", self._compare),
            Step("prepare to note the position", _nothing, self._note_last),
        )

    def open(self, store: MessageStore) -> None:
        """The node serves: note the position of its store from now on."""
        epoch, context, syncs = store.epoch, store.context, self._parts.watch.syncs
        # without syncs the end of the log may be lost with the power, which is no older state of the disk
        self.notes.open(lambda: NotedPosition(epoch, context.everywhere if syncs else 0))

    async def _compare(self) -> None:
        numbers = self._authority.position_numbers()
        if numbers is None:
            return
        read: asyncio.Future[NotedPosition | BrokerError] = self._parts.loop.create_future()
        numbers.get(read.set_result)
        noted = await read
        if isinstance(noted, BrokerError):
            raise noted
        found = position_of(await self._standby.read_to_end())
        if not found.reaches(noted.epoch, noted.sequence):
            found = await self._end_of_log()
        self._parts.watch.check_kept(found, (noted.epoch, noted.sequence), numbers.name)

    async def _end_of_log(self) -> Position:
        read: asyncio.Future[BaseException | None] = self._parts.loop.create_future()
        found: list[Position] = []
        self._worker.run(lambda: found.append(self._parts.watch.end_of_log()), read.set_result)
        error = await read
        if error is not None:
            raise error if isinstance(error, BrokerError) else DiskFailed(str(error))
        return found[0]

    async def _note_last(self) -> None:
        noted: asyncio.Future[None] = self._parts.loop.create_future()
        self.notes.finish(lambda: noted.set_result(None))
        await noted


def _nothing() -> None:
    """Do nothing: the step exists for its undo."""
