"""An operator of a replicated pair, who runs the command for which the documents ask, and no other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from understudy.errors import BrokerError
from understudy.ha.replication.policy import ReplicationPolicy
from understudy.ha.replication.promotion import Promotion
from understudy.ha.replication.standing import Standing
from understudy.ha.replication.vote_authority import VoteAuthority
from understudy.testing.runs.cluster import SimCluster, SimNode

#: Virtual seconds until a command that failed is repeated.
AGAIN_S: Final = 1.0


class Operator:
    """An operator of a pair without a lock manager."""

    def __init__(self, cluster: SimCluster, pair: Sequence[str] | None = None) -> None:
        """Args:
        pair: Names of its two nodes; None: the cluster has no others.
        """
        self.promotions = 0
        """Commands that were run."""
        self._cluster = cluster
        self._pair = tuple(cluster.nodes) if pair is None else pair
        self._loop = cluster.loop

    def look(self) -> None:
        """Promote the node that was active last if its replica has no data, or a note that cannot be read: the one case
        in which a pair of which both nodes run waits for an operator (ADR 0064, 0202). The replica ended before its own
        first note.
        """
        standings: dict[Standing, SimNode] = {}
        stated = False
        for node in (self._cluster.nodes[name] for name in self._pair):
            replication = node.server.replication if node.server is not None else None
            if replication is None or node.state != "passive":
                return
            authority = replication.used.authority
            assert isinstance(authority, VoteAuthority)
            standings[authority.standing()] = node
            stated |= authority.standing() is Standing.INCOMPLETE and authority.waiting_copy() is not None
        last_active = standings.pop(Standing.SHARED, None)
        if last_active is None or not standings.keys() & {Standing.NEW, Standing.INCOMPLETE} or stated:
            return
        assert last_active.server is not None
        assert last_active.process is not None
        policy = last_active.server.policy
        assert isinstance(policy, ReplicationPolicy)
        self._loop.record(f"an operator promotes {last_active.name}")
        self.promotions += 1

        def answered(outcome: Promotion | BrokerError) -> None:
            self._loop.record(f"promotion: {outcome}")
            if isinstance(outcome, BrokerError):
                # for instance the disk failed
                self._loop.call_later(AGAIN_S, self.look)

        async def promote() -> None:
            policy.standby_life.promote(answered)

        # in the process of the node, as its management would
        last_active.process.create_task(promote())
