"""XA branches of a client session, and what a failover makes of each request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.client import Drive, Outcome
from understudy.client.core.consumer.taken import AcknowledgeMode
from understudy.client.core.session.channel import Channel
from understudy.client.core.session.xa import Branches, is_rollback
from understudy.errors import ConnectionLost, IllegalState, ObjectClosed, XaCode, XaError
from understudy.ids import Xid
from understudy.message import Message
from understudy.wire.core.codec import encode_receive
from understudy.wire.core.packets import (
    Acknowledge,
    CreateConsumer,
    NullResponse,
    Packet,
    QueueQueryResponseV3,
    Rollback,
    SessionSend,
    SessionStart,
    SessionStop,
    XaCommit,
    XaEnd,
    XaFailed,
    XaForget,
    XaGetTimeout,
    XaGetTimeoutResponse,
    XaInDoubt,
    XaInDoubtResponse,
    XaJoin,
    XaPrepare,
    XaResponse,
    XaResume,
    XaRollback,
    XaSetTimeout,
    XaSetTimeoutResponse,
    XaStart,
    XaSuspend,
)

XID = Xid(1, b"g", b"b")
OK = XaResponse(False)


class ScriptedSession:
    """An XA session and its channel."""

    def __init__(self, *, xa: bool = True) -> None:
        self.drive = Drive()
        self.drive.connect()
        self.session = self.drive.session(AcknowledgeMode.TRANSACTED, xa=xa)
        self.branches: Branches = self.session.branches

    def sent(self) -> list[Packet]:
        return [packet for channel_id, packet in self.drive.sent() if channel_id == self.session.channel_id]

    def answer(self, packet: Packet) -> None:
        self.drive.answer(self.session.channel_id, packet)

    def ask(self, call: Callable[[Any], None], expected: Packet, *answers: Packet) -> Outcome:
        """Call, check the sent packet, answer it."""
        outcome = Outcome()
        call(outcome)
        assert self.sent()[-1] == expected
        for answer in answers or (OK,):
            self.answer(answer)
        return outcome

    def started(self) -> None:
        assert self.ask(lambda w: self.branches.start(XID, w), XaStart(XID)).error is None

    def send(self) -> None:
        producer = next(iter(self.session.producers.values()), None) or self.session.open_producer("q", 100)
        self.session.send(producer, Message(b"m", address="q"), Outcome())

    def lose(self) -> None:
        self.drive.clock.now_ms += 10_000
        self.drive.refuse(ConnectionLost("cut"))

    def recover(self) -> list[Packet]:
        return [packet for _, packet in self.drive.fail_over()]


def code(outcome: Outcome) -> int:
    assert isinstance(outcome.error, XaError), outcome.error
    return outcome.error.xa_code


def test_the_requests() -> None:
    talk = ScriptedSession()
    branches = talk.branches
    talk.started()
    assert branches.working_in == XID
    talk.ask(branches.suspend, XaSuspend())
    assert branches.working_in is None
    talk.ask(lambda w: branches.start(XID, w, resume=True), XaResume(XID))
    talk.ask(lambda w: branches.end(XID, w, failed=True), XaEnd(XID, True))
    talk.ask(lambda w: branches.start(XID, w, join=True), XaJoin(XID))
    talk.ask(lambda w: branches.end(XID, w), XaEnd(XID, False))
    assert talk.ask(lambda w: branches.prepare(XID, w), XaPrepare(XID)).error is None
    assert talk.ask(lambda w: branches.commit(XID, w), XaCommit(XID, False)).error is None
    talk.ask(lambda w: branches.forget(XID, w), XaForget(XID))
    assert talk.ask(branches.in_doubt, XaInDoubt(), XaInDoubtResponse((XID,))).value == (XID,)
    assert talk.ask(lambda w: branches.set_timeout(5, w), XaSetTimeout(5), XaSetTimeoutResponse(True)).value is True
    assert talk.ask(branches.timeout, XaGetTimeout(), XaGetTimeoutResponse(5)).value == 5


def test_refusals_carry_their_code() -> None:
    talk = ScriptedSession()
    refusal = XaResponse(True, XaCode.DUPLICATE_XID, "taken")
    outcome = talk.ask(lambda w: talk.branches.start(XID, w), XaStart(XID), refusal)
    assert code(outcome) == XaCode.DUPLICATE_XID
    assert talk.branches.working_in is None
    outcome = talk.ask(
        lambda w: talk.branches.prepare(XID, w), XaPrepare(XID), XaResponse(True, XaCode.ROLLED_BACK_TIMEOUT)
    )
    assert is_rollback(outcome.error)  # type: ignore[arg-type]
    assert not is_rollback(XaError(xa_code=XaCode.UNKNOWN_XID))


def test_received_messages_are_acknowledged_in_the_branch() -> None:
    talk = ScriptedSession()
    opened = Outcome()
    talk.session.consumers.open("q", opened)
    assert isinstance(talk.sent()[-1], CreateConsumer)
    talk.answer(QueueQueryResponseV3(True, True, name="q", address="q"))
    consumer = opened.value
    talk.started()
    message = Message(b"x", address="q", message_id=7)
    talk.drive.core.receive_data(encode_receive(message, talk.session.channel_id, consumer.consumer_id, 1))
    received = consumer.take()
    talk.session.settlements.acknowledge(received, Outcome())
    talk.sent()
    talk.branches.end(XID, Outcome())
    acknowledge, end = talk.sent()
    assert isinstance(acknowledge, Acknowledge)
    assert end == XaEnd(XID, False)
    talk.answer(OK)
    rolled_back = Outcome()
    talk.branches.roll_back(XID, rolled_back)
    assert talk.sent() == [SessionStop()]
    talk.answer(NullResponse())
    assert talk.sent()[-1] == XaRollback(XID)
    talk.answer(OK)
    assert talk.sent() == [SessionStart()]
    assert rolled_back.error is None


@pytest.mark.parametrize("cut_off", ["stop", "rollback"])
@pytest.mark.parametrize("known", [True, False])
def test_a_rollback_cut_off_is_begun_anew(cut_off: str, known: bool) -> None:
    """The new server's session delivers as soon as its consumer is there, and takes that back with the branch: what it
    delivered before is dropped, or the application would get it twice.
    """
    talk = ScriptedSession()
    opened = Outcome()
    talk.session.consumers.open("q", opened)
    talk.answer(QueueQueryResponseV3(True, True, name="q", address="q"))
    consumer = opened.value
    outcome = Outcome()
    talk.branches.roll_back(XID, outcome)
    if cut_off == "rollback":
        talk.answer(NullResponse())
        assert talk.sent()[-1] == XaRollback(XID)
    talk.lose()
    packets = talk.recover()
    assert isinstance(packets[-1], CreateConsumer), "the stop is queued after it"
    talk.answer(QueueQueryResponseV3(True, True, name="q", address="q"))
    message = Message(b"x", address="q", message_id=7)
    talk.drive.core.receive_data(encode_receive(message, talk.session.channel_id, consumer.consumer_id, 1))
    assert consumer.buffered == 1
    assert talk.sent()[-1] == SessionStop()
    talk.answer(NullResponse())
    assert consumer.buffered == 0
    assert talk.sent()[-1] == XaRollback(XID)
    assert not outcome.done()
    talk.answer(OK if known else XaResponse(True, XaCode.UNKNOWN_XID))
    assert talk.sent() == [SessionStart()]
    if known or cut_off == "rollback":
        assert outcome.error is None
    else:
        assert code(outcome) == XaCode.UNKNOWN_XID, "the broker was not asked before"


def test_a_rollback_cut_off_by_the_end_of_the_session_is_a_failure() -> None:
    for answered in (False, True):
        talk = ScriptedSession()
        outcome = Outcome()
        talk.branches.roll_back(XID, outcome)
        if answered:
            talk.answer(NullResponse())
        talk.session.end(ObjectClosed("closed"))
        assert code(outcome) == XaCode.RESOURCE_MANAGER_FAILED


def test_a_failover_undoes_the_branch_worked_in() -> None:
    talk = ScriptedSession()
    talk.started()
    talk.send()
    talk.sent()
    talk.lose()
    assert XaFailed(XID) in talk.recover()
    assert talk.session.rollback_only
    talk.send()
    assert not any(isinstance(packet, SessionSend) for packet in talk.sent()), "it would count outside of the branch"
    end(talk)
    talk.started()
    talk.send()
    assert any(isinstance(packet, SessionSend) for packet in talk.sent()), "the next branch is a new one"


def end(talk: ScriptedSession) -> None:
    """End the branch that a failover undid: the session is rolled back."""
    outcome = Outcome()
    talk.branches.end(XID, outcome)
    assert talk.sent() == [SessionStop()]
    roll_back(talk, outcome)


def roll_back(talk: ScriptedSession, outcome: Outcome) -> None:
    """Answer the requests by which a session is rolled back."""
    talk.answer(NullResponse())
    *acknowledgements, rollback = talk.sent()
    assert all(isinstance(packet, Acknowledge) for packet in acknowledgements)
    assert isinstance(rollback, Rollback)
    assert not outcome.done()
    talk.answer(NullResponse())
    assert talk.sent() == [SessionStart()]
    assert code(outcome) == XaCode.ROLLED_BACK_OTHER
    assert talk.branches.working_in is None
    assert not talk.session.rollback_only


def test_a_suspension_after_a_failover_rolls_back_too() -> None:
    talk = ScriptedSession()
    talk.started()
    talk.lose()
    talk.recover()
    outcome = Outcome()
    talk.branches.suspend(outcome)
    assert talk.sent() == [SessionStop()]
    roll_back(talk, outcome)


def test_a_branch_whose_end_got_no_answer_after_a_failover_can_be_rolled_back() -> None:
    """The session of the server still worked in the branch, and refused the rollback (seed 330002)."""
    talk = ScriptedSession()
    talk.started()
    talk.lose()
    talk.recover()
    outcome = Outcome()
    talk.branches.end(XID, outcome)
    talk.drive.tick(60_000)
    assert code(outcome) == XaCode.RESOURCE_MANAGER_FAILED
    talk.recover()
    undone = Outcome()
    talk.branches.roll_back(XID, undone)
    assert talk.sent() == [SessionStop()]
    talk.answer(NullResponse())
    assert [type(packet) for packet in talk.sent()] == [Rollback]
    talk.answer(NullResponse())
    assert talk.sent() == [SessionStart()]
    assert undone.done()
    assert undone.error is None
    assert talk.branches.working_in is None


def test_a_second_failover_during_that_rollback_leaves_the_branch() -> None:
    talk = ScriptedSession()
    talk.started()
    talk.lose()
    talk.recover()
    outcome = Outcome()
    talk.branches.end(XID, outcome)
    talk.answer(NullResponse())
    talk.lose()
    packets = talk.recover()
    assert XaFailed(XID) not in packets
    assert not any(isinstance(packet, Rollback) for packet in packets)
    assert code(outcome) == XaCode.ROLLED_BACK_OTHER
    assert talk.branches.working_in is None


def test_an_end_asked_for_during_the_failover_learns_of_it() -> None:
    talk = ScriptedSession()
    talk.started()
    talk.lose()
    outcome = Outcome()
    talk.branches.end(XID, outcome)
    packets = talk.recover()
    assert XaFailed(XID) in packets
    assert packets[-1] == SessionStop()
    roll_back(talk, outcome)


def test_an_end_cut_off_is_a_failure_and_the_branch_is_left() -> None:
    talk = ScriptedSession()
    talk.started()
    outcome = Outcome()
    talk.branches.end(XID, outcome)
    talk.lose()
    assert XaFailed(XID) not in talk.recover()
    assert code(outcome) == XaCode.RESOURCE_MANAGER_FAILED
    assert not talk.session.rollback_only


@pytest.mark.parametrize(
    ("name", "request_packet", "means_done"),
    [
        ("prepare", XaPrepare(XID), XaCode.PROTOCOL),
        ("commit", XaCommit(XID, False), XaCode.UNKNOWN_XID),
        ("forget", XaForget(XID), XaCode.UNKNOWN_XID),
    ],
)
def test_decisions_are_asked_again_until_they_are_answered(
    name: str, request_packet: Packet, means_done: XaCode
) -> None:
    for answer, error in ((OK, None), (XaResponse(True, means_done), None), (XaResponse(True, -3), -3)):
        talk = ScriptedSession()
        outcome = Outcome()
        getattr(talk.branches, name)(XID, outcome)
        assert talk.sent() == [request_packet]
        talk.lose()
        assert request_packet in talk.recover()
        talk.answer(answer)
        assert (outcome.error is None) if error is None else code(outcome) == error
    talk = ScriptedSession()
    outcome = talk.ask(lambda w: getattr(talk.branches, name)(XID, w), request_packet, XaResponse(True, means_done))
    assert code(outcome) == means_done, "the first time it is an error"


@pytest.mark.parametrize("name", ["commit", "roll_back"])
def test_a_decision_that_another_node_does_not_know_is_unknown(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The target of a scale-down cannot tell what the node before it has decided."""
    talk = ScriptedSession()
    nodes = ["first"]
    monkeypatch.setattr(Channel, "node_id", property(lambda channel: nodes[-1]))
    outcome = Outcome()
    getattr(talk.branches, name)(XID, outcome)
    if name == "roll_back":
        talk.answer(NullResponse())
    assert isinstance(talk.sent()[-1], XaCommit | XaRollback)
    talk.lose()
    nodes.append("second")
    talk.recover()
    if name == "roll_back":
        talk.answer(NullResponse())
    talk.answer(XaResponse(True, XaCode.UNKNOWN_XID))
    assert code(outcome) == XaCode.RESOURCE_MANAGER_FAILED
    assert "another node answers" in str(outcome.error)


def test_one_phase_cut_off_is_unknown() -> None:
    talk = ScriptedSession()
    outcome = Outcome()
    talk.branches.commit(XID, outcome, one_phase=True)
    talk.lose()
    talk.recover()
    assert code(outcome) == XaCode.RESOURCE_MANAGER_FAILED


def test_an_ended_branch_survives_in_its_manager_only() -> None:
    talk = ScriptedSession()
    talk.started()
    talk.ask(lambda w: talk.branches.end(XID, w), XaEnd(XID, False))
    talk.lose()
    assert XaFailed(XID) not in talk.recover()
    assert not talk.session.rollback_only


def test_only_xa_sessions_have_branches() -> None:
    talk = ScriptedSession(xa=False)
    with pytest.raises(IllegalState):
        talk.branches.start(XID, Outcome())
    talk = ScriptedSession()
    with pytest.raises(IllegalState):
        talk.session.commit(Outcome())
    talk.session.end(ObjectClosed("closed"))
    with pytest.raises(ObjectClosed):
        talk.branches.prepare(XID, Outcome())
