"""One run of members of a cluster, single nodes or pairs with a shared store, that share the messages of a queue."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import ClassVar

from understudy.ledger import Kind
from understudy.testing.runs.checkers import EpochChecker, Violation
from understudy.testing.runs.cluster import SimNode
from understudy.testing.runs.cluster_configuration import PORT, NodeRole
from understudy.testing.runs.member_strikes import MemberStrikes
from understudy.testing.runs.plan import Plan
from understudy.testing.runs.scenario_run import ScenarioRun
from understudy.testing.runs.strikes import Strikes
from understudy.testing.runs.workload import ProducerJob, group_of
from understudy.testing.sim.loop import SimLoop
from understudy.testing.sim.storage import SharedStorage


class EpochsOfMembers(EpochChecker):
    """The epochs of members with a store each: those of one member are not compared with those of another."""

    def __init__(self, nodes: Sequence[NodeRole]) -> None:
        """Args:
        nodes: Nodes of all members; nodes of one group are one member.
        """
        super().__init__()
        self._groups = {node.name: node.group for node in nodes}
        self._by_member = {node.group: EpochChecker() for node in nodes}

    def _member(self, label: str) -> str:
        # the label of a process is the name of its host with a number
        return self._groups[label.partition(".")[0]]

    def _of(self, label: str) -> EpochChecker:
        return self._by_member[self._member(label)]

    def activated(self, now: float, node: str, epoch: int, others_serving: Collection[str]) -> None:
        """See ``EpochChecker``; all members serve at the same time."""
        checker = self._of(node)
        same = [other for other in others_serving if self._member(other) == self._member(node)]
        checker.activated(now, node, epoch, same)
        self.activations.append(checker.activations[-1])
        self._collect()

    def confirmed(self, now: float, node: str, epoch: int, durable_at_s: float) -> None:
        self.confirmations += 1
        self._of(node).confirmed(now, node, epoch, durable_at_s)
        self._collect()

    def _collect(self) -> None:
        self.violations = [each for checker in self._by_member.values() for each in checker.violations]


class MembersRun(ScenarioRun):
    """One run of two to four members."""

    strikes_class: ClassVar[type[Strikes]] = MemberStrikes

    members: ClassVar[bool] = True

    def __init__(self, plan: Plan, loop: SimLoop) -> None:
        super().__init__(plan, loop)
        self.cluster.epochs = EpochsOfMembers(plan.nodes)
        self._members: dict[str, list[str]] = {}
        """The nodes of each member."""
        for node in plan.nodes:
            self._members.setdefault(node.group, []).append(node.name)

    def make_storages(self) -> list[SharedStorage]:
        """Make a storage for each member; see ``ScenarioRun``."""
        made: dict[str, SharedStorage] = {}
        for node in self.plan.nodes:
            if node.group not in made:
                made[node.group] = self.storage_class(self.loop, replace(self.plan.storage))
        return [made[node.group] for node in self.plan.nodes]

    def _url(self, member: str) -> str:
        options = self.plan.url.partition("?")[2]
        nodes = self._members[member]
        if len(nodes) == 1:
            options = options.replace("ha=true", "ha=false")
        places = ",".join(f"tcp://{node}:{PORT}" for node in nodes)
        places = f"({places})" if len(nodes) > 1 else places
        return f"{places}?{options}&useTopologyForLoadBalancing=false"

    def url_of(self, client: str) -> str:
        """See ``ScenarioRun``: that of one member."""
        names = list(self._members)
        if client in self._consumers and len(self._consumers) >= len(names):
            return self._url(names[list(self._consumers).index(client) % len(names)])
        return self._url(random.Random(f"{self.plan.seed}/member of {client}").choice(names))

    def others_of(self, client: str) -> tuple[str, ...]:
        """See ``ScenarioRun``: all members but its own."""
        if not self.plan.pair.scale_down:
            return ()
        own = self.url_of(client)
        return tuple(url for url in map(self._url, self._members) if url != own)

    def judge(self) -> tuple[Violation, ...]:
        """See ``ScenarioRun``; all messages of a group come from one member, and in the order of each producer."""
        found: list[Violation] = []
        places: dict[str, set[str]] = {}
        last: dict[tuple[str, str], int] = {}
        seen: set[tuple[str, int]] = set()
        for row in self.book.rows:
            job = self._producers.get(row.producer.rpartition(".")[0])
            group = group_of(job, row.number) if isinstance(job, ProducerJob) else None
            if row.kind is not Kind.DELIVERED or group is None:
                continue
            places.setdefault(group, set()).add(row.consumer.rpartition(".")[0])
            if (row.producer, row.number) not in seen:
                # a message that is delivered again comes after later ones
                seen.add((row.producer, row.number))
                if last.get((row.producer, group), -1) > row.number:
                    found.append(Violation("group-order", f"{row.producer} {row.number} of {group} came late"))
                last[row.producer, group] = row.number
        found += [
            Violation("group-split", f"{group} went to {sorted(names)}")
            for group, names in places.items()
            if len(names) > 1
        ]
        return (*super().judge(), *found)

    async def _observe_all(self, deadline: float) -> bool:
        """See ``ScenarioRun``: the queue of each member."""
        for member in self._members:
            if not await self._observe(self._url(member), deadline):
                return False
        return True

    def storage_of(self, nodes: Sequence[SimNode]) -> SharedStorage:
        """The storage that has everything of a member at the end."""
        return nodes[0].storage

    def _judge_store(self) -> None:
        """See ``ScenarioRun``: the stores of all members, with their store-and-forward queues."""
        for member, nodes in self._members.items():
            before = len(self.violations)
            self._judge_one(self.storage_of([self.cluster.nodes[name] for name in nodes]))
            found = self.violations[before:]
            self.violations[before:] = [Violation(each.check, f"{member}: {each.text}") for each in found]
