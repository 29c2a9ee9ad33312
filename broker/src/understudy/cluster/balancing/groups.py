"""The grouping handler of a node: which queue of which member gets the messages of each group (artemis-ha s. 7.8).

The LOCAL handler decides and writes each binding to the log; the decision counts, for this node and for those that
asked, when it is durable. REMOTE handlers ask it by notifications and remember the answers. Implements
``routing.grouping.GroupDecisions``, ``group_binding.GroupOwner``, ``routing.addresses.listeners.RoutingListener`` and
``remote_bindings.RemoteListener``.

Not here: the states of one binding (``group_binding``), the form of notifications (``group_notices``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from understudy.cluster.balancing.group_binding import Event, GroupBinding, State
from understudy.cluster.balancing.group_notices import (
    PROPOSAL,
    PROPOSAL_RESPONSE,
    UNPROPOSAL,
    GroupNotice,
    GroupNotifications,
)
from understudy.config.grouping import GroupingConfiguration
from understudy.dataclass import dataclass
from understudy.errors import BrokerError, DiskFull
from understudy.limits import GROUP_BINDINGS_MAX, GROUP_HELD_BYTES_OF_NODE_MAX, GROUP_HELD_BYTES_OF_SESSION_MAX
from understudy.ports import Clock, Timer, Timers
from understudy.routing.addresses.address import Address
from understudy.routing.addresses.directory import Directory
from understudy.routing.grouping import Undecided, shortened
from understudy.routing.queues.consumer import Consumer
from understudy.routing.queues.queue import Queue
from understudy.routing.remote import RemoteBinding
from understudy.store.messages.message_store import MessageStore
from understudy.store.setting_record import SettingKind, SettingRecord

log = logging.getLogger(__name__)

#: Idle groups that are freed at once before other work has its turn.
_FREED_AT_ONCE: Final = 500
_QUEUE: Final = "queue"


@dataclass(frozen=True, slots=True)
class GroupParts:
    """Objects that a grouping handler uses."""

    directory: Directory
    store: MessageStore
    clock: Clock
    timers: Timers
    notifications: GroupNotifications
    remote: Mapping[str, RemoteBinding]
    """Known queues of other members, by cluster name."""
    node_id: str
    max_hops: int
    """Proposals and answers of other nodes are passed on that far."""


@dataclass(slots=True)
class GroupCounts:
    """Counters of a grouping handler since the activation."""

    proposals: int = 0
    """Number of proposals sent, or received by the LOCAL handler."""
    freed: int = 0
    """Bindings that were removed."""
    ungrouped: int = 0
    """Messages that were routed without their group, after they had waited or because its routing name is that of two
    addresses."""


class Groups:
    """The common part of LOCAL and REMOTE handlers. Implements ``GroupDecisions`` and ``GroupOwner``."""

    def __init__(self, settings: GroupingConfiguration, parts: GroupParts) -> None:
        self.settings = settings
        self.parts = parts
        self.node_id = parts.node_id
        self.bindings: dict[str, GroupBinding] = {}
        """Bindings by key, the least recently used one first."""
        self.counts = GroupCounts()
        self.waiting = 0
        """Sessions of which a message waits."""
        self._by_queue: dict[str, dict[str, None]] = {}
        """Keys, by cluster name of their queue."""
        self._full = False
        self._closed = False
        parts.directory.listeners.append(self)

    @property
    def bound(self) -> int:
        """Groups that have a queue."""
        return sum(map(len, self._by_queue.values()))

    def close(self) -> None:
        """Called when the node is not active any more."""
        self._closed = True
        for binding in self.bindings.values():
            binding.close()
        self.bindings.clear()
        self._by_queue.clear()

    # -- routing.grouping.GroupDecisions ----------------------------------------------------------

    def ask(self, key: str, queues: Collection[str], propose: Callable[[], str]) -> Undecided | None:
        binding = self._use(key)
        if binding.queue and binding.queue not in queues and self._knows(binding.queue):
            # the queue belongs to another address and has the same routing name by chance
            self.counts.ungrouped += 1
            return None
        binding.look(queues)
        if binding.state is State.UNBOUND:
            try:
                self._decide(binding, propose())
            except BrokerError:
                self._tidy(binding)
                raise
        if binding.waits:
            return binding
        if binding.state is State.UNGROUPED:
            self.counts.ungrouped += 1
            return None
        binding.proposals = 0
        self._used(binding)
        return None

    def _knows(self, cluster_name: str) -> bool:
        if cluster_name.endswith(self.node_id):
            return cluster_name.removesuffix(self.node_id) in self.parts.directory.queues
        return cluster_name in self.parts.remote

    def queue_of(self, key: str) -> str | None:
        binding = self.bindings.get(key)
        return None if binding is None else binding.destination

    # -- of the kinds -----------------------------------------------------------------------------

    def heard(self, notice: GroupNotice, node_id: str) -> None:
        """Take a notification that another member, ``node_id``, has published."""
        raise NotImplementedError

    def member_reported(self, node_id: str) -> None:
        """A member has reported all its queues: notifications of it may have been missed before."""

    def resend(self) -> None:
        """A member begins to listen: proposals without an answer are published again."""

    def _decide(self, binding: GroupBinding, queue: str) -> None:
        """Called when a group without a queue is to have one. Raises DiskFull."""
        raise NotImplementedError

    def _used(self, binding: GroupBinding) -> None:
        """Note that the binding of a group was used for a message."""

    def _forget(self, binding: GroupBinding) -> None:
        """Remove a binding whose queue is gone, or that is one too many."""
        raise NotImplementedError

    # -- group_binding.GroupOwner -----------------------------------------------------------------

    @property
    def allowance_bytes(self) -> int:
        return min(GROUP_HELD_BYTES_OF_SESSION_MAX, GROUP_HELD_BYTES_OF_NODE_MAX // max(1, self.waiting))

    def propose(self, binding: GroupBinding) -> None: ...

    def await_queue(self, binding: GroupBinding) -> None:
        binding.timer = self.parts.timers.call_later(self.settings.timeout_ms, partial(self._late, binding))

    def moved(self, binding: GroupBinding, before: str) -> None:
        if before:
            keys = self._by_queue[before]
            del keys[binding.key]
            if not keys:
                del self._by_queue[before]
            self._end_ownership(binding.key, before)
        if binding.queue:
            self._by_queue.setdefault(binding.queue, {})[binding.key] = None
        else:
            self.counts.freed += 1

    def disown(self, binding: GroupBinding) -> None:
        self._publish(GroupNotice(UNPROPOSAL, binding.key, binding.queue))

    def gave_up(self, binding: GroupBinding, waiting: int) -> None:
        log.warning(
            "no decision about a message group; messages are routed without their group",
            extra={"group": binding.key, "proposals": binding.proposals, "sessions": waiting},
        )

    # -- bindings ---------------------------------------------------------------------------------

    def _use(self, key: str) -> GroupBinding:
        binding = self.bindings.pop(key, None)
        if binding is None:
            if len(self.bindings) >= GROUP_BINDINGS_MAX:
                self._evict()
            binding = GroupBinding(key, self)
        self.bindings[key] = binding
        binding.used_ms = self.parts.clock.monotonic_ms()
        return binding

    def _evict(self) -> None:
        oldest = next((each for each in self.bindings.values() if not each.waits and not each.waiting), None)
        if oldest is None:
            return
        if not self._full:
            log.warning("message groups are forgotten before their time", extra={"limit": GROUP_BINDINGS_MAX})
        self._full = True
        self._forget(oldest)
        self.bindings.pop(oldest.key, None)

    def _fire(self, binding: GroupBinding, event: Event, *payload: object) -> None:
        binding.fire(event, *payload)
        self._tidy(binding)

    def _tidy(self, binding: GroupBinding) -> None:
        """Forget a binding of which nothing is known and for which nothing waits."""
        if binding.state is State.UNBOUND and not binding.waiting and self.bindings.get(binding.key) is binding:
            del self.bindings[binding.key]

    def _late(self, binding: GroupBinding) -> None:
        binding.late()
        self._tidy(binding)

    def _end_ownership(self, key: str, cluster_name: str) -> None:
        """A queue of this node does not have the group any more: nor has its consumer."""
        queue = self.parts.directory.queues.get(cluster_name.removesuffix(self.node_id))
        if queue is None or not cluster_name.endswith(self.node_id):
            return
        for routing_name in (queue.address.name, queue.name):
            if key.endswith(f".{routing_name}"):
                queue.close_group(queue.group_key(key.removesuffix(f".{routing_name}")))
                return

    def _bindings_of(self, cluster_name: str) -> list[GroupBinding]:
        return [self.bindings[key] for key in self._by_queue.get(cluster_name, ())]

    def _publish(self, notice: GroupNotice) -> None:
        self.parts.notifications.group_noticed(notice.kind, notice.properties(self.settings.address))

    def _pass_on(self, notice: GroupNotice) -> None:
        """Publish a notification of another member for those that are further away, which take it by its distance.

        That a group is free is published at every member, for management clients (as Artemis's
        ``RemoteGroupingHandler.remove``).
        """
        if notice.kind == UNPROPOSAL or notice.distance + 1 < self.parts.max_hops:
            self._publish(replace(notice, distance=notice.distance + 1))

    # -- RemoteListener ---------------------------------------------------------------------------

    def remote_binding_added(self, binding: RemoteBinding) -> None:
        """Route messages that wait for the queue."""
        self._came(binding.name)

    def remote_binding_removed(self, binding: RemoteBinding) -> None:
        """Free the groups of the remote queue."""
        self._went(binding.name)

    def remote_consumer_added(self, binding: RemoteBinding, selector: str | None) -> None:
        """Do nothing: a group stays with its queue."""

    def remote_consumer_removed(self, binding: RemoteBinding, selector: str | None) -> None:
        """Do nothing: a group stays with its queue."""

    def remote_connected(self, binding: RemoteBinding) -> None:
        """Do nothing: a group stays with its queue."""

    # -- RoutingListener --------------------------------------------------------------------------

    def queue_added(self, queue: Queue) -> None:
        """Route messages that wait for the queue."""
        self._came(queue.name + self.node_id)

    def queue_removed(self, queue: Queue) -> None:
        """Free the groups of the queue."""
        self._went(queue.name + self.node_id)

    def consumer_added(self, queue: Queue, consumer: Consumer) -> None:
        """Do nothing: a group stays with its queue."""

    def consumer_removed(self, queue: Queue, consumer: Consumer) -> None:
        """Do nothing: a group stays with its queue."""

    def address_added(self, address: Address) -> None:
        """Do nothing: a new address has no queues yet."""

    def address_removed(self, address: Address) -> None:
        """Do nothing: a removed address has no queues any more."""

    def queue_updated(self, queue: Queue) -> None:
        """Do nothing: a group does not depend on the filter of its queue."""

    def settings_changed(self, address: Address) -> None:
        """Do nothing: a group does not depend on address settings."""

    def _came(self, cluster_name: str) -> None:
        for binding in self._bindings_of(cluster_name):
            self._fire(binding, Event.SEEN)

    def _went(self, cluster_name: str) -> None:
        for binding in self._bindings_of(cluster_name):
            self._forget(binding)


class LocalGroups(Groups):
    """The handler that decides for the cluster."""

    def __init__(self, settings: GroupingConfiguration, parts: GroupParts) -> None:
        super().__init__(settings, parts)
        self._asked: dict[str, list[GroupNotice]] = {}
        """Proposals that are answered when the record of the binding is durable, by key."""
        self._other_warned = False
        self._reaper: Timer | None = None
        now_ms = parts.clock.monotonic_ms()
        for record in bindings_in(parts.store):
            queue = (record.values or {}).get(_QUEUE)
            if isinstance(queue, str):
                binding = self.bindings[record.match] = GroupBinding(record.match, self)
                binding.used_ms = now_ms
                binding.fire(Event.BIND, queue)
        if settings.group_timeout_ms > 0:
            self._reap_later(settings.reaper_period_ms)

    def close(self) -> None:
        if self._reaper is not None:
            self._reaper.cancel()
        super().close()

    def _decide(self, binding: GroupBinding, queue: str) -> None:
        store = self.parts.store
        if store.full:
            raise DiskFull("no space for the binding of a message group", hint="max-disk-usage or min-disk-free")
        sequence = store.store_setting(SettingRecord(SettingKind.GROUP, binding.key, {_QUEUE: queue}))
        binding.fire(Event.ASK, queue)
        if sequence > store.context.durable:
            store.context.when_durable(sequence, self._decided, binding)
        else:
            self._decided(binding)

    def _decided(self, binding: GroupBinding) -> None:
        if self._closed:
            return
        binding.fire(Event.BIND, binding.proposal)
        for proposal in self._asked.pop(binding.key, ()):
            self._answer(proposal, binding)

    def _answer(self, proposal: GroupNotice, binding: GroupBinding) -> None:
        alternative = None if proposal.queue == binding.queue else binding.queue
        self._publish(GroupNotice(PROPOSAL_RESPONSE, proposal.key, proposal.queue or binding.queue, alternative))

    def heard(self, notice: GroupNotice, node_id: str) -> None:
        if notice.kind == PROPOSAL:
            self._proposed(notice)
            return
        binding = self.bindings.get(shortened(notice.key))
        if notice.kind == UNPROPOSAL:
            if binding is not None and binding.queue and notice.queue in (None, binding.queue):
                self._remove(binding)
            self._pass_on(notice)
        elif (binding is None or binding.queue != notice.chosen) and not self._other_warned:
            self._other_warned = True
            log.error(
                "another member answers proposals about message groups: only one may have a LOCAL grouping-handler",
                extra={"node_id": node_id, "group": notice.key},
            )

    def _proposed(self, notice: GroupNotice) -> None:
        self.counts.proposals += 1
        binding = self._use(shortened(notice.key))
        if binding.state is State.UNBOUND and notice.queue is not None:
            try:
                self._decide(binding, notice.queue)
            except BrokerError as error:
                # the other node sends its proposal again
                log.warning("a message group was not bound", extra={"group": notice.key, "error": str(error)})
        if binding.queue:
            self._answer(notice, binding)
        elif binding.state is State.PROPOSED:
            self._asked.setdefault(binding.key, []).append(notice)
        self._tidy(binding)

    def _forget(self, binding: GroupBinding) -> None:
        if binding.queue:
            self._publish(GroupNotice(UNPROPOSAL, binding.key, binding.queue))
            self._remove(binding)

    def _remove(self, binding: GroupBinding) -> None:
        self._erase(binding)
        self._fire(binding, Event.FREE)

    def _erase(self, binding: GroupBinding) -> None:
        self.parts.store.store_setting(SettingRecord(SettingKind.GROUP, binding.key, None))

    def disown(self, binding: GroupBinding) -> None:
        self._erase(binding)
        super().disown(binding)

    # -- idle groups ------------------------------------------------------------------------------

    def _reap_later(self, delay_ms: int) -> None:
        self._reaper = self.parts.timers.call_later(delay_ms, self._reap)

    def _reap(self) -> None:
        latest_ms = self.parts.clock.monotonic_ms() - self.settings.group_timeout_ms
        idle: list[GroupBinding] = []
        for binding in self.bindings.values():
            # the least recently used ones are first
            if binding.used_ms >= latest_ms or len(idle) >= _FREED_AT_ONCE:
                break
            if not binding.waits:
                idle.append(binding)
        for binding in idle:
            self._forget(binding)
        self._reap_later(0 if len(idle) >= _FREED_AT_ONCE else self.settings.reaper_period_ms)


class RemoteGroups(Groups):
    """A handler that asks the LOCAL one."""

    def _decide(self, binding: GroupBinding, queue: str) -> None:
        binding.fire(Event.ASK, queue)

    def propose(self, binding: GroupBinding) -> None:
        self._ask_again(binding, binding.proposal)
        binding.timer = self.parts.timers.call_later(self.settings.timeout_ms, partial(self._late, binding))

    def _ask_again(self, binding: GroupBinding, queue: str) -> None:
        self.counts.proposals += 1
        binding.asked_ms = self.parts.clock.monotonic_ms()
        self._publish(GroupNotice(PROPOSAL, binding.key, queue))

    def _used(self, binding: GroupBinding) -> None:
        timeout_ms = self.settings.group_timeout_ms
        if timeout_ms > 0 and 2 * (binding.used_ms - binding.asked_ms) >= timeout_ms:
            # the LOCAL handler must not take the group for idle
            self._ask_again(binding, binding.queue)

    def heard(self, notice: GroupNotice, node_id: str) -> None:
        key = shortened(notice.key)
        if notice.kind == PROPOSAL_RESPONSE and notice.chosen is not None:
            self._fire(self._use(key), Event.BIND, notice.chosen, node_id)
        elif notice.kind == UNPROPOSAL:
            binding = self.bindings.get(key)
            if binding is not None and binding.queue and notice.queue in (None, binding.queue):
                self._fire(binding, Event.FREE)
            elif notice.queue is not None:
                # unknown here if all its messages were sent at the deciding member, but its consumer may be
                # connected to this member
                self._end_ownership(key, notice.queue)
        self._pass_on(notice)

    def member_reported(self, node_id: str) -> None:
        for binding in self.bindings.values():
            if binding.source == node_id:
                binding.fire(Event.DOUBT)

    def resend(self) -> None:
        for binding in list(self.bindings.values()):
            if binding.state in (State.PROPOSED, State.CHECKED):
                self._ask_again(binding, binding.proposal)

    def _forget(self, binding: GroupBinding) -> None:
        self._fire(binding, Event.FREE)


def bindings_in(store: MessageStore) -> list[SettingRecord]:
    """The bindings of groups that the log has."""
    return [each for each in store.state.settings.values() if each.scope is SettingKind.GROUP]


def forget_bindings(store: MessageStore) -> None:
    """Forget the queues of all message groups: this node does not decide about them any more. Raises DiskFull."""
    for record in bindings_in(store):
        store.store_setting(replace(record, values=None))
