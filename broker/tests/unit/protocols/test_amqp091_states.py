"""AMQP 0-9-1: every method in every state of a connection and a channel, and heartbeats.

The expected codes follow from the specification, s. 4.2.2 and class connection, and from what RabbitMQ answers.
"""

from __future__ import annotations

from typing import Any

import pytest

from support.amqp091 import PLAIN, AmqpClient, AmqpNode, declared
from understudy.errors import RemoteProtocolError
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.frames import HEARTBEAT, PROTOCOL_HEADER, method_frame
from understudy.wire.amqp091.layout import METHODS, Kind, Method, layout_of

_SMALL: dict[Kind, Any] = {
    Kind.OCTET: 0, Kind.U16: 0, Kind.U32: 0, Kind.U64: 0, Kind.SHORT_TEXT: "", Kind.LONG_BYTES: b"", Kind.FIELDS: {},
    Kind.BIT: False,
}  # fmt: skip
EVERY: list[Method] = [
    kind(**{name: _SMALL[encoding] for name, encoding in layout_of(kind)})
    for _, kind in sorted(METHODS.items())
]  # fmt: skip
NAMES = [each.name for each in EVERY]


def starting() -> AmqpClient:
    client = AmqpNode().amqp_client()
    client.send_bytes(PROTOCOL_HEADER)
    client.received()
    return client


def challenged() -> AmqpClient:
    client = starting()
    client.ask(m.ConnectionStartOk({}, "PLAIN", b"", ""), m.ConnectionSecure, 0)
    return client


def tuning() -> AmqpClient:
    client = starting()
    client.ask(m.ConnectionStartOk({}, "PLAIN", PLAIN, ""), m.ConnectionTune, 0)
    return client


def opening() -> AmqpClient:
    client = tuning()
    client.send(m.ConnectionTuneOk(10, 4096, 0), 0)
    assert client.received() == []
    return client


def opened() -> AmqpClient:
    client = opening()
    client.ask(m.ConnectionOpen("/"), m.ConnectionOpenOk, 0)
    return client


@pytest.mark.parametrize("method", EVERY, ids=NAMES)
@pytest.mark.parametrize(
    ("state", "expected"),
    [(starting, m.ConnectionStartOk), (challenged, m.ConnectionSecureOk)],
    ids=["starting", "challenged"],
)
def test_before_the_login_everything_but_its_next_step_and_close_ends_the_connection_without_an_answer(
    state: Any, expected: type[Method], method: Method
) -> None:
    client = state()
    if isinstance(method, m.ConnectionClose):
        client.ask(method, m.ConnectionCloseOk, 0)
    elif isinstance(method, expected):
        # an empty mechanism, or an empty response
        client.send(method, 0)
        assert client.received() == []
        assert client.connection.closed
    else:
        with pytest.raises(RemoteProtocolError):
            client.send(method, 0)
        assert client.received() == []


@pytest.mark.parametrize("method", EVERY, ids=NAMES)
@pytest.mark.parametrize(
    ("state", "expected"), [(tuning, m.ConnectionTuneOk), (opening, m.ConnectionOpen)], ids=["tuning", "opening"]
)
def test_after_the_login_the_next_step_of_the_handshake_is_the_only_one(
    state: Any, expected: type[Method], method: Method
) -> None:
    client = state()
    client.send(method, 0)
    if isinstance(method, m.ConnectionClose):
        client.only(m.ConnectionCloseOk)
    elif isinstance(method, m.ConnectionOpen) and expected is m.ConnectionOpen:
        client.only(m.ConnectionOpenOk)
    elif isinstance(method, m.ConnectionTuneOk) and expected is m.ConnectionTuneOk:
        # no limit of its own
        assert client.received() == []
    else:
        assert client.only(m.ConnectionClose)[0].reply_code == 503


@pytest.mark.parametrize("method", EVERY, ids=NAMES)
def test_channel_0_takes_methods_of_the_connection_only(method: Method) -> None:
    client = opened()
    client.send(method, 0)
    if isinstance(method, m.ConnectionClose):
        client.only(m.ConnectionCloseOk)
    elif isinstance(method, m.ConnectionUpdateSecret):
        client.only(m.ConnectionUpdateSecretOk)
    else:
        closed = client.only(m.ConnectionClose)[0]
        assert (closed.reply_code, closed.failing_class, closed.failing_method) == (
            503, method.class_id, method.method_id,
        )  # fmt: skip


@pytest.mark.parametrize("method", EVERY, ids=NAMES)
def test_a_channel_that_is_not_open_takes_channel_open_only(method: Method) -> None:
    client = opened()
    client.send(method, 3)
    if isinstance(method, m.ChannelOpen):
        client.only(m.ChannelOpenOk)
    elif isinstance(method, m.ChannelCloseOk):
        assert client.received() == []
    else:
        assert client.only(m.ConnectionClose)[0].reply_code == 504


@pytest.mark.parametrize("method", EVERY, ids=NAMES)
def test_an_open_channel_takes_what_clients_may_send(method: Method) -> None:
    client = opened()
    client.ask(m.ChannelOpen(), m.ChannelOpenOk)
    client.send(method)
    answers = client.received()
    if isinstance(method, m.ChannelOpen):
        assert [each.method.reply_code for each in answers] == [504]  # type: ignore[attr-defined]  # a close
    elif method.class_id == 10 or not method.from_client:
        assert [type(each.method) for each in answers] == [m.ConnectionClose]
        assert answers[0].method.reply_code == 503  # type: ignore[attr-defined]  # asserted above
    else:
        # a request that names nothing is answered, or closes its channel or the connection; the node goes on
        assert len(answers) <= 1
        client.node.channel()


@pytest.mark.parametrize("method", EVERY, ids=NAMES)
def test_a_channel_that_is_being_closed_ignores_everything_but_its_end(method: Method) -> None:
    client = opened()
    client.ask(m.ChannelOpen(), m.ChannelOpenOk)
    client.ask(m.BasicGet(0, "missing"), m.ChannelClose)
    client.send(method)
    if isinstance(method, m.ChannelClose):
        client.only(m.ChannelCloseOk)
    else:
        assert client.received() == []
    if not isinstance(method, m.ChannelCloseOk):
        client.send(m.ChannelCloseOk())
    client.ask(m.ChannelOpen(), m.ChannelOpenOk)


@pytest.mark.parametrize("method", EVERY, ids=NAMES)
def test_a_connection_that_is_being_closed_ignores_everything_but_its_end(method: Method) -> None:
    client = opened()
    client.ask(m.ConnectionStart(), m.ConnectionClose, 0)
    client.send(method, 0)
    if isinstance(method, m.ConnectionClose):
        client.only(m.ConnectionCloseOk)
    else:
        assert client.received() == []
    assert client.connection.closed is isinstance(method, m.ConnectionClose | m.ConnectionCloseOk)


def test_a_handshake_that_is_cut_at_every_byte() -> None:
    steps = [
        method_frame(m.ConnectionStartOk({"capabilities": {"x": True}}, "PLAIN", PLAIN, "en_US"), 0),
        method_frame(m.ConnectionTuneOk(10, 4096, 60), 0) + method_frame(m.ConnectionOpen("/"), 0),
    ]
    answers = [[m.ConnectionTune], [m.ConnectionOpenOk]]
    for step, frame in enumerate(steps):
        for cut in range(1, len(frame)):
            client = AmqpNode().amqp_client()
            client.send_bytes(PROTOCOL_HEADER)
            client.received()
            for before in steps[:step]:
                client.send_bytes(before)
                client.received()
            client.send_bytes(frame[:cut])
            client.send_bytes(frame[cut:])
            assert [type(each.method) for each in client.received()] == answers[step]


def test_traffic_takes_the_place_of_heartbeats() -> None:
    node = AmqpNode()
    client = node.channel()
    client = node.amqp_client()
    client.open(heartbeat=1)
    client.ask(m.ChannelOpen(), m.ChannelOpenOk)
    for _ in range(10):
        node.world.clock.advance(900)
        client.ask(m.BasicQos(0, 1), m.BasicQosOk)
    assert not client.connection.closed
    node.world.clock.advance(3000)
    assert client.connection.aborted


@pytest.mark.parametrize("sent_after_ms", [0, 100, 249, 251, 499, 501, 900])
def test_a_client_reads_something_within_three_quarters_of_an_interval(sent_after_ms: int) -> None:
    node = AmqpNode()
    client = node.amqp_client()
    client.open(heartbeat=1)
    client.ask(m.ChannelOpen(), m.ChannelOpenOk)
    clock = node.world.clock
    clock.advance(sent_after_ms)
    client.ask(m.BasicQos(0, 1), m.BasicQosOk)
    client.received()
    clock.advance(750)
    assert b"".join(client.connection.sent) == HEARTBEAT
    client.connection.sent.clear()
    clock.advance(1000)
    assert b"".join(client.connection.sent) == HEARTBEAT * 2


def test_without_an_interval_no_heartbeat_is_sent_or_awaited() -> None:
    node = AmqpNode()
    client = node.amqp_client()
    client.open(heartbeat=0)
    client.ask(m.ChannelOpen(), m.ChannelOpenOk)
    client.received()
    for _ in range(100):
        node.world.clock.advance(10_000)
    assert HEARTBEAT not in b"".join(client.connection.sent)
    declared(client)
