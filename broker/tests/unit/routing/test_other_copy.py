"""Goal: a message that this node has wrong is taken from the other node of a replicated pair before it is set aside, in
its place of the queue; and the entry of one that no node has names both.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from support.large import Node as LargeNode
from support.large import body_of, node_with_dead_letters, seen_by, sent
from support.routing import World
from support.store import DIRECTORY, StoreHarness
from understudy.errors import DiskFailed
from understudy.message import Message
from understudy.routing.lifecycle.quarantine import DISK_AGAIN_MS, DISK_AGAIN_MS_MAX, STANDSTILL_TRIES
from understudy.routing.paging import Paging
from understudy.routing.queues.queue import Queue
from understudy.store.log.segment import parse_name
from understudy.store.messages.pages import Pages
from understudy.store.messages.reference import MessageReference, unpack_location
from understudy.store.quarantine import read_entries
from understudy.store.repair import Answer, Ask
from understudy.store.replication.copy_messages import AskBytes
from understudy.store.replication.fetching import answer_in, answer_of
from understudy.store.replication.store_files import StoreDirectories
from understudy.testing.sim.disk import SimFile, SimVolume
from unit.routing.test_quarantine import Node, bodies, books, consume

WAIT_MS = 60_000


class OtherNode:
    """The store of the replica as it is now. Implements ``store.repairs.OtherCopy``."""

    def __init__(self, node: Node | LargeNode) -> None:
        self.volume: SimVolume = node.rig.volume.copy()
        self.asked: list[Ask] = []
        self.waiting: list[tuple[Ask, Callable[[Answer | None], None]]] = []
        self.answers = True

    def ask(self, wanted: Ask, answered: Callable[[Answer | None], None]) -> None:
        self.asked.append(wanted)
        if not self.answers:
            self.waiting.append((wanted, answered))
            return
        directories = StoreDirectories(self.volume.disk("other"), DIRECTORY, f"{DIRECTORY}/large")
        question = AskBytes(1, wanted.directory, wanted.name, wanted.offset, wanted.length)
        answered(answer_in(answer_of(directories, question)))


@pytest.fixture
def node() -> Node:
    made = Node(StoreHarness(random.Random(1)), "a")
    made.queue()
    made.store.quarantine.repairs.expect_other("node-a", WAIT_MS)
    return made


def attached(node: Node | LargeNode) -> OtherNode:
    """The other node, in sync."""
    other = OtherNode(node)
    pair = node.store.quarantine.repairs.pair
    assert pair is not None
    pair.other = "node-b"
    node.store.quarantine.repairs.attach(other)
    return other


def flip(node: Node, volume: SimVolume, position: int) -> None:
    """Damage the body of a waiting message on one disk."""
    reference = list(node.queue().pending)[position]
    assert reference.location is not None
    number, offset, length = unpack_location(reference.location)
    (path,) = [path for path in node.rig.segments() if (parse_name(path.rsplit("/", 1)[1]) or (0,))[0] == number]
    volume.flip_bit(path, offset + length - 2, 3)


def read_wrong(node: Node, position: int, *, cached: bool) -> None:
    """Have the body of a waiting message read wrong."""
    reference = list(node.queue().pending)[position]
    assert reference.location is not None
    number, offset, length = unpack_location(reference.location)
    (path,) = [path for path in node.rig.segments() if (parse_name(path.rsplit("/", 1)[1]) or (0,))[0] == number]
    node.rig.volume.wrong_reads.add(path, offset + length - 2, 3, cached=cached)


def test_one_wrong_read_is_not_final_without_another_node() -> None:
    node = Node(StoreHarness(random.Random(1)), "a")
    node.queue()
    node.fill("a", "b", "c")
    read_wrong(node, 1, cached=True)
    assert consume(node) == [b"a", b"b", b"c"]
    assert node.store.quarantine.entries() == []


def test_a_damaged_message_is_taken_from_the_other_node_in_its_place(node: Node) -> None:
    node.fill("a", "b", "c")
    attached(node)
    flip(node, node.rig.volume, 1)
    assert consume(node) == [b"a", b"b", b"c"]
    assert node.store.quarantine.entries() == []
    assert node.store.quarantine.repairs.repaired == 1
    kept = node.rig.volume.disk("x").list(f"{DIRECTORY}/replaced")
    assert len(kept) == 1
    assert read_entries(node.rig.volume.disk("x"), DIRECTORY) == []


def test_wrong_reads_from_the_disk_itself_are_taken_from_the_other_node(node: Node) -> None:
    """204 messages were quarantined in 2.5 s of such reads."""
    node.fill("a", "b", "c")
    attached(node)
    for position in range(3):
        read_wrong(node, position, cached=False)
    session = node.reader()
    node.world.turn()
    node.rig.time.advance(3)
    node.rig.volume.wrong_reads.end()
    node.settle()
    assert bodies(session) == [b"a", b"b", b"c"]
    assert node.store.quarantine.entries() == []


def test_a_message_that_no_node_has_goes_to_the_quarantine_with_the_names_of_both(node: Node) -> None:
    node.fill("a", "b", "c")
    other = attached(node)
    flip(node, node.rig.volume, 1)
    flip(node, other.volume, 1)
    assert consume(node) == [b"a", b"c"]
    (entry,) = node.store.quarantine.entries()
    assert (entry.held, entry.nodes) == (False, "node-a, node-b")
    assert entry.path.startswith(DIRECTORY)
    assert entry.offset
    assert "does not fit either" in entry.reason
    assert books(node.queue()) == (2, 2, 0)


def test_without_the_other_node_the_message_waits_for_it(node: Node) -> None:
    node.fill("a", "b", "c")
    right = OtherNode(node)
    flip(node, node.rig.volume, 1)
    session = node.reader()
    node.settle()
    assert bodies(session) == [b"a", b"c"]
    assert node.world.office.damaged.waiting_count == 1
    (entry,) = node.store.quarantine.entries()
    assert (entry.held, entry.nodes) == (True, "node-a")
    assert "waits for the copy of the other node" in entry.reason
    node.store.quarantine.repairs.attach(right)
    node.settle()
    assert bodies(session) == [b"a", b"c", b"b"]
    assert node.world.office.damaged.waiting_count == 0
    node.settle()
    assert node.store.quarantine.entries() == []


@pytest.mark.parametrize("end", ["time", "operator"])
def test_the_wait_for_the_other_node_has_an_end(node: Node, end: str) -> None:
    node.fill("a", "b")
    flip(node, node.rig.volume, 0)
    assert consume(node) == [b"b"]
    if end == "time":
        node.world.clock.advance(WAIT_MS + 1)
    else:
        assert node.world.office.damaged.give_up() == 1
    node.settle()
    (entry,) = node.store.quarantine.entries()
    assert not entry.held
    assert node.world.office.damaged.waiting_count == 0
    assert books(node.queue()) == (1, 1, 0)


def test_a_queue_stands_still_while_the_other_node_is_asked(node: Node) -> None:
    node.fill("a", "b", "c")
    other = attached(node)
    other.answers = False
    flip(node, node.rig.volume, 1)
    session = node.reader()
    node.settle()
    node.rig.time.advance(50)
    node.settle()
    assert bodies(session) == [b"a"]
    ((_, answered),) = other.waiting
    other.answers = True
    node.store.quarantine.repairs.detach()
    answered(None)
    node.settle()
    assert bodies(session) == [b"a", b"c"]
    assert node.world.office.damaged.waiting_count == 1


def test_a_queue_that_is_deleted_takes_a_waiting_message_along(node: Node) -> None:
    node.fill("a", "b")
    flip(node, node.rig.volume, 0)
    assert consume(node) == [b"b"]
    right = OtherNode(node)
    node.world.office.directory.delete_queue("q", disconnect=True)
    node.settle()
    node.store.quarantine.repairs.attach(right)
    node.settle()
    assert node.world.office.memory.held_bytes == 0
    assert node.rig.failures == []


# --- a disk of this node that fails for a while ------------------------------------------------------


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Owners of disks whose files cannot be read."""
    owners: list[str] = []
    read = SimFile.read

    def read_or_fail(file: SimFile, offset: int, length: int) -> bytes:
        if file._owner in owners:
            raise DiskFailed(f"cannot read {file.path}: Input/output error")
        return read(file, offset, length)

    monkeypatch.setattr(SimFile, "read", read_or_fail)
    yield owners
    owners.clear()


def let_pass(node: Node | LargeNode, duration_ms: int) -> None:
    for _ in range(duration_ms // 1_000):
        node.world.clock.advance(1_000)
        node.settle()


def test_messages_that_a_failing_disk_cannot_read_come_in_their_order_once_it_works(
    node: Node, failing: list[str]
) -> None:
    """Both disks had the right bytes, and five messages stayed in the quarantine after 0.8 s of read errors."""
    node.fill("a", "b", "c")
    attached(node)
    failing.append("a")
    session = node.reader()
    node.settle()
    let_pass(node, 3_000)
    assert bodies(session) == []
    assert node.store.quarantine.entries() == []
    failing.clear()
    let_pass(node, 2_000)
    assert bodies(session) == [b"a", b"b", b"c"]
    assert node.store.quarantine.entries() == []


def test_messages_of_page_files_which_no_other_node_has_are_read_again_from_the_disk(
    node: Node, failing: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = Pages(SimVolume().disk("a"), "/paging", 1)
    node.world = World({"#": {"max_size_bytes": 0}}, store=node.store, pages=pages)
    node.queue("paged")
    node.fill("a", "b", queue="paged", durable=False)
    attached(node)
    read = Paging.read

    def read_or_fail(paging: Paging, queue: Queue, reference: MessageReference) -> Message:
        if failing:
            raise DiskFailed("cannot read: Input/output error")
        return read(paging, queue, reference)

    monkeypatch.setattr(Paging, "read", read_or_fail)
    failing.append("a")
    session = node.reader("paged")
    node.settle()
    let_pass(node, 3_000)
    assert bodies(session) == []
    failing.clear()
    let_pass(node, 2_000)
    assert bodies(session) == [b"a", b"b"]
    assert node.store.quarantine.entries() == []


def test_after_a_standstill_the_messages_of_a_failing_disk_wait_and_come_back_later(
    node: Node, failing: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    node.fill("a", "b", "c")
    node.store.quarantine.repairs.expect_other("node-a", 10 * WAIT_MS)
    attached(node)
    failing.append("a")
    session = node.reader()
    node.settle()
    let_pass(node, 40_000)
    assert node.world.office.damaged.waiting_count == 3
    assert len(node.store.quarantine.entries()) == 3
    failing.clear()
    let_pass(node, 2 * DISK_AGAIN_MS_MAX)
    assert sorted(bodies(session)) == [b"a", b"b", b"c"]
    assert node.store.quarantine.entries() == []
    assert node.world.office.damaged.waiting_count == 0
    waits = [each for each in caplog.records if each.message.startswith("message waits for the other node")]
    assert len(waits) == 3, "one line for each message, not for each attempt"


def test_a_disk_that_never_works_again_is_tried_until_the_wait_ends(node: Node, failing: list[str]) -> None:
    node.fill("a")
    other = attached(node)
    failing.append("a")
    node.reader()
    node.settle()
    let_pass(node, (STANDSTILL_TRIES + 1) * DISK_AGAIN_MS)
    before = len(other.asked)
    let_pass(node, WAIT_MS - 1_000)
    assert 3 <= len(other.asked) - before <= 6, "the pause grows"
    let_pass(node, 2_000)
    assert node.world.office.damaged.waiting_count == 0
    (entry,) = node.store.quarantine.entries()
    assert "waits for the copy" not in entry.reason
    asked = len(other.asked)
    let_pass(node, WAIT_MS)
    assert len(other.asked) == asked


def test_a_large_message_whose_record_cannot_be_read_either_comes_back_once_the_disk_works(failing: list[str]) -> None:
    """The record says what the body has to be; without it the other node was not asked at all."""
    node = node_with_dead_letters()
    sent(node, "m")
    node.store.quarantine.repairs.expect_other("node-a", WAIT_MS)
    attached(node)
    failing.append("a")
    session = node.consumer()
    node.settle()
    assert seen_by(session).disconnected == [0], "its delivery had begun"
    failing.clear()
    let_pass(node, 2_000)
    session = node.consumer()
    node.settle()
    assert seen_by(session).large_bodies == [body_of("m")]
    assert node.store.quarantine.entries() == []
