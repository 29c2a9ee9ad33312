"""Outgoing messages of one session: credits, correlation ids, and repeated sends.

A confirmed send is a SESS_SEND that wants a response and carries its own positive correlation id
(artemis-core s. 3.3); any number may be under way. Its frame is kept until the answer and, as
the channel id outlives a failover, sent again unchanged and in the original order; the duplicate
id inside it (``_AMQ_DUPL_ID``) lets the broker drop a message that it already has.

Credits are counted per address in encoded message bytes (artemis-core s. 6.2). Invariants: per address,
messages leave in the order they were given; ``resend`` runs before anything new.

A large message goes out in pieces when the shell calls ``pump``, as credits and the socket allow;
all later sends of the session wait for its end, so it needs memory for one piece only. After a
lost connection it is sent again from the beginning, if its body can be read again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from understudy.client.core.connection.calls import Waiter, twice_dropped
from understudy.client.core.connection.codec import Frame
from understudy.client.core.session.channel import Channel
from understudy.client.core.session.large_sends import LargeBodySend
from understudy.errors import AddressFull, BrokerError, IllegalState, SendOutcomeUnknown
from understudy.message import Message
from understudy.wire.core.packets import (
    ProducerRequestCredits,
    SessionSendContinuation,
    SessionSendLarge,
    header_of_message,
)

#: Sends of one producer that may wait, in messages: beyond it the caller ignores back-pressure.
PENDING_SENDS_MAX: Final = 256 * 1024

#: Bytes of a continuation frame besides its piece, at most.
_PIECE_FRAME_BYTES: Final = 40


class Pending:
    """One message on its way."""

    __slots__ = ("body", "confirm", "correlation_id", "frame", "message", "producer", "resend", "waiter")

    def __init__(
        self,
        producer: ProducerState,
        message: Message,
        waiter: Waiter[None] | None,
        confirm: bool,
        resend: bool,
        body: LargeBodySend | None = None,
    ) -> None:
        self.producer = producer
        self.message: Message | None = message
        """Dropped once the frame is made; of a large message the header, and kept."""
        self.body = body
        """Body of a large message."""
        self.correlation_id = 0
        """Correlation id of the send; 0 until its message is sent for the first time."""
        self.waiter = waiter
        self.confirm = confirm
        """Whether the broker answers; otherwise it is done when written."""
        self.resend = resend
        """Whether a second copy is harmless, because it carries a duplicate id."""
        self.frame: Frame = b""


class ProducerState:
    """The session's state of a producer."""

    __slots__ = ("address", "closed", "in_flight", "on_demand", "on_room", "repeats", "sender_id", "window")

    def __init__(self, sender_id: int, address: str | None, window: int, *, repeats: bool = False) -> None:
        self.sender_id = sender_id
        self.address = address
        self.window = window
        """Largest number of unfinished sends."""
        self.repeats = repeats
        """Whether messages without duplicate ids are sent again after a failover."""
        self.on_demand: int | None = None
        """Routing type of its address if the client makes that on demand."""
        self.in_flight = 0
        self.on_room: Callable[[], None] | None = None
        """Called once when another send may begin, then reset."""
        self.closed: BrokerError | None = None

    @property
    def has_room(self) -> bool:
        """Whether another send may begin."""
        return self.in_flight < self.window

    def finished(self) -> None:
        """Note that a send has ended, with any outcome."""
        self.in_flight -= 1
        # Waiting sends are woken at three quarters, so that a full pipeline is refilled in batches.
        if self.on_room is not None and self.in_flight * 4 <= self.window * 3:
            call, self.on_room = self.on_room, None
            call()


class _Gate:
    """Credits of one address and the messages waiting for them."""

    __slots__ = ("arriving", "backlog", "balance")

    def __init__(self) -> None:
        self.balance = 0
        self.arriving = 0
        self.backlog: deque[Pending] = deque()


class Sends:
    """All producers of one session."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._window = channel.settings.producer_window_size
        self._gates: dict[str, _Gate] = {}
        self._unconfirmed: dict[int, Pending] = {}
        self._correlation = 0
        self._attached = False
        """Whether the session works."""
        self._open = False
        """Whether ordinary messages may leave: it works, and no large one is under way."""
        self._current: Pending | None = None
        """The large message under way."""
        self._again: deque[Pending] = deque()
        """Sends that are repeated once those before them are finished."""
        self._suspects: frozenset[int] = frozenset()
        """Correlation ids of the sends that were unconfirmed when the broker, which goes on, ended the connection."""
        self._careful = False
        """Whether sends are repeated one at a time, because the broker ended the connection twice for some of them."""
        self.on_idle: Callable[[], None] | None = None
        """Called once when every send is confirmed, then reset."""
        self._after_backlog: list[Callable[[], None]] = []

    @property
    def waiting(self) -> int:
        """Messages held back for lack of credits or of a connection."""
        under_way = len(self._again) + (self._current is not None)
        return under_way + sum(len(gate.backlog) for gate in self._gates.values())

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

    @property
    def busy(self) -> bool:
        """Whether anything that was begun is unfinished."""
        return bool(self._unconfirmed or self._current is not None or self._again)

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
        """Handle an answer. Returns whether a send was waiting for it."""
        pending = self._unconfirmed.pop(correlation_id, None)
        if pending is None:
            return False
        waiter = pending.waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        pending.producer.finished()
        self._answered()
        return True

    def _answered(self) -> None:
        if self._careful and not self._unconfirmed:
            self._advance()
        if not self.busy:
            self._idle()

    def refused(self, correlation_id: int, error: BrokerError) -> bool:
        """An EXCEPTION for a send; whether there is one it was for."""
        pending = self._unconfirmed.pop(correlation_id, None)
        if pending is None:
            return False
        _fail(pending, error)
        self._answered()
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
        elif self._current is not None:
            self._channel.link.pump.add(self)

    def credits_refused(self, credits_bytes: int, address: str) -> None:
        """SESS_PRODUCER_FAIL_CREDITS: the address is full and its policy is FAIL."""
        gate = self._gates.get(address)
        if gate is None:
            return
        gate.arriving = max(0, gate.arriving - credits_bytes)
        waiting, gate.backlog = gate.backlog, deque()
        current = self._current
        if current is not None and _address(current) == address:
            # the broker discards its unfinished part when the next one begins
            self._current = None
            _fail(current, AddressFull(f"address {address} is full"))
        for pending in waiting:
            _fail(pending, AddressFull(f"address {address} is full"))
        if current is not None:
            self._go_on()
        self._backlog_shrank()

    def suspend(self, release: BrokerError | None = None) -> None:
        """Collect new sends, transmit nothing; called when the connection was lost.

        Args:
            release: The error that lost the connection, if no answer can come any more: sends that must not be
                repeated are not kept waiting for a failover.
        """
        self._attached = self._open = False
        if release is not None:
            for correlation_id, pending in tuple(self._unconfirmed.items()):
                if not pending.resend:
                    del self._unconfirmed[correlation_id]
                    _fail(pending, _unknown(release))

    def resume(self) -> None:
        """The session works, for the first time or because it was reattached: go on."""
        self._attached = True
        if self._current is not None:
            self._channel.link.pump.add(self)
        self._advance()

    def _advance(self) -> None:
        """Retransmit the sends that are queued for repetition, then send new messages until the next large one."""
        while self._attached and self._current is None and self._again:
            if self._careful and self._unconfirmed:
                break
            pending = self._again.popleft()
            if pending.body is not None:
                self._begin(pending)
            else:
                if not self._unconfirmed:
                    self._channel.awaiting_confirmation()
                self._unconfirmed[pending.correlation_id] = pending
                self._channel.transmit(pending.frame)
        self._careful = self._careful and bool(self._again or self._unconfirmed)
        self._open = self._attached and self._current is None and not self._again
        if self._open:
            for address, gate in self._gates.items():
                self._release(gate, address)

    def resend(self, error: BrokerError, *, dropped: bool = False) -> None:
        """Send everything unanswered again, in order; called when the session is a new one at the server.

        Args:
            error: What ended the old one, for sends that must not be repeated.
            dropped: The same as for ``Calls.reset``: a send that was alone on its way both times fails; of several,
                each is repeated alone.
        """
        for gate in self._gates.values():
            gate.balance = gate.arriving = 0
        sent, self._unconfirmed = self._unconfirmed, {}
        current, self._current = self._current, None
        again: deque[Pending] = deque()
        known = {each.correlation_id for each in (*sent.values(), *((current,) if current is not None else ()))}
        common = self._suspects & known if dropped else frozenset()
        blamed = bool(common) and len(known) == 1
        self._careful = bool(common) and not blamed
        self._suspects = frozenset(known) if dropped else frozenset()
        for pending in sent.values():
            if blamed and pending.resend:
                _fail(pending, twice_dropped("send", error))
            elif pending.resend:
                again.append(pending)
            else:
                _fail(pending, _unknown(error))
        if current is not None and blamed:
            _fail(current, twice_dropped("send of a large message", error))
        elif current is not None:
            # the last piece was never sent, so the broker does not have the message
            again.append(current)
        self._again = again + self._again
        self._attached = True
        self._advance()

    def drop(self) -> None:
        """Drop the waiting sends of a transaction that can only be rolled back; they count as accepted."""
        current, self._current = self._current, None
        if current is not None:
            _done(current)
        for gate in self._gates.values():
            waiting, gate.backlog = gate.backlog, deque()
            for pending in waiting:
                _done(pending)
        if current is not None:
            # a rollback of a session that works: the next send must not wait for the rest of this one
            self._go_on()
        self._backlog_shrank()

    def _go_on(self) -> None:
        """Called when the large message under way has failed before its last piece."""
        self._advance()
        if not self.busy:
            self._idle()

    def end(self, error: BrokerError) -> None:
        """Fail all sends: no further connection will be made."""
        self._attached = self._open = False
        unconfirmed, self._unconfirmed = [*self._unconfirmed.values(), *self._again], {}
        if self._current is not None:
            unconfirmed.append(self._current)
        self._current = None
        self._again = deque()
        for pending in unconfirmed:
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
            self._channel.transmit_packet(ProducerRequestCredits(credits=more, address=address))
        if gate.balance < size:
            return False
        gate.balance -= size
        return True

    def _release(self, gate: _Gate, address: str) -> None:
        backlog = gate.backlog
        while backlog and self._open:
            message = backlog[0].message
            assert message is not None, "a waiting send has its message"
            if not self._take(gate, address, message.encode_size):
                return
            self._transmit(backlog.popleft())
        self._backlog_shrank()

    def _transmit(self, pending: Pending) -> None:
        message = pending.message
        assert message is not None, "transmitted once, resent as a frame"
        if pending.body is not None:
            self._begin(pending)
            return
        pending.message = None
        if not pending.confirm:
            self._channel.transmit(self._channel.encode_send(message, False, 0, pending.producer.sender_id))
            _done(pending)
            return
        self._correlation = pending.correlation_id = correlation_id = self._correlation + 1
        pending.frame = frame = self._channel.encode_send(message, True, correlation_id, pending.producer.sender_id)
        if not self._unconfirmed:
            self._channel.awaiting_confirmation()
        self._unconfirmed[correlation_id] = pending
        self._channel.transmit(frame)

    # large messages

    def _begin(self, pending: Pending) -> None:
        """Announce a large message; its pieces follow by ``pump``."""
        message, body = pending.message, pending.body
        assert message is not None, "a large send keeps its header"
        assert body is not None
        try:
            restarted = body.restart()
        except Exception as error:
            _fail(pending, error)
            return
        if not restarted:
            _fail(
                pending,
                SendOutcomeUnknown("the connection was lost, and the body of a large message cannot be read again"),
            )
            return
        self._current = pending
        self._open = False
        self._channel.transmit_packet(SessionSendLarge(header_of_message(message)))
        self._channel.link.pump.add(self)

    def pump(self, budget_bytes: int) -> bool:
        """Send pieces of the large message under way, about so many bytes. Whether there is more
        that only waits for the socket.
        """
        while self._attached and self._current is not None and budget_bytes > 0:
            current = self._current
            body = current.body
            assert body is not None
            try:
                piece, continues = body.peek()
            except Exception as error:
                # the body's own: its reader is the caller's
                self._current = None
                _fail(current, error)
                self._go_on()
                continue
            address = _address(current)
            if not self._take(self._gates[address], address, len(piece) + _PIECE_FRAME_BYTES):
                return False
            body.drop()
            budget_bytes -= len(piece) + _PIECE_FRAME_BYTES
            if continues:
                self._channel.transmit_packet(
                    SessionSendContinuation(piece, True, -1, False, 0, current.producer.sender_id)
                )
            else:
                self._send_last(current, body, piece)
        return self._attached and self._current is not None

    def _send_last(self, current: Pending, body: LargeBodySend, piece: bytes) -> None:
        self._current = None
        if current.confirm:
            if not current.correlation_id:
                self._correlation = current.correlation_id = self._correlation + 1
            if not self._unconfirmed:
                self._channel.awaiting_confirmation()
            self._unconfirmed[current.correlation_id] = current
        self._channel.transmit_packet(
            SessionSendContinuation(
                piece,
                False,
                body.original_bytes,
                current.confirm,
                current.correlation_id,
                current.producer.sender_id,
            )
        )
        if not current.confirm:
            _done(current)
            if not self.busy:
                self._idle()
        self._advance()


def _unknown(error: BrokerError) -> SendOutcomeUnknown:
    return SendOutcomeUnknown(f"the connection was lost before the confirmation: {error}")


def _address(pending: Pending) -> str:
    return (pending.message.address if pending.message is not None else None) or ""


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
