"""The bridges of an active node: one for each entry of broker.xml, or as many as its ``concurrency``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from understudy.bridges.bridge import Bridge, BridgeListener, BridgeParts
from understudy.bridges.conversion import Conversion
from understudy.bridges.target import TargetAccess
from understudy.cluster.services import ClusterServices
from understudy.config.bridge import BridgeConfiguration, BridgeTarget
from understudy.ports import Timers
from understudy.protocols.services import ProtocolServices
from understudy.routing.address import Address
from understudy.routing.queues.consumer import Consumer
from understudy.routing.queues.queue import Queue
from understudy.wire.core.transport import TransportConfiguration


class Bridges:
    """All bridges of a node, by name. Implements ``routing.listeners.RoutingListener``."""

    def __init__(
        self,
        configurations: Iterable[BridgeConfiguration],
        cluster: ClusterServices,
        services: ProtocolServices,
        timers: Timers,
        listener: BridgeListener,
    ) -> None:
        """None is started yet.

        Args:
            configurations: Of the node.
            cluster: With the connectors of the node and its connections to other brokers.
            services: Of the active node.
            timers: For attempts and time limits.
            listener: Called when one is started and stopped.
        """
        directory = services.sessions.post_office.directory
        parts = bridge_parts(cluster, services, timers, listener)
        self.by_name: dict[str, Bridge] = {}
        for each in configurations:
            connectors = _connectors(each.target, cluster)
            for index in range(each.concurrency):
                name = f"{each.name}-{index}" if each.concurrency > 1 else each.name
                self.by_name[name] = Bridge(name, each, connectors, parts, Conversion(each, services.node_id))
        if self.by_name:
            directory.listeners.append(self)

    def start(self) -> None:
        """Start all of them."""
        for bridge in self.by_name.values():
            bridge.start()

    def close(self) -> None:
        """End all of them: the node is not active any more."""
        for bridge in self.by_name.values():
            bridge.close()

    # -- RoutingListener --------------------------------------------------------------------------

    def queue_added(self, queue: Queue) -> None:
        """A queue exists from now on."""
        for bridge in self.by_name.values():
            bridge.queue_added(queue)

    def queue_removed(self, queue: Queue) -> None:
        """A queue was deleted."""
        for bridge in self.by_name.values():
            bridge.queue_removed(queue)

    def address_added(self, address: Address) -> None:
        """Addresses do not matter."""

    def address_removed(self, address: Address) -> None:
        """Addresses do not matter."""

    def consumer_added(self, queue: Queue, consumer: Consumer) -> None:
        """Consumers do not matter."""

    def consumer_removed(self, queue: Queue, consumer: Consumer) -> None:
        """Consumers do not matter."""

    def settings_changed(self, address: Address) -> None:
        """Settings do not matter."""


def bridge_parts(
    cluster: ClusterServices, services: ProtocolServices, timers: Timers, listener: BridgeListener
) -> BridgeParts:
    """Objects that bridges of a node share; the arguments are those of ``Bridges``."""
    access = TargetAccess(cluster.dialer, services.clock, timers, services.entropy, cluster.credentials)
    find = services.sessions.post_office.directory.queues.get
    return BridgeParts(access, services.sessions, services.node_id, find, listener)


def _connectors(target: BridgeTarget, cluster: ClusterServices) -> Callable[[], Sequence[TransportConfiguration]]:
    """The connectors of a target as they are known at each attempt."""
    if target.discovery_group is not None:
        return lambda: cluster.discovered(target.discovery_group)
    static = [cluster.connector(name) for name in target.static_connectors]
    return lambda: static
