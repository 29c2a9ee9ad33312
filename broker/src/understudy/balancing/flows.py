"""The way of messages to each other node: a store-and-forward queue, the bridge that empties it, and the queues that
the node has reported.

A flow begins when a link has reached an active node. It stays when the node is away: its queues are not preferred any
more, and what is routed to them waits in the store-and-forward queue for the node or its backup.

Source: artemis-ha s. 7.4, 7.5. Not here: routing (``routing.remote``), what is reported (``reports``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from understudy.balancing.conversion import ClusterConversion
from understudy.balancing.notices import Notice, selector_of
from understudy.balancing.remote_bindings import RemoteBindings, RemoteListener
from understudy.balancing.reports import QueueReports
from understudy.bridges.bridge import Bridge, BridgeParts
from understudy.cluster.member_link import MemberLink
from understudy.cluster.topology import Topology
from understudy.config.bridge import BridgeConfiguration, BridgeConnection, BridgeTarget
from understudy.config.model import ClusterConnectionConfiguration, RoutingType
from understudy.errors import BrokerError
from understudy.protocols.services import ProtocolServices
from understudy.routing.configuration import QueueConfiguration
from understudy.routing.directory import Directory
from understudy.routing.filter import parse_filter
from understudy.routing.queues.queue import Queue
from understudy.routing.remote import RemoteBinding
from understudy.wire.core import packets
from understudy.wire.core.transport import TransportConfiguration

log = logging.getLogger(__name__)

_STORE_AND_FORWARD: Final = "sf."


@dataclass(frozen=True, slots=True)
class FlowSettings:
    """Configuration of the flows of a node."""

    cluster: ClusterConnectionConfiguration
    internal_prefix: str
    """``internal-naming-prefix``."""
    management_address: str
    notifications: str
    """Address of notifications."""
    node_name: str


class MemberFlow:
    """The flow to one node id. Implements ``reports.ReportOwner``."""

    def __init__(self, node_id: str, queue: Queue, bridge: Bridge, bindings: RemoteBindings) -> None:
        self.node_id = node_id
        self.queue = queue
        """Store-and-forward queue."""
        self.bridge = bridge
        self.link: MemberLink | None = None
        """On which the node reports its queues; None: it is away."""
        self.reports: QueueReports | None = None
        self.bindings: dict[str, RemoteBinding] = {}
        """Queues of the node, by cluster name."""
        self._all = bindings
        self._next_id = queue.store.next_id

    # -- ReportOwner ------------------------------------------------------------------------------

    def reset(self) -> None:
        """Until they are reported again, the queues are not preferred."""
        self.disconnect()

    def complete(self) -> None:
        """Queues that were not reported are gone."""
        for binding in [each for each in self.bindings.values() if not each.connected]:
            self._remove(binding)
        log.info("queues of another node are known", extra={"node_id": self.node_id, "queues": len(self.bindings)})

    def noticed(self, notice: Notice) -> None:
        """A change at the other node. Raises InvalidSelector."""
        known = self.bindings.get(notice.cluster_name)
        if notice.kind == "BINDING_ADDED":
            self._add(notice, known)
        elif known is None:
            # of a queue that is left aside
            return
        elif notice.kind == "BINDING_REMOVED":
            self._remove(known)
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
            # deleted and made again
            self._remove(known)
        binding = RemoteBinding(
            notice.cluster_name,
            notice.address,
            notice.routing_name,
            remote_id=notice.binding_id,
            binding_id=self._next_id(),
            distance=notice.distance + 1,
            queue=self.queue,
            filter=parse_filter(notice.filter),
        )
        if self._all.add(binding):
            self.bindings[binding.name] = binding

    def _remove(self, binding: RemoteBinding) -> None:
        del self.bindings[binding.name]
        self._all.remove(binding)

    # -- for the flows ----------------------------------------------------------------------------

    def disconnect(self) -> None:
        """The node cannot be reached, or reports its queues anew."""
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

    def lose_link(self) -> None:
        """The connection to the node ended."""
        self.link = None
        if self.reports is not None:
            self.reports.close()
            self.reports = None
        self.disconnect()


def _consumer_gone(binding: RemoteBinding, selector: str | None, listener: RemoteListener) -> None:
    listener.remote_consumer_removed(binding, selector)


class MessageFlows:
    """The flows of an active node. Implements ``cluster.membership.LinkObserver``."""

    def __init__(
        self,
        settings: FlowSettings,
        topology: Topology,
        services: ProtocolServices,
        parts: BridgeParts,
        bindings: RemoteBindings,
    ) -> None:
        """None exists yet.

        Args:
            settings: Of the node.
            topology: Of the node.
            services: Of the active node.
            parts: For bridges.
            bindings: Of the node.
        """
        self.settings = settings
        self.by_node: dict[str, MemberFlow] = {}
        self._topology = topology
        self._services = services
        self._parts = parts
        self._bindings = bindings
        self._closed = False

    @property
    def _directory(self) -> Directory:
        return self._services.sessions.post_office.directory

    def queue_name(self, node_id: str) -> str:
        """Of the store-and-forward queue to a node."""
        return f"{self.settings.internal_prefix}{_STORE_AND_FORWARD}{self.settings.cluster.name}.{node_id}"

    def close(self) -> None:
        """The node is not active any more."""
        self._closed = True
        for flow in self.by_node.values():
            if flow.reports is not None:
                flow.reports.close()
            flow.bridge.close()
        self._bindings.close()
        self.by_node.clear()

    # -- LinkObserver -----------------------------------------------------------------------------

    def link_identified(self, link: MemberLink) -> None:
        """Begin the flow to the node, or continue it over this link."""
        node_id = link.node_id
        if self._closed or node_id is None:
            return
        flow = self.by_node.get(node_id)
        if flow is not None and flow.link is link:
            return
        if flow is None:
            try:
                flow = self._begin(node_id, link.target)
            except BrokerError as error:
                log.error("messages do not go to another node", extra={"node_id": node_id, "error": str(error)})
                return
        elif flow.link is not None:
            flow.lose_link()
        # it may have given up
        flow.bridge.start()
        settings = self.settings
        flow.link = link
        flow.reports = QueueReports(
            flow,
            link,
            self._services.entropy,
            name=settings.node_name.replace("::", "_"),
            selector=selector_of(
                settings.cluster,
                internal_prefix=settings.internal_prefix,
                management_address=settings.management_address,
                notifications=settings.notifications,
            ),
            management_address=settings.management_address,
            notifications=settings.notifications,
        )

    def link_received(self, link: MemberLink, packet: packets.Packet) -> None:
        """A packet of the session for reports. Raises RemoteProtocolError."""
        flow = self.by_node.get(link.node_id or "")
        if flow is not None and flow.link is link and flow.reports is not None:
            flow.reports.receive(packet)

    def link_lost(self, link: MemberLink) -> None:
        """Nothing is reported on this link any more."""
        for flow in self.by_node.values():
            if flow.link is link:
                flow.lose_link()

    # -- flows ------------------------------------------------------------------------------------

    def _begin(self, node_id: str, connector: TransportConfiguration) -> MemberFlow:
        """Raises BrokerError: the queue cannot be made."""
        name = self.queue_name(node_id)
        queue = self._directory.queues.get(name)
        if queue is None:
            queue = self._directory.create_queue(
                QueueConfiguration(
                    name, name, RoutingType.MULTICAST, internal=True, auto_delete=False, max_consumers=-1
                ),
                may_create_address=True,
            )
        cluster = self.settings.cluster
        conversion = ClusterConversion(
            name, self._services.node_id, use_duplicate_detection=cluster.use_duplicate_detection
        )
        bridge = Bridge(
            name, _bridge_configuration(name, cluster), self._connectors_of(node_id, connector), self._parts, conversion
        )
        flow = self.by_node[node_id] = MemberFlow(node_id, queue, bridge, self._bindings)
        return flow

    def _connectors_of(
        self, node_id: str, connector: TransportConfiguration
    ) -> Callable[[], Sequence[TransportConfiguration]]:
        """The connectors of a node and its backup, as they are known at each attempt."""
        latest: list[TransportConfiguration] = [connector]

        def connectors() -> Sequence[TransportConfiguration]:
            member = self._topology.member(node_id)
            if member is not None:
                known = [each for each in (member.primary, member.backup) if each is not None]
                # a node that is away is no member: its connectors are tried until it is known again
                latest[:] = known or latest
            return latest

        return connectors


def _bridge_configuration(name: str, cluster: ClusterConnectionConfiguration) -> BridgeConfiguration:
    return BridgeConfiguration(
        name,
        name,
        BridgeTarget(client_id=cluster.client_id),
        BridgeConnection(
            cluster.check_period_ms,
            cluster.connection_ttl_ms,
            cluster.retry_interval_ms,
            cluster.retry_interval_multiplier,
            cluster.max_retry_interval_ms,
            cluster.initial_connect_attempts,
            cluster.reconnect_attempts,
        ),
        min_large_message_size_bytes=cluster.min_large_message_size_bytes,
        use_duplicate_detection=cluster.use_duplicate_detection,
        confirmation_window_size_bytes=cluster.confirmation_window_size_bytes,
        producer_window_size_bytes=cluster.producer_window_size_bytes,
    )
