"""Bodies of messages leave memory and are read back (manual, "Paging"; docs/adr/0008-bounded-memory.md).

Under PAGE a message that arrives while its address (``max-size-bytes``, ``max-size-messages``) or
the node (``global-max-size``, ``global-max-messages``) holds its maximum in memory is queued
without its body. If it is durable the log has the body already; if not, the body goes to a page
file. Without ``global-max-size`` bodies that the log has stay out of memory from a smaller part of the host's memory on
(``bodies_max_bytes``), whatever the policy. With it, addresses that do not page keep their bodies a little beyond it
(``Address.node_slack_bytes``), so that their policy applies. References leave memory by themselves when a queue is deep
(``queues.pending``).

Not here: page files (``store.messages.pages``), refusing messages (``post_office``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from understudy.errors import StoreError
from understudy.message import Message
from understudy.routing.addresses.address import Address
from understudy.routing.addresses.settings import AddressSettings
from understudy.routing.cold_bodies import ColdBodies
from understudy.routing.memory import AddressMemory, Memory
from understudy.routing.queues.queue import Queue
from understudy.store.messages.columns import PAGE_SEGMENT
from understudy.store.messages.message_store import MessageStore
from understudy.store.messages.pages import PageChain, Pages
from understudy.store.messages.read_ahead import RUN_BYTES, RunReader
from understudy.store.messages.read_back import DECODERS
from understudy.store.messages.reference import (
    Arrival,
    LargeReference,
    Location,
    MessageReference,
    StoredRun,
    let_go,
    unpack_location,
)

#: Queues that keep messages read ahead.
_READERS_MAX: Final = 64
_UNLIMITED: Final = 1 << 62
_FIRST_PAGE: Final = PAGE_SEGMENT << 64


class Paging:
    """Bodies of one node, out of memory and back."""

    __slots__ = ("_cold", "_memory", "_pages", "_readers", "_store", "_stored", "bodies_max_bytes")

    def __init__(self, memory: Memory, store: MessageStore, pages: Pages | None) -> None:
        """Args:
        store: Has the bodies of durable messages.
        pages: Used for the others and for references; None keeps them in memory.
        """
        self._memory = memory
        self._store = store
        self._pages = pages
        self.bodies_max_bytes = _UNLIMITED
        """Bytes of bodies in memory from which on those that the log has are not kept, whatever the policy of their
        address. No limit of what a node takes."""
        self._cold: ColdBodies | None = None
        self._readers: dict[tuple[Queue, bool], RunReader] = {}
        """Readers by queue and whether they read page files; the one made last is last."""
        self._stored = store.read_back.stored_runs()
        """Runs that were read for the queues of each address."""

    def prefer_cold(self, addresses: Mapping[str, Address]) -> None:
        """Have cold bodies of these addresses, given by name, leave memory first from now on (``make_room``)."""
        self._cold = ColdBodies(self._memory, addresses)

    def begin(self, later: Callable[[int, Callable[[], None]], object]) -> None:
        """Remove what earlier activations left, bit by bit (``Pages.remove_leftovers``)."""
        if self._pages is not None:
            self._pages.remove_leftovers(later)

    def chain(self, settings: AddressSettings) -> PageChain | None:
        """Page files of an address."""
        return self._pages.chain(settings.page_size_bytes) if self._pages is not None else None

    def apply(self, address: Address) -> None:
        """Apply changed settings of an address: the size of its page files and the read-ahead."""
        if address.pages is not None:
            address.pages.resize(address.settings.page_size_bytes)
        for binding in address.bindings.values():
            self.forget_readers(binding.queue)

    # --- out --------------------------------------------------------------------------------------

    def make_room(self, arriving: AddressMemory, wanted_bytes: int, *, of_any_policy: bool) -> None:
        """Have bodies of other addresses than that of arriving messages leave memory; see ``ColdBodies.make_room``."""
        if self._cold is not None:
            self._cold.make_room(arriving, wanted_bytes, of_any_policy=of_any_policy)

    def page_out(self, queues: tuple[Queue, ...], parts: Arrival) -> None:
        """Drop the bodies of arriving messages, if they are kept anywhere else.

        Args:
            queues: Get the messages.
            parts: One message, or the messages of a run that the log has for each queue.
        """
        count, size_bytes, bodies, _ = parts[0].sums
        if not bodies:
            # of a prepared transaction that the log brought back
            return
        unstored = [reference for part in parts for reference in part.objects if reference.location is None]
        if unstored and not self._store_page(queues[0].address.pages, unstored):
            return
        for queue, part in zip(queues, parts, strict=True):
            if queue.kind is not None:
                for reference in part.objects:
                    if not reference.scheduled_ms:
                        queue.kind.remember(reference)
        for address in {queue.address for queue in queues}:
            self._memory.let_go(address, size_bytes, count)
        let_go(parts)

    @staticmethod
    def _store_page(chain: PageChain | None, references: list[MessageReference]) -> bool:
        message = references[0].message
        if chain is None or message is None:
            return False
        location = chain.store(message.encoded, len(references), message.encoding)
        if location is None:
            return False
        for reference in references:
            reference.location = location
        return True

    def release(self, location: Location) -> None:
        """Called when a reference to a page is gone."""
        if self._pages is not None:
            self._pages.release(location)

    # --- back -------------------------------------------------------------------------------------

    def read(self, queue: Queue, reference: MessageReference) -> Message:
        """The message of a reference whose body is not in memory."""
        location = reference.location
        assert location is not None, "a body leaves memory only when it is kept elsewhere"
        key = (queue, location >= _FIRST_PAGE)
        reader = self._readers.get(key)
        if reader is None:
            reader = self._open_reader(key)
        message = reader.read(location, _alike(queue.pending.locations_behind(reference), key[1]))
        if isinstance(reference, LargeReference) and not message.is_large:
            # a page, unlike the log, does not record whether a message is large
            return DECODERS[message.encoding][1](message.encoded)
        return message

    def stored_run(self, queue: Queue) -> StoredRun | None:
        """The next messages of a queue, whose bodies the log alone has, as a run, which the other queues of the address
        share. None: the next one is no such message or has to be read alone (``read``).
        """
        level = queue.pending.first_level()
        stored = level.stored() if level is not None else None
        if stored is None:
            return None
        return self._stored.find(queue.address, *stored, *_read_limits(queue.address.settings))

    def raw(self, location: Location | None) -> bytes:
        """The bytes of a page as they are, damaged or not; none if they are not in a page file."""
        if self._pages is None or location is None or location < _FIRST_PAGE:
            return b""
        return self._pages.read_raw(*unpack_location(location))

    def _open_reader(self, key: tuple[Queue, bool]) -> RunReader:
        queue, paged = key
        run_bytes, count = _read_limits(queue.address.settings)
        if len(self._readers) >= _READERS_MAX:
            del self._readers[next(iter(self._readers))]
        if paged:
            assert self._pages is not None
            reader = RunReader(self._pages.read_raw, self._pages.decode, run_bytes, count)
        else:
            reader = self._store.reader(run_bytes, count)
        self._readers[key] = reader
        return reader

    def forget_readers(self, queue: Queue) -> None:
        """Drop the messages read ahead for a queue that is empty or removed."""
        if not queue.address.paged_count:
            self._stored.forget(queue.address)
        if self._readers:
            self._readers.pop((queue, False), None)
            self._readers.pop((queue, True), None)

    def close(self) -> None:
        """Let go of files and bytes."""
        self._readers.clear()
        self._stored.close()
        if self._pages is not None:
            self._pages.close()


def _alike(locations: Iterable[Location | None], paged: bool) -> Iterator[Location]:
    """The locations at the beginning that are all in page files, or all in the log: neither knows the other's."""
    try:
        for location in locations:
            if location is None or (location >= _FIRST_PAGE) is not paged:
                return
            yield location
    except StoreError:
        # of spilled references: taking the next one will meet it
        return


def _read_limits(settings: AddressSettings) -> tuple[int, int]:
    """Most bytes and most messages of one read."""
    return (
        _smallest(RUN_BYTES, settings.max_read_page_bytes, settings.prefetch_page_bytes),
        _smallest(_UNLIMITED, settings.max_read_page_messages, settings.prefetch_page_messages),
    )


def _smallest(limit: int, *settings: int) -> int:
    return min([limit, *(setting for setting in settings if setting > 0)])
