"""Requests as messages: through a session and back, with everything that may be wrong with them."""

from __future__ import annotations

import pytest

from support.managed import REPLIES, ManagedWorld, outcome, request
from support.routing import FakeSecurity, callback_of
from understudy.errors import IllegalState, NotAuthorized
from understudy.limits import MANAGEMENT_REQUEST_BYTES_MAX
from understudy.message import Message, MessageType
from understudy.properties import encode_simple_string
from understudy.session.session import ServerSession
from understudy.terms import Permission

USER_ID = bytes(range(16))


def asking(node: ManagedWorld, **options: object) -> ServerSession:
    """A session with a consumer of replies."""
    if node.office.directory.find_queue(REPLIES) is None:
        node.world.queue(REPLIES)
    session = node.session(**options)
    session.consumers.create(0, REPLIES)
    session.consumers.receive_credits(0, -1)
    return session


def replies(node: ManagedWorld, session: ServerSession) -> list[Message]:
    node.settle()
    found = [message for _, message, _ in callback_of(session).delivered]
    callback_of(session).delivered.clear()
    return found


def test_a_request_is_answered_at_its_reply_address() -> None:
    node = ManagedWorld()
    session = asking(node)
    session.sends.send(
        request("broker", "getNodeID", JMSReplyTo=REPLIES, JMSCorrelationID="c1"), node.world.answers.of("send")
    )
    (reply,) = replies(node, session)
    assert node.world.answers.error("send") is None
    assert outcome(reply) == (True, "11111111-2222-3333-4444-555555555555")
    assert reply.type == MessageType.TEXT
    assert reply.address == REPLIES
    assert reply.properties["JMSCorrelationID"] == "c1"
    assert reply.properties["JMSReplyTo"] == REPLIES
    assert node.office.directory.find_queue("activemq.management") is None, "nothing is queued there"


@pytest.mark.parametrize("prefix", ["queue://", "topic://", "temp-queue://", "temp-topic://"])
def test_the_prefix_of_jms_names_is_not_part_of_the_address(prefix: str) -> None:
    node = ManagedWorld()
    session = asking(node)
    session.sends.send(request("broker", "getNodeID", JMSReplyTo=prefix + REPLIES))
    assert len(replies(node, session)) == 1


def test_without_a_correlation_id_the_message_id_comes_back() -> None:
    node = ManagedWorld()
    session = asking(node)
    named = request("broker", "getNodeID", JMSReplyTo=REPLIES)
    plain = Message(named.body, address=named.address, properties=named.properties, user_id=USER_ID)
    session.sends.send(plain)
    session.sends.send(request("broker", "getNodeID", JMSReplyTo=REPLIES, NATIVE_MESSAGE_ID="n1"))
    first, second = replies(node, session)
    assert first.properties["JMSCorrelationID"] == "00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert second.properties["JMSCorrelationID"] == "n1"


def test_attributes() -> None:
    node = ManagedWorld()

    def ask(resource: str, attribute: str) -> tuple[bool, object]:
        message = Message(
            b"", address="activemq.management", properties={"_AMQ_ResourceName": resource, "_AMQ_Attribute": attribute}
        )
        return node.reply_to(message)

    node.world.queue("q")
    assert ask("broker", "NodeID") == (True, "11111111-2222-3333-4444-555555555555")
    assert ask("broker", "nodeID")[0]
    assert ask("queue.q", "Paused") == (True, False)
    assert ask("queue.q", "Filter") == (True, None)
    assert ask("queue.q", "Nothing") == (False, "no attribute 'Nothing' on queue")
    assert ask("queue.r", "Paused") == (False, "no queue 'r'")


@pytest.mark.parametrize(
    ("resource", "operation", "values", "text"),
    [
        ("broker", "frobnicate", (), "no operation 'frobnicate' on broker"),
        ("broker", "__init__", (), "no operation '__init__'"),
        ("broker", "listQueue", (), "no operation 'listQueue' on broker: there is listQueues"),
        ("broker", "createAddress", ("a",), "'createAddress' does not take (str): createAddress(String name"),
        ("broker.x", "getNodeID", (), "no resource 'broker.x'"),
        ("node", "getNodeID", (), "no resource 'node'"),
        ("queue", "getName", (), "no resource 'queue'"),
        ("queue.missing", "getName", (), "no queue 'missing'"),
        ("queue.missing", "listMessages", (1, 2), "no queue 'missing'"),
        ("address.missing", "getQueueNames", (), "no address 'missing'"),
        ("acceptor.missing", "getName", (), "no resource 'acceptor.missing'"),
    ],
)
def test_the_error_of_an_unknown_name_contains_it(
    resource: str, operation: str, values: tuple[object, ...], text: str
) -> None:
    assert text in ManagedWorld().refused(resource, operation, *values)


@pytest.mark.parametrize(
    "body",
    [
        b"\x01",
        b"\x01\xff\xff\xff\xff",
        b"\x01" + encode_simple_string("{}"),
        b"\x01" + encode_simple_string("[1"),
        b"\x01" + encode_simple_string("[" * 100_000),
        b"\x01" + bytes(MANAGEMENT_REQUEST_BYTES_MAX),
    ],
)
def test_bodies_that_are_no_parameters(body: bytes) -> None:
    node = ManagedWorld()
    good = request("broker", "listAddresses", ",")
    succeeded, text = node.reply_to(Message(body, properties=good.properties))
    assert not succeeded
    assert "JSON" in text or "limit" in text


def test_a_request_that_names_nothing() -> None:
    node = ManagedWorld()
    assert node.reply_to(Message(b"")) == (False, "the request has no _AMQ_ResourceName")
    assert not node.reply_to(Message(b"", properties={"_AMQ_ResourceName": "broker"}))[0]


def test_managing_takes_the_permission_and_does_nothing_without() -> None:
    node = ManagedWorld()
    session = asking(node, security=FakeSecurity(Permission.MANAGE))
    session.sends.send(
        request("broker", "createAddress", "a", "ANYCAST", JMSReplyTo=REPLIES), node.world.answers.of("send")
    )
    assert isinstance(node.world.answers.error("send"), NotAuthorized)
    assert "a" not in node.office.directory.addresses
    assert replies(node, session) == []


def test_a_request_without_permission_for_the_reply_changes_nothing() -> None:
    node = ManagedWorld()
    session = asking(node, security=FakeSecurity(Permission.SEND))
    session.sends.send(
        request("broker", "createAddress", "a", "ANYCAST", JMSReplyTo=REPLIES), node.world.answers.of("send")
    )
    assert isinstance(node.world.answers.error("send"), NotAuthorized)
    assert "a" not in node.office.directory.addresses


def test_fine_grained_permissions() -> None:
    node = ManagedWorld(configuration={"management_message_rbac": True})
    node.world.queue("q")
    security = FakeSecurity(Permission.EDIT)
    session = node.session(security=security)
    assert node.ask("queue.q", "countMessages", session=session) == 0
    assert (Permission.VIEW, "mops.queue.q.countMessages", None) in security.asked
    succeeded, text = node.reply_to(request("queue.q", "pause"), session=session)
    assert (succeeded, text) == (False, "AMQ229032: edit on mops.queue.q.pause")
    assert not node.office.directory.find_queue("q").paused  # type: ignore[union-attr]


def test_a_reply_waits_until_its_result_is_durable() -> None:
    node = ManagedWorld(automatic=False)
    node.world.queue(REPLIES)
    node.sync()
    session = asking(node)
    session.sends.send(
        request("broker", "createAddress", "a", "ANYCAST", JMSReplyTo=REPLIES), node.world.answers.of("send")
    )
    assert replies(node, session) == []
    assert node.world.answers.names == []
    node.sync()
    assert len(replies(node, session)) == 1
    assert node.world.answers.names == ["send"]


def test_a_transaction_does_not_hold_requests_up() -> None:
    node = ManagedWorld()
    session = asking(node, transacted=True)
    session.sends.send(request("broker", "createAddress", "a", "ANYCAST", JMSReplyTo=REPLIES))
    assert len(replies(node, session)) == 1
    session.rollback()
    assert "a" in node.office.directory.addresses


def test_a_reply_without_a_queue_is_not_an_error_of_the_request() -> None:
    node = ManagedWorld(world=None)
    session = node.session()
    message = request("broker", "createAddress", "a", "ANYCAST", JMSReplyTo="::gone")
    session.sends.send(message, node.world.answers.of("send"))
    assert node.world.answers.error("send") is None
    assert "a" in node.office.directory.addresses
    assert len(callback_of(session).errors) == 1


def test_large_messages_and_queues_of_the_management_address_are_refused() -> None:
    node = ManagedWorld()
    session = node.session()
    with pytest.raises(IllegalState, match="management requests"):
        session.sends.permit("activemq.management")
    with pytest.raises(IllegalState):
        session.sends.permit("activemq.management::x")


def test_queries_say_that_the_address_exists_and_nothing_must_be_made() -> None:
    session = ManagedWorld().session()
    address = session.queues.query_address("activemq.management")
    assert (address.exists, address.queue_names, address.auto_create_queues) == (True, (), False)
    assert (address.supports_anycast, address.supports_multicast) == (True, True)
    queue = session.queues.query_queue("activemq.management")
    assert (queue.exists, queue.auto_create_queues) == (True, False)


def test_a_result_too_long_for_a_message_is_refused_with_advice() -> None:
    node = ManagedWorld()
    for number in range(300):
        node.office.directory.create_address(f"{number:04}" * 1000, {1})  # type: ignore[arg-type]
    assert "ask for a page" in node.refused("broker", "listAddresses", ",")
