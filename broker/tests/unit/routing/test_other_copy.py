"""Goal: a message that this node has wrong is taken from the other node of a replicated pair before it is set aside, in
its place of the queue; and the entry of one that no node has names both.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from support.store import DIRECTORY, StoreHarness
from understudy.store.log.segment import parse_name
from understudy.store.quarantine import read_entries
from understudy.store.reference import unpack_location
from understudy.store.repair import Answer, Ask
from understudy.store.replication.copy_messages import AskBytes
from understudy.store.replication.fetching import answer_in, answer_of
from understudy.store.replication.store_files import StoreDirectories
from understudy.testing.sim_disk import SimVolume
from unit.routing.test_quarantine import Node, bodies, books, consume

WAIT_MS = 60_000


class OtherNode:
    """The store of the replica as it is now. Implements ``store.repairs.OtherCopy``."""

    def __init__(self, node: Node) -> None:
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


def attached(node: Node) -> OtherNode:
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
