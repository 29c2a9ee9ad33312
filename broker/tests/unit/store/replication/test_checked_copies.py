"""Goal: a copy never replaces bytes that fit their checksum by bytes that do not, in either direction, and both nodes
have the right bytes afterwards if one of them had.

Method: an active store and a replica on two simulated volumes. A file is read wrong from a cache, or is damaged on one
of the disks; then the store is copied.
"""

from __future__ import annotations

import random

import pytest

from support.replication import BODIES, Copying, Replica, ReplicatedHarness, differences
from support.store import DIRECTORY
from understudy.errors import BrokerError, DiskFailed
from understudy.message import LargeBody, LargeMessage, Message
from understudy.store.log.segment import HEADER_BLOCK_BYTES
from understudy.store.replication.copy_messages import AnswerBytes, AskBytes, CheckFile, Directory, KeepFile, Piece
from understudy.store.replication.copy_source import CopySource, KnownMessages, SourceState
from understudy.store.replication.copy_target import TargetState
from understudy.store.replication.fetching import answer_of
from understudy.store.replication.old_replicas import move_to
from understudy.store.replication.store_files import StoreDirectories

QUEUE = 7
BODY = bytes(range(256)) * 3000


class Rig:
    """A store with one large message and sealed segments, and a replica of it."""

    def __init__(self) -> None:
        self.active = ReplicatedHarness(random.Random(4))
        self.active.activate("active")
        self.replica = Replica(random.Random(5))
        self.body = f"{BODIES}/{self.send_large()}.large"
        for _ in range(3):
            self.active.fill()
        self.active.rest()

    def send_large(self) -> int:
        """A message whose body is a file; its id."""
        store, found = self.active.store, list[LargeBody]()
        assert store is not None
        file_id = store.next_id()
        file = store.large.create(file_id, durable=True, failed=lambda error: None)
        file.append(BODY)

        def stored(large: LargeBody | None, error: BrokerError | None) -> None:
            assert large is not None
            store.large.hold(file_id)
            found.append(large)

        file.finish(stored)
        self.active.rest()
        message = LargeMessage.of(Message(address="q"), found[0], len(BODY))
        store.store_message(message, 1, (QUEUE,), large=True)
        return file_id

    def copy(self) -> Copying:
        """Copy the store as it is to the replica, and lose the connection."""
        copying = Copying(self.active, self.replica)
        copying.run()
        return copying

    def copied_once(self) -> None:
        """A first copy, after which the connection is lost."""
        copying = self.copy()
        assert copying.source.state is SourceState.COMPLETE
        copying.kill_replica()
        self.replica.kill(power_loss=False)

    def segment(self) -> str:
        """A sealed segment."""
        return min(path for path in self.active.segments() if "segment-" in path)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def flip(rig: Rig, path: str, *, replica: bool = False) -> None:
    """Damage a byte in the middle of a file on one disk."""
    (rig.replica if replica else rig.active).volume.flip_bit(path, HEADER_BLOCK_BYTES + 100, 2)


def content(rig: Rig, path: str) -> list[bytes]:
    """Content of a file on both disks."""
    return [rig.active.volume.content(path), rig.replica.volume.content(path)]


@pytest.mark.parametrize("kind", ["body", "segment"])
def test_a_wrong_read_does_not_reach_the_replica(rig: Rig, kind: str) -> None:
    path = rig.body if kind == "body" else rig.segment()
    right = rig.active.volume.content(path)
    rig.active.volume.wrong_reads.add(path, HEADER_BLOCK_BYTES + 100, 3, cached=True)
    assert rig.copy().source.state is SourceState.COMPLETE
    assert content(rig, path) == [right, right]
    assert differences(rig.active.volume, rig.replica.volume) == []


@pytest.mark.parametrize("kind", ["body", "segment"])
def test_the_active_node_takes_right_bytes_of_the_replica(rig: Rig, kind: str) -> None:
    path = rig.body if kind == "body" else rig.segment()
    right = rig.active.volume.content(path)
    rig.copied_once()
    flip(rig, path)
    damaged = rig.active.volume.content(path)
    copying = rig.copy()
    assert copying.source.state is SourceState.COMPLETE
    assert content(rig, path) == [right, right]
    directory, _, name = path.rpartition("/")
    kept = rig.active.volume.disk("x").list(f"{directory}/replaced")
    assert kept == [f"{name}.0"]
    assert rig.active.volume.content(f"{directory}/replaced/{kept[0]}") == damaged[: len(right)][: 512 * 1024]
    assert any(isinstance(each, AskBytes) for each in copying.sent)


@pytest.mark.parametrize("kind", ["body", "segment"])
def test_the_active_node_takes_right_bytes_of_the_data_that_the_replica_has_moved_away(rig: Rig, kind: str) -> None:
    """A replica that was killed while it moved its earlier data away moves the rest before it lists its files
    (simulation: wrong-reads 880190).
    """
    path = rig.body if kind == "body" else rig.segment()
    right = rig.active.volume.content(path)
    rig.copied_once()
    disk = rig.replica.volume.disk("x")
    move_to(disk, StoreDirectories(disk, DIRECTORY, BODIES), 1)
    flip(rig, path)
    assert rig.copy().source.state is SourceState.COMPLETE
    assert content(rig, path) == [right, right]


def test_a_segment_that_was_cut_short_is_taken_from_the_replica(rig: Rig) -> None:
    path = rig.segment()
    right = rig.active.volume.content(path)
    rig.copied_once()
    rig.active.volume.cut_file(path, len(right) // 2)
    assert rig.copy().source.state is SourceState.COMPLETE
    assert content(rig, path) == [right, right]


@pytest.mark.parametrize("kind", ["body", "segment"])
def test_damaged_bytes_of_the_replica_are_replaced(rig: Rig, kind: str) -> None:
    path = rig.body if kind == "body" else rig.segment()
    right = rig.active.volume.content(path)
    rig.copied_once()
    flip(rig, path, replica=True)
    assert rig.copy().source.state is SourceState.COMPLETE
    assert content(rig, path) == [right, right]


def test_a_file_that_is_damaged_on_both_nodes_is_copied_as_it_is_after_a_while(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.copied_once()
    flip(rig, rig.body)
    rig.replica.volume.flip_bit(rig.body, 70_000, 1)
    copying = Copying(rig.active, rig.replica)
    copying.source._known.refuses = lambda key: True
    with pytest.raises(DiskFailed, match="does not fit its checksum"):
        copying.run()
    copying.give_up()
    rig.replica.kill(power_loss=False)
    assert rig.copy().source.state is SourceState.COMPLETE
    assert differences(rig.active.volume, rig.replica.volume) == []
    assert "the replica has none that do" in caplog.text


def test_a_file_that_is_written_wrong_ends_the_copy(rig: Rig) -> None:
    copying = Copying(rig.active, rig.replica)
    receive = copying.target.receive

    def spoil(message: object) -> None:
        if isinstance(message, Piece) and message.directory is Directory.BODIES and message.offset == 0:
            message = Piece(message.directory, message.name, 0, b"\xff" + message.data[1:])
        receive(message)  # type: ignore[arg-type]

    copying.target.receive = spoil  # type: ignore[method-assign]
    copying.run()
    assert copying.source.state is SourceState.FAILED
    assert copying.target.state is TargetState.FAILED
    assert copying.source.failure is not None
    assert "not those that the active node has checked" in copying.source.failure.reason
    copying.give_up()
    rig.replica.kill(power_loss=False)
    assert rig.copy().source.state is SourceState.COMPLETE
    assert differences(rig.active.volume, rig.replica.volume) == []


def test_files_that_the_replica_keeps_are_not_compared_again(rig: Rig) -> None:
    rig.copied_once()
    sent = rig.copy().sent
    kept = {each.name for each in sent if isinstance(each, KeepFile)}
    checked = {each.name for each in sent if isinstance(each, CheckFile)}
    assert kept
    assert not kept & checked


def test_nothing_is_asked_of_a_replica_of_an_earlier_version(rig: Rig) -> None:
    right = rig.active.volume.content(rig.body)
    rig.copied_once()
    rig.active.volume.wrong_reads.add(rig.body, 100, 3, cached=True)
    copying = Copying(rig.active, rig.replica)
    copying.source = CopySource(
        copying.source._directories, rig.active.log, rig.active.bodies_applier, 1, knows=KnownMessages(checks=False)
    )
    copying.run()
    assert not any(isinstance(each, AskBytes | CheckFile) for each in copying.sent)
    assert content(rig, rig.body) == [right, right]


def test_the_other_node_gives_no_file_outside_of_the_store(rig: Rig) -> None:
    directories = rig.replica.directories()
    rig.copied_once()
    asked = AskBytes(1, Directory.BODIES, f"{rig.body.rpartition('/')[2]}", 0, 100)
    assert answer_of(rig.replica.directories(), asked) == AnswerBytes(1, True, len(BODY), BODY[:100])
    gone = AskBytes(2, Directory.BODIES, "99.large", 0, 100)
    assert answer_of(rig.replica.directories(), gone) == AnswerBytes(2, False, 0, b"")
    with pytest.raises(BrokerError, match="no file of a store"):
        answer_of(directories, AskBytes(3, Directory.LOG, "server.lock", 0, 100))
    assert DIRECTORY
