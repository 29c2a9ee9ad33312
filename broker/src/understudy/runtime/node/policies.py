"""The policy of a node, as its configuration asks for it, and its replication if it is one of a replicated pair."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from understudy.errors import ConfigError
from understudy.ha.life.policy import Decisions, Policy, Role, ScaleDownOutcome
from understudy.ha.locks.local_sequence import LocalSequence
from understudy.ha.replication.policy import ReplicationOptions, ReplicationPolicy
from understudy.ha.shared.policy import SharedStoreOptions, SharedStorePolicy
from understudy.replication.replica_link import ReplicaLink, ReplicaOptions
from understudy.runtime.base.parts import NodeParts, Owner
from understudy.runtime.members.member_rules import peer_options
from understudy.runtime.net.connector import LoopDialer
from understudy.runtime.node.authorities import make_authority
from understudy.runtime.node.standby import NodeStandby
from understudy.runtime.node.standby_faults import StandbyFaults
from understudy.runtime.replica.copied_store import TargetCopy
from understudy.runtime.replica.replication import NodeReplication, ReplicationParts
from understudy.runtime.replica.search import (
    members_not_asked,
    others_not_asked,
    replica_candidates,
    replica_place,
    serves_another_group,
)


def make_replication(parts: NodeParts, owner: Owner) -> NodeReplication | None:
    """The replication of a node; None if it is not one of a replicated pair.

    Args:
        owner: Ends when the node may not go on without its replica.

    Raises:
        ConfigError: its lock manager cannot be made.
    """
    configuration, environment = parts.configuration.current, parts.environment
    replication = configuration.ha_policy.replication
    if replication is None:
        return None
    worker = environment.worker(parts.turn)
    local = LocalSequence(environment.disk, configuration.node_manager_lock_directory, worker)
    authority = make_authority(parts, replication, local, worker)
    return NodeReplication(
        parts, ReplicationParts(replication, authority, local, worker, replica_place(parts, replication).refusal), owner
    )


def make_policy(
    parts: NodeParts,
    standby: NodeStandby,
    replication: NodeReplication | None,
    life: Decisions,
    outcome: Callable[[], ScaleDownOutcome | None],
) -> Policy:
    """The policy that element ``ha-policy`` names.

    Args:
        standby: The node while another one is active.
        life: Takes the decisions.
        outcome: Of the scale-down in the present activation of a backup; None: no other node took the messages.
    """
    configuration, environment = parts.configuration.current, parts.environment
    policy = configuration.ha_policy
    if replication is not None:
        return _replication_policy(parts, standby, replication, life, outcome)
    options = SharedStoreOptions(
        role=Role(policy.role.value),
        failover_on_shutdown=policy.failover_on_shutdown,
        allow_failback=policy.allow_failback,
        restart_backup=policy.restart_backup,
        lock_timeout_ms=configuration.journal_lock_acquisition_timeout_ms,
    )
    clock = environment.lock_clock or environment.clock

    def all_moved() -> bool:
        moved = outcome()
        return moved is not None and moved.complete

    scaled_down = all_moved if policy.moves_instead_of_serving else None
    shared = SharedStorePolicy(options, life, standby, parts.lock, clock, environment.timers, scaled_down)
    standby.check = StandbyFaults(parts, shared).find
    return shared


def _replication_policy(
    parts: NodeParts,
    standby: NodeStandby,
    replication: NodeReplication,
    life: Decisions,
    outcome: Callable[[], ScaleDownOutcome | None],
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
    clock = parts.environment.lock_clock or parts.environment.clock
    moves = configuration.ha_policy.moves_instead_of_serving

    def moved() -> ScaleDownOutcome | None:
        return outcome() if moves else None

    policy = ReplicationPolicy(options, life, standby, used.authority, replication, parts.turn, clock, moved)
    own = parts.configuration.own_connector()
    if own is None or parts.credentials is None:
        raise ConfigError("replication needs a cluster-connection", path="core/ha-policy/replication")
    cluster = configuration.cluster_connection(settings.cluster_name)
    saved_max = settings.max_saved_replicated_journals_size

    def is_free() -> bool:
        """Whether the pair of the data of this backup has another replica, or a group-name of its own."""
        if options.role is Role.BACKUP and not used.authority.by_votes:
            return replica.place_taken or serves_another_group(parts, settings.group_name)
        return False

    replica_options = ReplicaOptions(
        configuration.name,
        own,
        settings.group_name,
        options.wants_failback,
        parts.credentials,
        replace(peer_options(cluster), silence_ms=settings.silence_ms),
        used.authority.copied_at,
        lambda: settings.of_node or (None if is_free() else used.authority.data_node_id()),
        lambda: options.role is Role.PRIMARY and policy.standby_life.refused,
        parts.watch.had,
        parts.environment.replication_protocol,
    )
    replica = ReplicaLink(
        replica_options,
        lambda: replica_candidates(parts, cluster, replica_options),
        policy.standby_life,
        lambda link: TargetCopy(parts, used.worker, used.local, saved_max, link),
        LoopDialer(parts.loop, parts.turn, parts.configuration.tls_for),
        parts.environment.clock,
        parts.turn,
        parts.turn,
    )
    policy.set_replica(replica)
    policy.standby_life.empty_start = standby.empty_start(used.local, used.worker, saved_max)
    policy.standby_life.why_not_serve = parts.watch.why_not_serve
    policy.standby_life.all_heard = partial(parts.discovery.all_heard, cluster.discovery_group)
    policy.standby_life.not_asked = lambda: members_not_asked(parts, replica_options, replica.answered)
    policy.standby_life.others_not_asked = lambda: others_not_asked(parts, own, replica.answered)
    replication.replica = replica
    policy.standby_life.listener = replication.listener()
    return policy
