"""The messages that addresses and the node hold, and the decisions that depend on it.

Sizes count a message once, however many queues of an address it is in. The maximum of an address is about all messages
that it holds, or, under PAGE, about those whose body is in memory; the maximum of the node (manual, "Global Max Size")
is about bodies in memory. ``Memory`` decides whether a message is taken, refused or dropped, whether bodies leave
memory, and which producers wait for credits.

Not here: how bodies leave memory and come back (``paging``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from understudy.errors import AddressFull
from understudy.limits import PAGING_SLACK_BYTES
from understudy.routing.addresses.settings import AddressSettings
from understudy.routing.shared_messages import SharedMessages
from understudy.store.log.operation_context import Lane
from understudy.store.messages.message_store import MessageStore
from understudy.store.messages.pages import PageChain
from understudy.store.messages.reference import Part
from understudy.terms import AddressFullPolicy

log = logging.getLogger(__name__)

_UNLIMITED: Final = 1 << 62


class AddressMemory:
    """Memory used by the messages of one address, with the maximum of the address."""

    __slots__ = (
        "blocked",
        "counts_messages",
        "lane",
        "limited",
        "memory_bytes",
        "memory_max_bytes",
        "memory_max_messages",
        "message_count",
        "messages_dropped",
        "messages_routed",
        "messages_unrouted",
        "name",
        "paged_count",
        "pages",
        "settings",
        "shared",
        "size_bytes",
    )

    def __init__(self, name: str, settings: AddressSettings, lane: Lane | None = None) -> None:
        self.name = name
        self.size_bytes = 0
        """Bytes of all messages that it holds."""
        self.message_count = 0
        self.memory_bytes = 0
        """Bytes of the messages whose body is in memory."""
        self.paged_count = 0
        """Messages of ``message_count`` whose body is not in memory."""
        self.messages_dropped = self.messages_routed = self.messages_unrouted = 0
        self.blocked = False
        """An operator has blocked its producers: they get no credits, whatever it holds."""
        self.shared = SharedMessages()
        """The messages that are in several of its queues."""
        self.pages: PageChain | None = None
        """Page files of the address; None: bodies that the log does not have stay in memory."""
        self._limit(settings, lane)

    def _limit(self, settings: AddressSettings, lane: Lane | None) -> None:
        self.settings = settings
        self.lane = lane
        """Lane in which its messages wait to be durable; None: in the context, for the strictest contract."""
        paging = settings.address_full_policy is AddressFullPolicy.PAGE
        self.memory_max_bytes = settings.max_size_bytes if paging and settings.max_size_bytes >= 0 else _UNLIMITED
        self.counts_messages = paging and settings.max_size_messages >= 0
        self.memory_max_messages = settings.max_size_messages if self.counts_messages else _UNLIMITED
        if paging:
            page_limits = settings.page_limit_bytes >= 0 or settings.page_limit_messages >= 0
            self.limited = settings.page_full_policy is not None and page_limits
        else:
            # global-max-size is a limit, too
            self.limited = True

    @property
    def node_slack_bytes(self) -> int:
        """How far bodies for this address may take the node beyond its maximum (global-max-size) before they leave
        memory: not at all under PAGE. Otherwise the node must be seen to hold its maximum, or no producer would ever be
        blocked or refused because of it.
        """
        return 0 if self.settings.address_full_policy is AddressFullPolicy.PAGE else PAGING_SLACK_BYTES

    @property
    def room(self) -> tuple[int, int]:
        """Bytes and messages that fit until the address holds its maximum; 0 or less: it does."""
        settings = self.settings
        size_bytes, count = self.size_bytes, self.message_count
        if settings.address_full_policy is AddressFullPolicy.PAGE:
            bytes_max, messages_max = settings.page_limit_bytes, settings.page_limit_messages
            # the maximum in memory comes on top; without one everything counts
            size_bytes -= self.memory_max_bytes if self.memory_max_bytes != _UNLIMITED else 0
            count -= self.memory_max_messages if self.counts_messages else 0
        else:
            bytes_max, messages_max = settings.max_size_bytes, settings.max_size_messages
        return (
            bytes_max - size_bytes if bytes_max >= 0 else _UNLIMITED,
            messages_max - count if messages_max >= 0 else _UNLIMITED,
        )

    @property
    def full_policy(self) -> AddressFullPolicy | None:
        """The policy that applies now because the address holds its maximum; None: it holds less."""
        if not self.limited or min(self.room) > 0:
            return None
        settings = self.settings
        paging = settings.address_full_policy is AddressFullPolicy.PAGE
        return settings.page_full_policy if paging else settings.address_full_policy

    def refuses(self, credited: bool) -> bool:
        """Whether an address that blocks refuses a message: at its reject threshold every message, without a threshold
        those of a producer that sends without credits, so that memory stays bounded.
        """
        threshold = self.settings.max_size_bytes_reject_threshold
        return not credited if threshold < 0 else self.size_bytes >= threshold

    @property
    def paging(self) -> bool:
        """Whether messages wait whose body is not in memory, or the next one would."""
        full = self.memory_bytes >= self.memory_max_bytes or (
            self.counts_messages and self.message_count >= self.memory_max_messages
        )
        return self.paged_count > 0 or (full and self.message_count > 0)

    def charge(self, first_id: int, count: int, size_bytes: int, queue_count: int) -> None:
        """New messages of consecutive ids came to ``queue_count`` queues of this address, with their bodies in memory.

        Args:
            size_bytes: Bytes of the messages together.
        """
        self.size_bytes += size_bytes
        self.memory_bytes += size_bytes
        self.message_count += count
        if queue_count > 1:
            self.shared.add_range(first_id, count, queue_count)

    def discharge_all(self, part: Part) -> tuple[int, int]:
        """One queue is through with these messages. Returns the bodies that leave memory, and their bytes."""
        bodies = bodies_bytes = 0
        for each in part.last_of(self.shared.release_range) if self.shared.counts else (part,):
            count, size_bytes, freed, freed_bytes = each.sums
            self.discharge_run(count, size_bytes, freed, freed_bytes)
            bodies += freed
            bodies_bytes += freed_bytes
        return bodies, bodies_bytes

    def discharge_run(self, count: int, size_bytes: int, bodies: int, bodies_bytes: int) -> None:
        """Messages that no other queue of this address holds leave the counts.

        Args:
            count: Messages.
            bodies: References whose body is in memory.
        """
        self.size_bytes -= size_bytes
        self.message_count -= count
        self.paged_count -= count - bodies
        self.memory_bytes -= bodies_bytes

    @property
    def shares(self) -> bool:
        """Whether any message may be in several queues of this address."""
        return bool(self.shared.counts)

    def adopt(self, size_bytes: int, count: int) -> None:
        """Count restored messages of one queue; no body is in memory yet."""
        self.size_bytes += size_bytes
        self.message_count += count
        self.paged_count += count

    def hold(self, message_id: int, queue_count: int) -> None:
        """A message that is counted already is in that many queues of this address."""
        if queue_count > 1:
            self.shared.add(message_id, queue_count)

    def share(self, shared: SharedMessages, size_bytes: int, count: int) -> None:
        """Correct that for restored messages that are in several queues, by the bytes that they are counted
        too often.
        """
        self.shared = shared
        self.size_bytes -= size_bytes
        self.message_count -= count
        self.paged_count -= count


class Memory:
    """The bodies that all addresses of a node have in memory, the maximum of the node, and the producers that wait."""

    __slots__ = ("_store", "counts_messages", "held_bytes", "held_count", "max_bytes", "max_count", "starved")

    def __init__(self, store: MessageStore, max_bytes: int = -1, max_count: int = -1) -> None:
        """Args:
        store: Says whether its disk is full.
        max_bytes: Bytes of bodies in memory (global-max-size), -1 = no limit.
        max_count: Bodies in memory (global-max-messages), -1 = no limit.
        """
        self._store = store
        self.held_bytes = self.held_count = 0
        """Bytes of the bodies in memory, and their number. A body counts for each address that holds it."""
        self.max_bytes = max_bytes if max_bytes >= 0 else _UNLIMITED
        self.counts_messages = max_count >= 0
        """Whether the number of messages has a limit."""
        self.max_count = max_count if max_count >= 0 else _UNLIMITED
        self.starved: dict[AddressMemory, dict[object, Callable[[], None]]] = {}
        """Addresses whose producers wait for credits, and the call of each waiter."""

    @property
    def limit_bytes(self) -> int | None:
        """Maximum of ``held_bytes`` (global-max-size); None: there is none."""
        return None if self.max_bytes == _UNLIMITED else self.max_bytes

    # -- what an address takes --------------------------------------------------------------------

    def admits(self, address: AddressMemory, credited: bool) -> bool:
        """Whether a limited address takes a message, or any address while the disk is full. False: it is dropped
        silently.

        Args:
            credited: Whether the producer keeps within its credits.

        Raises:
            AddressFull: the policy says so, or the producer goes on without credits.
        """
        store = self._store
        if store.full:
            wanted = address.settings.disk_full_policy
            if wanted is AddressFullPolicy.DROP:
                address.messages_dropped += 1
                return False
            if wanted is AddressFullPolicy.FAIL:
                raise AddressFull(f"address {address.name!r}: {store.full_reason}", hint="disk-full-policy FAIL")
        policy = self._full_policy(address)
        if policy is None:
            return True
        if policy is AddressFullPolicy.DROP:
            address.messages_dropped += 1
            return False
        if policy is AddressFullPolicy.FAIL or address.refuses(credited):
            raise AddressFull(
                f"address {address.name!r} holds {address.size_bytes} bytes in {address.message_count} messages,"
                f" the node {self.held_bytes} bytes in memory",
                hint=f"address-full-policy {policy.value}",
            )
        return True

    def _full_policy(self, address: AddressMemory) -> AddressFullPolicy | None:
        """The policy of an address that holds its maximum, or does not page on a node that holds its own
        (manual, "Global Max Size"); None: less is held.
        """
        policy = address.full_policy
        wanted = address.settings.address_full_policy
        if policy is not None or wanted is AddressFullPolicy.PAGE:
            return policy
        full = self.held_bytes >= self.max_bytes or self.held_count >= self.max_count
        return wanted if full else None

    def room(self, address: AddressMemory, holders: int) -> tuple[int, int]:
        """Bytes and messages that an address takes before it or the node holds its maximum (``admits``).

        Args:
            address: Has a limit.
            holders: Addresses that will hold each message; the node counts it for each.
        """
        room_bytes, room_count = address.room
        if address.settings.address_full_policy is not AddressFullPolicy.PAGE:
            room_bytes = min(room_bytes, -((self.held_bytes - self.max_bytes) // holders))
            room_count = min(room_count, -((self.held_count - self.max_count) // holders))
        return room_bytes, room_count

    # -- what stays in memory ---------------------------------------------------------------------

    def exceeded(self, address: AddressMemory) -> bool:
        """Whether an address, or the node because of it, holds more in memory than it may: bodies leave memory."""
        excess_bytes = self.held_bytes - self.max_bytes
        return (
            address.memory_bytes > address.memory_max_bytes
            or (excess_bytes > 0 and excess_bytes > address.node_slack_bytes)
            or (address.counts_messages and self.holds_too_many(address))
        )

    def excess(self, address: AddressMemory, holders: int) -> tuple[int, int]:
        """Bytes and bodies that have to leave memory because of messages of an address (``exceeded``); 0 and 0: none.

        Args:
            holders: Addresses that hold each of the messages; the node counts it for each.
        """
        size_bytes = max(
            address.memory_bytes - address.memory_max_bytes,
            -((self.max_bytes + address.node_slack_bytes - self.held_bytes) // holders),
        )
        count = 0
        if address.counts_messages:
            count = address.message_count - address.paged_count - address.memory_max_messages
            if not address.node_slack_bytes:
                count = max(count, -((self.max_count - self.held_count) // holders))
        return max(size_bytes, 0), max(count, 0)

    def holds_too_many(self, address: AddressMemory) -> bool:
        """Whether more messages are in memory than the address, or the node if the address pages, may have there."""
        return address.message_count - address.paged_count > address.memory_max_messages or (
            self.held_count > self.max_count and not address.node_slack_bytes
        )

    def keeps(self, holder: AddressMemory, holders: int, count: int, size_bytes: int) -> bool:
        """Whether none of ``count`` further messages has to leave memory at once (``exceeded``).

        Args:
            holder: The address that they count for.
            holders: Addresses that will hold each of them.
            count: Messages.
        """
        if (
            holder.memory_bytes + size_bytes > holder.memory_max_bytes
            or self.held_bytes + size_bytes * holders > self.max_bytes
        ):
            return False
        return not holder.counts_messages or (
            holder.message_count + count - holder.paged_count <= holder.memory_max_messages
            and self.held_count + count * holders <= self.max_count
        )

    def let_go(self, address: AddressMemory, size_bytes: int, count: int = 1) -> None:
        """Bodies of an address, ``count`` of together ``size_bytes``, left memory; their messages stay."""
        address.memory_bytes -= size_bytes
        address.paged_count += count
        self.held_bytes -= size_bytes
        self.held_count -= count

    # -- credits ----------------------------------------------------------------------------------

    def blocks_producers(self, address: AddressMemory) -> AddressFullPolicy | None:
        """Whether credits for an address are withheld (BLOCK) or refused (FAIL); None: neither.

        Under PAGE bodies that the log has are dropped from memory, so credits are withheld only
        while memory is full of bodies that it does not have (yet).
        """
        if address.blocked:
            return AddressFullPolicy.BLOCK
        if self._store.full:
            wanted = address.settings.disk_full_policy
            return None if wanted is AddressFullPolicy.DROP else wanted or AddressFullPolicy.BLOCK
        # an address without a limit pages, so no policy applies
        policy = self._full_policy(address) if address.limited else None
        if policy is AddressFullPolicy.BLOCK or policy is AddressFullPolicy.FAIL:
            return policy
        if (
            address.memory_bytes > address.memory_max_bytes + PAGING_SLACK_BYTES
            or self.held_bytes > self.max_bytes + PAGING_SLACK_BYTES
        ):
            return AddressFullPolicy.BLOCK
        return None

    def when_room(self, address: AddressMemory, waiter: object, grant: Callable[[], None]) -> None:
        """Call ``grant`` once when ``blocks_producers`` is None again; one call for each waiter and address."""
        if address not in self.starved:
            fields = {"address": address.name, "id": "AMQ222183", "reason": self._why_blocked(address)}
            log.warning("producers blocked", extra=fields)
            self.starved[address] = {}
        self.starved[address][waiter] = grant

    def _why_blocked(self, address: AddressMemory) -> str:
        """The limit because of which credits for an address are withheld."""
        if address.blocked:
            return "an operator has blocked the address"
        if self._store.full:
            return f"the disk is full: {self._store.full_reason}"
        if address.full_policy is not None:
            return f"the address holds its maximum: {address.size_bytes} bytes in {address.message_count} messages"
        return f"the node holds its maximum: {self.held_bytes} bytes in {self.held_count} messages"

    def grant(self) -> None:
        """Call the waiters of each address that takes messages again."""
        for address in list(self.starved):
            if self.blocks_producers(address) is None:
                log.info("producers unblocked", extra={"address": address.name, "id": "AMQ221046"})
                self.address_deleted(address)

    def address_deleted(self, address: AddressMemory) -> None:
        """Call the waiters of an address that is deleted: their producers go on and get the error of a missing one."""
        for grant in self.starved.pop(address, {}).values():
            grant()

    def no_longer_waits(self, waiter: object) -> None:
        """Forget the calls of a waiter."""
        for waiters in self.starved.values():
            waiters.pop(waiter, None)

    def close(self) -> None:
        """Remove all waiting callers."""
        self.starved.clear()
