"""Objects that the parts of one node share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from understudy.cluster.credentials import ClusterCredentials
from understudy.cluster.membership import Membership
from understudy.cluster.topology import Topology
from understudy.config.model import Configuration
from understudy.errors import BrokerError
from understudy.ha.network_check import NetworkCheck
from understudy.runtime.cluster import make_membership
from understudy.runtime.environment import Environment
from understudy.runtime.network_probe import make_network_check
from understudy.runtime.node_configuration import NodeConfiguration
from understudy.runtime.store_watch import StoreWatch
from understudy.runtime.tls_acceptors import TlsAcceptors
from understudy.runtime.turn import Turn
from understudy.security.authorization import SecurityPolicy
from understudy.store.node_lock import NodeLock


@dataclass(frozen=True, slots=True)
class NodeParts:
    """Made once with the node; each is used by several of its parts."""

    configuration: NodeConfiguration
    environment: Environment
    loop: asyncio.AbstractEventLoop
    turn: Turn
    """The executor of the node: an error that answers no request ends this node and no other one of the process."""
    security: SecurityPolicy
    topology: Topology
    credentials: ClusterCredentials | None
    """For links to other nodes; None without a cluster connection."""
    membership: Membership | None
    """Links to other nodes; None without a cluster connection."""
    network_check: NetworkCheck | None
    """None without targets."""
    lock: NodeLock
    watch: StoreWatch
    tls: TlsAcceptors
    """Certificates of the acceptors."""


def make_parts(
    configuration: Configuration, environment: Environment, security: SecurityPolicy, instance_directory: str | None
) -> NodeParts:
    """The parts of a node on the running loop; nothing is opened.

    Args:
        configuration: From its broker.xml.
        environment: Its share of the process.
        security: Its users and roles.
        instance_directory: Absolute, where it notes which store it uses; None: it does not.
    """
    loop, disk, entropy = asyncio.get_running_loop(), environment.disk, environment.entropy
    turn, topology, node_configuration = (
        Turn(loop, environment.timers),
        Topology(),
        NodeConfiguration(configuration, environment),
    )
    credentials = membership = None
    if configuration.cluster_connections:
        credentials = ClusterCredentials(configuration.cluster_user, configuration.cluster_password, entropy)
        membership = make_membership(node_configuration, topology, credentials, loop, environment.clock, turn)
    return NodeParts(
        configuration=node_configuration,
        environment=environment,
        loop=loop,
        turn=turn,
        security=security,
        topology=topology,
        credentials=credentials,
        membership=membership,
        network_check=make_network_check(configuration.ha_policy.network_check, environment.network_prober, turn),
        lock=NodeLock(disk, configuration.node_manager_lock_directory, environment.file_lock, entropy),
        watch=StoreWatch(disk, configuration, instance_directory),
        tls=TlsAcceptors(configuration, environment.clock),
    )


class Owner(Protocol):
    """The node, as its parts see it."""

    @property
    def error(self) -> BrokerError | None:
        """The error because of which the node ends, or None."""
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
