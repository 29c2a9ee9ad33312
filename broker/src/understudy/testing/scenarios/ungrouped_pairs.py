"""The scenario of two replicated pairs of one cluster without group-names (ADR 0119).

Their backups register at whichever primary has a free place, so the node id stands for a pair: each primary keeps the
store with which it became active first, and a backup belongs to the primary whose node id its data has. Nodes are
judged by that, not by the group of the plan, which says at which nodes faults strike. Both backups may end with one
primary, so every node id is served at the end, but not each one has a replica.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final

from understudy.testing.runs.checkers import EpochChecker, Violation
from understudy.testing.runs.cluster import SimNode
from understudy.testing.runs.cluster_configuration import PORT, NodeRole
from understudy.testing.runs.plan import Plan
from understudy.testing.scenarios.member_replicas import MemberReplicas, MemberReplicasRun
from understudy.testing.sim.loop import SimLoop
from understudy.testing.sim.storage import SharedStorage

#: Checks of clients that stay with one pair: without group-names the two nodes of a URL may serve two stores, so a
#: client that follows its URL meets the other one, and one whose store is served elsewhere does not find it.
_NOT_JUDGED: Final = frozenset({"left-over", "no-service", "stuck", "two-confirming", "unresolved"})
#: Virtual seconds after healing within which a node serves each node id.
_SERVED_S: Final = 60.0


class EpochsOfNodeIds(EpochChecker):
    """The epochs of each node id, and the store that each primary keeps."""

    def __init__(self, nodes: Sequence[NodeRole], node_id: Callable[[str], str]) -> None:
        """Args:
        node_id: Present node id of a node that runs, by its name.
        """
        super().__init__()
        self.last_active: dict[str, str] = {}
        """Name of the node that was active last, by node id."""
        self.first: dict[str, str] = {}
        """Node id with which each primary became active first."""
        self._roles = {node.name: node.role for node in nodes}
        self._node_id = node_id
        self._by_id: dict[str, EpochChecker] = {}

    def _id(self, label: str) -> str:
        # the label of a process is the name of its host with a number
        return self._node_id(label.partition(".")[0])

    def activated(self, now: float, node: str, epoch: int, others_serving: Collection[str]) -> None:
        name, node_id = node.partition(".")[0], self._id(node)
        checker = self._by_id.setdefault(node_id, EpochChecker())
        checker.activated(now, node, epoch, [each for each in others_serving if self._id(each) == node_id])
        self.activations.append(checker.activations[-1])
        self.last_active[node_id] = name
        if self._roles[name] == "primary" and self.first.setdefault(name, node_id) != node_id:
            self._add("crossed", now, f"{name} serves the store of {node_id}, its own is {self.first[name]}")
        self._collect()

    def confirmed(self, now: float, node: str, epoch: int, durable_at_s: float) -> None:
        self.confirmations += 1
        self._by_id.setdefault(self._id(node), EpochChecker()).confirmed(now, node, epoch, durable_at_s)
        self._collect()

    def _collect(self) -> None:
        own = [each for each in self.violations if each.check == "crossed"]
        self.violations = own + [each for checker in self._by_id.values() for each in checker.violations]


class UngroupedPairsRun(MemberReplicasRun):
    """One run of two pairs."""

    def __init__(self, plan: Plan, loop: SimLoop) -> None:
        super().__init__(plan, loop)
        self.epochs = EpochsOfNodeIds(plan.nodes, self._node_id)
        self.cluster.epochs = self.epochs

    def judge(self) -> tuple[Violation, ...]:
        return tuple(each for each in super().judge() if each.check not in _NOT_JUDGED)

    def _url(self, member: str) -> str:
        """See ``MembersRun``; the connection of a client does not fail over.

        The two nodes of a URL may serve two stores, without a fault of either: the client names the nodes of a pair
        that does not exist. A connection that fails over sends messages to the second store again which the first one
        has taken, and asks it about branches of the first one. So these clients start over instead, and send nothing
        again that was not confirmed.
        """
        return super()._url(member).replace("reconnectAttempts=-1", "reconnectAttempts=0")

    def nodes_apart(self) -> tuple[str, ...]:
        options = self.plan.url.partition("?")[2].replace("ha=true", "ha=false")
        options = options.replace("initialConnectAttempts=-1", "initialConnectAttempts=1")
        options = options.replace("reconnectAttempts=-1", "reconnectAttempts=0")
        return tuple(
            f"tcp://{node.name}:{PORT}?{options}&useTopologyForLoadBalancing=false" for node in self.plan.nodes
        )

    def _node_id(self, name: str) -> str:
        server = self.cluster.nodes[name].server
        assert server is not None
        return server.parts.lock.node_id

    def _pair_of(self, primary: SimNode) -> list[SimNode]:
        """A primary and the backup that has its data; only the primary if none has."""
        own = self._node_id(primary.name)
        backups = [node for node in _nodes_of(self, "backup") if node.running and self._node_id(node.name) == own]
        return [primary, *backups[:1]]

    def pairs(self) -> list[list[SimNode]]:
        """See ``ReplicatedRun``; which backup is the replica of a primary is known once it is in sync."""
        return [[node] for node in _nodes_of(self, "primary")]

    async def _synced_primary(self, pair: Sequence[SimNode]) -> SimNode | None:
        """See ``ReplicatedRun``; a node id without a replica is no violation, one that no node serves is one."""
        (primary,) = pair
        own = self.epochs.first.get(primary.name)

        def is_served() -> bool:
            nodes = [node for node in self.cluster.nodes.values() if node.state == "active"]
            return own is None or any(self._node_id(node.name) == own for node in nodes)

        if not await self._wait(is_served, self.loop.time() + _SERVED_S):
            states = {name: node.state for name, node in self.cluster.nodes.items()}
            text = f"no node serves {own} of {primary.name} {_SERVED_S} s after healing: {states}"
            self.violations.append(Violation("not-served", text))
        synced = await self._wait(lambda: self._in_sync(primary), self.loop.time() + _SERVED_S)
        return primary if synced else None

    async def _compare_stores(self, pairs: Sequence[Sequence[SimNode]]) -> None:
        found = [self._pair_of(pair[0]) for pair in pairs]
        await super()._compare_stores([pair for pair in found if len(pair) > 1])

    async def _take_over(self, pair: Sequence[SimNode]) -> None:
        found = self._pair_of(pair[0])
        if len(found) > 1:
            await super()._take_over(found)

    def _judge_store(self) -> None:
        """The store of each node id at the node that was active last with it."""
        for node_id, name in sorted(self.epochs.last_active.items()):
            storage: SharedStorage = self.cluster.nodes[name].storage
            before = len(self.violations)
            self._judge_one(storage)
            found = self.violations[before:]
            self.violations[before:] = [Violation(each.check, f"{node_id}: {each.text}") for each in found]


def _nodes_of(run: UngroupedPairsRun, role: str) -> Iterator[SimNode]:
    return (run.cluster.nodes[each.name] for each in run.plan.nodes if each.role == role)


class UngroupedPairs(MemberReplicas):
    """Two pairs with a store for each node, in one cluster and without group-names."""

    name = "ungrouped-pairs"
    text = "two replicated pairs with a witness and without group-names, that share the messages of a queue"
    run_class = UngroupedPairsRun

    def nodes(self, seed: int) -> tuple[NodeRole, ...]:
        roles = ("primary", "backup")
        return tuple(
            NodeRole(f"{group}{number}", role, group=group) for group in "ab" for number, role in enumerate(roles, 1)
        )

    def configure(self, plan: Plan) -> Plan:
        plan = super().configure(plan)
        # the node that decides about message groups is configured for one pair, and a backup may serve another one
        producers = tuple(replace(job, groups=0) for job in plan.producers)
        return replace(plan, producers=producers, pair=replace(plan.pair, group_names=False, grouping=False))
