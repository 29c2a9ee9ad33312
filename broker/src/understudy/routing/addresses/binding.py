"""A binding: that messages of an address go to a queue, under which name and filter.

Queues of other nodes have bindings of their own (``remote``).
"""

from __future__ import annotations

from understudy.dataclass import dataclass
from understudy.routing.filter import Filter
from understudy.routing.queues.queue import Queue
from understudy.terms import RoutingType


@dataclass(slots=True, eq=False)
class Binding:
    """Binding of one queue to one address."""

    name: str
    """Unique among the bindings of the node."""
    address: str
    routing_type: RoutingType
    queue: Queue
    """Queue into which a routed message is put."""
    filter: Filter | None = None

    @property
    def has_consumers(self) -> bool:
        """Whether a message put here is wanted at once; anycast prefers such a binding."""
        return bool(self.queue.consumers.by_priority)
