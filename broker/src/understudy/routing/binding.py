"""A binding: that messages of an address go to a queue, under which name and filter.

Queues of other nodes have bindings of their own (``remote``).
"""

from __future__ import annotations

from dataclasses import dataclass

from understudy.config.model import RoutingType
from understudy.message import Message
from understudy.properties import PropertyValue
from understudy.routing.filter import Filter
from understudy.routing.queues.queue import Queue


@dataclass(slots=True, eq=False)
class Binding:
    """One queue of one address."""

    name: str
    """Unique among the bindings of the node."""
    address: str
    routing_type: RoutingType
    queue: Queue
    """Where the reference is put."""
    filter: Filter | None = None

    @property
    def has_consumers(self) -> bool:
        """Whether a message put here is wanted at once; anycast prefers such a binding."""
        return bool(self.queue.consumers.by_priority)


@dataclass(frozen=True, slots=True)
class NamedQueue:
    """The queue that a sender names by ``address::queue``: no other queue of the address may get the message."""

    name: str
    queue: Queue | None
    """None: the address has none of the name."""

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
