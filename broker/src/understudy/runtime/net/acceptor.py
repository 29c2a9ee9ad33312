"""Acceptors, and accepted connections: the lowest layer of a connection. Flushes once per turn.

The layers of a connection are, from below: its stream, which a reader reads (``ports.Streams``), the connection
(``ServerConnection``), TLS where the acceptor has it (``runtime.net.tls_layer``), the detection of the protocol
(``runtime.net.detection``), the handler of the protocol that takes its place (``protocols.handlers``). The connection
knows only the port ``ConnectionHandler``.

Source: artemis-core s. 1.2. Connections are bounded before login: their number, the time until the first bytes of a
protocol, the size of a read. A flood of connections that never log in displaces the oldest of those, not connections
that have logged in.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from enum import Enum, auto
from itertools import islice
from typing import ClassVar, Final

from understudy.config.model import AcceptorConfiguration
from understudy.dataclass import dataclass
from understudy.errors import BrokerError
from understudy.limits import (
    CLOSE_TIMEOUT_MS,
    CONNECTIONS_BEFORE_LOGIN_MAX,
    OUTGOING_BYTES_MAX,
    OUTGOING_BYTES_PAUSE,
)
from understudy.machine import IGNORED, Machine, To, table
from understudy.ports import ListeningPlace, OutputSealer, Security, Stream, Streams
from understudy.protocols.handlers import ConnectionHandler, Handlers
from understudy.runtime.base.drop_log import DropLog
from understudy.runtime.base.turn import Turn
from understudy.runtime.net.detection import Detection, Layered
from understudy.runtime.net.streams import LoopStreams
from understudy.runtime.net.tls_layer import TlsLayer, TlsPort
from understudy.runtime.net.upgrade import Upgrades, UpgradeServer
from understudy.runtime.process.descriptors import ConnectionBudget
from understudy.session.prefixes import prefixes_of

log = logging.getLogger(__name__)

#: Input of a call that continues with input that is left over.
_NOTHING: Final = memoryview(b"")
#: Connections that are checked in one step, and the pause before the next ones.
_CHECKED_AT_ONCE: Final = 100
_PAUSE_S: Final = 0.001


class Traffic:
    """Bytes of the connections of an acceptor so far, as they are on the network."""

    __slots__ = ("received_bytes", "sent_bytes")

    def __init__(self) -> None:
        self.received_bytes = self.sent_bytes = 0


@dataclass(frozen=True, slots=True)
class StreamLayer:
    """The reader of an acceptor and its TLS."""

    streams: Streams
    """Listens and reads."""
    tls: TlsPort | None = None
    """Contexts and handshakes; None: plain text."""


class Acceptor:
    """One configured acceptor of an active node. Implements ``SharedAcceptor``, ``Upgradable`` and
    ``ports.StreamAcceptor``.
    """

    def __init__(
        self,
        configuration: AcceptorConfiguration,
        turn: Turn,
        handlers: Handlers,
        check_period_ms: int,
        *,
        budget: ConnectionBudget | None = None,
        layer: StreamLayer | None = None,
        server: UpgradeServer | None = None,
    ) -> None:
        """Does not listen yet.

        Args:
            turn: The turn of the node's loop.
            handlers: Protocols of this acceptor.
            check_period_ms: connection-ttl-check-interval.
            budget: Connections of all acceptors together; None: only the acceptor's own limit holds.
            layer: Reader and TLS; None: plain text that the running loop reads.
            server: Name of the acceptor's server, for requests for an HTTP upgrade; None: it has no name.
        """
        self._check_period_ms = check_period_ms
        self.drops = DropLog(lambda: asyncio.get_running_loop().time())
        layer = layer or StreamLayer(LoopStreams())
        self.streams = layer.streams
        self.tls = layer.tls
        self.budget = budget or ConnectionBudget(configuration.connections_allowed)
        self.configuration = configuration
        self.turn = turn
        self._handlers = handlers
        """Protocols of the clients that belong to this acceptor."""
        self._first_handlers = handlers
        """Protocols of the clients that connect to its port."""
        self._upgrades = Upgrades(self, server or UpgradeServer("")) if configuration.http_upgrade else None
        if self._upgrades is not None:
            self._first_handlers = self._upgrades.first_handlers(handlers)
        self.prefixes = prefixes_of(configuration.anycast_prefixes, configuration.multicast_prefixes)
        self.connections_max = configuration.connections_allowed
        # dicts, not sets: loops over all connections follow the order in which they were accepted
        self.connections: dict[ServerConnection, None] = {}
        self._unproved: dict[ServerConnection, None] = {}
        """Connections that had not logged in when they were counted last, the oldest first."""
        self.is_open = False
        """Whether the acceptor takes connections, at its own port or at that of another acceptor of the process."""
        self._listening: asyncio.Task[None] | None = None
        """Listens in the place of another acceptor."""
        self._check_timer: asyncio.TimerHandle | None = None
        self.traffic = Traffic()
        """Traffic of all connections."""

    async def bind(self) -> None:
        """Take the address, unless another acceptor of the process has it. Until ``open``, clients that connect are
        refused, and no other process can listen there. Raises OSError when the address cannot be had.
        """
        if self._upgrades is None or self._upgrades.join():
            await self._bind()

    async def _bind(self) -> None:
        configuration = self.configuration
        place = ListeningPlace(
            configuration.host,
            configuration.port,
            configuration.backlog,
            configuration.tcp_send_buffer_bytes,
            configuration.tcp_receive_buffer_bytes,
            self.connections_max,
        )
        await self.streams.bind(place, self)

    async def open(self) -> None:
        """Listen at the address that ``bind`` has taken. Raises OSError when that is not possible."""
        self.is_open = True
        await self.streams.serve()
        loop = asyncio.get_running_loop()
        self._check_timer = loop.call_later(self._check_period_ms / 1000, self._check)

    def listen_for_all(self) -> None:
        self._listening = asyncio.get_running_loop().create_task(self._listen())
        self._listening.add_done_callback(self._has_listened)

    async def _listen(self) -> None:
        await self._bind()
        if self.is_open:
            await self.streams.serve()

    def _has_listened(self, listening: asyncio.Task[None]) -> None:
        if not listening.cancelled() and listening.exception() is not None:
            facts = {"url": self.configuration.url, "error": str(listening.exception())}
            log.error("the port of a server that has stopped cannot be taken", extra=facts)

    def accept(self, stream: Stream, peer: str, local: str) -> ServerConnection | None:
        connection = ServerConnection(self, stream, peer, local)
        if not self.admit(connection):
            log.warning("connection refused: too many", extra={"peer": peer})
            stream.abort()
            return None
        connection.handler = self.lowest_layer(connection)
        return connection

    def receive(self, arrivals: Iterable[tuple[ServerConnection, memoryview]]) -> None:
        for connection, data in arrivals:
            connection._acceptor.traffic.received_bytes += data.nbytes
            handler = connection.handler
            if connection.is_closing or handler is None:
                continue
            backlogged = False
            try:
                backlogged = handler.receive_data(data)
            except Exception as error:
                connection.receive_failed(error)
            # the connection may belong to another acceptor now, whose node has a turn of its own
            turn = connection.turn
            if not turn.scheduled:
                turn.scheduled = True
                turn.schedule()
            congestion = turn.congestion
            handler = connection.handler
            if (
                backlogged
                or not connection.is_reading
                or (congestion is not None and congestion.congested)
                or (handler is not None and handler.held_up)
            ):
                connection.go_on_or_pause(backlogged)

    def lowest_layer(self, connection: ServerConnection) -> ConnectionHandler:
        """The layer above the socket of a new connection."""
        if self.tls is None:
            return self.detection(connection)
        return TlsLayer(connection, self.tls, self.turn, self.detection)

    def detection(self, connection: Layered) -> ConnectionHandler:
        """The layer that recognises the protocol of a connection."""
        return Detection(connection, self._first_handlers, self.prefixes, self.configuration.handshake_timeout_ms)

    def upgraded(self, connection: Layered) -> ConnectionHandler:
        return Detection(connection, self._handlers, self.prefixes, self.configuration.handshake_timeout_ms)

    def stop_listening(self) -> None:
        """Take no new connections; the present ones go on."""
        self.is_open = False
        if self._listening is not None:
            self._listening.cancel()
        if self._upgrades is not None:
            self._upgrades.leave()
        self.streams.stop()

    async def close(self) -> None:
        """Send DISCONNECT on every connection and close; waits shortly until the output is written. Connections that
        outlive their sessions stay open.
        """
        self.stop_listening()
        if self._check_timer is not None:
            self._check_timer.cancel()
        closing = [each for each in self.connections if each.handler is None or not each.handler.outlives_sessions]
        for connection in closing:
            connection.say_goodbye()
        for _ in range(20):
            if not any(connection in self.connections for connection in closing):
                return
            await asyncio.sleep(0.01)
        for connection in closing:
            connection.abort()

    def admit(self, connection: ServerConnection) -> bool:
        """Whether a new connection is accepted. At the limit, the oldest connection that has not logged in is closed:
        an honest client logs in before thousands of later connections arrive.
        """
        full = len(self.connections) >= self.connections_max or self.budget.full
        if full or len(self._unproved) >= CONNECTIONS_BEFORE_LOGIN_MAX:
            self._unproved = {each: None for each in self._unproved if not each.proved}
            if full or len(self._unproved) >= CONNECTIONS_BEFORE_LOGIN_MAX:
                oldest = next(iter(self._unproved), None)
                if oldest is None:
                    return False
                oldest.displace()
        self.connections[connection] = None
        self._unproved[connection] = None
        self.budget.used += 1
        return True

    def forget(self, connection: ServerConnection) -> None:
        """Forget a connection that is gone."""
        if connection in self.connections:
            del self.connections[connection]
            self.budget.used -= 1
        self._unproved.pop(connection, None)
        self.turn.paused.pop(connection, None)

    def _check(self) -> None:
        self.streams.check()
        if self.tls is not None:
            self.tls.handshakes.check()
        self._check_connections(iter(list(self.connections)))

    def _check_connections(self, rest: Iterator[ServerConnection]) -> None:
        """Check some connections, then after a pause the others: clients wait meanwhile (ADR 0215)."""
        count = 0
        for connection in islice(rest, _CHECKED_AT_ONCE):
            connection.check()
            count += 1
        loop = asyncio.get_running_loop()
        if count < _CHECKED_AT_ONCE:
            self._check_timer = loop.call_later(self._check_period_ms / 1000, self._check)
        else:
            self._check_timer = loop.call_later(_PAUSE_S, self._check_connections, rest)


class State(Enum):
    """States of an accepted socket."""

    OPEN = auto()
    """The layer above processes the input."""
    CLOSING = auto()
    """Input and further output are dropped; output that was sent before may still be on its way."""
    CLOSED = auto()


class Event(Enum):
    """Events of an accepted socket."""

    CLOSE = auto()
    """Close after the output was written."""
    ABORT = auto()
    """The connection is to be closed at once."""
    LOST = auto()
    """The socket is closed."""


class ServerConnection(Machine[State, Event]):
    """One accepted connection; implements ``ports.Connection``. Also implements ``ports.AcceptedConnection``,
    ``ports.SealableConnection`` and ``Layered``.
    """

    STATES: ClassVar[type[Enum]] = State
    EVENTS: ClassVar[type[Enum]] = Event
    INITIAL: ClassVar[Enum] = State.OPEN

    def __init__(self, acceptor: Acceptor, stream: Stream, peer: str, local: str) -> None:
        """
        Args:
            peer: ``host:port`` of the other side.
            local: ``host:port`` of this side.
        """
        super().__init__()
        self.upgrade_without_name = False
        self.handler: ConnectionHandler | None = None
        """The layer above; None before the connection is admitted, and after it is lost."""
        self.turn = acceptor.turn
        """The turn of the node that the connection belongs to."""
        self.is_closing = False
        """Whether the state is CLOSING or CLOSED: asked for every read and every send."""
        self.is_reading = True
        """Whether the stream is read."""
        self._acceptor = acceptor
        self._stream: Stream | None = stream
        self._peer = peer
        self._local = local
        self._sealer: OutputSealer | None = None
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        """Aborts a connection whose peer does not read the output before the close."""

    # --- ports.AcceptedConnection --------------------------------------------------------------

    def connection_lost(self, reason: str) -> None:
        self.fire(Event.LOST, reason)

    def resume_writing(self) -> None:
        self._resume_handler()

    # --- input, called by ``Acceptor.receive`` ---------------------------------------------------

    def receive_failed(self, error: Exception) -> None:
        """Close the connection; called when the handler has raised an error at received bytes."""
        if isinstance(error, BrokerError):
            self._acceptor.drops.note(self._peer, error)
            self.close()
            return
        # the root of everything that a peer can cause: a bug of ours ends its connection and
        # no other; its sessions end, for it would send the same again
        log.error("connection dropped: internal error", extra={"peer": self._peer}, exc_info=error)
        if self.handler is not None:
            self.handler.prevent_reattachment()
        self.abort()

    def go_on_or_pause(self, backlogged: bool) -> None:
        """Continue reading, unless the log is congested or input is left over, which is handled after the other
        connections had their turn.

        Args:
            backlogged: Whether there is input left over.
        """
        if self.is_closing or self._stream is None:
            return
        congestion, handler = self.turn.congestion, self.handler
        congested = (congestion is not None and congestion.congested) or self.congested()
        if handler is not None and handler.outlives_sessions:
            # the progress of the replica is what ends the congestion
            congested = False
        if congested:
            self.turn.paused[self] = None
        elif backlogged:
            self.turn.after_this(self._receive_more)
        reading = not congested and not backlogged
        if reading is not self.is_reading:
            self.is_reading = reading
            if reading:
                self._stream.resume_reading()
            else:
                self._stream.pause_reading()

    def _receive_more(self) -> None:
        if self not in self.turn.paused:
            self._acceptor.receive(((self, _NOTHING),))

    def state_changed(self, origin: State, target: State, event: Event) -> None:
        self.is_closing = target is State.CLOSING or target is State.CLOSED

    def _lose(self, reason: str) -> None:
        self._acceptor.forget(self)
        if self._timer is not None:
            self._timer.cancel()
        if self.handler is not None:
            self.turn.completed(self.handler.connection_lost, reason)
        # without these references, the connection is freed by its reference count at once
        self.handler = self._timer = self._stream = None
        self._out, self._out_bytes = [], 0

    # --- ports.Connection ----------------------------------------------------------------------

    certificate_subject = None
    security = Security.NONE

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def local(self) -> str:
        return self._local

    def seal(self, sealer: OutputSealer) -> None:
        self.flush()
        self._sealer = sealer

    def send(self, data: bytes) -> None:
        if self.is_closing:
            return
        if not self._out:
            self.turn.mark_dirty(self)
        self._out.append(data)
        self._out_bytes += len(data)

    def write(self, data: bytes) -> None:
        """Write now; for a layer that collects the output of a turn itself (``runtime.net.tls_layer``)."""
        if not self.is_closing:
            self._out.append(data)
            self._out_bytes += len(data)
            self.flush()

    def move_to(self, acceptor: Acceptor) -> bool:
        if not acceptor.admit(self):
            return False
        self._acceptor.forget(self)
        self._acceptor, self.turn = acceptor, acceptor.turn
        return True

    def outgoing_bytes(self) -> int:
        waiting = self._stream.get_write_buffer_size() if self._stream is not None else 0
        return self._out_bytes + waiting

    def close(self) -> None:
        self.fire(Event.CLOSE)

    def _close(self) -> None:
        self.flush()
        if self._stream is not None:
            if self._stream.get_write_buffer_size():
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = asyncio.get_running_loop().call_later(CLOSE_TIMEOUT_MS / 1000, self.abort)
            self._stream.close()

    def abort(self) -> None:
        self.fire(Event.ABORT)

    def _abort(self) -> None:
        if self._stream is not None:
            self._stream.abort()

    # --- the shell's side ----------------------------------------------------------------------

    @property
    def proved(self) -> bool:
        """Whether the peer has logged in."""
        return self.handler is not None and self.handler.proved

    def displace(self) -> None:
        """Close this connection in favour of a new one."""
        log.warning("connection dropped: too many that have not logged in", extra={"peer": self._peer})
        self._acceptor.forget(self)
        self.abort()

    def flush(self) -> None:
        """Hand buffered output to the kernel, once per turn."""
        if not self._out or self._stream is None:
            return
        self._acceptor.traffic.sent_bytes += self._out_bytes
        out, self._out, self._out_bytes = self._out, [], 0
        self._stream.writelines(out if self._sealer is None else self._sealer.seal(out))
        if self.handler is not None and self.handler.held_back:
            self._resume_handler()
        if self._stream.get_write_buffer_size() > OUTGOING_BYTES_MAX:
            log.warning("connection closed: outgoing buffer over its limit", extra={"peer": self._peer})
            self.abort()

    def congested(self) -> bool:
        """Whether records of this peer's messages are not written yet."""
        return self.handler is not None and self.handler.congested()

    def resume_reading(self) -> None:
        """The log is no longer congested: handle the left-over input first, then read the socket."""
        self._acceptor.receive(((self, _NOTHING),))

    def _resume_handler(self) -> None:
        handler = self.handler
        if handler is not None and handler.held_back and self.outgoing_bytes() < OUTGOING_BYTES_PAUSE // 2:
            self.turn.completed(handler.resume_deliveries)

    def say_goodbye(self) -> None:
        """Tell the peer that the node stops, and close."""
        if self.handler is not None:
            self.turn.completed(self.handler.disconnect)
        self.close()

    def check(self) -> None:
        """Check whether the connection is alive, every connection-ttl-check-interval."""
        if self.handler is None or self.is_closing:
            return
        try:
            self.handler.check()
        except BrokerError as error:
            log.warning("connection dropped", extra={"peer": self._peer, "code": error.code, "error": str(error)})
            self.abort()

    # The table comes last: it names the functions above.
    TABLE = table(
        State,
        Event,
        {
            (State.OPEN, Event.CLOSE): To(State.CLOSING, _close),
            (State.OPEN, Event.ABORT): To(State.CLOSING, _abort),
            (State.OPEN, Event.LOST): To(State.CLOSED, _lose),
            (State.CLOSING, Event.ABORT): To(State.CLOSING, _abort),
            (State.CLOSING, Event.LOST): To(State.CLOSED, _lose),
        },
        otherwise={
            Event.CLOSE: IGNORED,
            Event.ABORT: IGNORED,
            Event.LOST: IGNORED,
        },
    )
