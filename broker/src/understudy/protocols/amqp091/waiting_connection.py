"""A connection of a client of AMQP 0-9-1 to a node that waits for its last replica (ADR 0064): it is sent elsewhere.

The client gets connection.close 320 in place of connection.tune, whatever its credentials are: they are not read. The
text names the places that other nodes have stated (ADR 0194), which this node has not checked. Limits of frames and
time are those before a login.
"""

from __future__ import annotations

from typing import Final

from understudy.cluster.membership.client_endpoints import NodeEndpoints
from understudy.errors import RemoteProtocolError
from understudy.limits import AMQP091_FRAME_BYTES_BEFORE_LOGIN_MAX, LOGIN_TIMEOUT_MS
from understudy.ports import Clock, SealableConnection, Security
from understudy.protocols.amqp091.known_hosts import entry_of, joined
from understudy.wire.amqp091.codes import Amqp091Error, ReplyCode
from understudy.wire.amqp091.frames import PROTOCOL_HEADER, FrameDecoder, FrameType, method_frame
from understudy.wire.amqp091.methods import ConnectionClose, ConnectionStart
from understudy.wire.detect import Protocol

_TEXT: Final = "CONNECTION_FORCED - the node is passive"


class WaitingAmqp091Connection:
    """Connection at an acceptor of a node that waits. Implements ``ConnectionHandler``."""

    held_back = False
    held_up = False
    proved = False
    outlives_sessions = False

    def __init__(self, connection: SealableConnection, endpoints: NodeEndpoints, clock: Clock) -> None:
        """Wait for the protocol header.

        Args:
            connection: The socket.
            endpoints: Places of other nodes.
            clock: Ends the wait for the client.
        """
        self._connection = connection
        self._endpoints = endpoints
        self._clock = clock
        self._until_ms = clock.monotonic_ms() + LOGIN_TIMEOUT_MS
        self._decoder = FrameDecoder(AMQP091_FRAME_BYTES_BEFORE_LOGIN_MAX)
        self._header_left = len(PROTOCOL_HEADER)
        self._closed = False

    def receive_data(self, data: bytes | memoryview) -> bool:
        if self._closed:
            return False
        if self._header_left:
            if len(data) < self._header_left:
                raise RemoteProtocolError("a protocol header that is cut off")
            data, self._header_left = data[self._header_left :], 0
            self._connection.send(method_frame(ConnectionStart(mechanisms=b"PLAIN AMQPLAIN"), 0))
        self._decoder.receive(data)
        try:
            frame = self._decoder.next()
        except Amqp091Error as error:
            raise RemoteProtocolError(str(error)) from error
        if frame is not None:
            if frame.type != FrameType.METHOD or frame.channel:
                raise RemoteProtocolError(f"a frame of type {frame.type} in place of connection.start-ok")
            self._connection.send(method_frame(ConnectionClose(ReplyCode.CONNECTION_FORCED, self._text()), 0))
            self.disconnect()
        return False

    def _text(self) -> str:
        tls = self._connection.security is not Security.NONE
        places = self._endpoints.active(Protocol.AMQP091.name).values()
        entries = dict.fromkeys(entry_of(each) for stated in places for each in stated if tls or not each.tls)
        return joined(entries, f"{_TEXT}; known hosts: ") if entries else _TEXT

    def congested(self) -> bool:
        return False

    def resume_deliveries(self) -> None:
        """Do nothing: no delivery waits for the socket."""

    def check(self) -> None:
        if self._clock.monotonic_ms() >= self._until_ms:
            raise RemoteProtocolError(f"no connection.start-ok within {LOGIN_TIMEOUT_MS} ms")

    def disconnect(self) -> None:
        """Close the connection once the answer is written."""
        self._closed = True
        self._decoder.clear()
        self._connection.close()

    def prevent_reattachment(self) -> None:
        """Do nothing: the connection has no session."""

    def connection_lost(self, reason: str) -> None:
        self._closed = True
        self._decoder.clear()
