"""The broker of an active node and its acceptors, put together from the parts of the node."""

from __future__ import annotations

from understudy.broker import Broker, BrokerHost
from understudy.cluster.membership.scaled_down import ScaledDownNodes
from understudy.cluster.membership.services import ClusterPeers, ClusterServices
from understudy.config.model import AcceptorConfiguration
from understudy.management.operations.invocation import HandingOver, InstanceFiles
from understudy.protocols.access import LoginWorkers
from understudy.protocols.handlers import AcceptorOptions, served
from understudy.runtime.base.parts import NodeParts, Owner
from understudy.runtime.base.process import upgrade_server
from understudy.runtime.net.acceptor import Acceptor, StreamLayer
from understudy.runtime.net.connector import LoopDialer
from understudy.runtime.process.descriptors import ConnectionBudget
from understudy.store.messages.message_store import MessageStore
from understudy.store.messages.pages import Pages


def make_broker(
    parts: NodeParts,
    store: MessageStore,
    login_workers: LoginWorkers,
    owner: Owner,
    peers: ClusterPeers,
    files: InstanceFiles | None,
) -> Broker:
    """The broker over an opened store.

    Args:
        owner: Hands over when management asks for it.
        files: Files of the instance for management; None: there are none.
    """
    # read again: the file may have changed while the log was followed to its end
    configuration, environment = parts.configuration.current, parts.environment
    return Broker(
        configuration,
        store,
        parts.security,
        _cluster_services(parts, peers),
        BrokerHost(
            clock=environment.clock,
            timers=parts.turn,
            entropy=environment.entropy,
            login_workers=login_workers,
            wake=parts.turn.request,
            global_max_size_bytes=parts.configuration.global_max_size_bytes(),
            pages=Pages(environment.disk, configuration.paging_directory, store.epoch),
        ),
        handing_over=HandingOver(owner.fail_over, owner.fail_back, owner.scale_down),
        files=files,
    )


def make_acceptor(
    parts: NodeParts, broker: Broker, configuration: AcceptorConfiguration, budget: ConnectionBudget
) -> Acceptor:
    """Make one acceptor of an active node; it does not listen yet.

    Args:
        broker: Handles the protocols.
        budget: Connections of all acceptors together.
    """
    current, environment = parts.configuration.current, parts.environment
    cluster = broker.cluster.of(configuration.cluster_connection)
    options = AcceptorOptions(configuration.sessions_allowed, configuration.amqp091)
    handlers = {protocol.wire: protocol.handler(cluster, options) for protocol in broker.protocols}
    return Acceptor(
        configuration,
        parts.turn,
        served(handlers, configuration.protocols),
        current.connection_ttl_check_interval_ms,
        budget=budget,
        layer=StreamLayer(environment.streams(), parts.tls.port(configuration, lambda: environment.worker(parts.turn))),
        server=upgrade_server(parts.process, current.name),
    )


def _cluster_services(parts: NodeParts, peers: ClusterPeers) -> ClusterServices:
    return ClusterServices(
        parts.topology,
        parts.credentials,
        peers.replicas,
        LoopDialer(parts.loop, parts.turn, parts.configuration.tls_for),
        parts.configuration.connectors,
        parts.discovery.connectors,
        scaled_down=ScaledDownNodes(can_scale_down=parts.configuration.current.ha_policy.scale_down is not None),
        formats=parts.formats,
        backups=peers.backups,
        networks=parts.networks,
    )
