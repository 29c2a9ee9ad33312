"""Random work on queues of special kinds, with crashes, against a model of a few lines.

Goal: last-value queues keep the newest message of each key, rings the youngest messages, non-destructive
queues every message for every consumer; for any sequence of sends, deliveries, acknowledgements and
rollbacks, and any part of the log that a crash leaves.

Method: over the real store on a simulated disk. Hypothesis draws a kind and a list of steps. What
waits must equal the model after every step. A crash may lose unsynced records, so
the state after a takeover is checked against the confirmations, and the model goes on from there.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.routing import FakeCallback, World, text
from support.store import StoreHarness
from understudy.message import LAST_VALUE
from understudy.routing.queues import level
from understudy.routing.queues.queue import Queue
from understudy.routing.restore import restore, settle
from understudy.session.session import ServerSession

CONSUMERS = 2
RING = 2
KINDS: dict[str, dict[str, Any]] = {
    "last value": {"last_value": True},
    "ring": {"ring_size": RING},
    "non-destructive": {"non_destructive": True},
    "last value, non-destructive": {"last_value": True, "non_destructive": True},
    "last value in a ring": {"last_value": True, "ring_size": RING},
    "ring, non-destructive": {"ring_size": RING, "non_destructive": True},
}

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.sampled_from([None, "a", "b", "c"])),
        st.tuples(st.just("send"), st.sampled_from(["a", "b"])),
        st.tuples(st.just("turn")),
        st.tuples(st.just("sync")),
        st.tuples(st.just("credits"), st.integers(0, CONSUMERS - 1), st.sampled_from([0, 10, 25, -1])),
        st.tuples(st.just("acknowledge"), st.integers(0, CONSUMERS - 1)),
        st.tuples(st.just("roll_back"), st.integers(0, CONSUMERS - 1)),
        st.tuples(st.just("commit"), st.integers(0, CONSUMERS - 1)),
        st.tuples(st.just("reopen"), st.integers(0, CONSUMERS - 1), st.booleans()),
        st.tuples(st.just("crash"), st.booleans()),
        st.tuples(st.just("round"), st.sampled_from(["a", "b"]), st.integers(0, CONSUMERS - 1)),
        st.tuples(st.just("round"), st.sampled_from(["a", "b"]), st.integers(0, CONSUMERS - 1)),
        st.tuples(st.just("round"), st.sampled_from(["a", "b"]), st.integers(0, CONSUMERS - 1)),
    ),
    max_size=50,
)


@dataclass
class Reader:
    """A transacted consumer, and what its client knows."""

    session: ServerSession
    outstanding: list[int] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    """Messages that it need not receive again."""


class Recording(FakeCallback):
    def __init__(self, model: Model, number: int) -> None:
        super().__init__(frame_bytes=10)
        self.model = model
        self.number = number

    def sent(self, consumer_id: int, message, delivery_count: int) -> int:  # type: ignore[no-untyped-def]
        self.model.delivered(self.number, int(message.body), message.message_id)
        return super().sent(consumer_id, message, delivery_count)


class Model:
    def __init__(self, kind: dict[str, Any], seed: int) -> None:
        self.kind = kind
        self.rig = StoreHarness(random.Random(seed))
        self.owner = 0
        self.keys: list[str | None] = []
        self.ids: dict[int, int] = {}
        self.confirmed: set[int] = set()
        self.settled: set[int] = set()
        self.waiting: set[int] = set()
        self.start()
        self.queue: Queue = self.world.queue("q", **kind)
        self.settle()
        self.open_all()

    def start(self) -> None:
        self.owner += 1
        store = self.rig.activate(f"node {self.owner}")
        self.world = World({"#": {"max_delivery_attempts": -1}}, store=store)
        restore(self.world.office, store.state)
        self.world.resources.restore(store.state)
        settle(self.world.office, "$.internal.")

    def open_all(self) -> None:
        self.producer = self.world.session()
        self.readers = [self.opened(number) for number in range(CONSUMERS)]

    def opened(self, number: int) -> Reader:
        session = self.world.session(callback=Recording(self, number), transacted=True)
        session.consumers.create(0, "q")
        return Reader(session)

    # -- steps ----------------------------------------------------------------------------------

    def send(self, key: str | None) -> None:
        number = len(self.keys)
        self.keys.append(key)
        properties = {} if key is None else {LAST_VALUE: key}

        def done(error: object) -> None:
            assert error is None
            self.confirmed.add(number)
            self.arrived(number)

        self.producer.sends.send(text(str(number), properties=properties), done)

    def arrived(self, number: int) -> None:
        key = self.keys[number]
        if "last_value" in self.kind and key is not None:
            self.waiting = {each for each in self.waiting if self.keys[each] != key}
        self.waiting.add(number)
        if "ring_size" in self.kind and len(self.waiting) > RING:
            self.waiting.remove(min(self.waiting))

    def delivered(self, reader: int, number: int, message_id: int) -> None:
        each = self.readers[reader]
        assert number in self.waiting, f"{number} does not wait"
        assert number not in each.seen
        if "non_destructive" not in self.kind:
            self.waiting.remove(number)
        each.outstanding.append(number)
        each.seen.add(number)
        self.ids[number] = message_id

    def turn(self) -> None:
        self.world.turn()
        self.world.store.flush()

    def sync(self) -> None:
        self.turn()
        self.rig.time.advance(10)

    def settle(self) -> None:
        store = self.world.store
        while True:
            self.turn()
            if store.context.durable >= store.last_sequence and not self.world.office.dirty:
                return
            self.rig.time.advance(10)

    def round(self, key: str, reader: int) -> None:
        """One of two messages is delivered, the other waits."""
        self.send(key)
        self.sync()
        self.credits(reader, 0)
        self.credits(reader, 5)
        self.sync()
        self.send(key)
        self.send(None)
        self.sync()

    def credits(self, reader: int, credit_bytes: int) -> None:
        self.readers[reader].session.consumers.receive_credits(0, credit_bytes)

    def acknowledge(self, reader: int) -> None:
        each = self.readers[reader]
        if each.outstanding:
            number = each.outstanding.pop(0)
            each.session.acknowledge(0, self.ids[number])
            each.acknowledged.append(number)

    def commit(self, reader: int) -> None:
        each = self.readers[reader]
        each.session.commit()
        if "non_destructive" not in self.kind:
            self.settled.update(each.acknowledged)
        each.acknowledged = []

    def roll_back(self, reader: int) -> None:
        each = self.readers[reader]
        returned = [*each.acknowledged, *each.outstanding]
        each.acknowledged, each.outstanding = [], []
        each.seen.difference_update(returned)
        self.give_back(returned)
        each.session.rollback()

    def reopen(self, reader: int, failed: bool) -> None:
        each = self.readers[reader]
        self.give_back([*each.acknowledged, *each.outstanding])
        each.session.close(failed=failed)
        self.readers[reader] = self.opened(reader)

    def give_back(self, returned: list[int]) -> None:
        if "non_destructive" in self.kind:
            return
        self.waiting.update(returned)
        if "last_value" in self.kind:
            newest: dict[str, int] = {}
            for number in sorted(self.waiting):
                newest[self.keys[number] or f"no key {number}"] = number
            self.waiting = set(newest.values())
        if "ring_size" in self.kind:
            for number in returned:
                if len(self.waiting) > RING:
                    self.waiting.discard(number)

    def crash(self, power_loss: bool) -> None:
        held = {number for each in self.readers for number in (*each.outstanding, *each.acknowledged)}
        expected = self.waiting | (held - self.settled if "non_destructive" not in self.kind else set())
        self.rig.die(power_loss=power_loss)
        self.start()
        self.queue = self.world.office.directory.queues["q"]
        found = set(self.found())
        self.check_takeover(expected, found)
        self.waiting = found
        self.settled -= found
        self.open_all()

    def check_takeover(self, expected: set[int], found: set[int]) -> None:
        """A message that was confirmed and not consumed is in the queue, or a younger one that replaces it."""
        for number in expected - found:
            replaced = any(self.replaces(other, number) for other in found)
            made_room = "ring_size" in self.kind and len(found) == RING and number < min(found)
            assert replaced or made_room, f"{number} is lost"
        if "ring_size" in self.kind:
            assert len(found) <= RING
        if "last_value" in self.kind:
            keys = [self.keys[number] for number in found if self.keys[number] is not None]
            assert len(keys) == len(set(keys))

    def replaces(self, other: int, number: int) -> bool:
        return "last_value" in self.kind and other > number and self.keys[other] == self.keys[number] is not None

    # -- invariants -----------------------------------------------------------------------------

    def found(self) -> list[int]:
        return [int(self.queue.read(reference).body) for _, reference in self.queue.browse((9, -1))]

    def check(self) -> None:
        queue = self.queue
        assert self.found() == sorted(self.waiting)
        left = queue.messages_acknowledged + queue.messages_replaced + queue.messages_killed + queue.messages_expired
        assert queue.messages_added == left + queue.message_count
        non_destructive = "non_destructive" in self.kind
        assert queue.message_count == len(queue.pending) + (0 if non_destructive else queue.delivering_count)

    def drain(self) -> None:
        """Every consumer receives all messages to the end."""
        for number in range(CONSUMERS):
            self.roll_back(number)
            self.credits(number, -1)
        self.settle()
        for number, each in enumerate(self.readers):
            if "non_destructive" in self.kind:
                assert self.waiting <= each.seen, "every consumer receives every message"
            while each.outstanding:
                self.acknowledge(number)
            self.commit(number)
        self.settle()
        self.check()
        assert self.queue.delivering_count == 0
        if "non_destructive" not in self.kind:
            assert self.queue.message_count == 0
        assert self.world.office.memory.held_count == sum(
            reference.message is not None for reference in self.queue.pending
        )


@pytest.fixture(autouse=True)
def _cut_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken entries are cut off, and waiting ones become blocks, at once, as in long queues only."""
    for name, small in {
        "BLOCK": 2,
        "OBJECT_BLOCKS": 2,
        "SHORT_BLOCKS": 3,
        "OPEN_BLOCKS": 1,
        "MEMORY_BLOCKS": 2,
    }.items():
        monkeypatch.setattr(level, f"_{name}", small)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 3), STEPS, st.integers(0, 1 << 16))
def test_random_work_and_crashes(kind: dict[str, Any], rounds: int, steps: list[tuple[Any, ...]], seed: int) -> None:
    model = Model(kind, seed)
    for name, *arguments in [("round", "a", number % 2) for number in range(rounds)] + steps:
        getattr(model, name)(*arguments)
        model.check()
    model.drain()
