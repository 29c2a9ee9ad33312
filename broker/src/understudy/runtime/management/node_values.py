"""The node itself as a value of the management model."""

from __future__ import annotations

import os
from contextlib import suppress

from msgspec import convert

from understudy import __version__, kernel
from understudy.errors import StoreError
from understudy.ha.life.policy import NodeState, Role
from understudy.ha.replication.promotion import Promotion as RecordedPromotion
from understudy.limits import QUARANTINE_SHOWN_MAX
from understudy.management.model.links import Acceptor, Certificate
from understudy.management.model.node import (
    Activation,
    Durations,
    EarlierData,
    Following,
    HighAvailability,
    Kernel,
    Node,
    Peer,
    Promotion,
    Protection,
    Quarantine,
    Readers,
    Scrub,
    Store,
    WithoutLockManager,
)
from understudy.management.snapshot.links import readers_of
from understudy.ports import Space
from understudy.runtime.management.heartbeat import Heartbeat
from understudy.runtime.node.node import BrokerNode
from understudy.runtime.node.promotions import Promotions
from understudy.store import durations
from understudy.store.log.segment import log_size_bytes


class NodeReader:
    """Reads the node from its present state.

    Args:
        node: The node, in any state.
        promotions: Promotions of the data of the node.
    """

    def __init__(self, node: BrokerNode, promotions: Promotions) -> None:
        self._node = node
        self._promotions = promotions
        self.heartbeat = Heartbeat(self._note_ids)
        """Measures the lag of the event loop while it runs."""

    def _note_ids(self) -> None:
        broker = self._node.broker
        if broker is not None:
            broker.invocations.node.ages.note(broker.store.last_id, self._node.environment.clock.monotonic_ms())

    def read(self) -> Node:
        """Read the model of the node."""
        node, broker = self._node, self._node.broker
        memory = None if broker is None else broker.post_office.memory
        times = node.environment.times
        follower = node.standby.follower
        return Node(
            name=node.configuration.name,
            version=__version__,
            kernel=Kernel(kernel.ACTIVE, kernel.WHY),
            node_id=node.parts.lock.node_id or None,
            pid=os.getpid(),
            uptime_ms=node.environment.clock.monotonic_ms() - node.started_ms,
            epoch=self._epoch(),
            ha=self._high_availability(),
            promotion=None if self._promotions.last is None else promotion_of(self._promotions.last),
            earlier_data=self._earlier_data(),
            peer=self._peer(),
            activation=self._activation(),
            following=None if follower is None else Following(follower.caught_up, follower.lag_bytes),
            acceptors=self.acceptors(),
            store=self._store(),
            scrub=self._scrub(),
            connections=0 if broker is None else len(broker.services.connections),
            sessions=0 if broker is None else broker.services.connections.session_count,
            confirmations=0 if node.store is None else node.store.context.released,
            message_memory_bytes=None if memory is None else memory.held_bytes,
            message_memory_limit_bytes=None if memory is None else memory.limit_bytes,
            dead_letters=None if broker is None else broker.post_office.directory.dead_letter_count(),
            login_failures={} if broker is None else dict(broker.services.access.logins.failures),
            stale_acknowledgements=0 if broker is None else broker.services.connections.stale_acknowledgements,
            confirmation_times=None if times is None else durations_of(times.confirmations),
            sync_times=None if times is None else durations_of(times.writes),
            loop_lag=durations_of(self.heartbeat.lag),
            trouble=node.protection.trouble(),
            protection=convert(node.protection.find(), Protection, from_attributes=True),
            in_line=node.policy.in_line,
            overrides=node.parts.configuration.overrides,
            pending=list(node.parts.configuration.pending),
            pending_count=len(node.parts.configuration.pending),
        )

    def _epoch(self) -> int | None:
        if self._node.store is not None:
            return self._node.store.epoch
        follower = self._node.standby.follower
        return follower.state.epoch if follower is not None else None

    def _high_availability(self) -> HighAvailability:
        policy, without = self._node.policy, self._node.policy.without_manager
        return HighAvailability(
            policy=policy.name,  # type: ignore[arg-type]  # one of the declared names
            role=policy.role.value,
            state=self._node.state,  # type: ignore[arg-type]  # one of the declared states
            machine_state=self._node.life.state.name,
            waiting_because=self._promotions.waiting_because or policy.stays_passive,
            backup_present=self._backup_present(),
            lock_proof_age_ms=self._lock_proof_age_ms(),
            switches=dict(self._node.protection.switches),
            without_lock_manager=None
            if without is None
            else convert(without, WithoutLockManager, from_attributes=True),
        )

    def _backup_present(self) -> bool | None:
        node = self._node
        if node.life.state is not NodeState.ACTIVE or node.policy.role is Role.PRIMARY_ONLY:
            return None
        return node.protection.peer() is not None

    def _lock_proof_age_ms(self) -> int | None:
        node, environment = self._node, self._node.environment
        proved_at_ms = node.policy.fence.proved_at_ms if node.life.state is NodeState.ACTIVE else None
        if proved_at_ms is None:
            return None
        return max(0, (environment.lock_clock or environment.clock).monotonic_ms() - proved_at_ms)

    def _peer(self) -> Peer | None:
        node = self._node
        role = "primary" if node.policy.role is Role.BACKUP else "backup"
        connector = node.protection.peer()
        if connector is None:
            return None
        return Peer(role, connector, node.parts.topology.names.of(connector))

    def _earlier_data(self) -> EarlierData | None:
        found = self._node.replication.earlier_data() if self._node.replication is not None else None
        if found is None:
            return None
        directory, note = found
        return EarlierData(directory, note.epoch, note.sequence, note.records, note.messages)

    def _activation(self) -> Activation | None:
        facts = self._node.activation.facts()
        return None if facts is None else convert(facts, Activation, from_attributes=True)

    def acceptors(self) -> list[Acceptor]:
        """Model of the configured acceptors."""
        return [
            Acceptor(
                acceptor.name,
                acceptor.url,
                self._certificate(acceptor.name),
                *self._node.serving.traffic(acceptor.name),
            )
            for acceptor in self._node.configuration.acceptors
        ]

    def _certificate(self, name: str) -> Certificate | None:
        tls = self._node.parts.tls
        found = tls.certificate(name)
        if found is None:
            return None
        return Certificate(found.subject, found.sha256, found.not_after_ms, tls.days_left(found))

    def _store(self) -> Store | None:
        node = self._node
        directory = node.configuration.journal_directory
        if node.store is not None:
            store, size_bytes, space = node.store, node.store.size_bytes(), node.store.disk_space
            return Store(
                directory,
                store.segment_count,
                size_bytes,
                store.full,
                store.context.durable,
                live_bytes=store.live_bytes,
                amplification=size_bytes / store.live_bytes if store.live_bytes else None,
                quarantined=store.quarantine.count,
                waiting_for_other_node=0 if node.broker is None else node.broker.post_office.damaged.waiting_count,
                repaired=store.quarantine.repairs.repaired,
                set_aside=store.quarantine.set_aside,
                kept_files=store.kept[0],
                kept_bytes=store.kept[1],
                disk_free_bytes=None if space is None else space.free_bytes,
                disk_size_bytes=None if space is None else space.total_bytes,
            )
        if node.standby.follower is not None:
            state = node.standby.follower.state
            size_bytes = log_size_bytes(node.environment.disk, directory)
            found = self._space(directory)
            return Store(
                directory,
                len(state.segments),
                size_bytes,
                False,
                state.sequence,
                disk_free_bytes=None if found is None else found.free_bytes,
                disk_size_bytes=None if found is None else found.total_bytes,
            )
        return None

    def _space(self, directory: str) -> Space | None:
        """Space of the file system of a directory; None: it cannot be asked."""
        with suppress(StoreError):
            return self._node.environment.disk.space(directory)
        return None

    def _scrub(self) -> Scrub | None:
        report = self._node.parts.watch.scrub_report
        if report is None:
            return None
        age_ms = None if not report.passes else max(self._node.environment.clock.wall_ms() - report.completed_ms, 0)
        return Scrub(
            report.running, report.pass_bytes, report.unverified, report.passes, age_ms, report.damaged, report.repaired
        )

    def readers(self) -> Readers:
        """Named readers of the log."""
        store = self._node.store
        return Readers() if store is None else readers_of(store)

    def quarantine(self) -> Quarantine:
        """Entries of the quarantine."""
        store = self._node.store
        if store is None:
            return Quarantine(0, [])
        return Quarantine(store.quarantine.count, store.quarantine.as_json(0, QUARANTINE_SHOWN_MAX))


def durations_of(found: durations.Durations) -> Durations:
    """The value of counted durations."""
    bounds_ms = [bound_ns / 1_000_000 for bound_ns in durations.BOUNDS_NS]
    return Durations(bounds_ms, list(found.counts), found.total_ns / 1_000_000)


def promotion_of(recorded: RecordedPromotion) -> Promotion:
    """The value of a recorded promotion."""
    return convert(recorded, Promotion, from_attributes=True)
