"""Outgoing messages of one session: credits, correlation ids, and what is sent again.

A confirmed send is a SESS_SEND that wants a response and carries its own positive correlation id
(core-protocol facts 3.3); any number may be under way. Its frame is kept until the answer and, as
the channel id outlives a failover, sent again unchanged and in the original order; the duplicate
id inside it (``_AMQ_DUPL_ID``) lets the broker drop what it already had.

Credits are counted per address in encoded message bytes (facts 6.2). Invariants: per address,
messages leave in the order they were given; ``resend`` runs before anything new.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from understudy.client.calls import Waiter
from understudy.errors import AddressFull, BrokerError, IllegalState, SendOutcomeUnknown
from understudy.message import Message
from understudy.wire.core.packets import Packet, ProducerRequestCredits

#: Sends of one producer that may wait, in messages: beyond it the caller ignores back-pressure.
PENDING_SENDS_MAX: Final = 256 * 1024

EncodeSend = Callable[[Message, bool, int, int], bytes]
"""Message, requires response, correlation id, sender id -> frame."""


class Pending:
    """One message on its way."""

    __slots__ = ("confirm", "frame", "message", "producer", "resend", "waiter")

    def __init__(
        self, producer: ProducerState, message: Message, waiter: Waiter[None] | None, confirm: bool, resend: bool
    ) -> None:
        self.producer = producer
        self.message: Message | None = message
        """Dropped once the frame is made."""
        self.waiter = waiter
        self.confirm = confirm
        """Whether the broker answers; otherwise it is done when written."""
        self.resend = resend
        """Whether a second copy is harmless, because it carries a duplicate id."""
        self.frame = b""


class ProducerState:
    """What the session knows of a producer."""

    __slots__ = ("address", "closed", "in_flight", "on_room", "sender_id", "window")

    def __init__(self, sender_id: int, address: str | None, window: int) -> None:
        self.sender_id = sender_id
        self.address = address
        self.window = window
        """Unfinished sends up to which there is room."""
        self.in_flight = 0
        self.on_room: Callable[[], None] | None = None
        """Called once when there is room again, then forgotten."""
        self.closed: BrokerError | None = None

    @property
    def has_room(self) -> bool:
        return self.in_flight < self.window

    def finished(self) -> None:
        """One send is done with, whatever its outcome."""
        self.in_flight -= 1
        # Woken at three quarters, so that a full pipeline is refilled in batches.
        if self.on_room is not None and self.in_flight * 4 <= self.window * 3:
            call, self.on_room = self.on_room, None
            call()


class SendHost(Protocol):
    """The session as seen from here."""

    def transmit(self, frame: bytes) -> None: ...

    def transmit_packet(self, packet: Packet) -> None: ...

    def awaiting_confirmation(self) -> None:
        """The first of several unconfirmed sends went out: watch the time."""
        ...


class _Gate:
    """Credits of one address and the messages waiting for them."""

    __slots__ = ("arriving", "backlog", "balance")

    def __init__(self) -> None:
        self.balance = 0
        self.arriving = 0
        self.backlog: deque[Pending] = deque()


class Sends:
    """All producers of one session."""

    def __init__(self, host: SendHost, encode: EncodeSend, window_bytes: int) -> None:
        self._host = host
        self._encode = encode
        self._window = window_bytes
        self._gates: dict[str, _Gate] = {}
        self._unconfirmed: dict[int, Pending] = {}
        self._correlation = 0
        self._open = False
        self.on_idle: Callable[[], None] | None = None
        """Called once when nothing is unconfirmed any more, then forgotten."""
        self._after_backlog: list[Callable[[], None]] = []

    @property
    def waiting(self) -> int:
        """Messages held back for lack of credits or of a connection."""
        return sum(len(gate.backlog) for gate in self._gates.values())

    def when_none_waits(self, call: Callable[[], None]) -> None:
        """Call once everything added so far was written, refused or dropped; now if it was."""
        if self.waiting:
            self._after_backlog.append(call)
        else:
            call()

    def _backlog_shrank(self) -> None:
        if self._after_backlog and not self.waiting:
            calls, self._after_backlog = self._after_backlog, []
            for call in calls:
                call()

    @property
    def unconfirmed(self) -> int:
        """Messages sent and not answered."""
        return len(self._unconfirmed)

    def add(self, pending: Pending) -> None:
        """Send now, or as soon as the session works and the address has credits.

        Raises:
            IllegalState: the producer ignores back-pressure.
        """
        producer = pending.producer
        if producer.in_flight >= max(PENDING_SENDS_MAX, producer.window):
            raise IllegalState(f"{producer.in_flight} sends wait", hint="await wait_sendable() before send_nowait()")
        producer.in_flight += 1
        message = pending.message
        assert message is not None, "a new send has its message"
        address = message.address or ""
        gate = self._gates.get(address)
        if gate is None:
            gate = self._gates[address] = _Gate()
        if self._open and not gate.backlog and self._take(gate, address, message.encode_size):
            self._transmit(pending)
        else:
            gate.backlog.append(pending)

    def confirmed(self, correlation_id: int) -> bool:
        """An answer came; whether a send was waiting for it."""
        pending = self._unconfirmed.pop(correlation_id, None)
        if pending is None:
            return False
        waiter = pending.waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        pending.producer.finished()
        if not self._unconfirmed:
            self._idle()
        return True

    def refused(self, correlation_id: int, error: BrokerError) -> bool:
        """An EXCEPTION for a send; whether there is one it was for."""
        pending = self._unconfirmed.pop(correlation_id, None)
        if pending is None:
            return False
        _fail(pending, error)
        if not self._unconfirmed:
            self._idle()
        return True

    def credits_arrived(self, credits_bytes: int, address: str) -> None:
        """SESS_PRODUCER_CREDITS."""
        gate = self._gates.get(address)
        if gate is None:
            return
        gate.arriving = max(0, gate.arriving - credits_bytes)
        gate.balance += credits_bytes
        if self._open:
            self._release(gate, address)

    def credits_refused(self, credits_bytes: int, address: str) -> None:
        """SESS_PRODUCER_FAIL_CREDITS: the address is full and its policy is FAIL."""
        gate = self._gates.get(address)
        if gate is None:
            return
        gate.arriving = max(0, gate.arriving - credits_bytes)
        waiting, gate.backlog = gate.backlog, deque()
        for pending in waiting:
            _fail(pending, AddressFull(f"address {address} is full"))
        self._backlog_shrank()

    def suspend(self) -> None:
        """The connection was lost: collect what comes, send nothing."""
        self._open = False

    def resume(self) -> None:
        """The session was reattached: nothing was lost, go on."""
        self._open = True
        for address, gate in self._gates.items():
            self._release(gate, address)

    def resend(self, error: BrokerError) -> None:
        """The session is a new one at the server: send everything unanswered again, in order.

        Args:
            error: What ended the old one, for sends that must not be repeated.
        """
        for gate in self._gates.values():
            gate.balance = gate.arriving = 0
        again = self._unconfirmed
        self._unconfirmed = {}
        for correlation_id, pending in again.items():
            if pending.resend:
                self._unconfirmed[correlation_id] = pending
                self._host.transmit(pending.frame)
            else:
                _fail(pending, SendOutcomeUnknown(f"the connection was lost before the confirmation: {error}"))
        if self._unconfirmed:
            self._host.awaiting_confirmation()
        self.resume()

    def drop(self) -> None:
        """Forget what a doomed transaction still wanted to send; it counts as accepted."""
        for gate in self._gates.values():
            waiting, gate.backlog = gate.backlog, deque()
            for pending in waiting:
                _done(pending)
        self._backlog_shrank()

    def end(self, error: BrokerError) -> None:
        """No connection will come back."""
        self._open = False
        unconfirmed, self._unconfirmed = self._unconfirmed, {}
        for pending in unconfirmed.values():
            _fail(pending, SendOutcomeUnknown(f"no confirmation before the end: {error}"))
        for gate in self._gates.values():
            waiting, gate.backlog = gate.backlog, deque()
            for pending in waiting:
                _fail(pending, error)
        self._backlog_shrank()
        self._idle()

    def _idle(self) -> None:
        if self.on_idle is not None:
            call, self.on_idle = self.on_idle, None
            call()

    def _take(self, gate: _Gate, address: str, size: int) -> bool:
        """Use credits for a message if there are enough, asking for more in good time."""
        if self._window < 0:
            return True
        wanted = max(size, self._window // 2)
        available = gate.balance + gate.arriving
        if available < wanted:
            more = wanted - gate.arriving
            gate.arriving += more
            self._host.transmit_packet(ProducerRequestCredits(credits=more, address=address))
        if gate.balance < size:
            return False
        gate.balance -= size
        return True

    def _release(self, gate: _Gate, address: str) -> None:
        backlog = gate.backlog
        while backlog:
            message = backlog[0].message
            assert message is not None, "a waiting send has its message"
            if not self._take(gate, address, message.encode_size):
                return
            self._transmit(backlog.popleft())
        self._backlog_shrank()

    def _transmit(self, pending: Pending) -> None:
        message = pending.message
        assert message is not None, "transmitted once, resent as a frame"
        pending.message = None
        if not pending.confirm:
            self._host.transmit(self._encode(message, False, 0, pending.producer.sender_id))
            _done(pending)
            return
        self._correlation = correlation_id = self._correlation + 1
        pending.frame = frame = self._encode(message, True, correlation_id, pending.producer.sender_id)
        if not self._unconfirmed:
            self._host.awaiting_confirmation()
        self._unconfirmed[correlation_id] = pending
        self._host.transmit(frame)


def _done(pending: Pending) -> None:
    waiter: Waiter[Any] | None = pending.waiter
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
    pending.producer.finished()


def _fail(pending: Pending, error: BaseException) -> None:
    waiter = pending.waiter
    if waiter is not None and not waiter.done():
        waiter.set_exception(error)
    pending.producer.finished()
