"""Message ids of an open transaction by queue: eight bytes each."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator


class QueueIds:
    """Pairs of queue id and message id; of one queue in the order in which they were added."""

    __slots__ = ("by_queue",)

    def __init__(self) -> None:
        self.by_queue: dict[int, array[int]] = {}

    def __len__(self) -> int:
        return sum(map(len, self.by_queue.values()))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for queue_id, message_ids in self.by_queue.items():
            for message_id in message_ids:
                yield queue_id, message_id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QueueIds) and self.by_queue == other.by_queue

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"QueueIds({list(self)})"

    def add(self, queue_id: int, message_id: int) -> None:
        """Add one message with its queue."""
        message_ids = self.by_queue.get(queue_id)
        if message_ids is None:
            message_ids = self.by_queue[queue_id] = array("Q")
        message_ids.append(message_id)

    def extend(self, queue_id: int, message_ids: Iterable[int]) -> None:
        """Add several messages of one queue."""
        self.by_queue.setdefault(queue_id, array("Q")).extend(message_ids)

    def remove_queue(self, queue_id: int) -> None:
        """Forget the messages of a queue."""
        self.by_queue.pop(queue_id, None)
