"""AMQP 0-9-1: how deliveries are settled and confirms are counted, over several consumers, queues and clients."""

from __future__ import annotations

import random
from typing import Any

import pytest

from support.amqp091 import AmqpClient, AmqpNode, bodies, declared, got
from support.amqp091_sessions import started
from support.routing import World, text
from understudy.limits import ACKNOWLEDGEMENT_REST_MS
from understudy.protocols.amqp091.messages import MessageCarrier
from understudy.routing.restore import restore, settle
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.frames import method_frame
from understudy.wire.amqp091.tables import Decimal, Timestamp


def deliveries(client: AmqpClient) -> list[Any]:
    return [each for each in client.received() if isinstance(each.method, m.BasicDeliver)]


def test_an_acknowledgement_of_many_goes_over_all_consumers_and_queues_of_the_channel() -> None:
    node = AmqpNode()
    client, other = node.channel(), node.channel()
    for name in ("a", "b", "c"):
        declared(client, name)
        client.ask(m.BasicConsume(0, name, name), m.BasicConsumeOk)
    for number in range(9):
        client.publish("abc"[number % 3], b"%d" % number)
    assert [(each.method.delivery_tag, each.body) for each in deliveries(client)] == [
        (number + 1, b"%d" % number) for number in range(9)
    ]
    client.send(m.BasicAck(4, multiple=True))
    for name in ("a", "b", "c"):
        client.ask(m.BasicCancel(name), m.BasicCancelOk)
    client.send(m.BasicNack(0, multiple=True, requeue=True))
    assert client.received() == []
    # in their old order, and marked
    found = {name: [got(other, name) for _ in range(2)] for name in ("a", "b", "c")}
    assert {name: [each and (each.body, each.method.redelivered) for each in two] for name, two in found.items()} == {
        "a": [(b"6", True), None], "b": [(b"4", True), (b"7", True)], "c": [(b"5", True), (b"8", True)],
    }  # fmt: skip


def test_deliveries_that_are_accepted_together_do_not_depend_on_each_other() -> None:
    node = AmqpNode()
    client = node.channel()
    declared(client, durable=True)
    for body in (b"1", b"2", b"3"):
        client.publish("q", body, delivery_mode=2)
    client.send(m.BasicConsume(0, "q", "t"))
    session = client.handler.channels[1].session
    ((consumer_id, consumer),) = session.consumers.by_id.items()
    first, second, third = consumer.delivering
    session.accept(consumer_id, [[1, third], [first]])
    assert list(consumer.delivering) == [second]
    assert node.world.office.directory.queues["q"].message_count == 1


@pytest.mark.parametrize("settled", [m.BasicAck(1), m.BasicNack(1), m.BasicReject(1)])
def test_an_acknowledgement_rests_for_a_time_or_until_its_channel_ends(settled: Any) -> None:
    """ADR 0211. Other settlements put the message back, where it is delivered at once."""
    node = AmqpNode()
    client, other = node.channel(), node.channel()
    context = node.world.store.context
    declared(client, durable=True)
    for each in (client, other):
        each.publish("q", b"1", delivery_mode=2)
        each.send(m.BasicConsume(0, "q", "t"))
        node.settle()
        each.send(settled)
        rests = isinstance(settled, m.BasicAck)
        assert (context.resting.end == context.appended) is rests
        if each is client:
            node.world.clock.advance(ACKNOWLEDGEMENT_REST_MS)
        else:
            each.send(m.ChannelClose(200, "", 0, 0))
        assert context.resting.end != context.appended
        client.send(m.BasicCancel("t"))


@pytest.mark.parametrize("settle_", [m.BasicAck(1), m.BasicAck(7), m.BasicNack(1), m.BasicReject(1)])
def test_a_tag_that_is_not_outstanding_closes_the_channel_and_returns_its_deliveries(settle_: Any) -> None:
    node = AmqpNode()
    client, other = node.channel(), node.channel()
    declared(client)
    client.publish("q", b"1")
    client.publish("q", b"2")
    client.send(m.BasicConsume(0, "q", "t"))
    assert len(deliveries(client)) == 2
    client.send(m.BasicAck(1))
    assert client.code(settle_) == 406
    found = got(other)
    assert (found.body, found.method.redelivered) == (b"2", True)
    assert got(other) is None


def test_a_tag_belongs_to_its_channel() -> None:
    node = AmqpNode()
    client = node.channel()
    client.ask(m.ChannelOpen(), m.ChannelOpenOk, 2)
    declared(client)
    client.publish("q", b"1")
    client.send(m.BasicGet(0, "q"))
    client.only(m.BasicGetOk)
    assert client.code(m.BasicAck(1), 2) == 406
    client.send(m.BasicAck(1))
    assert client.received() == []


@pytest.mark.parametrize("seed", range(8))
def test_a_consumer_never_has_more_deliveries_than_its_limits_allow(seed: int) -> None:
    """Random limits of consumers and of the channel, acknowledgements and returns."""
    stream = random.Random(seed)
    node = AmqpNode()
    client = node.channel()
    declared(client)
    limits: dict[str, int] = {}
    channel_limit = 0
    held: dict[int, str] = {}

    def take() -> None:
        for each in deliveries(client):
            held[each.method.delivery_tag] = each.method.consumer_tag
        for tag, limit in limits.items():
            assert not limit or list(held.values()).count(tag) <= limit
        assert not channel_limit or len(held) <= max(channel_limit, before)

    for step in range(120):
        before = len(held)
        action = stream.random()
        if action < 0.1 and len(limits) < 4:
            count = stream.choice((0, 1, 3))
            client.send(m.BasicQos(0, count))
            limits[f"t{step}"] = count
            client.send(m.BasicConsume(0, "q", f"t{step}"))
        elif action < 0.2:
            channel_limit = stream.choice((0, 2, 5))
            client.send(m.BasicQos(0, channel_limit, for_channel=True))
        elif action < 0.6 or not held:
            client.publish("q", b"%d" % step)
        elif action < 0.8:
            tag = stream.choice(list(held))
            del held[tag]
            before -= 1
            client.send(m.BasicAck(tag))
        else:
            tag = stream.choice(list(held))
            del held[tag]
            before -= 1
            client.send(m.BasicNack(tag, requeue=True))
        take()
    # without a limit of the channel, everything within the limits of the consumers was delivered
    before = len(held)
    channel_limit = 0
    client.send(m.BasicQos(0, 0, for_channel=True))
    take()
    left = sum(limit - list(held.values()).count(tag) if limit else 1 << 30 for tag, limit in limits.items())
    queue = node.world.office.directory.queues["q"]
    assert not len(queue.pending) or not left


def test_a_limit_of_the_channel_serves_every_queue() -> None:
    client = AmqpNode().channel()
    client.ask(m.BasicQos(0, 1, for_channel=True), m.BasicQosOk)
    for name in ("a", "b", "c"):
        declared(client, name)
        for _ in range(20):
            client.publish(name, name.encode())
    for name in ("a", "b", "c"):
        client.send(m.BasicConsume(0, name, name))
    found: list[bytes] = []
    for _ in range(30):
        (delivery,) = deliveries(client)
        found.append(delivery.body)
        client.send(m.BasicAck(delivery.method.delivery_tag))
    assert [found.count(name) for name in (b"a", b"b", b"c")] == [10, 10, 10]


def test_every_publish_of_a_large_batch_is_confirmed_once() -> None:
    """10,000 publishes: durable, transient, to several queues, to none, and returned ones."""
    node = AmqpNode(automatic=False)
    client = node.channel()
    for name, durable in (("one", True), ("two", True), ("transient", False)):
        client.send(m.QueueDeclare(0, name, durable=durable))
        client.send(m.QueueBind(0, name, "amq.fanout", ""))
    client.send(m.ConfirmSelect())
    node.sync()
    client.received()
    kinds = [
        {"routing_key": "one", "delivery_mode": 2},
        {"routing_key": "transient"},
        {"routing_key": "", "exchange": "amq.fanout", "delivery_mode": 2},
        {"routing_key": "nowhere"},
        {"routing_key": "nowhere", "mandatory": True},
    ]
    confirmed: list[int] = []
    returned = 0
    last = 0

    def take() -> None:
        nonlocal last, returned
        for each in client.received():
            if isinstance(each.method, m.BasicReturn):
                returned += 1
                continue
            assert isinstance(each.method, m.BasicAck)
            first = last + 1 if each.method.multiple else each.method.delivery_tag
            confirmed.extend(range(first, each.method.delivery_tag + 1))
            last = each.method.delivery_tag

    for number in range(10_000):
        options: dict[str, Any] = dict(kinds[number % 5])
        client.publish(options.pop("routing_key"), b"x", **options)
        if number % 100 == 99:
            take()
            # the first publish of the hundred is not safe yet
            assert last <= number - 99
            node.sync()
            take()
    node.sync()
    take()
    assert confirmed == list(range(1, 10_001))
    assert returned == 2_000
    queues = node.world.office.directory.queues
    assert [queues[name].message_count for name in ("one", "two", "transient")] == [4_000, 2_000, 4_000]


@pytest.mark.parametrize("synced", range(8))
def test_confirmed_messages_survive_a_crash_after_each_write(synced: int) -> None:
    """The node ends after that many syncs: every confirmed durable publish is there again, in order."""
    node = AmqpNode(automatic=False)
    client = node.channel()
    client.send(m.ConfirmSelect())
    for name in ("q", "r"):
        client.send(m.QueueDeclare(0, name, durable=True))
        client.send(m.QueueBind(0, name, "amq.direct", "k"))
    node.sync()
    client.received()
    confirmed = 0
    for number in range(8):
        client.publish("k", b"%d" % number, "amq.direct", delivery_mode=2)
        if number < synced:
            node.sync()
        for each in client.received():
            assert isinstance(each.method, m.BasicAck)
            confirmed = each.method.delivery_tag
    assert confirmed == synced
    world = World(store=node.store)
    world.office.routing.exchanges.carrier = MessageCarrier()
    restore(world.office, node.store.found())
    settle(world.office, "$.internal")
    again = AmqpNode(world=world).channel()
    for name in ("q", "r"):
        assert bodies(again, name)[:synced] == [b"%d" % number for number in range(synced)]


def test_each_message_of_both_protocols_comes_once_and_in_the_order_of_its_producer() -> None:
    node = AmqpNode()
    amqp, core = node.channel(), node.client()
    core.create_session(window=-1)
    declared(amqp)
    session = node.world.session()
    for number in range(40):
        amqp.publish("q", b"a%02d" % number)
        session.sends.send(text(f"c{number:02d}", "q"))
    node.world.turn()
    amqp.send(m.BasicQos(0, 7))
    amqp.send(m.BasicConsume(0, "q", "t"))
    core.consume()
    found: list[bytes] = []
    for _ in range(100):
        for each in deliveries(amqp):
            found.append(each.body)
            amqp.send(m.BasicAck(each.method.delivery_tag))
        taken = [each.message for each in core.received() if hasattr(each, "message")]
        found.extend(bytes(message.body) for message in taken)
        node.world.turn()
    assert sorted(found) == sorted([b"a%02d" % n for n in range(40)] + [b"c%02d" % n for n in range(40)])
    for producer in (b"a", b"c"):
        # two consumers share the queue, so only those of one consumer are in order
        assert len([body for body in found if body.startswith(producer)]) == 40


def test_headers_of_every_type_come_through_core_and_back_byte_by_byte() -> None:
    node = AmqpNode()
    client = node.channel()
    declared(client)
    declared(client, "back")
    headers = {
        "t": True, "b": -1, "s": -300, "I": 1 << 20, "l": 1 << 40, "d": 1.25, "D": Decimal(2, 314), "S": "grün",
        "x": b"\x00\xff", "A": [1, "two", {"n": None}], "T": Timestamp(1_700_000_000), "F": {"deep": {"er": [[]]}},
        "V": None, "_AMQ_GROUP_ID": "kept", "JMSType": "kept",
    }  # fmt: skip
    client.publish("q", b"x", headers=headers, content_type="c", priority=9)
    queue = node.world.office.directory.queues["q"]
    reference = next(queue.browse((9, -1)))[1]
    assert reference.message is not None
    encoded = reference.message.properties["_UND_AMQP091"]
    session = node.world.session()
    session.sends.send(text("back", "back", properties=dict(reference.message.properties)))
    node.world.turn()
    there, back = got(client), got(client, "back")
    assert there.properties.headers == headers
    assert back.properties == there.properties
    again = node.world.office.directory.queues["q"]
    assert again.message_count == 0
    assert isinstance(encoded, bytes)


def test_dead_letters_through_a_chain_of_five_queues() -> None:
    node = AmqpNode()
    client = node.channel()
    declared(client, "q5")
    for number in range(5):
        declared(
            client,
            f"q{number}",
            arguments={
                "x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"q{number + 1}", "x-message-ttl": 10,
            },
        )  # fmt: skip
    client.publish("q0", b"x")
    for _ in range(5):
        node.world.clock.advance(11)
        node.world.turn()
    found = got(client, "q5")
    deaths = found.properties.headers["x-death"]
    # the newest is the first
    assert [(death["queue"], death["reason"], death["count"]) for death in deaths] == [
        (f"q{number}", "expired", 1) for number in reversed(range(5))
    ]
    assert found.properties.headers["x-first-death-queue"] == "q0"


def test_a_single_active_consumer_is_followed_by_the_next_one() -> None:
    node = AmqpNode()
    first, second = node.channel(), node.channel()
    declared(first, arguments={"x-single-active-consumer": True})
    first.ask(m.BasicConsume(0, "q", "one"), m.BasicConsumeOk)
    second.ask(m.BasicConsume(0, "q", "two"), m.BasicConsumeOk)
    for body in (b"1", b"2"):
        first.publish("q", body)
    assert [each.body for each in deliveries(first)] == [b"1", b"2"]
    assert deliveries(second) == []
    first.send(m.BasicAck(1))
    first.lose()
    (again,) = deliveries(second)
    assert (again.body, again.method.redelivered) == (b"2", True)
    second.publish("q", b"3")
    assert [each.body for each in deliveries(second)] == [b"3"]


def test_messages_of_one_publish_with_different_lifetimes_and_priorities() -> None:
    node = AmqpNode()
    client = node.channel()
    declared(client, "plain", durable=True)
    declared(client, "short", arguments={"x-message-ttl": 50})
    declared(client, "ranked", arguments={"x-max-priority": 9})
    for name in ("plain", "short", "ranked"):
        client.ask(m.QueueBind(0, name, "amq.fanout", ""), m.QueueBindOk)
    client.ask(m.ConfirmSelect(), m.ConfirmSelectOk)
    client.publish("", b"low", "amq.fanout", priority=1, delivery_mode=2)
    client.publish("", b"high", "amq.fanout", priority=8, delivery_mode=2)
    assert [each.method.delivery_tag for each in client.received()] == [1, 2]  # type: ignore[attr-defined]  # acks
    assert bodies(client, "ranked") == [b"high", b"low"]
    node.world.clock.advance(51)
    node.world.turn()
    assert bodies(client, "short") == []
    assert bodies(client, "plain") == [b"low", b"high"]


def test_a_message_without_a_priority_is_the_last_one_in_a_queue_with_priorities() -> None:
    """RabbitMQ does the same; for clients of CORE such a message has the priority 4."""
    client = AmqpNode().channel()
    declared(client, "ranked", arguments={"x-max-priority": 9})
    declared(client, "plain", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "ranked"})
    client.publish("ranked", b"none")
    client.publish("ranked", b"three", priority=3)
    client.publish("ranked", b"zero", priority=0)
    assert bodies(client, "ranked") == [b"three", b"none", b"zero"]
    # a dead letter of a queue without priorities has the one of its publisher
    client.publish("plain", b"none")
    client.publish("plain", b"eight", priority=8)
    for _ in range(2):
        client.send(m.BasicGet(0, "plain"))
    client.received()
    client.send(m.BasicNack(0, multiple=True, requeue=False))
    client.publish("ranked", b"five", priority=5)
    assert bodies(client, "ranked") == [b"eight", b"five", b"none"]


@pytest.mark.parametrize("length", [0, 1, 2])
def test_messages_that_a_consumer_takes_are_not_dropped_from_a_full_queue(length: int) -> None:
    node = AmqpNode(automatic=False)
    client, publisher = node.channel(), node.channel()
    client.send(m.QueueDeclare(0, "dead"))
    arguments = {"x-max-length": length, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    client.send(m.QueueDeclare(0, "q", arguments=arguments))
    client.send(m.BasicQos(0, 3))
    client.send(m.BasicConsume(0, "q", "t"))
    node.sync()
    client.received()
    # all in one turn: three are taken, the last ones wait
    for number in range(6):
        publisher.publish("q", b"%d" % number, delivery_mode=2)
    node.sync()
    assert [each.body for each in deliveries(client)] == [b"0", b"1", b"2"]
    # those that follow are dropped at once, as nothing takes them
    for number in range(6, 8):
        publisher.publish("q", b"%d" % number)
    waiting = [b"%d" % number for number in range(8)][8 - length :]
    client.send(m.BasicAck(3, multiple=True))
    assert [each.body for each in deliveries(client)] == waiting
    assert bodies(publisher, "dead") == [b"%d" % number for number in range(3, 8 - length)]


def restarted(node: AmqpNode) -> AmqpNode:
    """The node as its log has it, after the end of its process."""
    world = World(store=node.store)
    world.office.routing.exchanges.carrier = MessageCarrier()
    restore(world.office, node.store.found())
    settle(world.office, "$.internal")
    return AmqpNode(world=world)


@pytest.mark.parametrize("step", ["before the commit", "before its sync", "after its sync"])
def test_a_transaction_is_there_whole_or_not_at_all_after_a_crash(step: str) -> None:
    node = AmqpNode(automatic=False)
    client = node.channel()
    for name in ("q", "r"):
        client.send(m.QueueDeclare(0, name, durable=True))
    client.publish("q", b"first", delivery_mode=2)
    node.sync()
    client.send(m.TxSelect())
    client.send(m.BasicGet(0, "q"))
    node.sync()
    client.received()
    client.publish("q", b"second", delivery_mode=2)
    client.publish("r", b"third", delivery_mode=2)
    client.send(m.BasicAck(1))
    if step != "before the commit":
        client.send(m.TxCommit())
    assert client.received() == []
    if step == "after its sync":
        node.sync()
        client.only(m.TxCommitOk)
    again = restarted(node).channel()
    found = bodies(again, "q"), bodies(again, "r")
    before, after = ([b"first"], []), ([b"second"], [b"third"])
    if step == "before its sync":
        assert found in (before, after)
    else:
        assert found == (after if step == "after its sync" else before)


def test_many_deliveries_of_a_lost_consumer_come_again_in_order() -> None:
    node = AmqpNode()
    client, other = node.channel(), node.channel()
    declared(client)
    client.send(m.BasicConsume(0, "q", "t"))
    for number in range(5_000):
        client.publish("q", b"%d" % number)
    assert len(deliveries(client)) == 5_000
    client.lose()
    other.send(m.BasicConsume(0, "q", "u", no_ack=True))
    found = deliveries(other)
    while more := deliveries(other):
        found += more
    assert [each.body for each in found] == [b"%d" % number for number in range(5_000)]
    assert all(each.method.redelivered for each in found)
    queue = node.world.office.directory.queues["q"]
    assert (queue.message_count, queue.delivering_count) == (0, 0)


def test_queues_with_a_short_life_after_a_restart() -> None:
    node = AmqpNode()
    client = node.channel()
    declared(client, "expiring", durable=True, arguments={"x-expires": 1_000})
    declared(client, "automatic", durable=True, auto_delete=True)
    declared(client, "own", durable=True, exclusive=True)
    node.world.clock.advance(900)
    again = restarted(node)
    other = again.channel()
    # an exclusive queue ends with its node; the others are there, and their time begins anew
    assert other.code(m.QueueDeclare(0, "own", passive=True)) == 404
    declared(other, "automatic", durable=True, auto_delete=True)
    again.world.clock.advance(500)
    declared(other, "expiring", durable=True, arguments={"x-expires": 1_000})
    other.ask(m.BasicConsume(0, "automatic", "t"), m.BasicConsumeOk)
    other.ask(m.BasicCancel("t"), m.BasicCancelOk)
    assert other.code(m.QueueDeclare(0, "automatic", passive=True)) == 404
    again.world.clock.advance(1_100)
    again.world.turn()
    assert other.code(m.QueueDeclare(0, "expiring", passive=True)) == 404


def test_a_consumer_that_is_cancelled_before_it_is_made_gets_nothing() -> None:
    """basic.consume waits for the record of basic.qos; a basic.cancel in the same segment comes after it."""
    node = AmqpNode()
    client = started(node)
    declared(client, "q", durable=True)
    node.store.automatic = False
    requests = (m.BasicQos(0, 10), m.BasicConsume(0, "q", "t"), m.BasicCancel("t"))
    client.send_bytes(b"".join(method_frame(each, 1) for each in requests))
    assert client.received() == []
    node.settle()
    node.store.automatic = True
    node.settle()
    assert [type(each.method) for each in client.received()] == [m.BasicQosOk, m.BasicConsumeOk, m.BasicCancelOk]
    client.publish("q", b"1")
    assert client.received() == []
