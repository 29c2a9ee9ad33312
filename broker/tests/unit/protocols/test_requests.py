"""Each request of a session channel: which answer, which code, and no answer where none is wanted."""

from __future__ import annotations

from typing import Any

import pytest

from support.core import NAME, Client, CoreNode
from support.routing import FakeSecurity, World, text
from understudy import limits
from understudy.errors import NotAuthorized, XaCode
from understudy.ids import Xid
from understudy.message import FORCED_DELIVERY
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.session import consumers as session_module
from understudy.terms import Permission, RoutingType
from understudy.wire.core import packets
from understudy.wire.core.codes import ErrorCode

Q = "q"
#: A selector of 30 KB that does more than one may.
HEAVY = " OR ".join(["n = -1"] * 3000)
XID = Xid(7, b"global", b"branch")


def connected() -> tuple[CoreNode, Client]:
    node = CoreNode()
    node.world.queue()
    client = node.client()
    client.create_session(window=-1)
    return node, client


def answer(client: Client, packet: packets.Packet) -> packets.Packet | None:
    """The one answer, if there is one."""
    client.send(packet)
    received = client.received()
    assert len(received) <= 1, received
    return received[0] if received else None


def code(client: Client, packet: packets.Packet) -> int:
    refused = answer(client, packet)
    assert isinstance(refused, packets.ExceptionResponse), refused
    assert refused.correlation_id is None, "only requests with a field for it get one"
    return refused.error_code


def queue(kind: Any = packets.CreateQueueV2, name: str = "new", **fields: Any) -> packets.Packet:
    made: packets.Packet = kind(address=fields.pop("address", name), name=name, **fields)
    return made


# --- addresses and queues ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "packet",
    [
        packets.CreateAddress("a", (0, 1)),
        packets.CreateAddress("q", (0, 1)),
        queue(),
        queue(packets.CreateQueue),
        queue(packets.CreateSharedQueue),
        queue(packets.CreateSharedQueueV2),
        queue(packets.CreateSharedQueueV2, durable=False),
        queue(temporary=True, durable=False),
    ],
    ids=lambda packet: type(packet).__name__,
)
def test_a_creation_is_answered_if_a_response_is_required(packet: packets.Packet) -> None:
    _, client = connected()
    assert answer(client, packet) == packets.NullResponse(-1)
    _, client = connected()
    packet.requires_response = False  # type: ignore[attr-defined]
    assert answer(client, packet) is None


@pytest.mark.parametrize(
    ("packet", "wanted"),
    [
        (packets.CreateAddress("a", (7,)), ErrorCode.INVALID_QUEUE_CONFIGURATION),
        (packets.CreateAddress("", (1,)), ErrorCode.INVALID_QUEUE_CONFIGURATION),
        (queue(name=Q), ErrorCode.QUEUE_EXISTS),
        (queue(packets.CreateQueue, name=Q), ErrorCode.QUEUE_EXISTS),
        (queue(filter="not a filter ="), ErrorCode.INVALID_FILTER_EXPRESSION),
        (queue(routing_type=5), ErrorCode.INVALID_QUEUE_CONFIGURATION),
        (queue(packets.CreateSharedQueueV2, name=Q, address="other"), ErrorCode.INVALID_TRANSIENT_QUEUE_USE),
        (queue(packets.CreateSharedQueueV2, name=Q, filter="a = 1"), ErrorCode.INVALID_TRANSIENT_QUEUE_USE),
        (
            queue(packets.CreateSharedQueueV2, name="other::q", address="other"),
            ErrorCode.INVALID_TRANSIENT_QUEUE_USE,
        ),
        (packets.DeleteQueue("nowhere"), ErrorCode.QUEUE_DOES_NOT_EXIST),
        (packets.CreateConsumer(0, "nowhere", None, False, True, 0), ErrorCode.QUEUE_DOES_NOT_EXIST),
        (packets.CreateConsumer(0, "other::q", None, False, True, 0), ErrorCode.QUEUE_DOES_NOT_EXIST),
        (packets.CreateConsumer(0, Q, "not a filter =", False, True, 0), ErrorCode.INVALID_FILTER_EXPRESSION),
        (queue(filter=HEAVY), ErrorCode.INVALID_FILTER_EXPRESSION),
        (packets.CreateConsumer(0, Q, HEAVY, False, True, 0), ErrorCode.INVALID_FILTER_EXPRESSION),
        (packets.ConsumerClose(5), ErrorCode.ILLEGAL_STATE),
        (packets.Acknowledge(5, 1, True), ErrorCode.ILLEGAL_STATE),
        (packets.IndividualAcknowledge(5, 1, True), ErrorCode.ILLEGAL_STATE),
        (packets.Settle(5, 1, packets.Settlement.REJECT, True), ErrorCode.ILLEGAL_STATE),
        (
            packets.Settle(5, 1, packets.Settlement.FAIL, True, delay_ms=limits.SETTLE_DELAY_MS_MAX + 1),
            ErrorCode.ILLEGAL_STATE,
        ),
    ],
    ids=lambda value: value.name if isinstance(value, ErrorCode) else type(value).__name__,
)
def test_refusals_have_the_documented_code(packet: packets.Packet, wanted: ErrorCode) -> None:
    _, client = connected()
    assert code(client, packet) == wanted


@pytest.mark.parametrize(
    "packet",
    [
        packets.CreateAddress("q", (1,), requires_response=False),
        queue(name=Q, requires_response=False),
        packets.CreateConsumer(0, "nowhere", None, False, False, 0),
        packets.Acknowledge(5, 1, False),
        packets.IndividualAcknowledge(5, 1, False),
        packets.Settle(5, 1, packets.Settlement.RELEASE),
        packets.Expired(5, 1),
        packets.FlowToken(5, 10),
        packets.ForceConsumerDelivery(5, 0),
        packets.RemoveProducer(5),
        packets.SessionSendContinuation(b"x", True),
        packets.SessionStart(),
    ],
    ids=lambda packet: type(packet).__name__,
)
def test_a_request_without_requires_response_gets_no_answer(packet: packets.Packet) -> None:
    _, client = connected()
    assert answer(client, packet) is None
    assert answer(client, packets.SessionStop()) == packets.NullResponse(-1), "the session goes on"


def test_a_queue_with_consumers_is_not_deleted() -> None:
    _, client = connected()
    client.consume()
    assert code(client, packets.DeleteQueue(Q)) == ErrorCode.ILLEGAL_STATE
    assert answer(client, packets.ConsumerClose(0)) == packets.NullResponse(-1)
    assert answer(client, packets.DeleteQueue(Q)) == packets.NullResponse(-1)


def test_the_first_consumer_above_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    node, client = connected()
    node.world.queue("one", max_consumers=1)
    client.send(packets.CreateConsumer(0, "one", None, False, False, 0))
    assert code(client, packets.CreateConsumer(1, "one", None, False, True, 0)) == (
        ErrorCode.MAX_CONSUMER_LIMIT_EXCEEDED
    )
    assert code(client, packets.CreateConsumer(0, Q, None, False, True, 0)) == ErrorCode.ILLEGAL_STATE
    monkeypatch.setattr(session_module, "CONSUMERS_PER_SESSION_MAX", 1)
    assert code(client, packets.CreateConsumer(2, Q, None, False, True, 0)) == ErrorCode.ILLEGAL_STATE


@pytest.mark.parametrize(
    ("version", "queue_kind", "address_kind"),
    [
        (129, packets.QueueQueryResponseV3, packets.BindingQueryResponseV4),
        (134, packets.QueueQueryResponseV3, packets.BindingQueryResponseV4),
        (135, packets.QueueQueryResponseV3, packets.BindingQueryResponseV5),
        (136, packets.QueueQueryResponseV3, packets.BindingQueryResponseV5),
    ],
)
def test_queries_are_answered_in_the_form_of_the_version(version: int, queue_kind: type, address_kind: type) -> None:
    node = CoreNode()
    node.world.queue()
    client = node.client()
    create = packets.CreateSession(NAME, 10, version, "u", "p")
    client.send(create, 1)
    client.received()
    for name, exists in ((Q, True), ("q::q", True), ("x::q", False), ("nowhere", False)):
        found = answer(client, packets.QueueQuery(name))
        assert type(found) is queue_kind
        assert found.exists is exists  # type: ignore[attr-defined]
    found = answer(client, packets.BindingQuery("q::q"))
    assert type(found) is address_kind
    assert found.queue_names == (Q,)  # type: ignore[attr-defined]
    assert type(answer(client, packets.CreateConsumer(0, Q, None, False, True, 0))) is queue_kind


def test_a_non_durable_shared_queue_is_deleted_with_its_last_consumer() -> None:
    node, client = connected()
    second = node.client()
    second.create_session("1" * 36, window=-1)
    shared = queue(packets.CreateSharedQueueV2, name="s", address="t", durable=False, routing_type=0)
    for each in (client, second):
        assert answer(each, shared) == packets.NullResponse(-1)
        each.consume(queue="s")
    client.send(packets.ConsumerClose(0))
    assert node.world.office.directory.find_queue("s") is not None
    second.lose()
    assert node.world.office.directory.find_queue("s") is None


def test_deleting_a_shared_queue_under_its_consumers_happens_once() -> None:
    node, client = connected()
    client.send(queue(packets.CreateSharedQueueV2, name="s", address="t", durable=False, routing_type=0))
    client.consume(queue="s")
    client.received()
    node.world.office.directory.delete_queue("s", disconnect=True)
    node.world.turn()
    assert client.received() == [packets.DisconnectConsumer(0)]
    assert node.world.office.directory.find_queue("s") is None


# --- permissions --------------------------------------------------------------------------------------


def test_auto_creation_by_a_send_needs_its_own_permissions() -> None:
    for denied, address in (
        (Permission.CREATE_ADDRESS, "new"),
        (Permission.CREATE_DURABLE_QUEUE, "new"),
        (Permission.CREATE_DURABLE_QUEUE, "bare"),
        (Permission.SEND, "q"),
    ):
        world = World()
        world.queue()
        world.office.directory.create_address("bare", {RoutingType.ANYCAST})
        session = world.session(security=FakeSecurity(denied))
        session.sends.send(text("m", address, properties={"_AMQ_ROUTING_TYPE": 1}), world.answers.of("m"))
        assert isinstance(world.answers.error("m"), NotAuthorized), denied
        assert world.office.directory.find_queue("new") is None
        assert world.office.directory.find_queue("bare") is None


def test_a_temporary_queue_needs_the_permission_for_its_address_too() -> None:
    world = World()
    session = world.session(security=FakeSecurity(Permission.CREATE_ADDRESS))
    with pytest.raises(NotAuthorized):
        session.queues.create_queue(QueueConfiguration(name="temp", temporary=True))
    world.queue("there")
    session.queues.create_queue(QueueConfiguration(name="temp", address="there", temporary=True))


# --- consuming ----------------------------------------------------------------------------------------


def markers(received: list[packets.Packet]) -> list[int | str]:
    """Bodies and, for markers, their sequence."""
    return [
        packet.message.properties.get(FORCED_DELIVERY, packet.message.body.decode())  # type: ignore[misc]
        for packet in received
        if isinstance(packet, packets.ReceiveMessage)
    ]


def test_the_forced_delivery_marker_comes_after_messages_of_the_session() -> None:
    node = CoreNode(automatic=False)
    node.world.queue()
    node.sync()
    client = node.client()
    client.create_session(window=-1)
    client.consume()
    client.received()
    client.send_message("mine")
    client.send(packets.ForceConsumerDelivery(0, 3))
    assert client.received() == []
    node.sync()
    assert markers(client.received()) == ["mine", 3]


def test_a_consumer_that_closed_meanwhile_gets_no_marker() -> None:
    node = CoreNode(automatic=False)
    node.world.queue()
    node.sync()
    client = node.client()
    client.create_session(window=-1)
    client.consume()
    client.send_message("mine")
    client.send(packets.ForceConsumerDelivery(0, 3))
    client.send(packets.ConsumerClose(0))
    node.sync()
    assert markers(client.received()) == []


def test_a_full_socket_is_no_empty_queue() -> None:
    node, client = connected()
    client.consume()
    client.send_message("a")
    client.received()
    client.connection.outgoing = limits.OUTGOING_BYTES_PAUSE
    session = client.handler.sessions[10].session
    session.consumers.pause_deliveries()
    client.send_message("b")
    client.send(packets.ForceConsumerDelivery(0, 9))
    assert markers(client.received()) == []
    client.connection.outgoing = 0
    client.handler.resume_deliveries()
    node.world.turn()
    assert markers(client.received()) == ["b", 9]


def test_the_window_of_a_receiver_that_asks_one_by_one() -> None:
    """consumerWindowSize=0: one credit per receive, and the rest of the frame afterwards (artemis-core s. 6.3)."""
    _, client = connected()
    for body in "abc":
        client.send_message(body)
    client.consume(credit_bytes=0)
    client.received()
    for body in "abc":
        client.send(packets.FlowToken(0, 1))
        (got,) = client.received_sized()
        assert got[0].message.body.decode() == body  # type: ignore[attr-defined]
        client.send(packets.FlowToken(0, got[1] - 1))
        assert client.received() == []
    client.send(packets.FlowToken(0, 1))
    client.send(packets.FlowToken(0, 0))
    client.send_message("d")
    assert markers(client.received()) == [], "a receive that gave up took its credit back"


# --- sessions -------------------------------------------------------------------------------------------


def test_metadata() -> None:
    node, client = connected()
    other = node.client()
    other.create_session("2" * 36, window=-1)
    assert answer(client, packets.AddMetadata("k", "v")) == packets.NullResponse(-1)
    assert answer(client, packets.AddMetadataV2("k", "v", True)) == packets.NullResponse(-1)
    assert answer(client, packets.AddMetadataV2("k", "v", False)) is None
    assert answer(client, packets.UniqueAddMetadata("jms-client-id", "me", True)) == packets.NullResponse(-1)
    assert client.handler.scope.client_id == "me"
    assert code(other, packets.UniqueAddMetadata("jms-client-id", "me", True)) == ErrorCode.DUPLICATE_METADATA
    assert answer(other, packets.UniqueAddMetadata("jms-client-id", "me", False)) is None
    client.send(packets.SessionClose())
    assert answer(other, packets.UniqueAddMetadata("jms-client-id", "me", True)) == packets.NullResponse(-1)


def test_a_client_id_that_came_back_after_a_failover_is_taken() -> None:
    node, client = connected()
    client.send(packets.AddMetadataV2("jms-client-id", "me", False))
    assert client.handler.scope.client_id == "me"
    other = node.client()
    other.create_session("2" * 36, window=-1)
    assert code(other, packets.UniqueAddMetadata("jms-client-id", "me", True)) == ErrorCode.DUPLICATE_METADATA


def test_too_much_metadata_is_refused_and_answered_only_if_required() -> None:
    _, client = connected()
    for number in range(limits.METADATA_PER_SESSION_MAX):
        client.send(packets.AddMetadataV2(str(number), "v", False))
    assert client.received() == []
    assert code(client, packets.AddMetadata("more", "v")) == ErrorCode.ILLEGAL_STATE
    assert answer(client, packets.AddMetadataV2("more", "v", False)) is None


def test_a_refused_commit_has_a_correlation_id_because_the_request_has_a_field_for_it() -> None:
    node = CoreNode()
    node.world.queue()
    client = node.client()
    client.create_session(window=-1, auto_commit_acks=False, auto_commit_sends=False)
    client.send(packets.IndividualAcknowledge(5, 1, False))
    refused = answer(client, packets.Commit())
    assert isinstance(refused, packets.ExceptionResponse)
    assert refused.correlation_id == -1


def test_commits_and_rollbacks_are_answered_without_a_transaction_too() -> None:
    _, client = connected()
    assert answer(client, packets.Commit()) == packets.NullResponse(-1)
    assert answer(client, packets.Commit(-77)) == packets.NullResponse(-77)
    assert answer(client, packets.Rollback(True)) == packets.NullResponse(-1)
    assert answer(client, packets.SessionClose()) == packets.NullResponse(-1)
    client.send(packets.Commit(-78))
    assert client.received() == [], "the channel is gone"


def test_sessions_of_a_connection_are_bounded() -> None:
    node = CoreNode()
    node.core.sessions_max = 2
    client = node.client()
    for channel_id in (10, 11):
        client.create_session(str(channel_id) * 18, channel_id, window=-1)
    client.send(packets.CreateSession("3" * 36, 12, 136, "u", "p"), 1)
    refused = client.received_one(packets.ExceptionResponse)
    assert refused.error_code == ErrorCode.SESSION_CREATION_REJECTED
    client.send(packets.SessionClose(), 10)
    client.received()
    client.create_session("4" * 36, 12, window=-1)


@pytest.mark.parametrize(("critical", "with_session", "without"), [(False, 2, 4), (True, 3, 5)])
def test_the_farewell_of_a_stopping_node_says_why(critical: bool, with_session: int, without: int) -> None:
    node, client = connected()
    idle = node.client()
    node.services.connections.accepting, node.services.connections.critical_stop = False, critical
    for each, reason in ((client, with_session), (idle, without)):
        each.handler.disconnect()
        farewell = each.received_one(packets.DisconnectV3)
        assert (farewell.reason, farewell.target_node_id, farewell.connector) == (reason, None, None)
        assert each.connection.closed


@pytest.mark.parametrize(
    ("version", "kind"), [(121, packets.Disconnect), (125, packets.DisconnectV2), (131, packets.DisconnectV3)]
)
def test_the_farewell_has_the_form_of_the_version(version: int, kind: type[packets.Packet]) -> None:
    node = CoreNode()
    client = node.client()
    client.send(packets.SubscribeTopologyV2(False, version), 0)
    client.received()
    client.handler.disconnect()
    assert [type(packet) for packet in client.received()] == [kind]


def test_a_killed_connection_is_notified_and_ends_with_its_sessions() -> None:
    node, client = connected()
    client.consume()
    client.send_message("a")
    client.received()
    client.handler.sessions[10].kill_connection("slow consumer")
    assert [type(packet) for packet in client.received()] == [packets.DisconnectConsumerKill]
    assert client.connection.closed
    client.lose()
    assert node.services.connections.session_count == 0
    (queue_,) = node.world.office.queues()
    assert (queue_.message_count, queue_.delivering_count, queue_.consumers.count) == (1, 0, 0)


def test_waiting_for_the_last_session_ends_with_it() -> None:
    node, client = connected()
    other = node.client()
    other.create_session("5" * 36)
    told: list[int] = []
    node.services.connections.on_idle = lambda: told.append(node.services.connections.session_count)
    client.send(packets.SessionClose())
    assert told == []
    other.lose()
    assert told == [], "it waits for its client to come back"
    node.reattachments.close()
    assert told == [0]


# --- XA across a failover ----------------------------------------------------------------------------


def answers(client: Client, packet: packets.Packet) -> list[packets.Packet]:
    """Everything that came for it."""
    client.send(packet)
    return client.received()


def test_the_stock_client_ends_a_branch_after_a_failover() -> None:
    """Requests of the stock client in order: SESS_XA_FAILED on the new session, work, then ``end`` and ``rollback`` of
    the branch.

    ``end`` stops the session, acknowledges the consumed messages, rolls the session back and throws XAER_RMFAIL without
    SESS_XA_END.
    """
    node = CoreNode()
    node.world.queue()
    node.world.queue("out")
    node.world.session().sends.send(text("held"))
    client = node.client()
    client.create_session("after the failover", auto_commit_sends=False, auto_commit_acks=False, xa=True)
    client.send(packets.XaFailed(XID))
    client.consume()
    first = client.received_one(packets.ReceiveMessage)
    client.send(packets.Acknowledge(0, first.message.message_id, False))
    client.send_message("sent", address="out")
    out = node.world.office.directory.find_queue("out")
    assert out is not None
    assert out.message_count == 0
    client.received()
    assert answer(client, packets.SessionStop()) == packets.NullResponse(-1)
    assert answer(client, packets.Rollback(False)) == packets.NullResponse(-1)
    again = [packet for packet in answers(client, packets.SessionStart()) if isinstance(packet, packets.ReceiveMessage)]
    assert [packet.message.body for packet in again] == [b"held"]
    assert again[0].delivery_count == 2
    assert out.message_count == 0
    assert answer(client, packets.XaInDoubt()) == packets.XaInDoubtResponse(())
    assert answer(client, packets.SessionStop()) == packets.NullResponse(-1)
    assert answer(client, packets.XaRollback(XID)) == packets.XaResponse(False, XaCode.OK, None)
    assert node.store.found().transactions == {}


@pytest.mark.parametrize("failed", [False, True])
def test_a_branch_that_is_ended_after_a_failover_says_at_its_prepare_that_it_is_rolled_back(failed: bool) -> None:
    _, client = connected()
    client.create_session("xa", channel_id=11, auto_commit_sends=False, auto_commit_acks=False, xa=True)
    client.send(packets.XaFailed(XID), 11)
    client.send(packets.SessionSend(text("sent", Q), True, 5, 1), 11)
    client.received()
    ended = client.ask(packets.XaEnd(XID, failed), packets.XaResponse, 11)
    assert ended == packets.XaResponse(False, XaCode.OK, None)
    prepared = client.ask(packets.XaPrepare(XID), packets.XaResponse, 11)
    assert (prepared.error, prepared.response_code) == (True, XaCode.ROLLED_BACK)
    assert client.ask(packets.QueueQuery(Q), packets.QueueQueryResponseV3).message_count == 0


def test_requests_of_a_branch_that_write_nothing_are_answered_before_its_work_is_durable() -> None:
    """Only the preparation and the commit of a branch say that it is safe; each is one batch of the log."""
    node = CoreNode(automatic=False)
    node.world.queue()
    client = node.client()
    client.create_session("xa", auto_commit_sends=False, auto_commit_acks=False, xa=True)
    node.sync()
    client.received()
    ok = packets.XaResponse(False, XaCode.OK, None)
    other = XID._replace(branch_qualifier=b"other")
    assert answer(client, packets.XaStart(XID)) == ok
    client.send_message("held")
    node.world.turn()
    assert client.received() == [packets.NullResponse(1)]
    work = (
        packets.XaSuspend(),
        packets.XaResume(XID),
        packets.XaEnd(XID),
        packets.XaStart(other),
        packets.XaEnd(other),
    )
    for packet in work:
        assert answer(client, packet) == ok
        node.world.turn()
    assert not node.store.writer.drain(), "the message is written with the preparation"
    for packet in (packets.XaPrepare(XID), packets.XaCommit(XID)):
        client.send(packet)
        assert client.received() == []
        node.sync()
        assert client.received() == [ok]
    assert len(node.store.found().references) == 1


def test_a_branch_is_missing_in_the_answer_to_a_recovery_only_once_its_end_is_durable() -> None:
    """A transaction manager takes a missing branch for one that has ended, and forgets it."""
    node = CoreNode(automatic=False)
    node.world.queue()
    client = node.client()
    client.create_session(auto_commit_sends=False, auto_commit_acks=False, xa=True)
    client.send(packets.XaStart(XID))
    client.send_message("sent")
    client.send(packets.XaEnd(XID, False))
    client.send(packets.XaPrepare(XID))
    node.sync()
    client.received()
    client.send(packets.XaCommit(XID, False))
    manager = node.client("10.0.0.2:5000")
    manager.create_session("another", xa=True)
    assert answer(manager, packets.XaInDoubt()) is None, "the commit is not durable"
    node.sync()
    assert manager.received() == [packets.XaInDoubtResponse(())]
