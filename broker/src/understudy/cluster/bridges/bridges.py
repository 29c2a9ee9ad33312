"""The bridges of an active node: one for each entry of broker.xml and each that management created, or as many as its
``concurrency``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from understudy.cluster.bridges.added_connectors import AddedConnectors
from understudy.cluster.bridges.bridge import Bridge, BridgeListener, BridgeParts, State
from understudy.cluster.bridges.conversion import Conversion
from understudy.cluster.bridges.stored import StoredBridges
from understudy.cluster.bridges.target import TargetAccess
from understudy.cluster.membership.services import ClusterServices
from understudy.config.bridge import BridgeConfiguration, BridgeTarget
from understudy.config.model import Configuration
from understudy.errors import ManagementError
from understudy.ports import Timers
from understudy.protocols.services import ProtocolServices
from understudy.routing.addresses.address import Address
from understudy.routing.queues.consumer import Consumer
from understudy.routing.queues.queue import Queue
from understudy.wire.core.transport import TransportConfiguration

log = logging.getLogger(__name__)


class Bridges:
    """All bridges of a node, by name. Implements ``routing.addresses.listeners.RoutingListener``."""

    def __init__(
        self,
        configuration: Configuration,
        cluster: ClusterServices,
        services: ProtocolServices,
        timers: Timers,
        listener: BridgeListener,
    ) -> None:
        """None is started yet.

        Args:
            cluster: Cluster with the connectors of the node and its connections to other brokers.
            timers: Used for attempts and time limits.
            listener: Called when one is started and stopped.
        """
        self._cluster = cluster
        self._node_id = services.node_id
        parts = bridge_parts(cluster, services, timers, listener)
        if not configuration.has_cluster_password:
            # the default is public and proves nothing
            parts = replace(parts, access=replace(parts.access, credentials=None))
        self._parts = replace(parts, of_cluster=False, may_be_anonymous=not configuration.security_enabled)
        store = services.sessions.post_office.store
        self.connectors = AddedConnectors(cluster.connectors, store)
        self._stored = StoredBridges(configuration, cluster.connectors, store)
        self.by_name: dict[str, Bridge] = {}
        self._leaving: list[Bridge] = []
        """Destroyed ones whose target has not confirmed everything yet."""
        for each in configuration.bridges:
            self._add(each)
        for each in self._stored.load():
            if self._taken(each):
                log.warning("a bridge of broker.xml replaces one that management created", extra={"bridge": each.name})
            else:
                self._add(each)
        services.sessions.post_office.directory.listeners.append(self)

    def _add(self, configuration: BridgeConfiguration) -> list[Bridge]:
        connectors = _connectors(configuration.target, self._cluster)
        conversion = Conversion(configuration, self._node_id)
        made = [Bridge(name, configuration, connectors, self._parts, conversion) for name in names_of(configuration)]
        self.by_name |= {each.name: each for each in made}
        return made

    def _taken(self, configuration: BridgeConfiguration) -> bool:
        configured = {each.configuration.name for each in self.by_name.values()}
        return configuration.name in configured or not self.by_name.keys().isdisjoint(names_of(configuration))

    def create(self, values: Mapping[str, object]) -> None:
        """Create and start a bridge, which the next activations have too.

        Args:
            values: Values by the names of ``config.json_bridge``.

        Raises:
            ManagementError: a value cannot be used, or there is a bridge of this name.
            LimitExceeded: there are too many, or the values are too large.
            DiskFull: it cannot be kept.
        """
        configuration = self._stored.parse(values)
        if self._taken(configuration):
            raise ManagementError(f"there is a bridge {configuration.name!r}")
        self._stored.keep(configuration.name, values)
        for bridge in self._add(configuration):
            bridge.start()

    def destroy(self, name: str) -> None:
        """Stop a bridge after the messages under way and forget it; one of broker.xml is there again after the next
        activation.

        Args:
            name: Name as configured, without the index of ``concurrency``.

        Raises:
            ManagementError: there is none.
        """
        found = [each for each in self.by_name.values() if each.configuration.name == name]
        if not found:
            raise ManagementError(f"there is no bridge {name!r}")
        self._stored.forget(name)
        for bridge in found:
            del self.by_name[bridge.name]
            if bridge.state is not State.PAUSING:
                bridge.stop()
        self._leaving = [each for each in (*self._leaving, *found) if each.state in (State.PAUSING, State.STOPPING)]

    def start(self) -> None:
        """Start every bridge."""
        for bridge in self.by_name.values():
            bridge.start()

    def close(self) -> None:
        """Stop every bridge, because the node is not active any more."""
        for bridge in (*self.by_name.values(), *self._leaving):
            bridge.close()

    # -- RoutingListener --------------------------------------------------------------------------

    def queue_added(self, queue: Queue) -> None:
        """A queue exists from now on."""
        for bridge in self.by_name.values():
            bridge.queue_added(queue)

    def queue_removed(self, queue: Queue) -> None:
        """Called when a queue was deleted."""
        for bridge in (*self.by_name.values(), *self._leaving):
            bridge.queue_removed(queue)

    def address_added(self, address: Address) -> None:
        """Do nothing: a bridge depends on its queue only."""

    def address_removed(self, address: Address) -> None:
        """Do nothing: a bridge depends on its queue only."""

    def consumer_added(self, queue: Queue, consumer: Consumer) -> None:
        """Consumers do not matter."""

    def consumer_removed(self, queue: Queue, consumer: Consumer) -> None:
        """Consumers do not matter."""

    def queue_updated(self, queue: Queue) -> None:
        """Filters do not matter."""

    def settings_changed(self, address: Address) -> None:
        """Settings do not matter."""


def names_of(configuration: BridgeConfiguration) -> list[str]:
    """Names of the bridges that a configuration makes: with an index if there are several."""
    if configuration.concurrency == 1:
        return [configuration.name]
    return [f"{configuration.name}-{index}" for index in range(configuration.concurrency)]


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
    static = [cluster.connectors.transport(name) for name in target.static_connectors]
    return lambda: static
