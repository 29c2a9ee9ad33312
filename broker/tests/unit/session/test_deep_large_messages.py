"""Large messages deep in a queue: in packed and spilled blocks, through a takeover, and out again.

Goal: a row keeps its file, whatever becomes of its block, and the file goes with the last reference
in every way a reference can go. Method: the real store on a simulated disk and blocks of eight.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from support.large import Node, body_of, header_of, named, seen_by
from support.routing import text
from support.store import StoreHarness
from understudy.routing.queues import level
from understudy.routing.queues.queue import Queue
from understudy.session.outcomes import ACCEPTED
from understudy.session.session import ServerSession
from understudy.store.messages import backlog
from understudy.store.messages.reference import LargeReference
from understudy.terms import RoutingType

COUNT = 120
EVERY = 5
"""Each fifth message is large."""
LARGE = list(range(0, COUNT, EVERY))
SMALL = [number for number in range(COUNT) if number % EVERY]
BODY_BYTES = 5_000
PAGED: Mapping[str, object] = {"max_size_bytes": 0}
IN_MEMORY: Mapping[str, object] = {"max_size_bytes": -1}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(level, "_BLOCK", 8)
    monkeypatch.setattr(level, "_MEMORY_BLOCKS", 3)
    monkeypatch.setattr(backlog, "BLOCK_REFERENCES", 8)


class Deep:
    """A pair: one node with deep queues, and one that follows."""

    def __init__(self, settings: Mapping[str, object] = PAGED, *, subscriptions: int = 1, durable: bool = True) -> None:
        self.rig = StoreHarness(random.Random(1))
        self.settings = {"#": dict(settings), "DLQ": {}, "EXP": {}}
        self.node = Node(self.rig, "a", self.settings, paging=True)
        self.follower = self.rig.follower("b")
        self.queues = ["q"] if subscriptions == 1 else [f"q{number}" for number in range(subscriptions)]
        for name in self.queues:
            self.node.world.queue(name, address="q", routing_type=RoutingType.MULTICAST)
        for name in ("DLQ", "EXP"):
            self.node.world.queue(name)
        self.durable = durable
        self.expiration = 0

    def fill(self) -> None:
        session = self.node.world.session()
        fields = {"durable": self.durable, "expiration": self.expiration}
        for number in range(COUNT):
            if number % EVERY:
                session.sends.send(text(str(number), **fields))
            else:
                self.node.send(session, header_of(str(number), **fields), body_of(str(number), BODY_BYTES))
                self.node.settle()
                self.follow()
        self.node.settle()
        self.follow()

    def follow(self) -> None:
        while self.follower.poll(1 << 20):
            pass

    def take_over(self, *, followed: bool = True) -> None:
        """Kill the node, and activate the follower or a node that was not there before."""
        self.follow()
        self.rig.die(power_loss=False)
        self.node = Node(
            self.rig, "b", self.settings, follower=self.follower if followed else None, paging=True
        )  # fmt: skip

    def queue(self, name: str = "q") -> Queue:
        found = self.node.world.office.directory.find_queue(name)
        assert found is not None
        return found

    def read(self, queue: str = "q", credit_bytes: int = -1) -> ServerSession:
        reader = self.node.consumer(queue, credit_bytes=credit_bytes)
        self.node.settle()
        return reader

    def gone(self) -> bool:
        """Whether nothing is left, in the counts and on the disk."""
        self.node.outlive()
        office = self.node.world.office
        assert self.node.files() == self.node.expected_files() == []
        assert self.node.store.large.count == 0
        for address in office.directory.addresses.values():
            assert (address.size_bytes, address.memory_bytes, address.message_count) == (0, 0, 0)
            assert address.paged_count == 0
        return (office.memory.held_bytes, office.memory.held_count) == (0, 0)


def check_seen(reader: ServerSession, *, ordered: bool = True) -> None:
    seen = seen_by(reader)
    names = [named(message) for _, message, _ in seen.large]
    assert seen.large_bodies == [body_of(name, BODY_BYTES) for name in names]
    numbers, small = [int(name) for name in names], [int(body) for body in seen.bodies()]
    assert (numbers, small) == (LARGE, SMALL) if ordered else (sorted(numbers), sorted(small)) == (LARGE, SMALL)


def acknowledge(reader: ServerSession) -> None:
    seen = seen_by(reader)
    reader.acknowledge(0, max(message.message_id for _, message, _ in [*seen.large, *seen.delivered]))


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("settings", [PAGED, IN_MEMORY], ids=["paged", "in memory"])
def test_it_comes_back_from_blocks_and_pages(settings: Mapping[str, object], durable: bool) -> None:
    deep = Deep(settings, durable=durable)
    deep.fill()
    queue = deep.queue()
    assert (queue.pending.spilled_count > 50) == (settings is PAGED)
    assert sum(isinstance(each, LargeReference) for each in queue.pending) == len(LARGE)
    assert queue.address.size_bytes < COUNT * 300, "headers count, bodies do not"
    assert len(deep.node.files()) == len(LARGE)
    reader = deep.read()
    check_seen(reader)
    deep.node.outlive()
    assert len(deep.node.files()) == len(LARGE), "not before they are acknowledged"
    acknowledge(reader)
    assert deep.gone()


@pytest.mark.parametrize("followed", [True, False])
def test_it_survives_a_takeover_and_the_last_queue_frees_the_file(followed: bool) -> None:
    deep = Deep(subscriptions=3)
    deep.fill()
    first = deep.read("q0")
    check_seen(first)
    acknowledge(first)
    # in the middle of packed blocks of the follower
    second = deep.read("q1")
    some = [message.message_id for _, message, _ in seen_by(second).large][3::4]
    for message_id in some:
        second.settle(0, message_id, ACCEPTED)
    deep.node.settle()
    deep.follow()
    counts = deep.follower.state.large_files()
    assert sorted(counts.values()) == [1] * len(some) + [2] * (len(LARGE) - len(some))
    blocks = deep.follower.state.references[deep.queue("q2").queue_id].levels[4].blocks
    assert sum(block._columns is None for block in blocks) > 8, "packed"
    deep.take_over(followed=followed)
    large = deep.node.store.large
    assert {file_id: large.references(file_id) for file_id in counts} == counts
    assert (deep.queue("q0").message_count, deep.queue("q1").message_count) == (0, COUNT - len(some))
    last = deep.read("q2")
    check_seen(last)
    acknowledge(last)
    deep.node.outlive()
    assert len(deep.node.files()) == len(LARGE) - len(some)
    rest = deep.read("q1")
    assert len(seen_by(rest).large_bodies) == len(LARGE) - len(some)
    acknowledge(rest)
    assert deep.gone()


@pytest.mark.parametrize("taken_over", [False, True])
@pytest.mark.parametrize("settings", [PAGED, IN_MEMORY], ids=["paged", "in memory"])
@pytest.mark.parametrize("end", ["purge", "delete", "expire", "expire to an address", "kill", "dead letters"])
def test_every_end_takes_the_files(end: str, settings: Mapping[str, object], taken_over: bool) -> None:
    addresses = {"expire to an address": {"expiry_address": "EXP"}, "dead letters": {"dead_letter_address": "DLQ"}}
    deep = Deep({**settings, **addresses.get(end, {}), "max_delivery_attempts": 1})
    if end.startswith("expire"):
        deep.expiration = deep.node.world.clock.now_ms + 1_000_000
    deep.fill()
    if taken_over:
        deep.take_over()
    elsewhere = None
    if end == "purge":
        assert deep.queue().purge() == COUNT
    elif end == "delete":
        deep.node.world.office.directory.delete_queue("q")
    elif end.startswith("expire"):
        deep.node.world.clock.advance(1_000_001)
        while deep.queue().expire_overdue(deep.expiration):
            pass
        elsewhere = "EXP" if "address" in end else None
    else:
        reader = deep.read()
        check_seen(reader)
        reader.close(failed=True)
        elsewhere = "DLQ" if end == "dead letters" else None
    deep.node.settle()
    if elsewhere:
        deep.node.outlive()
        assert len(deep.node.files()) == len(LARGE), "who takes the message over takes its file over"
        reader = deep.read(elsewhere)
        # the sweep takes what expired from the ends of a queue first
        check_seen(reader, ordered=elsewhere == "DLQ")
        acknowledge(reader)
    assert deep.gone()


def test_files_of_references_that_are_given_up_go() -> None:
    deep = Deep(subscriptions=2)
    deep.fill()
    deep.follow()
    state = deep.follower.state
    lost = deep.queue("q0").queue_id
    del state.queues[lost]
    deep.take_over()
    assert deep.node.world.office.directory.find_queue("q0") is None
    assert state.references == {}
    reader = deep.read("q1")
    check_seen(reader)
    acknowledge(reader)
    deep.node.outlive()
    assert deep.node.files() == []
    assert deep.node.store.large.count == 0
