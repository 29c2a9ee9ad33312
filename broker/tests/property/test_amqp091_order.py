"""Requests of AMQP 0-9-1 that are sent without waiting for answers, beside the same requests sent one by one.

Goal: both give the same answers, confirms and returns, and leave the same queues and bindings, as with RabbitMQ.
Method: random programs on two channels of one connection, whose queues and exchanges are their own, at a node whose
disk keeps up only now and then, in pieces of any size; the other node has its disk keep up after each request.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from support.amqp091 import AmqpClient, AmqpNode
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.frames import content_frames, method_frame
from understudy.wire.amqp091.layout import Method
from understudy.wire.amqp091.properties import BasicProperties, encode_properties

CHANNELS = (1, 2)
#: Methods of the broker that answer no request: they come when a publish is decided, or a message has come.
_DECISIONS = m.BasicAck | m.BasicNack
#: Each channel has its own names: they begin with the number of the channel.
_names = st.sampled_from(("q", "q", "r"))


def _publish(channel: int, name: str, exchange: str, mode: int, mandatory: bool, bodies: list[bytes]) -> bytes:
    method = m.BasicPublish(0, exchange and f"{channel}{exchange}", f"{channel}{name}", mandatory)
    properties = encode_properties(BasicProperties(delivery_mode=mode))
    return b"".join(content_frames(method, properties, body, channel, 4096) for body in bodies)


def _request(make: Any, channel: int) -> bytes:
    method: Method = make(channel)
    return method_frame(method, channel)


def _of_queue(kind: Any, **fields: Any) -> st.SearchStrategy[Any]:
    """A request about a queue."""
    return st.builds(lambda name: partial(_request, lambda channel: kind(0, f"{channel}{name}", **fields)), _names)


def _fixed(method: Method) -> st.SearchStrategy[Any]:
    return st.just(partial(_request, lambda channel: method))


bodies = st.lists(st.binary(min_size=1, max_size=2), min_size=1, max_size=4)
publishes = st.builds(
    lambda *fields: lambda channel: _publish(channel, *fields),
    *(_names, st.sampled_from(("", "", "x")), st.sampled_from((1, 2, 2)), st.booleans(), bodies),
)
bindings = st.builds(
    lambda kind, name: partial(
        _request, lambda channel: kind(0, f"{channel}{name}", f"{channel}x", f"{channel}{name}")
    ),
    st.sampled_from((m.QueueBind, m.QueueUnbind)),
    _names,
)
consumers = st.sampled_from(
    (
        partial(_request, lambda channel: m.BasicConsume(0, f"{channel}idle", "tag", no_ack=True)),
        partial(_request, lambda channel: m.BasicConsume(0, f"{channel}read", "reader", no_ack=True)),
        partial(_request, lambda channel: m.BasicCancel("tag")),
        partial(_request, lambda channel: m.QueueDeclare(0, f"{channel}idle", passive=True)),
    )
)
read = st.just(lambda channel: _publish(channel, "read", "", 2, False, [b"1", b"2"]))
requests = st.one_of(
    *[publishes] * 4, bindings, consumers, read,
    *[_of_queue(m.QueueDeclare, durable=True)] * 2, _of_queue(m.QueueDeclare, durable=True, no_wait=True),
    _of_queue(m.QueueDeclare, passive=True), _of_queue(m.QueueDelete), _of_queue(m.QueueDelete, no_wait=True),
    _of_queue(m.QueueDelete, if_empty=True), _of_queue(m.QueuePurge), _of_queue(m.QueuePurge, no_wait=True),
    *[_of_queue(m.BasicGet, no_ack=True)] * 2, _of_queue(m.BasicGet),
    _fixed(m.BasicAck(0, multiple=True)), _fixed(m.BasicNack(0, multiple=True, requeue=True)),
    _fixed(m.BasicRecover(True)), _fixed(m.BasicQos(0, 5)), _fixed(m.ChannelFlow(True)),
    st.just(partial(_request, lambda channel: m.ExchangeDeclare(0, f"{channel}y", "fanout"))),
    st.just(partial(_request, lambda channel: m.ExchangeDelete(0, f"{channel}y"))),
    _fixed(m.TxCommit()), _fixed(m.TxRollback()),
)  # fmt: skip
#: Channel and request.
programs = st.lists(st.tuples(st.sampled_from((1, 1, 2)), requests), max_size=14)
#: Bytes of a piece of the program, and whether the disk keeps up after it.
pieces = st.lists(st.tuples(st.sampled_from((1, 9, 40, 100, 4000)), st.booleans()), max_size=6)
modes = st.sampled_from((None, m.ConfirmSelect(), m.TxSelect(), m.TxSelect()))


def started(mode: Method | None, *, runs: bool = True) -> AmqpClient:
    node = AmqpNode(automatic=False)
    client = node.channel()
    if not runs:
        client.handler._receive_run = lambda count_max: None  # type: ignore[method-assign]  # frame by frame
    client.ask(m.ChannelOpen(), m.ChannelOpenOk, 2)
    for channel in CHANNELS:
        for request in (
            *[m.QueueDeclare(0, f"{channel}{name}", durable=True) for name in ("q", "idle", "read")],
            m.ExchangeDeclare(0, f"{channel}x", "direct"),
            *([] if mode is None else [mode]),
        ):
            client.send(request, channel)
            node.settle()
    client.received()
    return client


def outcome(client: AmqpClient) -> Any:
    """Everything that the client has got, by channel and kind, and the queues and exchanges of the node."""
    answers: dict[tuple[int, str], list[Any]] = {}
    for each in client.received():
        method = each.method
        if isinstance(method, _DECISIONS):
            # the number of publishes that one confirm names depends on how many became safe together
            answers[each.channel, "decided"] = [type(method), method.delivery_tag]
        else:
            kind = {m.BasicReturn: "returns", m.BasicDeliver: "deliveries"}.get(type(method), "answers")
            # the number of a delivery depends on when the message came
            value = replaced(method) if kind == "deliveries" else method
            answers.setdefault((each.channel, kind), []).append((value, each.body))
    office = client.node.world.office
    queues = {
        name: (
            [(queue.read_waiting(each).body, each.delivery_count) for _, each in queue.browse((99, -1))],
            queue.consumers.count,
        )
        for name, queue in office.directory.queues.items()
    }
    exchanges = {
        name: sorted(str(binding) for binding in exchange.bindings)
        for name, exchange in office.routing.exchanges.by_name.items()
    }
    return answers, queues, exchanges, client.connection.closed


def replaced(method: Method) -> Any:
    assert isinstance(method, m.BasicDeliver)
    return method.consumer_tag, method.redelivered, method.exchange, method.routing_key


def one_by_one(mode: Method | None, program: list[tuple[int, Any]]) -> Any:
    client = started(mode)
    for channel, request in program:
        client.send_bytes(request(channel))
        client.node.settle()
    return outcome(client)


def pipelined(
    mode: Method | None, program: list[tuple[int, Any]], sizes: list[tuple[int, bool]], *, runs: bool = True
) -> Any:
    client = started(mode, runs=runs)
    data, at = b"".join(request(channel) for channel, request in program), 0
    for size, synced in [*sizes, (len(data), True)]:
        client.send_bytes(data[at : at + size])
        at += size
        if synced:
            client.node.sync()
    client.node.settle()
    return outcome(client)


@settings(max_examples=150, deadline=None)
@given(modes, programs, pieces, st.booleans())
def test_pipelined_requests_do_what_single_ones_do(
    mode: Method | None, program: list[tuple[int, Any]], sizes: list[tuple[int, bool]], runs: bool
) -> None:
    assert pipelined(mode, program, sizes, runs=runs) == one_by_one(mode, program)
