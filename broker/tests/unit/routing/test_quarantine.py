"""Messages whose stored bytes are damaged: set aside, wherever they are met, and their neighbours are served."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from support.routing import FakeCallback, World, callback_of, text
from support.store import DIRECTORY, StoreHarness
from understudy.errors import DescriptorsExhausted, DiskFailed, DiskFull, SegmentMissing
from understudy.management.operations import queue_messages as messages
from understudy.message import Message
from understudy.ports import File
from understudy.routing.lifecycle import quarantine as quarantine_module
from understudy.routing.lifecycle.quarantine import DISK_AGAIN_MS, NEVER_MS, STANDSTILL_TRIES
from understudy.routing.queues.queue import Queue
from understudy.routing.queues.waiting_messages import act_on
from understudy.routing.restore import restore, settle
from understudy.store.log.segment import parse_name
from understudy.store.messages.read_back import ReadBack
from understudy.store.messages.reference import Location, unpack_location
from understudy.store.quarantine import entry_names, quarantine_path, read_entries
from understudy.terms import RoutingType
from understudy.tools.inspect import verify
from understudy.tools.log_copy import CopyState, LogCopy


class Node:
    """A post office on the store of a rig; bodies leave memory at once."""

    runs = False
    """Whether consumers take several messages together."""

    def __init__(self, rig: StoreHarness, owner: str, **settings: object) -> None:
        self.rig = rig
        self.store = rig.activate(owner)
        self.world = World({"#": {"max_size_bytes": 0, **settings}}, store=self.store)
        restore(self.world.office, self.store.state)
        settle(self.world.office, "$.internal.")

    def settle(self) -> None:
        while True:
            self.world.turn()
            self.store.flush()
            if self.store.context.durable >= self.store.last_sequence and not self.world.office.dirty and self.rig.idle:
                return
            self.rig.time.advance(10)

    def queue(self, name: str = "q", **options: object) -> Queue:
        found = self.world.office.directory.find_queue(name)
        return found if found is not None else self.world.queue(name, **options)

    def fill(self, *bodies: str, queue: str = "q", **options: object) -> None:
        session = self.world.session()
        for body in bodies:
            session.sends.send(text(body, queue, **options))  # type: ignore[arg-type]
        self.settle()

    def damage(self, position: int, queue: str = "q") -> None:
        """Flip a bit in the body of a waiting message."""
        found = self.queue(queue)
        reference = list(found.pending)[position]
        assert reference.location is not None
        damage(self.rig, *unpack_location(reference.location))

    def reader(self, queue: str = "q", selector: str | None = None, **options: object):  # type: ignore[no-untyped-def]
        session = self.world.session(callback=FakeCallback(runs=self.runs))
        session.consumers.create(0, queue, selector, **options)  # type: ignore[arg-type]
        session.consumers.receive_credits(0, -1)
        return session


def damage(rig: StoreHarness, number: int, offset: int, length: int) -> None:
    (path,) = [path for path in rig.segments() if (parse_name(path.rsplit("/", 1)[1]) or (0,))[0] == number]
    rig.volume.flip_bit(path, offset + length - 2, 3)


def bodies(session) -> list[bytes]:  # type: ignore[no-untyped-def]
    return callback_of(session).bodies()


def books(queue: Queue) -> tuple[int, int, int]:
    return queue.message_count, queue.delivering_count, queue.scheduled_count


@pytest.fixture(params=[False, True], ids=["one by one", "together"])
def node(request: pytest.FixtureRequest) -> Node:
    """``together``: its consumers take runs."""
    made = Node(StoreHarness(random.Random(1)), "a")
    made.runs = request.param
    made.queue()
    return made


def consume(node: Node) -> list[bytes]:
    session = node.reader()
    node.settle()
    return bodies(session)


def consume_selected(node: Node) -> list[bytes]:
    session = node.reader(selector="x IS NULL")
    node.settle()
    return bodies(session)


def receive_without_waiting(node: Node) -> list[bytes]:
    session = node.reader()
    session.consumers.force_delivery(0, 7)
    node.settle()
    assert [sequence for _, sequence, _ in callback_of(session).forced] == [7], "the marker comes"
    return bodies(session)


def browse(node: Node) -> list[bytes]:
    session = node.reader(browse_only=True)
    session.consumers.force_delivery(0, 8)
    node.settle()
    assert [sequence for _, sequence, _ in callback_of(session).forced] == [8]
    found = bodies(session)
    session.consumers.close(0)
    assert consume(node) == found
    return found


def manage(act: str) -> Callable[[Node], list[bytes]]:
    def meet(node: Node) -> list[bytes]:
        office, queue = node.world.office, node.queue()
        if act == "list":
            shown = run(messages.page(queue, lambda reference: True, 0, 100, messages.show))
            assert len(shown) == 2
        elif act == "count":
            assert run(messages.count(queue, messages.wanted_by(queue, "x IS NULL"))) == 2
        elif act == "move":
            target = node.queue("target")
            assert (
                run(act_on(queue, lambda r: True, messages.move(office, queue, target, lambda address, name: None)))
                == 2
            )
            node.settle()
            session = node.reader("target")
            node.settle()
            return bodies(session)
        elif act == "first":
            assert messages.first(queue) is not None
        elif act == "priority":
            assert run(act_on(queue, lambda r: True, messages.change_priority(office, queue, 4))) == 2
        node.settle()
        return consume(node)

    return meet


def run(steps):  # type: ignore[no-untyped-def]
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


MEETINGS = {
    "consumer": consume,
    "selector": consume_selected,
    "receive without waiting": receive_without_waiting,
    "browser": browse,
    **{f"management {act}": manage(act) for act in ("list", "count", "move", "first", "priority")},
}


@pytest.mark.parametrize(
    ("meeting", "position"),
    # the operation "first" reads one message only
    [(meeting, place) for meeting in MEETINGS for place in range(1 if meeting == "management first" else 3)],
)
def test_a_damaged_message_is_set_aside_and_its_neighbours_are_served(node: Node, meeting: str, position: int) -> None:
    texts = ["a", "b", "c"]
    node.fill(*texts)
    node.damage(position)
    del texts[position]
    assert MEETINGS[meeting](node) == [body.encode() for body in texts]
    assert node.rig.failures == []
    (entry,) = node.store.quarantine.entries()
    assert (entry.queue, entry.kind, entry.held, entry.durable) == ("q", "message", False, True)
    assert f"at offset {entry.offset}" in entry.reason
    (name,) = entry_names(node.rig.disk("look"), DIRECTORY)
    content = node.rig.volume.content(f"{quarantine_path(DIRECTORY)}/{name}")
    assert len(content.partition(b"\n")[2]) == entry.length, "the bytes are kept"
    queue = node.queue()
    if "move" not in meeting:
        assert books(queue) == (2, 2, 0)
    assert queue.address.message_count == queue.message_count

    report = verify(node.rig.disk("look"), DIRECTORY)
    assert report.problems == ()
    assert report.quarantine == (entry,)

    # the damage is still in the segment: a cold restart, a follower and another restart must all do
    node.rig.die(power_loss=False)
    assert LogCopy(node.rig.disk("look"), DIRECTORY, full=True).state in (CopyState.WHOLE, CopyState.CUT)
    for owner in ("b", "c"):
        successor = Node(node.rig, owner)
        assert [each.entry_id for each in successor.store.quarantine.entries()] == [entry.entry_id]
        served = successor.reader("target" if "move" in meeting else "q")
        successor.settle()
        assert sorted(bodies(served)) == sorted(body.encode() for body in texts)
        assert books(served.consumers.by_id[0].queue) == (2, 2, 0)
        node.rig.die(power_loss=False)


def test_one_in_two_queues_is_set_aside_in_each(node: Node) -> None:
    for name in ("t", "u"):
        node.queue(name, address="news", routing_type=RoutingType.MULTICAST)
    node.fill("a", "b", queue="news")
    node.damage(0, "t")
    for name in ("t", "u"):
        session = node.reader(name)
        node.settle()
        assert bodies(session) == [b"b"]
    assert sorted(entry.queue for entry in node.store.quarantine.entries()) == ["t", "u"]
    assert node.world.office.memory.held_bytes == 0


@pytest.mark.parametrize("departure", ["dead letter", "expiry"])
def test_one_that_should_leave_for_another_address_is_set_aside(departure: str) -> None:
    node = Node(
        StoreHarness(random.Random(2)), "a", max_delivery_attempts=1, dead_letter_address="DLQ", expiry_address="DLQ"
    )
    node.queue()
    node.queue("DLQ")
    if departure == "expiry":
        node.fill("a", "b", "c", expiration=node.world.clock.now_ms + 1000)
        node.damage(1)
        node.world.clock.advance(40_000)
    else:
        node.fill("a", "b", "c")
        session = node.reader()
        node.settle()
        assert len(bodies(session)) == 3
        (_, reference, _) = session.consumers.by_id[0].delivering.values()
        assert reference.location is not None
        damage(node.rig, *unpack_location(reference.location))
        node.world.office.paging.forget_readers(node.queue())
        session.close(failed=True)
    node.settle()
    dead = node.reader("DLQ")
    node.settle()
    assert bodies(dead) == [b"a", b"c"]
    assert books(node.queue()) == (0, 0, 0)
    assert [entry.queue for entry in node.store.quarantine.entries()] == ["q"]


@pytest.mark.parametrize("kind", [{"non_destructive": True}, {"last_value": True}, {"ring_size": 10}])
def test_queues_of_special_kinds(kind: dict[str, object]) -> None:
    node = Node(StoreHarness(random.Random(3)), "a")
    queue = node.queue(**kind)
    session = node.world.session()
    for name in "abc":
        session.sends.send(text(name, properties={"_AMQ_LVQ_NAME": name}))
    node.settle()
    node.damage(1)
    reader = node.reader()
    node.settle()
    assert bodies(reader) == [b"a", b"c"]
    assert queue.message_count == 2
    assert node.rig.failures == []


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[int]]:
    """Offsets in the log at which the disk reports an error."""
    offsets: set[int] = set()
    original = ReadBack._fetch

    def fetch(self: ReadBack, number: int, at: int, length: int) -> bytes:
        if any(at <= offset < at + length for offset in offsets):
            raise DiskFailed("cannot read: Input/output error")
        return original(self, number, at, length)

    def fetch_again(self: ReadBack, location: Location) -> Message:
        return self._decode(location, self._fetch(*unpack_location(location)))

    monkeypatch.setattr(ReadBack, "_fetch", fetch)
    monkeypatch.setattr(ReadBack, "_read_again", fetch_again)
    yield offsets
    offsets.clear()


def offset_of(node: Node, position: int) -> int:
    location = list(node.queue().pending)[position].location
    assert location is not None
    return unpack_location(location)[1]


def let_pass(node: Node, duration_ms: int) -> None:
    for _ in range(duration_ms // 1_000):
        node.world.clock.advance(1_000)
        node.settle()


def test_a_queue_stands_still_while_its_disk_fails_for_a_moment(node: Node, unreadable: set[int]) -> None:
    """Later messages, which were in memory, overtook the others, which an operator had to release (seed 320050)."""
    node.fill("a", "b", "c")
    unreadable.add(offset_of(node, 1))
    session = node.reader()
    node.settle()
    let_pass(node, 3_000)
    assert bodies(session) == [b"a"]
    assert node.store.quarantine.entries() == []
    unreadable.clear()
    let_pass(node, 1_000)
    assert bodies(session) == [b"a", b"b", b"c"]
    assert node.store.quarantine.entries() == []
    assert node.world.office.damaged.stopped == {}


def test_after_ten_attempts_the_next_messages_of_a_disk_are_held_at_once(node: Node, unreadable: set[int]) -> None:
    node.fill("a", "b", "c", "d")
    unreadable.update(offset_of(node, position) for position in (0, 1, 2))
    session = node.reader()
    node.settle()
    let_pass(node, STANDSTILL_TRIES * DISK_AGAIN_MS)
    assert bodies(session) == [b"d"]
    assert [entry.held for entry in node.store.quarantine.entries()] == [True] * 3


def test_a_queue_that_is_deleted_while_its_disk_fails_takes_the_message_along(node: Node, unreadable: set[int]) -> None:
    node.fill("a", "b")
    unreadable.add(offset_of(node, 0))
    session = node.reader()
    node.settle()
    assert node.world.office.damaged.stopped
    session.consumers.close(0)
    node.world.office.directory.delete_queue("q", disconnect=True)
    let_pass(node, 2_000)
    assert node.world.office.damaged.stopped == {}
    assert node.store.quarantine.entries() == []


def test_what_the_disk_cannot_read_is_held_until_the_next_activation(node: Node, unreadable: set[int]) -> None:
    node.fill("a", "b", "c")
    unreadable.add(offset_of(node, 1))
    session = node.reader()
    node.settle()
    let_pass(node, STANDSTILL_TRIES * DISK_AGAIN_MS)
    assert bodies(session) == [b"a", b"c"]
    assert books(node.queue()) == (3, 2, 1)
    (entry,) = node.store.quarantine.entries()
    assert entry.held
    unreadable.clear()
    node.rig.die(power_loss=False)
    successor = Node(node.rig, "b")
    assert successor.store.quarantine.entries() == []
    assert consume(successor) == [b"a", b"b", b"c"]


def test_a_segment_that_was_removed_ends_the_node_and_writes_no_entry(node: Node) -> None:
    """The next owner of the store may have removed it: the messages are not damaged, and the quarantine is theirs."""
    node.fill("a", "b")
    for path in node.rig.segments():
        node.rig.volume.disk("b").remove(path)
    node.reader()
    with pytest.raises(SegmentMissing):
        node.settle()
    assert node.store.quarantine.entries() == []


def test_want_of_descriptors_says_nothing_about_a_message(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.fill("a", "b")

    def fetch(*arguments: object) -> bytes:
        raise DescriptorsExhausted("Too many open files, and the reserve is used up")

    with monkeypatch.context() as patched:
        patched.setattr(type(node.store.read_back), "_fetch", fetch)
        assert consume(node) == []
    assert books(node.queue()) == (2, 0, 2)
    assert node.store.quarantine.entries() == []
    node.world.clock.advance(10_000)
    node.settle()
    assert books(node.queue()) == (2, 2, 0)


def test_a_full_disk_leaves_the_message_out_of_reach_until_its_entry_is_written(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.fill("a", "b")
    node.damage(0)
    full = True
    original = type(node.rig.disk("a")).open

    def open_file(self, path: str, *, create: bool = False, read_only: bool = False) -> File:  # type: ignore[no-untyped-def]
        if full and create and "quarantine" in path:
            raise DiskFull("disk full")
        return original(self, path, create=create, read_only=read_only)

    monkeypatch.setattr(type(node.rig.disk("a")), "open", open_file)
    assert consume(node) == [b"b"]
    assert books(node.queue()) == (2, 1, 1)
    assert [node.store.quarantine.is_stored(entry.entry_id) for entry in node.store.quarantine.entries()] == [False]
    full = False
    node.store.check_disk()
    node.settle()
    assert books(node.queue()) == (1, 1, 0)
    assert [node.store.quarantine.is_stored(entry.entry_id) for entry in node.store.quarantine.entries()] == [True]


def test_an_entry_can_be_dropped_and_the_store_still_opens(node: Node) -> None:
    node.fill("a", "b")
    node.damage(0)
    assert consume(node) == [b"b"]
    (entry,) = node.store.quarantine.entries()
    answers: list[BaseException | None] = []
    assert node.store.quarantine.drop(entry.entry_id, answers.append)
    node.settle()
    assert answers == [None]
    assert node.store.quarantine.entries() == []
    assert not node.store.quarantine.drop(entry.entry_id, answers.append)
    (kept,) = read_entries(node.rig.disk("look"), DIRECTORY)
    assert kept.entry.dropped
    node.rig.die(power_loss=False)
    assert consume(Node(node.rig, "b")) == [b"b"]


def test_the_consolidator_skips_quarantined_messages(caplog: pytest.LogCaptureFixture) -> None:
    rig = StoreHarness(random.Random(4), compact_segments_min=2)
    node = Node(rig, "a")
    node.queue()
    node.fill("a", "b", "c")
    node.damage(1)
    (first,) = rig.segments()[:1]
    session = node.reader()
    node.settle()
    assert bodies(session) == [b"a", b"c"]
    other = node.world.queue("other")
    taker = node.reader("other")
    for _ in range(120):
        node.fill("x" * 8000, queue="other")
        taken = list(taker.consumers.by_id[0].delivering)
        taker.acknowledge(0, taken[-1])
        node.settle()
    assert other.message_count == 0
    assert "it is damaged" not in caplog.text
    assert first not in rig.segments(), "what lived in the damaged segment was copied, and the segment dropped"
    rig.die(power_loss=False)
    successor = Node(rig, "b")
    assert consume(successor) == [b"a", b"c"]
    assert len(successor.store.quarantine.entries()) == 1


@pytest.mark.parametrize("queues", [1, 2])
@pytest.mark.parametrize("early", [True, False])
def test_what_the_consolidator_meets_first_is_set_aside(early: bool, queues: int) -> None:
    """No consumer reads the damaged message: it is met while a snapshot is made, or while messages are copied."""
    rig = StoreHarness(random.Random(5), compact_segments_min=2)
    node = Node(rig, "a")
    for number in range(queues):
        node.queue(f"q{number}", address="t", routing_type=RoutingType.MULTICAST)
    node.fill("a", "b", "c", queue="t")
    first = rig.segments()[0]
    if early:
        node.damage(1, "q0")
    node.world.queue("other")
    taker = node.reader("other")

    def churn(count: int) -> None:
        for _ in range(count):
            node.fill("x" * 8000, queue="other")
            taken = list(taker.consumers.by_id[0].delivering)
            taker.acknowledge(0, taken[-1])
            node.settle()
            node.world.clock.advance(1)

    if not early:
        while not any("snapshot-" in path for path in rig.volume.paths()):
            churn(1)
        node.damage(1, "q0")
    churn(150)
    assert len(node.store.quarantine.entries()) == queues
    assert first not in rig.segments(), "consolidation continued after the damage"
    for number in range(queues):
        assert books(node.queue(f"q{number}")) == (2, 0, 0)
    rig.die(power_loss=False)
    successor = Node(rig, "b")
    for number in range(queues):
        session = successor.reader(f"q{number}")
        successor.settle()
        assert bodies(session) == [b"a", b"c"]
    assert len(successor.store.quarantine.entries()) == queues


def test_the_search_for_a_damaged_record_takes_a_slice_in_each_turn(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantine_module, "SEARCH_SLICE", 2)
    node.fill(*"abcdefg")
    node.damage(5)
    place = list(node.queue().pending)[5].location
    assert place is not None
    number, offset, _ = unpack_location(place)
    turns: list[int] = []
    call_later = node.world.clock.call_later
    monkeypatch.setattr(node.world.clock, "call_later", lambda ms, call: (turns.append(ms), call_later(ms, call))[1])
    node.store.quarantine.damage_met(number, offset)
    # first the segment is read again
    node.settle()
    node.world.clock.advance(0)
    assert turns.count(0) == 4
    assert len(node.store.quarantine.entries()) == 1
    node.settle()
    assert consume(node) == [b"a", b"b", b"c", b"d", b"e", b"g"]


def test_a_damaged_record_whose_message_is_in_memory_is_left() -> None:
    """The message can still be delivered."""
    node = Node(StoreHarness(random.Random(1)), "a", max_size_bytes=-1)
    node.queue()
    node.fill("a")
    node.damage(0)
    (reference,) = node.queue().pending
    assert reference.location is not None
    number, offset, _ = unpack_location(reference.location)
    node.store.quarantine.damage_met(number, offset)
    node.world.clock.advance(0)
    assert node.store.quarantine.entries() == []
    assert consume(node) == [b"a"]


def test_scheduled_ones_are_shown_without_their_contents(node: Node) -> None:
    node.fill("a", properties={"_AMQ_SCHED_DELIVERY": node.world.clock.now_ms + 60_000})
    (reference,) = node.world.office.scheduled.of(node.queue())
    reference.message = None
    assert reference.location is not None
    damage(node.rig, *unpack_location(reference.location))
    assert messages.show(node.queue(), reference) == {"messageID": reference.message_id, "unreadable": True}
    assert messages.show(node.queue(), reference) == {"messageID": reference.message_id, "unreadable": True}
    node.settle()
    assert books(node.queue()) == (0, 0, 0)
    assert len(node.store.quarantine.entries()) == 1
    assert NEVER_MS > 1 << 60


def test_a_queue_that_is_deleted_meanwhile_takes_it_along(node: Node) -> None:
    node.fill("a", "b")
    node.damage(0)
    session = node.reader()
    node.world.turn()
    node.world.office.directory.delete_queue("q", disconnect=True)
    node.settle()
    assert bodies(session) == [b"b"]
    assert node.world.office.memory.held_bytes == 0
    assert node.rig.failures == []
