"""Makes the parts of a node."""

from __future__ import annotations

import asyncio

from understudy.cluster.membership.topology import Topology
from understudy.config.model import Configuration
from understudy.runtime.base.environment import Environment
from understudy.runtime.base.network_probe import make_network_check
from understudy.runtime.base.node_configuration import NodeConfiguration
from understudy.runtime.base.parts import NodeParts
from understudy.runtime.base.process import Process
from understudy.runtime.base.turn import Turn
from understudy.runtime.members.credentials import make_credentials
from understudy.runtime.members.discovery import make_discovery
from understudy.runtime.members.networks import make_networks
from understudy.runtime.net.tls_acceptors import TlsAcceptors
from understudy.runtime.node.store_watch import StoreWatch
from understudy.security.authorization import SecurityPolicy
from understudy.store.node_lock import NodeLock


def make_parts(
    configuration: Configuration,
    environment: Environment,
    security: SecurityPolicy,
    instance_directory: str | None,
    process: Process | None,
) -> NodeParts:
    """The parts of a node on the running loop; nothing is opened.

    Args:
        configuration: Configuration from its broker.xml.
        environment: The node's share of the process.
        instance_directory: Absolute, where it notes which store it uses; None: it does not.
        process: The other servers of the process; None: there are none.
    """
    loop, disk, entropy = asyncio.get_running_loop(), environment.disk, environment.entropy
    turn = Turn(loop, environment.timers)
    node_configuration = NodeConfiguration(configuration, environment, instance_directory or "")
    credentials = make_credentials(node_configuration, entropy)
    discovery = make_discovery(node_configuration, environment, turn)
    networks = make_networks(node_configuration, credentials, loop, environment.clock, turn)
    for network in networks:
        used = (configuration.cluster_connection(name).discovery_group for name in network.connections)
        discovery.feed(network.membership, used)
    pair = next((each for each in networks if configuration.pair_connection.name in each.connections), None)
    return NodeParts(
        configuration=node_configuration,
        environment=environment,
        loop=loop,
        turn=turn,
        security=security,
        topology=Topology() if pair is None else pair.topology,
        credentials=credentials,
        membership=None if pair is None else pair.membership,
        networks=networks,
        discovery=discovery,
        network_check=make_network_check(configuration.ha_policy.network_check, environment.network_prober, turn),
        lock=NodeLock(disk, configuration.node_manager_lock_directory, environment.file_lock, entropy),
        watch=StoreWatch(disk, configuration, instance_directory),
        tls=TlsAcceptors(configuration, environment.clock),
        process=process,
        instance_directory=instance_directory,
    )
