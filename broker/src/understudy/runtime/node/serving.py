"""The clients' side of an active node: the broker over its store, the acceptors, the checks of the disks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Final

from understudy.broker import Broker
from understudy.cluster.membership.services import ClusterPeers
from understudy.errors import Unreachable
from understudy.ha.life.activation import Step
from understudy.management.operations.invocation import InstanceFiles
from understudy.runtime.base.parts import NodeParts, Owner
from understudy.runtime.base.turn import Congestion
from understudy.runtime.members.colocation import make_colocation
from understudy.runtime.members.member_rules import twin_rule
from understudy.runtime.members.scale_down import NodeScaleDown
from understudy.runtime.net.acceptor import Acceptor
from understudy.runtime.node.composition import make_acceptor, make_broker
from understudy.runtime.node.opened_store import OpenedStore
from understudy.runtime.process.descriptors import ConnectionBudget
from understudy.runtime.replica.replication import NodeReplication

log = logging.getLogger(__name__)

#: After the activation, before the disks are looked at again, all of them: the first clients come before that.
FIRST_DISK_CHECK_MS: Final = 500


class EitherCongestion:
    """Congestion of the log, or of the replica. Implements ``runtime.base.turn.Congestion``."""

    def __init__(self, log: Congestion, replica: Congestion) -> None:
        self._log = log
        self._replica = replica

    @property
    def congested(self) -> bool:
        """Whether no client should be read."""
        return self._log.congested or self._replica.congested


class Serving:
    """Service of clients, from one step of an activation until the step is undone."""

    def __init__(
        self,
        parts: NodeParts,
        opened: OpenedStore,
        owner: Owner,
        scale_down: NodeScaleDown,
        replication: NodeReplication | None = None,
    ) -> None:
        """Args:
        opened: Has the store when the steps are done.
        owner: Ends when the store fails; hands over when management asks for it.
        scale_down: Moves the messages of the node away when that is wanted.
        replication: Takes replicas; None in a node without replication.
        """
        self._parts = parts
        self._opened = opened
        self._owner = owner
        self.scale_down = scale_down
        self._replication = replication
        self.colocation = make_colocation(parts)
        """Backups hosted here and asked for; None without a colocated policy."""
        self.broker: Broker | None = None
        self.files: InstanceFiles | None = None
        """Files of the instance for management; set by the caller that runs the node."""
        self._acceptors: list[Acceptor] = []
        self._disk_timer: asyncio.TimerHandle | None = None

    def opening(self) -> list[Step]:
        """After them, the broker is loaded and has its ports, and nothing of it can be noticed by a client or another
        node.
        """
        steps = [Step("load the broker", self._load, self._unload)]
        if not self._never_serves:
            steps.append(Step("bind acceptors", self._bind_acceptors, self._unbind_acceptors))
        return steps

    @property
    def _never_serves(self) -> bool:
        """Whether this is a backup that moves its messages and has no clients: without a target the primary finds them
        in the shared store, or the backup is colocated and has no acceptors.
        """
        policy = self._parts.configuration.current.ha_policy
        alone = policy.replication is None or policy.replication.of_node is not None
        return policy.moves_instead_of_serving and alone

    def steps(self) -> list[Step]:
        """Steps after which clients are served; or, in a backup with scale-down, the messages have moved to another
        node."""
        policy = self._parts.configuration.current.ha_policy
        moving = [Step("choose a node", self._choose_target), Step("move messages", self._move_messages)]
        if self._replication is not None:
            # the transfer has done it if a message has moved
            moving.append(Step("commit the activation sequence", self._replication.commit))
        if self._never_serves:
            return moving
        steps = [
            Step("finish a scale-down", self._finish_scale_down),
            Step("open acceptors", self._open_acceptors, self._close_acceptors),
            Step("join the cluster", self._join_cluster, self._leave_cluster),
            *self._colocation_steps(),
            Step("start the bridges", self._start_bridges, self._stop_bridges),
            Step("begin housekeeping", self._begin_housekeeping, self._end_housekeeping),
        ]
        if policy.moves_instead_of_serving:
            # without a target the primary gets the messages from this node, as its replica
            return [*moving, *map(self._unless_moved, steps)]
        if policy.scales_down or not policy.is_pair:
            # messages move when the clients have left, to a node that is chosen before; management may ask for it
            steps.insert(0, Step("prepare to move messages", _nothing, self._move_messages))
            steps.append(Step("prepare to choose a node", _nothing, self._choose_target))
        return steps

    def _unless_moved(self, step: Step) -> Step:
        """The step, if no other node has taken the messages; its undo only after it was done."""
        begun = False

        def do() -> Awaitable[None] | None:
            nonlocal begun
            begun = self.scale_down.outcome is None
            return step.do() if begun else None

        def undo() -> Awaitable[None] | None:
            return step.undo() if begun and step.undo is not None else None

        return Step(step.name, do, undo)

    def _colocation_steps(self) -> list[Step]:
        colocation = self.colocation
        return [] if colocation is None else [Step("see to colocated backups", colocation.begin, colocation.end)]

    async def _choose_target(self) -> None:
        if self.broker is not None:
            await self.scale_down.choose_target(self.broker)
            self.broker.services.connections.scale_down_target = self.scale_down.target_id

    async def _finish_scale_down(self) -> None:
        assert self.broker is not None
        if self.scale_down.is_pending(self.broker):
            self._opened.release_writers()
            await self.scale_down.finish(self.broker)

    async def _move_messages(self) -> None:
        if self.broker is not None:
            # the writers of a backup wait for the end of the activation
            self._opened.release_writers()
            await self.scale_down.move(self.broker)

    def _load(self) -> None:
        parts, environment, store = self._parts, self._parts.environment, self._opened.store
        assert store is not None
        peers = ClusterPeers(
            self._replication.replicas if self._replication is not None else None,
            self.colocation.hosting if self.colocation is not None else None,
        )
        self.broker = make_broker(parts, store, self._opened.login_workers, self._owner, peers, self.files)
        self.broker.post_office.paging.bodies_max_bytes = parts.configuration.bodies_max_bytes()
        self.broker.post_office.permission.depend_on(self._opened.fence, self._owner.fail)
        parts.turn.work = self.broker.post_office.turn
        parts.turn.congestion = store.congestion
        if self._replication is not None:
            parts.turn.congestion = EitherCongestion(store.congestion, self._replication)
        parts.turn.on_error = self._owner.fail
        group, now_ms = self.scale_down.group_name, environment.clock.wall_ms()
        for network in parts.networks:
            network.topology.set_primary(store.node_id, network.connector, now_ms, scale_down_group=group)

    def _unload(self) -> None:
        if self.broker is not None:
            self.broker.close()
        self._parts.turn.work = self._parts.turn.congestion = None
        self.broker = None
        for network in self._parts.networks:
            network.topology.clear()

    async def _bind_acceptors(self) -> None:
        assert self.broker is not None
        configuration, environment = self._parts.configuration.current, self._parts.environment
        allowed = sum(acceptor.connections_allowed for acceptor in configuration.acceptors)
        budget = ConnectionBudget(allowed)
        descriptors = environment.descriptors
        if descriptors is not None:
            connections_max = descriptors.connections_max // environment.nodes
            budget = ConnectionBudget(min(allowed, connections_max), lambda: descriptors.low)
            log.info(
                "file descriptors",
                extra={"limit": descriptors.limit, "connections_max": budget.connections_max, "wanted": allowed},
            )
        for each in configuration.acceptors:
            acceptor = make_acceptor(self._parts, self.broker, each, budget)
            self._acceptors.append(acceptor)
            try:
                await acceptor.bind()
            except OSError as error:
                raise _cannot_listen(acceptor, error) from error

    async def _unbind_acceptors(self) -> None:
        """Close the acceptors that were bound and not opened."""
        for acceptor in self._acceptors:
            await acceptor.close()
        self._acceptors.clear()
        self._parts.tls.close()

    async def _open_acceptors(self) -> None:
        assert self.broker is not None
        for acceptor in self._acceptors:
            try:
                await acceptor.open()
            except OSError as error:
                raise _cannot_listen(acceptor, error) from error
            self.broker.notifications.acceptor_started(acceptor.configuration.host, acceptor.configuration.port)

    def traffic(self, name: str) -> tuple[int, int]:
        """Bytes received and sent by an acceptor since the activation; 0 while the node is not active."""
        found = [each.traffic for each in self._acceptors if each.configuration.name == name]
        return (found[0].received_bytes, found[0].sent_bytes) if found else (0, 0)

    @property
    def is_open(self) -> bool:
        """Whether clients can connect to any acceptor."""
        return any(each.is_open for each in self._acceptors)

    def stop_accepting(self, *, critical: bool = False) -> None:
        """Take no new connections and sessions; present sessions go on.

        Args:
            critical: Because of an error; clients get its code.
        """
        if self.broker is not None:
            self.broker.stop_accepting(critical=critical)
        for acceptor in self._acceptors:
            acceptor.stop_listening()

    async def _close_acceptors(self) -> None:
        self.stop_accepting(critical=self._owner.error is not None)
        for acceptor in self._acceptors:
            await acceptor.close()
            if self.broker is not None and self._owner.error is None:
                self.broker.notifications.acceptor_stopped(acceptor.configuration.host, acceptor.configuration.port)
        self._acceptors.clear()
        self._parts.tls.close()

    def _join_cluster(self) -> None:
        # after the acceptors, because the other members connect to the announced connector at once
        assert self._opened.store is not None
        node_id = self._opened.store.node_id
        assert self.broker is not None
        networks, members = self._parts.networks, self.broker.exchange.members

        def taken(scaled_down_id: str) -> None:
            for each in networks:
                each.membership.tell_scaled_down(scaled_down_id)

        self.broker.cluster.scaled_down.taken = taken
        for network in networks:
            membership = network.membership
            membership.on_twin = twin_rule(self._parts.configuration, self._owner.fail)
            membership.observe(None if members is None else members.flows.by_connector[network.connector.name])
            membership.join(node_id)
        self._parts.discovery.broadcast(node_id)
        self.broker.notifications.cluster_started(*self._cluster_names())

    def _cluster_names(self) -> tuple[list[str], list[str], list[str]]:
        """Names of the cluster connections, and of the discovery and broadcast groups in use."""
        discovery = self._parts.discovery
        return (
            [each.name for each in self._parts.configuration.current.cluster_connections],
            list(discovery.groups),
            [each.settings.name for each in discovery.broadcasters],
        )

    def _leave_cluster(self) -> None:
        if self.broker is not None and self._owner.error is None:
            self.broker.notifications.cluster_stopped(*self._cluster_names())
        self._parts.discovery.stop_broadcasting()
        for network in self._parts.networks:
            network.membership.leave()
            network.membership.observe(None)

    def _start_bridges(self) -> None:
        assert self.broker is not None
        self.broker.exchange.bridges.start()

    def _stop_bridges(self) -> None:
        if self.broker is not None:
            self.broker.exchange.bridges.close()

    def _begin_housekeeping(self) -> None:
        # the directory of the journal was looked at when the store was activated
        self._disk_timer = self._parts.loop.call_later(FIRST_DISK_CHECK_MS / 1000, self._check_disk)
        self._opened.begin_scrub()

    def _end_housekeeping(self) -> None:
        if self._disk_timer is not None:
            self._disk_timer.cancel()
        self._opened.end_scrub()

    def _check_disk(self) -> None:
        store = self._opened.store
        if store is not None:
            self._parts.turn.completed(store.check_disk)
            period_s = self._parts.configuration.current.disk_scan_period_ms / 1000
            self._disk_timer = self._parts.loop.call_later(period_s, self._check_disk)


def _cannot_listen(acceptor: Acceptor, error: OSError) -> Unreachable:
    configuration = acceptor.configuration
    place = f"acceptor {configuration.name!r} cannot listen on {configuration.url}"
    hint = "end the other program that has the port, or change the URL"
    return Unreachable(f"{place}: {error.strerror or error}", hint=hint)


def _nothing() -> None:
    """A step that only has an undo."""
