"""Policies of nodes, as their configurations ask for them."""

from __future__ import annotations

from functools import partial

from understudy.ha.life.policy import Decisions, Policy, Role, ScaleDownOutcome
from understudy.ha.locks.local_sequence import LocalSequence
from understudy.ha.replication.policy import ReplicationOptions, ReplicationPolicy
from understudy.ha.replication.standby_life import StandbyLife, Surroundings
from understudy.ha.shared.lock_proof import LockProof
from understudy.ha.shared.policy import SharedStoreOptions, SharedStorePolicy
from understudy.runtime.base.parts import NodeParts
from understudy.runtime.members.scale_down import NodeScaleDown
from understudy.runtime.node.authorities import make_authority
from understudy.runtime.node.standby import NodeStandby
from understudy.runtime.node.waiting_acceptors import WaitingAcceptors
from understudy.runtime.replica.empty_start import make_empty_start
from understudy.runtime.replica.replication import NodeReplication, ReplicationParts
from understudy.runtime.replica.search import replica_of, replica_place
from understudy.store.replication.shipping import Shipping


def make_replication_parts(parts: NodeParts) -> ReplicationParts | None:
    """Objects that the active and the passive side of a replicated node share; None if the node is not one of a
    replicated pair.

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
    place = replica_place(parts, replication).refusal
    return ReplicationParts(replication, authority, local, worker, place, Shipping())


def make_shared_store_policy(
    parts: NodeParts, standby: NodeStandby, proof: LockProof, scale_down: NodeScaleDown, life: Decisions
) -> Policy:
    """The policy of a shared store, or of a single node.

    Args:
        standby: The node while another one is active.
        proof: Proof that the lock of the store is held.
        scale_down: Whether its messages have moved, of a backup that moves them in its activation.
        life: Takes the decisions.
    """
    configuration, environment = parts.configuration.current, parts.environment
    policy = configuration.ha_policy

    def all_moved() -> bool:
        moved = scale_down.outcome
        return moved is not None and moved.complete

    options = SharedStoreOptions(
        role=Role(policy.role.value),
        failover_on_shutdown=policy.failover_on_shutdown,
        allow_failback=policy.allow_failback,
        restart_backup=policy.restart_backup,
        lock_timeout_ms=configuration.journal_lock_acquisition_timeout_ms,
        scaled_down=all_moved if policy.moves_instead_of_serving else None,
    )
    clock = environment.lock_clock or environment.clock
    return SharedStorePolicy(options, life, standby, parts.lock, proof, clock, environment.timers)


def make_replication_policy(
    parts: NodeParts,
    standby: NodeStandby,
    replication: NodeReplication,
    scale_down: NodeScaleDown,
    life: Decisions,
) -> Policy:
    """The policy of a replicated pair.

    Args:
        standby: The node while another one is active.
        replication: Replication of the node while it is active.
        scale_down: Whether its messages have moved, of a backup that moves them in its activation.
        life: Takes the decisions.

    Raises:
        ConfigError: there is no cluster-connection.
    """
    configuration, used = parts.configuration.current, replication.used
    settings, authority = used.settings, used.authority
    moves = configuration.ha_policy.moves_instead_of_serving

    def moved() -> ScaleDownOutcome | None:
        return scale_down.outcome if moves else None

    options = ReplicationOptions(
        role=Role(configuration.ha_policy.role.value),
        allow_failback=configuration.ha_policy.allow_failback,
        restart_backup=configuration.ha_policy.restart_backup,
        retry_wait_ms=settings.retry_replication_wait_ms,
        peer=settings.coordination_id is not None,
        moved=moved,
    )
    cluster = configuration.cluster_connection(settings.cluster_name)
    saved_max = settings.max_saved_replicated_journals_size
    around = Surroundings(
        all_heard=partial(parts.discovery.all_heard, cluster.discovery_group),
        why_not_serve=parts.watch.why_not_serve,
        empty_start=make_empty_start(parts, used.local, used.worker, saved_max),
        listener=WaitingAcceptors(parts, authority) if authority.by_votes else None,
    )
    replica_maker = partial(replica_of, parts, used, options)
    standby_life = StandbyLife(
        life, standby, authority, parts.turn, replica_maker, around, retry_wait_ms=options.retry_wait_ms
    )
    clock = parts.environment.lock_clock or parts.environment.clock
    return ReplicationPolicy(options, life, standby_life, authority, replication, parts.turn, clock)
