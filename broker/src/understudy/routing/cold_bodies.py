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
from typing import Final

from understudy.routing.addresses.address import Address
from understudy.routing.memory import AddressMemory, Memory
from understudy.routing.queues.queue import Queue

#: An address with fewer bytes of bodies in memory keeps them.
COLD_BYTES_MIN: Final = 1024 * 1024
#: Bytes of bodies that leave together, so that each of the messages costs little.
LEAVING_BYTES: Final = 256 * 1024
#: Bytes that have to leave otherwise before all addresses are looked at again after nothing was found.
_LOOK_AGAIN_BYTES: Final = 4 * 1024 * 1024
#: Addresses that are tried, the one with the most bytes first.
_TRIES: Final = 4
_PRIORITIES: Final = 10


class ColdBodies:
    """The bodies of one node that can leave memory in the place of those that arrive."""

    __slots__ = ("_addresses", "_chosen", "_memory", "_wait_bytes")

    def __init__(self, memory: Memory, addresses: Mapping[str, Address]) -> None:
        """``addresses``: all addresses of the node, by name."""
        self._memory = memory
        self._addresses = addresses
        self._chosen: Address | None = None
        """The address that gave up bodies last."""
        self._wait_bytes = 0

    def make_room(self, arriving: AddressMemory, wanted_bytes: int, *, of_any_policy: bool) -> None:
        """Have bodies of other addresses leave memory, if one holds much more than the address of arriving messages.

        Args:
            wanted_bytes: What has to leave; perhaps more does, or less.
            of_any_policy: Whether addresses that do not page give up bodies, too.
        """
        if 3 * arriving.memory_bytes >= self._memory.held_bytes:
            # no other address can hold twice as much
            return
        if self._wait_bytes > 0:
            self._wait_bytes -= wanted_bytes
            return
        barren: set[Address] = set()
        for _ in range(_TRIES):
            address = self._choose(arriving, barren, of_any_policy=of_any_policy)
            if address is None:
                break
            left_bytes = self._let_go(address, max(wanted_bytes, LEAVING_BYTES))
            wanted_bytes -= left_bytes
            if wanted_bytes <= 0:
                return
            if not left_bytes:
                barren.add(address)
                self._chosen = None
        self._wait_bytes = _LOOK_AGAIN_BYTES

    def _choose(self, arriving: AddressMemory, barren: set[Address], *, of_any_policy: bool) -> Address | None:
        least_bytes = max(COLD_BYTES_MIN, 2 * arriving.memory_bytes + 1)
        chosen = self._chosen
        if (
            chosen is not None
            and chosen.memory_bytes >= least_bytes
            and self._addresses.get(chosen.name) is chosen
            and (of_any_policy or not chosen.node_slack_bytes)
        ):
            return chosen
        self._chosen = None
        for address in self._addresses.values():
            pages = of_any_policy or not address.node_slack_bytes
            if pages and address.memory_bytes >= least_bytes and address not in barren:
                self._chosen, least_bytes = address, address.memory_bytes + 1
        return self._chosen

    def _let_go(self, address: Address, wanted_bytes: int) -> int:
        """Bytes of bodies of an address that left memory."""
        queues = [binding.queue for binding in address.bindings.values()]
        left_bytes = 0
        for queue in sorted(queues, key=_depth, reverse=True):
            if queue.address is not address or queue.kind is not None or queue.deleted:
                continue
            for priority in range(_PRIORITIES):
                level = queue.pending.by_priority[priority]
                if level is None or not level.count:
                    continue
                count, size_bytes = level.let_go_last(wanted_bytes - left_bytes, address.shared.holds_none)
                self._memory.let_go(address, size_bytes, count)
                left_bytes += size_bytes
                if left_bytes >= wanted_bytes:
                    return left_bytes
        return left_bytes


def _depth(queue: Queue) -> int:
    return queue.message_count
