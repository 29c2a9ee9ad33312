"""Publishes and settlements that are taken in runs, beside the same bytes taken frame by frame.

Goal: a client sees no difference, whatever it sends: the same confirms, returns, deliveries and errors at the same
frame, and the queues have the same messages. Method: random programs of publishes, plain ones and every kind that needs
more, or of settlements of deliveries in any order, known ones and others, with broken frames between them, in pieces of
any size, to two nodes of which one takes no runs.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.mutation import mutate
from support.amqp091 import AmqpClient, AmqpNode
from understudy.message import Message
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.frames import HEARTBEAT, content_frames, method_frame
from understudy.wire.amqp091.properties import BasicProperties, encode_properties

FRAME_MAX = 4096
properties = st.sampled_from(
    (
        *[BasicProperties(delivery_mode=2)] * 6,
        BasicProperties(delivery_mode=1),
        BasicProperties(delivery_mode=2, priority=7, headers={"n": 1, "s": "text"}, message_id="m", timestamp=5),
        BasicProperties(delivery_mode=2, expiration="60000"),
        BasicProperties(expiration="never"),
        BasicProperties(delivery_mode=2, headers={"CC": ["second"]}),
        BasicProperties(headers={"BCC": "no list"}),
        BasicProperties(user_id="another"),
        BasicProperties(reply_to="amq.rabbitmq.reply-to"),
        BasicProperties(headers={"x-match": "h"}),
    )
)
#: Exchange and routing key.
routes = st.sampled_from(
    (
        *[("", "first")] * 6,
        *[("", "second"), ("amq.fanout", ""), ("amq.direct", "key"), ("amq.direct", "none"), ("amq.topic", "a.b")],
        *[("", "small"), ("", "ranked"), ("", "none"), ("amq.headers", ""), ("with-alternate", "x"), ("", "brief")],
        *[("missing", "x"), ("v/amq.direct", "x")],
    )
)
bodies = st.sampled_from((b"", b"body", b"x" * 5000))


def publish(route: tuple[str, str], given: BasicProperties, body: bytes, flags: int, channel: int) -> bytes:
    method = m.BasicPublish(0, *route, mandatory=bool(flags & 1), immediate=flags == 6)
    return content_frames(method, encode_properties(given), body, channel, FRAME_MAX)


publishes = st.builds(
    publish, routes, properties, bodies, st.sampled_from((0, 0, 0, 0, 1, 1, 6)), st.sampled_from((1, 1, 1, 1, 2))
)
#: Several of one kind, or of several kinds in turn, so that there are runs and runs that are taken queue by queue.
groups = st.builds(
    lambda one, count: b"".join(one) * count, st.lists(publishes, min_size=1, max_size=3), st.integers(1, 6)
)
others = st.sampled_from(
    (
        *[method_frame(m.BasicAck(1, multiple=True), 1), method_frame(m.TxSelect(), 2), method_frame(m.TxCommit(), 2)],
        *[method_frame(m.BasicGet(0, "first", no_ack=True), 1), HEARTBEAT, method_frame(m.TxRollback(), 2)],
        *[method_frame(m.QueueDelete(0, "second"), 1), method_frame(m.ChannelClose(200, "", 0, 0), 2)],
        # other queues for a way that is known
        *[method_frame(m.QueueUnbind(0, "third", "amq.direct", "key", {}), 1)],
        *[method_frame(m.QueueBind(0, "first", "amq.direct", "key"), 1), method_frame(m.QueueDelete(0, "first"), 1)],
        *[method_frame(m.QueueBind(0, "brief", "amq.fanout", ""), 1), method_frame(m.QueueDeclare(0, "none"), 1)],
        *[method_frame(m.QueueUnbind(0, "first", "amq.fanout", "", {}), 1)],
        *[method_frame(m.ExchangeDelete(0, "with-alternate"), 1)],
    )
)
programs = st.lists(groups | groups | groups | others, max_size=8).map(b"".join)


def started(*, runs: bool) -> AmqpClient:
    """A client with two channels, queues of several kinds, and confirms on the first channel."""
    client = AmqpNode().channel(frame_max=FRAME_MAX)
    if not runs:
        client.handler._receive_run = lambda count_max: None  # type: ignore[method-assign]  # frame by frame
    client.ask(m.ChannelOpen(), m.ChannelOpenOk, 2)
    client.ask(m.ConfirmSelect(), m.ConfirmSelectOk)
    for queue, arguments in (
        ("first", {}), ("second", {}), ("third", {}), ("small", {"x-max-length": 2, "x-overflow": "reject-publish"}),
        ("ranked", {"x-max-priority": 5}), ("brief", {"x-message-ttl": 60_000}),
    ):  # fmt: skip
        client.ask(m.QueueDeclare(0, queue, durable=True, arguments=arguments), m.QueueDeclareOk)
    alternate = {"alternate-exchange": "amq.fanout"}
    client.ask(m.ExchangeDeclare(0, "with-alternate", "direct", arguments=alternate), m.ExchangeDeclareOk)
    for queue, exchange, key in (
        ("first", "amq.fanout", ""), ("second", "amq.fanout", ""), ("third", "amq.direct", "key"),
        ("second", "amq.topic", "a.*"), ("third", "amq.topic", "#"), ("first", "amq.headers", ""),
    ):  # fmt: skip
        client.ask(m.QueueBind(0, queue, exchange, key), m.QueueBindOk)
    return client


def outcome(client: AmqpClient, data: bytes, sizes: list[int]) -> Any:
    """Everything that a client sees of its bytes, in pieces of these sizes, and the contents of the queues."""
    at = 0
    try:
        for size in [*sizes, len(data)]:
            client.send_bytes(data[at : at + size])
            at += size
    except Exception as error:
        return type(error), str(error)
    seen = []
    confirmed: dict[int, int] = {}
    for each in client.received():
        if isinstance(each.method, m.BasicAck):
            # the number of confirms in one frame depends on how many publishes became safe together
            confirmed[each.channel] = each.method.delivery_tag
        else:
            seen.append(each)
    office = client.node.world.office
    return seen, confirmed, client.connection.closed, counts(office), {
        name: [(value(message), count) for message, count in waiting(queue)]
        for name, queue in office.directory.queues.items()
    }  # fmt: skip


def waiting(queue: Any) -> list[tuple[Message, int]]:
    return [(queue.read_waiting(reference), reference.delivery_count) for _, reference in queue.browse((9, -1))]


def value(message: Message) -> Any:
    """A message without the times of its arrival."""
    return (
        message.address, message.body, message.durable, message.priority, message.user_id, message.type,
        bool(message.expiration), dict(message.properties),
    )  # fmt: skip


def counts(office: Any) -> Any:
    exchanges = {
        name: (each.messages_in, each.messages_unrouted)
        for name, each in office.routing.exchanges.by_name.items()
        if each.messages_in
    }
    addresses = {
        name: (each.messages_routed, each.message_count, each.size_bytes)
        for name, each in office.directory.addresses.items()
    }
    return exchanges, addresses, (office.memory.held_bytes, office.memory.held_count)


@settings(max_examples=60, deadline=None)
@given(programs, st.lists(st.sampled_from((1, 7, 30, 200, 3000)), max_size=5))
def test_runs_and_single_frames_do_the_same(data: bytes, sizes: list[int]) -> None:
    assert outcome(started(runs=True), data, sizes) == outcome(started(runs=False), data, sizes)


@settings(max_examples=60, deadline=None)
@given(programs, st.integers(0, 2**32), st.lists(st.sampled_from((1, 7, 30, 200, 3000)), max_size=5))
def test_runs_and_single_frames_refuse_the_same(data: bytes, seed: int, sizes: list[int]) -> None:
    changed = mutate([data], random.Random(seed), 8192)
    assert outcome(started(runs=True), changed, sizes) == outcome(started(runs=False), changed, sizes)


@pytest.mark.parametrize("size", [0, 1, 200])
def test_plain_publishes_come_in_runs(size: int) -> None:
    """Without this the tests above would compare one way with itself."""
    client = started(runs=True)
    taken: list[int] = []
    take = client.handler._receive_run

    def counted(count_max: int) -> Any:
        run = take(count_max)
        taken.append(0 if run is None else run.taken)
        return run

    client.handler._receive_run = counted  # type: ignore[method-assign]
    given = replace(BasicProperties(), delivery_mode=2)
    # the first message of an address is taken alone, which asks for the permission
    client.publish("first", delivery_mode=2)
    client.received()
    client.send_bytes(publish(("", "first"), given, b"x" * size, 0, 1) * 50)
    assert max(taken) == 50
    (answer,) = client.received()
    assert answer.method == m.BasicAck(51, multiple=True)


#: Deliveries of ``consuming`` have the tags 1 to 24.
tags = st.integers(1, 24) | st.integers(0, 30)
settlements = st.builds(
    lambda make, first, count, step: b"".join(
        method_frame(make(max(0, first + step * each)), 1) for each in range(count)
    ),
    st.sampled_from(
        (
            *[m.BasicAck] * 6,
            *[m.BasicReject, lambda tag: m.BasicReject(tag, requeue=True), m.BasicNack],
            *[lambda tag: m.BasicNack(tag, requeue=True), lambda tag: m.BasicAck(tag, multiple=True)],
            *[lambda tag: m.BasicNack(tag, multiple=True, requeue=True)],
        )
    ),
    tags, st.integers(1, 8), st.sampled_from((1, 1, 1, -1, 2, 0)),
)  # fmt: skip
between = st.sampled_from(
    (
        *[m.TxCommit(), m.TxRollback(), m.BasicCancel("first"), m.BasicRecoverAsync(True), m.QueueDelete(0, "second")],
        *[m.BasicGet(0, "first"), m.ChannelClose(200, "", 0, 0)],
    )
).map(lambda method: method_frame(method, 1))
settling = st.lists(settlements | settlements | settlements | between, max_size=6).map(b"".join)


def consuming(*, runs: bool, transacted: bool) -> AmqpClient:
    """A client with outstanding deliveries of two consumers, whose queues have a dead letter exchange."""
    client = AmqpNode().channel(frame_max=FRAME_MAX)
    if not runs:
        client.handler._receive_run = lambda count_max: None  # type: ignore[method-assign]  # frame by frame
    client.ask(m.QueueDeclare(0, "dead", durable=True), m.QueueDeclareOk)
    client.ask(m.BasicQos(0, 12), m.BasicQosOk)
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    for queue in ("first", "second"):
        client.ask(m.QueueDeclare(0, queue, durable=True, arguments=dead), m.QueueDeclareOk)
        client.ask(m.BasicConsume(0, queue, queue), m.BasicConsumeOk)
    for number in range(10):
        # runs of both queues in turn
        client.publish("first", b"%d" % number, delivery_mode=1 + number % 2)
        client.send_bytes(publish(("", "second"), BasicProperties(delivery_mode=2), b"%d" % number, 0, 1) * 2)
    client.node.settle()
    assert len(client.received()) == 22
    if transacted:
        client.ask(m.TxSelect(), m.TxSelectOk)
    return client


@settings(max_examples=40, deadline=None)
@given(settling, st.booleans(), st.lists(st.sampled_from((1, 20, 21, 30, 200)), max_size=5))
def test_settlements_in_runs_and_in_single_frames_do_the_same(data: bytes, transacted: bool, sizes: list[int]) -> None:
    found = [outcome(consuming(runs=runs, transacted=transacted), data, sizes) for runs in (True, False)]
    assert found[0] == found[1]


@settings(max_examples=30, deadline=None)
@given(settling, st.integers(0, 2**32), st.lists(st.sampled_from((1, 20, 21, 30, 200)), max_size=5))
def test_settlements_in_runs_and_in_single_frames_refuse_the_same(data: bytes, seed: int, sizes: list[int]) -> None:
    changed = mutate([data], random.Random(seed), 8192)
    assert outcome(consuming(runs=True, transacted=False), changed, sizes) == outcome(
        consuming(runs=False, transacted=False), changed, sizes
    )


@pytest.mark.parametrize("order", [range(1, 23), range(22, 0, -1), [*range(1, 23, 2), *range(2, 23, 2)]])
def test_acknowledgements_of_single_deliveries_become_one_record_for_each_queue(order: list[int]) -> None:
    """Without this the tests above would compare one way with itself."""
    client = consuming(runs=True, transacted=False)
    store = client.node.world.office.store
    before = store.last_sequence
    client.send_bytes(b"".join(method_frame(m.BasicAck(tag), 1) for tag in order))
    assert store.last_sequence - before == 2
    assert len(client.received()) == 8
    queues = client.node.world.office.directory.queues
    assert {name: queue.message_count for name, queue in queues.items()} == {"dead": 0, "first": 0, "second": 8}


def test_publishes_to_queues_in_turn_are_taken_queue_by_queue() -> None:
    """Without this the tests above would compare one way with itself."""
    client = started(runs=True)
    given = BasicProperties(delivery_mode=2)
    once = b"".join(publish(("", queue), given, b"body", 0, 1) for queue in ("first", "second", "third"))
    client.send_bytes(once)
    client.received()
    client.send_bytes(once * 10)
    ids = {
        name: [message.message_id for message, _ in waiting(queue)]
        for name, queue in client.node.world.office.directory.queues.items()
    }
    # the ways of the first two were not known before, so their first publishes were taken alone
    begin = ids["third"][1]
    assert ids["third"][1:] == list(range(begin, begin + 10))
    assert ids["first"][2:] == list(range(begin + 10, begin + 19))
    assert ids["second"][2:] == list(range(begin + 19, begin + 28))
    acknowledged = [each.method for each in client.received()]
    assert acknowledged[-1] == m.BasicAck(33, multiple=True)
