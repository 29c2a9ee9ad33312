"""The policy of a node, as its configuration asks for it, and its replication if it is one of a replicated pair."""

from __future__ import annotations

from understudy.config.high_availability import Role as ConfiguredRole
from understudy.errors import ConfigError
from understudy.ha.local_sequence import LocalSequence
from understudy.ha.policy import Decisions, Policy, Role
from understudy.ha.replication.lock_authority import LockAuthority
from understudy.ha.replication.policy import ReplicationOptions, ReplicationPolicy
from understudy.ha.shared_store import SharedStoreOptions, SharedStorePolicy
from understudy.replication.replica_link import ReplicaLink, ReplicaOptions
from understudy.runtime.cluster import cluster_connection, peer_options
from understudy.runtime.connector import LoopDialer
from understudy.runtime.copied_store import TargetCopy, is_complete
from understudy.runtime.lock_providers import make_lock_manager
from understudy.runtime.parts import NodeParts, Owner
from understudy.runtime.replication import NodeReplication, ReplicationParts
from understudy.runtime.standby import NodeStandby


def make_replication(parts: NodeParts, owner: Owner) -> NodeReplication | None:
    """The replication of a node; None if it is not one of a replicated pair.

    Args:
        parts: Of the node.
        owner: Ends when the node may not go on without its replica.

    Raises:
        ConfigError: its lock manager cannot be made.
    """
    configuration, environment = parts.configuration.current, parts.environment
    replication = configuration.ha_policy.replication
    if replication is None:
        return None
    assert replication.lock_manager is not None
    worker = environment.worker(parts.turn)
    local = LocalSequence(environment.disk, configuration.node_manager_lock_directory, worker)
    make_manager = environment.lock_manager or make_lock_manager
    authority = LockAuthority(
        make_manager(replication.lock_manager, configuration.name, environment, parts.loop, parts.turn),
        local,
        lambda: parts.lock.node_id,
        environment.lock_clock or environment.clock,
        parts.turn,
        first_start=lambda: configuration.ha_policy.role is ConfiguredRole.PRIMARY,
        complete=lambda: is_complete(parts),
    )
    return NodeReplication(parts, ReplicationParts(replication, authority, local, worker), owner)


def make_policy(parts: NodeParts, standby: NodeStandby, replication: NodeReplication | None, life: Decisions) -> Policy:
    """The policy that element ``ha-policy`` names.

    Args:
        parts: Of the node.
        standby: The node while another one is active.
        replication: Of the node.
        life: Takes the decisions.
    """
    configuration, environment = parts.configuration.current, parts.environment
    policy = configuration.ha_policy
    if replication is not None:
        return _replication_policy(parts, standby, replication, life)
    options = SharedStoreOptions(
        role=Role(policy.role.value),
        failover_on_shutdown=policy.failover_on_shutdown,
        allow_failback=policy.allow_failback,
        restart_backup=policy.restart_backup,
        lock_timeout_ms=configuration.journal_lock_acquisition_timeout_ms,
    )
    clock = environment.lock_clock or environment.clock
    return SharedStorePolicy(options, life, standby, parts.lock, clock, environment.timers)


def _replication_policy(
    parts: NodeParts, standby: NodeStandby, replication: NodeReplication, life: Decisions
) -> ReplicationPolicy:
    configuration, used = parts.configuration.current, replication.used
    settings = used.settings
    options = ReplicationOptions(
        role=Role(configuration.ha_policy.role.value),
        allow_failback=configuration.ha_policy.allow_failback,
        restart_backup=configuration.ha_policy.restart_backup,
        retry_wait_ms=settings.retry_replication_wait_ms,
        peer=settings.coordination_id is not None,
    )
    policy = ReplicationPolicy(options, life, standby, used.authority, replication, parts.turn)
    own = parts.configuration.own_connector()
    if own is None or parts.credentials is None:
        raise ConfigError("replication needs a cluster-connection", path="core/ha-policy/replication")
    cluster = cluster_connection(parts.configuration.current, settings.cluster_name)
    saved_max = settings.max_saved_replicated_journals_size
    replica = ReplicaLink(
        ReplicaOptions(
            configuration.name,
            own,
            settings.group_name,
            options.wants_failback,
            parts.credentials,
            peer_options(cluster),
        ),
        lambda: [parts.configuration.connector(name) for name in cluster.static_connectors],
        policy.standby_life,
        lambda link: TargetCopy(parts, used.worker, used.local, saved_max, link),
        LoopDialer(parts.loop, parts.turn, parts.configuration.tls_for),
        parts.environment.clock,
        parts.turn,
        parts.turn,
    )
    policy.set_replica(replica)
    replication.replica = replica
    return policy
