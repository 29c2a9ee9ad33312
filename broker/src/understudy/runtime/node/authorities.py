"""The authority of a replicated pair, as its configuration asks for it: a lock manager or votes."""

from __future__ import annotations

import logging
from typing import Final

from understudy.config.high_availability import ReplicationConfiguration
from understudy.config.high_availability import Role as ConfiguredRole
from understudy.config.lock_options import LockManagerOptions
from understudy.ha.life.network_check import NetworkVoter
from understudy.ha.locks.local_sequence import LocalSequence
from understudy.ha.replication.given_promise import GivenPromise
from understudy.ha.replication.lock_authority import LockAuthority, NodeData
from understudy.ha.replication.ports import Authority
from understudy.ha.replication.shared_note import SharedNote
from understudy.ha.replication.vote_authority import VoteAuthority, VoteAuthorityOptions
from understudy.ha.votes.decisions import ClusterVoter, QuorumVoter, VoteOptions
from understudy.ports import Worker
from understudy.runtime.base.parts import NodeParts
from understudy.runtime.locks.providers import make_lock_manager
from understudy.runtime.members.member_rules import ClusterBallot
from understudy.runtime.replica.copied_store import copy_note, is_complete

log = logging.getLogger(__name__)

#: Other nodes in a cluster of two pairs: with fewer, no vote of another node id is possible (artemis-ha s. 3.3).
SAFE_OTHERS: Final = 3


def make_authority(
    parts: NodeParts, replication: ReplicationConfiguration, local: LocalSequence, worker: Worker
) -> Authority:
    """The authority of a node.

    Args:
        local: Activation sequence of its data.
        worker: Writes files.

    Raises:
        ConfigError: its lock manager cannot be made.
    """
    if replication.lock_manager is None:
        return _vote_authority(parts, replication, local, worker)
    return _lock_authority(parts, replication.lock_manager, local, worker)


def _lock_authority(
    parts: NodeParts, options: LockManagerOptions, local: LocalSequence, worker: Worker
) -> LockAuthority:
    configuration, environment = parts.configuration.current, parts.environment
    clock = environment.lock_clock or environment.clock
    make_manager = environment.lock_manager or make_lock_manager
    return LockAuthority(
        make_manager(options, configuration.name, environment, parts.loop, parts.turn),
        local,
        NodeData(
            lambda: parts.lock.node_id,
            lambda: configuration.ha_policy.role is ConfiguredRole.PRIMARY,
            lambda: is_complete(parts),
        ),
        clock,
        parts.turn,
        GivenPromise(environment.disk, configuration.node_manager_lock_directory, worker, clock, parts.turn),
    )


def _vote_authority(
    parts: NodeParts, replication: ReplicationConfiguration, local: LocalSequence, worker: Worker
) -> VoteAuthority:
    configuration, environment, membership = parts.configuration.current, parts.environment, parts.membership
    assert membership is not None, "the configuration has a cluster-connection"
    options = VoteOptions(
        replication.quorum_size,
        replication.vote_retries,
        replication.vote_retry_wait_ms,
        replication.quorum_vote_wait_seconds,
    )
    ballot = ClusterBallot(membership, parts.topology, parts.configuration)
    voter: QuorumVoter = ClusterVoter(options, ballot, parts.turn)
    network, connection = parts.network_check, configuration.cluster_connections[0]
    # with discovery the number of other pairs is unknown
    few_others = connection.discovery_group is None and len(connection.static_connectors) < SAFE_OTHERS
    if network is not None:
        voter = NetworkVoter(network, voter)
    elif replication.quorum_size == -1 and few_others:
        log.warning(
            "no other pair can vote: if the two nodes of this pair do not reach each other, both become active",
            extra={"hint": "configure a manager such as a witness (docs/operate/lock-managers.md), or a network check"},
        )
    own = parts.configuration.own_connector()
    return VoteAuthority(
        VoteAuthorityOptions(
            configuration.ha_policy.role is ConfiguredRole.PRIMARY,
            replication.check_for_active_server,
            replication.vote_on_replication_failure,
            "" if own is None else f"{own.host}:{own.port}",
        ),
        local,
        SharedNote(environment.disk, configuration.node_manager_lock_directory, worker),
        lambda: copy_note(parts),
        lambda: parts.lock.node_id,
        voter,
        network,
    )
