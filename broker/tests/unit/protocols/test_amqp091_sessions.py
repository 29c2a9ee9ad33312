"""Client sessions of AMQP 0-9-1: queues that a client finds again after its connection was lost (ADR 0195)."""

from __future__ import annotations

from typing import Any, cast

import pytest

from support.amqp091 import AmqpClient, AmqpNode, bodies, declared
from support.amqp091_sessions import OTHER, UUID, asked, connected, refused
from support.core import FakeConnection
from understudy import limits
from understudy.protocols.amqp091 import sessions
from understudy.protocols.amqp091.session_request import RequestKind, SessionRequest, session_request
from understudy.protocols.amqp091.sessions import ClientSessions
from understudy.protocols.handlers import AcceptorOptions
from understudy.session.connection_scope import ConnectionScope
from understudy.terms import Amqp091Options
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.codes import Amqp091Error
from understudy.wire.amqp091.frames import PROTOCOL_HEADER


def client(node: AmqpNode, verb: str = "attach", uuid: str = UUID, user: str = "u", **more: Any) -> AmqpClient:
    """A client with a session and a channel."""
    made = connected(node, verb, uuid, user, **more)
    made.ask(m.ChannelOpen(), m.ChannelOpenOk)
    return made


def pass_ms(node: AmqpNode, duration_ms: int) -> None:
    node.world.clock.advance(duration_ms)
    node.world.turn()


def with_queue(node: AmqpNode, **more: Any) -> AmqpClient:
    """A client with a session and a message in its exclusive queue."""
    made = client(node, **more)
    declared(made, exclusive=True)
    made.publish("q", b"kept")
    return made


# --- the queues of a session ---------------------------------------------------------------------


def test_an_exclusive_queue_and_its_messages_are_kept_for_the_client() -> None:
    node = AmqpNode()
    with_queue(node).lose()
    other = node.channel()
    assert other.code(m.QueueDeclare(0, "q", passive=True)) == 405
    again = client(node)
    declared(again, exclusive=True)
    assert bodies(again) == [b"kept"]
    again.lose()
    assert bodies(client(node, "resume")) == []


def test_unacknowledged_deliveries_are_back_in_the_queue() -> None:
    node = AmqpNode()
    first = with_queue(node)
    first.send(m.BasicGet(0, "q"))
    first.only(m.BasicGetOk)
    first.lose()
    again = client(node)
    again.send(m.BasicGet(0, "q"))
    found, message = again.only(m.BasicGetOk)
    assert (found.redelivered, message.body) == (True, b"kept")


def test_an_auto_delete_queue_is_kept_until_the_session_ends() -> None:
    node = AmqpNode()
    first = client(node)
    declared(first, auto_delete=True)
    first.ask(m.BasicConsume(0, "q", "tag"), m.BasicConsumeOk)
    first.lose()
    node.channel().publish("q", b"while away")
    again = client(node)
    assert bodies(again) == [b"while away"]
    again.ask(m.BasicConsume(0, "q", "tag"), m.BasicConsumeOk)
    again.ask(m.BasicCancel("tag"), m.BasicCancelOk)
    assert again.code(m.QueueDeclare(0, "q", passive=True)) == 404, "its last consumer has left"


def test_an_auto_delete_queue_without_a_consumer_ends_with_the_session() -> None:
    node = AmqpNode()
    first = client(node)
    declared(first, auto_delete=True)
    first.ask(m.BasicConsume(0, "q", "tag"), m.BasicConsumeOk)
    first.lose()
    again = client(node)
    again.ask(m.ConnectionClose(200, ""), m.ConnectionCloseOk, 0)
    assert node.channel().code(m.QueueDeclare(0, "q", passive=True)) == 404


def test_without_a_session_queues_go_with_the_connection() -> None:
    node = AmqpNode()
    first = node.channel()
    declared(first, exclusive=True)
    declared(first, "auto", auto_delete=True)
    first.ask(m.BasicConsume(0, "auto", "tag"), m.BasicConsumeOk)
    first.lose()
    other = node.channel()
    assert other.code(m.QueueDeclare(0, "q", passive=True)) == 404
    assert other.code(m.QueueDeclare(0, "auto", passive=True)) == 404


# --- end and timeout -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "kept_ms"),
    [({}, 60_000), ({"timeout": 5}, 5_000), ({"timeout": "7"}, 7_000), ({"timeout": 10**9}, 300_000)],
)
def test_a_session_waits_for_its_timeout(more: dict[str, Any], kept_ms: int) -> None:
    node = AmqpNode()
    with_queue(node, **more).lose()
    pass_ms(node, kept_ms - 1)
    again = client(node, "resume", **more)
    assert bodies(again) == [b"kept"]
    again.lose()
    pass_ms(node, kept_ms)
    assert refused(node, "resume").reply_code == 404
    assert node.channel().code(m.QueueDeclare(0, "q", passive=True)) == 404


def test_a_timeout_of_nothing_keeps_nothing() -> None:
    node = AmqpNode()
    with_queue(node, timeout=0).lose()
    assert refused(node, "resume").reply_code == 404
    assert node.channel().code(m.QueueDeclare(0, "q", passive=True)) == 404


@pytest.mark.parametrize(("code", "kept"), [(200, False), (201, True), (320, False), (541, False)])
def test_the_reply_code_of_a_client_decides_whether_its_session_goes_on(code: int, kept: bool) -> None:
    node = AmqpNode()
    first = with_queue(node)
    first.ask(m.ConnectionClose(code, ""), m.ConnectionCloseOk, 0)
    first.lose()
    if kept:
        assert bodies(client(node, "resume")) == [b"kept"]
    else:
        assert refused(node, "resume").reply_code == 404


def test_an_error_of_the_client_ends_its_session() -> None:
    node = AmqpNode()
    first = with_queue(node)
    first.ask(m.ConnectionOpen("/"), m.ConnectionClose, 0)
    first.lose()
    assert refused(node, "resume").reply_code == 404


def test_a_session_that_the_broker_has_forced_off_goes_on() -> None:
    node = AmqpNode()
    first = with_queue(node)
    first.handler.kill("an operator wants it")
    assert first.only(m.ConnectionClose)[0].reply_code == 320
    first.lose()
    assert bodies(client(node, "resume")) == [b"kept"]


# --- refusals ------------------------------------------------------------------------------------


def test_an_unknown_an_ended_and_a_strange_session_are_refused_alike() -> None:
    node = AmqpNode()
    unknown = refused(node, "resume")
    with_queue(node).ask(m.ConnectionClose(200, ""), m.ConnectionCloseOk, 0)
    ended = refused(node, "resume")
    with_queue(node, uuid=OTHER).lose()
    strange = refused(node, "resume", OTHER, user="v")
    assert unknown == ended == strange
    assert (unknown.reply_code, unknown.reply_text) == (404, "NOT_FOUND - there is no such session")
    assert bodies(client(node, "resume", OTHER)) == [b"kept"], "the owner still has it"


@pytest.mark.parametrize(("verb", "user"), [("start", "u"), ("start", "v"), ("attach", "v")])
def test_a_taken_uuid_is_no_new_session(verb: str, user: str) -> None:
    node = AmqpNode()
    first = with_queue(node)
    assert refused(node, verb, user=user).reply_code == 405
    assert bodies(first) == [b"kept"], "the session is not disturbed"


@pytest.mark.parametrize("uuid", ["", "x" * 36, UUID.replace("4def", "1def"), UUID + "0", f"{{{UUID}}}"])
def test_a_malformed_uuid_is_refused(uuid: str) -> None:
    assert refused(AmqpNode(), "attach", uuid).reply_code == 502


@pytest.mark.parametrize("value", [-1, 1.5, True, "", "-1", "9" * 21, None, [1]])
def test_a_malformed_timeout_is_refused(value: Any) -> None:
    assert refused(AmqpNode(), "attach", timeout=value).reply_code == 502


def test_two_requests_are_refused() -> None:
    assert refused(AmqpNode(), "start", resume=UUID).reply_code == 503


def test_a_login_comes_before_the_request() -> None:
    node = AmqpNode()
    made = node.amqp_client()
    made.send_bytes(PROTOCOL_HEADER)
    made.received()
    made.send(m.ConnectionStartOk(asked("attach", "malformed"), "ANONYMOUS", b"", ""), 0)
    assert made.received() == []
    assert made.connection.closed


def test_the_text_form_of_a_uuid_has_no_case() -> None:
    properties = {"qpid.session.start": UUID.upper(), "qpid.session.timeout": 1}
    assert session_request(properties) == SessionRequest(RequestKind.START, UUID, 1_000)
    assert session_request({}) is None


# --- taking over ---------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["attach", "resume"])
def test_a_session_is_taken_over_from_a_connection_that_is_half_open(verb: str) -> None:
    node = AmqpNode()
    first = with_queue(node)
    first.send(m.BasicGet(0, "q"))
    tag = first.only(m.BasicGetOk)[0].delivery_tag
    again = client(node, verb)
    assert first.only(m.ConnectionClose)[0].reply_code == 320
    assert first.connection.closed
    first.send(m.BasicAck(tag))
    assert bodies(again) == [b"kept"], "a late acknowledgement does not count"
    first.lose()
    declared(again, exclusive=True)
    again.lose()
    declared(client(node, "resume"), exclusive=True)


@pytest.mark.parametrize("verb", ["attach", "resume"])
def test_an_acceptor_may_refuse_to_take_a_session_over(verb: str) -> None:
    node = AmqpNode(AcceptorOptions(amqp091=Amqp091Options(session_takeover=False)))
    first = with_queue(node)
    assert refused(node, verb).reply_code == 405
    assert bodies(first) == [b"kept"]
    first.publish("q", b"again")
    first.lose()
    assert bodies(client(node, verb)) == [b"again"], "without a connection it is not taken from one"


def test_of_two_clients_one_has_the_session() -> None:
    node = AmqpNode()
    with_queue(node).lose()
    one, other = client(node, "resume"), client(node, "resume")
    assert one.only(m.ConnectionClose)[0].reply_code == 320
    assert bodies(other) == [b"kept"]


def test_a_session_without_a_timeout_cannot_be_taken_over() -> None:
    node = AmqpNode()
    first = with_queue(node, timeout=0)
    assert refused(node, "resume").reply_code == 404
    assert first.only(m.ConnectionClose)[0].reply_code == 320


# --- limits --------------------------------------------------------------------------------------


def started(all_: ClientSessions, number: int, user: str = "u", host: str = "h") -> sessions.ClientSession:
    return all_.enter(SessionRequest(RequestKind.START, str(number), 1), sessions.Client(user, host))


@pytest.mark.parametrize(
    ("limit", "users", "hosts"),
    [
        (limits.AMQP091_SESSIONS_OF_USER_MAX, 1, 1_000),
        (limits.AMQP091_SESSIONS_OF_HOST_MAX, 1_000, 1),
        (limits.AMQP091_SESSIONS_MAX, 1_000, 1_000),
    ],
)
def test_sessions_are_limited_and_older_ones_are_kept(limit: int, users: int, hosts: int) -> None:
    all_ = ClientSessions(AmqpNode().world.office)
    for number in range(limit):
        started(all_, number, f"u{number % users}", f"h{number % hosts}")
    with pytest.raises(Amqp091Error, match="the limit") as caught:
        started(all_, limit, "u0", "h0")
    assert caught.value.reply_code == 530
    assert all_.count == limit


def test_a_host_that_guesses_is_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "REATTACH_GUESSES_OF_HOST_MAX", 3)
    node = AmqpNode()
    all_ = ClientSessions(node.world.office)
    known = started(all_, 1)
    for kind, number in ((RequestKind.RESUME, 7), (RequestKind.RESUME, 8), (RequestKind.START, 1)):
        with pytest.raises(Amqp091Error, match=r"no such session|in use"):
            all_.enter(SessionRequest(kind, str(number), 1), sessions.Client("other", "h"))
    for kind, uuid in ((RequestKind.RESUME, "7"), *((kind, "1") for kind in RequestKind)):
        with pytest.raises(Amqp091Error, match="too many unknown sessions") as caught:
            all_.enter(SessionRequest(kind, uuid, 1), sessions.Client("other", "h"))
        assert caught.value.reply_code == 530
    # known sessions and new ones of the host are not concerned
    known.place(cast(Any, FakeConnection("c")), ConnectionScope("c"))
    known.fire(sessions.Event.DETACH)
    assert all_.enter(SessionRequest(RequestKind.RESUME, "1", 1), sessions.Client("u", "h")) is known
    started(all_, 2)
    node.world.clock.advance(60_000)
    with pytest.raises(Amqp091Error, match="no such session"):
        all_.enter(SessionRequest(RequestKind.RESUME, "7", 1), sessions.Client("other", "h"))


def test_ended_sessions_do_not_count() -> None:
    all_ = ClientSessions(AmqpNode().world.office)
    for number in range(3):
        started(all_, number)
    all_.close()
    assert all_.count == 0
    for number in range(limits.AMQP091_SESSIONS_OF_USER_MAX):
        started(all_, number)


# --- planted bugs --------------------------------------------------------------------------------


def test_the_tests_find_a_session_that_another_user_may_resume(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: the user of a session is not compared."""

    monkeypatch.setattr(sessions.Client, "may_take", lambda client, other: True)
    with pytest.raises(AssertionError):
        test_an_unknown_an_ended_and_a_strange_session_are_refused_alike()
