"""One run of the members of a cluster that share the messages of a queue."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import replace
from typing import ClassVar

from understudy.ledger import Kind
from understudy.testing.checkers import EpochChecker, Violation
from understudy.testing.cluster_configuration import PORT
from understudy.testing.plan import Plan
from understudy.testing.scenario_run import ScenarioRun
from understudy.testing.sim_loop import SimLoop
from understudy.testing.sim_storage import SharedStorage
from understudy.testing.workload import ProducerJob, group_of


class EpochsOfMembers(EpochChecker):
    """The epochs of nodes with a store each: those of one node are not compared with those of another."""

    def __init__(self) -> None:
        super().__init__()
        self._by_node: dict[str, EpochChecker] = {}

    def _of(self, label: str) -> EpochChecker:
        # the label of a process is the name of its host with a number
        return self._by_node.setdefault(label.partition(".")[0], EpochChecker())

    def activated(self, now: float, node: str, epoch: int, others_serving: Collection[str]) -> None:
        """See ``EpochChecker``; all members serve at the same time."""
        checker = self._of(node)
        checker.activated(now, node, epoch, ())
        self.activations.append(checker.activations[-1])
        self._collect()

    def confirmed(self, now: float, node: str, epoch: int, durable_at_s: float) -> None:
        """See ``EpochChecker``."""
        self.confirmations += 1
        self._of(node).confirmed(now, node, epoch, durable_at_s)
        self._collect()

    def _collect(self) -> None:
        self.violations = [each for checker in self._by_node.values() for each in checker.violations]


class MembersRun(ScenarioRun):
    """One run of two to four members."""

    members: ClassVar[bool] = True

    def __init__(self, plan: Plan, loop: SimLoop) -> None:
        super().__init__(plan, loop)
        self.cluster.epochs = EpochsOfMembers()

    def make_storages(self) -> list[SharedStorage]:
        """See ``ScenarioRun``: one for each member."""
        return [self.storage_class(self.loop, replace(self.plan.storage)) for _ in self.plan.nodes]

    def _url(self, node: str) -> str:
        options = self.plan.url.partition("?")[2].replace("ha=true", "ha=false")
        return f"tcp://{node}:{PORT}?{options}&useTopologyForLoadBalancing=false"

    def url_of(self, client: str) -> str:
        """See ``ScenarioRun``: that of one member."""
        names = [node.name for node in self.plan.nodes]
        if client in self._consumers and len(self._consumers) >= len(names):
            return self._url(names[list(self._consumers).index(client) % len(names)])
        return self._url(random.Random(f"{self.plan.seed}/member of {client}").choice(names))

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
        for node in self.plan.nodes:
            if not await self._observe(self._url(node.name), deadline):
                return False
        return True

    def _judge_store(self) -> None:
        """See ``ScenarioRun``: the stores of all members, with their store-and-forward queues."""
        for node in self.cluster.nodes.values():
            before = len(self.violations)
            self._judge_one(node.storage)
            found = self.violations[before:]
            self.violations[before:] = [Violation(each.check, f"{node.name}: {each.text}") for each in found]
