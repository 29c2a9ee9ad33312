"""An active store and a replica of it on two simulated volumes, with a link that is only function calls."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from support.store import DIRECTORY, NODE_ID, StoreHarness
from understudy.errors import BrokerError
from understudy.message import LargeBody
from understudy.ports import Operation
from understudy.store.log.applier import Applier, LogFiles
from understudy.store.log.operations import is_batch
from understudy.store.log.reading.follower import Follower
from understudy.store.log.records import QueueRecord
from understudy.store.messages.large_messages import LargeMessages
from understudy.store.messages.message_store import MessageStore, StoreOwner
from understudy.store.replication import operation_codec
from understudy.store.replication.copy_messages import (
    CopyIdentity,
    CopyMessage,
    Directory,
    decode_message,
    encode_message,
)
from understudy.store.replication.copy_source import ALL_MESSAGES, CopySource, KnownMessages, SourceState
from understudy.store.replication.copy_target import CopyTarget, TargetState
from understudy.store.replication.replica_log import ReplicaLog, ReplicaProgress
from understudy.store.replication.replica_state import ReplicaState, ReplicaStatus, write_replica_state
from understudy.store.replication.store_files import StoreDirectories, list_store
from understudy.store.snapshots.reserve import RESERVE_NAME
from understudy.testing.sim.disk import SimDisk, SimVolume
from understudy.testing.sim.valid_bytes import valid_bytes
from understudy.testing.sim.writer import SimLogWriter, SimWorker

BODIES = "/bodies"

Done = Callable[[BaseException | None], None]


class LinkWriter:
    """A log writer in front of the local one. Implements ``ports.LogWriter``."""

    def __init__(self, inner: SimLogWriter, link: Link, directory: Directory) -> None:
        self.inner = inner
        self._link = link
        self._directory = directory

    def submit(self, operations: Sequence[Operation], done: Done) -> None:
        self._link.pass_on(lambda: self._submit(operations, done))

    def _submit(self, operations: Sequence[Operation], done: Done) -> None:
        if is_batch(operations):
            self._link.ship(self._directory, operations)
            self.inner.submit(operations, done)
            return

        def executed(error: BaseException | None) -> None:
            if error is None:
                self._link.ship(self._directory, operations)
            done(error)

        self.inner.submit(operations, executed)

    def run(self, work: Callable[[], None], done: Done) -> None:
        self._link.pass_on(lambda: self.inner.run(work, done))

    def close(self) -> None:
        self.inner.close()

    def kill(self) -> None:
        self.inner.kill()

    @property
    def idle(self) -> bool:
        return self.inner.idle


class Link:
    """Holds the writers while a copy ends, and ships submissions afterwards."""

    def __init__(self) -> None:
        self.replica: ReplicaLog | None = None
        self.index = 0
        self.holds = False
        self._held: list[Callable[[], None]] = []

    def pass_on(self, job: Callable[[], None]) -> None:
        if self.holds:
            self._held.append(job)
        else:
            job()

    def release(self) -> None:
        self.holds = False
        held, self._held = self._held, []
        for job in held:
            job()

    def ship(self, directory: Directory, operations: Sequence[Operation]) -> None:
        wanted = operation_codec.replicated(operations)
        if self.replica is None or not wanted:
            return
        data = b"".join(operation_codec.encode(wanted))
        self.index += 1
        self.replica.receive(self.index, directory, operation_codec.decode(data), len(data), at_once=False)


class ReplicatedHarness(StoreHarness):
    """A store with bodies in a directory of their own, whose writers belong to a link."""

    def __init__(self, stream: random.Random, volume: SimVolume | None = None) -> None:
        super().__init__(stream, compact_segments_min=2, with_settings=True)
        if volume is not None:
            self.volume = volume
        self.volume.disk("setup").make_directory(BODIES)
        self.link = Link()
        self.log = Applier(self.disk("node"), DIRECTORY)
        self.bodies_applier = self.log
        self.writers: list[LinkWriter] = []

    def activate(self, owner: str, follower: Follower | None = None) -> MessageStore:
        self.owner = owner
        self.log, self.bodies_applier = Applier(self.disk(owner), DIRECTORY), Applier(self.disk(owner), BODIES)
        appliers = ((self.log, Directory.LOG), (self.log, Directory.LOG), (self.bodies_applier, Directory.BODIES))
        self.writers = [
            LinkWriter(SimLogWriter(self.time, self.stream, applier), self.link, directory)
            for applier, directory in appliers
        ]
        writer, housekeeper, bodies = self.writers
        self.store = MessageStore.activate(
            follower or self.follower(owner),
            files=LogFiles(self.log, writer, housekeeper),
            clock=self.time,
            node_id=NODE_ID,
            owner=StoreOwner(self.failures.append),
            settings=self.settings,
            large=LargeMessages(self.bodies_applier, bodies, self.time),
        )
        return self.store

    @property
    def idle(self) -> bool:
        return all(writer.idle for writer in self.writers)

    def stop_writing(self) -> None:
        for writer in self.writers:
            writer.kill()

    def act(self, turns: int) -> None:
        """Random operations, with bodies of large messages among them."""
        assert self.store is not None
        for _ in range(turns):
            self.operate()
            if self.stream.random() < 0.05:
                self.write_body(self.stream.choice([10, 20_000, 600_000]))
            if self.stream.random() < 0.02:
                self.fill()
            self.store.flush()
            self.time.advance(self.stream.randrange(12))

    def fill(self) -> None:
        """Fill segments, so that they are sealed and consolidated."""
        assert self.store is not None
        for _ in range(12):
            message_id = self.store.next_id()
            record = QueueRecord(7, 1, f"q{message_id}" + "q" * 6000, 1)
            self.model.add(self.store.store_queue(record), "queue", record)

    def write_body(self, size_bytes: int) -> None:
        """The body of a large message, in pieces; it is kept, released or discarded."""
        store, ends = self.store, self.stream.choice(["kept", "released", "discarded", "open"])
        assert store is not None
        body = store.large.create(store.next_id(), durable=True, failed=lambda error: None)
        for _ in range(2):
            body.append(self.stream.randbytes(20) + bytes(size_bytes))
        if ends == "open":
            self.time.call_later(self.stream.randrange(3000), lambda: body.discard() if store is self.store else None)
            return
        if ends == "discarded":
            body.discard()
            return

        def stored(large: LargeBody | None, error: BrokerError | None) -> None:
            if large is not None and ends == "kept":
                store.large.hold(large.file_id)

        body.finish(stored)

    def rest(self) -> None:
        """Until nothing is written any more."""
        assert self.store is not None
        for _ in range(5000):
            self.store.flush()
            self.time.advance(10)
            durable = self.store.context.durable == self.store.last_sequence
            if self.idle and durable and not self.store.consolidating:
                return
        raise AssertionError("the store does not come to rest")


class Replica:
    """A backup with a volume of its own."""

    def __init__(self, stream: random.Random, volume: SimVolume | None = None, saved_max: int = 2) -> None:
        self.stream = stream
        self.volume = volume or SimVolume()
        self.saved_max = saved_max
        self.lives = 0
        self.progress: list[ReplicaProgress] = []
        self.failures: list[BaseException] = []

    @property
    def owner(self) -> str:
        return f"backup {self.lives}"

    def disk(self) -> SimDisk:
        return self.volume.disk(self.owner)

    def directories(self) -> StoreDirectories:
        return StoreDirectories(self.disk(), DIRECTORY, BODIES)

    def begin(self) -> CopyTarget:
        return CopyTarget(self.directories(), self.saved_max)

    def kill(self, *, power_loss: bool) -> None:
        self.volume.before_operation = lambda operation: None
        self.volume.crash_process(self.owner)
        if power_loss:
            self.volume.lose_unsynced(self.stream)
        self.lives += 1


class Copying:
    """One copy from an active store to a replica, in steps."""

    def __init__(self, rig: ReplicatedHarness, replica: Replica, *, knows: KnownMessages = ALL_MESSAGES) -> None:
        """``knows``: as of a ``CopySource``."""
        assert rig.store is not None
        self.rig = rig
        self.replica = replica
        directories = StoreDirectories(rig.disk(rig.owner), DIRECTORY, BODIES)
        log, bodies = rig.log, rig.bodies_applier
        self.source = CopySource(directories, log, bodies, rig.store.epoch, knows=knows)
        self.target = replica.begin()
        self.worker = SimWorker(rig.time, rig.stream)
        self.sent: list[CopyMessage] = []
        """Messages that the active node sent."""

    @property
    def over(self) -> bool:
        return self.source.state in (SourceState.COMPLETE, SourceState.FAILED)

    def step(self) -> None:
        """Whatever can happen next."""
        choice = self.rig.stream
        if self.target.wants_step and (not self.source.wants_step or choice.random() < 0.5):
            for message in self.target.step():
                self.source.receive(decode_message(b"".join(encode_message(message))))
        elif self.source.wants_step:
            for message in self.source.step():
                self.sent.append(message)
                self.target.receive(decode_message(b"".join(encode_message(message))))
        if self.source.state is SourceState.LITTLE_LEFT:
            self.freeze()
        if self.source.state is SourceState.COMPLETE:
            self.begin_shipping()

    def freeze(self) -> None:
        rig = self.rig
        rig.link.holds = True
        for _ in range(1000):
            if rig.idle:
                break
            rig.time.advance(1)
        assert rig.idle
        assert rig.store is not None
        identity = CopyIdentity(NODE_ID, rig.store.epoch, 5, "node a", rig.time.wall_ms())
        self.source.freeze(rig.store.context.durable, identity)

    def begin_shipping(self) -> None:
        assert self.target.state is TargetState.READY
        target, replica, disk = self.target, self.replica, self.replica.disk()

        def note_incomplete() -> None:
            write_replica_state(disk, DIRECTORY, ReplicaState(ReplicaStatus.INCOMPLETE, copied=True))

        self.rig.link.replica = ReplicaLog(
            target.log,
            target.bodies,
            self.worker,
            sequence=target.sequence,
            on_progress=replica.progress.append,
            on_failure=replica.failures.append,
            note_incomplete=note_incomplete,
        )
        self.rig.link.release()

    def run(self, turns_between: int = 0) -> None:
        """To the end, with random operations in between as long as the writers are not held."""
        for _ in range(100_000):
            if self.over:
                return
            self.step()
            if turns_between and not self.rig.link.holds and self.rig.stream.random() < 0.5:
                self.rig.act(self.rig.stream.randrange(turns_between))
        raise AssertionError("the copy does not end")

    def kill_replica(self) -> None:
        """The process of the backup is dead; the active node goes on without it."""
        self.worker.kill()
        self.source.close()
        self.rig.link.replica = None
        self.rig.link.release()

    def give_up(self) -> None:
        """The connection is lost."""
        self.source.close()
        self.target.close()
        self.rig.link.replica = None
        self.rig.link.release()


def store_files(volume: SimVolume) -> dict[str, bytes]:
    """Content of the files of a store without the reserve, which belongs to one machine."""
    directories = StoreDirectories(volume.disk("reader"), DIRECTORY, BODIES)
    keys = [key for key in list_store(directories.disk, directories) if key[1] != RESERVE_NAME]
    return {directories.path(*key): volume.content(directories.path(*key)) for key in keys}


def differences(one: SimVolume, other: SimVolume) -> list[str]:
    """Names of files whose valid bytes are not equal; each node has old bytes of its own after the records."""
    left, right = (
        {path: valid_bytes(path, content) for path, content in store_files(volume).items()} for volume in (one, other)
    )
    return sorted(path for path in left.keys() | right.keys() if left.get(path) != right.get(path))
