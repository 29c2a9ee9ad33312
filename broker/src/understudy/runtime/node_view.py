"""Implementation of ``management.controls.NodeView`` for a ``BrokerNode``."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from understudy import __version__, kernel
from understudy.errors import BrokerError, NotActive
from understudy.ha.activation import ActivationFacts
from understudy.ha.policy import Role, WithoutManager
from understudy.limits import QUARANTINE_SHOWN_MAX
from understudy.management.cluster_facts import ClusterFacts
from understudy.management.controls import (
    AcceptorCertificate,
    AcceptorFacts,
    EarlierData,
    FollowingFacts,
    InvocationRequest,
    KernelFacts,
    LastPromotion,
    PeerFacts,
    Promoted,
    QueueFacts,
    ScrubFacts,
    StoreFacts,
)
from understudy.management.doors.artemis import queue_facts, readers_facts
from understudy.management.operations.invocation import Requester
from understudy.runtime.cluster_view import cluster_facts
from understudy.runtime.node import BrokerNode
from understudy.runtime.promotions import Promotions
from understudy.store.log.segment import log_size_bytes
from understudy.terms import Permission

#: Reason of an active node that is not ready.
CLOSED: Final = "no acceptor is open: clients cannot connect (autoStart=false?)"


class _TokenSecurity:
    """Grants all permissions to callers with the token of the node."""

    user = "token"
    permission_ms = 0

    def check(self, permission: Permission, address: str, queue: str | None = None) -> None:
        return

    def allows(self, permission: Permission, address: str, queue: str | None = None) -> bool:
        return True


_TOKEN: Final = Requester(_TokenSecurity(), "")


class LiveNodeView:
    """View of a ``BrokerNode``, read from its present state. Implements ``management.controls.NodeView``."""

    def __init__(self, node: BrokerNode) -> None:
        self._node = node
        self._promotions = Promotions(node.parts, node.policy)
        self._stopping: list[asyncio.Task[None]] = []

    @property
    def name(self) -> str:
        return self._node.configuration.name

    @property
    def version(self) -> str:
        return __version__

    @property
    def kernel(self) -> KernelFacts:
        return KernelFacts(kernel.ACTIVE, kernel.WHY)

    @property
    def node_id(self) -> str | None:
        return self._node.parts.lock.node_id or None

    @property
    def pid(self) -> int:
        return os.getpid()

    @property
    def uptime_ms(self) -> int:
        return self._node.environment.clock.monotonic_ms() - self._node.started_ms

    @property
    def epoch(self) -> int | None:
        node = self._node
        if node.store is not None:
            return node.store.epoch
        follower = node.standby.follower
        return follower.state.epoch if follower is not None else None

    @property
    def cluster(self) -> ClusterFacts:
        return cluster_facts(self._node.parts, self._node.broker, self._node.serving.colocation)

    @property
    def ha_policy(self) -> str:
        return self._node.policy.name

    @property
    def ha_role(self) -> str:
        return self._node.policy.role.value

    @property
    def state(self) -> str:
        return self._node.state

    @property
    def machine_state(self) -> str:
        return self._node.life.state.name

    @property
    def trouble(self) -> str | None:
        node = self._node
        if node.state == "active":
            if node.store is not None and node.store.full:
                return f"disk full: {node.store.full_reason}"
            return None if node.serving.is_open else CLOSED
        return node.standby.following_error or self._promotions.waiting_because or node.standby.check()

    @property
    def in_line(self) -> str | None:
        return self._node.policy.in_line

    @property
    def peer(self) -> PeerFacts | None:
        node = self._node
        if node.state == "active":
            member = node.parts.topology.member(node.parts.lock.node_id)
            if member is None or member.backup is None:
                return None
            role = "primary" if node.policy.role is Role.BACKUP else "backup"
            return PeerFacts(role, f"{member.backup.host}:{member.backup.port}")
        replica = node.replication.replica if node.replication is not None else None
        active = replica.active_node if replica is not None else node.standby.announced_to
        if active is None:
            return None
        role = "primary" if node.policy.role is Role.BACKUP else "backup"
        return PeerFacts(role, active)

    @property
    def earlier_data(self) -> EarlierData | None:
        found = self._node.replication.earlier_data() if self._node.replication is not None else None
        if found is None:
            return None
        directory, note = found
        return EarlierData(directory, note.epoch, note.sequence, note.records, note.messages)

    @property
    def activation(self) -> ActivationFacts | None:
        """The steps of the activation."""
        return self._node.activation.facts()

    @property
    def following(self) -> FollowingFacts | None:
        follower = self._node.standby.follower
        return None if follower is None else FollowingFacts(follower.caught_up, follower.lag_bytes)

    @property
    def acceptors(self) -> Sequence[AcceptorFacts]:
        return [
            AcceptorFacts(acceptor.name, acceptor.url, self._certificate(acceptor.name))
            for acceptor in self._node.configuration.acceptors
        ]

    def _certificate(self, name: str) -> AcceptorCertificate | None:
        tls = self._node.parts.tls
        found = tls.certificate(name)
        if found is None:
            return None
        return AcceptorCertificate(found.subject, found.sha256, found.not_after_ms, tls.days_left(found))

    @property
    def store(self) -> StoreFacts | None:
        node = self._node
        directory = node.configuration.journal_directory
        if node.store is not None:
            store = node.store
            return StoreFacts(
                directory,
                store.segment_count,
                store.size_bytes(),
                store.full,
                store.context.durable,
                store.live_bytes,
                store.quarantine.count,
                store.quarantine.set_aside,
                readers_facts(store),
                0 if node.broker is None else node.broker.post_office.damaged.waiting_count,
                store.quarantine.repairs.repaired,
            )
        if node.standby.follower is not None:
            state = node.standby.follower.state
            size_bytes = log_size_bytes(node.environment.disk, directory)
            return StoreFacts(directory, len(state.segments), size_bytes, False, state.sequence)
        return None

    @property
    def scrub(self) -> ScrubFacts | None:
        report = self._node.parts.watch.scrub_report
        if report is None:
            return None
        age_ms = None if not report.passes else max(self._node.environment.clock.wall_ms() - report.completed_ms, 0)
        return ScrubFacts(
            report.running, report.pass_bytes, report.unverified, report.passes, age_ms, report.damaged, report.repaired
        )

    @property
    def quarantine(self) -> tuple[int, list[dict[str, object]]]:
        store = self._node.store
        return (0, []) if store is None else (store.quarantine.count, store.quarantine.as_json(0, QUARANTINE_SHOWN_MAX))

    @property
    def connections(self) -> int:
        broker = self._node.broker
        return 0 if broker is None else len(broker.services.connections)

    @property
    def sessions(self) -> int:
        broker = self._node.broker
        return 0 if broker is None else broker.services.connections.session_count

    @property
    def confirmations(self) -> int:
        store = self._node.store
        return 0 if store is None else store.context.released

    def queues(self) -> Iterable[QueueFacts]:
        broker = self._node.broker
        return [] if broker is None else [queue_facts(queue) for queue in broker.post_office.directory.queues.values()]

    def queue(self, name: str) -> QueueFacts | None:
        broker = self._node.broker
        found = None if broker is None else broker.post_office.directory.find_queue(name)
        return None if found is None else queue_facts(found)

    def invoke(self, request: InvocationRequest, answer: Callable[[object, BrokerError | None], None]) -> None:
        broker = self._node.broker
        if broker is None:
            raise NotActive(f"the node is {self.state}")

        def done(result: object, error: BrokerError | None) -> None:
            context = broker.store.context
            context.when_durable(context.appended, answer, result, error)

        # in a turn of the node, whose end writes the batch
        broker.invocations.node.timers.call_later(0, partial(broker.invocations.carry_out, request, _TOKEN, done))

    @property
    def waiting_because(self) -> str | None:
        return self._promotions.waiting_because or self._node.policy.stays_passive

    @property
    def without_manager(self) -> WithoutManager | None:
        return self._node.policy.without_manager

    @property
    def promotion(self) -> LastPromotion:
        return self._promotions.last

    def request_promotion(self, answer: Promoted) -> None:
        self._promotions.promote(answer)

    def request_activation(self) -> None:
        self._node.take_stopped()

    def request_stop(self, *, failover: bool) -> None:
        task = asyncio.get_running_loop().create_task(self._node.stop(failover=failover))
        self._stopping.append(task)
