"""The queue as the parts of a special queue (``kinds``) use it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from understudy.message import Message
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.routing.memory import AddressMemory
from understudy.routing.queues.consumer import QueueConsumers
from understudy.routing.queues.pending import PendingMessages
from understudy.store.messages.message_store import MessageStore
from understudy.store.messages.reference import MessageReference


class SpecialQueue(Protocol):
    """A queue that is not an ordinary one."""

    address: AddressMemory
    configuration: QueueConfiguration
    consumers: QueueConsumers
    deleted: bool
    delivering_count: int
    internal: bool
    name: str
    pending: PendingMessages
    queue_id: int
    store: MessageStore

    def browse(self, position: tuple[int, int]) -> Iterator[tuple[tuple[int, int], MessageReference]]:
        """The pending references of the queue from a position on."""
        ...

    def prompt(self) -> None:
        """Deliver in this turn: a change may permit consumers to take messages."""
        ...

    def read_waiting(self, reference: MessageReference) -> Message | None:
        """The message of one that waits; None: it cannot be read and is set aside."""
        ...

    def replaced(self, reference: MessageReference) -> None:
        """Acknowledge a message that a newer one has replaced; it is not in ``pending`` any more."""
        ...
