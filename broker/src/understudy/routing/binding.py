"""A binding: that messages of an address go to a queue, under which name and filter.

A local queue is bound under its own name. A queue of another node is bound here to the
store-and-forward queue that leads there (``cluster`` makes those); the routing does not see the
difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from understudy.config.model import RoutingType
from understudy.routing.filter import Filter

if TYPE_CHECKING:
    from understudy.routing.queue import Queue


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
    distance: int = 0
    """Hops to the queue that is meant; 0 = it is ``queue``."""

    @property
    def has_consumers(self) -> bool:
        """Whether a message put here is wanted at once; anycast prefers such a binding."""
        return bool(self.queue.groups_by_priority) or self.distance > 0
