"""Sessions of AMQP 0-9-1 that go on at the node that takes over (ADR 0195)."""

from __future__ import annotations

from typing import Any
from uuid import UUID as UUID_OF

import pytest

from support.amqp091 import AmqpClient, AmqpNode, bodies, declared
from support.amqp091_sessions import (
    OTHER,
    UUID,
    connected,
    delivery,
    opened,
    refused,
    resume_text,
    resumed,
    started,
    status_of,
)
from support.routing import World
from support.unit_store import UnitStore
from understudy.protocols.amqp091.deliveries import GENERATION_SHIFT
from understudy.protocols.amqp091.messages import MessageCarrier
from understudy.protocols.amqp091.session_request import RequestKind, SessionRequest
from understudy.protocols.amqp091.sessions import Client
from understudy.routing.restore import restore, settle
from understudy.store.log_format import ReadableFormat
from understudy.store.setting_record import SettingKind
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.codes import Amqp091Error
from understudy.wire.amqp091.frames import PROTOCOL_HEADER

GENERATION = 1 << GENERATION_SHIFT


def taken_over(node: AmqpNode) -> AmqpNode:
    """The node that takes over when another one has crashed: it has the log of that node as far as it was on disk."""
    world = World(store=node.store.restarted())
    world.office.routing.exchanges.carrier = MessageCarrier()
    restore(world.office, world.store.state)
    settle(world.office, "$.internal")
    return AmqpNode(world=world)


def records(store: UnitStore) -> list[str]:
    return sorted(match for kind, match in store.state.settings if kind is SettingKind.CLIENT_SESSION)


def confirming(node: AmqpNode, **more: Any) -> AmqpClient:
    made = started(node, **more)
    declared(made, durable=True)
    made.ask(m.ConfirmSelect(), m.ConfirmSelectOk)
    return made


def publish(client: AmqpClient, *numbers: int, **properties: Any) -> None:
    for number in numbers:
        client.publish("q", b"%d" % number, **({"delivery_mode": 2} | properties))


def test_nodes_announce_sessions() -> None:
    made = AmqpNode().amqp_client()
    made.send_bytes(PROTOCOL_HEADER)
    properties = made.only(m.ConnectionStart)[0].server_properties
    assert properties["capabilities"]["qpid.session"] is True
    assert properties["qpid.session.timeout"] == 300


# --- the session ---------------------------------------------------------------------------------


def test_consumers_and_prefetch_go_on_with_the_next_generation() -> None:
    node = AmqpNode()
    first = started(node)
    declared(first, durable=True)
    first.ask(m.BasicQos(0, 7, for_channel=True), m.BasicQosOk)
    first.ask(m.BasicQos(0, 2, for_channel=False), m.BasicQosOk)
    first.ask(m.BasicConsume(0, "q", "tag", arguments={"x-priority": 3}), m.BasicConsumeOk)
    publish(first, 1, 2, 3)
    assert [delivery(each) for each in first.received()] == [(1, False, b"1"), (2, False, b"2")]
    node = taken_over(node)
    again = connected(node)
    again.send(m.ChannelOpen(resume_text(2, 3)))
    answer, *came = again.received()
    assert isinstance(answer.method, m.ChannelOpenOk)
    status = status_of(answer.method)
    assert status["session"]["generation"] == 1
    assert status["channel"]["deliveries"] == {"unacked": [], "lost": True}
    assert (status["channel"]["prefetch"], status["channel"]["prefetch-global"]) == (2, 7)
    (consumer,) = status["channel"]["consumers"]
    assert (consumer["state"], consumer["arguments"]) == ("active", {"x-priority": 3})
    assert [delivery(each) for each in came] == [(GENERATION + 1, True, b"1"), (GENERATION + 2, True, b"2")]
    for tag in (1, 2):
        again.send(m.BasicAck(tag))
    again.send(m.BasicAck(2, multiple=True))
    assert again.received() == [], "acknowledgements of the former generation count for nothing"
    assert node.services.connections.stale_acknowledgements == 3
    again.send(m.BasicAck(GENERATION + 2, multiple=True))
    publish(node.channel(), 4)
    assert [delivery(each)[1:] for each in again.received()] == [(True, b"3"), (False, b"4")]


def test_a_second_failover_is_another_generation() -> None:
    node = AmqpNode()
    confirming(node)
    for generation in (1, 2):
        node = taken_over(node)
        again = connected(node)
        assert opened(again, resume_text())["session"]["generation"] == generation


def test_the_timeout_begins_at_the_activation() -> None:
    node = AmqpNode()
    confirming(node, timeout=5)
    node = taken_over(node)
    node.world.clock.advance(4_999)
    node.world.turn()
    assert resumed(connected(node, timeout=5))[0]["resumed"]
    node = taken_over(node)
    node.world.clock.advance(5_000)
    node.world.turn()
    assert refused(node, "resume").reply_code == 404
    assert records(node.store) == []


def test_another_user_does_not_have_the_session() -> None:
    node = AmqpNode()
    confirming(node)
    node = taken_over(node)
    assert refused(node, "resume", user="v").reply_code == 404
    assert resumed(connected(node))[0]["resumed"]


def test_a_session_that_ended_is_gone() -> None:
    node = AmqpNode()
    first = confirming(node)
    publish(first, 1)
    assert records(node.store) == [UUID, f"{UUID}/1"]
    first.received()
    first.ask(m.ConnectionClose(200, ""), m.ConnectionCloseOk, 0)
    assert records(node.store) == []
    assert list(node.store.state.session_numbers.ids()) == []
    assert refused(taken_over(node), "resume").reply_code == 404


def test_a_channel_that_was_closed_is_gone() -> None:
    node = AmqpNode()
    first = confirming(node)
    publish(first, 1)
    first.received()
    first.ask(m.ChannelClose(200, "", 0, 0), m.ChannelCloseOk)
    assert records(node.store) == [UUID]
    assert not resumed(connected(taken_over(node)))[0]["resumed"]


def test_a_node_that_ends_leaves_the_session_to_the_next_one() -> None:
    node = AmqpNode()
    first = confirming(node)
    first.handler.disconnect()
    first.lose()
    node.amqp.sessions.close()
    assert resumed(connected(taken_over(node)))[0]["resumed"]


def test_a_session_of_a_stock_client_has_no_record() -> None:
    node = AmqpNode()
    made = connected(node, "attach")
    made.ask(m.ChannelOpen(), m.ChannelOpenOk)
    made.ask(m.ConfirmSelect(), m.ConfirmSelectOk)
    made.publish("missing")
    assert records(node.store) == []
    assert node.store.format.version < 7


def test_a_passive_node_of_an_earlier_version_keeps_the_session_here() -> None:
    node = AmqpNode()
    node.store.format.readable = lambda: ReadableFormat(6, "older")
    confirming(node).lose()
    assert records(node.store) == []
    assert resumed(connected(node))[0]["resumed"]


def test_an_exclusive_queue_is_gone_with_its_consumer() -> None:
    node = AmqpNode()
    first = started(node)
    declared(first, "own", exclusive=True)
    first.ask(m.BasicConsume(0, "own", "tag"), m.BasicConsumeOk)
    (consumer,) = resumed(connected(taken_over(node)))[0]["consumers"]
    assert consumer["state"] == "cancelled"
    assert "own" in consumer["reason"]


def test_every_answer_waits_for_its_record() -> None:
    node = AmqpNode(automatic=False)
    made = connected(node, "start")
    for request, answer in (
        (m.ChannelOpen(), m.ChannelOpenOk),
        (m.QueueDeclare(0, "q"), m.QueueDeclareOk),
        (m.BasicQos(0, 1), m.BasicQosOk),
        (m.BasicConsume(0, "q", "tag"), m.BasicConsumeOk),
        (m.BasicCancel("tag"), m.BasicCancelOk),
        (m.ConfirmSelect(), m.ConfirmSelectOk),
    ):
        made.send(request)
        assert made.received() == [], request
        node.sync()
        made.only(answer)


def test_a_thousand_sessions_are_resumed_or_end() -> None:
    node = AmqpNode()
    node.store.automatic = False
    clients = [Client(f"u{number % 10}", "h") for number in range(1_000)]
    requests = [
        SessionRequest(RequestKind.START, str(UUID_OF(int=number, version=4)), 5_000) for number in range(1_000)
    ]
    for request, made in zip(requests, clients, strict=True):
        node.amqp.sessions.enter(request, made)
    node.sync()
    node = taken_over(node)
    sessions = node.amqp.sessions
    assert sessions.count == 1_000
    for request, made in zip(requests[:500], clients, strict=False):
        session = sessions.enter(request._replace(kind=RequestKind.RESUME), made)
        assert session.generation == 1
    with pytest.raises(Amqp091Error, match="100 sessions"):
        sessions.enter(SessionRequest(RequestKind.START, UUID, 5_000), clients[0])
    node.world.clock.advance(5_000)
    node.world.turn()
    assert sessions.count == 500


def test_requests_that_follow_a_consume_without_its_answer_come_after_it() -> None:
    node = AmqpNode(automatic=False)
    first = connected(node, "start")
    for request in (
        m.ChannelOpen(),
        m.QueueDeclare(0, "q", durable=True),
        m.BasicQos(0, 1),
        m.BasicConsume(0, "q", "cancelled"),
        m.BasicCancel("cancelled"),
        m.BasicConsume(0, "q", "one"),
        m.BasicQos(0, 5),
    ):
        first.send(request)
    node.settle()
    assert list(first.handler.channels[1].deliveries.tags) == ["one"]
    publish(first, 1, 2)
    node.settle()
    first.received()
    assert first.handler.channels[1].deliveries.unacknowledged_count == 1
    node = taken_over(node)
    again = connected(node)
    status, came = resumed(again, publishes=2)
    assert [each["tag"] for each in status["consumers"]] == ["one"]
    assert [each[2] for each in came] == [b"1"], "the consumer has its own prefetch again"


# --- publishes -----------------------------------------------------------------------------------


def test_publishes_that_were_not_accepted_are_sent_again_and_nothing_is_doubled() -> None:
    node = AmqpNode(automatic=False)
    first = connected(node, "start")
    first.send(m.ChannelOpen())
    first.send(m.QueueDeclare(0, "q", durable=True))
    first.send(m.ConfirmSelect())
    node.sync()
    publish(first, 1, 2)
    node.sync()
    publish(first, 3)
    node = taken_over(node)
    again = connected(node)
    status, _ = resumed(again, publishes=3)
    assert status["publishes"] == {"accepted": 2, "returned": [], "rejected": []}
    publish(again, 3)
    assert again.only(m.BasicAck)[0].delivery_tag == 3
    assert bodies(node.channel()) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("synced", range(5))
def test_each_confirmed_publish_is_accepted_at_the_next_node(synced: int) -> None:
    """Durable, not durable, without a queue, returned and rejected publishes; the node ends after that many syncs."""
    node = AmqpNode()
    first = confirming(node)
    declared(first, "full", durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    node.channel().publish("full", delivery_mode=2)
    node.store.automatic = False
    kinds: list[dict[str, Any]] = [
        {"routing_key": "q", "delivery_mode": 2},
        {"routing_key": "q"},
        {"routing_key": "missing"},
        {"routing_key": "missing", "mandatory": True},
        {"routing_key": "full", "delivery_mode": 2},
    ]
    decided = 0
    for number, kind in enumerate(kinds, 1):
        first.publish(**kind)
        if number <= synced:
            node.sync()
        for each in first.received():
            if isinstance(each.method, m.BasicAck | m.BasicNack):
                decided = each.method.delivery_tag
    assert decided == synced
    status, _ = resumed(connected(taken_over(node)), publishes=5)
    assert status["publishes"]["accepted"] >= decided
    assert status["publishes"]["returned"] == [4][: max(0, status["publishes"]["accepted"] - 3)]


def test_rejected_publishes_are_known_at_the_next_node() -> None:
    node = AmqpNode()
    first = started(node)
    declared(first, durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    first.ask(m.ConfirmSelect(), m.ConfirmSelectOk)
    publish(first, 1, 2, 3)
    first.publish("missing", mandatory=True)
    status, _ = resumed(connected(taken_over(node)), publishes=4)
    assert status["publishes"] == {"accepted": 4, "returned": [4], "rejected": [2, 3]}


def test_numbers_of_other_clients_displace_none_of_a_session() -> None:
    node = AmqpNode()
    first = confirming(node)
    publish(first, 1, 2)
    other = started(node, uuid=OTHER)
    other.ask(m.ConfirmSelect(), m.ConfirmSelectOk)
    for number in range(1, 30):
        publish(other, number)
    for _ in range(2):
        node = taken_over(node)
    assert resumed(connected(node), publishes=2)[0]["publishes"]["accepted"] == 2
    assert resumed(connected(node, uuid=OTHER), publishes=29)[0]["publishes"]["accepted"] == 29
    address = node.world.office.directory.addresses["q"]
    assert len(address.duplicate_ids) == 0, "numbers of sessions are no duplicate ids of the address"


def test_a_channel_that_is_opened_anew_counts_anew() -> None:
    node = AmqpNode()
    first = confirming(node)
    publish(first, 1, 2, 3)
    first.received()
    first.ask(m.ChannelClose(200, "", 0, 0), m.ChannelCloseOk)
    first.ask(m.ChannelOpen(), m.ChannelOpenOk)
    first.ask(m.ConfirmSelect(), m.ConfirmSelectOk)
    publish(first, 4)
    assert resumed(connected(taken_over(node)), publishes=1)[0]["publishes"]["accepted"] == 1


def test_numbers_survive_a_checkpoint() -> None:
    node = AmqpNode()
    first = confirming(node)
    publish(first, 1, 2)
    state = node.store.state
    items = b"".join(state.checkpoint_items())
    assert next(iter(state.session_numbers.ids())) in items


# --- transactions --------------------------------------------------------------------------------


@pytest.mark.parametrize("synced", [False, True])
def test_a_commit_without_an_answer_is_decided(synced: bool) -> None:
    node = AmqpNode()
    first = started(node)
    declared(first, durable=True)
    first.ask(m.TxSelect(), m.TxSelectOk)
    publish(first, 1)
    first.ask(m.TxCommit(), m.TxCommitOk)
    node.store.automatic = False
    publish(first, 2)
    first.send(m.TxCommit())
    if synced:
        node.sync()
    node = taken_over(node)
    again = connected(node)
    status, _ = resumed(again, publishes=2)
    assert status["tx"] == {"open": False, "commits": 1 + synced, "rolled-back": True}
    assert len(bodies(node.channel())) == 1 + synced


def test_the_next_commit_is_refused_until_a_rollback() -> None:
    node = AmqpNode()
    first = started(node)
    declared(first, durable=True)
    first.ask(m.TxSelect(), m.TxSelectOk)
    publish(first, 1)
    node = taken_over(node)
    again = connected(node)
    resumed(again, publishes=1)
    assert again.ask(m.TxCommit(), m.ChannelClose).reply_code == 406
    node = taken_over(node)
    again = connected(node, "attach", OTHER)
    again = connected(node)
    assert not resumed(again)[0]["resumed"], "the refusal has closed the channel"
    node = AmqpNode()
    first = started(node)
    declared(first, durable=True)
    first.ask(m.TxSelect(), m.TxSelectOk)
    node = taken_over(node)
    again = connected(node)
    resumed(again)
    again.ask(m.TxRollback(), m.TxRollbackOk)
    publish(again, 1)
    again.ask(m.TxCommit(), m.TxCommitOk)
    assert bodies(node.channel()) == [b"1"]


# --- planted bugs --------------------------------------------------------------------------------


def test_the_tests_find_acknowledgements_of_an_old_generation_that_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: the generation of a tag is not looked at."""
    from understudy.protocols.amqp091.deliveries import ChannelDeliveries

    settle_as_shipped = ChannelDeliveries.settle

    def settle_any(self: ChannelDeliveries, tag: int, *arguments: Any, **options: Any) -> None:
        low = tag & GENERATION - 1
        settle_as_shipped(self, self.generation << GENERATION_SHIFT | low if low else tag, *arguments, **options)

    monkeypatch.setattr(ChannelDeliveries, "settle", settle_any)
    with pytest.raises(AssertionError):
        test_consumers_and_prefetch_go_on_with_the_next_generation()


def test_messages_of_the_former_node_are_flagged_and_later_ones_are_not() -> None:
    node = AmqpNode()
    first = confirming(node)
    first.ask(m.BasicConsume(0, "q", "tag"), m.BasicConsumeOk)
    other = node.amqp_client()
    other.open()
    other.ask(m.ChannelOpen(), m.ChannelOpenOk)
    publish(other, 1, 2, 3)
    node = taken_over(node)
    other = node.amqp_client()
    other.open()
    other.ask(m.ChannelOpen(), m.ChannelOpenOk)
    publish(other, 4, 5)
    again = connected(node)
    again.send(m.ChannelOpen(resume_text()))
    _, *came = again.received()
    flags = [(redelivered, body) for _, redelivered, body in map(delivery, came)]
    assert flags == [(True, b"1"), (True, b"2"), (True, b"3"), (False, b"4"), (False, b"5")]
