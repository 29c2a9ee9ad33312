"""The votes of an active node about the pairs of its cluster, which bind it: it never helps both sides of a pair.

A node that lost its replica asks whether it may stay active, and goes on alone when enough nodes agree. Its former
replica asks in several rounds whether that node is gone (artemis-ha s. 3.3). Without a memory both can win: the first
one wins, confirms messages alone, and ends; a later round then lets the former replica activate with old data. Two
majorities have a voter in common, so it is enough that each voter keeps its word (ADR 0067):

- a node to which the vote to stay was given is not called gone afterwards, until it has a replica in sync again;
- a node that was called gone gets no vote to stay, until the other side has asked again, or can no longer use the
  answer; if the other side took over, until that has a replica in sync.

A voter that ends forgets. Not here: the questions (``ha.votes.decisions``), the connections
(``protocols.core.cluster_channel``).
"""

from __future__ import annotations

from typing import Any, Final

from understudy.cluster.membership.topology import Topology
from understudy.dataclass import dataclass
from understudy.limits import CLUSTER_NODES_MAX
from understudy.wire.core.packets import FailoverVote, NodeAnnounce, PairState
from understudy.wire.core.transport import TransportConfiguration

#: Time for which a node that was called gone gets no vote to stay: the default of quorum-vote-wait, after which the
#: other side does not use the answer any more.
GONE_HELD_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class _Stays:
    """The vote to stay was given, or the node took over."""

    at: TransportConfiguration
    """Connector of the node that is active."""


@dataclass(frozen=True, slots=True)
class _Gone:
    """The node was called gone."""

    to: TransportConfiguration | None
    """Connector of the node that asked."""
    until_ms: int


class HeldVotes:
    """The votes that an active node has given, by node id; at most ``CLUSTER_NODES_MAX``, the newest."""

    def __init__(self) -> None:
        self._held: dict[str, _Stays | _Gone] = {}
        self._sequences: dict[str, int] = {}
        """Highest activation sequence of each node id, as its active nodes said."""

    def answer(
        self, topology: Topology, vote: FailoverVote, asking: TransportConfiguration | None, now_ms: int
    ) -> FailoverVote:
        """The vote of this node, from its own topology and its earlier votes.

        A node that is seen active: the request is confirmed if it was to stay active, else denied, with its connector;
        a node that is not seen: the opposite.

        Args:
            vote: The request.
            asking: Connector that the asking node has announced on its connection.
            now_ms: Monotonic time.
        """
        member = topology.member(vote.node_id)
        seen = None if member is None else member.primary
        held = self._held.get(vote.node_id)
        if vote.agreed:
            if seen is None or _denies(held, asking, now_ms):
                return FailoverVote(False, vote.node_id, None)
            if _same(seen, asking):
                self._hold(vote.node_id, _Stays(seen))
            return FailoverVote(True, vote.node_id, seen.to_vote_text())
        if isinstance(held, _Stays) and not _same(held.at, asking):
            seen = seen or held.at
        if seen is not None:
            if isinstance(held, _Gone):
                del self._held[vote.node_id]
            return FailoverVote(False, vote.node_id, seen.to_vote_text())
        self._hold(vote.node_id, _Gone(asking, now_ms + GONE_HELD_MS))
        return FailoverVote(True, vote.node_id, None)

    def announced(self, packet: NodeAnnounce) -> None:
        """A node has announced itself as active: with a replica in sync, or in the place of the node that was gone.

        The statement of another node than the one that stays does not count: it may have been stopped (SIGSTOP), and
        not have noticed yet that its replica took over.
        """
        held, connector = self._held.get(packet.node_id), packet.connector
        if packet.backup or held is None or connector is None:
            return
        if isinstance(held, _Gone):
            if _same(held.to, connector):
                self._hold(packet.node_id, _Stays(connector))
        elif packet.backup_connector is not None and _same(held.at, connector):
            del self._held[packet.node_id]

    def pair_state(self, state: PairState) -> None:
        """An active node has said its activation sequence, and whether its replica is in sync: a pair in sync is not
        bound any more, unless the node is older than another one that was active.
        """
        known = self._sequences.pop(state.node_id, -1)
        self._sequences[state.node_id] = max(known, state.sequence)
        _limit(self._sequences)
        if state.in_sync and state.sequence >= known and isinstance(self._held.get(state.node_id), _Stays):
            del self._held[state.node_id]

    def _hold(self, node_id: str, held: _Stays | _Gone) -> None:
        self._held.pop(node_id, None)
        self._held[node_id] = held
        _limit(self._held)


def _limit(values: dict[str, Any]) -> None:
    """Forget the oldest value if there are too many."""
    if len(values) > CLUSTER_NODES_MAX:
        del values[next(iter(values))]


def _denies(held: _Stays | _Gone | None, asking: TransportConfiguration | None, now_ms: int) -> bool:
    """Whether an earlier vote speaks against the vote to stay."""
    if isinstance(held, _Stays):
        return not _same(held.at, asking)
    return held is not None and now_ms < held.until_ms and not _same(held.to, asking)


def _same(one: TransportConfiguration | None, other: TransportConfiguration | None) -> bool:
    return one is not None and one.same_place(other)
