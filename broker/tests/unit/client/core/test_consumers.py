"""The consumers of a session against hand-made answers: opening, acknowledging, and coming back after a failover."""

from __future__ import annotations

import pytest

from support.client import Outcome
from support.packet_driver import PacketDriver
from understudy.client.core.consumer.state import ConsumerSettings
from understudy.client.core.consumer.taken import AcknowledgeMode
from understudy.errors import MessageUnreadable, QueueNotFound, TransactionRolledBack
from understudy.message import Message
from understudy.wire.core.codes import ErrorCode
from understudy.wire.core.packets import (
    Acknowledge,
    Commit,
    ConsumerClose,
    CreateConsumer,
    CreateQueueV2,
    DisconnectConsumer,
    ExceptionResponse,
    FlowToken,
    IndividualAcknowledge,
    NullResponse,
    QueueQuery,
    QueueQueryResponseV3,
    ReceiveContinuation,
    ReceiveLargeMessage,
    SessionStart,
    header_of_message,
)

CLIENT, INDIVIDUAL = AcknowledgeMode.CLIENT, AcknowledgeMode.INDIVIDUAL


def test_consumer_is_there_when_the_broker_says_so() -> None:
    talk = PacketDriver()
    outcome = Outcome()
    talk.session.consumers.open("q", outcome, ConsumerSettings("a = 1", priority=3))
    assert talk.sent() == [CreateConsumer(0, "q", "a = 1", False, True, 3)]
    talk.answer(QueueQueryResponseV3(True, name="q", default_consumer_window_size=500))
    assert talk.sent() == [FlowToken(0, 500)], "the broker's own window, as the URL says none"
    assert outcome.value.window_bytes == 500


def test_consumer_of_a_missing_queue() -> None:
    talk = PacketDriver()
    outcome = Outcome()
    talk.session.consumers.open("q", outcome)
    talk.answer(ExceptionResponse(100, "no queue"))
    assert isinstance(outcome.error, QueueNotFound)
    assert len(talk.session.consumers) == 0


def test_a_consumer_whose_creation_was_cancelled_is_closed() -> None:
    talk = PacketDriver()
    outcome = Outcome()
    talk.session.consumers.open("q", outcome)
    outcome.set_result("cancelled")
    talk.sent()
    talk.answer(QueueQueryResponseV3(True, name="q"))
    assert talk.sent() == [ConsumerClose(0)]


def test_auto_acknowledgements_go_out_once_per_flush() -> None:
    talk = PacketDriver()
    consumer = talk.consumer()
    for message_id in (1, 2, 3):
        talk.deliver(consumer, message_id)
    consumer.take()
    consumer.take()
    consumer.take()
    consumer.take()
    assert talk.sent() == [Acknowledge(0, 3, False)]


def test_auto_acknowledgements_can_be_answered_ones() -> None:
    talk = PacketDriver(url="&blockOnAcknowledge=true")
    consumer = talk.consumer()
    talk.take(consumer, 1)
    consumer.take()
    assert talk.sent() == [Acknowledge(0, 1, True)]
    talk.take(consumer, 2)
    consumer.take()
    assert talk.sent() == [], "the next one waits for the answer"
    talk.answer(NullResponse())
    assert talk.sent() == [Acknowledge(0, 2, True)]


def test_client_mode_acknowledges_and_commits() -> None:
    talk = PacketDriver(CLIENT)
    consumer, other = talk.consumer("q"), talk.consumer("r")
    talk.take(consumer, 1)
    last = talk.take(other, 2)
    outcome = Outcome()
    talk.session.settlements.acknowledge(last, outcome)
    assert talk.sent()[:2] == [Acknowledge(0, 1, False), Acknowledge(1, 2, False)]
    talk.answer(NullResponse(-1))
    assert outcome.value is True


def test_individual_mode_acknowledges_one() -> None:
    talk = PacketDriver(INDIVIDUAL)
    consumer = talk.consumer()
    talk.take(consumer, 1)
    second = talk.take(consumer, 2)
    outcome = Outcome()
    talk.session.settlements.acknowledge(second, outcome)
    packets = talk.sent()
    assert packets == [IndividualAcknowledge(0, 2, False), Commit(-3)]
    talk.answer(NullResponse(-3))
    assert outcome.value is True


@pytest.mark.parametrize("mode", [CLIENT, INDIVIDUAL])
def test_acknowledging_across_a_failover_is_false_and_harmless(mode: AcknowledgeMode) -> None:
    talk = PacketDriver(mode)
    consumer = talk.consumer()
    received = talk.take(consumer, 1)
    under_way, waiting, later = Outcome(), Outcome(), Outcome()
    talk.session.settlements.acknowledge(received, under_way)
    talk.session.settlements.acknowledge(received, waiting)
    talk.sent()
    talk.lose()
    talk.recover()
    assert (under_way.value, waiting.value) == (False, False)
    talk.session.settlements.acknowledge(received, later)
    assert later.value is False
    assert any("before a failover" in line for line in talk.drive.link.lines)


def test_consumers_are_created_again_with_their_queue_and_credits() -> None:
    talk = PacketDriver()
    outcome = Outcome()
    talk.session.consumers.open("q", outcome)
    info = QueueQueryResponseV3(
        True, False, True, name="q", address="ad", routing_type=0, auto_created=True, max_consumers=3, filter="x = 1"
    )
    talk.answer(info)
    talk.deliver(outcome.value, 1)
    talk.sent()
    talk.lose()
    packets = talk.recover()
    create = next(each for each in packets if isinstance(each, CreateQueueV2))
    assert (create.name, create.address, create.filter, create.durable, create.temporary) == (
        "q",
        "ad",
        "x = 1",
        False,
        True,
    )
    assert (create.routing_type, create.max_consumers, create.requires_response) == (0, 3, False)
    assert [type(each) for each in packets] == [SessionStart, CreateQueueV2, CreateConsumer]
    assert outcome.value.take() is None, "buffered messages are delivered again"
    talk.answer(info)
    assert talk.sent() == [FlowToken(0, 1 << 20)]
    talk.deliver(outcome.value, 1, 2)
    received = outcome.value.take()
    assert received is not None
    assert received.redelivered


def test_a_consumer_whose_queue_is_gone_after_the_failover_ends() -> None:
    talk = PacketDriver()
    consumer = talk.consumer()
    talk.lose()
    talk.recover()
    talk.answer(ExceptionResponse(100, "no queue"))
    assert isinstance(consumer.ended, QueueNotFound)


def test_closing_a_consumer_acknowledges_what_auto_mode_owes() -> None:
    talk = PacketDriver()
    consumer = talk.consumer()
    talk.take(consumer, 4)
    outcome = Outcome()
    talk.session.consumers.close(consumer, outcome)
    assert talk.sent() == [Acknowledge(0, 4, False), ConsumerClose(0)]
    assert not outcome.settled
    talk.answer(NullResponse())
    assert outcome.settled
    again = Outcome()
    talk.session.consumers.close(consumer, again)
    assert again.settled


def test_the_broker_can_close_a_consumer() -> None:
    talk = PacketDriver()
    consumer = talk.consumer()
    talk.answer(DisconnectConsumer(consumer.consumer_id))
    assert isinstance(consumer.ended, QueueNotFound)


@pytest.mark.parametrize("size_bytes", [1_000, 10_000_000])
@pytest.mark.parametrize("exists", [True, False])
def test_a_consumer_closed_in_the_middle_of_a_body_says_why(size_bytes: int, exists: bool) -> None:
    """Smaller bodies are handed over as a whole, larger ones while they come."""
    talk = PacketDriver()
    consumer = talk.consumer()
    header = header_of_message(Message(b"", address="q", message_id=77))
    talk.answer(ReceiveLargeMessage(0, 1, size_bytes, header))
    received = consumer.take()
    talk.answer(ReceiveContinuation(b"begin", True, 0))
    talk.sent()
    talk.answer(DisconnectConsumer(0))
    assert talk.sent() == [QueueQuery("q")]
    talk.answer(QueueQueryResponseV3(exists))
    if exists:
        assert isinstance(consumer.ended, MessageUnreadable)
        assert "message 77 of queue q: its body is damaged" in str(consumer.ended)
    else:
        assert isinstance(consumer.ended, QueueNotFound)
    if received is not None:
        assert received.stream is not None
        assert received.stream.failure is consumer.ended


def test_a_commit_acknowledges_messages_of_a_consumer_that_the_broker_has_closed() -> None:
    """The broker refuses the acknowledgement, so it cannot confirm a transaction without these messages."""
    talk = PacketDriver(AcknowledgeMode.TRANSACTED)
    consumer, other = talk.consumer("q"), talk.consumer("r")
    talk.take(consumer, 1)
    talk.take(consumer, 2)
    talk.take(other, 3)
    talk.answer(DisconnectConsumer(consumer.consumer_id))
    outcome = Outcome()
    talk.session.transaction.commit(outcome)
    assert talk.sent() == [Acknowledge(0, 2, False), Acknowledge(1, 3, False), Commit(-4)]
    talk.answer(ExceptionResponse(ErrorCode.TRANSACTION_ROLLED_BACK, "no consumer 0"))
    assert isinstance(outcome.error, TransactionRolledBack)
    again = Outcome()
    talk.session.transaction.commit(again)
    assert talk.sent() == [Commit(-5)]
    talk.answer(NullResponse(-5))
    assert again.settled


def test_a_commit_that_waits_for_another_call_comes_after_that_acknowledgement() -> None:
    talk = PacketDriver(AcknowledgeMode.TRANSACTED)
    consumer = talk.consumer()
    talk.take(consumer, 1)
    stop, commit = Outcome(), Outcome()
    talk.session.stop(stop)
    talk.session.transaction.commit(commit)
    talk.sent()
    talk.answer(DisconnectConsumer(consumer.consumer_id))
    talk.answer(NullResponse())
    assert talk.sent() == [Acknowledge(0, 1, False), Commit(-4)]


@pytest.mark.parametrize("mode", [CLIENT, INDIVIDUAL, AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK])
def test_messages_of_a_consumer_that_the_broker_has_closed_are_not_acknowledged(mode: AcknowledgeMode) -> None:
    talk = PacketDriver(mode)
    consumer = talk.consumer()
    received = talk.take(consumer, 1)
    talk.answer(DisconnectConsumer(consumer.consumer_id))
    outcome = Outcome()
    talk.session.settlements.acknowledge(received, outcome)
    assert outcome.value is False
    assert talk.sent() == []


@pytest.mark.parametrize("mode", [CLIENT, INDIVIDUAL])
def test_an_acknowledgement_that_waits_while_the_broker_closes_the_consumer_is_false(mode: AcknowledgeMode) -> None:
    talk = PacketDriver(mode)
    consumer = talk.consumer()
    received = talk.take(consumer, 1)
    stop, outcome = Outcome(), Outcome()
    talk.session.stop(stop)
    talk.session.settlements.acknowledge(received, outcome)
    talk.sent()
    talk.answer(DisconnectConsumer(consumer.consumer_id))
    talk.answer(NullResponse())
    assert talk.sent() == [Commit(-4)]
    talk.answer(NullResponse(-4))
    assert outcome.value is False


@pytest.mark.parametrize("mode", [CLIENT, INDIVIDUAL])
def test_messages_of_a_closed_consumer_that_went_back_are_not_acknowledged(mode: AcknowledgeMode) -> None:
    talk = PacketDriver(mode)
    consumer = talk.consumer()
    received = talk.take(consumer, 1)
    closed, outcome = Outcome(), Outcome()
    talk.session.consumers.close(consumer, closed)
    talk.answer(NullResponse())
    talk.sent()
    talk.session.settlements.acknowledge(received, outcome)
    assert outcome.value is False
    assert talk.sent() == []


def test_a_due_acknowledgement_is_dropped_with_its_consumer() -> None:
    talk = PacketDriver()
    consumer = talk.consumer()
    talk.take(consumer, 1)
    consumer.take()
    talk.answer(DisconnectConsumer(consumer.consumer_id))
    assert talk.sent() == []


def test_messages_that_wait_in_a_consumer_are_not_handed_out_after_the_broker_has_closed_it() -> None:
    """The client still asks whether the queue exists: until the answer the consumer has no error."""
    talk = PacketDriver(AcknowledgeMode.TRANSACTED)
    consumer = talk.consumer()
    talk.deliver(consumer, 1)
    talk.answer(ReceiveLargeMessage(0, 1, 1_000, header_of_message(Message(b"", address="q", message_id=77))))
    talk.answer(DisconnectConsumer(consumer.consumer_id))
    assert consumer.take() is None
    assert talk.sent() == [QueueQuery("q")]
    talk.answer(QueueQueryResponseV3(True))
    assert isinstance(consumer.ended, MessageUnreadable)
