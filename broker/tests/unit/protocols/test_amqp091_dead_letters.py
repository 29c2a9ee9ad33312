"""AMQP 0-9-1 from the client's side: dead letters, CORE clients, restarts."""

from __future__ import annotations

import pytest

from support.amqp091 import AmqpNode, bodies, declared, got
from support.routing import World, text
from understudy.errors import AddressFull, AddressNotFound
from understudy.message import MessageType
from understudy.properties import encode_simple_string
from understudy.protocols.amqp091.messages import MessageCarrier
from understudy.protocols.amqp091.names import REPLIES
from understudy.protocols.handlers import AcceptorOptions
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.routing.restore import restore, settle
from understudy.terms import Amqp091Options, RoutingType
from understudy.wire.amqp091 import methods as m

# --- dead letters --------------------------------------------------------------------------------


def test_a_client_of_core_learns_that_it_cannot_answer_a_direct_request() -> None:
    """No queue is made that would keep the answers."""
    node = AmqpNode()
    client, session, answers = node.channel(), node.world.session(), node.world.answers
    declared(client)
    client.ask(m.BasicConsume(0, REPLIES, "t", no_ack=True), m.BasicConsumeOk)
    client.publish("q", b"request", reply_to=REPLIES)
    address = got(client).properties.reply_to
    for name in (REPLIES, address):
        session.sends.send(text(name, name), answers.of(name))
        assert isinstance(answers.error(name), AddressNotFound)
        # clients make what is missing before they send
        with pytest.raises(AddressNotFound):
            session.queues.create_address(name, {RoutingType.ANYCAST}, auto_created=True)
        with pytest.raises(AddressNotFound):
            session.queues.create_queue(QueueConfiguration(name, name, RoutingType.ANYCAST))
    assert REPLIES not in node.world.office.directory.addresses


@pytest.mark.parametrize(("virtual_host", "prefix"), [("/", ""), ("shop", "shop/")])
def test_answers_to_clients_of_core(virtual_host: str, prefix: str) -> None:
    """Their ``reply_to`` is a destination of JMS, and a responder publishes with it as routing key."""
    node = AmqpNode(AcceptorOptions(amqp091=Amqp091Options(virtual_hosts=("shop",))))
    responder, session = node.channel(virtual_host=virtual_host), node.world.session()
    name = f"{prefix}answers"
    session.queues.create_queue(QueueConfiguration(name, name, RoutingType.ANYCAST))
    for kind in ("queue", "temp-queue"):
        responder.publish(f"{kind}://{name}", kind.encode(), mandatory=True)
        assert responder.received() == []
        assert got(responder, "answers").body == kind.encode()
    for key in (f"topic://{name}", "queue://missing", "queue://", f"other://{name}"):
        responder.publish(key, b"", mandatory=True)
        assert responder.only(m.BasicReturn)[0].routing_key == key
    # a queue that has this very name
    declared(responder, f"queue://{name}")
    responder.publish(f"queue://{name}", b"own")
    assert got(responder, f"queue://{name}").body == b"own"


def test_dead_letters_of_every_reason() -> None:
    node = AmqpNode()
    client = node.channel()
    declared(client, "dead")
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    declared(client, "limited", arguments={**dead, "x-max-length": 1})
    declared(client, "counted", arguments={**dead, "x-delivery-limit": 1})
    declared(client, "timed", arguments={**dead, "x-message-ttl": 100})
    for name in ("limited", "counted", "timed"):
        client.publish(name, name.encode())
    client.publish("limited", b"newer")
    client.send(m.BasicGet(0, "limited"))
    client.send(m.BasicReject(1))
    for tag in (2, 3):
        client.send(m.BasicGet(0, "counted"))
        client.send(m.BasicNack(tag, requeue=True))
    node.world.clock.advance(101)
    node.world.turn()
    client.received()
    reasons = {}
    while (found := got(client, "dead")) is not None:
        (death,) = found.properties.headers["x-death"]
        assert (death["count"], death["exchange"]) == (1, "")
        assert death["routing-keys"] == [death["queue"]]
        assert found.properties.headers["x-first-death-reason"] == death["reason"]
        reasons[found.body] = death["reason"]
    assert reasons == {
        b"limited": "maxlen", b"newer": "rejected", b"counted": "delivery_limit", b"timed": "expired",
    }  # fmt: skip


def test_a_circle_of_dead_letters_ends_unless_they_are_rejected() -> None:
    node = AmqpNode()
    client = node.channel()
    declared(
        client, "a", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "b", "x-message-ttl": 10}
    )
    declared(
        client, "b", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "a", "x-message-ttl": 10}
    )
    client.publish("a")
    for _ in range(5):
        node.world.clock.advance(20)
        node.world.turn()
    queues = node.world.office.directory.queues
    assert (queues["a"].message_count, queues["b"].message_count) == (0, 0)
    assert queues["b"].messages_added == 1


def test_unused_queues_expire() -> None:
    node = AmqpNode()
    client = node.channel()
    declared(client, arguments={"x-expires": 1000})
    node.world.clock.advance(900)
    declared(client, arguments={"x-expires": 1000})
    node.world.clock.advance(900)
    client.ask(m.QueueDeclare(0, "q", passive=True), m.QueueDeclareOk)
    client.ask(m.BasicConsume(0, "q", "t"), m.BasicConsumeOk)
    node.world.clock.advance(5000)
    client.ask(m.BasicCancel("t"), m.BasicCancelOk)
    node.world.clock.advance(2000)
    assert client.code(m.QueueDeclare(0, "q", passive=True)) == 404


# --- CORE, restart -------------------------------------------------------------------------------


def test_one_queue_for_both_protocols() -> None:
    node = AmqpNode()
    amqp, core = node.channel(), node.client()
    core.create_session(window=-1)
    declared(amqp)
    core.consume()
    amqp.publish("q", b"from amqp", headers={"n": 1, "s": "x"}, correlation_id="c", delivery_mode=2, priority=7)
    (received,) = [each for each in core.received() if hasattr(each, "message")]
    message = received.message
    assert (message.body, message.durable, message.properties["n"]) == (b"from amqp", True, 1)
    assert message.properties["JMSCorrelationID"] == "c"
    core.lose()
    declared(amqp, "r")
    session = node.world.session()
    session.sends.send(text("plain", "r"))
    raw = b"\x01" + encode_simple_string("grün")
    other = text("", "r", type=MessageType.TEXT, properties={"n": 2, "_AMQ_GROUP_ID": "g", "JMSReplyTo": "queue://x"})
    session.sends.send(type(other)(raw, address="r", type=MessageType.TEXT, properties=other.properties))
    node.world.turn()
    assert got(amqp, "r").body == b"plain"
    found = got(amqp, "r")
    assert (found.body.decode(), found.properties.headers) == ("grün", {"n": 2})
    assert (found.properties.reply_to, found.properties.content_type) == ("queue://x", "text/plain; charset=utf-8")
    assert (found.method.exchange, found.method.routing_key) == ("", "r")


@pytest.mark.parametrize("argument", ["x-max-length", "x-max-length-bytes"])
def test_a_full_queue_refuses_messages_of_core(argument: str) -> None:
    """A queue that was declared over AMQP 0-9-1 holds no more than its arguments say, from CORE, too."""
    node = AmqpNode()
    client, session = node.channel(), node.world.session()
    declared(client, arguments={argument: 1, "x-overflow": "reject-publish"})
    answers = node.world.answers
    session.sends.send(text("1", "q"), answers.of("1"))
    node.world.turn()
    for name, address in (("2", "q"), ("3", "q::q")):
        session.sends.send(text(name, address), answers.of(name))
        assert isinstance(answers.error(name), AddressFull)
    assert bodies(client) == [b"1"]
    session.sends.send(text("4", "q"), answers.of("4"))
    node.world.turn()
    assert answers.error("1") is answers.error("4") is None
    assert bodies(client) == [b"4"]


def test_a_property_list_of_a_core_client_is_checked() -> None:
    node = AmqpNode()
    client = node.channel()
    declared(client)
    node.world.session().sends.send(
        text("x", "q", properties={"_UND_AMQP091": b"\xff\xff", "amqp_exchange": "y" * 300})
    )
    node.world.turn()
    found = got(client)
    assert (found.body, found.method.exchange) == (b"x", "")


@pytest.mark.parametrize("circle", [("a",), ("a", "b"), ("a", "b", "c")])
@pytest.mark.parametrize("first", ["exchange", "queue"])
def test_auto_delete_exchanges_that_are_bound_in_a_circle_go_together(circle: tuple[str, ...], first: str) -> None:
    node = AmqpNode()
    client = node.channel()
    declared(client)
    for name in circle:
        client.ask(m.ExchangeDeclare(0, name, "fanout", auto_delete=True, durable=True), m.ExchangeDeclareOk)
    for source, destination in zip(circle, (*circle[1:], circle[0]), strict=True):
        client.ask(m.ExchangeBind(0, destination, source, ""), m.ExchangeBindOk)
    client.ask(m.QueueBind(0, "q", "a", ""), m.QueueBindOk)
    if first == "queue":
        client.ask(m.QueueDelete(0, "q"), m.QueueDeleteOk)
        # the circle itself keeps its exchanges
        for name in circle:
            client.ask(m.ExchangeDeclare(0, name, "fanout", passive=True), m.ExchangeDeclareOk)
    client.ask(m.ExchangeDelete(0, "a"), m.ExchangeDeleteOk)
    for name in circle:
        assert client.code(m.ExchangeDeclare(0, name, "fanout", passive=True)) == 404
    assert node.world.office.routing.exchanges.binding_count == 0
    assert not [kind for kind, _ in node.store.state.settings if "exchange" in kind]


def test_durable_exchanges_bindings_and_arguments_survive() -> None:
    node = AmqpNode()
    client = node.channel()
    declared(client, durable=True, arguments={"x-max-length": 2, "x-dead-letter-exchange": "x"})
    declared(client, "transient")
    client.ask(m.ExchangeDeclare(0, "x", "topic", durable=True, arguments={"alternate-exchange": "amq.fanout"}),
               m.ExchangeDeclareOk)  # fmt: skip
    client.ask(m.ExchangeDeclare(0, "y", "headers", durable=True), m.ExchangeDeclareOk)
    client.ask(m.QueueBind(0, "q", "y", "", arguments={"n": 1}), m.QueueBindOk)
    client.ask(m.ExchangeBind(0, "y", "x", "a.#"), m.ExchangeBindOk)
    client.ask(m.QueueBind(0, "transient", "x", "#"), m.QueueBindOk)
    client.ask(m.QueueBind(0, "q", "x", "gone"), m.QueueBindOk)
    client.ask(m.QueueUnbind(0, "q", "x", "gone"), m.QueueUnbindOk)
    client.publish("a.b", b"1", "x", headers={"n": 1}, delivery_mode=2)
    world = World(store=node.store)
    world.office.routing.exchanges.carrier = MessageCarrier()
    assert restore(world.office, node.store.found()) == 1
    settle(world.office, "$.internal")
    again = AmqpNode(world=world).channel()
    assert world.office.routing.exchanges.binding_count == 2
    declared(again, durable=True, arguments={"x-max-length": 2, "x-dead-letter-exchange": "x"})
    again.publish("a.c", b"2", "x", headers={"n": 1})
    again.publish("gone", b"3", "x")
    assert bodies(again) == [b"1", b"2"]
    again.ask(m.ExchangeDelete(0, "x"), m.ExchangeDeleteOk)
    again.ask(m.QueueDelete(0, "q"), m.QueueDeleteOk)
    assert world.office.routing.exchanges.binding_count == 0
    assert world.store.state.format_version == 6


def test_a_full_address_pauses_its_publishers() -> None:
    world = World({"q": {"max_size_bytes": 1000, "address_full_policy": "BLOCK"}})
    node = AmqpNode(world=world)
    client, consumer = node.channel(), node.channel()
    declared(client)
    client.publish("q", bytes(2000))
    client.publish("q", b"")
    assert isinstance(client.received()[0].method, m.ConnectionBlocked)
    assert client.handler.congested()
    consumer.send(m.QueuePurge(0, "q"))
    node.world.turn()
    client.only(m.ConnectionUnblocked)
    assert not client.handler.congested()
