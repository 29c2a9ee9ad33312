"""Blocks of an open transaction: order, counts and memory are those of a small one, whatever its end."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from support.routing import FakeCallback, World, callback_of, text
from support.sends import sends_of
from support.store import DIRECTORY, StoreHarness
from understudy.errors import TransactionTooLarge, XaCode, XaError
from understudy.ids import Xid
from understudy.message import SCHEDULED_DELIVERY
from understudy.routing import staging
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.routing.restore import restore
from understudy.session import transaction as transaction_module
from understudy.session.outcomes import ACCEPTED
from understudy.session.session import ServerSession
from understudy.store.messages import staged_references
from understudy.store.messages.pages import Pages
from understudy.terms import RoutingType
from understudy.wire.core.codes import ErrorCode, code_of

COUNT = 30


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction of a few messages is as large as can be."""
    monkeypatch.setattr(staging, "_CHUNK_MESSAGES", 3)
    monkeypatch.setattr(staging, "_CHUNKS_IN_MEMORY", 1)
    monkeypatch.setattr(staging, "_ACKNOWLEDGED_IN_MEMORY", 4)
    monkeypatch.setattr(staging, "_BLOCKS_IN_MEMORY", 1)
    monkeypatch.setattr(staging, "BLOCK_REFERENCES", 3)
    monkeypatch.setattr(staged_references, "_OBJECTS_MAX", 4)


class Way:
    """How messages are sent."""

    together = False


@pytest.fixture(autouse=True, scope="module", params=[False, True], ids=["one by one", "together"])
def _way(request: pytest.FixtureRequest) -> Iterator[None]:
    Way.together = request.param
    yield
    Way.together = False


class Node:
    """A post office on a real store with page files, on a simulated volume."""

    def __init__(self, rig: StoreHarness, owner: str, **settings: object) -> None:
        self.rig = rig
        store = rig.activate(owner)
        self.pages = Pages(rig.disk(owner), f"{DIRECTORY}/pages", store.epoch)
        self.world = World({"#": settings}, store=store, pages=self.pages)
        restore(self.world.office, store.state)
        self.world.resources.restore(store.state)

    def settle(self) -> None:
        store = self.rig.store
        assert store is not None
        while True:
            self.world.turn()
            store.flush()
            if store.context.durable >= store.last_sequence and not self.world.office.dirty:
                return
            self.rig.time.advance(10)

    def consumer(self, *queues: str, **options: object) -> ServerSession:
        session = self.world.session(**options)
        for number, queue in enumerate(queues):
            session.consumers.create(number, queue)
            session.consumers.receive_credits(number, -1)
        self.settle()
        return session

    def drain(self, *queues: str) -> list[bytes]:
        """Bodies of all messages, acknowledged; then nothing may be counted any more."""
        session = self.consumer(*queues)
        seen = callback_of(session)
        for consumer_id, message, _ in seen.delivered:
            session.settle(consumer_id, message.message_id, ACCEPTED)
        self.settle()
        session.close(failed=False)
        self.nothing_is_left()
        return seen.bodies()

    def nothing_is_left(self) -> None:
        office = self.world.office
        for queue in office.queues():
            counts = (queue.message_count, queue.delivering_count, queue.incoming, queue.expiring_count)
            assert counts == (0, 0, 0, 0), queue
            address = queue.address
            assert (address.message_count, address.size_bytes, address.memory_bytes) == (0, 0, 0)
            assert address.paged_count == 0
        assert (office.memory.held_bytes, office.memory.held_count) == (0, 0)
        assert self.world.resources.work.count == 0
        for queue in office.queues():
            if queue.address.pages is not None:
                queue.address.pages.close()
        assert self.pages.file_count == 0, "no page is needed any more"


def node() -> Node:
    made = Node(StoreHarness(random.Random(1)), "a")
    made.world.queue()
    return made


def send_all(session: ServerSession) -> list[bytes]:
    """Send messages of two priorities, some durable, some with an expiration; their bodies in order of delivery."""
    messages = [
        text(
            f"{number}",
            durable=number % 4 != 0,
            priority=4 + number % 2,
            expiration=10_000_000 if number % 5 == 0 else 0,
        )
        for number in range(COUNT)
    ]
    if Way.together:
        # without it the first of them would ask for permission, and the others follow it
        session.sends.permit("q")
        session.sends.send_batch(sends_of(messages), 0, None)
    else:
        for message in messages:
            session.sends.send(message)
    return [b"%d" % number for number in (*range(1, COUNT, 2), *range(0, COUNT, 2))]


@pytest.mark.parametrize("settled", [True, False], ids=["durable before the commit", "committed at once"])
def test_a_large_transaction_commits_in_order(settled: bool) -> None:
    made = node()
    session = made.world.session(transacted=True)
    expected = send_all(session)
    if settled:
        made.settle()
    session.commit(made.world.answers.of("commit"))
    made.settle()
    assert made.world.answers.seen == [("commit", None)]
    assert made.drain("q") == expected


def test_bodies_leave_memory_before_the_commit() -> None:
    made = node()
    session = made.world.session(transacted=True)
    send_all(session)
    office = made.world.office
    before = office.memory.held_bytes
    made.settle()
    assert office.memory.held_bytes < before / 4
    session.rollback()
    made.settle()
    made.nothing_is_left()


def test_bodies_of_a_small_transaction_leave_memory_when_the_address_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "_CHUNK_MESSAGES", 1000)
    made = Node(StoreHarness(random.Random(1)), "a", max_size_bytes=100)
    made.world.queue()
    session = made.world.session(transacted=True)
    expected = send_all(session)
    address = made.world.office.queues()[0].address
    assert address.memory_bytes > 1000
    made.settle()
    assert address.memory_bytes <= 200
    session.commit()
    made.settle()
    assert made.drain("q") == expected


@pytest.mark.parametrize("settled", [True, False])
def test_a_large_transaction_that_is_rolled_back_leaves_nothing(settled: bool) -> None:
    made = node()
    session = made.world.session(transacted=True)
    send_all(session)
    if settled:
        made.settle()
    session.rollback()
    made.settle()
    made.nothing_is_left()


@pytest.mark.parametrize("committed", [True, False])
def test_messages_in_several_queues_count_once(committed: bool) -> None:
    made = Node(StoreHarness(random.Random(1)), "a")
    office = made.world.office
    for name in ("one", "two"):
        office.directory.create_queue(QueueConfiguration(name, address="topic", routing_type=RoutingType.MULTICAST))
    session = made.world.session(transacted=True)
    for number in range(COUNT):
        session.sends.send(text(f"{number}", "topic"))
    made.settle()
    address = office.queues()[0].address
    assert address.message_count == COUNT
    if committed:
        session.commit()
    else:
        session.rollback()
    made.settle()
    bodies = made.drain("one", "two")
    assert sorted(bodies) == sorted(b"%d" % number for number in range(COUNT) if committed for _ in range(2))


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("during", [False, True], ids=["from the beginning", "during the transaction"])
def test_a_last_value_queue_keeps_the_last(committed: bool, during: bool) -> None:
    made = Node(StoreHarness(random.Random(1)), "a")
    office = made.world.office
    key = {"last_value_key": "k"}
    queue = made.world.queue("lv", **({} if during else key))
    session = made.world.session(transacted=True)
    for number in range(COUNT):
        session.sends.send(text(f"{number}", "lv", properties={"k": number % 2}))
    made.settle()
    if during:
        queue.configure(QueueConfiguration("lv", address="lv", routing_type=RoutingType.ANYCAST, **key).filled(
            queue.address.settings))  # fmt: skip
    if committed:
        session.commit()
    else:
        session.rollback()
    made.settle()
    assert office.directory.find_queue("lv") is queue
    assert made.drain("lv") == ([b"28", b"29"] if committed else [])


def test_scheduled_messages_of_a_large_transaction_come_in_time() -> None:
    made = node()
    session = made.world.session(transacted=True)
    at = made.world.clock.wall_ms() + 5_000
    for number in range(COUNT):
        session.sends.send(text(f"{number}", properties={SCHEDULED_DELIVERY: at}))
    made.settle()
    session.commit()
    made.settle()
    assert made.world.office.queues()[0].scheduled_count == COUNT
    made.world.clock.advance(6_000)
    assert sorted(made.drain("q")) == sorted(b"%d" % number for number in range(COUNT))


def test_messages_sent_after_a_large_transaction_come_after_it() -> None:
    made = node()
    plain, session = made.world.session(), made.world.session(transacted=True)
    expected = []
    for turn in range(3):
        plain.sends.send(text(f"before {turn}"))
        made.settle()
        for number in range(COUNT):
            session.sends.send(text(f"{turn} {number}"))
        made.settle()
        session.commit()
        made.settle()
        expected += [b"before %d" % turn, *(b"%d %d" % (turn, number) for number in range(COUNT))]
    assert made.drain("q") == expected


def test_a_queue_that_is_deleted_during_a_large_transaction() -> None:
    made = node()
    session = made.world.session(transacted=True)
    send_all(session)
    made.settle()
    queue = made.world.office.queues()[0]
    address = queue.address
    made.world.session().queues.delete_queue("q")
    session.commit()
    made.settle()
    assert (address.message_count, address.size_bytes, queue.message_count, queue.incoming) == (0, 0, 0, 0)


# --- acknowledgements ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True], ids=["one queue", "two queues"])
@pytest.mark.parametrize("committed", [True, False])
def test_many_acknowledgements(committed: bool, shared: bool) -> None:
    made = Node(StoreHarness(random.Random(1)), "a")
    office = made.world.office
    for name in ("one", "two")[: 1 + shared]:
        office.directory.create_queue(QueueConfiguration(name, address="topic", routing_type=RoutingType.MULTICAST))
    expected = [b"%d" % number for number in (*range(1, COUNT, 2), *range(0, COUNT, 2))]
    producer = made.world.session()
    for number in range(COUNT):
        producer.sends.send(text(f"{number}", "topic", durable=number % 3 != 0, priority=4 + number % 2))
    made.settle()
    reader = made.consumer("one", transacted=True)
    assert callback_of(reader).bodies() == expected
    for _, message, _ in callback_of(reader).delivered:
        reader.settle(0, message.message_id, ACCEPTED)
    if not shared:
        assert office.queues()[0].address.memory_bytes < 10 * 200
    made.settle()
    if committed:
        reader.commit()
        made.settle()
        reader.close(failed=False)
        assert office.queues()[0].message_count == 0
    else:
        reader.rollback()
        made.settle()
        assert callback_of(reader).bodies() == expected * 2, "in their order"
        assert callback_of(reader).counts() == [1] * COUNT + [2] * COUNT
        reader.close(failed=False)
    made.drain(*(("one", "two")[: 1 + shared]))


# --- after a crash ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["open", "prepared and committed", "prepared and rolled back", "committed"])
def test_a_large_branch_after_a_takeover(end: str) -> None:
    rig = StoreHarness(random.Random(1))
    made = Node(rig, "a")
    made.world.queue()
    for number in range(COUNT):
        made.world.session().sends.send(text(f"held {number}"))
    xid = Xid(1, b"g", b"b")
    session = made.consumer("q", xa=True, auto_commit_sends=False, auto_commit_acks=False)
    made.world.queue("out")
    session.branches.start(xid)
    session.acknowledge(0, callback_of(session).delivered[-1][1].message_id)
    for number in range(COUNT):
        session.sends.send(text(f"{number}", "out"))
    made.settle()
    session.branches.end(xid, failed=False)
    if end == "committed":
        session.branches.commit(xid, one_phase=True, done=made.world.answers.of("committed"))
    elif end != "open":
        session.branches.prepare(xid)
    made.settle()
    rig.die(power_loss=False)
    after = Node(rig, "b")
    held = [b"held %d" % number for number in range(COUNT)]
    sent = [b"%d" % number for number in range(COUNT)]
    decider = after.world.session(xa=True)
    if end == "prepared and committed":
        decider.branches.commit(xid, one_phase=False, done=after.world.answers.of("committed"))
    elif end == "prepared and rolled back":
        decider.branches.roll_back(xid)
    after.settle()
    assert after.drain("q", "out") == (sent if end.endswith("committed") else held)


# --- limits ----------------------------------------------------------------------------------------------


def test_a_transaction_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_module, "TRANSACTION_MESSAGES_MAX", 10)
    made = node()
    answers = made.world.answers
    session = made.world.session(transacted=True)
    for number in range(12):
        session.sends.send(text(f"{number}"), answers.of(f"{number}"))
    session.commit(answers.of("commit"))
    made.settle()
    assert [name for name, error in answers.seen if error is not None] == ["10", "commit"]
    for name in ("10", "commit"):
        error = answers.error(name)
        assert isinstance(error, TransactionTooLarge)
        assert code_of(error) == ErrorCode.TRANSACTION_ROLLED_BACK
    made.nothing_is_left()
    for number in range(10):
        session.sends.send(text(f"{number}"))
    session.commit(answers.of("the next one"))
    made.settle()
    assert answers.error("the next one") is None
    assert len(made.drain("q")) == 10


def test_acknowledgements_count_for_the_limit_and_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    made = node()
    producer = made.world.session()
    for number in range(COUNT):
        producer.sends.send(text(f"{number}"))
    made.settle()
    monkeypatch.setattr(transaction_module, "TRANSACTION_MESSAGES_MAX", 10)
    reader = made.consumer("q", transacted=True)
    answers = made.world.answers
    for number, (_, message, _) in enumerate(callback_of(reader).delivered):
        reader.settle(0, message.message_id, ACCEPTED, answers.of(f"{number}"))
    reader.commit(answers.of("commit"))
    made.settle()
    assert [name for name, error in answers.seen if error is not None] == ["10", "commit"]
    assert callback_of(reader).bodies()[COUNT:] == [b"%d" % number for number in range(COUNT)], "all came back"
    reader.close(failed=False)
    assert len(made.drain("q")) == COUNT


def test_the_branches_of_a_session_have_a_limit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.session.state.TRANSACTION_MESSAGES_OF_SESSION_MAX", 10)
    made = node()
    session = made.world.session(xa=True, auto_commit_sends=False, auto_commit_acks=False)
    branches = [Xid(1, b"g", b"%d" % number) for number in range(3)]
    for xid in branches:
        session.branches.start(xid)
        for number in range(5):
            session.sends.send(text(f"{number}"))
        session.branches.end(xid, failed=False)
    session.branches.prepare(branches[0])
    with pytest.raises(XaError) as caught:
        session.branches.prepare(branches[2])
    assert caught.value.xa_code == XaCode.ROLLED_BACK
    session.branches.roll_back(branches[0])
    session.branches.roll_back(branches[1])
    made.settle()
    assert session.state.work.count == 0
    made.nothing_is_left()


def test_duplicate_ids_of_a_transaction_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_module, "TRANSACTION_DUPLICATE_IDS_MAX", 3)
    made = node()
    session = made.world.session(transacted=True)
    for number in range(4):
        session.sends.send(
            text(f"{number}", properties={"_AMQ_DUPL_ID": f"{number}"}), made.world.answers.of(f"{number}")
        )
    made.settle()
    assert isinstance(made.world.answers.error("3"), TransactionTooLarge)
    session.rollback()
    made.settle()
    made.nothing_is_left()


@pytest.mark.parametrize("commits", [True, False])
def test_runs_in_several_queues(commits: bool) -> None:
    made = Node(StoreHarness(random.Random(1)), "a")
    for name in ("x", "y", "z"):
        made.world.queue(name, address="q", routing_type=RoutingType.MULTICAST, durable=name != "z")
    session = made.world.session(transacted=True)
    session.sends.permit("q")
    for start in range(0, COUNT, 6):
        session.sends.send_batch(sends_of([text(f"{start + number}") for number in range(6)]), 0, None)
        if start == 12:
            made.settle()
    assert session.state.work.count == 3 * COUNT
    assert [queue.incoming for queue in made.world.office.queues()] == [COUNT] * 3
    if commits:
        session.commit()
        made.settle()
        taken = made.drain("x", "y", "z")
        assert sorted(taken) == sorted([b"%d" % number for number in range(COUNT)] * 3)
    else:
        session.rollback()
        made.settle()
        made.nothing_is_left()


@pytest.mark.parametrize("commits", [True, False])
def test_single_acknowledgements_of_runs_keep_no_buffers(commits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "_ACKNOWLEDGED_IN_MEMORY", 1000)
    monkeypatch.setattr(staging, "_ACKNOWLEDGED_PARTS", 5)
    made = node()
    producer = made.world.session()
    producer.sends.permit("q")
    producer.sends.send_batch(sends_of([text(f"{number}") for number in range(COUNT)]), 0, None)
    made.settle()
    session = made.consumer("q", transacted=True, callback=FakeCallback(runs=True))
    held = session.state.transaction._acknowledged._open  # type: ignore[union-attr]
    for message_id in list(session.consumers.by_id[0].delivering)[::2]:
        session.settle(0, message_id, ACCEPTED)
        assert max(map(len, held.values())) <= 5
    if commits:
        session.commit()
    made.settle()
    session.close(failed=True)
    assert len(made.drain("q")) == (COUNT // 2 if commits else COUNT)
