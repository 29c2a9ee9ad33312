"""``ServerSession.settle``: each outcome, alone and in a transaction; delivery with credit in messages, and drain."""

from __future__ import annotations

from typing import Any

import pytest

from support.routing import World, callback_of, text
from understudy.errors import IllegalState
from understudy.limits import EXCLUDED_MESSAGES_MAX
from understudy.message import ORIGINAL_QUEUE
from understudy.routing.filter import ExcludingFilter
from understudy.routing.queues.flow_control import MessageCredits
from understudy.routing.queues.queue import Queue
from understudy.session.outcomes import ACCEPTED, EXPIRED, REJECTED, RELEASED, Outcome, modified
from understudy.session.session import ServerSession

SETTINGS = {"#": {"dead_letter_address": "DLA", "expiry_address": "EXP", "max_delivery_attempts": 3}}
FAILED = modified(delivery_failed=True)


class SessionHarness:
    """Queue ``q`` with messages, a dead letter queue, and a reader with credit for single messages."""

    def __init__(self, *bodies: str, transacted: bool = False, credit: int = 100, **queue: Any) -> None:
        self.world = World(SETTINGS)
        self.dead, self.expired = self.world.queue("DLA"), self.world.queue("EXP")
        self.queue: Queue = self.world.queue("q", **queue)
        producer = self.world.session()
        for body in bodies:
            producer.sends.send(text(body))
        self.world.sync()
        self.session: ServerSession = self.world.session(transacted=transacted)
        self.flow = MessageCredits()
        self.session.consumers.create(0, "q", flow=self.flow)
        self.grant(credit)

    def grant(self, credit: int) -> None:
        self.session.consumers.receive_credits(0, credit)
        self.world.sync()

    @property
    def bodies(self) -> list[str]:
        return [bytes(each[1].body).decode() for each in callback_of(self.session).delivered]

    @property
    def counts(self) -> list[int]:
        return callback_of(self.session).counts()

    def settle(self, index: int, outcome: Outcome) -> None:
        self.session.settle(0, callback_of(self.session).delivered[index][1].message_id, outcome)
        self.world.sync()

    def commit(self) -> None:
        self.session.commit()
        self.world.sync()


def test_accepted_removes_the_message() -> None:
    rig = SessionHarness("a", "b")
    rig.settle(1, ACCEPTED)
    assert (rig.queue.message_count, rig.queue.delivering_count, rig.queue.messages_acknowledged) == (1, 1, 1)


def test_rejected_goes_to_the_dead_letter_address_at_the_first_delivery() -> None:
    rig = SessionHarness("a", "b")
    rig.settle(0, REJECTED)
    assert (rig.queue.message_count, rig.queue.delivering_count, rig.queue.messages_killed) == (1, 1, 1)
    ((_, reference),) = rig.dead.browse((9, -1))
    message = rig.dead.read_waiting(reference)
    assert message is not None
    assert (bytes(message.body), message.properties[ORIGINAL_QUEUE]) == (b"a", "q")


def test_released_returns_without_a_count() -> None:
    rig = SessionHarness("a", "b")
    rig.settle(0, RELEASED)
    assert rig.bodies == ["a", "b", "a"]
    assert rig.counts == [1, 1, 1]


def test_modified_without_failure_returns_without_a_count() -> None:
    rig = SessionHarness("a")
    rig.settle(0, modified())
    assert (rig.bodies, rig.counts) == (["a", "a"], [1, 1])


def test_delivery_failed_counts_up_to_the_limit_of_deliveries() -> None:
    rig = SessionHarness("a")
    for number in range(3):
        rig.settle(number, FAILED)
    assert rig.counts == [1, 2, 3]
    assert (rig.queue.message_count, rig.dead.message_count) == (0, 1)


def test_a_delay_of_the_client_takes_the_place_of_that_of_the_settings() -> None:
    rig = SessionHarness("a", "b")
    rig.settle(0, modified(delivery_failed=True, delay_ms=500))
    assert (rig.bodies, rig.queue.scheduled_count) == (["a", "b"], 1)
    rig.world.clock.advance(499)
    assert rig.bodies == ["a", "b"]
    rig.world.clock.advance(1)
    rig.world.sync()
    assert (rig.bodies, rig.counts) == (["a", "b", "a"], [1, 1, 2])
    rig.settle(2, modified(delay_ms=500))
    rig.world.clock.advance(500)
    rig.world.sync()
    assert rig.counts == [1, 1, 2, 2], "not counted, but delayed"


def test_undeliverable_here_goes_to_another_consumer_only() -> None:
    rig = SessionHarness("a", "b")
    rig.settle(0, modified(undeliverable_here=True))
    assert rig.bodies == ["a", "b"], "not again to this consumer"
    assert rig.queue.pending.first_level() is not None
    other = rig.world.session()
    other.consumers.create(0, "q", flow=MessageCredits())
    other.consumers.receive_credits(0, 10)
    rig.world.sync()
    assert [bytes(each[1].body) for each in callback_of(other).delivered] == [b"a"]
    rig.world.session().sends.send(text("c"))
    rig.world.sync()
    assert len(rig.bodies) + len(callback_of(other).delivered) == 4, "later messages go to either"


def test_exclusions_keep_the_filter_and_have_a_limit() -> None:
    rig = SessionHarness()
    consumer = rig.session.consumers.by_id[0]
    for number in range(EXCLUDED_MESSAGES_MAX + 1):
        consumer.exclude(number + 1)
    found = consumer.filter
    assert isinstance(found, ExcludingFilter)
    assert found.matches(text("x").replace(message_id=1)), "the oldest exclusion is forgotten"
    assert not found.matches(text("x").replace(message_id=2))


def test_expired_goes_to_the_expiry_address_also_in_a_transaction() -> None:
    rig = SessionHarness("a", transacted=True)
    rig.settle(0, EXPIRED)
    assert (rig.queue.messages_expired, rig.expired.message_count) == (1, 1)


def test_rejected_from_a_non_destructive_queue_stays_in_it() -> None:
    rig = SessionHarness("a", non_destructive=True)
    rig.settle(0, REJECTED)
    assert (rig.queue.message_count, rig.queue.delivering_count, rig.dead.message_count) == (1, 0, 0)


@pytest.mark.parametrize(
    ("outcome", "left", "dead", "counts"),
    [
        (REJECTED, 0, 1, [1]),
        (RELEASED, 1, 0, [1, 1]),
        (FAILED, 1, 0, [1, 2]),
        (modified(undeliverable_here=True), 1, 0, [1]),
    ],
)
def test_an_outcome_in_a_transaction_takes_effect_with_the_commit(
    outcome: Outcome, left: int, dead: int, counts: list[int]
) -> None:
    rig = SessionHarness("a", transacted=True)
    rig.settle(0, outcome)
    assert (rig.queue.message_count, rig.queue.delivering_count, rig.dead.message_count) == (1, 1, 0)
    rig.commit()
    assert (rig.queue.message_count, rig.dead.message_count) == (left, dead)
    assert rig.counts == counts


@pytest.mark.parametrize("outcome", [REJECTED, RELEASED, FAILED, modified(undeliverable_here=True)])
def test_a_rollback_returns_a_delivery_with_an_outcome(outcome: Outcome) -> None:
    rig = SessionHarness("a", "b", transacted=True)
    rig.settle(0, outcome)
    rig.settle(1, ACCEPTED)
    rig.session.rollback()
    rig.world.sync()
    assert rig.bodies == ["a", "b", "a", "b"], "in their order"
    assert rig.counts == [1, 1, 2, 2]
    assert rig.dead.message_count == 0


def test_a_delivery_is_settled_once() -> None:
    rig = SessionHarness("a", transacted=True)
    rig.settle(0, RELEASED)
    rig.settle(0, REJECTED)
    (error,) = callback_of(rig.session).errors
    assert isinstance(error, IllegalState)
    transaction = rig.session.state.transaction
    assert transaction is not None
    assert transaction.rollback_only


def test_credit_in_messages_counts_each_message_whatever_its_size() -> None:
    rig = SessionHarness("a" * 10_000, "b", "c", credit=2)
    assert rig.bodies == ["a" * 10_000, "b"]
    rig.grant(0)
    assert len(rig.bodies) == 2
    rig.grant(1)
    assert rig.bodies[2:] == ["c"]


def test_drain_sends_what_there_is_and_takes_back_the_rest() -> None:
    rig = SessionHarness("a", "b", credit=1)
    told: list[tuple[int, int]] = []
    rig.session.consumers.drain(0, lambda unused: told.append((unused, len(rig.bodies))))
    rig.world.sync()
    assert told == [(0, 1)], "the credit was used up"
    rig.flow.credits = 5
    rig.session.consumers.drain(0, lambda unused: told.append((unused, len(rig.bodies))))
    rig.world.sync()
    assert told[1:] == [(4, 2)], "after the last message"
    assert rig.flow.credits == 0


def test_drain_waits_for_the_socket() -> None:
    rig = SessionHarness("a", credit=0)
    callback_of(rig.session).slow = True
    told: list[int] = []
    rig.flow.credits = 5
    rig.session.consumers.drain(0, told.append)
    rig.world.sync()
    assert told == []
    callback_of(rig.session).slow = False
    rig.session.consumers.resume_deliveries()
    rig.world.sync()
    assert (told, rig.bodies) == ([4], ["a"])
