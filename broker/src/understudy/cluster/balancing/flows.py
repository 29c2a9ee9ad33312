"""The way of messages to each other node: a store-and-forward queue, the bridge that empties it, and the queues that
the node has reported.

A flow begins when a link has reached an active node. It stays when the node is away: its queues are not preferred any
more, and messages that are routed to them wait in the store-and-forward queue for the node or its backup.

Each cluster connection has flows of its own; the reports of a node are shared by them (``cluster_flows``).

Source: artemis-ha s. 7.4, 7.5. Not here: routing (``routing.remote``), the reports of queues (``reports``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from understudy.cluster.balancing.cluster_bridge import ClusterConversion, bridge_configuration
from understudy.cluster.balancing.member_flow import MemberFlow
from understudy.cluster.balancing.notices import selector_of
from understudy.cluster.balancing.remote_bindings import RemoteBindings
from understudy.cluster.bridges.bridge import Bridge, BridgeParts
from understudy.cluster.membership.member_link import MemberLink
from understudy.cluster.membership.topology import Topology
from understudy.config.cluster_addresses import covers, split_addresses
from understudy.config.model import ClusterConnectionConfiguration
from understudy.dataclass import dataclass
from understudy.errors import BrokerError
from understudy.protocols.services import ProtocolServices
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.routing.addresses.directory import Directory
from understudy.terms import RoutingType
from understudy.wire.core.transport import TransportConfiguration

log = logging.getLogger(__name__)

_STORE_AND_FORWARD: Final = "sf."


@dataclass(frozen=True, slots=True)
class FlowSettings:
    """Configuration of the flows of a cluster connection."""

    cluster: ClusterConnectionConfiguration
    internal_prefix: str
    """Prefix of internal names of the store (``routing.addresses.internal_names``)."""
    management_address: str
    notifications: str
    """Address of management notifications."""
    node_name: str
    direct: frozenset[tuple[str, int]] | None = None
    """Host and port of the members that get messages: with ``allow-direct-connections-only`` those of the static
    connectors, without any target none; None: all members."""


class FlowObserver:
    """Observer of nodes that come and go; this class ignores the calls."""

    def node_joined(self, node_id: str) -> None:
        """Called when a link has reached the node, and there is a flow to it."""

    def node_left(self, flow: MemberFlow) -> None:
        """Called when the link to a node has ended."""


class MessageFlows:
    """Flows of one cluster connection of an active node to the other members."""

    def __init__(
        self,
        settings: FlowSettings,
        topology: Topology,
        services: ProtocolServices,
        parts: BridgeParts,
        bindings: RemoteBindings,
    ) -> None:
        """Begin without flows."""
        self.settings = settings
        self.by_node: dict[str, MemberFlow] = {}
        self._topology = topology
        self._services = services
        self._parts = parts
        self._bindings = bindings
        self.observer = FlowObserver()

    @property
    def _directory(self) -> Directory:
        return self._services.sessions.post_office.directory

    def queue_name(self, node_id: str) -> str:
        """Name of the store-and-forward queue to a node."""
        return f"{self.settings.internal_prefix}{_STORE_AND_FORWARD}{self.settings.cluster.name}.{node_id}"

    def close(self) -> None:
        """Called when the node is not active any more."""
        for flow in self.by_node.values():
            flow.bridge.close()
        self.by_node.clear()

    # -- links ------------------------------------------------------------------------------------

    @property
    def selector(self) -> str:
        """Selector of the notifications about the queues to which messages of this cluster connection go."""
        settings = self.settings
        return selector_of(
            settings.cluster,
            internal_prefix=settings.internal_prefix,
            management_address=settings.management_address,
            notifications=settings.notifications,
        )

    def takes(self, address: str) -> bool:
        """Whether messages of an address go this way."""
        return covers(address, *split_addresses(self.settings.cluster.address))

    def goes_to(self, link: MemberLink) -> bool:
        """Whether a flow leads to the node of a link."""
        direct, target = self.settings.direct, link.target
        # a backup may have taken over at another address
        return direct is None or link.node_id in self.by_node or (target.host.lower(), target.port) in direct

    def is_on(self, link: MemberLink) -> bool:
        """Whether the flow to the node uses the link already."""
        flow = self.by_node.get(link.node_id or "")
        return flow is not None and not flow.queue.deleted and flow.link is link

    def continue_on(self, link: MemberLink, node_id: str) -> MemberFlow | None:
        """Begin the flow to the node, or continue it over this link; None: it cannot be made."""
        flow = self.by_node.get(node_id)
        if flow is not None and flow.queue.deleted:
            # an operator has deleted the queue: begin anew
            del self.by_node[node_id]
            flow.end()
            flow = None
        if flow is None:
            try:
                flow = self._begin(node_id, link.target)
            except BrokerError as error:
                log.error("messages do not go to another node", extra={"node_id": node_id, "error": str(error)})
                return None
        elif flow.link is not None:
            flow.lose_link()
        # the bridge may have given up its attempts
        flow.bridge.start()
        flow.link = link
        return flow

    def link_lost(self, link: MemberLink) -> None:
        """End the reports on a lost link."""
        for flow in self.by_node.values():
            if flow.link is link:
                flow.lose_link()
                self.observer.node_left(flow)

    # -- flows ------------------------------------------------------------------------------------

    def end_flow(self, node_id: str) -> None:
        """Delete the store-and-forward queue of a node for which no message is kept, now or later."""
        flow = self.by_node.pop(node_id)
        flow.end()
        name = flow.queue.name
        if not flow.queue.deleted:
            self._directory.delete_queue(name)
        if name in self._directory.addresses:
            self._directory.delete_address(name)

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
            # a session that has sent to this name before may not any more
            self._services.sessions.registry.forget_permissions()
        cluster = self.settings.cluster
        conversion = ClusterConversion(
            name, self._services.node_id, use_duplicate_detection=cluster.use_duplicate_detection
        )
        connectors = self._connectors_of(node_id, connector)
        bridge = Bridge(name, bridge_configuration(name, cluster), connectors, self._parts, conversion, node_id)
        own = self._services.node_id
        flow = self.by_node[node_id] = MemberFlow(node_id, queue, bridge, self._bindings, own_node_id=own)
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
