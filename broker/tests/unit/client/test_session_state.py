"""A session against hand-made answers: sends, acknowledgements, transactions, both kinds of recovery."""

from __future__ import annotations

from typing import Any

import pytest

from support.client import Drive, Outcome
from understudy.client.consumer_state import AcknowledgeMode, ConsumerState, ReceivedMessage
from understudy.client.session_state import SessionState
from understudy.errors import (
    AddressFull,
    CallTimedOut,
    CommitOutcomeUnknown,
    ConnectionLost,
    DuplicateIdRejected,
    IllegalState,
    ObjectClosed,
    QueueNotFound,
    SendOutcomeUnknown,
    TransactionRolledBack,
)
from understudy.message import DUPLICATE_ID, Message
from understudy.wire.core.codec import encode, encode_receive
from understudy.wire.core.packets import (
    Acknowledge,
    AddMetadataV2,
    Commit,
    ConsumerClose,
    CreateConsumer,
    CreateProducer,
    CreateQueueV2,
    DisconnectConsumer,
    ExceptionResponse,
    FlowToken,
    IndividualAcknowledge,
    NullResponse,
    Packet,
    PacketsConfirmed,
    QueueQueryResponseV3,
    RemoveProducer,
    Rollback,
    SessionClose,
    SessionSend,
    SessionStart,
    SessionStop,
    UniqueAddMetadata,
)

CLIENT, INDIVIDUAL, TRANSACTED = AcknowledgeMode.CLIENT, AcknowledgeMode.INDIVIDUAL, AcknowledgeMode.TRANSACTED
LOST = ConnectionLost("pulled")


class Talk:
    """One connected session, and its channel."""

    def __init__(self, mode: AcknowledgeMode = AcknowledgeMode.AUTO, *, url: str = "") -> None:
        self.drive = Drive(f"tcp://a:1?reconnectAttempts=-1&producerWindowSize=-1{url}")
        self.drive.connect()
        self.session: SessionState = self.drive.session(mode)

    def sent(self) -> list[Packet]:
        return [packet for channel_id, packet in self.drive.sent() if channel_id == self.session.channel_id]

    def answer(self, packet: Packet) -> None:
        self.drive.answer(self.session.channel_id, packet)

    def consumer(self, queue: str = "q", **fields: Any) -> ConsumerState:
        outcome = Outcome()
        self.session.consumers.open(queue, outcome, **fields)
        assert isinstance(self.sent()[-1], CreateConsumer)
        self.answer(QueueQueryResponseV3(True, True, name=queue, address=queue))
        self.sent()
        found: ConsumerState = outcome.value
        return found

    def deliver(self, consumer: ConsumerState, message_id: int, delivery_count: int = 1) -> None:
        message = Message(b"x", address="q", message_id=message_id)
        frame = encode_receive(message, self.session.channel_id, consumer.consumer_id, delivery_count)
        self.drive.core.receive_data(frame)

    def take(self, consumer: ConsumerState, message_id: int) -> ReceivedMessage:
        self.deliver(consumer, message_id)
        received = consumer.take()
        assert received is not None
        return received

    def send(self, body: bytes = b"m", *, duplicate_id: bool = True, durable: bool = True) -> Outcome:
        if not self.session.producers:
            self.session.open_producer("q", 100)
        producer = next(iter(self.session.producers.values()))
        outcome = Outcome()
        properties = {DUPLICATE_ID: body.decode()} if duplicate_id else None
        message = Message(body, address="q", properties=properties, durable=durable)
        self.session.send(producer, message, outcome)
        return outcome

    def lose(self) -> None:
        self.drive.clock.now += 10_000
        self.drive.refuse(LOST)

    def recover(self, **how: Any) -> list[Packet]:
        return [packet for _, packet in self.drive.fail_over(**how)]


def sends_of(packets: list[Packet]) -> list[tuple[bytes, int]]:
    return [(each.message.body, each.correlation_id) for each in packets if isinstance(each, SessionSend)]


# producing


def test_durable_sends_are_confirmed_by_their_own_ids() -> None:
    talk = Talk()
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
    talk = Talk()
    assert talk.send(durable=False).settled
    talk = Talk(url="&blockOnNonDurableSend=true")
    assert not talk.send(durable=False).settled
    talk = Talk(url="&blockOnDurableSend=false")
    assert talk.send().settled


def test_unconfirmed_sends_are_repeated_by_a_new_session() -> None:
    talk = Talk()
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
    talk = Talk()
    outcome = talk.send(duplicate_id=False)
    talk.sent()
    talk.lose()
    assert not outcome.settled, "a reattached session would still answer it"
    assert sends_of(talk.recover()) == []
    assert isinstance(outcome.error, SendOutcomeUnknown)


def test_closed_producer_refuses_and_lets_open_sends_end() -> None:
    talk = Talk()
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
    talk = Talk(url="&callTimeout=1000")
    outcome = talk.send()
    talk.sent()
    talk.drive.tick(999)
    assert not talk.drive.core.failing_over
    talk.drive.tick(1)
    assert talk.drive.core.failing_over
    assert sends_of(talk.recover()) == [(b"m", 1)]
    talk.answer(NullResponse(1))
    assert outcome.settled


# consuming


def test_consumer_is_there_when_the_broker_says_so() -> None:
    talk = Talk()
    outcome = Outcome()
    talk.session.consumers.open("q", outcome, filter_text="a = 1", priority=3)
    assert talk.sent() == [CreateConsumer(0, "q", "a = 1", False, True, 3)]
    talk.answer(QueueQueryResponseV3(True, name="q", default_consumer_window_size=500))
    assert talk.sent() == [FlowToken(0, 500)], "the broker's own window, as the URL says none"
    assert outcome.value.window_bytes == 500


def test_consumer_of_a_missing_queue() -> None:
    talk = Talk()
    outcome = Outcome()
    talk.session.consumers.open("q", outcome)
    talk.answer(ExceptionResponse(100, "no queue"))
    assert isinstance(outcome.error, QueueNotFound)
    assert len(talk.session.consumers) == 0


def test_a_consumer_nobody_waits_for_any_more_is_closed() -> None:
    talk = Talk()
    outcome = Outcome()
    talk.session.consumers.open("q", outcome)
    outcome.set_result("cancelled")
    talk.sent()
    talk.answer(QueueQueryResponseV3(True, name="q"))
    assert talk.sent() == [ConsumerClose(0)]


def test_auto_acknowledgements_go_out_once_per_flush() -> None:
    talk = Talk()
    consumer = talk.consumer()
    for message_id in (1, 2, 3):
        talk.deliver(consumer, message_id)
    consumer.take()
    consumer.take()
    consumer.take()
    consumer.take()
    assert talk.sent() == [Acknowledge(0, 3, False)]


def test_auto_acknowledgements_can_be_answered_ones() -> None:
    talk = Talk(url="&blockOnAcknowledge=true")
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
    talk = Talk(CLIENT)
    consumer, other = talk.consumer("q"), talk.consumer("r")
    talk.take(consumer, 1)
    last = talk.take(other, 2)
    outcome = Outcome()
    talk.session.consumers.acknowledge(last, outcome)
    assert talk.sent()[:2] == [Acknowledge(0, 1, False), Acknowledge(1, 2, False)]
    talk.answer(NullResponse(-1))
    assert outcome.value is True


def test_individual_mode_acknowledges_one() -> None:
    talk = Talk(INDIVIDUAL)
    consumer = talk.consumer()
    talk.take(consumer, 1)
    second = talk.take(consumer, 2)
    outcome = Outcome()
    talk.session.consumers.acknowledge(second, outcome)
    assert talk.sent() == [IndividualAcknowledge(0, 2, True)]
    talk.answer(NullResponse())
    assert outcome.value is True


@pytest.mark.parametrize("mode", [CLIENT, INDIVIDUAL])
def test_acknowledging_across_a_failover_is_false_and_harmless(mode: AcknowledgeMode) -> None:
    talk = Talk(mode)
    consumer = talk.consumer()
    received = talk.take(consumer, 1)
    under_way, waiting, later = Outcome(), Outcome(), Outcome()
    talk.session.consumers.acknowledge(received, under_way)
    talk.session.consumers.acknowledge(received, waiting)
    talk.sent()
    talk.lose()
    talk.recover()
    assert (under_way.value, waiting.value) == (False, False)
    talk.session.consumers.acknowledge(received, later)
    assert later.value is False
    assert any("before a failover" in line for line in talk.drive.link.lines)


def test_consumers_are_created_again_with_their_queue_and_credits() -> None:
    talk = Talk()
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
    assert outcome.value.take() is None, "what was buffered comes again"
    talk.answer(info)
    assert talk.sent() == [FlowToken(0, 1 << 20)]
    talk.deliver(outcome.value, 1, 2)
    received = outcome.value.take()
    assert received is not None
    assert received.redelivered


def test_a_consumer_whose_queue_is_gone_after_the_failover_ends() -> None:
    talk = Talk()
    consumer = talk.consumer()
    talk.lose()
    talk.recover()
    talk.answer(ExceptionResponse(100, "no queue"))
    assert isinstance(consumer.ended, QueueNotFound)


def test_temporary_queues_metadata_and_producers_come_back() -> None:
    talk = Talk()
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


def test_closing_a_consumer_acknowledges_what_auto_mode_owes() -> None:
    talk = Talk()
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
    talk = Talk()
    consumer = talk.consumer()
    talk.answer(DisconnectConsumer(consumer.consumer_id))
    assert isinstance(consumer.ended, QueueNotFound)


def test_stop_and_start() -> None:
    talk = Talk()
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


# transactions


def test_commit_sends_acknowledgements_first() -> None:
    talk = Talk(TRANSACTED)
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
    talk = Talk(TRANSACTED, url="&ackBatchSize=10")
    consumer = talk.consumer()
    talk.take(consumer, 1)
    assert Acknowledge(0, 1, False) in talk.sent()


def test_rollback_stops_acknowledges_rolls_back_and_starts() -> None:
    talk = Talk(TRANSACTED)
    consumer = talk.consumer()
    talk.take(consumer, 1)
    talk.deliver(consumer, 2)
    outcome = Outcome()
    talk.session.rollback(outcome)
    assert talk.sent() == [SessionStop()]
    talk.answer(NullResponse())
    assert talk.sent() == [Acknowledge(0, 1, False), Rollback(False)]
    assert consumer.take() is None, "what was buffered comes again"
    talk.answer(NullResponse())
    assert talk.sent() == [SessionStart()]
    assert outcome.settled
    assert outcome.error is None


def test_commit_refused_by_the_broker() -> None:
    talk = Talk(TRANSACTED)
    talk.send()
    outcome = Outcome()
    talk.session.commit(outcome)
    commit = talk.sent()[-1]
    assert isinstance(commit, Commit)
    talk.answer(ExceptionResponse(113, "duplicate", commit.correlation_id))
    assert isinstance(outcome.error, DuplicateIdRejected)


def test_a_failover_dooms_the_open_transaction() -> None:
    talk = Talk(TRANSACTED)
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


def test_an_idle_transaction_survives_a_failover() -> None:
    talk = Talk(TRANSACTED)
    talk.lose()
    talk.recover()
    assert not talk.session.rollback_only


def test_a_commit_cut_off_is_unknown_and_the_next_work_is_new() -> None:
    talk = Talk(TRANSACTED)
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
    talk = Talk(TRANSACTED)
    talk.send()
    talk.lose()
    outcome = Outcome()
    talk.session.commit(outcome)
    packets = talk.recover()
    assert isinstance(outcome.error, TransactionRolledBack)
    assert not any(isinstance(each, Commit) for each in packets)
    assert not talk.session.rollback_only


def test_a_rollback_cut_off_is_done() -> None:
    talk = Talk(TRANSACTED)
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
    talk = Talk()
    with pytest.raises(IllegalState):
        talk.session.commit(Outcome())
    with pytest.raises(IllegalState):
        talk.session.rollback(Outcome())


# the confirmation window


def test_reattached_session_repeats_what_the_server_missed() -> None:
    talk = Talk(TRANSACTED, url="&confirmationWindowSize=100000")
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
    assert received.generation == talk.session.generation, "messages can still be acknowledged"


def test_confirmed_commands_are_not_kept() -> None:
    talk = Talk(url="&confirmationWindowSize=100000")
    talk.send(b"a")
    talk.send(b"b")
    talk.sent()
    # start 0, create producer 1, sends 2 and 3
    talk.answer(PacketsConfirmed(2))
    talk.lose()
    assert sends_of(talk.recover(reattached=2)) == [(b"b", 2)]


def test_received_commands_are_confirmed() -> None:
    talk = Talk(url="&confirmationWindowSize=10&clientFailureCheckPeriod=1000&connectionTTL=-1")
    talk.send()
    talk.sent()
    talk.answer(NullResponse(1))
    assert talk.sent() == [PacketsConfirmed(0)]
    talk = Talk(url="&confirmationWindowSize=100000&clientFailureCheckPeriod=1000&connectionTTL=-1")
    talk.send()
    talk.answer(NullResponse(1))
    talk.sent()
    talk.drive.tick(1000)
    assert PacketsConfirmed(0) in talk.sent(), "with every ping"


def test_refused_commands_count_like_all_others() -> None:
    talk = Talk(url="&confirmationWindowSize=100000")
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


# the end


def test_close_acknowledges_then_tells_the_server() -> None:
    talk = Talk()
    consumer = talk.consumer()
    talk.take(consumer, 1)
    outcome = Outcome()
    talk.session.close(outcome)
    assert talk.sent() == [Acknowledge(0, 1, False), SessionClose()]
    talk.answer(NullResponse())
    assert outcome.settled
    assert isinstance(consumer.ended, ObjectClosed)
    assert talk.session.channel_id not in talk.drive.core.sessions
    again = Outcome()
    talk.session.close(again)
    assert again.settled
    with pytest.raises(ObjectClosed):
        talk.session.open_producer("q", 1)


def test_a_call_without_an_answer_fails_over_and_tells_its_caller() -> None:
    talk = Talk(url="&callTimeout=1000")
    outcome = Outcome()
    talk.session.consumers.open("q", outcome)
    talk.drive.tick(1000)
    assert isinstance(outcome.error, CallTimedOut)
    assert talk.drive.core.failing_over


def test_an_error_nobody_waits_for_is_logged() -> None:
    talk = Talk()
    talk.answer(ExceptionResponse(0, "boom"))
    talk.answer(ExceptionResponse(0, "boom", 77))
    assert sum("boom" in line for line in talk.drive.link.lines) == 2


def test_unknown_packets_are_dropped() -> None:
    talk = Talk()
    talk.drive.core.receive_data(encode(SessionStart(), talk.session.channel_id))
    talk.drive.core.receive_data(encode(SessionStart(), 99))
    assert talk.sent() == []
