"""One AMQP 0-9-1 connection of a server: handshake, channels, heartbeats, and the end.

Source: AMQP 0-9-1 s. 4.2 (frames), s. 4.10 (ports and header), class connection; RabbitMQ where the specification
leaves a choice (docs/use/amqp091.md). A frame that comes in the wrong state ends the connection, before the login
without an answer.

Not here: what methods on channels mean (``channel``, ``requests``).
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from enum import Enum, auto
from typing import ClassVar, Final

from understudy import limits
from understudy.errors import BrokerError, LimitExceeded, RemoteProtocolError
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.ports import SealableConnection
from understudy.protocols.amqp091.channel import Amqp091Channel, shortened
from understudy.protocols.amqp091.channel import Event as ChannelEvent
from understudy.protocols.amqp091.handshake import Handshake
from understudy.protocols.amqp091.heart import Heart
from understudy.protocols.amqp091.link import Amqp091Services, HeldInput, Peer
from understudy.protocols.amqp091.requests import HANDLERS
from understudy.protocols.amqp091.resumption.kept_channels import KeptChannels
from understudy.protocols.amqp091.resumption.request import channel_request
from understudy.protocols.amqp091.runs.ways import Run, Ways
from understudy.protocols.liveness import Liveness
from understudy.routing.memory import AddressMemory
from understudy.session.prefixes import NO_PREFIXES, AddressPrefixes
from understudy.session.services import SessionOptions
from understudy.session.session import ServerSession
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.codes import Amqp091Error, ReplyCode
from understudy.wire.amqp091.frames import Frame, FrameDecoder, FrameType, method_frame
from understudy.wire.amqp091.layout import Method, decode_method, encode_method

log = logging.getLogger(__name__)

#: Name of the protocol for management.
PROTOCOL: Final = "AMQP091"
_HEADER_BYTES: Final = 8
#: Frames of one connection that are carried out in a turn.
_FRAMES_PER_TURN: Final = 256

_FRAME_TYPES: Final = frozenset(FrameType)
_CHANNEL_OPEN: Final = encode_method(m.ChannelOpen())[:4]


class State(Enum):
    """States of a connection."""

    STARTING = auto()
    """connection.start was sent."""
    CHALLENGED = auto()
    """connection.secure was sent: the client chose a mechanism without giving its credentials."""
    CHECKING = auto()
    """The password is being checked."""
    TUNING = auto()
    """connection.tune was sent."""
    OPENING = auto()
    """connection.open is awaited."""
    SEEKING = auto()
    """The session of the client is sought at other nodes; nothing is read."""
    OPEN = auto()
    CLOSING = auto()
    """connection.close was sent or received; everything but close and close-ok is ignored."""
    CLOSED = auto()


#: States in which nothing is read.
_WAITING: Final = (State.CHECKING, State.SEEKING)


class Event(Enum):
    """Events of a connection."""

    CHALLENGE = auto()
    """The client has chosen a mechanism and given no credentials."""
    CHECK = auto()
    """The client has given its credentials."""
    PROCEED = auto()
    """A step of the handshake is done."""
    SEEK = auto()
    """The session that the client asks for is not at this node."""
    REFUSE = auto()
    """The broker closes the connection."""
    LEAVE = auto()
    """The client closes the connection."""
    LOSE = auto()
    """The socket was closed."""


class Amqp091Connection(Machine[State, Event]):
    """One connection, without I/O. Implements ``ConnectionLink`` and ``ConnectionHandler``."""

    STATES: ClassVar[type[Enum]] = State
    EVENTS: ClassVar[type[Enum]] = Event
    INITIAL: ClassVar[Enum] = State.STARTING

    outlives_sessions = False

    def __init__(
        self, services: Amqp091Services, connection: SealableConnection, prefixes: AddressPrefixes = NO_PREFIXES
    ) -> None:
        """``prefixes``: prefixes before names, which only clients of CORE use."""
        super().__init__()
        self.services = services
        self.connection = connection
        shared = services.shared
        self.scope = shared.new_scope(PROTOCOL, connection)
        self.peer = Peer(frame_max=limits.AMQP091_FRAME_BYTES_BEFORE_LOGIN_MAX)
        self.channels: dict[int, Amqp091Channel] = {}
        self.held_back = False
        self.held_up = False
        self._decoder = FrameDecoder(limits.AMQP091_FRAME_BYTES_BEFORE_LOGIN_MAX)
        self.held = HeldInput(self._decoder, shared.sessions.post_office.timers, shared.clock, self._go_on)
        self.proved = False
        """Whether the client has logged in."""
        self._header_left = _HEADER_BYTES
        """Bytes of the protocol header that have not come."""
        self._liveness = Liveness(shared.clock, shared.connection_ttl_override_ms)
        self._handshake = Handshake(self)
        self._heart = Heart(connection, shared.sessions.post_office.timers, self._is_unread)
        self._blocked: str | None = None
        """Name of the full address because of which nothing is read."""
        self.ways = Ways()
        self._awaited_since_ms = 0
        """Monotonic time since which the rest of a publish is awaited; 0: none is."""
        shared.connections.opened(self)

    # --- driven by the shell -----------------------------------------------------------------------

    def receive_data(self, data: bytes | memoryview) -> bool:
        """Carry out received frames, a bounded number in a call.

        Args:
            data: Bytes; none to go on with earlier input. A view is valid during the call only.

        Returns:
            Whether input is left over.

        Raises:
            RemoteProtocolError: the client breaks the protocol before its login; close the connection.
        """
        if data:
            self._liveness.received = self._heart.received = True
        if self._header_left:
            # the protocol was detected by the whole header, so it comes in one piece
            if len(data) < self._header_left:
                raise RemoteProtocolError("a protocol header that is cut off")
            data, self._header_left = data[self._header_left :], 0
            self._handshake.start()
        if self._state is State.CLOSED:
            return False
        self._decoder.receive(data)
        if not self.proved and self._decoder.held_bytes > 2 * limits.AMQP091_FRAME_BYTES_BEFORE_LOGIN_MAX:
            raise LimitExceeded(f"{self._decoder.held_bytes} bytes before a login")
        return self._receive_frames()

    def _receive_frames(self) -> bool:
        if self._state in _WAITING:
            return False
        clock, decoder = self.services.shared.clock, self._decoder
        now_ms = clock.monotonic_ms()
        left = _FRAMES_PER_TURN
        while left > 0:
            if self.held.waiting and self._state is State.OPEN and self.held.stops(self.channels):
                self._awaited_since_ms = 0
                self.held_up = self._is_unread()
                return False
            run = self._receive_run(left)
            if run is not None and run.awaits:
                self._awaited_since_ms = now_ms
                return False
            self._awaited_since_ms = 0
            if run is not None and run.taken:
                left -= run.taken
                if decoder.offset == len(decoder.data) and not decoder.later:
                    return False
            elif not self._receive_next(now_ms):
                return False
            else:
                left -= 1
            if clock.monotonic_ms() - now_ms >= limits.AMQP091_TURN_MS:
                # one publish may have much work: many bindings that it is compared with
                break
        return True

    def _is_unread(self) -> bool:
        """Whether the socket is not read now: an address is full, or too much has come after a request that waits."""
        return self._blocked is not None or self.held.is_full

    def _receive_next(self, now_ms: int) -> bool:
        """Carry out the next frame. Returns whether others may follow now."""
        try:
            frame = self._decoder.next()
        except Amqp091Error as error:
            self._decoder.clear()
            self._refuse_frame(error)
            return False
        if frame is None:
            return False
        self._receive(frame, now_ms)
        return self._state is not State.CLOSED and self._state not in _WAITING

    def _receive_run(self, count_max: int) -> Run | None:
        """Take publishes or settlements that came together; None: the next frame is taken alone."""
        if self._state is not State.OPEN:
            return None
        channel = self.channels.get(self._decoder.next_channel)
        return channel.receive_run(self._decoder, count_max) if channel is not None else None

    def _receive(self, frame: Frame, now_ms: int) -> None:
        try:
            if frame.type not in _FRAME_TYPES:
                raise Amqp091Error(ReplyCode.FRAME_ERROR, f"a frame of the unknown type {frame.type}")
            if self._state is State.OPEN and frame.channel:
                self._receive_on_channel(frame, now_ms)
            else:
                self._receive_outside(frame)
        except Amqp091Error as error:
            self._refuse_frame(error)

    def _refuse_frame(self, error: Amqp091Error, method: Method | None = None) -> None:
        """Refuse a frame. Raises RemoteProtocolError: the client has not logged in and gets no answer."""
        if not self.proved:
            raise RemoteProtocolError(str(error)) from error
        self.refuse(error, method)

    def _receive_outside(self, frame: Frame) -> None:
        """A frame of channel 0, or one that comes while the connection is not open."""
        if not self.proved:
            self._handshake.login.count_input()
        if frame.type == FrameType.HEARTBEAT:
            if frame.channel or frame.payload:
                raise Amqp091Error(ReplyCode.UNEXPECTED_FRAME, "a heartbeat on a channel or with a payload")
            return
        if self._state is State.CLOSING:
            self._receive_closing(frame)
            return
        if frame.type != FrameType.METHOD or frame.channel:
            raise Amqp091Error(ReplyCode.UNEXPECTED_FRAME, f"a frame of type {frame.type} on channel {frame.channel}")
        if self.proved:
            method = decode_method(frame.payload)
        else:
            method = decode_method(
                frame.payload,
                depth_max=limits.AMQP091_TABLE_DEPTH_BEFORE_LOGIN_MAX,
                values_max=limits.AMQP091_TABLE_VALUES_BEFORE_LOGIN_MAX,
            )
        if isinstance(method, m.ConnectionClose):
            self._close_by_client(method)
            return
        try:
            self._receive_handshake(method)
        except Amqp091Error as error:
            self._refuse_frame(error, method)

    def _receive_closing(self, frame: Frame) -> None:
        if frame.type != FrameType.METHOD or frame.channel:
            return
        method = decode_method(frame.payload)
        if isinstance(method, m.ConnectionClose):
            self.send(m.ConnectionCloseOk(), 0)
            self.connection.close()
        elif isinstance(method, m.ConnectionCloseOk):
            self.connection.close()

    def _receive_on_channel(self, frame: Frame, now_ms: int) -> None:
        channel = self.channels.get(frame.channel)
        if channel is not None:
            if frame.type == FrameType.HEARTBEAT:
                raise Amqp091Error(ReplyCode.UNEXPECTED_FRAME, "a heartbeat on a channel")
            if frame.type == FrameType.METHOD and frame.payload[:4] == _CHANNEL_OPEN and channel.open:
                raise Amqp091Error(ReplyCode.CHANNEL_ERROR, f"channel {frame.channel} is open already")
            channel.receive(frame.type, frame.payload, now_ms)
            return
        if frame.type == FrameType.HEARTBEAT:
            raise Amqp091Error(ReplyCode.UNEXPECTED_FRAME, "a heartbeat on a channel")
        if frame.type != FrameType.METHOD:
            raise Amqp091Error(ReplyCode.CHANNEL_ERROR, f"channel {frame.channel} is not open")
        method = decode_method(frame.payload)
        if isinstance(method, m.ChannelOpen):
            self._open_channel(frame.channel, method)
        elif not isinstance(method, m.ChannelCloseOk):
            self.refuse(Amqp091Error(ReplyCode.CHANNEL_ERROR, f"channel {frame.channel} is not open"), method)

    # --- handshake ---------------------------------------------------------------------------------

    def proceed(self) -> None:
        """A step of the handshake is done."""
        self.fire(Event.PROCEED)

    def seek(self) -> None:
        """The session of the client is sought at other nodes."""
        self.fire(Event.SEEK)

    def _receive_handshake(self, method: Method) -> None:
        """A method of the connection in the state in which it is expected, or one that is not possible now.

        Raises:
            Amqp091Error: it is refused.
        """
        handshake = self._handshake
        if isinstance(method, m.ConnectionStartOk) and self._state is State.STARTING:
            self.fire(Event.CHALLENGE if handshake.lacks_credentials(method) else Event.CHECK)
            handshake.choose(method)
        elif isinstance(method, m.ConnectionSecureOk) and self._state is State.CHALLENGED:
            self.fire(Event.CHECK)
            handshake.log_in(method.response)
        elif isinstance(method, m.ConnectionTuneOk) and self._state is State.TUNING:
            interval_s = handshake.tune(method)
            self._decoder.payload_max = self.peer.frame_max
            # the heartbeat takes the place of the connection TTL
            self._liveness.choose(0)
            self._heart.begin(interval_s)
        elif isinstance(method, m.ConnectionOpen) and self._state is State.OPENING:
            handshake.open(method)
        elif isinstance(method, m.ConnectionUpdateSecret) and self._state is State.OPEN:
            # a login by password or certificate does not expire, so the new secret changes nothing
            self.send(m.ConnectionUpdateSecretOk(), 0)
        else:
            raise Amqp091Error(ReplyCode.COMMAND_INVALID, f"{method.name} is not possible now")

    # --- channels ----------------------------------------------------------------------------------

    def _open_channel(self, number: int, method: m.ChannelOpen) -> None:
        shared, principal = self.services.shared, self._handshake.principal
        assert principal is not None
        if len(self.channels) >= self.peer.channel_max:
            # the number of channels is limited, not their numbers, as in RabbitMQ
            text = f"{len(self.channels)} channels are open, channel-max is {self.peer.channel_max}"
            self.refuse(Amqp091Error(ReplyCode.NOT_ALLOWED, text), method)
            return
        options = SessionOptions(validated_user=shared.access.validated_user(principal))
        security = shared.access.permissions(principal)

        def make_session(channel: Amqp091Channel) -> ServerSession:
            return ServerSession(
                f"{self.scope.connection_id}-{number}",
                shared.sessions,
                callback=channel,
                connection=self.scope,
                security=security,
                options=options,
            )

        def make() -> Amqp091Channel:
            shared.connections.check_accepting()
            channel = Amqp091Channel(self, number, make_session, HANDLERS)
            shared.connections.session_opened()
            return channel

        self.held.count_open()
        session = self._handshake.session.session
        kept = None if session is None else KeptChannels.of(session)
        try:
            request = channel_request(method.reserved_1)
            if request is not None and kept is None:
                raise Amqp091Error(ReplyCode.COMMAND_INVALID, "the connection has no session")
            if kept is not None and kept.resume(number, request, self, self.channels, make):
                return
            channel = self.channels[number] = make()
            if kept is not None:
                kept.begin(number, channel)
        except Amqp091Error as error:
            self.refuse(error, method)
            return
        except BrokerError as error:
            self.refuse(Amqp091Error(ReplyCode.RESOURCE_ERROR, shared.error_texts.remote(error)), method)
            return
        status = b""
        if kept is not None and request is not None:
            status = kept.status(channel, self.channels, resumed=False)
        if channel.publisher.record is None:
            self.send(m.ChannelOpenOk(status), number)
        else:
            channel.answer(m.ChannelOpenOk(status))

    def channel_ended(self, number: int) -> None:
        self.channels.pop(number, None)

    def open_sessions(self) -> Collection[ServerSession]:
        """Sessions of the open channels."""
        return [channel.session for channel in self.channels.values() if channel.open]

    def end_session(self, session: ServerSession) -> None:
        """Close the channel of a session because an operator wants that."""
        for channel in list(self.channels.values()):
            if channel.open and channel.session is session:
                channel.refuse(
                    Amqp091Error(ReplyCode.PRECONDITION_FAILED, "the channel was closed by an operator"), None
                )

    # --- sending -----------------------------------------------------------------------------------

    def send(self, method: Method, channel: int) -> None:
        self.send_bytes(method_frame(method, channel))

    def send_bytes(self, data: bytes) -> None:
        connection = self.connection
        if not self.proved and connection.outgoing_bytes() > limits.OUTGOING_BYTES_BEFORE_LOGIN_MAX:
            connection.abort()
            return
        self._heart.sent = True
        connection.send(data)

    def writable(self) -> bool:
        if self._state is not State.OPEN or self.connection.outgoing_bytes() >= limits.OUTGOING_BYTES_PAUSE:
            self.held_back = True
            return False
        return True

    def resume_deliveries(self) -> None:
        self.held_back = False
        for channel in list(self.channels.values()):
            channel.resume_deliveries()

    # --- full addresses ----------------------------------------------------------------------------

    def block(self, address: AddressMemory) -> None:
        self.held_up = True
        if self._blocked is None:
            self._blocked = address.name
            if self.peer.capabilities.get("connection.blocked") is True:
                self.send(m.ConnectionBlocked(shortened(f"address {address.name} is full")), 0)

    def unblock(self) -> None:
        if self._blocked is not None and self._state is State.OPEN:
            self._blocked = None
            if self.peer.capabilities.get("connection.blocked") is True:
                self.send(m.ConnectionUnblocked(), 0)

    def congested(self) -> bool:
        """Whether nothing more should be read: a login is checked, a session is sought, an address that the client
        fills is full, or too much has come after a request that waits.
        """
        waits = self._state in _WAITING or self._is_unread()
        self.held_up = waits and self._state is not State.CLOSED
        return self.held_up

    # --- end ---------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check timeouts. Raises RemoteProtocolError: the connection must be aborted."""
        if self._is_unread():
            self._liveness.received = True
            self._awaited_since_ms = 0
        self._liveness.check_silence()
        if self._state in (State.STARTING, State.CHALLENGED, State.TUNING, State.OPENING):
            self._liveness.check_login()
        now_ms = self.services.shared.clock.monotonic_ms()
        if self._awaited_since_ms and now_ms - self._awaited_since_ms > limits.AMQP091_CONTENT_TIMEOUT_MS:
            raise RemoteProtocolError("the rest of a publish did not come within its time")
        for channel in list(self.channels.values()):
            if self.held.stopped or self._blocked is not None:
                # the next frame of the content may have come
                channel.content.since_ms = now_ms
            channel.check(now_ms)

    def _close_by_client(self, method: m.ConnectionClose) -> None:
        self._handshake.session.closed_by_client(method.reply_code)
        self.fire(Event.LEAVE)

    def _leave(self) -> None:
        self._end_channels()
        self._delete_queues()
        self.send(m.ConnectionCloseOk(), 0)
        self.connection.close()

    def refuse(self, error: Amqp091Error, method: Method | None) -> None:
        if self._state in (State.CLOSING, State.CLOSED):
            return
        log.info(
            "connection closed: request refused",
            extra={"peer": self.connection.peer, "code": int(error.reply_code), "error": str(error)},
        )
        self.fire(Event.REFUSE, error, method)

    def _send_close(self, error: Amqp091Error, method: Method | None) -> None:
        self._handshake.session.closed_by_broker(error.reply_code)
        self._end_channels()
        ids = (method.class_id, method.method_id) if method is not None else (0, 0)
        self.send(m.ConnectionClose(error.reply_code, shortened(f"{error.reply_code.text} - {error}"), *ids), 0)
        timers = self.services.shared.sessions.post_office.timers
        timers.call_later(limits.AMQP091_CLOSE_TIMEOUT_MS, self.connection.close)
        self._go_on()

    def disconnect(self) -> None:
        if self._state is State.OPEN:
            self.refuse(Amqp091Error(ReplyCode.CONNECTION_FORCED, "the node stops"), None)
        self.connection.close()

    def fail(self, error: BrokerError) -> None:
        """Close the connection because of an error."""
        log.warning("connection dropped", extra={"peer": self.connection.peer, "code": error.code, "error": str(error)})
        self.connection.close()

    def kill(self, reason: str) -> None:
        log.warning("connection killed", extra={"peer": self.connection.peer, "reason": reason})
        self.refuse(Amqp091Error(ReplyCode.CONNECTION_FORCED, reason), None)
        self.connection.close()

    def abort(self) -> None:
        self.connection.abort()

    def internal_error(self, bug: Exception) -> None:
        log.error("connection dropped: internal error", extra={"peer": self.connection.peer}, exc_info=bug)
        self.connection.abort()

    def prevent_reattachment(self) -> None:
        """Do nothing: no state of a connection survives its loss."""

    def connection_lost(self, reason: str) -> None:
        self.fire(Event.LOSE, reason)

    def _end(self, reason: str) -> None:
        self._heart.end()
        self._handshake.close()
        self._end_channels()
        self._delete_queues()
        self.services.shared.sessions.post_office.memory.no_longer_waits(self)
        self.services.shared.connections.ended(self)
        self._decoder.clear()
        log.debug("connection closed", extra={"peer": self.connection.peer, "reason": reason})

    def _go_on(self) -> None:
        """Carry out frames that came meanwhile, in the next turn."""
        if self._decoder.held_bytes:
            self.services.shared.sessions.post_office.timers.call_later(0, self._receive_waiting)

    def _receive_waiting(self) -> None:
        try:
            more = self._receive_frames()
        except BrokerError as error:
            self.fail(error)
            return
        if more:
            self._go_on()

    def _end_channels(self) -> None:
        part = self._handshake.session
        session = part.prepare()
        channels, self.channels = self.channels, {}
        kept = {} if session is None else {number: each for number, each in channels.items() if each.goes_on}
        for channel in (each for number, each in channels.items() if number not in kept):
            channel.fire(ChannelEvent.LOSE)
        part.leave()
        if session is not None:
            KeptChannels.of(session).keep(kept, self, session.scope)

    def _delete_queues(self) -> None:
        self.scope.delete_temporary_queues(self.services.shared.sessions.post_office)

    # The table comes last: it names the functions above.
    TABLE = table(
        State,
        Event,
        {
            (State.STARTING, Event.CHECK): To(State.CHECKING),
            (State.STARTING, Event.CHALLENGE): To(State.CHALLENGED),
            (State.CHALLENGED, Event.CHECK): To(State.CHECKING),
            (State.CHECKING, Event.PROCEED): To(State.TUNING, _go_on),
            (State.TUNING, Event.PROCEED): To(State.OPENING),
            (State.OPENING, Event.PROCEED): To(State.OPEN),
            (State.OPENING, Event.SEEK): To(State.SEEKING),
            (State.SEEKING, Event.PROCEED): To(State.OPEN, _go_on),
            (State.SEEKING, Event.REFUSE): To(State.CLOSING, _send_close),
            (State.SEEKING, Event.LOSE): To(State.CLOSED, _end),
            (State.STARTING, Event.LEAVE): To(State.CLOSING, _leave),
            (State.CHALLENGED, Event.LEAVE): To(State.CLOSING, _leave),
            (State.TUNING, Event.LEAVE): To(State.CLOSING, _leave),
            (State.OPENING, Event.LEAVE): To(State.CLOSING, _leave),
            (State.OPEN, Event.LEAVE): To(State.CLOSING, _leave),
            (State.TUNING, Event.REFUSE): To(State.CLOSING, _send_close),
            (State.OPENING, Event.REFUSE): To(State.CLOSING, _send_close),
            (State.OPEN, Event.REFUSE): To(State.CLOSING, _send_close),
            (State.STARTING, Event.LOSE): To(State.CLOSED, _end),
            (State.CHALLENGED, Event.LOSE): To(State.CLOSED, _end),
            (State.CHECKING, Event.LOSE): To(State.CLOSED, _end),
            (State.TUNING, Event.LOSE): To(State.CLOSED, _end),
            (State.OPENING, Event.LOSE): To(State.CLOSED, _end),
            (State.OPEN, Event.LOSE): To(State.CLOSED, _end),
            (State.CLOSING, Event.LOSE): To(State.CLOSED, _end),
            (State.CLOSED, Event.LOSE): IGNORED,
        },
        otherwise=dict.fromkeys(Event, ILLEGAL),
    )
