"""Rules for the links of a node to the members of its cluster, and its votes."""

from __future__ import annotations

from collections.abc import Callable

from understudy.cluster.membership.membership import Membership
from understudy.cluster.membership.topology import Topology
from understudy.config.high_availability import Role
from understudy.config.model import ClusterConnectionConfiguration
from understudy.errors import ActivationRefused
from understudy.ha.votes.round import Answer, Pending, Question
from understudy.runtime.base.node_configuration import NodeConfiguration
from understudy.wire.core.packets import FailoverVote
from understudy.wire.core.peer import PeerOptions
from understudy.wire.core.transport import TransportConfiguration


def peer_options(connection: ClusterConnectionConfiguration) -> PeerOptions:
    """Time limits of the connections to other nodes."""
    return PeerOptions(connection.connection_ttl_ms, connection.check_period_ms, connection.call_timeout_ms)


def twin_rule(
    configuration: NodeConfiguration, end: Callable[[BaseException], None]
) -> Callable[[TransportConfiguration, bool], None]:
    """The call for another node that is active under the id of this one, as both have proved to each other.

    The younger of two single nodes ends. In a pair the lock decides which node is active.

    Args:
        end: Ends this node because of an error.
    """

    def found(connector: TransportConfiguration, younger: bool) -> None:
        if younger and configuration.current.ha_policy.role is Role.PRIMARY_ONLY:
            text = f"the node at {connector.to_url()} was active under the node id of this node before this node"
            hint = "was the store, or the machine with it, copied?"
            end(ActivationRefused(text, hint=hint))

    return found


class _Cancelling:
    """A request for votes as ``ha.votes.round.Pending``."""

    def __init__(self, cancel: Callable[[], None]) -> None:
        self.cancel = cancel


class ClusterBallot:
    """Votes by the links of a node. Implements ``ha.votes.round.Ballot``."""

    def __init__(self, membership: Membership, topology: Topology, configuration: NodeConfiguration) -> None:
        self._membership = membership
        self._topology = topology
        self._configuration = configuration

    @property
    def nodes_seen(self) -> int:
        return self._topology.nodes_seen

    def own_connector(self) -> Question:
        own = self._configuration.own_connector()
        assert own is not None
        return Question(self._membership.node_id, own.to_vote_text())

    def put(self, question: Question, cast: Callable[[Answer | None], None], all_cast: Callable[[], None]) -> Pending:
        request = FailoverVote(question.connector is not None, question.node_id)

        def voted(vote: FailoverVote | None) -> None:
            cast(None if vote is None else Answer(vote.agreed, vote.connector))

        return _Cancelling(self._membership.put_vote(request, voted, all_cast))
