"""Single properties of a copy, on a real and on a simulated disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.support.store import NODE_ID, Crashed

from understudy.errors import RemoteProtocolError
from understudy.limits import COPY_PIECE_BYTES_MAX
from understudy.ports import Disk, File, Operation
from understudy.runtime.base.disk import RealDisk
from understudy.store.log.applier import Applier
from understudy.store.log.chain import EpochStart
from understudy.store.log.operations import (
    Append,
    BodyEnd,
    CreateFile,
    CreateSegment,
    FinishBodies,
    KeepReserve,
    RemoveFile,
    RenameFile,
    SealSegment,
    SyncFile,
    WriteBody,
    WriteFile,
    WriteZeros,
)
from understudy.store.log.records import RecordType, SealRecord
from understudy.store.log.segment import HEADER_BLOCK_BYTES, SegmentHeader, frame, seed_of
from understudy.store.quarantine import QuarantineEntry, entry_operations
from understudy.store.replication import copy_source
from understudy.store.replication.copy_messages import (
    CopyFailed,
    CopyIdentity,
    CopyMessage,
    Directory,
    DropFile,
    EndFile,
    EpochHistory,
    InventoryFile,
    InventoryPart,
    Piece,
    RenamedFile,
    SetAside,
    TargetReady,
    Written,
)
from understudy.store.replication.copy_source import CopySource, KnownMessages, SourceState
from understudy.store.replication.copy_target import CopyTarget, TargetState
from understudy.store.replication.epoch_history import read_history, write_history
from understudy.store.replication.inventory import take_inventory
from understudy.store.replication.replica_state import (
    ReplicaState,
    ReplicaStatus,
    read_replica_state,
    write_replica_state,
)
from understudy.store.replication.store_files import StoreDirectories, list_store
from understudy.testing.sim.disk import SimDisk, SimVolume

EPOCH = 3
LOG, BODIES = Directory.LOG, Directory.BODIES
IDENTITY = CopyIdentity(NODE_ID, EPOCH, 4, "active", 5)
SEGMENT_BYTES = 4 * 1024 * 1024


def segment(number: int, epoch: int = EPOCH, allocated_bytes: int = SEGMENT_BYTES) -> CreateSegment:
    return CreateSegment(SegmentHeader(NODE_ID, epoch, number, 0, allocated_bytes, False))


def batch(created: CreateSegment, offset: int, sequence: int, size_bytes: int = 100) -> list[Operation]:
    seed = seed_of(created.header.number, created.header.epoch)
    parts = frame(RecordType.TX_COMMIT, 0, sequence, offset, seed, bytes(size_bytes - 24))
    return [Append(created.name, offset, parts, size_bytes, sequence), SyncFile(created.name)]


class Pair:
    """The directories of an active node and of a backup on one disk."""

    def __init__(self, disk: Disk, base: str) -> None:
        self.disk = disk
        self.active = StoreDirectories(disk, f"{base}/active/log", f"{base}/active/bodies")
        self.backup = StoreDirectories(disk, f"{base}/backup/log", f"{base}/backup/bodies")
        for path in (self.active.log, self.active.bodies):
            disk.make_directory(path)
        self.log, self.bodies = Applier(disk, self.active.log), Applier(disk, self.active.bodies)
        self.sent: list[CopyMessage] = []
        self.begin()

    def begin(self) -> None:
        """Another copy."""
        self.sent.clear()
        self.source = CopySource(self.active, self.log, self.bodies, EPOCH)
        self.target = CopyTarget(self.backup, 2)

    def log_does(self, *operations: Operation) -> None:
        self.log.apply(operations)

    def bodies_do(self, *operations: Operation) -> None:
        self.bodies.apply(operations)

    def steps(self) -> None:
        """Make all steps that the source and the target of a copy have, without ``freeze``."""
        while self.source.wants_step or self.target.wants_step:
            if self.target.wants_step:
                for message in self.target.step():
                    self.source.receive(message)
            if self.source.wants_step:
                for message in self.source.step():
                    self.sent.append(message)
                    self.target.receive(message)

    def steps_of_target(self, before_operation: Callable[[str], None]) -> None:
        """The copy, with a call before each change that the backup makes."""
        assert isinstance(self.disk, SimDisk)
        volume = self.disk.volume
        for _ in range(1000):
            volume.before_operation = before_operation
            try:
                messages = self.target.step() if self.target.wants_step else []
            finally:
                volume.before_operation = lambda operation: None
            for message in messages:
                self.source.receive(message)
            if not self.source.wants_step:
                return
            for message in self.source.step():
                self.target.receive(message)

    def copy(self) -> list[CopyMessage]:
        """A whole copy; the messages of the active node."""
        self.steps()
        assert self.source.state is SourceState.LITTLE_LEFT, self.target.failure
        self.source.freeze(1, IDENTITY)
        self.steps()
        assert self.source.state is SourceState.COMPLETE, self.target.failure
        return self.sent

    def content(self, directories: StoreDirectories) -> dict[tuple[Directory, str], bytes]:
        found = {}
        for key in list_store(self.disk, directories):
            file = self.disk.open(directories.path(*key), read_only=True)
            found[key] = file.read(0, file.size())
            file.close()
        return found

    def check_equal(self) -> None:
        assert self.content(self.active) == self.content(self.backup)


@pytest.fixture(params=["real", "simulated"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Pair:
    return Pair(RealDisk(), str(tmp_path)) if request.param == "real" else Pair(SimVolume().disk("a"), "/copies")


def of_file(messages: Sequence[CopyMessage], name: str) -> list[type]:
    return [type(each) for each in messages if getattr(each, "name", None) == name]


def test_zeros_are_not_sent(pair: Pair) -> None:
    first, spare = segment(1), segment(2)
    pair.log_does(
        first, *batch(first, HEADER_BLOCK_BYTES, 1), spare, WriteZeros(spare.name, HEADER_BLOCK_BYTES, 1 << 20)
    )
    pair.log_does(KeepReserve(1 << 20))
    pair.bodies_do(WriteBody("7.large", 0, (bytes(1 << 20), b"x", bytes(1 << 20)), True))
    pair.copy()
    pair.check_equal()
    assert pair.source.sent_bytes <= 2 * (HEADER_BLOCK_BYTES + 4096) + COPY_PIECE_BYTES_MAX


def test_operations_go_on_where_the_copy_ended(pair: Pair) -> None:
    first, snapshot = segment(1), "snapshot-00000000000000000001-0000000003.snap"
    pair.log_does(first, *batch(first, HEADER_BLOCK_BYTES, 1), CreateFile(f"{snapshot}.new"))
    pair.log_does(WriteFile(f"{snapshot}.new", 0, b"abc"))
    pair.bodies_do(WriteBody("7.large", 0, (b"abc",), False))
    pair.copy()
    following = [
        *batch(first, HEADER_BLOCK_BYTES + 100, 2),
        SealSegment(first.name, SealRecord(False, 0, 0, 1, 2, 0, 0, 0, 0, ()), 3, bytes(8)),
        WriteFile(f"{snapshot}.new", 3, b"def"),
        RenameFile(f"{snapshot}.new", snapshot),
    ]
    end = FinishBodies((BodyEnd("7.large", 3, (b"def",), True),))
    for log, bodies in ((pair.log, pair.bodies), (pair.target.log, pair.target.bodies)):
        log.apply(following)
        bodies.apply([end])
        body = bodies.take_body("7.large")
        assert (body.error, body.written_bytes) == (None, 6)
    pair.check_equal()


def test_a_batch_that_met_a_full_disk_is_repeated_at_the_replica(pair: Pair) -> None:
    first = segment(1)
    pair.log_does(first, *batch(first, HEADER_BLOCK_BYTES, 1), *batch(first, HEADER_BLOCK_BYTES + 100, 2))
    pair.copy()
    again = [
        *batch(first, HEADER_BLOCK_BYTES + 100, 2),
        SealSegment(first.name, SealRecord(False, 0, 0, 1, 2, 0, 0, 0, 0, ()), 3, bytes(8)),
    ]
    pair.log.apply(again)
    pair.target.log.apply(again)
    pair.check_equal()


def test_a_body_that_is_finished_between_two_passes_is_not_sent_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_source, "LITTLE_BYTES", 1000)
    pair.bodies_do(WriteBody("7.large", 0, (b"a" * 5000,), False), WriteBody("8.large", 0, (b"b" * 5000,), False))
    for message in pair.target.step():
        pair.source.receive(message)
    first = pair.source.step()
    assert [type(each) for each in first][:5] == [EpochHistory, Piece, EndFile, Piece, EndFile]
    for message in first:
        pair.target.receive(message)
    pair.bodies_do(FinishBodies((BodyEnd("7.large", 5000, (b"c",), True),)), RemoveFile("8.large.tmp"))
    sent = pair.copy()
    pair.check_equal()
    assert of_file(sent, "7.large.tmp") == [RenamedFile]
    assert of_file(sent, "8.large.tmp") == [DropFile]
    assert [each.offset for each in sent if isinstance(each, Piece)] == [5000]


def test_an_entry_of_the_quarantine_that_was_replaced_is_sent_again(pair: Pair) -> None:
    entry = QuarantineEntry("e", "message", "a test", 1)
    pair.log_does(*entry_operations([(entry, b"raw")]))
    pair.steps()
    assert pair.source.state is SourceState.LITTLE_LEFT
    pair.log_does(*entry_operations([(entry, b"war")]))
    pair.copy()
    pair.check_equal()


def test_a_segment_whose_position_is_not_known_waits_for_the_last_pass(pair: Pair) -> None:
    created = segment(1)
    # another applier has it open: this one cannot state how far it was written
    other = Applier(pair.disk, pair.active.log)
    other.apply([created, *batch(created, HEADER_BLOCK_BYTES, 1)])
    pair.steps()
    assert of_file(pair.sent, created.name) == []
    pair.copy()
    pair.check_equal()


class VanishingDisk(SimDisk):
    """Removes a file when it is opened for the copy."""

    victim = ""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        if read_only and path == self.victim and self.exists(path):
            self.remove(path)
        return super().open(path, create=create, read_only=read_only)


@pytest.mark.parametrize("before", [False, True])
def test_a_file_that_vanishes_is_left_out(before: bool) -> None:
    """``before``: the backup has it from an earlier copy."""
    volume = SimVolume()
    disk = VanishingDisk(volume, "a")
    pair = Pair(disk, "/copies")
    first = segment(1)
    pair.log_does(first, *batch(first, HEADER_BLOCK_BYTES, 1))
    for name in ("7.large", "8.large"):
        pair.bodies_do(FinishBodies((BodyEnd(name, 0, (b"x",), True),)))
    if before:
        pair.copy()
        pair.begin()
    disk.victim = pair.active.path(BODIES, "7.large")
    sent = pair.copy()
    pair.check_equal()
    assert of_file(sent, "7.large") == []
    assert not volume.synced_copy().disk("b").exists(pair.backup.path(BODIES, "7.large"))


def test_bytes_after_the_records_of_the_backup_are_cut(pair: Pair) -> None:
    first = segment(1)
    pair.log_does(first, *batch(first, HEADER_BLOCK_BYTES, 1))
    pair.copy()
    file = pair.disk.open(pair.backup.path(LOG, first.name))
    file.write(HEADER_BLOCK_BYTES + 5000, (b"torn",))
    file.close()
    pair.begin()
    pair.copy()
    pair.check_equal()
    assert pair.source.sent_bytes == 0


def test_damaged_files_of_the_backup_are_replaced(pair: Pair) -> None:
    first, second = segment(1), segment(2)
    pair.log_does(first, *batch(first, HEADER_BLOCK_BYTES, 1))
    pair.log_does(SealSegment(first.name, SealRecord(False, 0, 0, 1, 1, 0, 0, 0, 0, ()), 2, bytes(4)))
    pair.log_does(second, *batch(second, HEADER_BLOCK_BYTES, 3))
    pair.bodies_do(FinishBodies((BodyEnd("7.large", 0, (b"x" * 5000,), True),)))
    pair.copy()
    for directory, name in ((LOG, first.name), (BODIES, "7.large")):
        file = pair.disk.open(pair.backup.path(directory, name))
        file.write(40, (b"damage",))
        file.close()
    pair.begin()
    sent = pair.copy()
    pair.check_equal()
    assert SetAside not in map(type, sent)


def test_a_segment_that_is_cut_between_two_passes_is_cut_at_the_backup(pair: Pair) -> None:
    old = segment(1, EPOCH - 1)
    Applier(pair.disk, pair.active.log).apply([old, *batch(old, HEADER_BLOCK_BYTES, 1)])
    pair.steps()
    file = pair.disk.open(pair.active.path(LOG, old.name))
    file.truncate(HEADER_BLOCK_BYTES + 100)
    file.close()
    pair.copy()
    pair.check_equal()


def test_earlier_data_is_moved_completely_after_a_crash_at_any_step() -> None:
    for operations in range(1, 100):
        volume = SimVolume()
        pair = Pair(volume.disk("a"), "/copies")
        first, other = segment(1, allocated_bytes=8192), segment(2, allocated_bytes=8192)
        pair.log_does(first, *batch(first, HEADER_BLOCK_BYTES, 1))
        pair.log_does(*entry_operations([(QuarantineEntry("e", "message", "a test", 1), b"raw")]))
        pair.bodies_do(FinishBodies((BodyEnd("7.large", 0, (b"x",), True),)))
        pair.copy()
        write_replica_state(pair.disk, pair.backup.log, ReplicaState())
        Applier(pair.disk, pair.backup.log).apply([other, *batch(other, HEADER_BLOCK_BYTES, 1)])
        earlier = {key for key, _ in pair.content(pair.backup).items()}
        left = [operations]

        def crash(operation: str, left: list[int] = left) -> None:
            left[0] -= 1
            if not left[0]:
                raise Crashed(operation)

        pair.begin()
        try:
            pair.steps_of_target(crash)
        except Crashed:
            pair.begin()
        else:
            assert operations > 10
            return
        pair.copy()
        pair.check_equal()
        for directory in Directory:
            saved = pair.disk.list(pair.backup.path(directory))
            assert [name for name in saved if name.startswith("oldreplica.")] == ["oldreplica.1"]
        for directory, name in earlier:
            assert pair.disk.exists(pair.backup.path(directory, f"oldreplica.1/{name}")), (operations, name)
    raise AssertionError("the move does not end")


def test_the_history_of_activations_comes_with_the_copy_and_stays_with_earlier_data(pair: Pair) -> None:
    first, second, own = EpochStart(1, 0, 10, 1), EpochStart(EPOCH, 1, 30, 4), EpochStart(2, 1, 20, 4)
    active, backup = segment(2), segment(1, 2)
    pair.log_does(active, *batch(active, HEADER_BLOCK_BYTES, 4))
    write_history(pair.disk, pair.active.log, (first, second))
    pair.disk.make_directory(pair.backup.log)
    Applier(pair.disk, pair.backup.log).apply([backup, *batch(backup, HEADER_BLOCK_BYTES, 4)])
    write_history(pair.disk, pair.backup.log, (first, own))
    pair.copy()
    pair.check_equal()
    assert read_history(pair.disk, pair.backup.log) == (first, second)
    assert read_history(pair.disk, pair.backup.path(LOG, "oldreplica.1")) == (first, own)


@pytest.mark.parametrize("written", [(), (EpochStart(EPOCH - 1, 0, 10, 1),)], ids=["none", "older"])
def test_a_history_without_the_present_epoch_is_not_sent(pair: Pair, written: tuple[EpochStart, ...]) -> None:
    write_history(pair.disk, pair.active.log, written)
    pair.disk.make_directory(pair.backup.log)
    write_history(pair.disk, pair.backup.log, (EpochStart(1, 0, 10, 1),))
    assert pair.copy()[0] == EpochHistory(())
    assert read_history(pair.disk, pair.backup.log) == ()


def test_a_backup_of_an_older_protocol_gets_no_history(pair: Pair) -> None:
    pair.source = CopySource(pair.active, pair.log, pair.bodies, EPOCH, knows=KnownMessages(history=False))
    assert EpochHistory not in map(type, pair.copy())


def test_a_file_system_without_links_gets_everything_with_the_next_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: str, target: str, **places: int | None) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), source)

    pair = Pair(RealDisk(), str(tmp_path))
    first, second = segment(1), segment(2)
    pair.log_does(first, *batch(first, HEADER_BLOCK_BYTES, 1))
    pair.log_does(SealSegment(first.name, SealRecord(False, 0, 0, 1, 1, 0, 0, 0, 0, ()), 2, bytes(4)))
    pair.log_does(second, *batch(second, HEADER_BLOCK_BYTES, 3))
    pair.bodies_do(FinishBodies((BodyEnd("7.large", 0, (b"x",), True),)))
    pair.copy()
    write_replica_state(pair.disk, pair.backup.log, ReplicaState())
    append = batch(second, HEADER_BLOCK_BYTES + 100, 4, 200)[0]
    assert isinstance(append, Append)
    file = pair.disk.open(pair.backup.path(LOG, second.name))
    file.write(append.offset, append.parts)
    file.close()
    pair.log_does(*batch(second, HEADER_BLOCK_BYTES + 100, 4))
    earlier = pair.content(pair.backup)
    monkeypatch.setattr(os, "link", refuse)
    pair.begin()
    pair.steps()
    assert "cannot link" in str(pair.target.failure)
    pair.begin()
    assert any(isinstance(message, Piece) for message in pair.copy())
    pair.check_equal()
    saved = StoreDirectories(pair.disk, pair.backup.path(LOG, "oldreplica.1"), pair.backup.path(BODIES, "oldreplica.1"))
    assert pair.content(saved) == earlier


def test_no_more_is_sent_than_the_window(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_source, "COPY_WINDOW_BYTES_MAX", 1_500_000)
    pair.bodies_do(FinishBodies((BodyEnd("7.large", 0, (b"x" * 5_000_000,), True),)))
    pair.source.receive(InventoryPart((), True, False))
    sent_bytes = 0
    while pair.source.wants_step:
        sent_bytes += sum(len(each.data) for each in pair.source.step() if isinstance(each, Piece))
    assert 1_500_000 <= sent_bytes < 1_500_000 + COPY_PIECE_BYTES_MAX
    pair.source.receive(Written(1_000_000))
    assert pair.source.wants_step
    with pytest.raises(RemoteProtocolError):
        pair.source.receive(Written(10_000_000))


def test_the_same_files_are_not_sent_again(pair: Pair) -> None:
    first, second = segment(1), segment(2)
    pair.log_does(first, *batch(first, HEADER_BLOCK_BYTES, 1))
    pair.log_does(SealSegment(first.name, SealRecord(False, 0, 0, 1, 1, 0, 0, 0, 0, ()), 2, bytes(4)))
    pair.log_does(second, *batch(second, HEADER_BLOCK_BYTES, 3))
    pair.bodies_do(FinishBodies((BodyEnd("7.large", 0, (b"x" * 5000,), True),)))
    pair.copy()
    pair.begin()
    pair.log_does(*batch(second, HEADER_BLOCK_BYTES + 100, 4))
    sent = pair.copy()
    assert [(each.name, each.offset) for each in sent if isinstance(each, Piece)] == [
        (second.name, HEADER_BLOCK_BYTES + 100)
    ]
    pair.check_equal()


@pytest.mark.parametrize(
    "name", ["server.lock", "server.activation.sequence", "replica.state", "oldreplica.1/x", "7.large"]
)
def test_no_other_file_is_touched(pair: Pair, name: str) -> None:
    for message in pair.target.step():
        pair.source.receive(message)
    pair.target.receive(Piece(LOG, name, 0, b"x"))
    (failed,) = pair.target.step()
    assert isinstance(failed, CopyFailed)
    assert "no file of a store" in failed.reason
    assert pair.disk.list(pair.backup.log) == ["replica.state"]
    assert pair.target.state is TargetState.FAILED
    pair.source.receive(failed)
    assert pair.source.failure is failed


def test_a_segment_with_other_bytes_ends_the_copy(pair: Pair) -> None:
    first = segment(1)
    pair.log_does(first, *batch(first, HEADER_BLOCK_BYTES, 1))
    pair.steps()
    file = pair.disk.open(pair.backup.path(LOG, first.name))
    file.write(HEADER_BLOCK_BYTES + 30, (b"x",))
    file.close()
    pair.source.freeze(1, IDENTITY)
    pair.steps()
    assert pair.source.failure is not None
    assert pair.source.failure.code == "journal-corrupt"
    assert read_replica_state(pair.disk, pair.backup.log).status is ReplicaStatus.INCOMPLETE


def test_messages_that_may_not_come_now_are_refused(pair: Pair) -> None:
    file = InventoryFile(LOG, segment(1).name, 0, bytes(16))
    for part in (
        InventoryPart((file, file), False, False),
        InventoryPart((InventoryFile(LOG, "server.lock", 0, bytes(16)),), False, False),
    ):
        with pytest.raises(RemoteProtocolError, match="inventory of the backup"):
            CopySource(pair.active, pair.log, pair.bodies, EPOCH).receive(part)
    with pytest.raises(RemoteProtocolError, match="TargetReady"):
        pair.source.receive(TargetReady())
    pair.target.step()
    pair.target.receive(Piece(LOG, segment(1).name, 0, b"x"))
    pair.target.receive(SetAside())
    (*_, failed) = pair.target.step()
    assert isinstance(failed, CopyFailed)
    assert "SetAside after files were changed" in failed.reason


def test_the_inventory_has_the_files_of_a_store_and_no_others(pair: Pair) -> None:
    first = segment(1)
    pair.log_does(first, *batch(first, HEADER_BLOCK_BYTES, 1), KeepReserve(1 << 16))
    file = pair.disk.open(pair.active.path(LOG, first.name))
    file.write(HEADER_BLOCK_BYTES + 100, (b"torn",))
    file.close()
    for name in ("server.lock", "serverlock.1", "replica.state", "server.activation.sequence", "notes.txt"):
        pair.disk.open(pair.active.path(LOG, name), create=True).close()
    pair.bodies_do(FinishBodies((BodyEnd("7.large", 0, (b"abc",), True),)), WriteBody("8.large", 0, (b"ab",), False))
    found = [each for each in take_inventory(pair.disk, pair.active) if isinstance(each, InventoryFile)]
    assert {(each.name, each.length) for each in found} == {
        (first.name, HEADER_BLOCK_BYTES + 100),
        ("reserve.space", 0),
        ("7.large", 3),
        ("8.large.tmp", 2),
    }
