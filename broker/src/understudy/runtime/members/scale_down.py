"""The scale-down as steps of a node: the target is chosen before clients leave, messages move after that."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from understudy.broker import Broker
from understudy.cluster.balancing.cluster_flows import ClusterFlows
from understudy.cluster.scale_down.plan import ScaleDown
from understudy.cluster.scale_down.transfer import Transfer
from understudy.config.high_availability import ScaleDownConfiguration
from understudy.errors import BrokerError
from understudy.ha.life.policy import ScaleDownOutcome
from understudy.ha.replication.moved_store import LogEnd, MovedStore
from understudy.runtime.base.parts import NodeParts, Owner
from understudy.runtime.replica.empty_start import common_part, was_served
from understudy.store.setting_record import SettingKind, SettingRecord
from understudy.wire.core import packets

log = logging.getLogger(__name__)

#: Interval in ms at which the store-and-forward queues are looked at while their bridges empty them.
LOOK_MS: Final = 50
#: Longest time in which no bridge takes a message, after which they are stopped.
STALL_MS: Final = 5_000


class NodeScaleDown:
    """Scale-down of one node, from one activation to its end."""

    def __init__(
        self,
        parts: NodeParts,
        owner: Owner,
        record: Callable[[LogEnd], MovedStore | None] = lambda end: None,
        commit: Callable[[Callable[[BrokerError | None], None]], None] = lambda answer: answer(None),
    ) -> None:
        """Args:
        owner: After an error its messages stay, and while it is isolated.
        record: Makes the record of a replica that the target is to keep.
        commit: Commits the activation sequence of a replica, if that was not done in this activation.
        """
        self._parts = parts
        self._owner = owner
        self._plan: ScaleDown | None = None
        """The plan, from the choice of the target to the end; None: messages stay here."""
        self.outcome: ScaleDownOutcome | None = None
        """Outcome of the last one; None: no node took the messages."""
        self._record = record
        self._commit_sequence = commit
        self._requested: ScaleDownConfiguration | None = None
        """Settings of a scale-down that an administrator has requested."""

    def request(self, connector: str | None) -> None:
        """Scale down at the stop that follows, whether that is configured or not.

        Args:
            connector: Name of the connector of the member that is tried first; None: as configured.
        """
        found = self._settings or ScaleDownConfiguration()
        connectors = found.connectors if connector is None else (connector, *found.connectors)
        self._requested = replace(found, enabled=True, connectors=connectors)

    @property
    def _settings(self) -> ScaleDownConfiguration | None:
        return self._requested or self._parts.configuration.current.ha_policy.scale_down

    @property
    def group_name(self) -> str | None:
        """``group-name``, which the other members learn. A node that hosts backups takes messages of the group that
        they have.
        """
        settings, colocated = self._settings, self._parts.configuration.current.ha_policy.colocated
        if settings is None and colocated is not None:
            settings = colocated.backup.scale_down
        return None if settings is None else settings.group_name

    def is_pending(self, broker: Broker) -> bool:
        """Whether a scale-down was interrupted: the target may have messages that are still here."""
        return _pending(broker) is not None

    async def finish(self, broker: Broker) -> None:
        """Complete a scale-down that was interrupted, before clients are served. If its target cannot be reached they
        are served, and some messages may come twice.
        """
        pending = _pending(broker)
        if pending is None:
            return
        log.warning("an interrupted scale-down is completed first", extra={"node_id": pending.match})
        if self._parts.configuration.current.cluster_connections:
            await self._choose(broker, pending)
            await self._transfer(broker)
        self._forget(broker, _pending(broker))

    def _forget(self, broker: Broker, pending: SettingRecord | None) -> None:
        """Go on without the target of a scale-down that was interrupted."""
        if pending is not None and self._owner.error is None:
            log.error(
                "the target of an interrupted scale-down was not reached; messages that it has may come twice",
                extra={"node_id": pending.match},
            )
            broker.store.store_setting(replace(pending, values=None))

    async def choose_target(self, broker: Broker) -> None:
        """Look for a node that takes the messages; clients are served meanwhile."""
        wanted = self._settings is not None and self._settings.enabled
        if wanted and self._owner.error is None and not self._owner.isolating:
            pending = _pending(broker)
            if pending is None and self._serves_on():
                self.outcome = None
                log.info("the messages stay: this node has served them before, and its primary gets them from it")
                return
            await self._choose(broker, pending)
            if self._plan is None:
                # of a backup: the next attempt may choose another node
                self._forget(broker, pending)
                replication = self._parts.configuration.current.ha_policy.replication
                if replication is not None and replication.of_node is not None:
                    # a colocated backup cannot serve
                    self.outcome = ScaleDownOutcome(False, self._end(broker))

    def _serves_on(self) -> bool:
        """Whether this is a backup that found no target earlier, and has served its data (ADR 0159). Only the record of
        a copy tells its primary what that one still has.
        """
        policy = self._parts.configuration.current.ha_policy
        has_acceptors = policy.replication is not None and policy.replication.of_node is None
        return policy.moves_instead_of_serving and has_acceptors and was_served(self._parts)

    def _end(self, broker: Broker) -> LogEnd:
        """The present end of the log."""
        store, replication = broker.store, self._parts.configuration.current.ha_policy.replication
        # the target is recorded before the first message moves
        common, last_batch = (0, b"") if replication is None else common_part(self._parts, store)
        return LogEnd(store.epoch, store.last_sequence, common, last_batch)

    async def _choose(self, broker: Broker, pending: SettingRecord | None) -> None:
        self.outcome = None
        self._end(broker)
        configuration = self._parts.configuration.current
        if self._requested is not None:
            policy = replace(configuration.ha_policy, scale_down=self._requested)
            configuration = replace(configuration, ha_policy=policy)

        def record() -> packets.StoreMoved | None:
            moved = self._record(self._end(broker))
            if moved is None:
                return None
            end = moved.end
            return packets.StoreMoved(
                moved.node_id,
                moved.sequence,
                moved.copied_at,
                moved.place,
                end.epoch,
                end.sequence,
                end.common,
                end.last_batch,
            )

        plan = ScaleDown(
            configuration, broker.cluster, broker.services, self._parts.turn, pending, record, self._commit
        )
        membership = self._parts.membership if configuration.ha_policy.moves_instead_of_serving else None
        if membership is not None:
            # the node is no member of the cluster now, and learns here which nodes are; it is not the backup any more
            membership.leave()
            membership.watch(self._parts.lock.node_id)
        await self._until(plan.transfer, plan.transfer.search)
        if membership is not None:
            membership.leave()
        target = plan.transfer.target
        if target is None:
            log.error(
                "no other node takes the messages: they stay in the journal",
                extra={"reason": plan.transfer.error, "messages": sum(plan.left_behind().values())},
            )
            return
        self._plan = plan
        log.info("messages move to another node", extra={"node_id": target.node_id})

    def _commit(self, committed: Callable[[], None]) -> None:
        """Commit the activation sequence: the target has messages from then on. Without it none moves, and the node
        ends."""

        def answered(error: BrokerError | None) -> None:
            if error is None:
                committed()
            else:
                self._owner.fail(error)

        self._commit_sequence(answered)

    @property
    def target_id(self) -> str | None:
        """The node that was chosen; None: none was, or the transfer is over."""
        target = None if self._plan is None else self._plan.transfer.target
        return None if target is None else target.node_id

    async def move(self, broker: Broker) -> None:
        """Move everything to the chosen target, if one was chosen, after the clients have left."""
        if self._owner.error is not None and self._plan is not None:
            self._plan.transfer.close()
            self._plan = None
        if self._plan is None:
            return
        broker.end_sessions()
        members = broker.exchange.members
        if members is not None:
            members.redistribution.close()
            await self._empty(members.flows)
            members.close()
        await self._transfer(broker)

    async def _transfer(self, broker: Broker) -> None:
        plan, self._plan = self._plan, None
        if plan is None:
            return
        await self._all_written(broker)
        await self._until(plan.transfer, lambda ended: plan.transfer.move(plan.stages(), ended))
        left = plan.left_behind()
        target = plan.transfer.target
        facts = {"node_id": None if target is None else target.node_id, "messages": plan.moving.moved}
        if not plan.in_doubt and self._owner.error is None:
            plan.forget_target()
        self.outcome = ScaleDownOutcome(plan.everything_moved, self._end(broker))
        if self.outcome.complete:
            log.info("scaled down", extra=facts)
            return
        log.error(
            "scaled down in part: the rest stays in the journal",
            extra={
                **facts,
                "reason": plan.transfer.error or plan.moving.refusal,
                "refused": plan.moving.refused,
                "left": left,
                "prepared": plan.left_prepared(),
            },
        )

    async def _all_written(self, broker: Broker) -> None:
        """Messages that are being written are in their queues after that; without effect once the store has failed."""
        context = broker.store.context
        sequence = context.appended
        while context.durable < sequence and self._owner.error is None:
            self._parts.turn.request()
            await asyncio.sleep(LOOK_MS / 1000)

    async def _until(self, transfer: Transfer, begin: Callable[[Callable[[], None]], None]) -> None:
        """Begin a part of a transfer and wait for its end, or until the node fails."""
        ended: asyncio.Future[None] = self._parts.loop.create_future()
        begin(lambda: ended.set_result(None))
        while not ended.done():
            await asyncio.wait((ended,), timeout=LOOK_MS / 1000)
            if self._owner.error is not None:
                # the store of the failed node may have failed too, so no message can be removed from it
                transfer.close()
                return

    async def _empty(self, flows: ClusterFlows) -> None:
        """Let connected bridges bring the messages for other nodes, then stop them without a message under way."""
        clock, before, since_ms = self._parts.environment.clock, -1, 0
        while True:
            bridges = [each for each in flows.all() if each.bridge.connected]
            waiting = sum(each.queue.message_count for each in bridges)
            now_ms = clock.monotonic_ms()
            if waiting != before:
                before, since_ms = waiting, now_ms
            if not waiting or now_ms - since_ms >= STALL_MS:
                break
            await asyncio.sleep(LOOK_MS / 1000)
        for each in flows.all():
            if each.bridge.started:
                # bridges in other states are pausing or stopping already, or do not run
                each.bridge.stop()
        while any(each.bridge.unconfirmed for each in flows.all()):
            await asyncio.sleep(LOOK_MS / 1000)


def _pending(broker: Broker) -> SettingRecord | None:
    """The record of a scale-down that was interrupted; None: there is none."""
    found = (each for each in broker.store.state.settings.values() if each.scope is SettingKind.SCALE_DOWN)
    return next(found, None)
