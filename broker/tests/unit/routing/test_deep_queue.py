"""A deep queue: blocks, page files and bodies that are not in memory, over the fakes of routing."""

from __future__ import annotations

import pytest

from support.routing import World, callback_of, text
from understudy.errors import AddressFull
from understudy.message import GROUP_ID, Message
from understudy.routing.queues import delivery, level
from understudy.routing.queues import queue as queues
from understudy.routing.queues.queue import Queue
from understudy.session import consumer
from understudy.store.messages import backlog
from understudy.store.messages.pages import Pages
from understudy.store.messages.reference import MessageReference
from understudy.terms import RoutingType
from understudy.testing.sim.disk import SimVolume

SIZE = text("x" * 100, properties={"odd": 1}).encode_size


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 8: a few hundred messages are a deep queue."""
    monkeypatch.setattr(level, "_BLOCK", 8)
    monkeypatch.setattr(level, "_MEMORY_BLOCKS", 3)
    monkeypatch.setattr(backlog, "BLOCK_REFERENCES", 8)


class Deep:
    """A node that pages to a simulated disk."""

    def __init__(self, **settings: object) -> None:
        self.volume = SimVolume()
        self.pages = Pages(self.volume.disk("a"), "/paging", 1)
        settings.setdefault("max_size_bytes", 0)
        self.world = World({"#": settings, "DLQ": {"max_size_bytes": -1}}, pages=self.pages)
        self.queue = self.world.queue()
        self.producer = self.world.session()

    def fill(self, count: int, *, start: int = 0, durable: bool = True, **options: object) -> None:
        for number in range(start, start + count):
            properties = {"odd": number % 2, **options}
            self.producer.sends.send(text(f"{number:0100}", durable=durable, properties=properties))

    def reader(self, selector: str | None = None, queue: str = "q"):  # type: ignore[no-untyped-def]
        session = self.world.session()
        session.consumers.create(0, queue, selector)
        return session

    def take(self, session, credit_bytes: int = -1) -> list[int]:  # type: ignore[no-untyped-def]
        session.consumers.receive_credits(0, credit_bytes)
        self.world.turn()
        return numbers(session)

    def files(self) -> list[str]:
        return self.volume.disk("a").list("/paging")


def numbers(session) -> list[int]:  # type: ignore[no-untyped-def]
    return [int(body) for body in callback_of(session).bodies()]


def books(queue: Queue) -> tuple[int, int, int, int]:
    address = queue.address
    return queue.message_count, address.size_bytes, address.memory_bytes, address.paged_count


@pytest.mark.parametrize("durable", [True, False])
def test_a_deep_queue_comes_back_in_order(durable: bool) -> None:
    deep = Deep()
    deep.fill(500, durable=durable)
    assert books(deep.queue) == (500, 500 * SIZE, 0, 500)
    assert deep.queue.address.paging
    assert deep.queue.pending.spilled_count > 300
    assert deep.files()
    reader = deep.reader()
    assert deep.take(reader) == list(range(500))
    reader.acknowledge(0, callback_of(reader).delivered[-1][1].message_id)
    assert books(deep.queue) == (0, 0, 0, 0)
    assert not deep.queue.address.paging
    assert (deep.world.office.memory.held_bytes, deep.world.office.memory.held_count) == (0, 0)
    deep.fill(3, durable=durable)
    assert deep.take(reader)[500:] == [0, 1, 2]


def test_only_messages_outside_the_log_have_their_bodies_paged() -> None:
    deep = Deep()
    deep.fill(20)
    assert deep.pages.size_bytes == 0
    deep.fill(20, durable=False)
    assert deep.pages.size_bytes > 20 * 100
    assert len(deep.world.store.survivors(deep.queue)) == 20


def test_bodies_stay_in_memory_up_to_the_maximum() -> None:
    deep = Deep(max_size_bytes=100 * SIZE)
    deep.fill(400)
    held = deep.queue.address.memory_bytes
    assert 90 * SIZE < held <= 101 * SIZE
    reader = deep.reader()
    assert deep.take(reader, 50 * SIZE)[:5] == [0, 1, 2, 3, 4]
    reader.acknowledge(0, callback_of(reader).delivered[-1][1].message_id)
    assert deep.queue.address.memory_bytes < held
    assert deep.take(reader) == list(range(400))
    reads = deep.world.store.reads
    assert 250 < reads < 400, "messages in memory are not read"


@pytest.mark.parametrize("node_wide", [False, True])
def test_a_number_of_messages_is_a_limit_too(node_wide: bool) -> None:
    world = World(global_max_messages=10) if node_wide else World({"#": {"max_size_messages": 10}})
    queue = world.queue()
    session = world.session()
    for number in range(50):
        session.sends.send(text(str(number)))
    assert queue.message_count - queue.address.paged_count == 10
    assert world.office.memory.held_count == 10
    reader = world.session()
    reader.consumers.create(0, "q")
    reader.consumers.receive_credits(0, -1)
    world.turn()
    assert numbers(reader) == list(range(50))


def test_a_selector_takes_from_the_middle_of_spilled_blocks() -> None:
    deep = Deep()
    deep.fill(300)
    odd = deep.reader("odd = 1")
    assert deep.take(odd) == list(range(1, 300, 2))
    odd.acknowledge(0, callback_of(odd).delivered[99][1].message_id)
    odd.close(failed=True)
    again = deep.reader()
    expected = sorted([*range(0, 300, 2), *range(201, 300, 2)])
    assert deep.take(again) == expected
    counts = dict(zip(numbers(again), callback_of(again).counts(), strict=True))
    assert {number for number, count in counts.items() if count == 2} == set(range(201, 300, 2))


def test_looking_through_a_deep_queue_gives_others_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A selector that matches the last message only: found in parts, each of at most so many reads."""
    read: list[int] = []
    original = Queue.read

    def counted(self: Queue, reference: MessageReference) -> Message:
        read.append(reference.message_id)
        return original(self, reference)

    monkeypatch.setattr(Queue, "read", counted)
    monkeypatch.setattr(delivery, "READ_BACK_MAX", 40)
    deep = Deep()
    deep.fill(300)
    deep.fill(1, start=300, odd=2)
    session = deep.reader("odd = 2")
    session.consumers.receive_credits(0, -1)
    office = deep.world.office
    turns = 0
    while deep.queue.dirty:
        before = len(read)
        office.turn()
        turns += 1
        assert len(read) - before <= 40
    assert turns == 8
    assert numbers(session) == [300]
    assert len(set(read)) == len(read) == 301, "nothing is read twice"
    # a consumer that drains gives way as well, and keeps the order
    reader = deep.reader()
    reader.consumers.receive_credits(0, -1)
    office.turn()
    assert numbers(reader) == list(range(40))
    assert deep.queue.dirty
    while deep.queue.dirty:
        office.turn()
    assert numbers(reader) == list(range(300))


def turns_until_clean(deep: Deep, reads_max: int) -> int:
    """Turns until nothing is left to do, each of at most so many reads of a fake store that reads one at a time."""
    turns = 0
    while deep.queue.dirty:
        before = deep.world.store.reads
        deep.world.office.turn()
        turns += 1
        assert deep.world.store.reads - before <= reads_max
    return turns


@pytest.mark.parametrize("selector", [None, "odd = 1", "odd = 2"])
def test_a_marker_comes_after_everything_in_a_deep_queue(monkeypatch: pytest.MonkeyPatch, selector: str | None) -> None:
    """The queue is searched in parts, so that others have their turn; the client learns that there is no message only
    after the last part.
    """
    monkeypatch.setattr(delivery, "READ_BACK_MAX", 10)
    deep = Deep()
    deep.fill(100)
    deep.world.turn()
    session = deep.reader(selector)
    session.consumers.receive_credits(0, -1)
    before = deep.world.store.reads
    session.consumers.force_delivery(0, 1)
    assert deep.world.store.reads - before <= 10
    assert callback_of(session).forced == []
    assert turns_until_clean(deep, 10) >= 9
    expected = {None: list(range(100)), "odd = 1": list(range(1, 100, 2)), "odd = 2": []}[selector]
    assert numbers(session) == expected
    assert callback_of(session).forced == [(0, 1, len(expected))]


def test_a_search_for_a_marker_ends_with_its_consumer_and_when_it_has_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "READ_BACK_MAX", 10)
    deep = Deep()
    deep.fill(100)
    leaves, stays = deep.reader("odd = 2"), deep.reader("odd = 1")
    leaves.consumers.receive_credits(0, -1)
    leaves.consumers.force_delivery(0, 1)
    stays.consumers.receive_credits(0, 12 * SIZE)
    stays.consumers.force_delivery(0, 2)
    leaves.consumers.close(0)
    turns_until_clean(deep, 10)
    assert callback_of(leaves).forced == []
    # no credits are left, so there is nothing more that could come before the marker
    assert numbers(stays) == list(range(1, 2 * len(numbers(stays)), 2))
    assert callback_of(stays).forced == [(0, 2, len(numbers(stays)))]


def test_messages_in_memory_are_scanned_in_parts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "LOOKS_MAX", 25)
    deep = Deep(max_size_bytes=-1)
    deep.fill(200)
    deep.fill(1, start=200, odd=2)
    session = deep.reader("odd = 2")
    session.consumers.receive_credits(0, -1)
    session.consumers.force_delivery(0, 1)
    assert callback_of(session).forced == []
    assert turns_until_clean(deep, 0) == 8
    assert (numbers(session), callback_of(session).forced) == ([200], [(0, 1, 1)])


@pytest.mark.parametrize("selector", [None, "odd = 1", "odd = 2"])
def test_a_browser_looks_through_a_deep_queue_in_parts(monkeypatch: pytest.MonkeyPatch, selector: str | None) -> None:
    monkeypatch.setattr(consumer, "READ_BACK_MAX", 10)
    deep = Deep()
    deep.fill(100)
    browser = deep.world.session()
    browser.consumers.create(0, "q", selector, browse_only=True)
    before = deep.world.store.reads
    browser.consumers.receive_credits(0, -1)
    assert deep.world.store.reads - before <= 10
    browser.consumers.force_delivery(0, 1)
    assert callback_of(browser).forced == []
    assert turns_until_clean(deep, 10) >= 8
    expected = {None: list(range(100)), "odd = 1": list(range(1, 100, 2)), "odd = 2": []}[selector]
    assert numbers(browser) == expected
    assert callback_of(browser).forced == [(0, 1, len(expected))]
    assert deep.queue.message_count == 100


def test_a_closed_browser_looks_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "READ_BACK_MAX", 10)
    deep = Deep()
    deep.fill(100)
    browser = deep.world.session()
    browser.consumers.create(0, "q", "odd = 2", browse_only=True)
    browser.consumers.receive_credits(0, -1)
    browser.consumers.close(0)
    before = deep.world.store.reads
    assert turns_until_clean(deep, 0) == 1
    assert deep.world.store.reads == before


def test_the_newest_references_are_read_in_runs_too() -> None:
    deep = Deep()
    deep.fill(100)
    level = deep.queue.pending.first_level()
    assert level is not None
    newest = level.blocks[-1]
    assert newest.count > 2
    reference = level.next_from(newest.base)
    assert reference is not None
    behind = list(level.locations_behind(reference.position))
    assert behind == [each.location for each in newest.references()][1:]


def test_a_browser_sees_everything_and_takes_nothing() -> None:
    deep = Deep()
    deep.fill(300)
    spilled = deep.queue.pending.spilled_count
    browser = deep.world.session()
    browser.consumers.create(0, "q", None, browse_only=True)
    browser.consumers.receive_credits(0, -1)
    assert numbers(browser) == list(range(300))
    assert deep.queue.pending.spilled_count == spilled
    assert deep.queue.message_count == 300


def test_message_groups_stay_with_their_consumer() -> None:
    deep = Deep()
    for number in range(200):
        deep.fill(1, start=number, **{GROUP_ID: str(number % 3)})
    first, second = deep.reader(), deep.reader()
    for session in (first, second):
        session.consumers.receive_credits(0, -1)
    deep.world.turn()
    seen = [{number % 3 for number in numbers(session)} for session in (first, second)]
    assert not seen[0] & seen[1]
    assert sorted(numbers(first) + numbers(second)) == list(range(200))


def test_higher_priorities_overtake_a_deep_queue() -> None:
    deep = Deep()
    deep.fill(200)
    deep.producer.sends.send(text("999", priority=9))
    assert deep.take(deep.reader()) == [999, *range(200)]


def test_what_expired_leaves_spilled_blocks_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "EXPIRED_AT_ONCE", 10)
    deep = Deep(expiry_address="EXP")
    expired = deep.world.queue("EXP")
    now_ms = deep.world.clock.now_ms
    for number in range(300):
        deep.producer.sends.send(text(str(number), expiration=now_ms + 5 if number % 3 == 0 else now_ms + 10_000))
    assert deep.queue.expire_overdue(now_ms) == 0
    deep.world.clock.advance(5)
    taken = []
    while found := deep.queue.expire_overdue(now_ms + 5):
        taken.append(found)
    assert taken == [10] * 10
    assert (expired.message_count, deep.queue.message_count) == (100, 200)
    assert deep.take(deep.reader()) == [number for number in range(300) if number % 3]


def test_expired_messages_leave_their_queues_in_steps() -> None:
    """Each step takes a few messages, as clients wait meanwhile, and the next one follows after a moment."""
    deep = Deep()
    now_ms = deep.world.clock.now_ms
    for number in range(100):
        deep.producer.sends.send(text(str(number), expiration=now_ms + 5))
    deep.world.clock.advance(30_000)
    counts = []
    while deep.queue.message_count:
        counts.append(deep.queue.message_count)
        deep.world.clock.advance(1)
    assert counts == [84, 68, 52, 36, 20, 4]


def test_too_many_failures_go_to_the_dead_letters() -> None:
    deep = Deep(dead_letter_address="DLQ", max_delivery_attempts=1)
    dead = deep.world.queue("DLQ")
    deep.fill(150)
    reader = deep.reader()
    deep.take(reader)
    reader.close(failed=True)
    assert (deep.queue.message_count, dead.message_count) == (0, 150)
    assert deep.take(deep.reader(queue="DLQ")) == list(range(150))


@pytest.mark.parametrize("durable", [True, False])
def test_purging_and_deleting_leave_nothing(durable: bool) -> None:
    deep = Deep()
    deep.fill(300, durable=durable)
    assert deep.queue.purge() == 300
    assert books(deep.queue) == (0, 0, 0, 0)
    assert deep.world.store.survivors(deep.queue) == []
    deep.fill(300, durable=durable)
    deep.world.office.directory.delete_queue("q")
    assert books(deep.queue) == (0, 0, 0, 0)
    deep.world.office.directory.delete_address("q")
    assert deep.pages.file_count == 0
    assert deep.files() == []


def test_several_queues_share_a_page_and_the_last_one_frees_it() -> None:
    deep = Deep()
    subscriptions = [
        deep.world.queue(name, address="t", routing_type=RoutingType.MULTICAST, durable=name == "a") for name in "abc"
    ]
    for number in range(100):
        deep.producer.sends.send(text(str(number), "t"))
    address = subscriptions[0].address
    assert (address.message_count, address.memory_bytes, address.paged_count) == (100, 0, 100)
    for queue in subscriptions:
        reader = deep.reader(queue=queue.name)
        assert deep.take(reader) == list(range(100))
        reader.acknowledge(0, callback_of(reader).delivered[-1][1].message_id)
    assert (address.size_bytes, address.message_count, address.paged_count) == (0, 0, 0)
    deep.world.office.directory.delete_address("t", force=True)
    assert deep.pages.file_count == 0


def test_a_full_disk_keeps_messages_in_memory_and_holds_producers_back() -> None:
    deep = Deep()
    deep.fill(1)
    deep.volume.capacity_bytes = deep.volume.used_bytes()
    body = "x" * 1024 * 1024
    for _ in range(18):
        deep.producer.sends.send(text(body, durable=False))
    assert deep.pages.stuck
    address = deep.queue.address
    assert address.memory_bytes > 16 * 1024 * 1024
    assert deep.world.office.memory.blocks_producers(address) is not None
    deep.volume.capacity_bytes = 1 << 40
    deep.producer.sends.send(text("after", durable=False))
    assert not deep.pages.stuck
    assert deep.queue.purge() == 20


def test_page_limits_drop_or_fail() -> None:
    for policy, dropped in (("DROP", 5), ("FAIL", 0)):
        deep = Deep(page_limit_messages=10, page_full_policy=policy)
        deep.fill(10)
        if policy == "FAIL":
            answers = deep.world.answers
            deep.producer.sends.send(text("m"), answers.of("one too many"))
            assert isinstance(answers.error("one too many"), AddressFull)
        else:
            deep.fill(5)
        assert (deep.queue.message_count, deep.queue.address.messages_dropped) == (10, dropped)
