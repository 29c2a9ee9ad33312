"""Limits of clients of AMQP 0-9-1 that send garbage or ask for too much, and the answers to them."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from support.amqp091 import AmqpClient, AmqpNode, bodies, declared, got
from support.routing import World
from understudy import limits
from understudy.errors import NotAuthorized, RemoteProtocolError
from understudy.security.authorization import NoSecurity, Permission, Principal
from understudy.session.registry import SessionRegistry
from understudy.terms import ResourceLimits
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.frames import FrameType, content_frames, encode_frame, method_frame
from understudy.wire.amqp091.properties import BasicProperties, encode_header, encode_properties

PUBLISHING = "understudy.protocols.amqp091"
NO_PROPERTIES = encode_properties(BasicProperties())


def begin(client: AmqpClient, size_bytes: int, channel: int = 1) -> None:
    """The method and the header of a message."""
    client.send(m.BasicPublish(0, "", "q"), channel)
    client.send_bytes(encode_frame(FrameType.HEADER, channel, encode_header(size_bytes, NO_PROPERTIES)))


def send_body(client: AmqpClient, piece: bytes, channel: int = 1) -> None:
    client.send_bytes(encode_frame(FrameType.BODY, channel, piece))


def closed_code(client: AmqpClient) -> int:
    """Code of the one method that came, connection.close."""
    return client.only(m.ConnectionClose)[0].reply_code


# --- contents -----------------------------------------------------------------------------------------


def test_messages_that_have_not_come_whole_are_bounded_on_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{PUBLISHING}.channel.AMQP091_CONTENTS_OF_CONNECTION_BYTES_MAX", 3100)
    node = AmqpNode()
    other, client = node.channel(), node.channel()
    declared(other)
    for number in (2, 3):
        client.ask(m.ChannelOpen(), m.ChannelOpenOk, number)
    for number in (1, 2):
        begin(client, 2000, number)
        send_body(client, bytes(1000), number)
    send_body(client, bytes(1000), 1)
    # the first one has come whole and counts no more
    begin(client, 2000, 3)
    send_body(client, bytes(1000), 3)
    send_body(client, bytes(999), 2)
    assert client.received() == []
    send_body(client, bytes(999), 3)
    assert closed_code(client) == 506
    assert client.handler.peer.content_bytes == 0
    assert len(bodies(other)) == 1


def test_a_channel_that_is_refused_keeps_nothing_of_its_content() -> None:
    node = AmqpNode()
    client = node.channel()
    declared(client)
    begin(client, 5000)
    send_body(client, bytes(1000))
    channel = client.handler.channels[1]
    assert channel.content.held_bytes > 1000
    node.world.office.directory.delete_queue("q", disconnect=True)
    client.handler.end_session(channel.session)
    assert (channel.content.held_bytes, client.handler.peer.content_bytes) == (0, 0)
    # the rest of the body is no error: the client has sent it before it knew
    client.received()
    send_body(client, bytes(4000))
    client.send(m.ChannelCloseOk())
    client.ask(m.ChannelOpen(), m.ChannelOpenOk)


def test_a_body_above_the_limit_is_refused_by_its_header_and_the_rest_is_discarded() -> None:
    client = AmqpNode().channel()
    begin(client, 1 << 63)
    assert client.only(m.ChannelClose)[0].reply_code == 311
    send_body(client, bytes(4000))
    client.send(m.ChannelCloseOk())
    client.node.world.clock.advance(limits.AMQP091_CONTENT_TIMEOUT_MS + 1)
    client.handler.check()
    client.ask(m.ChannelOpen(), m.ChannelOpenOk)


def test_the_time_of_a_content_counts_from_its_last_frame() -> None:
    """A slow line takes longer than that for 16 MiB."""
    client = AmqpNode().channel()
    declared(client)
    begin(client, 3000)
    for _ in range(2):
        client.node.world.clock.advance(limits.AMQP091_CONTENT_TIMEOUT_MS - 1)
        client.handler.check()
        send_body(client, bytes(1000))
    send_body(client, bytes(1000))
    assert len(bodies(client)) == 1


def test_a_content_is_not_missed_while_the_broker_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    client = AmqpNode().channel()
    declared(client)
    begin(client, 1000)
    address = client.node.world.office.directory.addresses["q"]
    client.handler.block(address)
    for _ in range(2):
        client.node.world.clock.advance(limits.AMQP091_CONTENT_TIMEOUT_MS + 1)
        client.handler.check()
    client.handler.unblock()
    client.handler.check()
    client.received()
    send_body(client, bytes(1000))
    assert len(bodies(client)) == 1


# --- transactions, fetched messages, replies --------------------------------------------------------------


def test_returns_of_a_transaction_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{PUBLISHING}.publisher.AMQP091_RETURNS_BYTES_MAX", 10_000)
    client = AmqpNode().channel()
    declared(client)
    client.ask(m.TxSelect(), m.TxSelectOk)
    for _ in range(2):
        # a commit and a rollback end it
        for finish in (m.TxCommit(), m.TxRollback()):
            client.publish("none", bytes(4000), mandatory=True)
            client.publish("none", bytes(4000), mandatory=True)
            client.send(finish)
    assert sum(isinstance(each.method, m.BasicReturn) for each in client.received()) == 4
    client.publish("q", b"taken")
    for _ in range(3):
        client.publish("none", bytes(4000), mandatory=True)
    closed = client.only(m.ChannelClose)[0]
    assert (closed.reply_code, "commit earlier" in closed.reply_text) == (406, True)
    # nothing of the transaction counts
    assert bodies(client.node.channel()) == []


def test_acknowledgements_of_nothing_leave_nothing_in_a_transaction() -> None:
    client = AmqpNode().channel()
    client.ask(m.TxSelect(), m.TxSelectOk)
    deliveries = client.handler.channels[1].deliveries
    for _ in range(3):
        client.send(m.BasicAck(0, multiple=True))
    assert deliveries.deferred == []
    client.ask(m.TxRollback(), m.TxRollbackOk)


def test_messages_that_are_fetched_and_not_settled_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.session.consumers.CONSUMERS_PER_SESSION_MAX", 3)
    node = AmqpNode()
    client = node.channel()
    declared(client)
    for _ in range(4):
        client.publish("q")
    for _ in range(3):
        client.ask_any(m.BasicGet(0, "q"))
    assert client.code(m.BasicGet(0, "q")) == 406
    assert len(bodies(node.channel())) == 4


def test_a_reply_fits_into_the_frames_of_its_receiver() -> None:
    node = AmqpNode()
    receiver, publisher = node.channel(frame_max=4096), node.channel()
    receiver.ask(m.BasicConsume(0, "amq.rabbitmq.reply-to", "t", no_ack=True), m.BasicConsumeOk)
    (token,) = node.amqp.replies
    publisher.publish(f"amq.rabbitmq.reply-to.{token}", headers={"long": "x" * 5000}, correlation_id="c")
    data = b"".join(receiver.connection.sent)
    _, reply = receiver.only(m.BasicDeliver)
    assert reply.properties == BasicProperties(headers={"x-understudy-truncated": True}, correlation_id="c")
    assert len(data) < 4096


@pytest.mark.parametrize("beyond", [0, 8])
def test_headers_that_were_accepted_are_delivered(beyond: int) -> None:
    """A payload may have the size of a frame when it is published, eight bytes more than its frame may have."""
    client = AmqpNode().channel(frame_max=4096)
    declared(client)
    client.ask(m.BasicConsume(0, "q", "t", no_ack=True), m.BasicConsumeOk)
    # 20 bytes beside the list; in the list 2 of flags, 4 of the table, 7 of the name and 5 of the type and length
    headers = {"header": "x" * (4096 - 20 - 2 - 4 - 7 - 5 + beyond)}
    client.publish("q", b"", headers=headers)
    _, delivered = client.only(m.BasicDeliver)
    assert delivered.properties == BasicProperties(headers=headers)


# --- frames after a large message -------------------------------------------------------------------------


def test_frames_after_a_large_message_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that stops reading in a large message makes its other answers wait in memory."""
    monkeypatch.setattr(f"{PUBLISHING}.output.OUTGOING_BYTES_MAX", 200)
    client = AmqpNode().channel()
    output = client.handler.channels[1].output
    output.begin_large(m.BasicDeliver("t", 1, False, "", "q"), NO_PROPERTIES, 1000)
    for _ in range(5):
        client.send(m.BasicQos(0, 1))
    output.send_piece(bytes(1000), last=True)
    kinds = [type(each.method) for each in client.received()]
    assert kinds == [m.BasicDeliver] + [m.BasicQosOk] * 5
    output.begin_large(m.BasicDeliver("t", 1, False, "", "q"), NO_PROPERTIES, 1000)
    for _ in range(20):
        client.send(m.BasicQos(0, 1))
    assert client.connection.closed


# --- names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["guess/amq.direct", "guess/", "a/b/amq.topic"])
def test_predeclared_exchanges_of_other_hosts_are_not_made(name: str) -> None:
    node = AmqpNode()
    client = node.channel()
    declared(client)
    client.publish("k", exchange=name)
    assert client.only(m.ChannelClose)[0].reply_code == 404
    client.send(m.ChannelCloseOk())
    client.ask(m.ChannelOpen(), m.ChannelOpenOk)
    for method in (
        m.ExchangeDeclare(0, name, "direct", passive=True),
        m.ExchangeDeclare(0, name, "direct", durable=True),
        m.ExchangeDelete(0, name),
        m.ExchangeBind(0, "amq.fanout", name, "k"),
        m.ExchangeUnbind(0, name, "amq.fanout", "k"),
        m.QueueBind(0, "q", name, "k"),
        m.QueueUnbind(0, "q", name, "k"),
    ):
        assert client.code(method) == 404, method
    assert name not in node.world.office.routing.exchanges.by_name


@pytest.mark.parametrize(
    "method",
    [
        m.QueueDeclare(0, "q", arguments={"x-dead-letter-exchange": "x" * 256}),
        m.QueueDeclare(0, "q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "é" * 128}),
        m.ExchangeDeclare(0, "x", "direct", arguments={"alternate-exchange": "x" * 256}),
    ],
)
def test_a_name_in_an_argument_is_a_short_string(method: Any) -> None:
    assert AmqpNode().channel().code(method) == 406


def test_arguments_of_a_binding_are_bounded() -> None:
    node = AmqpNode()
    client = node.channel()
    declared(client)
    most = limits.BINDING_ARGUMENTS_BYTES_MAX
    assert client.code(m.QueueBind(0, "q", "amq.direct", "k", arguments={"long": "x" * most})) == 406
    client.ask(m.QueueBind(0, "q", "amq.direct", "k", arguments={"long": "x" * (most - 100)}), m.QueueBindOk)
    assert node.world.office.routing.exchanges.binding_count == 1


# --- the end, turns, logs ---------------------------------------------------------------------------------


def test_nothing_after_the_close_of_a_client_is_carried_out() -> None:
    node = AmqpNode()
    client = node.channel()
    data = method_frame(m.ConnectionClose(200, "", 0, 0), 0)
    data += method_frame(m.ChannelOpen(), 2) + method_frame(m.QueueDeclare(0, "late"), 2)
    data += content_frames(m.BasicPublish(0, "", "late"), NO_PROPERTIES, b"b", 2, 4096)
    client.send_bytes(data + method_frame(m.ConnectionUpdateSecret(b"s", ""), 0))
    client.only(m.ConnectionCloseOk)
    assert client.connection.closed
    assert "late" not in node.world.office.directory.queues


def test_a_turn_ends_when_it_has_taken_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames whose work is large leave other connections their turn."""
    node = AmqpNode()
    client = node.channel()
    clock = node.world.clock
    real = client.handler._receive

    def slow(frame: Any, now_ms: int) -> None:
        real(frame, now_ms)
        clock.advance(limits.AMQP091_TURN_MS // 2)

    monkeypatch.setattr(client.handler, "_receive", slow)
    data = method_frame(m.BasicQos(0, 1), 1) * 5
    turns = [client.handler.receive_data(data)]
    while turns[-1]:
        turns.append(client.handler.receive_data(b""))
    assert len(turns) == 3
    assert [type(each.method) for each in client.received()] == [m.BasicQosOk] * 5


def test_a_turn_ends_when_runs_have_taken_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishes that alternate between queues are runs of one message, each with a route of its own."""
    node = AmqpNode()
    client = node.channel()
    for queue in ("q", "r"):
        client.ask(m.QueueDeclare(0, queue), m.QueueDeclareOk)
        client.publish(queue)
    clock = node.world.clock
    real = client.handler._receive_run
    taken: list[int] = []

    def slow(count_max: int) -> Any:
        run = real(count_max)
        taken.append(0 if run is None else run.taken)
        clock.advance(limits.AMQP091_TURN_MS // 2)
        return run

    monkeypatch.setattr(client.handler, "_receive_run", slow)
    publishes = [content_frames(m.BasicPublish(0, "", queue), NO_PROPERTIES, b"body", 1, 4096) for queue in ("q", "r")]
    turns = [client.handler.receive_data(b"".join(publishes) * 3)]
    while turns[-1]:
        turns.append(client.handler.receive_data(b""))
    assert sum(taken) == 6
    assert len(turns) == 3
    assert [node.world.office.directory.queues[queue].message_count for queue in ("q", "r")] == [4, 4]


@pytest.mark.parametrize("refused", [m.QueueDeclare(0, "missing", passive=True), m.ConnectionOpen("/")])
def test_the_log_names_the_client_that_was_refused(refused: Any, caplog: pytest.LogCaptureFixture) -> None:
    client = AmqpNode().channel(peer="10.0.0.7:4711")
    with caplog.at_level(logging.INFO, "understudy"):
        client.send(refused, 0 if isinstance(refused, m.ConnectionOpen) else 1)
    (record,) = caplog.records
    assert vars(record)["peer"] == "10.0.0.7:4711"


def test_marks_of_a_dead_letter_that_do_not_fit_leave_the_rest_as_it_was() -> None:
    client = AmqpNode().channel()
    declared(client, "dead")
    declared(client, "q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    headers: dict[str, Any] = {f"h{number}": None for number in range(limits.AMQP091_TABLE_VALUES_MAX)}
    client.publish("q", headers=headers, content_type="text/x")
    client.ask_any(m.BasicGet(0, "q"))
    client.send(m.BasicReject(1, requeue=False))
    dead = got(client, "dead")
    assert (dead.properties.content_type, dead.properties.headers) == ("text/x", headers)


def test_the_rest_of_a_small_publish_does_not_come() -> None:
    node = AmqpNode()
    client = node.channel()
    client.ask(m.QueueDeclare(0, "q"), m.QueueDeclareOk)
    client.publish("q")
    frames = content_frames(m.BasicPublish(0, "", "q"), encode_properties(BasicProperties()), b"body", 1, 4096)
    client.send_bytes(frames[:-3])
    node.world.clock.advance(limits.AMQP091_CONTENT_TIMEOUT_MS)
    client.handler.check()
    client.send_bytes(frames[-3:-2])
    node.world.clock.advance(limits.AMQP091_CONTENT_TIMEOUT_MS)
    client.handler.check()
    node.world.clock.advance(1)
    with pytest.raises(RemoteProtocolError, match="the rest of a publish"):
        client.handler.check()


def test_a_publish_that_has_come_whole_is_not_awaited() -> None:
    node = AmqpNode()
    client = node.channel()
    client.ask(m.QueueDeclare(0, "q"), m.QueueDeclareOk)
    client.publish("q")
    frames = content_frames(m.BasicPublish(0, "", "q"), encode_properties(BasicProperties()), b"body", 1, 4096)
    client.send_bytes(frames[:-3])
    client.send_bytes(frames[-3:])
    node.world.clock.advance(limits.AMQP091_CONTENT_TIMEOUT_MS + 1)
    client.handler.check()
    assert node.world.office.directory.queues["q"].message_count == 2


# --- permissions and limits of users ---------------------------------------------------------------------


class _NoDeadLetters(NoSecurity):
    """No user may send to the exchange "secret"."""

    def check(self, principal: Principal, permission: Permission, address: str, queue: str | None = None) -> None:
        if (permission, address) == (Permission.SEND, "secret"):
            raise NotAuthorized("no permission to send")


def test_a_dead_letter_exchange_needs_the_permission_to_send_to_it() -> None:
    client = AmqpNode(security=_NoDeadLetters()).channel()
    for exchange in ("secret", "other"):
        client.ask(m.ExchangeDeclare(0, exchange, "fanout"), m.ExchangeDeclareOk)
    assert client.code(m.QueueDeclare(0, "q", arguments={"x-dead-letter-exchange": "secret"})) == 403
    assert "q" not in client.node.world.office.directory.queues
    declared(client, arguments={"x-dead-letter-exchange": "other"})


def test_channels_of_a_user_are_limited() -> None:
    world = World()
    world.registry = SessionRegistry({"u": ResourceLimits(max_sessions=2)})
    node = AmqpNode(world=world)
    client = node.channel()
    client.ask(m.ChannelOpen(), m.ChannelOpenOk, 2)
    other = node.amqp_client()
    other.open()
    assert other.ask(m.ChannelOpen(), m.ConnectionClose).reply_code == 506
    client.ask(m.ChannelClose(200, "end"), m.ChannelCloseOk, 2)
    node.channel()


# --- channels that are opened and closed ------------------------------------------------------------------


def test_channels_that_a_connection_opens_in_a_second_are_limited() -> None:
    node = AmqpNode()
    client = node.amqp_client()
    client.open()
    cycle = method_frame(m.ChannelOpen(), 1) + method_frame(m.ChannelClose(200, "end"), 1)
    for _ in range(2 * limits.AMQP091_OPENS_PER_SECOND_MAX // 100 + 1):
        client.send_bytes(cycle * 100)
    # the close of a channel whose open was the last one of its second comes in the next second
    for opened, closed in ((1_000, 999), (1_000, 1_000), (100, 101)):
        came = [each.method for each in client.received()]
        assert (came.count(m.ChannelOpenOk()), came.count(m.ChannelCloseOk())) == (opened, closed)
        node.world.clock.advance(1_000)
        node.world.turn()
    assert not client.connection.closed


def test_fewer_channels_in_a_second_do_not_wait() -> None:
    node = AmqpNode()
    client = node.amqp_client()
    client.open()
    cycle = method_frame(m.ChannelOpen(), 1) + method_frame(m.ChannelClose(200, "end"), 1)
    for _ in range(3):
        client.send_bytes(cycle * (limits.AMQP091_OPENS_PER_SECOND_MAX - 1))
        assert len(client.received()) == 2 * (limits.AMQP091_OPENS_PER_SECOND_MAX - 1)
        node.world.clock.advance(1_000)
