"""The store of an active node: its writers, its epoch, its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from understudy.ha.life.activation import Step
from understudy.ports import Fence, HoldableLogWriter, Worker
from understudy.protocols.access import LoginWorkers
from understudy.runtime.base.parts import NodeParts, Owner
from understudy.runtime.node.standby import NodeStandby
from understudy.runtime.replica.scrubbing import scrub_active
from understudy.store.log.applier import Applier, LogFiles
from understudy.store.log.segment_pool import SegmentPool
from understudy.store.messages.large_messages import LargeMessages
from understudy.store.messages.message_store import MessageStore, StoreOwner
from understudy.store.replication.copy_messages import Directory
from understudy.store.replication.epoch_history import add_start
from understudy.store.replication.shipping import Shipping, ShippingWriter


class OpenedStore:
    """Opens the store in steps of an activation; there is a store from one step to its undo."""

    def __init__(
        self,
        parts: NodeParts,
        standby: NodeStandby,
        fence: Fence,
        owner: Owner,
        shipping: Shipping | None = None,
    ) -> None:
        """Args:
        standby: Has read the log.
        fence: Says whether written batches may be confirmed.
        owner: Called when the store cannot be written any more.
        shipping: Sends the operations on the files to a replica; None in a node without replication.
        """
        self._parts = parts
        self._standby = standby
        self.fence = fence
        self._owner = owner
        self._shipping = shipping
        self.store: MessageStore | None = None
        self._log: Applier | None = None
        self._bodies: Applier | None = None
        """Applier of the directory of large messages."""
        self._writers: list[HoldableLogWriter] = []
        """One for the journal, one for the bodies of large messages, for which the journal never waits, and one for
        the removal of files."""
        self._worker: Worker | None = None
        self._lookups: Worker | None = None
        """Asks directories of users; None: there are none, or the store is closed."""
        self._releases: list[Callable[[], None]] = []
        """Let the writers begin their work."""

    @property
    def appliers(self) -> tuple[Applier, Applier]:
        """The appliers of the directory of the log, and of that of large messages."""
        assert self._log is not None
        assert self._bodies is not None
        return self._log, self._bodies

    @property
    def worker(self) -> Worker:
        """The worker of this activation."""
        assert self._worker is not None
        return self._worker

    @property
    def login_workers(self) -> LoginWorkers:
        """Threads of this activation for checks of passwords."""
        return LoginWorkers(self.worker, self._lookups)

    def steps(self) -> list[Step]:
        """Steps of an activation after which ``store`` is set and its epoch has begun; the writers are held."""
        return [
            Step("start the writers", self._start_writers, self._end_writers),
            Step("begin epoch", self._begin_epoch, self._close),
        ]

    def _start_writers(self) -> None:
        parts = self._parts
        configuration, disk = parts.configuration.current, parts.environment.disk
        settings = parts.configuration.store_settings()
        pool = SegmentPool(disk, configuration.journal_directory, settings.pool)
        self._log = Applier(disk, configuration.journal_directory, settings.retention, pool=pool)
        self._bodies = Applier(disk, configuration.large_messages_directory, settings.retention, pool=pool)
        appliers = (self._log, self._bodies, self._log)
        self._writers = [parts.environment.log_writer(parts.turn, applier, self.fence) for applier in appliers]
        if self._shipping is not None:
            # of the log, of bodies, and of housekeeping in the directory of the log
            directories = (Directory.LOG, Directory.BODIES, Directory.LOG)
            self._writers = [
                ShippingWriter(writer, directory, self._shipping)
                for writer, directory in zip(self._writers, directories, strict=True)
            ]
        for each in self._writers:
            each.hold()
        self._releases = [each.release for each in self._writers]
        self._worker = parts.environment.worker(parts.turn)
        if parts.security.asks_directory:
            self._lookups = parts.environment.lookups(parts.turn)

    def _end_writers(self) -> None:
        """Close the writers that the store does not close itself."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None
        if self._lookups is not None:
            self._lookups.close()
            self._lookups = None
        for large_writer in self._writers[1:2]:
            large_writer.close()
        self._writers = []

    def _begin_epoch(self) -> None:
        parts, environment = self._parts, self._parts.environment
        configuration = parts.configuration.current
        writer, large_writer, housekeeper = self._writers
        assert self._log is not None
        assert self._bodies is not None
        store = MessageStore.activate(
            self._standby.take_follower(),
            files=LogFiles(self._log, writer, housekeeper),
            clock=environment.clock,
            node_id=parts.lock.node_id,
            owner=StoreOwner(self._owner.fail, self._opened),
            settings=parts.configuration.store_settings(),
            large=LargeMessages(
                self._bodies,
                large_writer,
                environment.clock,
                why_not_remove=self.fence.why_not_confirm,
                unfinished_max=environment.large_messages_max,
            ),
        )
        if self._shipping is not None:
            # the other node of the pair has a copy of the store, or will have one
            store.quarantine.repairs.expect_other(configuration.name, configuration.other_copy_wait_ms)
            add_start(environment.disk, configuration.journal_directory, store.epoch_start)
        log_format = store.format
        parts.formats.log_version = lambda: log_format.version
        log_format.readable = parts.formats.lowest
        parts.watch.activated(store, housekeeper)
        store.watch((configuration.large_messages_directory, configuration.paging_directory))

    def _opened(self, store: MessageStore) -> None:
        # also if the rest of the step fails: its jobs end before the writers are closed and the lock is given back
        self.store = store
        times = self._parts.environment.times
        if times is not None:
            times.confirmations.sequence = 0
            store.context.measured = times.confirmations

    def begin_scrub(self) -> None:
        """Compare the files with their checksums in the background."""
        assert self.store is not None
        self._parts.watch.scrubber = scrub_active(self._parts, self.store, self.worker, self.appliers)

    def end_scrub(self) -> None:
        """Compare no more files."""
        if self._parts.watch.scrubber is not None:
            self._parts.watch.scrubber.close()

    def release_writers(self) -> None:
        """Begin the held jobs. They are held until the node listens, or has failed to listen."""
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
