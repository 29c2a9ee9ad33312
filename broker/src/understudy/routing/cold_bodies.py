"""The bodies that leave memory first: those of the deepest queue that are delivered last.

When a node holds its maximum, the newest message of a busy address would be the worst one to lose its body, because it
is delivered next. So an address that holds much more than the one whose message arrives gives up bodies instead, of its
deepest queue, whole blocks from the end of the queue on. Nothing is written for that: the log has the bodies, and they
are read from it when the queue comes to them.

Not here: how much has to leave (``memory``), the bodies of the arriving messages (``acceptance``), which rows of a
queue leave (``queues.level``).
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import nlargest
from typing import Final

from understudy.routing.addresses.address import Address
from understudy.routing.memory import AddressMemory, Memory
from understudy.routing.queues.queue import Queue

#: An address with fewer bytes of bodies in memory keeps them.
COLD_BYTES_MIN: Final = 1024 * 1024
#: Bytes of bodies that leave together, so that each of the messages costs little.
LEAVING_BYTES: Final = 256 * 1024
#: Bytes that have to leave before all addresses are looked at again.
LOOK_AGAIN_BYTES: Final = 4 * 1024 * 1024
#: Queues of an address, the deepest ones, that give up bodies.
_QUEUES_MAX: Final = 8


class ColdBodies:
    """The bodies of one node that can leave memory in the place of those that arrive."""

    __slots__ = ("_addresses", "_barren", "_deepest", "_left_bytes", "_memory")

    def __init__(self, memory: Memory, addresses: Mapping[str, Address]) -> None:
        """``addresses``: all addresses of the node, by name."""
        self._memory = memory
        self._addresses = addresses
        self._deepest: Address | None = None
        """The address with the most bodies in memory that can leave, when all were looked at."""
        self._barren: set[Address] = set()
        """Addresses none of whose bodies could leave since then."""
        self._left_bytes = 0
        """Bytes that may have to leave before all addresses are looked at again."""

    def make_room(self, arriving: AddressMemory, wanted_bytes: int, *, of_any_policy: bool) -> None:
        """Have bodies of another address leave memory, if one holds much more than the address of arriving messages.

        Args:
            wanted_bytes: Bytes that have to leave; perhaps more do, or fewer.
            of_any_policy: Whether addresses that do not page give up bodies, too.
        """
        if 3 * arriving.memory_bytes >= self._memory.held_bytes:
            # no other address can hold twice as much
            return
        self._left_bytes -= wanted_bytes
        if self._left_bytes <= 0:
            self._left_bytes = LOOK_AGAIN_BYTES
            self._barren.clear()
            self._look(of_any_policy=of_any_policy)
        deepest = self._deepest
        if deepest is None or deepest.memory_bytes <= max(2 * arriving.memory_bytes, COLD_BYTES_MIN):
            return
        if self._addresses.get(deepest.name) is not deepest or (deepest.node_slack_bytes and not of_any_policy):
            self._look(of_any_policy=of_any_policy)
        elif not self._let_go(deepest, max(wanted_bytes, LEAVING_BYTES)):
            self._barren.add(deepest)
            self._look(of_any_policy=of_any_policy)

    def _look(self, *, of_any_policy: bool) -> None:
        """Find the address that holds most."""
        self._deepest = None
        least_bytes = COLD_BYTES_MIN
        for address in self._addresses.values():
            pages = of_any_policy or not address.node_slack_bytes
            if pages and address.memory_bytes > least_bytes and address not in self._barren:
                self._deepest, least_bytes = address, address.memory_bytes

    def _let_go(self, address: Address, wanted_bytes: int) -> int:
        """Bytes of bodies of an address that left memory."""
        queues = [binding.queue for binding in address.bindings.values()]
        left_bytes = 0
        for queue in nlargest(_QUEUES_MAX, queues, key=_depth):
            if queue.address is not address or queue.kind is not None or queue.deleted:
                continue
            # lower priorities are delivered later
            for level in reversed(queue.pending.levels):
                count, size_bytes = level.let_go_last(wanted_bytes - left_bytes, address.shared.holds_none)
                self._memory.let_go(address, size_bytes, count)
                left_bytes += size_bytes
                if left_bytes >= wanted_bytes:
                    return left_bytes
        return left_bytes


def _depth(queue: Queue) -> int:
    return queue.message_count
