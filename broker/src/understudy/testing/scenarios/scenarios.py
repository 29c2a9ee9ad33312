"""The scenarios of shared stores, and the list of all scenarios."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from understudy.testing.runs.cluster_configuration import PAIR, NodeRole
from understudy.testing.runs.fault_plan import LAST_KINDS
from understudy.testing.runs.plan import Plan
from understudy.testing.scenarios.amqp091 import Amqp091, Amqp091Members
from understudy.testing.scenarios.grouped_pair import GroupedPair
from understudy.testing.scenarios.member_replicas import MemberReplicas
from understudy.testing.scenarios.members import MemberPairs, Members
from understudy.testing.scenarios.quorum import Quorum
from understudy.testing.scenarios.replicated_pair import ReplicatedPair
from understudy.testing.scenarios.scaled_replicas import ScaledReplicas
from understudy.testing.scenarios.scaled_voters import ScaledVoters
from understudy.testing.scenarios.scenario import Scenario
from understudy.testing.scenarios.ungrouped_pairs import UngroupedPairs
from understudy.testing.scenarios.wrong_reads_pair import WrongReads


class SharedStore(Scenario):
    """A primary and a backup."""

    name = "shared-store"
    text = "a primary and a backup on one store"
    last_kinds = LAST_KINDS

    def nodes(self, seed: int) -> tuple[NodeRole, ...]:
        return PAIR


class SharedStoreBackups(Scenario):
    """A primary and several backups, one of them next in line."""

    name = "shared-store-backups"
    text = "a primary and two or three backups on one store; one is next in line, the others are queued"
    last_kinds = LAST_KINDS

    def nodes(self, seed: int) -> tuple[NodeRole, ...]:
        count = random.Random(f"{seed}/backups").choice((2, 2, 3))
        return (NodeRole("a", "primary"), *(NodeRole(name, "backup") for name in "bcd"[:count]))


class SharedStoreSymmetric(Scenario):
    """Two primaries: after a failover no node fails back."""

    name = "shared-store-symmetric"
    text = "two primaries on one store, with failover-on-shutdown and wait-for-activation false"
    last_kinds = LAST_KINDS

    def nodes(self, seed: int) -> tuple[NodeRole, ...]:
        return (NodeRole("a", "primary", waits=False), NodeRole("b", "primary", waits=False))

    def configure(self, plan: Plan) -> Plan:
        return replace(plan, pair=replace(plan.pair, failover_on_shutdown=True))


SHARED_STORE: Final = SharedStore()
_SHARED: Final = (SHARED_STORE, SharedStoreBackups(), SharedStoreSymmetric())
#: Names of the scenarios in which all nodes share one store.
SHARED_STORES: Final = tuple(scenario.name for scenario in _SHARED)
#: All scenarios by name.
SCENARIOS: Final[dict[str, Scenario]] = {
    scenario.name: scenario
    for scenario in (
        *_SHARED,
        ReplicatedPair(),
        GroupedPair(),
        Quorum(),
        Members(),
        MemberPairs(),
        MemberReplicas(),
        UngroupedPairs(),
        ScaledReplicas(),
        ScaledVoters(),
        WrongReads(),
        Amqp091(),
        Amqp091Members(),
    )
}
