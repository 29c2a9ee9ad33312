"""The TLS layer of an accepted connection, between the socket and the detection of the protocol (ADR 0049, ADR 0054).

The layer decrypts what one read of the socket brings into a buffer that all connections of the acceptor share, so a
connection occupies the memory of its TLS state and of at most one incomplete record. Output is collected during a turn
and encrypted once, when the turn flushes it.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, ClassVar, Final, Protocol, cast

from understudy.dataclass import dataclass
from understudy.errors import BrokerError
from understudy.limits import (
    OUTGOING_BYTES_BEFORE_LOGIN_MAX,
    READ_BYTES_BEFORE_LOGIN_MAX,
    READ_BYTES_MAX,
)
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.ports import OutputSealer, SealableConnection, Security
from understudy.protocols.handlers import ConnectionHandler
from understudy.runtime.base.turn import Turn
from understudy.runtime.net.detection import Layered
from understudy.runtime.net.handshakes import Handshakes
from understudy.tls.certificates import DistinguishedName, subject_of
from understudy.tls.contexts import reason_of

log = logging.getLogger(__name__)

#: First byte of a TLS handshake.
_HANDSHAKE_RECORD: Final = 0x16
#: Number of bytes of output that are encrypted before the socket gets them.
_PIECE_BYTES: Final = 1024 * 1024


class Socket(SealableConnection, Protocol):
    """The layer below. Implements ``Layered``."""

    def write(self, data: bytes) -> None:
        """Write to the socket at once, not at the end of the turn."""
        ...

    def move_to(self, acceptor: Any) -> bool: ...


@dataclass(slots=True)
class TlsPort:
    """TLS of one acceptor, which its connections share."""

    context: ssl.SSLContext
    """Context for new connections; replaced when the files have changed."""
    handshakes: Handshakes
    timeout_ms: int
    """Time for a handshake; 0: no limit."""
    plain: memoryview
    """Buffer for the decrypted input of one read."""

    @classmethod
    def of(cls, context: ssl.SSLContext, handshakes: Handshakes, timeout_ms: int) -> TlsPort:
        """A port with a buffer of its own."""
        return cls(context, handshakes, timeout_ms, memoryview(bytearray(READ_BYTES_MAX)))


class State(Enum):
    """States of the TLS layer of a connection."""

    AWAITING_CLIENT = auto()
    """The handshake needs input of the client."""
    QUEUED = auto()
    """The client has begun; the handshake waits for a place."""
    COMPUTING = auto()
    """A step of the handshake runs on a thread; no input is read."""
    OPEN = auto()
    CLOSED = auto()
    """No further output, and input is dropped."""


class Event(Enum):
    """Events of the TLS layer of a connection."""

    INPUT = auto()
    """Bytes of the client, during the handshake."""
    QUEUE = auto()
    """The first bytes of the client belong to TLS."""
    BEGIN = auto()
    """The handshake has a place."""
    MORE = auto()
    """The step is done; the client must answer."""
    DONE = auto()
    """The handshake is complete."""
    FAIL = auto()
    """The handshake has failed, or a record is invalid."""
    CLOSE = auto()
    """Close after the output was written."""
    LOST = auto()
    """The socket is closed."""


class TlsLayer(Machine[State, Event]):
    """TLS of one connection. Implements ``ConnectionHandler`` for the socket, and ``Layered`` for the layer above. Also
    implements ``ports.SealableConnection``, ``ports.Connection``, ``Layered`` and ``Handshaking``.
    """

    STATES: ClassVar[type[Enum]] = State
    EVENTS: ClassVar[type[Enum]] = Event
    INITIAL: ClassVar[Enum] = State.AWAITING_CLIENT

    def __init__(self, below: Socket, port: TlsPort, turn: Turn, above: Callable[[Layered], ConnectionHandler]) -> None:
        """No byte has come.

        Args:
            below: The socket.
            turn: Flushes the output.
            above: Makes the first layer above, when the handshake is complete.
        """
        super().__init__()
        self.handler: ConnectionHandler | None = None
        """The layer above; None before the handshake is complete."""
        self.certificate_subject: DistinguishedName | None = None
        """Subject of the verified certificate of the client; None: it has presented none."""
        self.silent_since_ms: int | None = None
        self._below = below
        self.upgrade_without_name = False
        self._port = port
        self._turn = turn
        self._above: Callable[[Layered], ConnectionHandler] | None = above
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._sealer: OutputSealer | None = None
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._backlogged = False
        """Whether the layer above has input left over."""
        self._more = False
        """Whether the buffer was full before all input was decrypted."""
        self._end: tuple[Event, ssl.SSLError | None] | None = None
        """End of the stream, or an invalid record, which follows the input that is left over."""
        self._timer: asyncio.TimerHandle | None = None
        if port.timeout_ms > 0:
            self._timer = asyncio.get_running_loop().call_later(port.timeout_ms / 1000, self._timed_out)

    @property
    def outlives_sessions(self) -> bool:
        return self.handler is not None and self.handler.outlives_sessions

    # --- ConnectionHandler ---------------------------------------------------------------------

    @property
    def proved(self) -> bool:
        return self.handler is not None and self.handler.proved

    @property
    def held_back(self) -> bool:
        return self.handler is not None and self.handler.held_back

    @property
    def held_up(self) -> bool:
        if self._state is State.OPEN:
            return self.handler is not None and self.handler.held_up
        return self._state is not State.AWAITING_CLIENT

    def receive_data(self, data: bytes | memoryview) -> bool:
        if data:
            self._incoming.write(data)
        if self._state is State.OPEN:
            return self._receive(received=bool(data))
        if self._state is State.AWAITING_CLIENT and self._incoming.pending:
            self.fire(Event.INPUT if self._tls is not None else Event.QUEUE)
        return False

    def congested(self) -> bool:
        if self._state is State.OPEN:
            return self.handler is not None and self.handler.congested()
        return self._state in (State.QUEUED, State.COMPUTING)

    def resume_deliveries(self) -> None:
        if self.handler is not None:
            self.handler.resume_deliveries()

    def check(self) -> None:
        """See ``ConnectionHandler``. The timer is enough during the handshake."""
        if self.handler is not None:
            self.handler.check()

    def disconnect(self) -> None:
        if self.handler is not None:
            self.handler.disconnect()
        self.close()

    def prevent_reattachment(self) -> None:
        if self.handler is not None:
            self.handler.prevent_reattachment()

    def connection_lost(self, reason: str) -> None:
        self.fire(Event.LOST, reason)

    # --- Connection ----------------------------------------------------------------------------

    security = Security.TLS

    @property
    def peer(self) -> str:
        """Address of the client."""
        return self._below.peer

    @property
    def local(self) -> str:
        return self._below.local

    def seal(self, sealer: OutputSealer) -> None:
        self.flush()
        self._sealer = sealer

    def send(self, data: bytes) -> None:
        if self._state is not State.OPEN:
            return
        if not self._out:
            self._turn.mark_dirty(self)
        self._out.append(data)
        self._out_bytes += len(data)

    def move_to(self, acceptor: Any) -> bool:
        if not self._below.move_to(acceptor):
            return False
        self._turn = acceptor.turn
        return True

    def outgoing_bytes(self) -> int:
        return self._out_bytes + self._below.outgoing_bytes()

    def close(self) -> None:
        self.fire(Event.CLOSE)

    def abort(self) -> None:
        self._below.abort()

    def flush(self) -> None:
        """Encrypt the collected output and write it to the socket."""
        tls = self._tls
        if not self._out or tls is None:
            return
        collected, self._out, self._out_bytes = self._out, [], 0
        out = collected if self._sealer is None else self._sealer.seal(collected)
        unsent = memoryview(out[0] if len(out) == 1 else b"".join(out))
        try:
            while unsent:
                unsent = unsent[tls.write(unsent) :]
                if self._outgoing.pending >= _PIECE_BYTES:
                    self._write()
        except ssl.SSLError as error:
            self.fire(Event.FAIL, error)
            return
        self._write()

    # --- Handshaking ---------------------------------------------------------------------------

    def begin(self) -> None:
        self.fire(Event.BEGIN)

    def displace(self) -> None:
        log.warning("connection dropped: its TLS handshake stalled while others wait", extra={"peer": self.peer})
        self._port.handshakes.end(self)
        self.abort()

    # --- actions -------------------------------------------------------------------------------

    def _queue(self) -> None:
        first = self._incoming.read(1)
        if first[0] != _HANDSHAKE_RECORD:
            log.warning(
                "connection closed: the client speaks plain text, this acceptor has TLS", extra={"peer": self.peer}
            )
            self.fire(Event.CLOSE)
            return
        rest = self._incoming.read()
        self._incoming.write(first + rest)
        self._port.handshakes.ask(self)

    def _begin(self) -> None:
        self._tls = self._port.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._compute()

    def _compute(self) -> None:
        tls = self._tls
        assert tls is not None
        self.silent_since_ms = None
        self._port.handshakes.compute(tls.do_handshake, self._computed)

    def _computed(self, error: BaseException | None) -> None:
        """A step of the handshake has ended; the connection may be gone."""
        if self._state is not State.COMPUTING:
            return
        if error is None:
            self.fire(Event.DONE)
        elif isinstance(error, ssl.SSLWantReadError):
            self.fire(Event.MORE)
        else:
            self.fire(Event.FAIL, error)

    def _await_client(self) -> None:
        self.silent_since_ms = self._port.handshakes.now_ms()
        self._write()

    def _open(self) -> None:
        tls, above = self._tls, self._above
        assert tls is not None
        assert above is not None
        self._end_handshake()
        self._write()
        certificate = tls.getpeercert(binary_form=True)
        if certificate is not None:
            self.certificate_subject = subject_of(certificate)
        log.debug("TLS established", extra={"peer": self.peer, "protocol": tls.version(), "cipher": tls.cipher()})
        self.handler = above(self)

    def _fail(self, error: BaseException) -> None:
        self._end_handshake()
        self._write()  # send the alert that describes the error
        what = "TLS handshake failed" if self.handler is None else "connection dropped: TLS failed"
        log.warning(what, extra={"peer": self.peer, "error": reason_of(error)})
        self._below.close()

    def _close(self) -> None:
        self._end_handshake()
        self._below.close()

    def _close_open(self) -> None:
        self.flush()
        self._notify_close()
        self._below.close()

    def _notify_close(self) -> None:
        """Write close_notify, without which the client cannot tell this end from a truncated stream."""
        tls = self._tls
        assert tls is not None
        try:
            tls.unwrap()
        except ssl.SSLError:
            pass  # the answer of the client is not waited for
        self._write()

    def _lose(self, reason: str) -> None:
        if self._tls is not None and self._above is not None:
            log.info("connection lost during the TLS handshake", extra={"peer": self.peer, "reason": reason})
        self._end_handshake()
        handler, self.handler = self.handler, None
        # a step may still run on a thread; the objects live until it ends
        self._tls = None
        self._out, self._out_bytes = [], 0
        if handler is not None:
            handler.connection_lost(reason)

    def _end_handshake(self) -> None:
        self._above = None
        self.silent_since_ms = None
        self._port.handshakes.end(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _timed_out(self) -> None:
        self._timer = None
        log.warning("connection dropped: no TLS handshake within the time limit", extra={"peer": self.peer})
        self.abort()

    # --- input and output ----------------------------------------------------------------------

    def _receive(self, *, received: bool) -> bool:
        """Decrypt input and give it to the layer above; whether input is left over.

        Args:
            received: Whether the socket has brought bytes; otherwise this call continues with left-over input.
        """
        handler = self.handler
        if handler is None:
            return False
        data = memoryview(b"")
        if not self._backlogged and self._end is None:
            data = self._decrypt(READ_BYTES_MAX if handler.proved else READ_BYTES_BEFORE_LOGIN_MAX)
        if data or not received:
            # bytes of an incomplete record are no sign of life of the client
            try:
                self._backlogged = handler.receive_data(data)
            except BrokerError:
                # the socket is closed next: the answer that says why is in the output of this layer
                self.flush()
                raise
        if self._outgoing.pending:
            self._write()
            if not self.proved and self.outgoing_bytes() > OUTGOING_BYTES_BEFORE_LOGIN_MAX:
                self.abort()
        left_over = self._backlogged or self._more
        if self._end is not None and not left_over:
            event, error = self._end
            self.fire(event, *(() if error is None else (error,)))
        return left_over

    def _decrypt(self, limit: int) -> memoryview:
        """Decrypted input of at most ``limit`` bytes; sets ``_more`` and ``_end``."""
        tls, plain = self._tls, self._port.plain
        assert tls is not None
        filled = 0
        self._more = False
        try:
            while filled < limit:
                count = cast(int, tls.read(limit - filled, plain[filled:]))
                if not count:
                    self._end = Event.CLOSE, None
                    return plain[:filled]
                filled += count
            self._more = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._end = Event.CLOSE, None
        except ssl.SSLError as error:
            self._end = Event.FAIL, error
        return plain[:filled]

    def _write(self) -> None:
        data = self._outgoing.read()
        if data:
            self._below.write(data)

    # The table comes last: it names the functions above.
    TABLE = table(
        State,
        Event,
        {
            (State.AWAITING_CLIENT, Event.QUEUE): To(State.QUEUED, _queue),
            (State.AWAITING_CLIENT, Event.INPUT): To(State.COMPUTING, _compute),
            (State.AWAITING_CLIENT, Event.CLOSE): To(State.CLOSED, _close),
            (State.AWAITING_CLIENT, Event.LOST): To(State.CLOSED, _lose),
            (State.QUEUED, Event.BEGIN): To(State.COMPUTING, _begin),
            (State.QUEUED, Event.CLOSE): To(State.CLOSED, _close),
            (State.QUEUED, Event.LOST): To(State.CLOSED, _lose),
            (State.COMPUTING, Event.MORE): To(State.AWAITING_CLIENT, _await_client),
            (State.COMPUTING, Event.DONE): To(State.OPEN, _open),
            (State.COMPUTING, Event.FAIL): To(State.CLOSED, _fail),
            (State.COMPUTING, Event.CLOSE): To(State.CLOSED, _close),
            (State.COMPUTING, Event.LOST): To(State.CLOSED, _lose),
            (State.OPEN, Event.FAIL): To(State.CLOSED, _fail),
            (State.OPEN, Event.CLOSE): To(State.CLOSED, _close_open),
            (State.OPEN, Event.LOST): To(State.CLOSED, _lose),
            (State.CLOSED, Event.LOST): To(State.CLOSED, _lose),
        },
        otherwise={
            Event.INPUT: ILLEGAL,
            Event.QUEUE: ILLEGAL,
            Event.BEGIN: ILLEGAL,
            Event.MORE: ILLEGAL,
            Event.DONE: ILLEGAL,
            Event.FAIL: IGNORED,
            Event.CLOSE: IGNORED,
        },
    )
