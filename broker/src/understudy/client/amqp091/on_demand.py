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
from understudy.client.amqp091.output import Output
from understudy.client.amqp091.publishes import Publishes
from understudy.client.core.connection.codec import OnDemand
from understudy.errors import BrokerError
from understudy.wire.amqp091.methods import ChannelClose

_MULTICAST: Final = 0


class MadeOnDemand:
    """Destinations that the producers of one session let the client make."""

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


class InOrder:
    """Publishes of one session, and its requests in their order: they wait while a destination is made."""

    def __init__(
        self,
        declarations: Declarations,
        out: Output,
        channel_id: int,
        number: int,
        complain: Callable[[str], None],
    ) -> None:
        """Args:
        declarations: Requests about queues.
        out: Output of the connection.
        channel_id: Number of the channel in packets.
        number: Number of the channel at the broker.
        complain: Logs an error that no caller waits for.
        """
        self._out = out
        self._channel_id = channel_id
        self._on_demand = MadeOnDemand(declarations, self._go_on)
        self.publishes = Publishes(out, channel_id, number, complain, self._on_demand.makes)
        self._waiting: deque[Callable[[], None]] = deque()
        self._removed: list[int] = []
        """Producers that are closed, and whose messages may be on their way."""

    def use(self, notice: OnDemand) -> None:
        """A producer or a consumer of the session uses a destination."""
        self._on_demand.use(notice)

    def forget(self, sender_id: int) -> None:
        """A producer is closed; its messages may come back until all have their outcome."""
        self._removed.append(sender_id)
        self._forget()

    def _forget(self) -> None:
        if not self.publishes.unconfirmed and not self._waits:
            for sender_id in self._removed:
                self._on_demand.forget(sender_id)
            self._removed.clear()

    def carry_out(self, request: Callable[[], None]) -> None:
        """Carry out a request, now or when the destinations before it are made."""
        if self._waits:
            self._waiting.append(request)
        else:
            request()

    def settled(self) -> None:
        """Publishes have their outcome: make the queues of those that came back, when all have it. A queue that is made
        earlier, on another channel, would get those that are still on their way before those that came back.
        """
        if not self.publishes.unconfirmed:
            for name in self.publishes.take_missing():
                self._on_demand.make_queue(name)
        if self._waits:
            self._go_on()
        self._forget()

    @property
    def _waits(self) -> bool:
        """Whether requests wait for destinations that are made again."""
        return bool(self._on_demand.busy or self._waiting or self.publishes.came_back)

    def _go_on(self) -> None:
        """A destination was made, or a publish has its outcome: send messages that came back, then what waits.

        Messages that came back are sent when every publish before them has its outcome, as others may come back, too.
        """
        if self._on_demand.busy:
            return
        if self.publishes.came_back:
            if self.publishes.unconfirmed:
                return
            self.publishes.publish_again(self._on_demand.refused)
        while self._waiting and not (self._on_demand.busy or self.publishes.came_back):
            request = self._waiting.popleft()
            try:
                request()
            except BrokerError as error:
                self._out.refuse(self._channel_id, error)

    def lost(self) -> None:
        """The transport is gone, and every request with it."""
        self._on_demand.lost()
        self._waiting.clear()
