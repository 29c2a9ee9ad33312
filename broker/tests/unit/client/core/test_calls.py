"""Blocking calls: one in flight, answers by id, what a lost connection and a deadline decide."""

from __future__ import annotations

from typing import Any

import pytest

from support.client import Outcome
from understudy.client.core.connection.calls import Call, Calls, Interrupted, settle
from understudy.errors import (
    BrokerError,
    CallTimedOut,
    CommitOutcomeUnknown,
    ConnectionLost,
    ObjectClosed,
    QueueExists,
    QueueNotFound,
)
from understudy.testing.manual_time import ManualTime
from understudy.wire.core.packets import Commit, NullResponse, Packet, QueueQuery, QueueQueryResponse, SessionClose


class Line:
    """A ``Calls`` and its sent packets."""

    def __init__(self, *, failover_timeout_ms: int = 500) -> None:
        self.clock = ManualTime(monotonic_ms=1_000_000)
        self.sent: list[Packet] = []
        self.moments: list[int] = []
        self.calls = Calls(
            self.sent.append,
            self.clock,
            self.moments.append,
            timeout_ms=100,
            failover_timeout_ms=failover_timeout_ms,
        )

    def query(self, name: str = "q", **fields: Any) -> Outcome:
        outcome = Outcome()
        self.calls.add(Call(name, lambda _: QueueQuery(name), (QueueQueryResponse,), settle(outcome), **fields))
        return outcome

    def commit(self) -> Outcome:
        outcome = Outcome()

        def interruption(error: BrokerError, sent: bool) -> BaseException:
            return CommitOutcomeUnknown(str(error)) if sent else ConnectionLost("never sent")

        call = Call("commit", Commit, (NullResponse,), settle(outcome), Interrupted.FAIL, interruption, bound=True)
        self.calls.add(call)
        return outcome


def test_one_call_in_flight_and_ids_count_down() -> None:
    line = Line()
    line.calls.open()
    first, second, third = line.query("a"), line.commit(), line.query("b")
    assert line.sent == [QueueQuery("a")]
    assert line.calls.answer(QueueQueryResponse(False))
    assert line.sent[1:] == [Commit(-3)], "every blocking call takes an id, with or without a field for it"
    assert first.value == QueueQueryResponse(False)
    assert line.calls.answer(NullResponse(-3))
    assert second.settled
    assert line.sent[2:] == [QueueQuery("b")]
    assert not third.settled


def test_answers_of_other_kinds_or_ids_are_not_taken() -> None:
    line = Line()
    line.calls.open()
    assert not line.calls.answer(NullResponse(-1)), "no call waits"
    outcome = line.commit()
    assert not line.calls.answer(QueueQueryResponse(True))
    assert not line.calls.answer(NullResponse(-7))
    assert line.calls.answer(NullResponse(-1)), "an answer without an id belongs to the call in flight"
    assert outcome.settled


def test_exception_ends_the_call_in_flight() -> None:
    line = Line()
    assert not line.calls.fail(QueueNotFound("q"))
    line.calls.open()
    outcome, waiting = line.query("a"), line.query("b")
    assert line.calls.fail(QueueNotFound("q"))
    assert isinstance(outcome.error, QueueNotFound)
    assert not waiting.settled
    assert line.sent == [QueueQuery("a"), QueueQuery("b")]


def test_reissued_after_a_reset() -> None:
    line = Line()
    line.calls.open()
    outcome = line.query("a", tolerated=(QueueExists,))
    line.calls.suspend()
    line.calls.reset(ConnectionLost("x"))
    line.calls.open()
    assert line.sent == [QueueQuery("a"), QueueQuery("a")]
    assert line.calls.fail(QueueExists("a"))
    assert outcome.settled, "asked twice: already done is done"
    assert outcome.error is None


def test_tolerated_errors_count_only_after_a_reissue() -> None:
    line = Line()
    line.calls.open()
    outcome = line.query("a", tolerated=(QueueExists,))
    line.calls.fail(QueueExists("a"))
    assert isinstance(outcome.error, QueueExists)


def test_reset_decides_sent_and_bound_calls_alone() -> None:
    line = Line()
    line.calls.open()
    sent, unsent, free = line.commit(), line.commit(), line.query("free")
    line.calls.suspend()
    line.calls.reset(ConnectionLost("x"))
    assert isinstance(sent.error, CommitOutcomeUnknown)
    assert isinstance(unsent.error, ConnectionLost)
    assert not free.settled
    line.calls.open()
    assert line.sent[-1] == QueueQuery("free")


def test_forgotten_calls_count_as_done() -> None:
    line = Line()
    line.calls.open()
    outcome = Outcome()
    line.calls.add(
        Call("close", lambda _: SessionClose(), (NullResponse,), settle(outcome), Interrupted.FORGET, bound=True)
    )
    line.calls.reset(ConnectionLost("x"))
    assert outcome.settled
    assert outcome.error is None


def test_a_call_survives_suspend_and_open_without_a_reset() -> None:
    """A reattached session goes on: nothing is sent again by the line itself."""
    line = Line()
    line.calls.open()
    outcome = line.commit()
    line.calls.suspend()
    line.calls.open()
    assert line.sent == [Commit(-2)]
    line.calls.answer(NullResponse(-2))
    assert outcome.settled


def test_no_answer_in_time_means_a_failed_connection() -> None:
    line = Line()
    line.calls.open()
    outcome, waiting = line.query("a"), line.query("b")
    assert line.calls.next_deadline_ms() == line.clock.now_ms + 100
    assert line.moments == [line.clock.now_ms + 100]
    line.clock.now_ms += 99
    assert line.calls.expire(line.clock.now_ms) is None
    line.clock.now_ms += 1
    assert isinstance(line.calls.expire(line.clock.now_ms), CallTimedOut)
    assert isinstance(outcome.error, CallTimedOut)
    assert not waiting.settled


def test_the_late_answer_of_a_call_out_of_time_is_not_that_of_the_next_one() -> None:
    """A session that is attached again gets the kept request once more, and answers it (seed 330002)."""
    line = Line()
    line.calls.open()
    late, following = line.query("a"), line.query("b")
    line.clock.now_ms += 100
    line.calls.expire(line.clock.now_ms)
    assert isinstance(late.error, CallTimedOut)
    line.calls.suspend()
    line.calls.open()
    assert line.sent == [QueueQuery("a")], "the session answers the first request first"
    line.calls.answer(QueueQueryResponse(False))
    assert not following.settled
    assert line.sent == [QueueQuery("a"), QueueQuery("b")]
    line.calls.answer(QueueQueryResponse(True))
    assert following.settled


def test_a_call_out_of_time_whose_answer_never_comes_delays_the_next_one_once() -> None:
    line = Line()
    line.calls.open()
    line.query("a")
    line.clock.now_ms += 100
    line.calls.expire(line.clock.now_ms)
    line.calls.suspend()
    line.calls.open()
    following = line.query("b")
    line.clock.now_ms += 100
    assert line.calls.expire(line.clock.now_ms) is None, "the connection works"
    assert line.sent == [QueueQuery("a"), QueueQuery("b")]
    line.calls.answer(QueueQueryResponse(True))
    assert following.settled


def test_a_call_out_of_time_ends_with_the_session_of_the_server() -> None:
    line = Line()
    line.calls.open()
    line.query("a")
    line.clock.now_ms += 100
    line.calls.expire(line.clock.now_ms)
    line.calls.suspend()
    line.calls.reset(ConnectionLost("cut"))
    assert len(line.calls) == 0


def test_no_failover_in_time_fails_the_call_but_not_the_connection() -> None:
    line = Line()
    before = line.query("a")
    line.clock.now_ms += 499
    assert line.calls.expire(line.clock.now_ms) is None
    line.clock.now_ms += 1
    assert line.calls.expire(line.clock.now_ms) is None
    assert isinstance(before.error, CallTimedOut)
    assert len(line.calls) == 0


def test_a_commit_out_of_time_reports_an_unknown_outcome() -> None:
    line = Line()
    line.calls.open()
    outcome = line.commit()
    line.calls.suspend()
    line.clock.now_ms += 500
    line.calls.expire(line.clock.now_ms)
    assert isinstance(outcome.error, CommitOutcomeUnknown)


def test_endless_failover_timeout() -> None:
    line = Line(failover_timeout_ms=-1)
    line.query("a")
    assert line.calls.next_deadline_ms() is None


def test_end_fails_everything_now_and_later() -> None:
    line = Line()
    line.calls.open()
    sent, waiting = line.query("a"), line.query("b")
    line.calls.end(ObjectClosed("over"))
    late = line.query("c")
    assert [type(each.error) for each in (sent, waiting, late)] == [ObjectClosed] * 3


def test_a_first_call_is_queued_after_the_call_in_flight() -> None:
    line = Line()
    line.calls.open()
    line.query("a")
    line.query("b")
    line.calls.add(Call("c", lambda _: QueueQuery("c"), (QueueQueryResponse,), settle(Outcome())), first=True)
    for _ in range(2):
        line.calls.answer(QueueQueryResponse(False))
    assert line.sent == [QueueQuery("a"), QueueQuery("c"), QueueQuery("b")]


@pytest.mark.parametrize("error", [None, ObjectClosed("x")])
def test_settle_leaves_a_cancelled_waiter_alone(error: BrokerError | None) -> None:
    outcome = Outcome()
    outcome.set_result("cancelled")
    settle(outcome)(NullResponse(), error)
    assert outcome.value == "cancelled"
