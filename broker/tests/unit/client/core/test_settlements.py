"""Ends of single deliveries, against hand-made answers of Understudy and of a broker that takes none."""

from __future__ import annotations

import pytest

from support.client import Outcome as Waiter
from support.packet_driver import PacketDriver
from understudy.client.core.consumer.taken import AcknowledgeMode
from understudy.client.core.session.outcomes import Outcome, modification, rejection
from understudy.errors import IllegalState
from understudy.wire.core.codes import ErrorCode
from understudy.wire.core.packets import (
    Acknowledge,
    Commit,
    ExceptionResponse,
    IndividualAcknowledge,
    NullResponse,
    Rollback,
    SessionStart,
    SessionStop,
    Settle,
    Settlement,
)

AUTO, CLIENT = AcknowledgeMode.AUTO, AcknowledgeMode.CLIENT
INDIVIDUAL, DUPS_OK = AcknowledgeMode.INDIVIDUAL, AcknowledgeMode.DUPS_OK
TRANSACTED, PRE = AcknowledgeMode.TRANSACTED, AcknowledgeMode.PRE_ACKNOWLEDGE
FAIL, REJECT = Outcome(Settlement.FAIL), Outcome(Settlement.REJECT)


def driver(mode: AcknowledgeMode) -> PacketDriver:
    """A session of an Understudy."""
    talk = PacketDriver(mode)
    talk.session.channel.takes_settlements = True
    return talk


@pytest.mark.parametrize("mode", [AUTO, DUPS_OK, TRANSACTED])
def test_the_broker_confirms_it(mode: AcknowledgeMode) -> None:
    talk = driver(mode)
    message = talk.take(talk.consumer(), 1)
    waiter = Waiter()
    talk.session.settlements.settle(message, REJECT, waiter)
    assert talk.sent() == [Settle(0, 1, Settlement.REJECT, True)]
    assert not waiter.settled
    talk.answer(NullResponse())
    assert waiter.value is True
    assert message.settled


@pytest.mark.parametrize("mode", [CLIENT, INDIVIDUAL])
def test_a_commit_confirms_it_where_acknowledgements_are_transacted(mode: AcknowledgeMode) -> None:
    talk = driver(mode)
    message = talk.take(talk.consumer(), 1)
    waiter = Waiter()
    talk.session.settlements.settle(message, FAIL, waiter)
    settle, commit = talk.sent()
    assert settle == Settle(0, 1, Settlement.FAIL, False)
    assert isinstance(commit, Commit)
    talk.answer(NullResponse(commit.correlation_id))
    assert waiter.value is True


def test_auto_does_not_acknowledge_a_settled_message_with_the_next_one() -> None:
    talk = driver(AUTO)
    consumer = talk.consumer()
    talk.take(consumer, 1)
    second = talk.take(consumer, 2)
    talk.session.settlements.settle(second, FAIL, Waiter())
    assert consumer.take() is None
    assert [each for each in talk.sent() if isinstance(each, Acknowledge)] == [Acknowledge(0, 1, False)]


@pytest.mark.parametrize(("settled", "last"), [(3, 2), (2, 3)])
def test_client_mode_acknowledges_up_to_a_message_that_is_outstanding(settled: int, last: int) -> None:
    talk = driver(CLIENT)
    consumer = talk.consumer()
    messages = {number: talk.take(consumer, number) for number in (1, 2, 3)}
    talk.session.settlements.settle(messages[settled], REJECT, Waiter())
    talk.sent()
    talk.answer(NullResponse(-3))
    talk.session.settlements.acknowledge(messages[1], Waiter())
    assert talk.sent()[0] == Acknowledge(0, last, False)


def test_dups_ok_acknowledges_the_finished_ones_before_it() -> None:
    talk = driver(DUPS_OK)
    consumer = talk.consumer()
    talk.take(consumer, 1)
    second = talk.take(consumer, 2)
    talk.session.settlements.settle(second, FAIL, Waiter())
    talk.sent()
    talk.session.consumers.close(consumer, Waiter())
    assert talk.sent()[0] == Acknowledge(0, 1, False)


def test_a_message_has_one_end() -> None:
    talk = driver(INDIVIDUAL)
    consumer = talk.consumer()
    first, second = talk.take(consumer, 1), talk.take(consumer, 2)
    settlements = talk.session.settlements
    settlements.acknowledge(first, Waiter())
    settlements.acknowledge(first, Waiter())
    with pytest.raises(IllegalState, match="before"):
        settlements.settle(first, FAIL, Waiter())
    talk.answer(NullResponse(-3))
    settlements.settle(second, FAIL, Waiter())
    with pytest.raises(IllegalState, match="before"):
        settlements.acknowledge(second, Waiter())
    talk.answer(NullResponse(-4))
    talk.answer(NullResponse(-5))
    acknowledged = [each for each in talk.sent() if isinstance(each, IndividualAcknowledge)]
    assert acknowledged == [IndividualAcknowledge(0, 1, False)], "the second one only asks whether it is confirmed"


def test_a_finished_message_cannot_be_given_back() -> None:
    talk = driver(AUTO)
    consumer = talk.consumer()
    first = talk.take(consumer, 1)
    consumer.take()
    with pytest.raises(IllegalState, match="counts as acknowledged"):
        talk.session.settlements.settle(first, FAIL, Waiter())


def test_a_failover_answers_with_false() -> None:
    talk = driver(AUTO)
    message = talk.take(talk.consumer(), 1)
    waiter = Waiter()
    talk.session.settlements.settle(message, FAIL, waiter)
    talk.lose()
    talk.recover()
    assert waiter.value is False
    late = Waiter()
    message.settled = message.given_back = False
    talk.session.settlements.settle(message, FAIL, late)
    assert late.value is False


def test_a_refusal_is_raised() -> None:
    talk = driver(AUTO)
    message = talk.take(talk.consumer(), 1)
    waiter = Waiter()
    talk.session.settlements.settle(message, FAIL, waiter)
    talk.answer(ExceptionResponse(ErrorCode.ILLEGAL_STATE, "no delivery 1"))
    assert isinstance(waiter.error, IllegalState)


def test_another_broker_gives_back_all_messages_in_work() -> None:
    talk = PacketDriver(INDIVIDUAL)
    consumer = talk.consumer()
    first, second = talk.take(consumer, 1), talk.take(consumer, 2)
    waiter, later = Waiter(), Waiter()
    talk.session.settlements.settle(first, FAIL, waiter)
    assert talk.sent() == [SessionStop()]
    talk.answer(NullResponse())
    assert talk.sent() == [Acknowledge(0, 2, False), Rollback(False)]
    talk.answer(NullResponse())
    assert talk.sent()[-1] == SessionStart()
    assert waiter.value is True
    talk.session.settlements.acknowledge(second, later)
    assert later.value is False


@pytest.mark.parametrize(
    ("mode", "outcome"),
    [(AUTO, REJECT), (AUTO, rejection(requeue=True, delay_s=1)), (TRANSACTED, FAIL)],
)
def test_another_broker_cannot_do_the_rest(mode: AcknowledgeMode, outcome: Outcome) -> None:
    talk = PacketDriver(mode)
    message = talk.take(talk.consumer(), 1)
    with pytest.raises(IllegalState, match="not Understudy"):
        talk.session.settlements.settle(message, outcome, Waiter())
    assert not message.settled
    with pytest.raises(IllegalState):
        talk.session.settlements.check_processing(message, plain=False)


def test_a_message_that_the_broker_has_forgotten_has_no_end() -> None:
    talk = driver(PRE)
    message = talk.take(talk.consumer(), 1)
    with pytest.raises(IllegalState, match="forgotten"):
        talk.session.settlements.settle(message, FAIL, Waiter())
    with pytest.raises(IllegalState, match="forgotten"):
        talk.session.settlements.check_processing(message, plain=True)


def test_arguments_without_a_meaning() -> None:
    with pytest.raises(ValueError, match="no delay"):
        rejection(requeue=False, delay_s=1)
    for delay_s in (-1.0, 1e12, float("nan")):
        with pytest.raises(ValueError, match="delay of"):
            modification(delivery_failed=True, undeliverable_here=False, delay_s=delay_s)


def test_an_unknown_mode_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'autoo' is no mode of acknowledgement: auto, client, individual, transacted"):
        AcknowledgeMode("autoo")
