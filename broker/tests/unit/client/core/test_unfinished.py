"""Messages in work that an error gives back, against hand-made answers, in every mode."""

from __future__ import annotations

import pytest

from support.client import Outcome
from support.packet_driver import PacketDriver
from understudy.client.core.consumer.taken import AcknowledgeMode
from understudy.wire.core.packets import (
    Acknowledge,
    Commit,
    ConsumerClose,
    CreateConsumer,
    ExceptionResponse,
    FlowToken,
    NullResponse,
    Packet,
    QueueQueryResponseV3,
    Rollback,
    SessionClose,
    SessionStart,
    SessionStop,
)

AUTO, CLIENT = AcknowledgeMode.AUTO, AcknowledgeMode.CLIENT
INDIVIDUAL, DUPS_OK = AcknowledgeMode.INDIVIDUAL, AcknowledgeMode.DUPS_OK
TRANSACTED, PRE = AcknowledgeMode.TRANSACTED, AcknowledgeMode.PRE_ACKNOWLEDGE


@pytest.mark.parametrize(
    ("mode", "after_stop"),
    [
        (AUTO, [Rollback(True)]),
        (DUPS_OK, [Acknowledge(0, 1, False), Rollback(True)]),
        (CLIENT, [Acknowledge(0, 2, False), Rollback(False)]),
        (INDIVIDUAL, [Acknowledge(0, 2, False), Rollback(False)]),
    ],
)
def test_a_session_closed_after_an_error_gives_the_message_in_work_back(
    mode: AcknowledgeMode, after_stop: list[Packet]
) -> None:
    """The first message is finished (AUTO, DUPS_OK), the second in work, the third was not handed out."""
    talk = PacketDriver(mode)
    consumer = talk.consumer()
    talk.take(consumer, 1)
    talk.take(consumer, 2)
    talk.deliver(consumer, 3)
    talk.sent()
    outcome = Outcome()
    talk.session.close(outcome, failed=True)
    assert talk.sent() == [SessionStop()]
    talk.answer(NullResponse())
    assert talk.sent() == after_stop
    talk.answer(NullResponse())
    assert talk.sent() == [SessionClose()], "no start: nothing is delivered to a session that closes"
    talk.answer(NullResponse())
    assert outcome.settled
    assert outcome.error is None


@pytest.mark.parametrize("mode", [AUTO, CLIENT, INDIVIDUAL, DUPS_OK, TRANSACTED, PRE])
def test_a_session_without_a_message_in_work_only_closes(mode: AcknowledgeMode) -> None:
    talk = PacketDriver(mode)
    consumer = talk.consumer()
    talk.deliver(consumer, 1)
    talk.session.close(Outcome(), failed=True)
    assert talk.sent() == [SessionClose()]


@pytest.mark.parametrize("mode", [AUTO, DUPS_OK])
def test_a_message_after_which_the_next_was_asked_for_is_finished(mode: AcknowledgeMode) -> None:
    talk = PacketDriver(mode)
    consumer = talk.consumer()
    talk.take(consumer, 1)
    assert consumer.take() is None
    talk.sent()
    talk.session.close(Outcome(), failed=True)
    assert SessionStop() not in talk.sent()


def test_a_transacted_session_counts_its_deliveries_when_it_closes() -> None:
    """The session is closed with an error or without: the close rolls back, and acknowledgements in the transaction
    keep the delivery counts.
    """
    for failed in (False, True):
        talk = PacketDriver(TRANSACTED)
        consumer = talk.consumer()
        talk.take(consumer, 1)
        talk.deliver(consumer, 2)
        talk.sent()
        talk.session.close(Outcome(), failed=failed)
        assert talk.sent() == [Acknowledge(0, 1, False), SessionClose()]


def test_a_session_whose_acknowledgements_are_early_gives_nothing_back() -> None:
    talk = PacketDriver(PRE)
    talk.take(talk.consumer(), 1)
    talk.session.close(Outcome(), failed=True)
    assert talk.sent() == [SessionClose()]


def test_an_open_session_goes_on_and_its_idle_consumers_are_replaced() -> None:
    """The rollback counts the first delivery of each consumer: one that was not handed out must not be outstanding."""
    talk = PacketDriver(AUTO)
    failing, idle = talk.consumer("q"), talk.consumer("other")
    talk.take(failing, 1)
    talk.deliver(idle, 2)
    talk.sent()
    outcome = Outcome()
    talk.session.transaction.work_failed(failing, outcome)
    talk.answer(NullResponse())
    assert talk.sent() == [SessionStop(), CreateConsumer(2, "other", None, False, True, 0)]
    talk.answer(QueueQueryResponseV3(True, True, name="other", address="other"))
    assert talk.sent() == [FlowToken(2, idle.window_bytes), ConsumerClose(1)]
    talk.answer(NullResponse())
    assert talk.sent() == [Rollback(True)]
    assert not outcome.settled
    talk.answer(NullResponse())
    assert talk.sent() == [SessionStart()]
    assert outcome.settled
    assert talk.take(idle, 5).message_id == 5
    assert talk.take(failing, 1).message_id == 1


def test_a_consumer_without_a_message_in_work_gives_nothing_back() -> None:
    """Another one has: its work goes on."""
    talk = PacketDriver(AUTO)
    busy, failing = talk.consumer(), talk.consumer()
    talk.take(busy, 1)
    talk.sent()
    outcome = Outcome()
    talk.session.transaction.work_failed(failing, outcome)
    assert talk.sent() == []
    assert outcome.settled


@pytest.mark.parametrize("mode", [CLIENT, INDIVIDUAL])
def test_an_acknowledgement_of_a_message_that_was_given_back_is_false(mode: AcknowledgeMode) -> None:
    """Before, or while the message is given back: the broker delivers it again."""
    talk = PacketDriver(mode)
    consumer, other = talk.consumer(), talk.consumer()
    talk.take(consumer, 1)
    others = talk.take(other, 2)
    talk.sent()
    meanwhile, later = Outcome(), Outcome()
    talk.session.transaction.work_failed(consumer, Outcome())
    talk.session.settlements.acknowledge(others, meanwhile)
    talk.answer(NullResponse())
    talk.answer(NullResponse())
    commit = talk.sent()[-1]
    assert isinstance(commit, Commit)
    talk.answer(NullResponse(commit.correlation_id))
    talk.session.settlements.acknowledge(others, later)
    assert (meanwhile.value, later.value) == (False, False)


def test_an_error_of_the_broker_is_logged_and_the_close_goes_on() -> None:
    talk = PacketDriver(AUTO)
    talk.take(talk.consumer(), 1)
    talk.sent()
    outcome = Outcome()
    talk.session.close(outcome, failed=True)
    talk.answer(NullResponse())
    talk.answer(ExceptionResponse(0, "no"))
    assert talk.sent()[-1] == SessionClose()
    assert any("could not be given back" in line for line in talk.drive.link.lines)


def test_a_failover_gives_the_message_in_work_back_by_itself() -> None:
    talk = PacketDriver(AUTO)
    consumer = talk.consumer()
    talk.take(consumer, 1)
    outcome = Outcome()
    talk.session.transaction.work_failed(consumer, outcome)
    talk.sent()
    talk.lose()
    packets = talk.recover()
    assert not any(isinstance(each, (SessionStop, Rollback)) for each in packets)
    assert outcome.settled
