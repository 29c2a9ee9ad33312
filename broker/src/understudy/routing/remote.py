"""Queues of other nodes of the cluster as this node routes to them (ADR 0068).

A remote binding leads to the store-and-forward queue of the node that has the queue. A message that goes there carries
the ids of the queues that are meant in a property named after that queue; the bridge to the other node puts them into
``_AMQ_ROUTE_TO``, and the other node routes by them alone.

Of all bindings of one routing name one gets a message: the next one in turn that wants it. The routing name is the
address for anycast and the name of the queue for multicast, so a multicast message goes to every name once.

Source: artemis-ha s. 7.5, 7.6, artemis-core s. 9.3. Not here: how remote bindings are learned (``balancing``).
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from math import lcm
from typing import Final, NamedTuple

from understudy.message import ROUTE_TO, ROUTING_TYPE, Message
from understudy.properties import Properties, PropertyValue
from understudy.routing.addresses.binding import Binding
from understudy.routing.filter import Filter
from understudy.routing.grouping import GroupDecisions, Undecided, group_key, group_of
from understudy.routing.queues.queue import Queue
from understudy.routing.transit import set_deliveries
from understudy.terms import MessageLoadBalancing, RoutingType

_I64: Final = struct.Struct(">q")
#: Of an encoded property block before its properties.
_BLOCK_HEAD_BYTES: Final = 5
#: A node id is a UUID.
_NODE_ID_CHARACTERS: Final = 36
_WITHOUT_ANYCAST: Final = (MessageLoadBalancing.OFF, MessageLoadBalancing.OFF_WITH_REDISTRIBUTION)
#: Combinations of bindings whose encoded ids are kept.
_ENTRIES_MAX: Final = 1_000
_REDISTRIBUTES: Final = (MessageLoadBalancing.ON_DEMAND, MessageLoadBalancing.OFF_WITH_REDISTRIBUTION)


class RemoteConsumers:
    """Number of consumers of a remote queue for each of their filters."""

    __slots__ = ("_counts", "_filters")

    def __init__(self) -> None:
        self._counts: dict[str | None, int] = {}
        self._filters: dict[str, Filter] = {}

    def __iter__(self) -> Iterator[str | None]:
        """The filter of each consumer; None: without one."""
        for text, count in self._counts.items():
            for _ in range(count):
                yield text

    @property
    def count(self) -> int:
        """Number of consumers of the remote queue."""
        return sum(self._counts.values())

    def add(self, text: str | None, selector: Filter | None) -> None:
        """Add a consumer with the text of its filter and the parsed filter."""
        self._counts[text] = self._counts.get(text, 0) + 1
        if text is not None and selector is not None:
            self._filters[text] = selector

    def remove(self, text: str | None) -> None:
        """Remove a consumer; one that is not known is ignored."""
        count = self._counts.get(text, 0)
        if count > 1:
            self._counts[text] = count - 1
        elif count:
            del self._counts[text]
            self._filters.pop(text or "", None)

    def clear(self) -> None:
        """Forget all consumers."""
        self._counts.clear()
        self._filters.clear()

    def want(self, message: Message | None) -> bool:
        """Whether one of the consumers would take a message; None: a message that is not looked at."""
        return None in self._counts or (
            message is not None and any(each.matches(message) for each in self._filters.values())
        )

    @property
    def selective(self) -> bool:
        """Whether all consumers have filters, so that the message decides whether one takes it."""
        return bool(self._counts) and None not in self._counts


class RemoteQueue(NamedTuple):
    """A queue of another node, as that node announces it."""

    name: str
    """Cluster name, unique in the cluster: the name of the queue and the id of its node."""
    address: str
    routing_name: str
    """The address for anycast, the name of the queue for multicast."""
    remote_id: int
    """Id of the queue, or of the binding, at the node that the store-and-forward queue leads to."""
    distance: int
    """Hops to the queue; 1: the node at the other end of the bridge has it."""


class RemoteBinding:
    """A queue of another node with its consumers."""

    __slots__ = ("address", "binding_id", "connected", "consumers", "distance", "filter", "name", "queue", "remote_id",
                 "routing_name")  # fmt: skip

    def __init__(
        self,
        remote: RemoteQueue,
        *,
        binding_id: int,
        queue: Queue,
        filter: Filter | None,  # noqa: A002  # the standard name
    ) -> None:
        """Args:
        remote: The queue, as its node announces it.
        binding_id: Id of this binding, by which nodes that are further away send to it.
        queue: Store-and-forward queue that leads there.
        """
        self.name = remote.name
        self.address = remote.address
        self.routing_name = remote.routing_name
        self.remote_id = remote.remote_id
        self.binding_id = binding_id
        self.distance = remote.distance
        self.queue = queue
        self.filter = filter
        self.consumers = RemoteConsumers()
        self.connected = True
        """Whether its node can be reached; another one does not get a message while one that is connected wants it."""

    @property
    def queue_name(self) -> str:
        """Name of the queue at its node."""
        return self.name[:-_NODE_ID_CHARACTERS]

    @property
    def node_id(self) -> str:
        """Id of the node that has the queue."""
        return self.name[-_NODE_ID_CHARACTERS:]


_Candidate = Binding | RemoteBinding


class Turns(NamedTuple):
    """The queues that get the next messages of an address."""

    routing_type: RoutingType
    """Routing type of all its queues."""
    cycles: dict[str, list[int]]
    """The candidates of each routing name in the order in which they get one message each, again and again."""


class Share(NamedTuple):
    """The messages of a part that go to the same queues."""

    first: int
    """Number of the first one."""
    step: int
    """Distance from one message of the share to the next."""
    queues: tuple[Queue, ...]
    entries: bytes
    """Properties with the ids of the remote queues, encoded."""
    entry_count: int


class Balancer:
    """Chooses between the queues of this node and those of other nodes for one address that has any of those, or gets
    messages of groups about which the members decide together.
    """

    __slots__ = ("_arrived", "_decisions", "_entries", "_groups", "_kinds", "_stale", "_turns", "mode", "remote")

    def __init__(self, mode: MessageLoadBalancing, decisions: GroupDecisions | None = None) -> None:
        """Args:
        mode: ``message-load-balancing`` of the cluster connection.
        decisions: About message groups; None: there is no grouping handler.
        """
        self.mode = mode
        self._decisions = decisions
        self.remote: dict[str, RemoteBinding] = {}
        """Remote bindings by cluster name."""
        self._arrived: dict[int, _Candidate] = {}
        """All candidates by identity, in the order in which they came: the order of their turns, as in Artemis."""
        self._groups: dict[str, list[_Candidate]] = {}
        """Candidates by routing name."""
        self._kinds: set[RoutingType] = set()
        """Routing types of all candidates."""
        self._entries: dict[tuple[RemoteBinding, ...], tuple[bytes, int]] = {}
        """``route_entries`` of bindings that get messages together."""
        self._turns: dict[str, int] = {}
        self._stale = False
        """Whether bindings have changed since they were grouped."""

    @property
    def anycast(self) -> bool:
        """Whether an anycast message may go to another node: one has such a queue, and the mode lets messages leave."""
        return self.mode not in _WITHOUT_ANYCAST and any(
            each.routing_name == each.address and not each.queue.deleted for each in self.remote.values()
        )

    def refresh(self, local: Iterable[Binding]) -> None:
        """Take the bindings of this node as they are now: of the address and of wildcard addresses that cover it."""
        present: dict[int, _Candidate] = {id(each): each for each in local}
        self._arrived = {
            key: each for key, each in self._arrived.items() if isinstance(each, RemoteBinding) or key in present
        } | present
        self._stale = True

    def add(self, binding: RemoteBinding) -> None:
        """Add a queue of another node, which gets messages from then on."""
        if binding.name in self.remote:
            self.remove(binding.name)
        self.remote[binding.name] = binding
        self._arrived[id(binding)] = binding
        self._stale = True

    def remove(self, name: str) -> None:
        """Remove a queue of another node."""
        del self._arrived[id(self.remote.pop(name))]
        self._stale = True

    def _by_routing_name(self) -> dict[str, list[_Candidate]]:
        if not self._stale:
            return self._groups
        groups: dict[str, list[_Candidate]] = {}
        for each in self._arrived.values():
            name = each.routing_name if isinstance(each, RemoteBinding) else routing_name(each)
            groups.setdefault(name, []).append(each)
        self._groups = groups
        self._turns = {name: self._turns.get(name, 0) for name in groups}
        self._kinds = {_routing_type(each) for candidates in groups.values() for each in candidates}
        self._entries.clear()
        self._stale = False
        return groups

    # -- routing ----------------------------------------------------------------------------------

    def route(self, message: Message, queue_name: str | None = None) -> tuple[Message, tuple[Queue, ...]]:
        """The message in the form that its queues get, and those queues.

        Args:
            message: Message with its id.
            queue_name: Only queues of this name, of whatever node (``address::queue``); None: all.
        """
        local: list[Queue] = []
        remote: list[RemoteBinding] = []
        group = None if self._decisions is None else group_of(message)
        for name, candidates in self._by_routing_name().items():
            if queue_name is not None:
                candidates = [each for each in candidates if _is_named(each, queue_name)]
            chosen = None if group is None else self._of_group(group, name, candidates, message)
            if chosen is None:
                chosen = self._next(name, candidates, message)
            if isinstance(chosen, RemoteBinding):
                remote.append(chosen)
            elif chosen is not None:
                local.append(chosen.queue)
        return addressed_to(message, remote), (*dict.fromkeys((*local, *(each.queue for each in remote))),)

    def _next(self, name: str, candidates: list[_Candidate], message: Message) -> _Candidate | None:
        index = self._choose(candidates, self._turns[name], message)
        if index < 0:
            return None
        self._turns[name] = (index + 1) % len(candidates)
        return candidates[index]

    def _choose(self, candidates: list[_Candidate], turn: int, message: Message | None) -> int:
        """Index of the candidate that gets a message; -1: none takes it. None: any message that is not looked at
        (``turns``).
        """
        count = len(candidates)
        turn = turn if turn < count else 0
        second_choice = -1
        for step in range(count):
            index = (turn + step) % count
            candidate = candidates[index]
            if not self._takes(candidate, message):
                continue
            if count == 1 or self._wants(candidate, message):
                return index
            local_first = self.mode is MessageLoadBalancing.ON_DEMAND and isinstance(candidate, Binding)
            if second_choice < 0 or local_first:
                second_choice = index
        return second_choice

    def _takes(self, candidate: _Candidate, message: Message | None) -> bool:
        asked = None if message is None else message.properties.get(ROUTING_TYPE)
        if isinstance(candidate, Binding):
            if not candidate.queue.takes_messages or (asked is not None and asked != candidate.routing_type):
                return False
        elif not self._may_leave(candidate, asked):
            return False
        return candidate.filter is None or (message is not None and candidate.filter.matches(message))

    def _may_leave(self, candidate: RemoteBinding, asked: PropertyValue) -> bool:
        if candidate.queue.deleted:
            # by an operator; the flow makes it again
            return False
        if asked == RoutingType.ANYCAST and candidate.routing_name != candidate.address:
            return False
        return asked == RoutingType.MULTICAST or self.mode not in _WITHOUT_ANYCAST

    def _wants(self, candidate: _Candidate, message: Message | None) -> bool:
        if isinstance(candidate, RemoteBinding):
            if not candidate.connected:
                return False
            if self.mode is MessageLoadBalancing.OFF:
                # consumers of an internal queue do not count
                return False
            return self.mode is MessageLoadBalancing.STRICT or candidate.consumers.want(message)
        if self.mode is MessageLoadBalancing.STRICT:
            return True
        return any(
            each.filter is None or (message is not None and each.filter.matches(message))
            for each in candidate.queue.consumers
        )

    # -- runs of messages -------------------------------------------------------------------------

    def turns(self, routing_types: Collection[RoutingType]) -> Turns | None:
        """The queues that get the next messages, for messages that are not looked at: sent to the address, of no group,
        to the routing type of the result or to any. They get what ``route`` would give each of them.

        Returns:
            None: the choice depends on the message, or no queue takes it.
        """
        groups = self._by_routing_name()
        if len(self._kinds) != 1:
            return None
        (kind,) = self._kinds
        if kind not in routing_types:
            return None
        if kind is RoutingType.MULTICAST and self.mode in _WITHOUT_ANYCAST and self.remote:
            # only a message that names its routing type goes to other nodes
            return None
        cycles: dict[str, list[int]] = {}
        for name, candidates in groups.items():
            if any(map(self._looks, candidates)):
                return None
            chosen: list[int] = []
            index = self._choose(candidates, self._turns[name], None)
            while index >= 0 and index not in chosen:
                chosen.append(index)
                index = self._choose(candidates, index + 1, None)
            if chosen:
                assert index == chosen[0], "the choice depends on the one before only"
                cycles[name] = chosen
        return Turns(kind, cycles) if cycles else None

    def _looks(self, candidate: _Candidate) -> bool:
        """Whether messages are looked at: the queue, or all of its consumers, have filters."""
        if candidate.filter is not None:
            return True
        if self.mode is MessageLoadBalancing.STRICT:
            return False
        if isinstance(candidate, RemoteBinding):
            return candidate.consumers.selective
        consumers = candidate.queue.consumers
        return consumers.count > 0 and all(each.filter is not None for each in consumers)

    def share(self, turns: Turns, count: int) -> list[Share]:
        """Which of ``count`` messages go where; ``turns`` is of this moment."""
        groups = self._by_routing_name()
        period = lcm(*map(len, turns.cycles.values()))
        shares: list[Share] = []
        for first in range(min(period, count)):
            local: list[Queue] = []
            remote: list[RemoteBinding] = []
            for name, cycle in turns.cycles.items():
                chosen = groups[name][cycle[first % len(cycle)]]
                if isinstance(chosen, RemoteBinding):
                    remote.append(chosen)
                else:
                    local.append(chosen.queue)
            queues = (*dict.fromkeys((*local, *(each.queue for each in remote))),)
            shares.append(Share(first, period, queues, *self._entries_of(tuple(remote))))
        return shares

    def _entries_of(self, bindings: tuple[RemoteBinding, ...]) -> tuple[bytes, int]:
        found = self._entries.get(bindings)
        if found is None:
            if len(self._entries) >= _ENTRIES_MAX:
                self._entries.clear()
            found = self._entries[bindings] = route_entries(bindings)
        return found

    def all_queues(self) -> tuple[Queue, ...]:
        """Every queue that a message may go to."""
        return tuple(dict.fromkeys(each.queue for some in self._by_routing_name().values() for each in some))

    def shared(self, turns: Turns, count: int) -> None:
        """Note that ``count`` messages went to the bindings whose turn it was."""
        groups = self._by_routing_name()
        for name, cycle in turns.cycles.items():
            self._turns[name] = (cycle[(count - 1) % len(cycle)] + 1) % len(groups[name])

    # -- message groups ---------------------------------------------------------------------------

    def undecided(self, message: Message, queue_name: str | None = None) -> Undecided | None:
        """The decision that a message waits for, because its group has no queue; None: it does not wait.

        Args:
            message: To be routed.
            queue_name: Only queues of this name; None: all.

        Raises:
            DiskFull: a decision cannot be written.
        """
        group = group_of(message)
        if self._decisions is None or group is None:
            return None
        for name, candidates in self._by_routing_name().items():
            if queue_name is not None:
                candidates = [each for each in candidates if _is_named(each, queue_name)]
            if not any(self._takes(each, message) for each in candidates):
                continue
            queues = [self._cluster_name(each) for each in candidates]
            propose = partial(self._proposal, name, candidates, message)
            waits = self._decisions.ask(group_key(group, name), queues, propose)
            if waits is not None:
                return waits
        return None

    def _proposal(self, name: str, candidates: list[_Candidate], message: Message) -> str:
        chosen = self._next(name, candidates, message)
        assert chosen is not None, "one of them takes it"
        return self._cluster_name(chosen)

    def _of_group(self, group: str, name: str, candidates: list[_Candidate], message: Message) -> _Candidate | None:
        """The queue that is decided for a group, whatever the mode and its consumers; None: it is not decided, or its
        filter does not take this message.
        """
        assert self._decisions is not None
        wanted = self._decisions.queue_of(group_key(group, name))
        if wanted is None:
            return None
        for each in candidates:
            if self._cluster_name(each) == wanted:
                if isinstance(each, Binding):
                    takes = self._takes(each, message)
                else:
                    takes = not each.queue.deleted and (each.filter is None or each.filter.matches(message))
                return each if takes else None
        return None

    def _cluster_name(self, candidate: _Candidate) -> str:
        if isinstance(candidate, RemoteBinding):
            return candidate.name
        return candidate.queue.name + ("" if self._decisions is None else self._decisions.node_id)

    # -- redistribution ---------------------------------------------------------------------------

    def wanted_elsewhere(self, queue: Queue) -> bool:
        """Whether consumers of another node may take messages of a queue of this one (artemis-ha s. 7.7)."""
        return self.mode in _REDISTRIBUTES and any(
            each.connected and each.consumers.count for each in self.elsewhere(queue)
        )

    def redistribute(self, message: Message, queue: Queue) -> RemoteBinding | None:
        """The queue of another node that may get a message of a queue of this one; None: no consumer there wants it."""
        name = _name_of(queue)
        candidates = self._by_routing_name().get(name, [])
        turn = self._turns.get(name, 0)
        for step in range(len(candidates)):
            candidate = candidates[(turn + step) % len(candidates)]
            if not isinstance(candidate, RemoteBinding) or not candidate.connected or candidate.queue.deleted:
                continue
            takes = candidate.filter is None or candidate.filter.matches(message)
            if takes and candidate.consumers.want(message):
                return candidate
        return None

    def redistribution_turns(self, queue: Queue) -> list[RemoteBinding] | None:
        """The queues of other nodes that get one message each of a queue of this one, again and again, as
        ``redistribute`` and ``served`` give them any messages; None: it depends on the messages.
        """
        name = _name_of(queue)
        candidates = self._by_routing_name().get(name, [])
        turn = self._turns.get(name, 0)
        chosen: list[RemoteBinding] = []
        for step in range(len(candidates)):
            candidate = candidates[(turn + step) % len(candidates)]
            if not isinstance(candidate, RemoteBinding) or not candidate.connected or candidate.queue.deleted:
                continue
            if candidate.filter is not None or candidate.consumers.selective:
                return None
            if candidate.consumers.want(None):
                chosen.append(candidate)
        return chosen

    def served(self, binding: RemoteBinding) -> None:
        """Note that the binding has got a message that was redistributed: the one after it is next."""
        candidates = self._by_routing_name().get(binding.routing_name, [])
        if binding in candidates:
            self._turns[binding.routing_name] = (candidates.index(binding) + 1) % len(candidates)

    def elsewhere(self, queue: Queue) -> list[RemoteBinding]:
        """Queues of other nodes that share the messages of a queue of this one."""
        return [each for each in self._by_routing_name().get(_name_of(queue), ()) if isinstance(each, RemoteBinding)]


def _routing_type(candidate: _Candidate) -> RoutingType:
    if isinstance(candidate, Binding):
        return candidate.routing_type
    return RoutingType.ANYCAST if candidate.routing_name == candidate.address else RoutingType.MULTICAST


def routing_name(binding: Binding) -> str:
    """Name that bindings share of which one gets a message (artemis-core s. 10.2)."""
    return binding.address if binding.routing_type is RoutingType.ANYCAST else binding.name


def _name_of(queue: Queue) -> str:
    return queue.address.name if queue.routing_type is RoutingType.ANYCAST else queue.name


def _is_named(candidate: _Candidate, queue_name: str) -> bool:
    return (candidate.name if isinstance(candidate, Binding) else candidate.queue_name) == queue_name


def addressed_to(message: Message, bindings: Iterable[RemoteBinding]) -> Message:
    """The message with the ids of remote queues, in a property for each store-and-forward queue that gets it."""
    ids = _ids(bindings)
    if not ids:
        return message
    properties = message.properties.copy()
    for name, value in ids.items():
        properties[name] = value
    return message.with_properties(properties)


def _ids(bindings: Iterable[RemoteBinding]) -> dict[str, bytes]:
    ids: dict[str, bytes] = {}
    for binding in bindings:
        name = ROUTE_TO + binding.queue.name
        ids[name] = ids.get(name, b"") + _I64.pack(binding.remote_id)
    return ids


def route_entries(bindings: Iterable[RemoteBinding]) -> tuple[bytes, int]:
    """The properties of ``addressed_to``, encoded, and their number."""
    ids = _ids(bindings)
    return Properties(ids).encode()[_BLOCK_HEAD_BYTES:], len(ids)


def without_routes(properties: Properties, deliveries: int = 0) -> Properties:
    """A copy without the ids of queues that this node or another one has added, for a message that was delivered so
    often before.
    """
    kept = properties.copy()
    set_deliveries(kept, deliveries)
    for name in [each for each in kept if each.startswith(ROUTE_TO)]:
        del kept[name]
    return kept


def queue_ids(value: PropertyValue) -> list[int]:
    """The queue ids of ``_AMQ_ROUTE_TO``; none if it is damaged."""
    if not isinstance(value, bytes) or len(value) % _I64.size:
        return []
    return [each for (each,) in _I64.iter_unpack(value)]
