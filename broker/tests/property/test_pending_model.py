"""The references of a queue against a plain sorted list, however they are stored.

Goal: whatever is appended, taken, put back, taken from the middle, expired or drained, the order
is that of priority and arrival; returned messages come back unchanged; nothing is lost, doubled
or kept in a page file for nothing. Method: random steps at tiny limits, so that a few dozen
references make blocks that are open, packed, spilled to a simulated disk, and read back.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from support.sends import sends_of
from understudy.kernel.log import LogPosition, Run, append_sends, join_runs, keep_sends
from understudy.message import LargeMessage, Message
from understudy.routing.queues import level as levels
from understudy.routing.queues.pending import PendingMessages
from understudy.store.messages import backlog
from understudy.store.messages.backlog import Backlog
from understudy.store.messages.pages import PageChain, Pages
from understudy.store.messages.reference import MessageReference, RunSlice, pack_location, reference_to
from understudy.testing.sim.disk import SimVolume

Key = tuple[int, int]
"""Minus the priority, number of arrival: the order of delivery."""

RUNS = ("plain", "plain", "plain", "expiring", "grouped", "durable elsewhere", "paged", "paged and expiring")
"""The special property of the messages of a run."""

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 12), st.integers(0, 3)),
        st.tuples(st.just("append"), st.integers(1, 12), st.just(0)),
        st.tuples(st.just("run"), st.integers(1, 12), st.booleans(), st.sampled_from(RUNS)),
        st.tuples(st.just("pop"), st.integers(1, 10)),
        st.tuples(st.just("pop run"), st.integers(0, 400), st.integers(0, 6), st.sampled_from((None, False, True))),
        st.tuples(st.just("pop stored"), st.integers(0, 400), st.integers(0, 6), st.sampled_from((None, False, True))),
        st.tuples(st.just("let go"), st.integers(1, 900), st.integers(0, 4)),
        st.tuples(st.just("row"), st.integers(0, 60), st.booleans()),
        st.tuples(st.just("row"), st.integers(0, 5), st.just(True)),
        st.tuples(st.just("put back"), st.integers(0, 7), st.booleans()),
        st.tuples(st.just("middle"), st.integers(0, 60), st.booleans()),
        st.tuples(st.just("browse")),
        st.tuples(st.just("scan"), st.integers(0, 60)),
        st.tuples(st.just("overdue"), st.integers(0, 6), st.integers(1, 9)),
        st.tuples(st.just("full disk"), st.booleans()),
        st.tuples(st.just("settle"), st.integers(0, 5)),
        st.tuples(st.just("drain")),
    ),
    max_size=60,
)


@dataclass
class Model:
    """The structure, and what should be in it."""

    start: list[tuple[int, bool]] = field(default_factory=list)
    """Priorities of the messages taken over at the beginning, and whether each was acknowledged since."""

    def __post_init__(self) -> None:
        self.volume = SimVolume()
        self.pages = Pages(self.volume.disk("a"), "/paging", 1)
        self.chain: PageChain = self.pages.chain(0)
        self.waiting = PendingMessages(self.chain)
        self.expected: dict[Key, dict[str, Any]] = {}
        self.out: dict[Key, MessageReference] = {}
        self.keys: dict[int, Key] = {}
        self.logged: dict[int, tuple[Run, int]] = {}
        """Runs in the log, and rows, by message id."""
        self.adopted: dict[int, list[Key]] = {}
        """Messages taken over, by priority: each key at its position."""
        log = Backlog()
        for number, (priority, _) in enumerate(self.start):
            reference = self.make(priority, number % 4, None)
            log.append_reference(reference)
        for message_id, (_, acknowledged) in enumerate(self.start, 1):
            if acknowledged:
                assert log.remove(message_id)
                del self.expected[self.keys[message_id]]
        assert log.count == len(self.expected)
        self.adopted = {priority: self.blocks_left(priority) for priority in (4, 9)}
        self.waiting.adopt(log)
        self.check()

    def blocks_left(self, priority: int) -> list[Key]:
        """Keys of a priority in blocks of the log, without the blocks of which every message was acknowledged: the
        log drops these, so they have no positions in a queue that takes over the others.
        """
        keys = [key for key in self.keys.values() if -key[0] == priority]
        size = backlog.BLOCK_REFERENCES
        blocks = [keys[start : start + size] for start in range(0, len(keys), size)]
        return [key for block in blocks if any(key in self.expected for key in block) for key in block]

    def places(self, priority: int) -> list[Key]:
        """Keys of a priority, each at its position, whether it waits or not."""
        later = [key for key in self.keys.values() if -key[0] == priority and key[1] > len(self.start)]
        return self.adopted[priority] + later

    def make(self, priority: int, flavour: int, message: Message | None) -> MessageReference:
        message_id = len(self.keys) + 1
        location = None if flavour == 3 else pack_location(flavour, 100 * message_id, 50 + flavour)
        file_id = message_id // 2 if message_id % 5 == 0 else None
        reference = reference_to(
            file_id, message_id, priority, flavour, 0, 10 + flavour, location is not None, location, message
        )
        key = self.keys[message_id] = (-priority, message_id)
        self.expected[key] = {
            "expiration": flavour, "size_bytes": 10 + flavour, "location": location,
            "durable": location is not None, "delivery_count": 0, "file_id": file_id,
            "body": message.encoded if message else None,
        }  # fmt: skip
        return reference

    def step(self, kind: str, *arguments: Any) -> None:
        getattr(self, kind.replace(" ", "_"))(*arguments)
        self.check()

    def append(self, count: int, flavour: int) -> None:
        for number in range(count):
            # as ``make`` has it, each fifth is large
            kind = Message if (len(self.keys) + 1) % 5 else LargeMessage
            message = kind(str(number).encode()) if flavour == 2 else None
            self.waiting.append(self.make(9 if flavour == 1 and not number % 3 else 4, flavour, message))

    def run(self, count: int, durable: bool, kind: str) -> None:
        """Messages that came together."""
        expirations = [number % 7 if "expiring" in kind else 0 for number in range(count)]
        properties = {"_AMQ_GROUP_ID": "g"} if kind == "grouped" else None
        sends = sends_of(
            [
                Message(
                    str(number).encode(), address="a", durable=durable, expiration=expiration, properties=properties
                )
                for number, expiration in enumerate(expirations)
            ]
        )
        first_id = len(self.keys) + 1
        if durable:
            position = LogPosition(7, 1000 * first_id, 1 << 40, 0, 0, 0)
            run = append_sends([(sends, 0, count)], first_id, 1, (1,), 0, position)
        else:
            run = keep_sends([(sends, 0, count)], first_id)
        here = kind != "durable elsewhere"
        paged = durable and kind.startswith("paged")
        for message_id, expiration in enumerate(expirations, start=first_id):
            key = self.keys[message_id] = (-4, message_id)
            place = pack_location(7, *run.place(message_id - first_id)) if durable and here else None
            body = run.encoded(message_id - first_id)
            if durable:
                self.logged[message_id] = run, message_id - first_id
            assert Message.decode(body).message_id == message_id
            self.expected[key] = {
                "expiration": expiration, "size_bytes": len(body), "location": place, "durable": durable and here,
                "delivery_count": 0, "file_id": None, "body": None if paged else body,
            }  # fmt: skip
        part = RunSlice(run, 0, count, 4, -1, durable=here, shared=None if here else {})
        if paged:
            part.let_go()
        assert self.waiting.level(4).add(part) == (count, sum(each > 0 for each in expirations))

    def pop_run(self, room_bytes: int, now_ms: int, may_take: bool | None) -> None:
        """Take the messages that one consumer gets at once; ``may_take``: whether messages of groups are taken."""
        level = self.waiting.first_level()
        if level is None:
            return
        asked: list[list[str]] = []

        def allowed(groups: list[str]) -> bool:
            asked.append(groups)
            return bool(may_take)

        taken = level.take_plain(room_bytes, 25, now_ms, allowed if may_take is not None else None)
        if asked:
            assert asked == [["g"]]
            assert bool(taken) == may_take
        elif isinstance(taken, RunSlice):
            assert not taken.run.grouped
        for count, reference in enumerate(taken, 1):
            self.took(reference, min(self.expected))
            assert room_bytes > 0, f"message {count} without credits for it"
            assert not 0 < reference.expiration <= now_ms
            room_bytes -= reference.size_bytes + 25

    def pop_stored(self, room_bytes: int, now_ms: int, may_take: bool | None) -> None:
        """Take the messages that one consumer gets at once, if the log alone has their bodies."""
        level = self.waiting.first_level()
        stored = level.stored() if level is not None else None
        if level is None or stored is None:
            return
        columns, row, end = stored
        ids = list(columns.ids[row:end])
        waiting = [key for key in sorted(self.expected) if key[0] == -level.priority]
        assert [self.keys[each] for each in ids] == waiting[: len(ids)]
        assert all(self.expected[self.keys[each]]["body"] is None for each in ids)
        rows = []
        for message_id in ids:
            if message_id not in self.logged:
                break
            rows.append(self.logged[message_id])
        if not rows:
            return
        run = join_runs([(each, number, number + 1) for each, number in rows])
        allowed = (lambda groups: bool(may_take)) if may_take is not None else None
        taken = level.take_stored((run, 0, run.count), room_bytes, 25, now_ms, allowed)
        assert not (taken and run.grouped and not may_take)
        for count, (reference, body) in enumerate(zip(taken, taken.encoded, strict=True), 1):
            assert Message.decode(body).message_id == reference.message_id
            self.took(reference, min(self.expected))
            assert room_bytes > 0, f"message {count} without credits for it"
            assert not 0 < reference.expiration <= now_ms
            room_bytes -= reference.size_bytes + 25
        if taken:
            assert taken.sums[2:] == taken.part(0, 1).sums[2:] == taken.kept().sums[2:] == (0, 0)

    def let_go(self, wanted_bytes: int, rest: int) -> None:
        """Bodies leave memory, but for those of blocks with an id that is a multiple of ``rest``."""
        before = {each.message_id: each for each in self.waiting}
        count = size_bytes = 0
        for level in self.waiting.levels:
            found = level.let_go_last(
                wanted_bytes, lambda first, last: not rest or all(each % rest for each in range(first, last + 1))
            )
            count, size_bytes = count + found[0], size_bytes + found[1]
        gone = [
            each.message_id
            for each in self.waiting
            if each.message is None and before[each.message_id].message is not None
        ]
        assert len(gone) == count
        assert sum(before[each].size_bytes for each in gone) == size_bytes
        for message_id in gone:
            assert not rest or message_id % rest
            expected = self.expected[self.keys[message_id]]
            assert expected["location"] is not None
            expected["body"] = None

    def row(self, position: int, take: bool) -> None:
        """Check the message after a position, as a row of a run."""
        for level in self.waiting.levels:
            places = enumerate(self.places(level.priority))
            following = [(place, key) for place, key in places if place >= position and key in self.expected]
            part = level.next_row(position)
            if part is None:
                continue
            place, key = min(following)
            assert (len(part), part.position, self.keys[part.ids[0]]) == (1, place, key)
            if take:
                level.remove(part.position)
                self.took(part[0], key)

    def took(self, reference: MessageReference | None, key: Key) -> None:
        assert reference is not None
        assert self.keys[reference.message_id] == key
        self.same(reference, self.expected.pop(key))
        self.out[key] = reference

    def same(self, reference: MessageReference, expected: dict[str, Any]) -> None:
        body = reference.message.encoded if reference.message is not None else None
        found = {name: getattr(reference, name, None) for name in expected if name != "body"} | {"body": body}
        assert found == expected
        if reference.message is not None:
            assert reference.message.is_large == (expected["file_id"] is not None)

    def pop(self, count: int) -> None:
        for _ in range(count):
            level = self.waiting.first_level()
            assert (level is None) == (not self.expected)
            if level is not None:
                self.took(level.pop(), min(self.expected))

    def put_back(self, count: int, first: bool) -> None:
        """Deliveries that failed; some of them count."""
        keys = sorted(self.out)[:count] if first else sorted(self.out)[-count or len(self.out) :]
        back = [self.out.pop(key) for key in keys]
        for number, reference in enumerate(back):
            reference.delivery_count += number % 2
            expected = {
                name: getattr(reference, name, None)
                for name in ("expiration", "size_bytes", "location", "durable", "delivery_count", "file_id")
            }
            body = reference.message.encoded if reference.message is not None else None
            self.expected[self.keys[reference.message_id]] = expected | {"body": body}
        self.waiting.requeue(back)

    def settle(self, count: int) -> None:
        for key in sorted(self.out)[:count]:
            del self.out[key]

    def middle(self, skip: int, last: bool) -> None:
        """A selector that matches only the message after ``skip`` others."""
        keys = sorted(self.expected)
        if not keys:
            return
        key = keys[-1] if last else keys[min(skip, len(keys) - 1)]
        level = self.waiting.level(-key[0])
        position = -1
        while True:
            reference = level.next_from(position)
            assert reference is not None
            if self.keys[reference.message_id] == key:
                break
            position = reference.position + 1
        level.remove(reference.position)
        self.took(reference, key)

    def scan(self, steps: int) -> None:
        """``locations_behind`` gives the places of the following messages, or none."""
        for level in self.waiting.levels:
            position = -1
            for _ in range(steps):
                reference = level.next_from(position)
                if reference is None:
                    break
                position = reference.position + 1
                listed = level.locations_behind(reference.position)
                following = level.next_from(position)
                ahead = next(listed, "nothing")
                if ahead != "nothing" and following is not None:
                    assert ahead == (following.location if following.message is None else None)

    def browse(self) -> None:
        for reference, key in zip(self.waiting, sorted(self.expected), strict=True):
            assert self.keys[reference.message_id] == key
            self.same(reference, self.expected[key])

    def overdue(self, now_ms: int, limit: int) -> None:
        due = [key for key, each in self.expected.items() if 0 < each["expiration"] <= now_ms]
        taken = self.waiting.take_overdue(now_ms, limit)
        assert len(taken) >= min(limit, len(due))
        assert (len(taken) == 0) == (len(due) == 0)
        for reference in taken:
            key = self.keys[reference.message_id]
            assert key in due
            self.same(reference, self.expected.pop(key))

    def full_disk(self, full: bool) -> None:
        self.volume.capacity_bytes = self.volume.used_bytes() if full else 1 << 40

    def drain(self) -> None:
        taken = [reference for part in self.waiting.drain() for reference in part]
        assert [self.keys[each.message_id] for each in taken] == sorted(self.expected)
        for reference in taken:
            self.same(reference, self.expected.pop(self.keys[reference.message_id]))

    def check(self) -> None:
        assert len(self.waiting) == len(self.expected)
        for level in self.waiting.levels:
            position = 0
            for block in level.blocks:
                assert block.count == len([*block.references()]) > 0
                assert block.base >= position
                position = block.base + block.size
            assert position <= level.end - sum(map(len, level._loose))
            assert level.count == sum(block.count for block in level.blocks) + sum(map(len, level._loose))
        spilled = sum(block.spilled for level in self.waiting.levels for block in level.blocks)
        assert sum(self.pages.page_file(number).uses for number in self.pages._files) == spilled


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "_BLOCK", 8)
    monkeypatch.setattr(levels, "_SHORT", 3)
    monkeypatch.setattr(levels, "_LOOSE_MAX", 4)
    monkeypatch.setattr(levels, "_SHORT_BLOCKS", 3)
    monkeypatch.setattr(levels, "_OBJECT_BLOCKS", 2)
    monkeypatch.setattr(levels, "_OPEN_BLOCKS", 1)
    monkeypatch.setattr(levels, "_MEMORY_BLOCKS", 2)
    monkeypatch.setattr(backlog, "BLOCK_REFERENCES", 3)


@example([(4, True)], [("run", 1, False, "plain"), ("row", 0, True)])
@example([(4, True)] * 3 + [(4, False)] * 3, [("run", 2, True, "plain"), ("row", 0, False), ("row", 4, True)])
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from([4, 4, 4, 9]), st.booleans()), max_size=40), STEPS)
def test_order_and_contents_are_those_of_a_sorted_list(
    start: list[tuple[int, bool]], steps: list[tuple[Any, ...]]
) -> None:
    model = Model(start)
    for step in steps:
        model.step(*step)
    model.step("browse")
    model.step("put back", len(model.out), True)
    model.step("drain")


@pytest.mark.parametrize("seed", range(80))
def test_long_work_on_runs(seed: int) -> None:
    """Mostly runs, of which slices, and messages from the middle, are taken and put back."""
    stream = random.Random(seed)
    model = Model([])
    kinds = stream.choices(RUNS, k=2)
    for _ in range(80):
        choice = stream.random()
        if choice < 0.2:
            model.step("run", stream.randrange(3, 13), stream.random() < 0.5, stream.choice(kinds))
        elif choice < 0.45:
            model.step(
                "pop run", stream.randrange(0, 400), stream.randrange(7), stream.choice((None, False, True, True))
            )
        elif choice < 0.55:
            model.step(
                "pop stored", stream.randrange(0, 400), stream.randrange(7), stream.choice((None, False, True, True))
            )
        elif choice < 0.62:
            model.step("let go", stream.randrange(1, 900), stream.choice((0, 0, 0, 2, 5)))
        elif choice < 0.85:
            model.step("row", stream.randrange(len(model.keys) + 2), stream.random() < 0.9)
        elif choice < 0.9:
            model.step("put back", stream.randrange(3), stream.random() < 0.5)
        elif choice < 0.95:
            model.step("settle", stream.randrange(10))
        elif choice < 0.97:
            model.step("append", stream.randrange(1, 4), stream.randrange(4))
        else:
            others = (("browse",), ("scan", 9), ("pop", 2), ("overdue", 3, 5), ("middle", 5, False), ("drain",))
            model.step(*stream.choice(others))
    model.step("browse")
    model.step("put back", len(model.out), True)
    model.step("drain")
