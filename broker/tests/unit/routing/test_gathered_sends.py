"""Goal: durable messages of several sessions in one turn are one batch, and nothing overtakes it (ADR 0038).

Each test fails if the event in its name does not close the batch, or does not count the gathered messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from support.routing import FakeCallback, World, text
from support.sends import sends_of
from understudy.errors import BrokerError, DuplicateIdRejected
from understudy.limits import GATHERED_BYTES_MAX
from understudy.message import DUPLICATE_ID, Message
from understudy.routing.batch import BatchSends
from understudy.session.session import ServerSession


class Client:
    """A session, and what its requests were answered with, in the order of all clients of a test."""

    def __init__(self, world: World, name: str, seen: list[tuple[str, int]], **options: Any) -> None:
        self.name = name
        self.seen = seen
        self.bugs: list[Exception] = []
        self.failure: Exception | None = None
        """Raised when it is to be answered."""
        self.callback = FakeCallback(runs=True)
        self.session: ServerSession = world.session(callback=self.callback, **options)

    def send(self, message: Message, number: int) -> None:
        """A lone message, as one read of its socket brings it."""
        sends = sends_of([message], [number])
        assert self.session.sends.send_batch(sends, 0, self) == 1

    def answer_run(self, correlation_ids: Sequence[int], error: BrokerError | None = None) -> None:
        if self.failure is not None:
            raise self.failure
        self.seen += [(self.name, each) for each in correlation_ids]

    def internal_error(self, bug: Exception) -> None:
        self.bugs.append(bug)


class Turn:
    """A node with a queue and some clients, within one turn."""

    def __init__(self, settings: dict[str, dict[str, object]] | None = None, clients: int = 3) -> None:
        self.world = World(settings, automatic=False)
        self.queue = self.world.queue()
        self.world.queue("other")
        self.seen: list[tuple[str, int]] = []
        self.clients = [Client(self.world, f"c{number}", self.seen) for number in range(clients)]
        for client in self.clients:
            # what a session sends first asks for permission
            client.session.sends.send(text("first"))
            client.session.sends.send(text("first", "other"))
        self.world.sync()
        self.context = self.world.office.store.context
        self.released = self.context.released

    def appended(self) -> int:
        """Records that the log got since all was synced."""
        return self.world.store.last_sequence - self.context.durable

    def bodies(self) -> list[bytes]:
        """Bodies of the messages that wait, without those with which the clients began."""
        return [bytes(each.message.body) for each in self.queue.pending if each.message is not None][3:]


def marked(body: str, duplicate_id: str, **options: Any) -> Message:
    return text(body, properties={DUPLICATE_ID: duplicate_id}, **options)


def test_lone_messages_of_several_sessions_are_one_batch() -> None:
    turn = Turn()
    for number, client in enumerate(turn.clients * 2):
        client.send(text(str(number)), number)
    assert turn.appended() == 0
    assert turn.context.appended == turn.context.durable + 6
    assert turn.queue.incoming == 6
    assert turn.queue.address.message_count == 9
    turn.world.turn()
    assert turn.appended() == 6
    assert turn.context.waiting == 1
    assert turn.seen == []
    turn.world.sync()
    assert turn.context.released == turn.released + 1
    assert turn.seen == [("c0", 0), ("c1", 1), ("c2", 2), ("c0", 3), ("c1", 4), ("c2", 5)]
    assert turn.bodies() == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert turn.queue.incoming == 0


@pytest.mark.parametrize(
    "another",
    [
        text("x", priority=9),
        text("x", "other"),
        text("x", durable=False),
        marked("x", "id"),
        text("x", properties={"_AMQ_SCHED_DELIVERY": 1}),
        text("x" * 300_000),
    ],
    ids=["priority", "address", "durability", "duplicate id", "schedule", "size"],
)
def test_a_message_that_does_not_belong_to_the_batch_comes_after_it(another: Message) -> None:
    turn = Turn()
    turn.clients[0].send(text("0"), 0)
    turn.clients[1].send(text("1"), 1)
    turn.clients[0].send(another, 2)
    assert turn.appended() >= 2
    turn.clients[1].send(text("3"), 3)
    turn.world.sync()
    assert turn.seen == [("c0", 0), ("c1", 1), ("c0", 2), ("c1", 3)]
    ids = {bytes(message.body)[:1]: message.message_id for message in turn.world.store.recorded.values()}
    if another.durable:
        assert ids[b"0"] < ids[b"1"] < ids[b"x"] < ids[b"3"]


def test_an_answer_of_the_same_session_comes_after_the_batch() -> None:
    turn = Turn()
    client = turn.clients[0]
    client.send(text("0"), 0)
    client.session.commit(partial(client.answer_run, (1,)))
    client.send(text("2"), 2)
    client.session.state.when_durable(client.answer_run, (3,))
    turn.world.sync()
    assert turn.seen == [("c0", 0), ("c0", 1), ("c0", 2), ("c0", 3)]


def test_a_record_of_another_request_comes_after_the_batch() -> None:
    turn = Turn()
    turn.clients[0].send(text("0"), 0)
    address_id = turn.world.queue("new").address.address_id
    (message,) = [each for each in turn.world.store.recorded.values() if each.body == b"0"]
    assert message.message_id < address_id
    assert turn.appended() == 3


def test_a_duplicate_within_the_turn_is_found_and_confirmed_after_the_original() -> None:
    turn = Turn()
    turn.clients[0].send(marked("0", "id0"), 0)
    turn.clients[1].send(marked("1", "id1"), 1)
    turn.clients[2].send(marked("again", "id0"), 2)
    turn.clients[2].send(marked("3", "id3"), 3)
    assert turn.seen == []
    turn.world.sync()
    assert turn.bodies() == [b"0", b"1", b"3"]
    assert turn.seen == [("c0", 0), ("c1", 1), ("c2", 2), ("c2", 3)]


def test_a_transaction_with_a_duplicate_of_the_batch_does_not_commit() -> None:
    turn = Turn()
    transacted = Client(turn.world, "t", turn.seen, transacted=True)
    transacted.session.sends.send(marked("in a transaction", "id0"))
    turn.clients[0].send(marked("0", "id0"), 0)
    errors: list[BrokerError | None] = []
    transacted.session.commit(errors.append)
    turn.world.sync()
    assert [type(each) for each in errors] == [DuplicateIdRejected]
    assert turn.bodies() == [b"0"]


def test_gathered_messages_count_for_the_limit_of_their_address() -> None:
    turn = Turn({"q": {"address_full_policy": "DROP", "max_size_messages": 5}})
    for number, client in enumerate(turn.clients):
        client.send(text(str(number)), number)
    assert turn.queue.address.messages_dropped == 1
    turn.world.sync()
    assert turn.bodies() == [b"0", b"1"]
    # the one that was dropped waits for nothing
    assert turn.seen == [("c2", 2), ("c0", 0), ("c1", 1)]


def test_a_batch_is_bounded_in_bytes() -> None:
    turn = Turn()
    body = "x" * 10_000
    sent = 0
    while not turn.appended():
        turn.clients[sent % 3].send(text(body), sent)
        sent += 1
    assert GATHERED_BYTES_MAX <= sent * 10_100 < GATHERED_BYTES_MAX + 10_100
    assert turn.appended() == sent


def test_a_deleted_queue_takes_the_batch_along() -> None:
    turn = Turn()
    turn.clients[0].send(text("0"), 0)
    turn.world.office.directory.delete_queue("q")
    turn.world.sync()
    assert turn.seen == [("c0", 0)]
    assert turn.world.store.references.get(turn.queue.queue_id) is None
    assert (turn.queue.incoming, turn.queue.address.message_count, turn.world.office.memory.held_count) == (0, 0, 3)


def test_after_a_failure_nothing_of_the_batch_is_appended_or_answered() -> None:
    turn = Turn()
    turn.clients[0].send(text("0"), 0)
    turn.context.fail(OSError("the disk is gone"))
    turn.world.turn()
    assert turn.appended() == 0
    assert turn.seen == []


def test_a_bug_in_one_answer_ends_that_session_only() -> None:
    turn = Turn()
    for number, client in enumerate(turn.clients):
        client.send(text(str(number)), number)
    turn.clients[1].failure = bug = ValueError("a bug")
    turn.world.sync()
    assert turn.seen == [("c0", 0), ("c2", 2)]
    assert [client.bugs for client in turn.clients] == [[], [bug], []]


def test_a_bug_in_the_batch_ends_all_of_its_sessions_and_nothing_else() -> None:
    turn = Turn()
    for number, client in enumerate(turn.clients[:2]):
        client.send(text(str(number)), number)
    bug = ValueError("a bug")
    with patch.object(BatchSends, "_append", side_effect=bug):
        turn.world.turn()
    assert [client.bugs for client in turn.clients] == [[bug], [bug], []]
    turn.clients[2].send(text("2"), 2)
    turn.world.sync()
    assert turn.seen == [("c2", 2)]
    assert turn.bodies() == [b"2"]
