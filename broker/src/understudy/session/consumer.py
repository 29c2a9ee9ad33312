"""A consumer: what one client takes from one queue, and what it was given and has not settled.

Delivery count: raised when a message is handed out, so 1 at the first time (facts 6.4). A browser
looks at messages without taking them: it holds nothing and changes no count.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from understudy.errors import IllegalState
from understudy.message import Message
from understudy.routing.delivery import Consumer
from understudy.routing.filter import Filter
from understudy.routing.queue import Queue
from understudy.session.callback import SessionCallback
from understudy.session.credits import credited
from understudy.store.reference import MessageReference

if TYPE_CHECKING:
    from understudy.session.session import ServerSession


class ServerConsumer(Consumer):
    """A consumer of a session."""

    __slots__ = ("_callback", "_pre_acknowledge", "_send", "consumer_id", "delivering", "messages_delivered", "session")

    def __init__(
        self,
        consumer_id: int,
        session: ServerSession,
        queue: Queue,
        filter: Filter | None,  # noqa: A002  # the standard name
        priority: int,
        callback: SessionCallback,
        *,
        pre_acknowledge: bool,
    ) -> None:
        super().__init__(queue, filter, priority)
        self.consumer_id = consumer_id
        self.session = session
        self._callback = callback
        self._send = callback.deliver
        self._pre_acknowledge = pre_acknowledge
        self.delivering: OrderedDict[int, MessageReference] = OrderedDict()
        """Message id to reference, in the order of delivery."""
        self.messages_delivered = 0

    @property
    def browse_only(self) -> bool:
        return False

    def writable(self) -> bool:
        return self._callback.writable()

    def deliver(self, reference: MessageReference, message: Message) -> None:
        reference.delivery_count += 1
        charged = self._send(self.consumer_id, message, reference.delivery_count)
        self.credits -= charged
        self.allowance_bytes -= charged
        self.messages_delivered += 1
        if self._pre_acknowledge:
            # The dispatcher counts it as handed out afterwards; the sum is right.
            self.queue.acknowledge((reference,))
        else:
            self.delivering[reference.message_id] = reference

    def disconnect(self) -> None:
        self.session.consumer_disconnected(self)
        self._callback.disconnect_consumer(self.consumer_id)

    def receive_credits(self, credit_bytes: int) -> None:
        """A FLOWTOKEN."""
        self.credits = credited(self.credits, credit_bytes)
        self.prompt()

    def prompt(self) -> None:
        """Something changed that may let it take messages."""
        if self.credits > 0 and self.started:
            self.queue.prompt()

    def force_delivery(self, sequence: int) -> None:
        """Everything that can go out goes out first, then the marker (facts 6.3)."""
        if self.started:
            self.queue.dispatch()
        self._callback.forced_delivery(self.consumer_id, sequence)

    def take_through(self, message_id: int) -> list[MessageReference]:
        """Everything delivered up to a message, which is no longer outstanding.

        Raises:
            IllegalState: it is not outstanding here.
        """
        delivering = self.delivering
        if message_id not in delivering:
            raise IllegalState(f"consumer {self.consumer_id} of {self.queue.name!r}: no delivery {message_id}")
        taken: list[MessageReference] = []
        while True:
            delivered_id, reference = delivering.popitem(last=False)
            taken.append(reference)
            if delivered_id == message_id:
                return taken

    def take_one(self, message_id: int) -> MessageReference:
        """One outstanding delivery; raises IllegalState."""
        reference = self.delivering.pop(message_id, None)
        if reference is None:
            raise IllegalState(f"consumer {self.consumer_id} of {self.queue.name!r}: no delivery {message_id}")
        return reference

    def cancel(self, *, failed: bool, keep_first: bool = False) -> list[MessageReference]:
        """Give up everything outstanding, with the delivery counts of facts 6.4.

        Args:
            failed: The connection failed, so nobody knows what the client saw: counts stay.
            keep_first: The first one was consumed: its count stays (JMS recover).
        """
        taken = list(self.delivering.values())
        self.delivering.clear()
        if not failed:
            for reference in taken[1:] if keep_first else taken:
                reference.delivery_count -= 1
        return taken


class BrowserConsumer(ServerConsumer):
    """A consumer that only looks."""

    __slots__ = ("_from",)

    def __init__(
        self,
        consumer_id: int,
        session: ServerSession,
        queue: Queue,
        filter: Filter | None,  # noqa: A002
        priority: int,
        callback: SessionCallback,
    ) -> None:
        super().__init__(consumer_id, session, queue, filter, priority, callback, pre_acknowledge=False)
        self._from = (9, -1)
        # Browsers do not wait for SESS_START (facts 6.3).
        self.started = True

    @property
    def browse_only(self) -> bool:
        return True

    def prompt(self) -> None:
        self._browse()

    def force_delivery(self, sequence: int) -> None:
        self._browse()
        self._callback.forced_delivery(self.consumer_id, sequence)

    def _browse(self) -> None:
        queue = self.queue
        now_ms = self.session.wall_ms()
        for following, reference in queue.browse(self._from):
            if not self.ready:
                return
            self._from = following
            if reference.expiration and reference.expiration <= now_ms:
                continue
            message = queue.read(reference)
            if self.filter is not None and not self.filter.matches(message):
                continue
            charged = self._send(self.consumer_id, message, reference.delivery_count)
            self.credits -= charged
            self.allowance_bytes -= charged
