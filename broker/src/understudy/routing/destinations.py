"""The queues of one message, whatever decides about them: the ids that another node of the cluster gives, a name that
the producer gives, or the address.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

from understudy.dataclass import dataclass
from understudy.message import ACK_ROUTE_TO, ROUTE_TO, SCALE_DOWN_TO, Message
from understudy.properties import Properties, PropertyValue
from understudy.routing.addresses.address import Address
from understudy.routing.addresses.binding import Binding
from understudy.routing.addresses.directory import Directory
from understudy.routing.grouping import Undecided, group_of
from understudy.routing.queues.queue import Queue
from understudy.routing.remote import RemoteBinding, addressed_to, queue_ids, without_routes

__all__ = [
    "NamedQueue",
    "Undecided",
    "destinations",
    "is_of_member",
    "kept_for_other",
    "queues_of_ids",
    "undecided",
    "without_acknowledgements",
    "without_chosen_queues",
]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NamedQueue:
    """The queue that a sender names by ``address::queue``: no other queue of the address may get the message."""

    name: str
    queue: Queue | None
    """The queue of that name; None: the address has none."""

    def queues_for(self, message: Message, routing_type: PropertyValue) -> tuple[Queue, ...]:
        """The named queue, if it takes the message as every binding does: its routing type, if the message asks
        for one, and its filter; else none (manual, "Using a Message Property to Determine Routing Type").
        """
        queue = self.queue
        if queue is None or not queue.takes_messages:
            return ()
        if routing_type is not None and routing_type != queue.routing_type:
            return ()
        return (queue,) if queue.filter is None or queue.filter.matches(message) else ()


def destinations(
    address: Address, message: Message, routing_type: PropertyValue, only: NamedQueue | None
) -> tuple[Message, tuple[Queue, ...]]:
    """The message in the form that its queues get, and those queues.

    Args:
        address: That it was sent to.
        message: Message with its id.
        routing_type: That it asks for.
        only: The queue that its producer names.
    """
    asked = routing_type if isinstance(routing_type, int) else None
    if ROUTE_TO in message.properties:
        return _by_ids(address, message, asked)
    if message.properties.may_be_reserved and SCALE_DOWN_TO in message.properties:
        return _by_ids_elsewhere(address, message, asked)
    if address.balancer is not None:
        return address.balancer.route(message, None if only is None else only.name)
    return message, address.route(message, asked) if only is None else only.queues_for(message, routing_type)


def undecided(directory: Directory, address: Address, message: Message, only: NamedQueue | None) -> Undecided | None:
    """The decision that a message waits for, because its group has no queue; None: it does not wait.

    Args:
        address: That it was sent to. Those that diverts forward it to are looked at, too.
        only: The queue that its producer names.

    Raises:
        DiskFull: a decision cannot be written.
    """
    elsewhere = directory.elsewhere
    if elsewhere is None or elsewhere.decisions is None or address.internal or group_of(message) is None:
        return None
    for each in _reached(directory, address, message):
        name = only.name if only is not None and each is address else None
        waits = elsewhere.balancer_of(each).undecided(message, name)
        if waits is not None:
            return waits
    return None


def _reached(directory: Directory, address: Address, message: Message) -> Iterator[Address]:
    """The addresses whose queues get a message: its own, and those to which diverts forward it."""
    seen, pending = {address}, [address]
    for source in pending:
        taking = [divert for divert in source.diverts if divert.takes(message)]
        if not any(divert.configuration.exclusive for divert in taking):
            yield source
        for divert in taking:
            for name in divert.forwarding_addresses:
                target = directory.addresses.get(name)
                if target is not None and target not in seen and not target.internal:
                    seen.add(target)
                    pending.append(target)


def _by_ids(address: Address, message: Message, asked: int | None) -> tuple[Message, tuple[Queue, ...]]:
    """The queues by the ids of another node, which has evaluated the filters already (artemis-ha s. 7.6).

    A queue may have been deleted since. If none of them exists any more, the message is routed to the queues of this
    node as if it had been sent here: queues that existed when the other node chose have had their own ids in it.
    """
    properties = message.properties.copy()
    wanted = queue_ids(properties.pop(ROUTE_TO))
    message = message.with_properties(properties)
    local = {binding.queue.queue_id: binding for binding in _bindings(address)}
    further = {} if address.balancer is None else {each.binding_id: each for each in address.balancer.remote.values()}
    queues: list[Queue] = []
    remote: list[RemoteBinding] = []
    for queue_id in wanted:
        binding, next_hop = local.get(queue_id), further.get(queue_id)
        if binding is not None and binding.queue.enabled:
            queues.append(binding.queue)
        elif next_hop is not None and not next_hop.queue.deleted:
            remote.append(next_hop)
    if queues or remote:
        queues += [each.queue for each in remote]
        return addressed_to(message, remote), tuple(dict.fromkeys(queues))
    log.info(
        "queues that another node named are gone; the message is routed by its address",
        extra={"address": address.name, "queues": wanted},
    )
    return message, address.route(message, asked)


def queues_of_ids(address: Address, wanted: Sequence[int]) -> tuple[Queue, ...]:
    """The queues that another node has chosen, for messages that need nothing else; none: they need more, for instance
    because one of the queues is at a third node, or gone.
    """
    local = {binding.queue.queue_id: binding.queue for binding in _bindings(address)}
    found = [local.get(each) for each in wanted]
    queues = tuple(dict.fromkeys(each for each in found if each is not None and each.enabled))
    if None in found or not queues or not address.takes_for_members(queues):
        return ()
    return queues


def _by_ids_elsewhere(address: Address, message: Message, asked: int | None) -> tuple[Message, tuple[Queue, ...]]:
    """Queues by the ids of a third node, for which a node that was scaled down kept the message (artemis-ha s. 6)."""
    properties = message.properties.copy()
    wanted = set(queue_ids(properties.pop(SCALE_DOWN_TO)))
    message = message.with_properties(properties)
    known = () if address.balancer is None else address.balancer.remote.values()
    remote = [each for each in known if each.remote_id in wanted and not each.queue.deleted]
    if remote:
        return addressed_to(message, remote), tuple(dict.fromkeys(each.queue for each in remote))
    log.info("queues of a third node are not known", extra={"address": address.name, "queues": sorted(wanted)})
    return message, address.route(message, asked)


def kept_for_other(message: Message, queues: Mapping[str, Queue]) -> tuple[Message, Queue] | None:
    """A message that a node that is scaled down kept for a third node, and the store-and-forward queue that leads there
    from this node; None: it is no such message.

    Its property ``_AMQ_SCALEDOWN_TO`` has the name of that queue at its end, which Artemis does not add: ids of queues
    alone do not tell which node is meant.

    Args:
        message: Message from another node of the cluster.
        queues: Queues of this node, by name.
    """
    for name in message.properties:
        if name.startswith(SCALE_DOWN_TO) and name != SCALE_DOWN_TO:
            queue = queues.get(name.removeprefix(SCALE_DOWN_TO))
            if queue is None or not queue.internal:
                return None
            properties = message.properties.copy()
            properties[ROUTE_TO + queue.name] = properties.pop(name)
            return message.with_properties(properties), queue
    return None


def is_of_member(properties: Properties) -> bool:
    """Whether another node of the cluster has chosen the queues of a message."""
    return any(name == ROUTE_TO or name.startswith(SCALE_DOWN_TO) for name in properties)


def without_chosen_queues(message: Message) -> Message:
    """The message without the ids of queues that another node has chosen."""
    return message.with_properties(without_routes(message.properties))


def without_acknowledgements(message: Message) -> tuple[Message, frozenset[int]]:
    """The message without ``_AMQ_ACK_ROUTE_TO``, and the ids of the queues in which its transaction acknowledges it."""
    if ACK_ROUTE_TO not in message.properties:
        return message, frozenset()
    properties = message.properties.copy()
    ids = queue_ids(properties.pop(ACK_ROUTE_TO))
    return message.with_properties(properties), frozenset(ids)


def _bindings(address: Address) -> Iterator[Binding]:
    for each in (address, *address.linked):
        yield from each.bindings.values()
