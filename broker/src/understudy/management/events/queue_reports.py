"""Reports of the queues of this node, and of those it knows of other nodes, to the other members of the cluster.

A member binds a temporary queue to the notification address, asks for all present queues (``sendQueueInfoToQueue``),
and gets every later change as a notification. Queues that this node has learned of from others are passed on, one hop
further.

Source: artemis-core s. 9.3, artemis-ha s. 7.5. Implements ``cluster.balancing.remote_bindings.RemoteListener``.
"""

from __future__ import annotations

from collections.abc import Iterable

from understudy.cluster.balancing import notices
from understudy.cluster.balancing.groups import Groups
from understudy.config.cluster_addresses import covers, split_addresses
from understudy.errors import ManagementError
from understudy.management.events.notifications import Kind, Notifications
from understudy.message import Message, MessageType
from understudy.properties import PropertyValue
from understudy.routing.post_office import PostOffice, ResponseOrder
from understudy.routing.queues.queue import Queue
from understudy.routing.remote import RemoteBinding
from understudy.routing.response_order import SendRequest

_QUEUE = 0
_REMOTE_QUEUE = 1


class QueueReports:
    """Reports of this node."""

    def __init__(
        self,
        office: PostOffice,
        notifications: Notifications,
        remote: dict[str, RemoteBinding],
        groups: Groups | None = None,
    ) -> None:
        """Args:
        remote: Known queues of other nodes, by cluster name.
        groups: Grouping handler of the node.
        """
        self._groups = groups
        self._office = office
        self._notifications = notifications
        self._remote = remote
        self._order = ResponseOrder()

    # -- all present queues -----------------------------------------------------------------------

    def send_to(self, queue_name: str, addresses: str) -> None:
        """Put a report of every known queue and its consumers into a queue, as far as its filter takes them.

        Args:
            addresses: Prefixes of the addresses to report, with ``!`` those that are left out; empty: all.

        Raises:
            ManagementError: there is no such queue.
        """
        target = self._office.directory.queues.get(queue_name)
        if target is None:
            raise ManagementError(f"no queue {queue_name!r}")
        included, excluded = split_addresses(addresses)
        self._put(target, {notices.RESET: True}, filtered=False)
        for queue in list(self._office.directory.queues.values()):
            if not queue.internal and covers(queue.address.name, included, excluded):
                selectors = [each.filter.text if each.filter is not None else None for each in queue.consumers]
                self._report(target, self._notifications.binding(queue), _QUEUE, selectors)
        for binding in list(self._remote.values()):
            if covers(binding.address, included, excluded):
                self._report(target, _properties(binding), _REMOTE_QUEUE, binding.consumers)
        self._put(target, {notices.COMPLETE: True}, filtered=False)
        if self._groups is not None:
            self._groups.resend()

    def _report(
        self, target: Queue, binding: dict[str, PropertyValue], kind: int, selectors: Iterable[str | None]
    ) -> None:
        self._put(target, {notices.TYPE: Kind.BINDING_ADDED.name, notices.BINDING_TYPE: kind, **binding})
        del binding[notices.BINDING_ID]
        for selector in selectors:
            consumer = {notices.TYPE: Kind.CONSUMER_CREATED.name, **binding, notices.FILTER: selector}
            self._put(target, consumer)

    def _put(self, target: Queue, properties: dict[str, PropertyValue], *, filtered: bool = True) -> None:
        office = self._office
        message = Message(
            b"\0\0\0\0",
            address=target.name,
            type=MessageType.DEFAULT,
            priority=0,
            durable=False,
            timestamp=office.clock.wall_ms(),
            properties=self._notifications.typed(properties),
        )
        if filtered and target.filter is not None and not target.filter.matches(message):
            return
        message.assign_id(office.store.next_id())
        office.acceptance.accept(office.directory.address_of(target), message, (target,), 0, SendRequest(self._order))

    # -- balancing.remote_bindings.RemoteListener -------------------------------------------------

    def remote_binding_added(self, binding: RemoteBinding) -> None:
        """Publish BINDING_ADDED."""
        self._notifications.publish(
            Kind.BINDING_ADDED, {notices.BINDING_TYPE: _REMOTE_QUEUE, **_present(_properties(binding))}
        )

    def remote_binding_removed(self, binding: RemoteBinding) -> None:
        """Publish BINDING_REMOVED."""
        self._notifications.publish(Kind.BINDING_REMOVED, _properties(binding))

    def remote_consumer_added(self, binding: RemoteBinding, selector: str | None) -> None:
        """Publish CONSUMER_CREATED."""
        self._notifications.publish(Kind.CONSUMER_CREATED, _present(_consumer(binding, selector)))

    def remote_consumer_removed(self, binding: RemoteBinding, selector: str | None) -> None:
        """Publish CONSUMER_CLOSED."""
        self._notifications.publish(Kind.CONSUMER_CLOSED, _consumer(binding, selector))

    def remote_connected(self, binding: RemoteBinding) -> None:
        """Does nothing: messages for a queue whose node is away are taken."""


def _properties(binding: RemoteBinding) -> dict[str, PropertyValue]:
    return {
        notices.ADDRESS: binding.address,
        notices.CLUSTER_NAME: binding.name,
        notices.ROUTING_NAME: binding.routing_name,
        notices.BINDING_ID: binding.binding_id,
        notices.DISTANCE: binding.distance,
        notices.FILTER: binding.filter.text if binding.filter is not None else None,
    }


def _consumer(binding: RemoteBinding, selector: str | None) -> dict[str, PropertyValue]:
    properties = _properties(binding)
    del properties[notices.BINDING_ID]
    return {**properties, notices.FILTER: selector, "_AMQ_ConsumerCount": binding.consumers.count}


def _present(properties: dict[str, PropertyValue]) -> dict[str, PropertyValue]:
    if properties[notices.FILTER] is None:
        del properties[notices.FILTER]
    return properties
