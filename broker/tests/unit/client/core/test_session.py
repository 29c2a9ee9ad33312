"""A session against hand-made answers: its sends, both kinds of recovery, its confirmation window and its end."""

from __future__ import annotations

import pytest

from support.client import Outcome
from support.packet_driver import PacketDriver, sends_of
from understudy.client.core.consumer.taken import AcknowledgeMode
from understudy.errors import AddressFull, CallTimedOut, CommitOutcomeUnknown, ObjectClosed, SendOutcomeUnknown
from understudy.message import Message
from understudy.wire.core.codec import encode
from understudy.wire.core.packets import (
    Acknowledge,
    AddMetadataV2,
    Commit,
    CreateProducer,
    CreateQueueV2,
    ExceptionResponse,
    NullResponse,
    PacketsConfirmed,
    RemoveProducer,
    SessionClose,
    SessionSend,
    SessionStart,
    SessionStop,
    UniqueAddMetadata,
)

TRANSACTED = AcknowledgeMode.TRANSACTED
WINDOW = "&confirmationWindowSize=100000"


def test_durable_sends_are_confirmed_by_their_own_ids() -> None:
    talk = PacketDriver()
    first, second = talk.send(b"a"), talk.send(b"b")
    packets = talk.sent()
    assert packets[0] == CreateProducer(1, "q")
    assert sends_of(packets) == [(b"a", 1), (b"b", 2)]
    assert all(each.requires_response and each.sender_id == 1 for each in packets if isinstance(each, SessionSend))
    talk.answer(NullResponse(2))
    assert (first.settled, second.settled) == (False, True)
    talk.answer(ExceptionResponse(210, "full", 1))
    assert isinstance(first.error, AddressFull)


def test_non_durable_sends_are_not_answered_unless_wanted() -> None:
    talk = PacketDriver()
    assert talk.send(durable=False).settled
    talk = PacketDriver(url="&blockOnNonDurableSend=true")
    assert not talk.send(durable=False).settled
    talk = PacketDriver(url="&blockOnDurableSend=false")
    assert talk.send().settled


def test_unconfirmed_sends_are_repeated_by_a_new_session() -> None:
    talk = PacketDriver()
    outcomes = [talk.send(body) for body in (b"a", b"b", b"c")]
    talk.answer(NullResponse(1))
    talk.sent()
    talk.lose()
    outcomes.append(talk.send(b"d"))
    packets = talk.recover()
    assert sends_of(packets) == [(b"b", 2), (b"c", 3), (b"d", 4)]
    for correlation_id in (2, 3, 4):
        talk.answer(NullResponse(correlation_id))
    assert all(each.settled and each.error is None for each in outcomes)


def test_a_send_without_duplicate_id_is_unknown_after_a_failover() -> None:
    talk = PacketDriver(url=WINDOW)
    outcome = talk.send(duplicate_id=False)
    talk.sent()
    talk.lose()
    assert not outcome.settled, "a reattached session would still answer it"
    assert sends_of(talk.recover()) == []
    assert isinstance(outcome.error, SendOutcomeUnknown)


def test_calls_that_cannot_be_repeated_or_answered_fail_at_once() -> None:
    """UNBLOCKED: without a confirmation window no session is reattached, so no answer can come."""
    talk = PacketDriver()
    unmarked, marked = talk.send(b"1", duplicate_id=False), talk.send(b"2")
    talk.sent()
    talk.lose()
    assert isinstance(unmarked.error, SendOutcomeUnknown)
    assert not marked.settled
    assert [body for body, _ in sends_of(talk.recover())] == [b"2"]
    work = PacketDriver(TRANSACTED)
    work.send()
    outcome = Outcome()
    work.session.commit(outcome)
    work.sent()
    work.lose()
    assert isinstance(outcome.error, CommitOutcomeUnknown)


def test_work_begun_during_a_failover_is_not_lost_with_the_old_session() -> None:
    talk = PacketDriver(TRANSACTED)
    talk.send(b"1")
    first = Outcome()
    talk.session.commit(first)
    talk.sent()
    talk.lose()
    assert isinstance(first.error, CommitOutcomeUnknown)
    talk.send(b"2")
    second = Outcome()
    talk.session.commit(second)
    packets = talk.recover()
    assert [body for body, _ in sends_of(packets)] == [b"2"]
    assert isinstance(packets[-1], Commit)
    assert not talk.session.rollback_only


def test_closed_producer_refuses_and_lets_open_sends_end() -> None:
    talk = PacketDriver()
    outcome = talk.send()
    producer = next(iter(talk.session.producers.values()))
    talk.session.close_producer(producer)
    talk.session.close_producer(producer)
    assert talk.sent()[-1] == RemoveProducer(1)
    with pytest.raises(ObjectClosed):
        talk.session.send(producer, Message(b"x", address="q"), Outcome())
    talk.answer(NullResponse(1))
    assert outcome.settled


def test_no_confirmation_for_the_call_timeout_fails_the_connection() -> None:
    talk = PacketDriver(url="&callTimeout=1000")
    outcome = talk.send()
    talk.sent()
    talk.drive.tick(999)
    assert not talk.drive.core.failing_over
    talk.drive.tick(1)
    assert talk.drive.core.failing_over
    assert sends_of(talk.recover()) == [(b"m", 1)]
    talk.answer(NullResponse(1))
    assert outcome.settled


def test_temporary_queues_metadata_and_producers_come_back() -> None:
    talk = PacketDriver()
    talk.session.temporary_queue_created(CreateQueueV2("t", "t", None, False, True))
    talk.session.temporary_queue_created(CreateQueueV2("u", "u", None, False, True))
    talk.session.queue_deleted("u")
    talk.session.open_producer("q", 5)
    outcome = Outcome()
    talk.session.add_metadata("k", "v", True, outcome)
    assert talk.sent()[-1] == UniqueAddMetadata("k", "v", True)
    talk.answer(NullResponse())
    assert outcome.settled
    talk.lose()
    packets = talk.recover()
    assert CreateQueueV2("t", "t", None, False, True, False) in packets
    assert CreateProducer(1, "q") in packets
    assert AddMetadataV2("k", "v", False) in packets
    assert not any(isinstance(each, CreateQueueV2) and each.name == "u" for each in packets)


def test_stop_and_start() -> None:
    talk = PacketDriver()
    outcome = Outcome()
    talk.session.stop(outcome)
    assert talk.sent() == [SessionStop()]
    talk.answer(NullResponse())
    assert outcome.settled
    talk.lose()
    assert not any(isinstance(each, SessionStart) for each in talk.recover())
    talk.session.start()
    talk.session.start()
    assert talk.sent() == [SessionStart()]


def test_reattached_session_repeats_what_the_server_missed() -> None:
    talk = PacketDriver(TRANSACTED, url="&confirmationWindowSize=100000")
    consumer = talk.consumer()
    received = talk.take(consumer, 1)
    talk.send(b"a")
    outcome = Outcome()
    talk.session.commit(outcome)
    before = talk.sent()
    talk.lose()
    # The server had start, consumer and credits: commands 0 to 2.
    packets = talk.recover(reattached=2)
    assert [encode(each, 10) for each in packets] == [encode(each, 10) for each in before], (
        "the very same commands, in the same order"
    )
    commit = packets[-1]
    assert isinstance(commit, Commit)
    talk.answer(NullResponse(commit.correlation_id))
    assert outcome.error is None
    assert received.generation == talk.session.channel.generation, "messages can still be acknowledged"


def test_confirmed_commands_are_not_kept() -> None:
    talk = PacketDriver(url="&confirmationWindowSize=100000")
    talk.send(b"a")
    talk.send(b"b")
    talk.sent()
    # start 0, create producer 1, sends 2 and 3
    talk.answer(PacketsConfirmed(2))
    talk.lose()
    assert sends_of(talk.recover(reattached=2)) == [(b"b", 2)]


def test_received_commands_are_confirmed() -> None:
    talk = PacketDriver(url="&confirmationWindowSize=10&clientFailureCheckPeriod=1000&connectionTTL=-1")
    talk.send()
    talk.sent()
    talk.answer(NullResponse(1))
    assert talk.sent() == [PacketsConfirmed(0)]
    talk = PacketDriver(url="&confirmationWindowSize=100000&clientFailureCheckPeriod=1000&connectionTTL=-1")
    talk.send()
    talk.answer(NullResponse(1))
    talk.sent()
    talk.drive.tick(1000)
    assert PacketsConfirmed(0) in talk.sent(), "with every ping"


def test_refused_commands_count_like_all_others() -> None:
    talk = PacketDriver(url="&confirmationWindowSize=100000")
    refused, fine = talk.send(b"a"), talk.send(b"b")
    talk.answer(ExceptionResponse(210, "full", 1))
    query = Outcome()
    talk.session.consumers.open("gone", query)
    talk.answer(ExceptionResponse(100, "no"))
    talk.sent()
    talk.lose()
    # Counted there: start 0, producer 1, sends 2 and 3, consumer 4. Nothing is left to repeat.
    assert talk.recover(reattached=4) == []
    assert isinstance(refused.error, AddressFull)
    talk.answer(NullResponse(2))
    assert fine.settled


def test_close_acknowledges_then_tells_the_server() -> None:
    talk = PacketDriver()
    consumer = talk.consumer()
    talk.take(consumer, 1)
    outcome = Outcome()
    talk.session.close(outcome)
    assert talk.sent() == [Acknowledge(0, 1, False), SessionClose()]
    talk.answer(NullResponse())
    assert outcome.settled
    assert isinstance(consumer.ended, ObjectClosed)
    assert talk.session.channel_id not in talk.drive.core.sessions.by_channel
    again = Outcome()
    talk.session.close(again)
    assert again.settled
    with pytest.raises(ObjectClosed):
        talk.session.open_producer("q", 1)


def test_a_call_without_an_answer_fails_over_and_tells_its_caller() -> None:
    talk = PacketDriver(url="&callTimeout=1000")
    outcome = Outcome()
    talk.session.consumers.open("q", outcome)
    talk.drive.tick(1000)
    assert isinstance(outcome.error, CallTimedOut)
    assert talk.drive.core.failing_over


def test_an_error_without_a_waiting_call_is_logged() -> None:
    talk = PacketDriver()
    talk.answer(ExceptionResponse(0, "boom"))
    talk.answer(ExceptionResponse(0, "boom", 77))
    assert sum("boom" in line for line in talk.drive.link.lines) == 2


def test_unknown_packets_are_dropped() -> None:
    talk = PacketDriver()
    talk.drive.core.receive_data(encode(SessionStart(), talk.session.channel_id))
    talk.drive.core.receive_data(encode(SessionStart(), 99))
    assert talk.sent() == []
