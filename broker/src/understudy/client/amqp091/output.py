"""Output of one connection of AMQP 0-9-1: methods to the broker, packets to the parts of the client."""

from __future__ import annotations

from collections.abc import Callable

from understudy.client.core.connection.codec import Arrival
from understudy.errors import BrokerError
from understudy.limits import AMQP091_FRAME_BYTES_BEFORE_LOGIN_MAX, AMQP091_FRAME_BYTES_MAX
from understudy.wire.amqp091.codes import ReplyCode
from understudy.wire.amqp091.frames import content_frames, method_frame
from understudy.wire.amqp091.layout import Method
from understudy.wire.core.codes import ErrorCode, code_of
from understudy.wire.core.packets import ExceptionResponse, Packet

_CODES = {
    ReplyCode.NO_ROUTE: ErrorCode.ADDRESS_DOES_NOT_EXIST,
    ReplyCode.ACCESS_REFUSED: ErrorCode.SECURITY_EXCEPTION,
    ReplyCode.NOT_FOUND: ErrorCode.QUEUE_DOES_NOT_EXIST,
    ReplyCode.RESOURCE_LOCKED: ErrorCode.ILLEGAL_STATE,
    ReplyCode.PRECONDITION_FAILED: ErrorCode.INVALID_QUEUE_CONFIGURATION,
    ReplyCode.NOT_IMPLEMENTED: ErrorCode.NOT_IMPLEMENTED,
}


class Output:
    """Writes frames and reports packets."""

    def __init__(self, write: Callable[[bytes], None], wake: Callable[[], None]) -> None:
        """Args:
        write: Queues bytes for the next flush.
        wake: Called when there is a report outside of ``collect``.
        """
        self.frame_max = AMQP091_FRAME_BYTES_BEFORE_LOGIN_MAX
        """Largest frame in bytes; the negotiated one after the handshake."""
        self.content_frame_max = AMQP091_FRAME_BYTES_MAX
        """Largest frame of a message in bytes: messages of a time without a transport are sent after a handshake, so
        the last negotiated one holds for them."""
        self._write = write
        self._wake = wake
        self._reports: list[Arrival] = []
        self._collecting = False

    def send(self, method: Method, channel: int) -> None:
        """Send a method. Raises LocalProtocolError: a value does not fit its field."""
        self._write(method_frame(method, channel))

    def send_content(self, method: Method, properties: bytes, body: bytes, channel: int) -> None:
        """Send a method with its content."""
        self._write(content_frames(method, properties, body, channel, self.frame_max))

    def send_bytes(self, data: bytes) -> None:
        """Send encoded frames."""
        self._write(data)

    def report(self, channel_id: int, packet: Packet, size_bytes: int = 0) -> None:
        """Give the client a packet."""
        self._reports.append((channel_id, packet, size_bytes))
        if not self._collecting and len(self._reports) == 1:
            self._wake()

    def refuse(self, channel_id: int, error: BrokerError, correlation_id: int | None = None) -> None:
        """Give the client the error of a request."""
        self.report(channel_id, ExceptionResponse(code_of(error), str(error), correlation_id))

    def refuse_code(self, channel_id: int, code: int, text: str, correlation_id: int | None = None) -> None:
        """Give the client an error with a reply code of the broker."""
        known = _CODES.get(ReplyCode(code)) if code in list(ReplyCode) else None
        packet = ExceptionResponse(ErrorCode.INTERNAL_ERROR if known is None else known, text, correlation_id)
        self.report(channel_id, packet)

    def negotiated(self, frame_max: int) -> None:
        """Take the largest frame of a handshake. Bytes."""
        self.frame_max = self.content_frame_max = frame_max

    def collect(self, work: Callable[[], None]) -> list[Arrival]:
        """The packets that are reported before and by a call, in order."""
        self._collecting = True
        try:
            work()
        finally:
            self._collecting = False
        return self.take()

    def take(self) -> list[Arrival]:
        """The packets that were reported since the last call."""
        reports, self._reports = self._reports, []
        return reports

    def clear(self) -> None:
        """Drop everything that was reported: it belongs to a transport that is gone."""
        self._reports.clear()

    def restart(self) -> None:
        """A new transport is open: frames are small until its limits are negotiated."""
        self.frame_max = AMQP091_FRAME_BYTES_BEFORE_LOGIN_MAX
        self.clear()
