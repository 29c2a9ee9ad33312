"""Exchanges of AMQP 0-9-1 as operators see and change them, on a node with clients of the protocol."""

from __future__ import annotations

import json

import pytest

from support.amqp091 import bodies, declared
from support.managed_amqp import ManagedAmqp
from understudy.management.model.exchanges import Channel, Exchange, ExchangeBinding
from understudy.management.snapshot.collections import READERS
from understudy.protocols.handlers import AcceptorOptions
from understudy.terms import Amqp091Options
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.tables import Timestamp


def exchanges_of(node: ManagedAmqp) -> dict[str, Exchange]:
    return {each.name: each for each in READERS["exchanges"](node.managed).items()}


def bindings_of(node: ManagedAmqp) -> list[ExchangeBinding]:
    return READERS["exchange-bindings"](node.managed).items()


def channels_of(node: ManagedAmqp) -> list[Channel]:
    return READERS["channels"](node.managed).items()


def test_an_operator_makes_an_exchange_that_clients_use() -> None:
    node = ManagedAmqp()
    client = node.channel()
    declared(client, "audit", durable=True)
    node.ask("broker", "createExchange", "logs", "topic", True, False, False, None)
    binding = node.ask("broker", "createExchangeBinding", "logs", "audit", "queue", "a.#", None)
    client.publish("a.b", b"one", "logs")
    client.publish("b", b"two", "logs")
    found = exchanges_of(node)["logs"]
    assert (found.messages_in, found.messages_unrouted, found.binding_count) == (2, 1, 1)
    assert bodies(client, "audit") == [b"one"]
    (shown,) = bindings_of(node)
    assert (shown.id, shown.source, shown.destination, shown.routing_key) == (binding, "logs", "audit", "a.#")
    assert (shown.destination_type, shown.durable, shown.arguments) == ("queue", True, {})
    # the same declaration and binding again change nothing, by an operator and by a client
    node.ask("broker", "createExchange", "logs", "topic", True, False, False, "")
    assert node.ask("broker", "createExchangeBinding", "logs", "audit", "queue", "a.#", {}) == binding
    client.ask(m.ExchangeDeclare(0, "logs", "topic", durable=True), m.ExchangeDeclareOk)
    assert len(bindings_of(node)) == 1
    node.ask("broker", "deleteExchangeBinding", binding)
    assert bindings_of(node) == []
    assert "no binding of an exchange has the id" in node.refused("broker", "deleteExchangeBinding", binding)
    node.ask("broker", "deleteExchange", "logs", True)
    assert "no exchange 'logs'" in node.refused("broker", "deleteExchange", "logs", False)


@pytest.mark.parametrize("name", ["", "shop/"])
def test_the_default_exchange_is_not_made(name: str) -> None:
    refused = ManagedAmqp().refused("broker", "createExchange", name, "direct", True, False, False, None)
    assert "the default exchange of a virtual host is always there" in refused


def test_arguments_of_a_binding_are_those_of_a_client() -> None:
    node = ManagedAmqp()
    client = node.channel()
    declared(client, "q")
    client.ask(m.ExchangeDeclare(0, "h", "headers"), m.ExchangeDeclareOk)
    table = {"x-match": "all", "kind": "a", "n": 7, "yes": True}
    client.ask(m.QueueBind(0, "q", "h", "", arguments=table), m.QueueBindOk)
    (one,) = bindings_of(node)
    assert one.arguments == table
    assert node.ask("broker", "createExchangeBinding", "h", "q", "queue", "", table) == one.id
    client.ask(m.QueueBind(0, "q", "h", "", arguments={"at": Timestamp(7)}), m.QueueBindOk)
    assert [each.arguments for each in bindings_of(node)] == [table, {"at": "7 s since 1970"}]
    assert len({each.id for each in bindings_of(node)}) == 2


@pytest.mark.parametrize(
    ("name", "kind", "error"),
    [
        ("", "direct", "always there"),
        ("amq.own", "direct", "reserved"),
        ("v/amq.own", "direct", "reserved"),
        ("a::b", "direct", "address and a queue"),
        ("$sys", "direct", "names of the broker"),
        ("x", "x-delayed-message", "is not one of the types"),
        ("amq.topic", "direct", "exists with type 'topic'"),
        ("there", "topic", "exists with type 'direct'"),
    ],
)
def test_exchanges_that_are_refused(name: str, kind: str, error: str) -> None:
    node = ManagedAmqp()
    node.ask("broker", "createExchange", "there", "direct", False, False, False, None)
    durable = name != "there"
    assert error in node.refused("broker", "createExchange", name, kind, durable, name == "", False, None)


@pytest.mark.parametrize(
    ("source", "destination", "kind", "arguments", "error"),
    [
        ("", "q", "queue", None, "the default exchange cannot be bound"),
        ("amq.topic", "", "exchange", None, "the default exchange cannot be bound"),
        ("amq.topic", "q", "topic", None, "not to 'topic'"),
        ("amq.topic", "none", "queue", None, "none"),
        ("none", "q", "queue", None, "no exchange 'none'"),
        ("amq.headers", "q", "queue", {"x-match": "some"}, "x-match"),
        ("amq.headers", "q", "queue", {"n" * 300: 1}, "arguments of a binding"),
    ],
)
def test_bindings_that_are_refused(source: str, destination: str, kind: str, arguments: object, error: str) -> None:
    node = ManagedAmqp()
    declared(node.channel(), "q")
    assert error in node.refused("broker", "createExchangeBinding", source, destination, kind, "", arguments)
    assert bindings_of(node) == []


def test_exchanges_that_stay() -> None:
    node = ManagedAmqp()
    declared(node.channel(), "q")
    node.ask("broker", "createExchange", "used", "fanout", False, False, False, None)
    node.ask("broker", "createExchangeBinding", "used", "q", "queue", "", None)
    assert "has 1 bindings" in node.refused("broker", "deleteExchange", "used", True)
    assert "every virtual host has it" in node.refused("broker", "deleteExchange", "amq.topic", False)
    assert {"used", "amq.topic"} <= set(node.ask("broker", "getExchangeNames"))


def test_channels_show_what_waits() -> None:
    node = ManagedAmqp(AcceptorOptions(amqp091=Amqp091Options(virtual_hosts=("shop",))))
    client = node.channel(virtual_host="shop")
    declared(client)
    client.ask(m.BasicQos(0, 5, for_channel=True), m.BasicQosOk)
    client.ask(m.ConfirmSelect(), m.ConfirmSelectOk)
    client.publish("q", b"1")
    client.publish("q", b"2")
    client.send(m.BasicConsume(0, "q", "tag"))
    (channel,) = channels_of(node)
    assert (channel.number, channel.virtual_host, channel.user) == (1, "shop", "u")
    assert (channel.consumer_count, channel.prefetch_count, channel.unacknowledged_count) == (1, 5, 2)
    assert (channel.confirms, channel.transacted, channel.unconfirmed_count) == (True, False, 0)
    client.send(m.BasicAck(1))
    (channel,) = channels_of(node)
    assert channel.unacknowledged_count == 1
    client.received()
    client.ask(m.ChannelClose(200, ""), m.ChannelCloseOk)
    assert channels_of(node) == []


def test_a_queue_with_arguments_is_the_one_that_a_client_would_declare() -> None:
    node = ManagedAmqp(AcceptorOptions(amqp091=Amqp091Options(virtual_hosts=("shop",))))
    arguments = {"x-message-ttl": 5_000, "x-dead-letter-exchange": "rest", "x-max-priority": 5}
    asked = {"name": "shop/q", "arguments": arguments, "virtual-host": "shop", "auto-delete": True}
    answer = json.loads(node.ask("broker", "createQueue", json.dumps(asked)))
    assert (answer["arguments"], answer["virtual-host"]) == (arguments, "shop")
    declared(node.channel(virtual_host="shop"), durable=True, auto_delete=True, arguments=arguments)
    (queue,) = READERS["queues"](node.managed).items()
    assert (queue.arguments, queue.virtual_host, queue.auto_delete) == (arguments, "shop", True)
    same = json.dumps({"name": "shop/q", "arguments": arguments, "virtual-host": "shop", "auto-delete": True})
    node.ask("broker", "updateQueue", same)
    changed = json.dumps({"name": "shop/q", "arguments": {"x-message-ttl": 1}, "virtual-host": "shop"})
    assert "arguments cannot be changed" in node.refused("broker", "updateQueue", changed)


@pytest.mark.parametrize(
    ("configuration", "error"),
    [
        ({"arguments": {"x-queue-type": "stream"}}, "stream"),
        ({"arguments": {"x-message-ttl": "soon"}}, "x-message-ttl"),
        ({"arguments": []}, "'arguments' is not an object"),
        ({"virtual-host": 7}, "'virtual-host' is not a string"),
    ],
)
def test_arguments_of_a_queue_that_are_refused(configuration: dict[str, object], error: str) -> None:
    node = ManagedAmqp()
    assert error in node.refused("broker", "createQueue", json.dumps({"name": "q", **configuration}))


def test_the_configuration_of_a_queue_that_a_client_declared_is_shown() -> None:
    node = ManagedAmqp()
    declared(node.channel(), "q", durable=True, arguments={"x-expires": 60_000})
    answer = json.loads(node.ask("broker", "updateQueue", json.dumps({"name": "q", "max-consumers": 3})))
    assert (answer["max-consumers"], answer["arguments"]) == (3, {"x-expires": 60_000})
