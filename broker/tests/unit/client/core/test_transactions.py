"""Local transactions of a session against hand-made answers: what a commit says, and what a failover makes of it."""

from __future__ import annotations

import pytest

from support.client import Outcome
from support.packet_driver import PacketDriver, sends_of
from understudy.client.core.consumer.taken import AcknowledgeMode
from understudy.errors import CommitOutcomeUnknown, DuplicateIdRejected, IllegalState, TransactionRolledBack
from understudy.wire.core.packets import (
    Acknowledge,
    Commit,
    ExceptionResponse,
    NullResponse,
    Rollback,
    SessionStart,
    SessionStop,
)

TRANSACTED = AcknowledgeMode.TRANSACTED
WINDOW = "&confirmationWindowSize=100000"


def test_commit_sends_acknowledgements_first() -> None:
    talk = PacketDriver(TRANSACTED)
    consumer = talk.consumer()
    talk.take(consumer, 1)
    talk.take(consumer, 2)
    sent = talk.send()
    assert sent.settled, "a transacted send is accepted, not confirmed"
    outcome = Outcome()
    talk.session.commit(outcome)
    packets = talk.sent()
    assert packets[-2] == Acknowledge(0, 2, False)
    commit = packets[-1]
    assert isinstance(commit, Commit)
    talk.answer(NullResponse(commit.correlation_id))
    assert outcome.settled
    assert outcome.error is None


def test_large_batches_are_acknowledged_before_the_commit() -> None:
    talk = PacketDriver(TRANSACTED, url="&ackBatchSize=10")
    consumer = talk.consumer()
    talk.take(consumer, 1)
    assert Acknowledge(0, 1, False) in talk.sent()


def test_rollback_stops_acknowledges_rolls_back_and_starts() -> None:
    talk = PacketDriver(TRANSACTED)
    consumer = talk.consumer()
    talk.take(consumer, 1)
    talk.deliver(consumer, 2)
    outcome = Outcome()
    talk.session.rollback(outcome)
    assert talk.sent() == [SessionStop()]
    talk.answer(NullResponse())
    assert talk.sent() == [Acknowledge(0, 1, False), Rollback(False)]
    assert consumer.take() is None, "buffered messages are delivered again"
    talk.answer(NullResponse())
    assert talk.sent() == [SessionStart()]
    assert outcome.settled
    assert outcome.error is None


def test_deliveries_that_a_reattachment_repeats_before_a_rollback_are_returned_by_it() -> None:
    """The stop got no answer in time; an acknowledgement of a later message would settle the returned ones, too."""
    talk = PacketDriver(TRANSACTED, url=f"{WINDOW}&callTimeout=1000")
    consumer = talk.consumer()
    talk.take(consumer, 1)
    outcome = Outcome()
    talk.session.rollback(outcome)
    assert talk.sent() == [SessionStop()]
    talk.drive.tick(1000)
    assert talk.drive.core.failing_over
    assert Rollback(False) not in talk.recover(reattached=3), "the session answers the stop first"
    # sent by the server before it knew of the stop
    talk.deliver(consumer, 2)
    talk.answer(NullResponse())
    assert Rollback(False) in talk.sent()
    talk.answer(NullResponse())
    assert outcome.settled
    assert consumer.take() is None
    talk.deliver(consumer, 1, 2)
    received = consumer.take()
    assert received is not None
    assert received.message_id == 1


def test_commit_refused_by_the_broker() -> None:
    talk = PacketDriver(TRANSACTED)
    talk.send()
    outcome = Outcome()
    talk.session.commit(outcome)
    commit = talk.sent()[-1]
    assert isinstance(commit, Commit)
    talk.answer(ExceptionResponse(113, "duplicate", commit.correlation_id))
    assert isinstance(outcome.error, DuplicateIdRejected)


def test_a_failover_dooms_the_open_transaction() -> None:
    talk = PacketDriver(TRANSACTED)
    talk.send(b"a")
    talk.lose()
    talk.recover()
    assert talk.session.rollback_only
    assert talk.send(b"b").settled
    assert sends_of(talk.sent()) == [], "it would be rolled back anyway"
    outcome = Outcome()
    talk.session.commit(outcome)
    assert talk.sent() == [SessionStop()]
    talk.answer(NullResponse())
    talk.answer(NullResponse())
    assert isinstance(outcome.error, TransactionRolledBack)
    assert not talk.session.rollback_only
    talk.send(b"c")
    assert sends_of(talk.sent())[0][0] == b"c"


def test_a_message_taken_without_a_connection_is_lost_with_the_session_that_delivered_it() -> None:
    """The message is delivered again, so its transaction may only be rolled back: an application would believe a commit
    that succeeds.
    """
    talk = PacketDriver(TRANSACTED)
    consumer = talk.consumer()
    talk.deliver(consumer, 1)
    talk.lose()
    assert consumer.take() is not None
    talk.recover()
    assert talk.session.rollback_only


def test_a_message_taken_without_a_connection_is_acknowledged_after_a_reattachment() -> None:
    talk = PacketDriver(TRANSACTED, url=WINDOW)
    consumer = talk.consumer()
    talk.deliver(consumer, 1)
    talk.lose()
    assert consumer.take() is not None
    talk.recover(reattached=True)
    assert not talk.session.rollback_only
    talk.session.commit(Outcome())
    assert [type(packet) for packet in talk.sent()][-2:] == [Acknowledge, Commit]


def test_work_after_a_commit_under_way_is_lost_too() -> None:
    talk = PacketDriver(TRANSACTED, url=WINDOW)
    consumer = talk.consumer()
    talk.deliver(consumer, 1)
    talk.deliver(consumer, 2)
    consumer.take()
    first = Outcome()
    talk.session.commit(first)
    assert consumer.take() is not None
    talk.lose()
    talk.recover()
    assert isinstance(first.error, CommitOutcomeUnknown)
    assert talk.session.rollback_only


def test_an_idle_transaction_survives_a_failover() -> None:
    talk = PacketDriver(TRANSACTED)
    talk.lose()
    talk.recover()
    assert not talk.session.rollback_only


def test_a_commit_cut_off_is_unknown_and_the_next_work_is_new() -> None:
    talk = PacketDriver(TRANSACTED, url=WINDOW)
    talk.send()
    outcome = Outcome()
    talk.session.commit(outcome)
    talk.sent()
    talk.lose()
    assert not outcome.settled, "a reattached session would still answer it"
    talk.recover()
    assert isinstance(outcome.error, CommitOutcomeUnknown)
    assert not talk.session.rollback_only


def test_a_commit_asked_for_during_the_failover_was_rolled_back() -> None:
    talk = PacketDriver(TRANSACTED)
    talk.send()
    talk.lose()
    outcome = Outcome()
    talk.session.commit(outcome)
    packets = talk.recover()
    assert isinstance(outcome.error, TransactionRolledBack)
    assert not any(isinstance(each, Commit) for each in packets)
    assert not talk.session.rollback_only


def test_a_rollback_cut_off_is_done() -> None:
    talk = PacketDriver(TRANSACTED)
    talk.send()
    outcome = Outcome()
    talk.session.rollback(outcome)
    talk.sent()
    talk.lose()
    packets = talk.recover()
    assert outcome.settled
    assert outcome.error is None
    assert not any(isinstance(each, (Rollback, SessionStop)) for each in packets)
    assert not talk.session.rollback_only


def test_only_transacted_sessions_commit() -> None:
    talk = PacketDriver()
    with pytest.raises(IllegalState):
        talk.session.commit(Outcome())
    with pytest.raises(IllegalState):
        talk.session.rollback(Outcome())
