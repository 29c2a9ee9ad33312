"""A replica executes submissions in order, syncs once for consecutive batches, and stops at the first error."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.store import DIRECTORY, NODE_ID

from understudy.errors import DiskFailed, RemoteProtocolError
from understudy.kernel.log import crc32
from understudy.ports import Operation
from understudy.store.log.applier import Applier
from understudy.store.log.operations import (
    Append,
    BodyEnd,
    CreateSegment,
    FinishBodies,
    MakeDirectory,
    RemoveFile,
    RenameFile,
    SealSegment,
    SyncFile,
    WriteBody,
    WriteZeros,
)
from understudy.store.log.records import RecordType, SealRecord
from understudy.store.log.segment import HEADER_BLOCK_BYTES, SegmentHeader, frame, seed_of
from understudy.store.replication.copy_messages import Directory
from understudy.store.replication.replica_log import ReplicaLog, ReplicaProgress
from understudy.testing.sim.disk import SimVolume

LOG, BODIES = Directory.LOG, Directory.BODIES
FIRST = CreateSegment(SegmentHeader(NODE_ID, 3, 1, 0, 65536, False))
SECOND = CreateSegment(SegmentHeader(NODE_ID, 3, 2, 0, 65536, False))
RECORD = bytes(100)


class Later:
    """Runs jobs when asked to."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []
        self.batches: list[int] = []
        """Bytes of the jobs that were given as batches."""

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        self.jobs.append((work, done))

    def run_batch(
        self, work: Callable[[], None], done: Callable[[BaseException | None], None], size_bytes: int
    ) -> None:
        self.batches.append(size_bytes)
        self.run(work, done)

    def drain(self) -> None:
        while self.jobs:
            work, done = self.jobs.pop(0)
            error: BaseException | None = None
            try:
                work()
            except Exception as failure:
                error = failure
            done(error)


class Executed:
    """A replica on a simulated disk."""

    def __init__(self) -> None:
        self.volume = SimVolume()
        disk = self.volume.disk("a")
        for path in (DIRECTORY, "/bodies"):
            disk.make_directory(path)
        self.calls: list[str] = []
        self.refuse: dict[str, Exception] = {}
        self.volume.before_operation = self.meet
        self.runner = Later()
        self.progress: list[ReplicaProgress] = []
        self.failures: list[BaseException] = []
        self.noted: list[str] = []
        self.log, self.bodies = Applier(disk, DIRECTORY, summaries=False), Applier(disk, "/bodies")
        self.replica = ReplicaLog(
            self.log,
            self.bodies,
            self.runner,
            sequence=0,
            on_progress=self.progress.append,
            on_failure=self.failures.append,
            note_incomplete=lambda: self.noted.append("incomplete"),
        )
        self.index = 0
        self.at_once = False

    def meet(self, operation: str) -> None:
        self.calls.append(operation)
        if operation in self.refuse:
            raise self.refuse.pop(operation)

    def receive(self, directory: Directory, *operations: Operation) -> None:
        self.index += 1
        self.replica.receive(self.index, directory, operations, 10, at_once=self.at_once)

    def batch(self, created: CreateSegment, number: int) -> None:
        append = Append(created.name, HEADER_BLOCK_BYTES + 100 * number, (RECORD,), 100, number + 1)
        self.receive(LOG, append, SyncFile(created.name))

    def drain(self) -> list[str]:
        self.calls.clear()
        self.runner.drain()
        return list(self.calls)


@pytest.fixture
def executed() -> Executed:
    made = Executed()
    made.receive(LOG, FIRST)
    made.receive(LOG, SECOND)
    made.drain()
    return made


def test_batches_that_were_received_together_are_synced_once(executed: Executed) -> None:
    for number in range(5):
        executed.batch(FIRST, number)
    executed.receive(LOG, WriteZeros(SECOND.name, HEADER_BLOCK_BYTES, 4096))
    executed.receive(BODIES, WriteBody("7.large", 0, (b"x",), False))
    executed.batch(FIRST, 5)
    assert executed.replica.progress == (10, 2, 0)
    # the first one is executed alone: nothing else was received when its job began
    calls = ["write", "sync", *["write"] * 4, "write", "sync", "create", "write", "write", "sync"]
    assert executed.drain() == calls
    assert executed.progress[-1] == (10, 10, 6)


def test_a_batch_whose_parts_are_no_whole_records_has_the_digest_of_its_bytes(executed: Executed) -> None:
    """Goal: a payload in a part of its own that looks like a record is not taken for one."""
    payload = (7).to_bytes(4, "little") + (20_000).to_bytes(4, "little") + bytes(40_000)
    parts = frame(RecordType.TX_COMMIT, 0, 1, HEADER_BLOCK_BYTES, seed_of(1, 3), payload)
    size_bytes = sum(map(len, parts))
    executed.receive(LOG, Append(FIRST.name, HEADER_BLOCK_BYTES, parts, size_bytes, 1), SyncFile(FIRST.name))
    executed.drain()
    (segment,) = [each for each in executed.log.describe_open().segments if each.name == FIRST.name]
    content = executed.volume.content(f"{DIRECTORY}/{FIRST.name}")[: segment.position]
    assert (len(content), segment.digest) == (HEADER_BLOCK_BYTES + size_bytes, crc32(content))


def test_a_batch_is_durable_before_a_file_is_removed(executed: Executed) -> None:
    executed.receive(LOG, MakeDirectory())
    executed.batch(FIRST, 0)
    executed.receive(LOG, RemoveFile(SECOND.name, sync=True))
    executed.batch(FIRST, 1)
    assert executed.drain() == ["write", "sync", "remove", "sync-directory", "write", "sync"]


def test_batches_of_two_segments_are_synced_each(executed: Executed) -> None:
    executed.receive(LOG, MakeDirectory())
    executed.batch(FIRST, 0)
    executed.batch(SECOND, 0)
    assert executed.drain() == ["write", "sync", "write", "sync"]


def test_a_seal_takes_the_place_of_the_sync(executed: Executed) -> None:
    executed.receive(LOG, MakeDirectory())
    executed.batch(FIRST, 0)
    executed.receive(LOG, SealSegment(FIRST.name, SealRecord(False, 0, 0, 1, 1, 0, 0, 0, 0, ()), 2, b"\0\x10\0\0"))
    assert executed.drain() == ["write", "write", "sync", "truncate", "sync"]
    assert executed.progress[-1].sequence == 2


def test_an_error_ends_the_execution(executed: Executed) -> None:
    executed.batch(FIRST, 0)
    executed.drain()
    executed.refuse["write"] = failure = DiskFailed("no write")
    executed.batch(FIRST, 1)
    executed.batch(FIRST, 2)
    executed.drain()
    assert executed.failures == [failure]
    assert executed.noted == ["incomplete"]
    assert executed.progress[-1] == (3, 3, 1)
    executed.batch(FIRST, 3)
    assert executed.drain() == []
    ended: list[BaseException | None] = []
    executed.replica.finish(ended.append)
    executed.drain()
    assert ended == [failure]


def test_a_batch_at_another_position_is_an_error_of_the_protocol(executed: Executed) -> None:
    executed.batch(FIRST, 4)
    executed.drain()
    assert isinstance(executed.failures[0], RemoteProtocolError)
    other = Executed()
    other.batch(FIRST, 0)
    other.drain()
    assert isinstance(other.failures[0], RemoteProtocolError)


@pytest.mark.parametrize(
    ("directory", "operation"),
    [
        (LOG, RemoveFile("server.lock")),
        (LOG, RemoveFile("7.large")),
        (BODIES, RemoveFile(FIRST.name)),
        (LOG, RenameFile("snapshot-00000000000000000007-0000000003.snap.new", "server.activation.sequence")),
        (LOG, MakeDirectory("oldreplica.1")),
        (BODIES, FinishBodies((BodyEnd("replica.state", 0, (), True),))),
        (BODIES, FinishBodies((), "elsewhere")),
        (BODIES, WriteBody("7.large.tmp", 0, (), False)),
    ],
)
def test_files_that_are_not_of_a_store_are_refused(
    executed: Executed, directory: Directory, operation: Operation
) -> None:
    with pytest.raises(RemoteProtocolError, match="of a store"):
        executed.receive(directory, operation)
    assert executed.drain() == []


def test_the_index_rises(executed: Executed) -> None:
    executed.batch(FIRST, 0)
    executed.index -= 1
    with pytest.raises(RemoteProtocolError, match="after"):
        executed.batch(FIRST, 1)


def test_a_body_that_failed_at_the_active_node_does_not_end_the_replica(executed: Executed) -> None:
    executed.receive(BODIES, WriteBody("7.large", 0, (b"x",), False))
    # the piece at offset 1 was not sent; nothing was sent of the second body
    ends = (BodyEnd("7.large", 2, (b"y",), True), BodyEnd("8.large", 3, (b"z",), True), BodyEnd("9.large", 0, (), True))
    executed.receive(BODIES, FinishBodies(ends))
    executed.receive(BODIES, RemoveFile("7.large.tmp"), RemoveFile("7.large"))
    executed.drain()
    assert not executed.failures
    assert executed.volume.disk("b").list("/bodies") == ["9.large"]
    assert executed.bodies.describe_open().bodies == ()


def test_a_body_that_fails_here_ends_the_replica(executed: Executed) -> None:
    executed.receive(BODIES, WriteBody("7.large", 0, (b"x",), False))
    executed.drain()
    executed.refuse["sync"] = DiskFailed("no sync")
    executed.receive(BODIES, FinishBodies((BodyEnd("7.large", 1, (), True),)))
    executed.drain()
    assert [str(error) for error in executed.failures] == ["no sync"]


def test_finish_executes_everything_and_closes_the_files(executed: Executed) -> None:
    executed.batch(FIRST, 0)
    ended: list[BaseException | None] = []
    executed.replica.finish(ended.append)
    executed.drain()
    assert ended == [None]
    assert executed.progress[-1] == (3, 3, 1)
    assert executed.log.describe_open().segments == ()


def test_only_batches_whose_receipt_is_not_reported_are_given_as_batches(executed: Executed) -> None:
    executed.at_once = True
    executed.batch(FIRST, 0)
    executed.batch(FIRST, 1)
    executed.drain()
    executed.receive(LOG, MakeDirectory())
    executed.drain()
    executed.at_once = False
    executed.batch(FIRST, 2)
    executed.drain()
    # the second batch came while the first was under way
    assert executed.runner.batches == [10, 10]
    assert executed.progress[-1] == (6, 6, 3)
