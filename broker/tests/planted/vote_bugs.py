"""Planted bugs of a pair without a lock manager: votes that are ignored or forgotten, old copies that activate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from planted.planting import Patch, planted
from planted.replication_bugs import NOT_LOST, OLD_DATA
from understudy.cluster.membership.held_votes import HeldVotes
from understudy.ha.replication import vote_authority
from understudy.ha.replication.standing import Standing, Start
from understudy.ha.replication.vote_authority import VoteAuthority
from understudy.testing.runs.fault_plan import Fault, FaultKind
from understudy.testing.runs.quorum_run import QuorumRun
from understudy.testing.runs.scenario_run import ScenarioRun
from understudy.testing.scenarios.replicated_pair import with_pair_faults

_QUORUM: Final = "quorum"


@planted("votes-forgotten", promise=NOT_LOST, checks=OLD_DATA, elsewhere={_QUORUM: range(6)})
def _votes_forgotten(patch: Patch) -> type[ScenarioRun]:
    """A node answers a vote from its topology alone, whatever it has answered the other side of the pair before."""
    patch.replace(HeldVotes, "_hold", lambda self, node_id, held: None)
    return with_pair_faults(Fault(0, 8.0, FaultKind.PART_THEN_KILL, "", 8.0, 0.84, 0), run_class=QuorumRun)


@planted(
    "vote-ignored", promise="a node id has one active node", checks=OLD_DATA,
    elsewhere={_QUORUM: range(6)},
)  # fmt: skip
def _vote_ignored(patch: Patch) -> type[ScenarioRun]:
    """A replica that lost its active node activates, whatever the other nodes have answered."""
    old: Callable[[Any, bool], None] = patch.replace(VoteAuthority, "_decided_gone", lambda self, gone: old(self, True))
    return with_pair_faults(
        Fault(0, 8.0, FaultKind.PART_NODES, "", 12.0, 0.3, 0), Fault(1, 18.0, FaultKind.KILL, "a", 8.0, 0.0, 0),
        run_class=QuorumRun,
    )  # fmt: skip


@planted("old-copy-activates", promise="a node with stale data does not become active by itself", checks=OLD_DATA,
         elsewhere={_QUORUM: range(6)})  # fmt: skip
def _old_copy_activates(patch: Patch) -> type[ScenarioRun]:
    """A node with a copy starts with it if it finds no active node, as if it had been active last."""

    def start(found: Standing, **options: Any) -> Start:
        return Start.LOOK_FIRST if found is Standing.REPLICA else old(found, **options)

    old: Callable[..., Start] = patch.replace(vote_authority, "start", start)
    return with_pair_faults(
        Fault(0, 6.0, FaultKind.KILL, "b", 8.0, 0.0, 0), Fault(1, 10.0, FaultKind.KILL, "a", 12.0, 0.0, 0),
        run_class=QuorumRun,
    )  # fmt: skip
