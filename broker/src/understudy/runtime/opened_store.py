"""The store of an active node: its writers, its epoch, its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from understudy.ha.activation import Step
from understudy.ports import Fence, HoldableLogWriter, Worker
from understudy.runtime.parts import NodeParts, Owner
from understudy.runtime.standby import NodeStandby
from understudy.store.large_messages import LargeMessages
from understudy.store.message_store import MessageStore
from understudy.store.retention import Retention


class OpenedStore:
    """Opens the store in steps of an activation; there is a store from one step to its undo."""

    def __init__(self, parts: NodeParts, standby: NodeStandby, fence: Fence, owner: Owner) -> None:
        """Args:
        standby: Has read the log.
        fence: Says whether written batches may be confirmed.
        owner: Is told of a store that cannot be written any more.
        """
        self._parts = parts
        self._standby = standby
        self._fence = fence
        self._owner = owner
        self.store: MessageStore | None = None
        self._writers: list[HoldableLogWriter] = []
        """One for the journal, one for the bodies of large messages, for which the journal never waits, and one for
        the removal of files."""
        self._worker: Worker | None = None
        self._releases: list[Callable[[], None]] = []
        """Let the writers begin their work."""

    @property
    def worker(self) -> Worker:
        """Of this activation."""
        assert self._worker is not None
        return self._worker

    def steps(self) -> list[Step]:
        """After them, ``store`` is there and its epoch has begun; the writers are held."""
        return [
            Step("start the writers", self._start_writers, self._end_writers),
            Step("begin epoch", self._begin_epoch, self._close),
        ]

    def _start_writers(self) -> None:
        parts = self._parts
        self._writers = [parts.environment.log_writer(parts.turn, self._fence) for _ in range(3)]
        for each in self._writers:
            each.hold()
        self._releases = [each.release for each in self._writers]
        self._worker = parts.environment.worker(parts.turn)

    def _end_writers(self) -> None:
        """The store has closed the others."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None
        for large_writer in self._writers[1:2]:
            large_writer.close()
        self._writers = []

    def _begin_epoch(self) -> None:
        parts, environment = self._parts, self._parts.environment
        configuration, settings = parts.configuration.current, parts.configuration.store_settings()
        writer, large_writer, housekeeper = self._writers
        self.store = MessageStore.activate(
            self._standby.take_follower(),
            disk=environment.disk,
            directory=configuration.journal_directory,
            writer=writer,
            clock=environment.clock,
            node_id=parts.lock.node_id,
            settings=settings,
            housekeeper=housekeeper,
            large=LargeMessages(
                environment.disk,
                configuration.large_messages_directory,
                large_writer,
                environment.clock,
                why_not_remove=self._fence.why_not_confirm,
                retention=Retention(environment.disk, settings.retention) if settings.retention is not None else None,
                unfinished_max=environment.large_messages_max,
            ),
            on_failure=self._owner.fail,
        )
        parts.watch.activated(self.store, housekeeper)
        self.store.watch((configuration.large_messages_directory, configuration.paging_directory))

    def release_writers(self) -> None:
        """Begin the jobs given meanwhile, which wait until the node listens, or has failed to."""
        while self._releases:
            self._releases.pop(0)()

    async def _close(self) -> None:
        store, self.store = self.store, None
        if store is None:
            writer, _, housekeeper = self._writers
            writer.close()
            housekeeper.close()
            return
        closed: asyncio.Future[None] = self._parts.loop.create_future()
        store.close(lambda: closed.set_result(None))
        await closed
        self._parts.watch.closed(store)
