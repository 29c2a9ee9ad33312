"""The broker of an active node, put together from the parts of the node."""

from __future__ import annotations

from understudy.broker import Broker
from understudy.cluster.replicas import Replicas
from understudy.cluster.scaled_down import ScaledDownNodes
from understudy.cluster.services import ClusterServices
from understudy.management.invocation import HandingOver, Reload
from understudy.ports import Worker
from understudy.runtime.connector import LoopDialer
from understudy.runtime.parts import NodeParts, Owner
from understudy.store.message_store import MessageStore
from understudy.store.pages import Pages


def make_broker(
    parts: NodeParts,
    store: MessageStore,
    worker: Worker,
    owner: Owner,
    replicas: Replicas | None,
    reload: Reload | None,
) -> Broker:
    """The broker over an opened store.

    Args:
        parts: Of the node.
        store: Of this activation.
        worker: Of this activation.
        owner: Hands over when management asks for it.
        replicas: Takes replicas; None in a node without replication.
        reload: Reads broker.xml again for management; None: it does not.
    """
    # read again: the file may have changed while the log was followed to its end
    configuration, environment = parts.configuration.current, parts.environment
    return Broker(
        configuration,
        store,
        parts.security,
        _cluster_services(parts, replicas),
        clock=environment.clock,
        timers=parts.turn,
        entropy=environment.entropy,
        worker=worker,
        wake=parts.turn.request,
        global_max_size_bytes=parts.configuration.global_max_size_bytes(),
        handing_over=HandingOver(owner.fail_over, owner.fail_back),
        reload=reload,
        pages=Pages(environment.disk, configuration.paging_directory, store.epoch),
    )


def _cluster_services(parts: NodeParts, replicas: Replicas | None) -> ClusterServices:
    return ClusterServices(
        parts.topology,
        parts.credentials,
        replicas,
        LoopDialer(parts.loop, parts.turn, parts.configuration.tls_for),
        parts.configuration.connector,
        parts.discovery.connectors,
        scaled_down=ScaledDownNodes(can_scale_down=parts.configuration.current.ha_policy.scale_down is not None),
    )
