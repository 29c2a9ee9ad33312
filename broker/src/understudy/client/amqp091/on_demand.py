"""Queues and exchanges that the client makes on demand, for one session: they are made again when they are gone.

A broker of CORE makes the queue of a message that finds none. Here the client does: at each new session of the broker,
and when a message that needs the queue comes back. Until then all requests of the session wait, so that messages keep
their order.

Not here: the messages that came back (``publishes``), the methods (``declarations``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from understudy.client.amqp091.declarations import Declarations
from understudy.client.core.connection.codec import OnDemand
from understudy.wire.amqp091.methods import ChannelClose

_MULTICAST: Final = 0


class MadeOnDemand:
    """Destinations that the producers of one session let the client make, and the requests that wait for them."""

    def __init__(self, declarations: Declarations, made: Callable[[], None]) -> None:
        """Args:
        declarations: Requests about queues.
        made: Called when a destination exists, or could not be made.
        """
        self._declarations = declarations
        self._made = made
        self._queues: dict[int, str] = {}
        """Queue of a producer by the number of the producer."""
        self._making: set[tuple[str, bool]] = set()
        self._seen: set[tuple[str, bool]] = set()
        """Destinations that exist at the present session of the broker."""
        self.refused: dict[str, str] = {}
        """Text of the broker by the name of a queue that it has not made when a message came back."""
        self.waiting: deque[Callable[[], None]] = deque()
        """Requests that came while a destination was made."""

    @property
    def busy(self) -> bool:
        """Whether a destination is being made."""
        return bool(self._making)

    def makes(self, exchange: str, routing_key: str) -> bool:
        """Whether the client makes the queue of a publish."""
        return not exchange and routing_key in self._queues.values()

    def use(self, notice: OnDemand) -> None:
        """A producer or a consumer of the session uses a destination."""
        multicast = notice.routing_type == _MULTICAST
        if notice.sender_id is not None and not multicast:
            self._queues[notice.sender_id] = notice.name
        if notice.again and (notice.name, multicast) not in self._seen:
            self._make(notice.name, multicast=multicast)

    def forget(self, sender_id: int) -> None:
        """A producer is closed."""
        self._queues.pop(sender_id, None)

    def make_queue(self, name: str) -> None:
        """Make a queue whose messages came back."""
        self._make(name, multicast=False)

    def _make(self, name: str, *, multicast: bool) -> None:
        destination = (name, multicast)
        if destination in self._making:
            return
        self._making.add(destination)
        self.refused.pop(name, None)

        def done(refused: ChannelClose | None) -> None:
            self._making.discard(destination)
            if refused is None:
                self._seen.add(destination)
            elif not multicast:
                self.refused[name] = refused.reply_text
            self._made()

        self._declarations.make(name, done, multicast=multicast)

    def lost(self) -> None:
        """The transport is gone, and every request with it."""
        self._making.clear()
        self._seen.clear()
        self.refused.clear()
        self.waiting.clear()
