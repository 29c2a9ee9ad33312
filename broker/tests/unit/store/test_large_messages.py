"""The directory of large messages: steps, names, references, and what an activation removes."""

from __future__ import annotations

import random
from zlib import crc32

import pytest

from support.large import FOLDER
from support.store import DIRECTORY, StoreHarness
from understudy.errors import BrokerError, DiskFailed, DiskFull, LargeMessageFailed, LimitExceeded, WrongNode
from understudy.ha.shared.lock_proof import LOCK_PROOF_MS
from understudy.ids import first_id_of_epoch
from understudy.message import LARGE_SIZE, LargeBody, LargeMessage, Message, large_body_of
from understudy.store.log.applier import Applier
from understudy.store.log.operation_context import OperationContext
from understudy.store.messages.large_messages import REMOVE_AFTER_MS, STEP_BYTES, SYNC_BYTES, LargeMessages
from understudy.store.retention import RetentionSettings
from understudy.testing.manual_time import ManualTime
from understudy.testing.sim.disk import SimFile, SimVolume
from understudy.testing.sim.writer import SimLogWriter


class Folder:
    """A directory with hands on everything around it."""

    def __init__(self) -> None:
        self.volume = SimVolume()
        self.time = ManualTime()
        self.context = OperationContext()
        self.why_not: BrokerError | None = None
        self.operations: list[str] = []
        self.failed: list[BrokerError] = []
        self.stored: list[tuple[LargeBody | None, BrokerError | None]] = []
        self.retention: RetentionSettings | None = None

    def open(self, epoch: int = 2, references: dict[int, int] | None = None) -> LargeMessages:
        applier = Applier(self.volume.disk("a"), FOLDER, self.retention)
        self.large = LargeMessages(
            applier,
            SimLogWriter(self.time, random.Random(1), applier),
            self.time,
            why_not_remove=lambda: self.why_not,
        )
        self.large.begin(self.context, epoch, references or {})
        self.time.advance(100)
        self.volume.before_operation = self.operations.append
        return self.large

    def write(self, file_id: int, body: bytes, *, durable: bool = True) -> None:
        file = self.large.create(file_id, durable=durable, failed=self.failed.append)
        file.append(body)
        file.finish(lambda large, error: self.stored.append((large, error)))
        self.time.advance(1000)

    def names(self) -> list[str]:
        return self.volume.disk("looker").list(FOLDER)


@pytest.fixture
def folder() -> Folder:
    made = Folder()
    made.open()
    return made


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """File, offset and length of each range that the medium was asked to begin with."""
    ranges: list[tuple[str, int, int]] = []
    begin_sync = SimFile.begin_sync

    def noted(file: SimFile, offset: int, length: int) -> None:
        ranges.append((file.path.rpartition("/")[2], offset, length))
        begin_sync(file, offset, length)

    monkeypatch.setattr(SimFile, "begin_sync", noted)
    return ranges


def test_the_medium_begins_with_all_bodies_that_are_completed_together_before_one_is_synced(
    folder: Folder, begun: list[tuple[str, int, int]]
) -> None:
    files = [folder.large.create(each, durable=each != 9, failed=folder.failed.append) for each in (7, 8, 9, 10)]
    for file in files:
        file.append(b"body")
        file.finish(lambda large, error: folder.stored.append((large, error)))
    syncs: list[int] = []
    folder.volume.before_operation = lambda operation: syncs.append(len(begun)) if operation == "sync" else None
    folder.time.advance(1000)
    # the first body is completed alone, those that come meanwhile together; the third one is not durable
    assert begun == [("7.large.tmp", 0, 4), ("8.large.tmp", 0, 4), ("10.large.tmp", 0, 4)]
    assert syncs == [1, 3, 3]


def test_a_body_that_is_not_durable_is_not_written_early(folder: Folder, begun: list[tuple[str, int, int]]) -> None:
    file = folder.large.create(7, durable=False, failed=folder.failed.append)
    file.append(bytes(3 * SYNC_BYTES))
    file.finish(lambda large, error: folder.stored.append((large, error)))
    folder.time.advance(1000)
    assert folder.stored == [(LargeBody(7, 3 * SYNC_BYTES, crc32(bytes(3 * SYNC_BYTES))), None)]
    assert begun == []


def test_a_file_is_synced_under_its_name_and_told_after_its_directory(folder: Folder) -> None:
    folder.write(7, b"body")
    assert folder.operations == ["create", "write", "rename", "sync", "sync-directory"]
    assert folder.stored == [(LargeBody(7, 4, crc32(b"body")), None)]
    assert folder.names() == ["7.large"]
    folder.operations.clear()
    folder.write(8, b"body", durable=False)
    assert folder.operations == ["create", "write", "rename"]


def test_a_large_body_is_written_in_steps_that_the_medium_begins_to_write_on_the_way(
    folder: Folder, begun: list[tuple[str, int, int]]
) -> None:
    file = folder.large.create(7, durable=True, failed=folder.failed.append)
    piece = bytes(100_000)
    for _ in range(100):
        file.append(piece)
        assert file.backlog_bytes <= STEP_BYTES + 100_000
        folder.time.advance(20)
    assert file.size_bytes == 10_000_000
    assert folder.operations.count("write") == 10_000_000 // 300_000
    # steps of 300,000 bytes: the fourth is the first one with which there are 1 MiB
    assert begun == [("7.large.tmp", 0, 1_200_000 * number) for number in range(1, 9)]
    assert "sync" not in folder.operations
    file.finish(lambda large, error: folder.stored.append((large, error)))
    folder.time.advance(1000)
    assert begun[-1] == ("7.large.tmp", 0, 10_000_000)
    assert folder.operations[-3:] == ["rename", "sync", "sync-directory"]
    assert folder.stored == [(LargeBody(7, 10_000_000, crc32(bytes(10_000_000))), None)]
    assert file.backlog_bytes == 0


def test_bytes_waiting_for_the_disk_count(folder: Folder) -> None:
    file = folder.large.create(7, durable=True, failed=folder.failed.append)
    for _ in range(10):
        file.append(bytes(STEP_BYTES))
    assert file.backlog_bytes == 10 * STEP_BYTES
    folder.time.advance(1000)
    assert file.backlog_bytes == 0


@pytest.mark.parametrize("finished", [False, True])
def test_a_discarded_file_leaves_nothing_and_says_nothing(folder: Folder, finished: bool) -> None:
    file = folder.large.create(7, durable=True, failed=folder.failed.append)
    file.append(bytes(STEP_BYTES))
    if finished:
        file.finish(lambda large, error: folder.stored.append((large, error)))
    file.discard()
    file.append(b"late")
    folder.time.advance(1000)
    assert (folder.names(), folder.stored, folder.failed) == ([], [], [])


def test_a_full_disk_in_the_middle_is_reported_once_and_leaves_no_file(folder: Folder) -> None:
    folder.volume.capacity_bytes = folder.volume.used_bytes() + 3 * STEP_BYTES
    file = folder.large.create(7, durable=True, failed=folder.failed.append)
    for _ in range(6):
        file.append(bytes(STEP_BYTES))
    file.finish(lambda large, error: folder.stored.append((large, error)))
    folder.time.advance(1000)
    assert [type(error) for error in folder.failed] == [DiskFull]
    assert (folder.stored, folder.names()) == ([], [])


def test_a_failed_sync_at_the_end_is_reported_and_leaves_no_file(folder: Folder) -> None:
    folder.volume.fail_next_sync()
    folder.write(7, b"body")
    ((large, error),) = folder.stored
    assert large is None
    assert isinstance(error, DiskFailed)
    assert folder.names() == []


def test_files_that_end_together_are_made_safe_together(folder: Folder) -> None:
    files = [folder.large.create(number, durable=True, failed=folder.failed.append) for number in range(7, 12)]
    for file in files:
        file.append(b"body")
    folder.operations.clear()
    for file in files:
        file.finish(lambda large, error: folder.stored.append((large, error)))
    folder.time.advance(1000)
    assert [large.file_id for large, _ in folder.stored if large is not None] == [7, 8, 9, 10, 11]
    alone = ["create", "write", "rename", "sync", "sync-directory"]
    together = [*["create", "write"] * 4, *["rename"] * 4, *["sync"] * 4, "sync-directory"]
    assert folder.operations == [*alone, *together], "the first, and those that came meanwhile"


@pytest.mark.parametrize("which", [0, 1, 2, 3])
def test_the_failed_sync_of_a_file_refuses_only_its_message(folder: Folder, which: int) -> None:
    files = [folder.large.create(number, durable=True, failed=folder.failed.append) for number in range(7, 11)]
    told: dict[int, BrokerError | None] = {}
    for file in files:
        file.append(b"body")
        file.finish(lambda large, error, file_id=file.file_id: told.update({file_id: error}))  # type: ignore[misc]
    syncs = 0

    def fail_one(operation: str) -> None:
        nonlocal syncs
        if operation == "sync":
            if syncs == which:
                folder.volume.fail_next_sync()
            syncs += 1

    folder.volume.before_operation = fail_one
    folder.time.advance(1000)
    assert [type(told[number]) for number in range(7, 11)] == [
        DiskFailed if number == 7 + which else type(None) for number in range(7, 11)
    ]
    assert set(folder.names()) == {f"{number}.large" for number in range(7, 11) if number != 7 + which}


def test_with_retention_the_body_of_a_durable_message_is_kept() -> None:
    folder = Folder()
    folder.retention = RetentionSettings("/kept")
    folder.open()
    folder.write(7, b"durable")
    folder.write(8, b"not", durable=False)
    folder.large.hold(7)
    folder.large.hold(8)
    folder.large.release(7)
    folder.large.release(8)
    folder.large.flush()
    folder.time.advance(REMOVE_AFTER_MS)
    folder.large.flush()
    folder.time.advance(100)
    assert folder.names() == []
    assert folder.volume.disk("looker").list("/kept") == ["7.large"]
    # what an activation finds without a reference was needed until the crash, if it is whole
    unfinished = folder.volume.disk("a").open(f"{FOLDER}/9.large.tmp", create=True)
    unfinished.close()
    folder.write(10, b"left by a crash")
    folder.open(epoch=2)
    folder.time.advance(100)
    assert folder.names() == []
    assert folder.volume.disk("looker").list("/kept") == ["10.large", "7.large"]


def test_a_file_without_a_reference_goes(folder: Folder) -> None:
    folder.write(7, b"body")
    folder.large.flush()
    folder.time.advance(REMOVE_AFTER_MS)
    folder.large.flush()
    folder.time.advance(100)
    assert folder.names() == []


def test_a_file_goes_when_the_end_of_its_last_reference_is_durable_and_the_lock_was_proved(folder: Folder) -> None:
    folder.write(7, b"body")
    folder.large.hold(7)
    folder.large.hold(7)
    folder.large.flush()
    folder.large.release(7)
    folder.large.flush()
    folder.time.advance(60_000)
    folder.large.flush()
    assert folder.large.references(7) == 1
    folder.large.release(7)
    folder.context.appended = 5
    folder.large.flush()
    folder.time.advance(60_000)
    folder.large.flush()
    folder.time.advance(100)
    assert folder.names() == ["7.large"], "its acknowledgement is not durable"
    folder.context.advance(5)
    folder.large.flush()
    folder.time.advance(REMOVE_AFTER_MS - 1)
    folder.large.flush()
    folder.time.advance(1)
    assert folder.names() == ["7.large"], "too early for a proof since"
    folder.why_not = WrongNode("lost")
    folder.large.flush()
    folder.time.advance(100)
    assert folder.names() == ["7.large"], "the store may not be ours"
    folder.why_not = None
    folder.large.flush()
    folder.time.advance(100)
    assert folder.names() == []


def test_a_reference_taken_in_the_same_turn_keeps_the_file(folder: Folder) -> None:
    folder.write(7, b"body")
    folder.large.hold(7)
    folder.large.flush()
    folder.large.release(7)
    folder.large.hold(7)
    folder.large.flush()
    folder.time.advance(60_000)
    folder.large.flush()
    folder.time.advance(100)
    assert folder.names() == ["7.large"]


def test_permission_is_newer_than_the_proof_may_be_old() -> None:
    assert REMOVE_AFTER_MS > LOCK_PROOF_MS


def test_an_activation_removes_unreferenced_files() -> None:
    folder = Folder()
    disk = folder.volume.disk("before")
    disk.make_directory(FOLDER)
    old, own = first_id_of_epoch(1), first_id_of_epoch(2)
    names = [f"{old}.large", f"{old + 1}.large", f"{old + 1}.large.tmp", f"{old + 2}.large.tmp", "notes.txt"]
    names += [f"{own}.large", f"{own + 1}.large.tmp"]
    for name in names:
        disk.open(f"{FOLDER}/{name}", create=True).close()
    folder.open(2, {old: 1})
    assert folder.names() == sorted([f"{old}.large", "notes.txt", f"{own}.large", f"{own + 1}.large.tmp"])


def test_reading(folder: Folder) -> None:
    body = random.Random(1).randbytes(1000)
    folder.write(7, body)
    large = folder.stored[0][0]
    assert large is not None
    reader = folder.large.open(large)
    assert b"".join(iter(lambda: reader.read(300), b"")) == body
    assert reader.left_bytes == 0
    reader.pause()


@pytest.mark.parametrize("damage", ["missing", "short", "longer", "changed", "cut while it is read"])
def test_damage_names_the_file_and_never_ends_well(folder: Folder, damage: str) -> None:
    folder.write(7, bytes(1000))
    large = folder.stored[0][0]
    assert large is not None
    path = f"{FOLDER}/7.large"
    if damage == "missing":
        folder.volume.disk("vandal").remove(path)
    elif damage == "short":
        folder.volume.cut_file(path, 999)
    elif damage == "longer":
        folder.volume.disk("vandal").open(path).write(1000, (b"x",))
    elif damage == "changed":
        folder.volume.flip_bit(path, 10, 1)

    def read_all() -> None:
        reader = folder.large.open(large)
        if damage == "cut while it is read":
            folder.volume.cut_file(path, 500)
        while reader.left_bytes:
            reader.read(100)

    with pytest.raises(LargeMessageFailed, match=path):
        read_all()


def test_a_reader_that_waits_keeps_no_file_open(folder: Folder) -> None:
    folder.write(7, bytes(1000))
    large = folder.stored[0][0]
    assert large is not None
    reader = folder.large.open(large)
    reader.read(400)
    reader.pause()
    assert reader._file is None
    assert reader.read(1000) == bytes(600)
    reader = folder.large.open(large)
    reader.pause()
    folder.volume.disk("vandal").remove(f"{FOLDER}/7.large")
    with pytest.raises(LargeMessageFailed):
        reader.read(1)


def test_unfinished_messages_are_limited(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder.large, "unfinished_max", 3)
    files = [folder.large.create(number, durable=True, failed=folder.failed.append) for number in range(3)]
    with pytest.raises(LimitExceeded):
        folder.large.create(9, durable=True, failed=folder.failed.append)
    files[0].discard()
    files[1].finish(lambda large, error: None)
    folder.volume.fail_next_sync()
    folder.time.advance(100)
    assert folder.large.unfinished == 1
    files[2].finish(lambda large, error: None)
    files[2].discard()
    folder.time.advance(100)
    assert folder.large.unfinished == 0
    folder.large.create(9, durable=True, failed=folder.failed.append)


def test_nothing_happens_after_close(folder: Folder) -> None:
    file = folder.large.create(7, durable=True, failed=folder.failed.append)
    folder.large.close()
    file.append(bytes(STEP_BYTES))
    file.discard()
    folder.time.advance(100)
    assert folder.operations == []


# --- what the log says -----------------------------------------------------------------------------


def large_message(file_id: int, name: str = "m") -> LargeMessage:
    header = Message(b"whatever", address="q", properties={"name": name}, priority=7, user_id=bytes(16))
    return LargeMessage.of(header, LargeBody(file_id, 1000, 5), 4000)


def test_a_large_message_keeps_its_id_and_where_its_body_is() -> None:
    message = large_message(9)
    message.assign_id(10)
    assert message.message_id == 9
    again = LargeMessage.decode(message.encoded)
    assert again.large == LargeBody(9, 1000, 5)
    assert (again.properties[LARGE_SIZE], again.priority, again.user_id) == (4000, 7, bytes(16))
    copy = message.replace(address="other", message_id=11)
    assert isinstance(copy, LargeMessage)
    assert (copy.large, copy.message_id, copy.address) == (message.large, 11, "other")
    for wrong in (b"", bytes(40), Message(b"x", address="q").encoded):
        with pytest.raises(ValueError, match="large message"):
            large_body_of(wrong)


def test_the_log_counts_references_by_file() -> None:
    rig = StoreHarness(random.Random(1))
    store = rig.activate("a")
    rig.queue()
    rig.queue()
    first, second = rig.queue_ids[:2]
    address_id = rig.address_ids[0]
    ids = [store.next_id() for _ in range(4)]

    def add(file_id: int, message_id: int, queues: tuple[int, ...], tx_id: int = 0) -> None:
        message = large_message(file_id).replace(message_id=message_id)
        location = store.store_message(message, address_id, queues, tx_id=tx_id, large=True)
        rig.settle()
        again = store.read_message(location)
        assert isinstance(again, LargeMessage)
        assert again.large.file_id == file_id

    def files() -> dict[int, int]:
        rig.settle()
        follower = rig.follower("b")
        follower.finish()
        return follower.state.large_files()

    add(ids[0], ids[0], (first, second))
    add(ids[0], ids[1], (first,))
    assert files() == {ids[0]: 3}
    store.store_acknowledges(first, (ids[0],))
    assert files() == {ids[0]: 2}
    store.store_acknowledges(first, [ids[1], ids[1] + 1000])
    assert files() == {ids[0]: 1}
    transaction = store.next_id()
    add(ids[2], ids[2], (second,), transaction)
    assert files() == {ids[0]: 1, ids[2]: 1}, "an open transaction keeps its files"
    store.store_rollback(transaction)
    assert files() == {ids[0]: 1}
    transaction = store.next_id()
    add(ids[3], ids[3], (first,), transaction)
    store.store_acknowledges(second, (ids[0],), transaction)
    store.store_commit(transaction)
    assert files() == {ids[3]: 1}
    store.delete_queue(first)
    assert files() == {}
    assert DIRECTORY in FOLDER
