"""Notifications: messages about events on the node, for clients that subscribe to them.

Source: artemis-core s. 10.2. A notification is a durable message to the notification address without a body;
all data is in its properties, so that selectors apply. While no queue is bound, no message is created. A
notification that cannot be sent (disk full, address full) is logged and dropped, and the event itself does not
fail.

Implements ``routing.addresses.listeners.RoutingListener``, ``routing.lifecycle.diverts.DivertListener``,
``session.registry.SessionListener``, ``session.slow_consumers.SlowConsumerListener``,
``protocols.registry.ConnectionListener`` and ``protocols.access.AccessListener``. Sessions are identified by an alias:
their names are secret (ADR 0009).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from enum import Enum
from typing import Final

from understudy.errors import BrokerError
from understudy.management.transport import ACCEPTOR_FACTORY
from understudy.message import Message, MessageType
from understudy.properties import BYTE, INT, Properties, PropertyValue
from understudy.routing.addresses.address import Address
from understudy.routing.addresses.divert import Divert
from understudy.routing.post_office import PostOffice, ResponseOrder
from understudy.routing.queues.consumer import Consumer
from understudy.routing.queues.queue import Queue
from understudy.session.connection_scope import ConnectionScope
from understudy.session.consumer import ServerConsumer
from understudy.session.session import ServerSession
from understudy.terms import Permission, RoutingType

log = logging.getLogger(__name__)

_ADDRESS: Final = "_AMQ_Address"
_CLUSTER_NAME: Final = "_AMQ_ClusterName"
_ROUTING_NAME: Final = "_AMQ_RoutingName"
_ROUTING_TYPE: Final = "_AMQ_Routing_Type"
_BINDING_ID: Final = "_AMQ_Binding_ID"
_BINDING_TYPE: Final = "_AMQ_Binding_Type"
_FILTER: Final = "_AMQ_FilterString"
_DISTANCE: Final = "_AMQ_Distance"
_CONSUMER_COUNT: Final = "_AMQ_ConsumerCount"
_CONSUMER_NAME: Final = "_AMQ_ConsumerName"
_CONNECTION: Final = "_AMQ_ConnectionName"
_SESSION: Final = "_AMQ_SessionName"
_USER: Final = "_AMQ_User"
_VALIDATED_USER: Final = "_AMQ_ValidatedUser"
_CERTIFICATE: Final = "_AMQ_CertSubjectDN"
#: Value of the property for a client without a certificate, as in Artemis.
_NO_CERTIFICATE: Final = "unavailable"
_REMOTE_ADDRESS: Final = "_AMQ_RemoteAddress"
_CLIENT_ID: Final = "_AMQ_Client_ID"
_PROTOCOL: Final = "_AMQ_Protocol_Name"
_CHECK_TYPE: Final = "_AMQ_CheckType"

_GROUP: Final = "_JBM_ProposalGroupId"
_PROPOSED: Final = "_JBM_ProposalValue"
_ALTERNATIVE: Final = "_JBM_ProposalAltValue"

_TAGS: Final = {_DISTANCE: INT, "port": INT, _BINDING_TYPE: INT, _CONSUMER_COUNT: INT, _ROUTING_TYPE: BYTE}
"""Wire types of numeric properties other than long."""
_NULL: Final = 0
"""Wire type of null."""
_LOCAL_QUEUE: Final = 0
_DIVERT: Final = 2
#: An empty body, as Artemis encodes it.
_NO_BODY: Final = b"\0\0\0\0"


_BINDING: Final = (_ADDRESS, _CLUSTER_NAME, _ROUTING_NAME, _BINDING_ID, _DISTANCE, _FILTER)
_CONSUMER: Final = (
    _ADDRESS, _CLUSTER_NAME, _ROUTING_NAME, _DISTANCE, _FILTER, _CONSUMER_COUNT, _USER, _REMOTE_ADDRESS, _SESSION,
    _CONSUMER_NAME, _CLIENT_ID,
)  # fmt: skip
_OF_SESSION: Final = (_CONNECTION, _USER, _SESSION, _CLIENT_ID, _PROTOCOL, _ADDRESS, _DISTANCE)
_OF_GROUP: Final = (_BINDING_TYPE, _ADDRESS, _DISTANCE)
_OF_ACCEPTOR: Final = ("factory", "host", "port")
_OF_CONNECTION: Final = (_CONNECTION, _CERTIFICATE, _REMOTE_ADDRESS)


class Kind(Enum):
    """The kinds of notifications, with the event and the properties of each."""

    BINDING_ADDED = ("a queue or divert was created", (_BINDING_TYPE, *_BINDING))
    BINDING_REMOVED = ("a queue or divert was deleted", _BINDING)
    BINDING_UPDATED = ("a queue has another filter", (_CLUSTER_NAME, _FILTER, _DISTANCE, _ADDRESS))
    ADDRESS_ADDED = ("an address was created", (_ADDRESS, _ROUTING_TYPE))
    ADDRESS_REMOVED = ("an address was deleted", (_ADDRESS, _ROUTING_TYPE))
    CONSUMER_CREATED = ("a consumer was created", (*_CONSUMER, _VALIDATED_USER, _CERTIFICATE))
    CONSUMER_CLOSED = ("a consumer was closed, by its client or with its connection", _CONSUMER)
    CONSUMER_SLOW = (
        "a consumer is slower than slow-consumer-threshold allows",
        (_ADDRESS, _CONSUMER_COUNT, _REMOTE_ADDRESS, _CONNECTION, _CONSUMER_NAME, _SESSION),
    )
    SESSION_CREATED = ("a client created a session", _OF_SESSION)
    SESSION_CLOSED = ("a session ended", _OF_SESSION)
    CONNECTION_CREATED = ("a client connected", _OF_CONNECTION)
    CONNECTION_DESTROYED = ("a connection ended", _OF_CONNECTION)
    SECURITY_AUTHENTICATION_VIOLATION = ("a login was refused", (_USER, _CERTIFICATE, _REMOTE_ADDRESS))
    SECURITY_PERMISSION_VIOLATION = (
        "a permission was refused to a client",
        (_ADDRESS, _CHECK_TYPE, _USER),
    )
    BRIDGE_STARTED = ("a bridge was started; it may not be connected yet", ("name",))
    BRIDGE_STOPPED = ("a bridge was stopped or paused, or has given up", ("name",))
    PROPOSAL = ("a member proposes a queue for a message group", (_GROUP, _PROPOSED, *_OF_GROUP))
    PROPOSAL_RESPONSE = (
        "the LOCAL grouping-handler answers; with another queue if the group has one",
        (_GROUP, _PROPOSED, _ALTERNATIVE, *_OF_GROUP),
    )
    UNPROPOSAL = ("a message group has no queue any more", (_GROUP, _PROPOSED, *_OF_GROUP))
    READER_DROPPED = (
        "a named reader of the log held more than its limit; not in Artemis",
        ("name", "sequence", "reason"),
    )
    CLUSTER_CONNECTION_STARTED = ("a cluster connection was started, at the activation", ("name",))
    CLUSTER_CONNECTION_STOPPED = ("a cluster connection was stopped, at the end of the activation", ("name",))
    DISCOVERY_GROUP_STARTED = ("a discovery group is used by an active node; it may not be open yet", ("name",))
    DISCOVERY_GROUP_STOPPED = ("the same at the end of the activation", ("name",))
    BROADCAST_GROUP_STARTED = ("the node broadcasts its connectors; the group may not be open yet", ("name",))
    BROADCAST_GROUP_STOPPED = ("the node broadcasts no more", ("name",))
    ACCEPTOR_STARTED = ("an acceptor listens", _OF_ACCEPTOR)
    ACCEPTOR_STOPPED = ("an acceptor is closed, at the end of the activation", _OF_ACCEPTOR)

    def __init__(self, doc: str, properties: tuple[str, ...]) -> None:
        self.doc = doc
        self.properties = properties


def _filtered(properties: dict[str, PropertyValue]) -> dict[str, PropertyValue]:
    """Without the filter if it is None: an "added" event omits it, a "removed" event has a null."""
    if properties[_FILTER] is None:
        del properties[_FILTER]
    return properties


class Notifications:
    """Publishes the events of one broker to its notification address."""

    def __init__(self, office: PostOffice, node_id: str, address: str, *, sessions: bool = True) -> None:
        """Args:
        office: Post office to which they are sent.
        node_id: Id of this node; part of the cluster names of queues.
        address: The notification address; created if it does not exist.
        sessions: Whether sessions created and closed are notified (suppress-session-notifications).
        """
        self._office = office
        self._node_id = node_id
        self._name = address
        self._sessions = sessions
        self._order = ResponseOrder()
        self.wanted = False
        """Whether a queue is bound to the address."""
        self.sent = self.dropped = 0
        if address not in office.directory.addresses:
            office.directory.create_address(address, {RoutingType.MULTICAST}, internal=True, durable=False)
        self._look()

    def _look(self) -> None:
        address = self._office.directory.addresses.get(self._name)
        self.wanted = address is not None and bool(
            address.bindings or any(wildcard.bindings for wildcard in address.linked)
        )

    def publish(self, kind: Kind, properties: dict[str, PropertyValue]) -> None:
        """Send a notification, if a queue is bound. None becomes null; integers become long, with few exceptions."""
        if not self.wanted:
            return
        now_ms = self._office.clock.wall_ms()
        made = self.typed({"_AMQ_NotifType": kind.name, "_AMQ_NotifTimestamp": now_ms, **properties})
        message = Message(
            _NO_BODY, address=self._name, type=MessageType.DEFAULT, priority=0, timestamp=now_ms, properties=made
        )
        try:
            self._office.send(message, self._order)
            self.sent += 1
        except BrokerError as error:
            self.dropped += 1
            log.warning("notification dropped", extra={"kind": kind.name, "error": str(error)})

    def typed(self, properties: dict[str, PropertyValue]) -> Properties:
        """Properties with the wire types of notifications."""
        made = Properties()
        for name, value in properties.items():
            if name in _TAGS:
                made.set_typed(name, _TAGS[name], value)
            elif value is None:
                made.set_typed(name, _NULL, None)
            else:
                made[name] = value
        return made

    # -- routing.listeners.RoutingListener --------------------------------------------------------

    def address_added(self, address: Address) -> None:
        """Publish ADDRESS_ADDED."""
        self._look()
        self._address(Kind.ADDRESS_ADDED, address)

    def address_removed(self, address: Address) -> None:
        """Publish ADDRESS_REMOVED."""
        self._look()
        self._address(Kind.ADDRESS_REMOVED, address)

    def _address(self, kind: Kind, address: Address) -> None:
        if self.wanted:
            first = min(address.routing_types, default=RoutingType.MULTICAST)
            self.publish(kind, {_ADDRESS: address.name, _ROUTING_TYPE: int(first)})

    def queue_added(self, queue: Queue) -> None:
        """Publish BINDING_ADDED."""
        self._look()
        if self.wanted:
            self.publish(Kind.BINDING_ADDED, {_BINDING_TYPE: _LOCAL_QUEUE, **_filtered(self.binding(queue))})

    def queue_removed(self, queue: Queue) -> None:
        """Publish BINDING_REMOVED."""
        self._look()
        if self.wanted:
            self.publish(Kind.BINDING_REMOVED, self.binding(queue))

    def binding(self, queue: Queue) -> dict[str, PropertyValue]:
        """The properties of a queue in notifications."""
        return {
            _ADDRESS: queue.address.name,
            _CLUSTER_NAME: queue.name + self._node_id,
            # the address for anycast, the queue for multicast (artemis-core s. 10.2)
            _ROUTING_NAME: queue.address.name if queue.routing_type is RoutingType.ANYCAST else queue.name,
            _BINDING_ID: queue.queue_id,
            _DISTANCE: 0,
            _FILTER: queue.filter.text if queue.filter is not None else None,
        }

    def consumer_added(self, queue: Queue, consumer: Consumer) -> None:
        """Publish CONSUMER_CREATED."""
        if self.wanted and isinstance(consumer, ServerConsumer) and not consumer.browse_only:
            user = consumer.session.security.user or None
            subject = consumer.session.connection.certificate_subject or _NO_CERTIFICATE
            security: dict[str, PropertyValue] = {_VALIDATED_USER: user, _CERTIFICATE: subject}
            self.publish(Kind.CONSUMER_CREATED, _filtered(self._consumer(queue, consumer)) | security)

    def queue_updated(self, queue: Queue) -> None:
        """Publish BINDING_UPDATED, by which the other members of the cluster learn of the filter."""
        if self.wanted:
            properties: dict[str, PropertyValue] = {_CLUSTER_NAME: queue.name + self._node_id}
            if queue.filter is not None:
                properties[_FILTER] = queue.filter.text
            self.publish(Kind.BINDING_UPDATED, properties | {_DISTANCE: 0, _ADDRESS: queue.address.name})

    def settings_changed(self, address: Address) -> None:
        """Do nothing: Artemis has no such notification."""

    def consumer_removed(self, queue: Queue, consumer: Consumer) -> None:
        """Publish CONSUMER_CLOSED."""
        if self.wanted and isinstance(consumer, ServerConsumer) and not consumer.browse_only:
            self.publish(Kind.CONSUMER_CLOSED, self._consumer(queue, consumer))

    def _consumer(self, queue: Queue, consumer: ServerConsumer) -> dict[str, PropertyValue]:
        session = consumer.session
        binding = self.binding(queue)
        del binding[_BINDING_ID]
        client_id = session.connection.client_id
        return binding | {
            _CONSUMER_COUNT: queue.consumers.count,
            _USER: session.security.user or None,
            _REMOTE_ADDRESS: session.connection.remote_address,
            _SESSION: session.alias,
            _CONSUMER_NAME: consumer.consumer_id,
            # the filter of the queue is part of BINDING_ADDED
            _FILTER: consumer.filter.text if consumer.filter is not None else None,
            **({} if client_id is None else {_CLIENT_ID: client_id}),
        }

    def consumer_slow(self, queue: Queue, consumer: ServerConsumer) -> None:
        """Called under the policy NOTIFY for a consumer that was found slow."""
        if self.wanted:
            session = consumer.session
            self.publish(
                Kind.CONSUMER_SLOW,
                {
                    _ADDRESS: queue.address.name,
                    _CONSUMER_COUNT: queue.consumers.count,
                    _REMOTE_ADDRESS: session.connection.remote_address,
                    _CONNECTION: session.connection.connection_id,
                    _CONSUMER_NAME: consumer.consumer_id,
                    _SESSION: session.alias,
                },
            )

    # -- routing.lifecycle.diverts.DivertListener ------------------------------------------------------------

    def divert_added(self, divert: Divert) -> None:
        """Publish BINDING_ADDED."""
        if self.wanted:
            self.publish(Kind.BINDING_ADDED, {_BINDING_TYPE: _DIVERT, **_filtered(self._diverting(divert))})

    def divert_removed(self, divert: Divert) -> None:
        """Publish BINDING_REMOVED."""
        if self.wanted:
            self.publish(Kind.BINDING_REMOVED, self._diverting(divert))

    def _diverting(self, divert: Divert) -> dict[str, PropertyValue]:
        return {
            _ADDRESS: divert.configuration.address,
            # the property names a resource of this node only
            _CLUSTER_NAME: divert.name,
            _ROUTING_NAME: divert.routing_name,
            # diverts are identified by name and have no id
            _BINDING_ID: 0,
            _DISTANCE: 0,
            _FILTER: divert.configuration.filter,
        }

    # -- session.registry.SessionListener ---------------------------------------------------------

    def session_added(self, session: ServerSession) -> None:
        """Publish SESSION_CREATED."""
        if self.wanted and self._sessions:
            self.publish(Kind.SESSION_CREATED, self._session(session))

    def session_removed(self, session: ServerSession) -> None:
        """Publish SESSION_CLOSED."""
        if self.wanted and self._sessions:
            self.publish(Kind.SESSION_CLOSED, self._session(session))

    def _session(self, session: ServerSession) -> dict[str, PropertyValue]:
        return {
            _CONNECTION: session.state.connection.connection_id,
            _USER: session.state.security.user or None,
            _SESSION: session.state.alias,
            _CLIENT_ID: session.state.connection.client_id,
            _PROTOCOL: session.state.connection.protocol,
            # other nodes forward by address, which is sent first here (artemis-core s. 10.2)
            _ADDRESS: self._name,
            _DISTANCE: 0,
        }

    # -- protocols.registry.ConnectionListener, protocols.access.AccessListener --------------------

    def connection_added(self, scope: ConnectionScope) -> None:
        """Publish CONNECTION_CREATED."""
        self._connection(Kind.CONNECTION_CREATED, scope)

    def connection_removed(self, scope: ConnectionScope) -> None:
        """Publish CONNECTION_DESTROYED."""
        self._connection(Kind.CONNECTION_DESTROYED, scope)

    def _connection(self, kind: Kind, scope: ConnectionScope) -> None:
        if self.wanted:
            self.publish(
                kind,
                {
                    _CONNECTION: scope.connection_id,
                    _CERTIFICATE: scope.certificate_subject or _NO_CERTIFICATE,
                    _REMOTE_ADDRESS: scope.remote_address,
                },
            )

    def login_refused(self, user: str | None, scope: ConnectionScope) -> None:
        """Publish SECURITY_AUTHENTICATION_VIOLATION."""
        if self.wanted:
            self.publish(
                Kind.SECURITY_AUTHENTICATION_VIOLATION,
                {
                    _USER: user,
                    _CERTIFICATE: scope.certificate_subject or _NO_CERTIFICATE,
                    _REMOTE_ADDRESS: scope.remote_address,
                },
            )

    def permission_refused(self, user: str, permission: Permission, address: str) -> None:
        """Publish SECURITY_PERMISSION_VIOLATION."""
        if self.wanted:
            self.publish(
                Kind.SECURITY_PERMISSION_VIOLATION,
                {_ADDRESS: address, _CHECK_TYPE: permission.name, _USER: user},
            )

    # -- life ---------------------------------------------------------------------------------------

    def bridge_started(self, name: str) -> None:
        """Publish BRIDGE_STARTED."""
        self.publish(Kind.BRIDGE_STARTED, {"name": name})

    def bridge_stopped(self, name: str) -> None:
        """Publish BRIDGE_STOPPED."""
        self.publish(Kind.BRIDGE_STOPPED, {"name": name})

    def group_noticed(self, kind: str, properties: dict[str, PropertyValue]) -> None:
        """Publish PROPOSAL, PROPOSAL_RESPONSE or UNPROPOSAL (``cluster.balancing.group_notices``)."""
        self.publish(Kind[kind], properties)

    def acceptor_started(self, host: str, port: int) -> None:
        """Publish ACCEPTOR_STARTED."""
        self.publish(Kind.ACCEPTOR_STARTED, {"factory": ACCEPTOR_FACTORY, "host": host, "port": port})

    def acceptor_stopped(self, host: str, port: int) -> None:
        """Publish ACCEPTOR_STOPPED."""
        self.publish(Kind.ACCEPTOR_STOPPED, {"factory": ACCEPTOR_FACTORY, "host": host, "port": port})

    def cluster_started(self, clusters: Iterable[str], discovery: Iterable[str], broadcasts: Iterable[str]) -> None:
        """Publish the start of cluster connections, discovery groups and broadcast groups, by their names."""
        self._named(Kind.BROADCAST_GROUP_STARTED, broadcasts)
        self._named(Kind.DISCOVERY_GROUP_STARTED, discovery)
        self._named(Kind.CLUSTER_CONNECTION_STARTED, clusters)

    def cluster_stopped(self, clusters: Iterable[str], discovery: Iterable[str], broadcasts: Iterable[str]) -> None:
        """Publish that the cluster connection has stopped."""
        self._named(Kind.BROADCAST_GROUP_STOPPED, broadcasts)
        self._named(Kind.DISCOVERY_GROUP_STOPPED, discovery)
        self._named(Kind.CLUSTER_CONNECTION_STOPPED, clusters)

    def _named(self, kind: Kind, names: Iterable[str]) -> None:
        for name in names:
            self.publish(kind, {"name": name})

    def reader_dropped(self, name: str, sequence: int, reason: str) -> None:
        """Publish READER_DROPPED.

        Args:
            sequence: Last record that it has committed.
            reason: Why it was dropped.
        """
        self.publish(Kind.READER_DROPPED, {"name": name, "sequence": sequence, "reason": reason})
