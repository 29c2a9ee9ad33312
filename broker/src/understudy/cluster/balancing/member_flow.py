"""The flow of messages to one other node, and the queues that it has reported.

Source: artemis-ha s. 7.4, 7.5.
"""

from __future__ import annotations

import logging
from functools import partial

from understudy.cluster.balancing.group_notices import GroupNotice
from understudy.cluster.balancing.notices import Notice
from understudy.cluster.balancing.remote_bindings import RemoteBindings, RemoteListener
from understudy.cluster.bridges.bridge import Bridge
from understudy.cluster.membership.member_link import MemberLink
from understudy.routing.filter import parse_filter
from understudy.routing.queues.queue import Queue
from understudy.routing.remote import RemoteBinding, RemoteQueue

log = logging.getLogger(__name__)


class MemberFlow:
    """Flow of one cluster connection to one node id. Implements ``reports.ReportOwner``."""

    def __init__(
        self, node_id: str, queue: Queue, bridge: Bridge, bindings: RemoteBindings, *, own_node_id: str
    ) -> None:
        """No queue is known yet. Queues with ``own_node_id`` belong to this node; reports of them are left aside."""
        self.node_id = node_id
        self.queue = queue
        """Store-and-forward queue of the flow."""
        self.bridge = bridge
        self.link: MemberLink | None = None
        """On which the node reports its queues; None: it is away."""
        self.bindings = bindings.of_flow(queue)
        """Queues of the node, by cluster name."""
        self._all = bindings
        self._next_id = queue.store.next_id
        self._own_node_id = own_node_id

    # -- ReportOwner ------------------------------------------------------------------------------

    def reset(self) -> None:
        """Prefer the queues of the other node no more until it reports them again."""
        self.disconnect()

    def complete(self) -> None:
        """End a report of all queues of the member: forget queues that were not in it."""
        for binding in [each for each in self.bindings.values() if not each.connected]:
            self._all.remove(binding)
        if self._all.groups is not None:
            self._all.groups.member_reported(self.node_id)
        log.info("queues of another node are known", extra={"node_id": self.node_id, "queues": len(self.bindings)})

    def group_noticed(self, notice: GroupNotice) -> None:
        """A notification of the grouping handler of the other node."""
        if self._all.groups is not None:
            self._all.groups.heard(notice, self.node_id)

    def noticed(self, notice: Notice) -> None:
        """Take a notice of a change at the other node. Raises InvalidSelector."""
        known = self.bindings.get(notice.cluster_name)
        if notice.kind == "BINDING_ADDED":
            # With max-hops above 1 a node reports queues of its neighbours, of which this node is one: messages for its
            # own queues would go to the neighbour and come back.
            if not notice.cluster_name.endswith(self._own_node_id):
                self._add(notice, known)
        elif known is None:
            # of a queue that is left aside
            return
        elif notice.kind == "BINDING_REMOVED":
            self._all.remove(known)
        elif notice.kind == "BINDING_UPDATED":
            known.filter = parse_filter(notice.filter)
        elif notice.kind == "CONSUMER_CREATED":
            known.consumers.add(notice.filter, parse_filter(notice.filter))
            self._all.tell(lambda listener: listener.remote_consumer_added(known, notice.filter))
        else:
            known.consumers.remove(notice.filter)
            self._all.tell(lambda listener: listener.remote_consumer_removed(known, notice.filter))

    def _add(self, notice: Notice, known: RemoteBinding | None) -> None:
        if known is not None and (known.remote_id, known.address) == (notice.binding_id, notice.address):
            known.filter = parse_filter(notice.filter)
            known.connected = True
            self._all.tell(lambda listener: listener.remote_connected(known))
            return
        if known is not None:
            # the queue was deleted and made again
            self._all.remove(known)
        binding = RemoteBinding(
            RemoteQueue(
                notice.cluster_name, notice.address, notice.routing_name, notice.binding_id, notice.distance + 1
            ),
            binding_id=self._next_id(),
            queue=self.queue,
            filter=parse_filter(notice.filter),
        )
        self._all.add(binding)

    # -- for the flows ----------------------------------------------------------------------------

    def disconnect(self) -> None:
        """Called when the node cannot be reached, or reports its queues anew."""
        for binding in self.bindings.values():
            if binding.connected:
                self._disconnect(binding)

    def _disconnect(self, binding: RemoteBinding) -> None:
        binding.connected = False
        gone = list(binding.consumers)
        binding.consumers.clear()
        for selector in gone:
            self._all.tell(partial(_consumer_gone, binding, selector))
        self._all.tell(lambda listener: listener.remote_connected(binding))

    def end(self) -> None:
        """End the flow: no message goes to the member by it any more."""
        self.lose_link()
        for binding in list(self.bindings.values()):
            self._all.remove(binding)
        self._all.forget_flow(self.queue)
        self.bridge.close()

    def lose_link(self) -> None:
        """Called when the connection to the node ended."""
        self.link = None
        self.disconnect()


def _consumer_gone(binding: RemoteBinding, selector: str | None, listener: RemoteListener) -> None:
    listener.remote_consumer_removed(binding, selector)
