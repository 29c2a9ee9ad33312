"""Notifications: made for the queues that are bound, and only if there are any."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.managed import ManagedWorld
from support.routing import FakeSecurity, World, callback_of
from understudy.errors import AuthenticationFailed, NotAuthorized
from understudy.message import Message
from understudy.properties import BYTE, INT, LONG
from understudy.protocols.access import PrincipalSecurity
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.routing.addresses.updates import change_queue
from understudy.security.authorization import NoSecurity, Principal
from understudy.session.session import ServerSession
from understudy.terms import Permission, RoutingType
from understudy.wire.core import packets

ADDRESS = "activemq.notifications"


class Listener:
    """A stock client's subscription: a temporary queue with a consumer."""

    def __init__(self, node: ManagedWorld, selector: str | None = None, address: str = ADDRESS) -> None:
        self.node = node
        self.session: ServerSession = node.world.session()
        node.world.queue("n1", address=address, routing_type=RoutingType.MULTICAST, durable=False, filter=selector)
        self.session.consumers.create(0, "n1")
        self.session.consumers.receive_credits(0, -1)
        self.take()

    def take(self) -> list[Message]:
        """Notifications since the last call, without those about this subscription."""
        self.node.settle()
        delivered = callback_of(self.session).delivered
        found = [message for _, message, _ in delivered]
        delivered.clear()
        return found

    def kinds(self) -> list[str]:
        return [str(each.properties["_AMQ_NotifType"]) for each in self.take()]


def test_no_notification_is_created_while_no_queue_is_bound() -> None:
    node = ManagedWorld()
    node.world.queue("q")
    node.world.session().close(failed=False)
    assert not node.notifications.wanted
    assert node.notifications.sent == 0
    listener = Listener(node)
    assert node.notifications.wanted
    node.office.directory.delete_queue("n1", disconnect=True)
    assert not node.notifications.wanted
    node.world.queue("later")
    assert listener.take() == []


def test_a_subscription_to_everything_counts_too() -> None:
    node = ManagedWorld()
    listener = Listener(node, address="activemq.#")
    node.world.queue("q")
    assert listener.kinds() == ["ADDRESS_ADDED", "BINDING_ADDED"]


def test_queues_and_addresses() -> None:
    node = ManagedWorld()
    listener = Listener(node)
    queue = node.world.queue("q", address="a", routing_type=RoutingType.ANYCAST, filter="x = 1")
    added, bound = listener.take()
    assert (added.properties["_AMQ_NotifType"], added.properties["_AMQ_Address"]) == ("ADDRESS_ADDED", "a")
    assert (added.properties.tag("_AMQ_Routing_Type"), added.properties["_AMQ_Routing_Type"]) == (BYTE, 1)
    assert dict(bound.properties) == {
        "_AMQ_NotifType": "BINDING_ADDED",
        "_AMQ_NotifTimestamp": bound.timestamp,
        "_AMQ_Binding_Type": 0,
        "_AMQ_Address": "a",
        "_AMQ_ClusterName": "q11111111-2222-3333-4444-555555555555",
        "_AMQ_RoutingName": "a",
        "_AMQ_Binding_ID": queue.queue_id,
        "_AMQ_Distance": 0,
        "_AMQ_FilterString": "x = 1",
    }
    assert [bound.properties.tag(name) for name in ("_AMQ_Binding_Type", "_AMQ_Distance", "_AMQ_Binding_ID")] == [
        INT, INT, LONG,
    ]  # fmt: skip
    assert (bound.type, bound.durable, bound.body) == (0, True, b"\0\0\0\0")
    assert bound.timestamp > 0
    node.office.directory.delete_address("a", force=True)
    assert listener.kinds() == ["BINDING_REMOVED", "ADDRESS_REMOVED"]


def test_the_routing_name_of_multicast_is_the_queue() -> None:
    node = ManagedWorld()
    listener = Listener(node, "_AMQ_NotifType = 'BINDING_ADDED'")
    node.world.queue("sub", address="topic", routing_type=RoutingType.MULTICAST)
    (bound,) = listener.take()
    assert bound.properties["_AMQ_RoutingName"] == "sub"


def test_consumers_and_sessions_go_by_alias() -> None:
    node = ManagedWorld()
    node.world.queue("q")
    listener = Listener(node)
    session = node.world.session()
    session.consumers.create(7, "q", selector_text="n = 1")
    session.close(failed=False)
    created, consumer, closed, ended = listener.take()
    assert [each.properties["_AMQ_NotifType"] for each in (created, consumer, closed, ended)] == [
        "SESSION_CREATED", "CONSUMER_CREATED", "CONSUMER_CLOSED", "SESSION_CLOSED",
    ]  # fmt: skip
    assert consumer.properties["_AMQ_ConsumerCount"] == 1
    assert consumer.properties["_AMQ_ConsumerName"] == 7
    assert consumer.properties["_AMQ_FilterString"] == "n = 1"
    assert consumer.properties["_AMQ_User"] == consumer.properties["_AMQ_ValidatedUser"] == "tester"
    assert closed.properties["_AMQ_ConsumerCount"] == 0
    assert "_AMQ_ValidatedUser" not in closed.properties
    for each in (created, consumer, closed, ended):
        assert each.properties["_AMQ_SessionName"] == session.state.alias
        assert session.state.name.encode("utf-16-le") not in each.encoded


def test_sessions_can_be_left_out() -> None:
    node = ManagedWorld(configuration={"suppress_session_notifications": True})
    node.world.queue("q")
    listener = Listener(node)
    session = node.world.session()
    session.consumers.create(0, "q")
    assert listener.kinds() == ["CONSUMER_CREATED"]


def test_connections_come_and_go() -> None:
    node = ManagedWorld()
    listener = Listener(node, "_AMQ_NotifType LIKE 'CONNECTION%'")
    client = node.client("10.0.0.3:77")
    client.create_session()
    client.lose()
    created, destroyed = listener.take()
    assert created.properties["_AMQ_RemoteAddress"] == "10.0.0.3:77"
    assert created.properties["_AMQ_ConnectionName"] == destroyed.properties["_AMQ_ConnectionName"]
    assert destroyed.properties["_AMQ_NotifType"] == "CONNECTION_DESTROYED"


class RefusesAllUsers(NoSecurity):
    """Knows no user, and allows nothing."""

    def begin(self, user: str | None, password: str | None, certificate: object = None) -> Principal:
        raise AuthenticationFailed("who?")

    def check(self, principal: Principal, permission: Permission, address: str, queue: str | None = None) -> None:
        raise NotAuthorized("no")


def test_refused_logins_and_requests() -> None:
    node = ManagedWorld(security=RefusesAllUsers())
    listener = Listener(node, "_AMQ_NotifType LIKE 'SECURITY%'")
    create = packets.CreateSession(
        name="x" * 36, session_channel_id=10, version=136, user="mallory", password="p", min_large_message_size=1000,
        xa=False, auto_commit_sends=True, auto_commit_acks=True, confirmation_window=-1, pre_acknowledge=False,
        default_address=None,
    )  # fmt: skip
    node.client("10.0.0.4:88").ask(create, packets.ExceptionResponse, 1)
    security = PrincipalSecurity(RefusesAllUsers(), Principal("eve"), node.notifications)
    with pytest.raises(NotAuthorized):
        security.check(Permission.CREATE_DURABLE_QUEUE, "secrets")
    login, permission = listener.take()
    assert (login.properties["_AMQ_User"], login.properties["_AMQ_RemoteAddress"]) == ("mallory", "10.0.0.4:88")
    assert permission.properties["_AMQ_CheckType"] == "CREATE_DURABLE_QUEUE"
    assert (permission.properties["_AMQ_Address"], permission.properties["_AMQ_User"]) == ("secrets", "eve")


def test_a_slow_consumer_is_published() -> None:
    node = ManagedWorld()
    queue = node.world.queue("q")
    listener = Listener(node)
    session = node.world.session()
    session.consumers.create(3, "q")
    listener.take()
    node.notifications.consumer_slow(queue, session.consumers.by_id[3])
    (slow,) = listener.take()
    assert slow.properties["_AMQ_NotifType"] == "CONSUMER_SLOW"
    assert slow.properties["_AMQ_ConsumerName"] == 3


def test_a_notification_that_cannot_be_sent_does_not_fail_the_event() -> None:
    world = World({ADDRESS: {"max_size_bytes": 1, "address_full_policy": "FAIL"}})
    node = ManagedWorld(world=world)
    Listener(node)
    node.world.queue("n2", address=ADDRESS, routing_type=RoutingType.MULTICAST)
    node.world.queue("q")
    assert node.notifications.dropped > 0
    assert node.office.directory.find_queue("q") is not None


def test_a_durable_subscription_outlives_the_subscriber() -> None:
    node = ManagedWorld()
    queue = node.world.queue("kept", address=ADDRESS, routing_type=RoutingType.MULTICAST)
    node.world.queue("q")
    assert len(node.store.survivors(queue)) == queue.message_count > 0


def test_clients_without_permission_see_nothing_of_it() -> None:
    node = ManagedWorld()
    session = node.world.session(security=FakeSecurity(Permission.CREATE_NON_DURABLE_QUEUE))
    with pytest.raises(NotAuthorized):
        session.queues.create_queue(QueueConfiguration("mine", ADDRESS, temporary=True, durable=False))
    assert not node.notifications.wanted


def test_absent_values_are_null_in_notifications() -> None:
    """The filter is null when a consumer is closed and absent when it is created."""
    node = ManagedWorld()
    security = FakeSecurity()
    security.user = ""
    node.world.queue("q")
    listener = Listener(node)
    session = node.world.session(security=security)
    session.consumers.create(1, "q")
    session.consumers.close(1)
    created, came, went = (message.properties for message in listener.take())
    assert (created.tag("_AMQ_User"), created["_AMQ_Client_ID"]) == (0, None)
    assert (came["_AMQ_User"], came["_AMQ_ValidatedUser"]) == (None, None)
    assert "_AMQ_FilterString" not in came
    assert went["_AMQ_FilterString"] is None
    assert "_AMQ_Client_ID" not in came


def test_the_notification_of_a_consumer_has_its_own_filter() -> None:
    node = ManagedWorld()
    node.world.queue("q", filter="x = 1")
    listener = Listener(node)
    session = node.world.session()
    session.consumers.create(1, "q", "y = 2")
    _, came = listener.take()
    assert came.properties["_AMQ_FilterString"] == "y = 2"


def test_browsers_are_not_published() -> None:
    node = ManagedWorld()
    node.world.queue("q")
    listener = Listener(node)
    session = node.world.session()
    listener.take()
    session.consumers.create(1, "q", browse_only=True)
    session.consumers.close(1)
    assert listener.kinds() == []


def test_notifications_have_priority_zero() -> None:
    node = ManagedWorld()
    listener = Listener(node)
    node.world.queue("q")
    assert {message.priority for message in listener.take()} == {0}


def test_a_changed_filter_is_published_for_the_other_members() -> None:
    node = ManagedWorld()
    queue = node.world.queue("q")
    listener = Listener(node)
    change_queue(node.office, queue, replace(queue.configuration, filter="n = 1"))
    change_queue(node.office, queue, replace(queue.configuration, max_consumers=7))
    change_queue(node.office, queue, replace(queue.configuration, filter=""))
    changed, removed = (each.properties for each in listener.take())
    assert changed["_AMQ_NotifType"] == removed["_AMQ_NotifType"] == "BINDING_UPDATED"
    assert (changed["_AMQ_FilterString"], changed["_AMQ_Distance"], changed["_AMQ_Address"]) == ("n = 1", 0, "q")
    assert str(changed["_AMQ_ClusterName"]).startswith("q")
    assert "_AMQ_FilterString" not in removed


def test_the_parts_of_an_activation_are_published_by_name() -> None:
    node = ManagedWorld()
    listener = Listener(node)
    node.notifications.acceptor_started("10.0.0.1", 61616)
    node.notifications.cluster_started(["c"], ["d"], ["b1", "b2"])
    node.notifications.cluster_stopped(["c"], ["d"], ["b1"])
    node.notifications.acceptor_stopped("10.0.0.1", 61616)
    found = listener.take()
    assert [(each.properties["_AMQ_NotifType"], each.properties.get("name")) for each in found] == [
        ("ACCEPTOR_STARTED", None),
        ("BROADCAST_GROUP_STARTED", "b1"),
        ("BROADCAST_GROUP_STARTED", "b2"),
        ("DISCOVERY_GROUP_STARTED", "d"),
        ("CLUSTER_CONNECTION_STARTED", "c"),
        ("BROADCAST_GROUP_STOPPED", "b1"),
        ("DISCOVERY_GROUP_STOPPED", "d"),
        ("CLUSTER_CONNECTION_STOPPED", "c"),
        ("ACCEPTOR_STOPPED", None),
    ]
    acceptor = found[0].properties
    assert (acceptor["host"], acceptor["port"], acceptor.tag("port")) == ("10.0.0.1", 61616, INT)
    assert str(acceptor["factory"]).endswith("NettyAcceptorFactory")
