"""Failovers of the client over AMQP 0-9-1 against a hand-played broker: sessions that are resumed, and that are not."""

from __future__ import annotations

import pytest

from support.client import Outcome
from support.client091 import Drive091, Sent, status
from understudy.client.amqp091.handshake import ClientSession
from understudy.client.core.connection.failover import State
from understudy.client.core.consumer.taken import AcknowledgeMode
from understudy.errors import (
    AddressFull,
    AddressNotFound,
    CommitOutcomeUnknown,
    SendOutcomeUnknown,
    TransactionRolledBack,
)
from understudy.wire.amqp091 import methods as m


def bodies(sent: list[Sent]) -> list[bytes]:
    return [each.body for each in sent if isinstance(each.method, m.BasicPublish)]


def test_a_session_is_started_and_resumed_by_its_uuid() -> None:
    drive = Drive091()
    drive.connect()
    assert drive.start_ok is not None
    started = drive.start_ok.client_properties["qpid.session.start"]
    assert started[14] == "4"
    drive.lose()
    drive.again()
    assert drive.start_ok.client_properties["qpid.session.resume"] == started
    assert "qpid.session.start" not in drive.start_ok.client_properties
    assert drive.core.state is State.CONNECTED


@pytest.mark.parametrize(("ttl_ms", "timeout_s"), [(60_000, 60), (2_500, 2), (500, 1), (900_000, 300), (-1, 300)])
def test_the_broker_keeps_a_session_for_the_connection_ttl(ttl_ms: int, timeout_s: int) -> None:
    assert ClientSession.for_ttl(ttl_ms).timeout_s == timeout_s


def test_the_timeout_of_a_session_is_sent() -> None:
    drive = Drive091()
    drive.connect()
    assert drive.start_ok is not None
    assert drive.start_ok.client_properties["qpid.session.timeout"] == 60


def test_a_session_that_has_ended_is_started_anew() -> None:
    drive = Drive091()
    drive.connect()
    assert drive.start_ok is not None
    former = drive.start_ok.client_properties["qpid.session.start"]
    drive.lose()
    drive.up()
    properties = {"capabilities": {"qpid.session": True}, "qpid.cluster.node": drive.node_id}
    drive.answer(m.ConnectionStart(0, 9, properties, b"PLAIN"))
    drive.sent()
    drive.answer(m.ConnectionTune(2047, 131_072, 60))
    drive.sent()
    drive.answer(m.ConnectionClose(404, "NOT_FOUND - no such session"))
    assert drive.core.failing_over
    drive.clock.now_ms += 2000
    drive.core.handle_deadline()
    drive.again()
    assert drive.start_ok.client_properties["qpid.session.start"] != former
    assert drive.core.state is State.CONNECTED


def test_publishes_above_the_accepted_one_are_sent_again_with_their_numbers() -> None:
    drive = Drive091()
    drive.connect()
    session = drive.session()
    producer = drive.producer(session)
    outcomes = [drive.send(session, producer, b"%d" % number) for number in range(1, 5)]
    assert bodies(drive.sent()) == [b"1", b"2", b"3", b"4"]
    drive.answer(m.BasicAck(1), 2)
    drive.lose()
    later = drive.send(session, producer, b"5")
    drive.again()
    assert drive.sent()[-1] == Sent(2, m.ChannelOpen("resume;tag=0;seq=4"))
    drive.answer(status(publishes={"accepted": 2}), 2)
    assert [each.settled for each in outcomes] == [True, True, False, False]
    assert drive.methods() == [m.BasicRecover(requeue=True)]
    drive.answer(m.BasicRecoverOk(), 2)
    assert bodies(drive.sent()) == [b"3", b"4", b"5"]
    # the broker counts on after the last accepted one
    drive.answer(m.BasicAck(5, multiple=True), 2)
    assert all(each.settled and each.error is None for each in (*outcomes, later))


def test_outcomes_of_accepted_publishes_are_those_of_the_status() -> None:
    drive = Drive091()
    drive.connect()
    session = drive.session()
    producer = drive.producer(session)
    outcomes = [drive.send(session, producer, b"%d" % number) for number in range(1, 4)]
    drive.sent()
    drive.lose()
    drive.again()
    drive.sent()
    drive.answer(status(publishes={"accepted": 3, "returned": [1], "rejected": [2]}), 2)
    assert isinstance(outcomes[0].error, AddressNotFound)
    assert isinstance(outcomes[1].error, AddressFull)
    assert outcomes[2].error is None
    assert outcomes[2].settled


def test_a_send_that_must_not_be_repeated_is_decided_by_the_status() -> None:
    drive = Drive091()
    drive.connect()
    session = drive.session()
    once = session.open_producer("q", 500)
    first, second = (drive.send(session, once, body) for body in (b"1", b"2"))
    drive.sent()
    drive.lose()
    assert not first.settled, "the broker may tell"
    drive.again()
    drive.sent()
    drive.answer(status(publishes={"accepted": 1}), 2)
    drive.sent()
    drive.answer(m.BasicRecoverOk(), 2)
    assert first.error is None
    assert first.settled
    assert isinstance(second.error, SendOutcomeUnknown)
    assert bodies(drive.sent()) == []


@pytest.mark.parametrize("committed", [True, False])
def test_a_commit_without_an_answer_is_decided_by_the_status(committed: bool) -> None:
    drive = Drive091()
    drive.connect()
    session = drive.session(AcknowledgeMode.TRANSACTED)
    drive.send(session, drive.producer(session), b"1")
    commit = Outcome()
    session.commit(commit)
    assert [type(each) for each in drive.methods()] == [m.BasicPublish, m.TxCommit]
    drive.lose()
    assert not commit.settled
    drive.again()
    assert drive.sent()[-1] == Sent(2, m.ChannelOpen("resume;tag=0;seq=1"))
    drive.answer(status(mode="tx", tx={"open": False, "commits": int(committed)}), 2)
    assert commit.settled
    assert isinstance(commit.error, TransactionRolledBack) == (not committed)
    # what the next transaction finds open at the broker is not its own
    assert drive.methods() == [m.TxRollback(), m.BasicRecover(requeue=True), m.TxCommit()]
    for answer in (m.TxRollbackOk(), m.BasicRecoverOk(), m.TxCommitOk()):
        drive.answer(answer, 2)
    assert drive.core.state is State.CONNECTED
    again = Outcome()
    drive.send(session, drive.producer(session), b"2")
    session.commit(again)
    assert [type(each) for each in drive.methods()] == [m.BasicPublish, m.TxCommit]
    drive.answer(m.TxCommitOk(), 2)
    assert again.error is None


def test_work_of_a_transaction_that_a_failover_has_undone_can_only_be_rolled_back() -> None:
    drive = Drive091()
    drive.connect()
    session = drive.session(AcknowledgeMode.TRANSACTED)
    drive.send(session, drive.producer(session), b"1")
    drive.sent()
    drive.lose()
    drive.again()
    drive.sent()
    drive.answer(status(mode="tx", tx={"open": True, "commits": 0}), 2)
    drive.sent()
    for answer in (m.TxRollbackOk(), m.BasicRecoverOk(), m.TxCommitOk()):
        drive.answer(answer, 2)
    assert session.rollback_only


def test_deliveries_of_before_come_again_and_old_ones_cannot_be_acknowledged() -> None:
    drive = Drive091()
    drive.connect()
    session = drive.session(AcknowledgeMode.INDIVIDUAL)
    consumer = drive.consumer(session)
    drive.deliver(m.BasicDeliver("c0.1", 1, False, "", "q"), b"one")
    drive.deliver(m.BasicDeliver("c0.1", 2, False, "", "q"), b"two")
    held = consumer.take()
    assert held is not None
    drive.lose()
    drive.again()
    assert drive.sent()[-1] == Sent(2, m.ChannelOpen("resume;tag=2;seq=0"))
    drive.answer(status(consumers=[{"tag": "c0.1", "queue": "q"}]), 2)
    assert drive.methods() == [m.BasicCancel("c0.1", no_wait=True), m.BasicRecover(requeue=True)]
    drive.deliver(m.BasicDeliver("c0.1", 3, False, "", "q"), b"late")
    drive.answer(m.BasicRecoverOk(), 2)
    drive.answer(m.ChannelOpenOk(), 1)
    assert drive.sent()[-1] == Sent(1, m.QueueDeclare(0, "q", passive=True))
    drive.answer(m.QueueDeclareOk("q", 3, 0), 1)
    assert isinstance(drive.methods()[-1], m.BasicConsume)
    assert consumer.take() is None, "what the former consumer got is not handed over"
    acknowledged = Outcome()
    session.settlements.acknowledge(held, acknowledged)
    assert acknowledged.value is False
    drive.deliver(m.BasicDeliver("c0.2", 281474976710657, True, "", "q"), b"one")
    message = consumer.take()
    assert message is not None
    assert (message.body, message.delivery_count) == (b"one", 2)


def test_a_channel_that_the_broker_does_not_know_is_made_again() -> None:
    drive = Drive091()
    drive.connect()
    session = drive.session()
    outcome = drive.send(session, drive.producer(session), b"1")
    drive.sent()
    drive.lose()
    drive.again()
    drive.sent()
    drive.answer(m.ChannelOpenOk(), 2)
    assert drive.methods() == [m.ConfirmSelect()]
    drive.answer(m.ConfirmSelectOk(), 2)
    assert bodies(drive.sent()) == [b"1"]
    drive.answer(m.BasicAck(1), 2)
    assert outcome.settled


def test_a_broker_without_sessions_gets_unconfirmed_publishes_again() -> None:
    drive = Drive091(keeps_sessions=False)
    drive.connect()
    assert drive.start_ok is not None
    assert not any(name.startswith("qpid") for name in drive.start_ok.client_properties)
    session = drive.session()
    producer = drive.producer(session)
    first, second = (drive.send(session, producer, body) for body in (b"1", b"2"))
    once = drive.send(session, session.open_producer("q", 500), b"3")
    drive.sent()
    drive.answer(m.BasicAck(1), 2)
    drive.lose()
    assert first.settled
    assert isinstance(once.error, SendOutcomeUnknown)
    drive.again()
    assert drive.sent()[-1] == Sent(2, m.ChannelOpen())
    drive.answer(m.ChannelOpenOk(), 2)
    drive.answer(m.ConfirmSelectOk(), 2)
    assert bodies(drive.sent()) == [b"2"]
    drive.answer(m.BasicAck(1), 2)
    assert second.error is None
    assert second.settled


def test_a_commit_without_an_answer_is_unknown_at_a_broker_without_sessions() -> None:
    drive = Drive091(keeps_sessions=False)
    drive.connect()
    session = drive.session(AcknowledgeMode.TRANSACTED)
    drive.send(session, drive.producer(session), b"1")
    commit = Outcome()
    session.commit(commit)
    drive.sent()
    drive.lose()
    assert isinstance(commit.error, CommitOutcomeUnknown)


def test_known_hosts_are_dialled_after_a_loss() -> None:
    drive = Drive091("amqp091://a:1", known_hosts="b:2,[::1]:3,amqps:c:4,bad,d:0")
    drive.connect()
    drive.lose()
    assert str(drive.link.dials[-1][0]) == "b:2"
    assert drive.core.failing_over, "a known host is a backup"


def test_another_node_is_left() -> None:
    drive = Drive091(known_hosts="b:2")
    drive.connect()
    drive.lose()
    drive.node_id = "99999999-2222-3333-4444-555555555555"
    drive.again()
    assert drive.core.failing_over
    assert any("does not carry on" in line for line in drive.link.lines)
