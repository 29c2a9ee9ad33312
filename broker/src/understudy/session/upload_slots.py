"""How many large messages may be unfinished at a time on one connection and of one user.

Each keeps a file of the node open, and the node has a limited number (``LARGE_MESSAGES_UNFINISHED_MAX``): without
limits per client, one client could take all of them and block the large messages of all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from understudy.errors import LimitExceeded
from understudy.limits import LARGE_MESSAGES_UNFINISHED_OF_CONNECTION_MAX, LARGE_MESSAGES_UNFINISHED_OF_USER_MAX


class UploadSlots:
    """Unfinished large messages of a node, counted by connection and by user."""

    def __init__(self) -> None:
        self._counts: Counter[Hashable] = Counter()

    def take(self, connection_id: str, user: str, node_max: int) -> UploadSlot:
        """A large message is announced.

        Args:
            node_max: How many may be unfinished on the node; one user may have half of them.

        Raises:
            LimitExceeded: the connection or the user has too many.
        """
        of_user = min(LARGE_MESSAGES_UNFINISHED_OF_USER_MAX, max(node_max // 2, 1))
        keys = {
            ("connection", connection_id): min(LARGE_MESSAGES_UNFINISHED_OF_CONNECTION_MAX, of_user),
            ("user", user): of_user,
        }
        for key, maximum in keys.items():
            if self._counts[key] >= maximum:
                raise LimitExceeded(f"{maximum} unfinished large messages of one {key[0]}", hint="try again later")
        self._counts.update(keys.keys())
        return UploadSlot(self._counts, tuple(keys))


class UploadSlot:
    """Slot of one unfinished large message."""

    __slots__ = ("_counts", "_keys")

    def __init__(self, counts: Counter[Hashable], keys: tuple[Hashable, ...]) -> None:
        self._counts = counts
        self._keys = keys

    def release(self) -> None:
        """Free the slot of an upload that is finished or given up. Does nothing the second time."""
        for key in self._keys:
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]
        self._keys = ()
