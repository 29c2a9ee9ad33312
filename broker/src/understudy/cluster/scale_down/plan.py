"""The scale-down of a node, put together: the messages that move, and in which order.

Order: messages of queues and store-and-forward queues, prepared transactions, duplicate ids, and at last the
announcement, after which the target serves the clients of this node. Source: artemis-ha s. 6.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from understudy.cluster.balancing.cluster_bridge import bridge_configuration
from understudy.cluster.bridges.target import TargetAccess, TargetSession
from understudy.cluster.membership.services import ClusterServices
from understudy.cluster.scale_down.candidates import candidates, settings_of
from understudy.cluster.scale_down.knowledge import leave_record, tell_known
from understudy.cluster.scale_down.messages import MovingMessages
from understudy.cluster.scale_down.remote_queues import RemoteQueues
from understudy.cluster.scale_down.transactions import BranchMoves
from understudy.cluster.scale_down.transfer import Stage, Transfer, TransferSettings
from understudy.cluster.scale_down.work import Ask, Pause, Steps
from understudy.config.model import Configuration
from understudy.ports import Timers
from understudy.protocols.services import ProtocolServices
from understudy.store.setting_record import SettingKind, SettingRecord
from understudy.wire.core import packets


class ScaleDown:
    """The scale-down of an active node."""

    def __init__(
        self,
        configuration: Configuration,
        cluster: ClusterServices,
        services: ProtocolServices,
        timers: Timers,
        pending: SettingRecord | None,
        moved: Callable[[], packets.StoreMoved | None] = lambda: None,
        commit: Callable[[Callable[[], None]], None] = lambda committed: committed(),
    ) -> None:
        """Args:
        configuration: Configuration of the node, with a cluster connection.
        cluster: Cluster with the topology and the connections to other brokers.
        pending: Note of the interrupted scale-down; its target has to be the same. None: there is none.
        moved: The record that the target is to keep once everything is there (ADR 0126).
        commit: Called when the target is written down, before the first message moves; its argument is called when
            messages may move (ADR 0112).
        """
        replication = configuration.ha_policy.replication
        # without a lock manager only the target knows whether the primary may begin empty
        waits_for_answer = replication is not None and replication.lock_manager is None
        self._moved = moved
        self._commit = commit
        settings = settings_of(configuration)
        self._pending = pending
        self.record: SettingRecord | None = None
        """Record of the target in the log; None: nothing was sent to it."""
        self.record_in_doubt = False
        """Whether the target may have the record that everything has moved, without having answered."""
        self._configuration = configuration
        self._cluster = cluster
        self._services = services
        self._timers = timers
        connection = configuration.cluster_connections[0]
        session = bridge_configuration("scale-down", connection)
        session = replace(session, target=replace(session.target, ha=True))
        access = TargetAccess(cluster.dialer, services.clock, timers, services.entropy, cluster.credentials)
        office = services.sessions.post_office
        internal_prefix = office.directory.internal_prefix
        self._kept_prefixes = tuple(f"{internal_prefix}sf.{each.name}." for each in configuration.cluster_connections)
        self.moving = MovingMessages(office, timers, services.node_id, settings.commit_interval)
        self.transfer = Transfer(
            TransferSettings(
                services.node_id,
                settings.group_name if pending is None else None,
                None if pending is None else pending.match,
                session,
            ),
            access,
            lambda: candidates(settings, cluster, services.node_id, pending),
            self.moving,
            lambda: self.record_in_doubt and waits_for_answer,
        )

    # -- the target -------------------------------------------------------------------------------

    def _write_target(self) -> Steps[None]:
        """Write down the target: from now on it may have messages that are still here.

        The target answers before that. So two nodes that stop together, each with the other one as its target, do not
        both write it down, and do not wait for each other when they start.
        """
        yield Ask(packets.BindingQuery(self._configuration.management_address), (packets.BindingQueryResponse,))
        member, store = self.transfer.target, self._services.sessions.post_office.store
        assert member is not None
        if self.record is None:
            urls = [each.to_url() for each in (member.primary, member.backup) if each is not None]
            self.record = SettingRecord(SettingKind.SCALE_DOWN, member.node_id, {"connectors": urls})
            self._services.sessions.resources.will_move(member.node_id)
            sequence = store.store_setting(self.record)
            # in a turn, at whose end the log is written
            self._timers.call_later(0, lambda: store.context.when_durable(sequence, self._written))
        yield Pause.WRITTEN

    def _written(self) -> None:
        self._commit(self.transfer.record_written)

    def forget_target(self) -> None:
        """Forget the target: no message is at both nodes any more."""
        if self.record is not None:
            self._services.sessions.post_office.store.store_setting(replace(self.record, values=None))

    # -- what moves -------------------------------------------------------------------------------

    def stages(self) -> list[Stage]:
        """The parts of the transfer."""
        if any(self._services.sessions.resources.prepared()):
            return [Stage(False, self._move_messages), Stage(True, self._move_transactions)]
        return [Stage(False, self._move_all)]

    @property
    def in_doubt(self) -> bool:
        """Whether a message or a transaction of this node may be at the target too."""
        if self.transfer.complete:
            return False
        prepared = self.left_prepared() > 0
        return self._pending is not None or self.moving.in_doubt or prepared or self.record_in_doubt

    @property
    def everything_moved(self) -> bool:
        """Whether the transfer was carried out and nothing is here any more, neither messages nor prepared
        transactions: only then the data of this node may be set aside."""
        return self.transfer.complete and not self.left_behind() and not self.left_prepared()

    def left_behind(self) -> dict[str, int]:
        """Messages that are still here, by queue."""
        directory = self._services.sessions.post_office.directory
        kept = (queue for queue in directory.queues.values() if not queue.internal or self._leads_to(queue.name))
        return {queue.name: queue.message_count for queue in kept if queue.message_count and not queue.temporary}

    def left_prepared(self) -> int:
        """Number of prepared transactions that are still here."""
        return sum(1 for _ in self._services.sessions.resources.prepared())

    def _leads_to(self, queue: str) -> str | None:
        """The node id to which the store-and-forward queue of a name leads; None: it is none."""
        # a name of a cluster connection may begin with that of another one
        prefix = max((each for each in self._kept_prefixes if queue.startswith(each)), key=len, default=None)
        return None if prefix is None else queue.removeprefix(prefix)

    def _kept_for_target(self, queue: str) -> bool | None:
        """Whether the store-and-forward queue of a name leads to the target; None: it is none."""
        node_id, member = self._leads_to(queue), self.transfer.target
        return None if node_id is None else member is not None and node_id == member.node_id

    def _remote_queues(self, target: TargetSession) -> RemoteQueues:
        return RemoteQueues(target, self._configuration.management_address, self._services.entropy)

    def _move_all(self, target: TargetSession) -> Steps[None]:
        yield from self._move_messages(target)
        yield from self._finish(target)

    def _move_messages(self, target: TargetSession) -> Steps[None]:
        yield from self._write_target()
        remote = self._remote_queues(target)
        yield from self.moving.move_queues(target, remote)
        for queue in list(self._services.sessions.post_office.directory.queues.values()):
            for_target = self._kept_for_target(queue.name)
            if for_target is not None and queue.message_count:
                yield from self.moving.move_kept(target, remote, queue, leads_to_target=for_target)

    def _move_transactions(self, target: TargetSession) -> Steps[None]:
        remote = self._remote_queues(target)
        moves = BranchMoves(target, remote, self.moving, self._kept_for_target)
        member = self.transfer.target
        assert member is not None
        yield from moves.move(self._services.sessions.resources, member.node_id)
        yield from self._finish(target)

    def _finish(self, target: TargetSession) -> Steps[None]:
        credentials = self._cluster.credentials
        plain = credentials is not None and credentials.plain_for(target.target) is not None
        yield from tell_known(self._services.sessions.post_office, plain=plain)
        member = self.transfer.target
        assert member is not None
        announcement = packets.ScaleDownAnnouncement(member.node_id, self._services.node_id)
        target.tell(announcement, of_cluster=True)
        # the target answers after it has read the announcement
        yield Ask(packets.BindingQuery(self._configuration.management_address), (packets.BindingQueryResponse,))
        moved = None if self.left_behind() or self.left_prepared() else self._moved()
        if moved is not None and not plain:
            # last, and only if everything is there: a node that finds it needs nothing from here
            self.record_in_doubt = True
            yield from leave_record(moved)
            self.record_in_doubt = False
