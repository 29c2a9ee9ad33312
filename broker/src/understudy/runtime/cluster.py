"""The membership of a node in its cluster, made from its configuration, and its votes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from understudy.cluster.credentials import ClusterCredentials
from understudy.cluster.member_link import LinkSettings
from understudy.cluster.membership import Membership, MembershipSettings
from understudy.cluster.topology import Topology
from understudy.config.high_availability import Role
from understudy.config.model import ClusterConnectionConfiguration
from understudy.errors import ActivationRefused
from understudy.ha.vote_round import Answer, Pending, Question
from understudy.ports import Clock
from understudy.runtime.connector import LoopDialer
from understudy.runtime.node_configuration import NodeConfiguration
from understudy.runtime.turn import Turn
from understudy.wire.core.packets import FailoverVote
from understudy.wire.core.peer import PeerOptions
from understudy.wire.core.transport import TransportConfiguration


def peer_options(connection: ClusterConnectionConfiguration) -> PeerOptions:
    """Time limits of the connections to other nodes."""
    return PeerOptions(connection.connection_ttl_ms, connection.check_period_ms, connection.call_timeout_ms)


def make_membership(
    configuration: NodeConfiguration,
    topology: Topology,
    credentials: ClusterCredentials,
    loop: asyncio.AbstractEventLoop,
    clock: Clock,
    turn: Turn,
) -> Membership:
    """The membership of a node in the cluster of all its cluster connections.

    Its links have the intervals and limits of the first one, and lead to the members of all.

    Args:
        configuration: Of the node, with a cluster-connection.
        topology: Of the node.
        credentials: Of the cluster.
        loop: Opens connections.
        clock: Of the node.
        turn: Of the node.
    """
    connections = configuration.current.cluster_connections
    connection = connections[0]
    own = configuration.own_connector()
    assert own is not None
    replication = configuration.current.ha_policy.replication
    settings = MembershipSettings(
        link=LinkSettings(
            connection.retry_interval_ms,
            connection.retry_interval_multiplier,
            connection.max_retry_interval_ms,
            peer_options(connection),
        ),
        initial_connect_attempts=connection.initial_connect_attempts,
        reconnect_attempts=connection.reconnect_attempts,
        topology_scanner_attempts=connection.topology_scanner_attempts,
        notification_interval_ms=connection.notification_interval_ms,
        notification_attempts=connection.notification_attempts,
        direct_connections_only=all(each.allow_direct_connections_only for each in connections),
        group=None if replication is None else replication.group_name,
    )
    names = dict.fromkeys(name for each in connections for name in each.static_connectors)
    statics = [configuration.connector(name) for name in names]
    dialer = LoopDialer(loop, turn, configuration.tls_for)
    return Membership(topology, own, statics, settings, credentials, dialer, clock, turn)


def twin_rule(
    configuration: NodeConfiguration, end: Callable[[BaseException], None]
) -> Callable[[TransportConfiguration, bool], None]:
    """The call for another node that is active under the id of this one, as both have proved to each other.

    The younger of two single nodes ends. In a pair the lock decides which node is active.

    Args:
        configuration: Of this node.
        end: Ends this node because of an error.
    """

    def found(connector: TransportConfiguration, younger: bool) -> None:
        if younger and configuration.current.ha_policy.role is Role.PRIMARY_ONLY:
            text = f"the node at {connector.to_url()} was active under the node id of this node before this node"
            hint = "was the store, or the machine with it, copied?"
            end(ActivationRefused(text, hint=hint))

    return found


class _Cancelling:
    """A request for votes as ``ha.vote_round.Pending``."""

    def __init__(self, cancel: Callable[[], None]) -> None:
        self.cancel = cancel


class ClusterBallot:
    """Votes by the links of a node. Implements ``ha.vote_round.Ballot``."""

    def __init__(self, membership: Membership, topology: Topology, configuration: NodeConfiguration) -> None:
        self._membership = membership
        self._topology = topology
        self._configuration = configuration

    @property
    def nodes_seen(self) -> int:
        """See ``Ballot``."""
        return self._topology.nodes_seen

    def own_connector(self) -> Question:
        """See ``Ballot``."""
        own = self._configuration.own_connector()
        assert own is not None
        return Question(self._membership.node_id, own.to_vote_text())

    def put(self, question: Question, cast: Callable[[Answer | None], None], all_cast: Callable[[], None]) -> Pending:
        """See ``Ballot``."""
        request = FailoverVote(question.connector is not None, question.node_id)

        def voted(vote: FailoverVote | None) -> None:
            cast(None if vote is None else Answer(vote.agreed, vote.connector))

        return _Cancelling(self._membership.put_vote(request, voted, all_cast))
