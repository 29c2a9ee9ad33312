"""The content of one publish: its header frame and body frames, as they come after the method."""

from __future__ import annotations

from enum import Enum, auto
from typing import ClassVar, Final

from understudy.limits import AMQP091_BODY_FRAMES_EXTRA_MAX, AMQP091_FRAME_BYTES_MIN, AMQP091_MESSAGE_BYTES_MAX
from understudy.machine import Machine, Refusal, To, table
from understudy.protocols.amqp091.messages import Publish
from understudy.wire.amqp091.codes import Amqp091Error, ReplyCode
from understudy.wire.amqp091.methods import BasicPublish
from understudy.wire.amqp091.properties import BasicProperties, decode_header, decode_properties


class State(Enum):
    """States of the content of a channel."""

    IDLE = auto()
    """No content is expected."""
    HEADER = auto()
    """The header frame of a publish comes next."""
    BODY = auto()
    """Body frames come next."""


class Event(Enum):
    """Events of the content of a channel."""

    METHOD = auto()
    """basic.publish was received."""
    HEADER = auto()
    BODY = auto()
    DONE = auto()
    """The whole content was received."""


#: Frames of a body that are accepted for each smallest frame of its size.
_FRAME_BYTES: Final = AMQP091_FRAME_BYTES_MIN - 8


class Content(Machine[State, Event]):
    """Receives the contents of one channel, one after the other."""

    STATES: ClassVar[type[Enum]] = State
    EVENTS: ClassVar[type[Enum]] = Event
    INITIAL: ClassVar[Enum] = State.IDLE

    def __init__(self) -> None:
        super().__init__()
        self._method: BasicPublish | None = None
        self._encoded = b""
        self._properties = BasicProperties()
        self._body = bytearray()
        self._size_bytes = 0
        self._frames_left = 0
        self.open = False
        """Whether a content was begun and is not complete."""
        self.since_ms = 0
        """Monotonic time at which its last frame was received."""

    @property
    def held_bytes(self) -> int:
        """Bytes of the property list and the body that have come."""
        return len(self._encoded) + len(self._body)

    def begin(self, method: BasicPublish, now_ms: int) -> None:
        """A publish was received, whose content follows."""
        self.fire(Event.METHOD, method, now_ms)

    def receive_header(self, payload: bytes) -> bool:
        """Take a header frame. Returns whether the content is complete.

        Raises:
            Amqp091Error: UNEXPECTED_FRAME: no header is expected. CONTENT_TOO_LARGE: the body is too large.
                FRAME_ERROR, SYNTAX_ERROR: it cannot be read.
        """
        if self._state is not State.HEADER:
            raise Amqp091Error(ReplyCode.UNEXPECTED_FRAME, "a content header without a method before it")
        size_bytes, encoded = decode_header(payload)
        if size_bytes > AMQP091_MESSAGE_BYTES_MAX:
            raise Amqp091Error(
                ReplyCode.CONTENT_TOO_LARGE, f"a message of {size_bytes} bytes, limit {AMQP091_MESSAGE_BYTES_MAX}"
            )
        self.fire(Event.HEADER, size_bytes, encoded)
        return not size_bytes

    def receive_body(self, payload: bytes) -> bool:
        """Take a body frame. Returns whether the content is complete.

        Raises:
            Amqp091Error: UNEXPECTED_FRAME: no body is expected. FRAME_ERROR: more bytes or frames than announced.
        """
        if self._state is not State.BODY:
            raise Amqp091Error(ReplyCode.UNEXPECTED_FRAME, "a content body without a header before it")
        self._frames_left -= 1
        if self._frames_left < 0:
            raise Amqp091Error(ReplyCode.FRAME_ERROR, "a message in too many body frames")
        self.fire(Event.BODY, payload)
        if len(self._body) > self._size_bytes:
            raise Amqp091Error(ReplyCode.FRAME_ERROR, f"a body of more than the {self._size_bytes} bytes announced")
        return len(self._body) == self._size_bytes

    def take(self) -> tuple[BasicPublish, Publish]:
        """The complete content with its method; the next one may begin."""
        method = self._method
        assert method is not None
        publish = Publish(method.exchange, method.routing_key, self._properties, self._encoded, bytes(self._body))
        self.fire(Event.DONE)
        return method, publish

    # --- actions ---------------------------------------------------------------------------------

    def _begin(self, method: BasicPublish, now_ms: int) -> None:
        self._method, self.since_ms, self.open = method, now_ms, True

    def _take_header(self, size_bytes: int, encoded: bytes) -> None:
        self._properties = decode_properties(encoded)
        self._size_bytes, self._encoded = size_bytes, encoded
        self._frames_left = size_bytes // _FRAME_BYTES + AMQP091_BODY_FRAMES_EXTRA_MAX

    def _take_body(self, payload: bytes) -> None:
        self._body += payload

    def _clear(self) -> None:
        self.open = False
        self._method, self._encoded, self._body = None, b"", bytearray()
        self._properties = BasicProperties()

    # The table comes last: it names the functions above.
    TABLE = table(
        State,
        Event,
        {
            (State.IDLE, Event.METHOD): To(State.HEADER, _begin),
            (State.HEADER, Event.HEADER): To(State.BODY, _take_header),
            (State.BODY, Event.BODY): To(State.BODY, _take_body),
            (State.BODY, Event.DONE): To(State.IDLE, _clear),
        },
        otherwise={
            Event.METHOD: Refusal.ILLEGAL,
            Event.HEADER: Refusal.ILLEGAL,
            Event.BODY: Refusal.ILLEGAL,
            Event.DONE: Refusal.ILLEGAL,
        },
    )
