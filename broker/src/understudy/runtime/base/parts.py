"""Objects that the parts of one node share."""

from __future__ import annotations

import asyncio
from dataclasses import field
from typing import Protocol

from understudy.cluster.membership.credentials import ClusterCredentials
from understudy.cluster.membership.membership import Membership
from understudy.cluster.membership.network import ClusterNetwork
from understudy.cluster.membership.passive_formats import PassiveFormats
from understudy.cluster.membership.topology import Topology
from understudy.dataclass import dataclass
from understudy.errors import BrokerError
from understudy.ha.life.network_check import NetworkCheck
from understudy.runtime.base.environment import Environment
from understudy.runtime.base.node_configuration import NodeConfiguration
from understudy.runtime.base.process import Process
from understudy.runtime.base.turn import Turn
from understudy.runtime.members.discovery import NodeDiscovery
from understudy.runtime.net.tls_acceptors import TlsAcceptors
from understudy.runtime.node.store_watch import StoreWatch
from understudy.security.authorization import SecurityPolicy
from understudy.store.node_lock import NodeLock


@dataclass(frozen=True, slots=True)
class NodeParts:
    """Objects that are made once for a node and used by several of its parts."""

    configuration: NodeConfiguration
    environment: Environment
    loop: asyncio.AbstractEventLoop
    turn: Turn
    """The executor of the node: an error that answers no request ends this node and no other one of the process."""
    security: SecurityPolicy
    topology: Topology
    """Topology of the cluster connection that its pair uses."""
    credentials: ClusterCredentials | None
    """Credentials for links to other nodes and bridges; None without a cluster password."""
    membership: Membership | None
    """Links to other nodes, of the cluster connection that its pair uses; None without a cluster connection."""
    networks: tuple[ClusterNetwork, ...]
    """Networks of all cluster connections."""
    discovery: NodeDiscovery
    """Discovery and broadcast groups; there may be none."""
    network_check: NetworkCheck | None
    """Network check of the node; None without targets."""
    lock: NodeLock
    watch: StoreWatch
    tls: TlsAcceptors
    """Certificates of the acceptors."""
    formats: PassiveFormats = field(default_factory=PassiveFormats)
    """Format versions that the passive nodes of this one read."""
    process: Process | None = None
    """The process of several servers; None: the node is alone in its process, and hosts no backups."""
    instance_directory: str | None = None
    """Absolute; None: the node notes nothing there."""


class Owner(Protocol):
    """The node, as its parts see it."""

    @property
    def error(self) -> BrokerError | None:
        """The error because of which the node ends, or None."""
        ...

    @property
    def isolating(self) -> bool:
        """Whether the node stops serving because its network check failed, and will serve again."""
        ...

    @property
    def unopened(self) -> bool:
        """Whether this is a backup that follows a store with which no node was ever active."""
        ...

    def fail(self, error: BaseException) -> None:
        """A part can no longer do its work: the node ends, soon."""
        ...

    def fail_over(self) -> None:
        """Management asked the node to hand over."""
        ...

    def fail_back(self) -> None:
        """Management asked the node to yield to the node that it took over from. Raises ManagementError: it cannot."""
        ...

    def scale_down(self, connector: str | None) -> None:
        """Management asked the node to stop and to move its messages to another member. Raises ManagementError: it
        cannot."""
        ...
