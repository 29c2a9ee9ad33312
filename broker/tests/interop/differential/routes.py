"""Where a message of a program would go, as far as the exclusions need it.

Not here: sending it (``runner``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from interop.differential import steps
from interop.differential.link import Link
from understudy.wire.core import packets

MULTICAST, ANYCAST = 0, 1


class Routes:
    """Diverts and restarts of one run, from which the targets of its messages follow."""

    def __init__(self, name: Callable[[str], str], names: Collection[str]) -> None:
        """
        Args:
            name: Makes a name of the program one of the run.
            names: Names of the program that the run has used so far.
        """
        self._name = name
        self._names = names
        self.diverts: dict[str, steps.MakeDivert] = {}
        """Existing diverts by name."""
        self.restarted = False

    def paged_before_restart(self, queue: str) -> bool:
        """Whether delivery counts of this queue are left out (``exclusions.DELIVERIES_OF_PAGED``)."""
        return self.restarted and queue.rpartition("::")[2].startswith("paged")

    def is_undecidable(self, link: Link, name: str, routing_type: int | None) -> bool:
        """Whether what becomes of a message to that address, or of its copies, is a matter of opinion
        (``exclusions.UNTYPED_TO_NOWHERE``, ``OTHER_ROUTING_TYPE``, ``NAME_TAKEN``, ``TURNS_OF_QUEUES``,
        ``PURGED_TURNS``).
        """
        address, _, only = name.partition("::")
        answer = link.ask(packets.BindingQuery(address))
        if not isinstance(answer, packets.BindingQueryResponse):
            return True
        types, purged = {}, False
        for queue in answer.queue_names:
            described = link.ask(packets.QueueQuery(queue))
            types[queue] = getattr(described, "routing_type", None)
            purged = purged or bool(getattr(described, "purge_on_no_consumers", False))
        for divert in self._diverts_of(address):
            copied = {"STRIP": None, "PASS": routing_type, "ANYCAST": ANYCAST, "MULTICAST": MULTICAST}
            if self.is_undecidable(link, self._name(divert.forwarding_address), copied[divert.routing_type]):
                return True
        several = [*types.values()].count(ANYCAST) > 1
        if several and (self.restarted or purged):
            return True
        if only:
            return (
                several or (routing_type is None and types.get(only) is None) or self._is_alone(link, answer, address)
            )
        if routing_type == ANYCAST and not types:
            return self._is_alone(link, answer, address)
        return not types if routing_type is None else bool(types) and routing_type not in types.values()

    def _is_alone(self, link: Link, answer: packets.BindingQueryResponse, address: str) -> bool:
        """Whether the address has no queue, and whether it gets one is left out (``exclusions.COVERED_WITHOUT_QUEUE``,
        ``NAME_TAKEN``).
        """
        if answer.queue_names:
            return False
        if answer.exists and any("*" in each or "#" in each for each in self._names):
            return True
        namesake = link.ask(packets.QueueQuery(address))
        return isinstance(namesake, packets.QueueQueryResponse) and namesake.exists

    def _diverts_of(self, address: str) -> list[steps.MakeDivert]:
        return [divert for divert in self.diverts.values() if self._name(divert.address) == address]

    def is_half_diverted(self, address: str) -> bool:
        """``exclusions.HALF_DIVERTED``."""
        reached = self._diverts_of(address)
        for divert in reached:
            reached += self._diverts_of(self._name(divert.forwarding_address))
        return len(reached) > 1 and any(divert.forwarding_address.startswith("closed") for divert in reached)
