"""One connection with one session, packet by packet over a blocking socket: what a client library would hide is seen.

Not here: what packets mean (``runner``), what of them may differ (``normaliser``).
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable

from understudy.wire.core import packets
from understudy.wire.core.codec import FrameDecoder, encode

#: Channel of the session.
CHANNEL = 10
_VERSION = 136
#: What the broker sends by itself.
_UNASKED = (
    packets.ReceiveMessage,
    packets.ReceiveLargeMessage,
    packets.ReceiveContinuation,
    packets.DisconnectConsumer,
    packets.ProducerCredits,
    packets.ProducerFailCredits,
    packets.PacketsConfirmed,
    packets.Ping,
    packets.DisconnectV3,
)


class Link:
    """A blocking link to one broker: connection, session, packets."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decoder = FrameDecoder("client")
        self._decoder.version = _VERSION
        self._answers: list[packets.Packet] = []
        self.unasked: list[packets.Packet] = []
        """Packets without a request that arrived since the list was last emptied."""
        self.closed = False
        """Whether the broker has closed the connection."""
        self._socket.sendall(b"ARTEMIS" + encode(packets.Ping(60_000), 0, _VERSION))

    def send(self, packet: packets.Packet, channel: int = CHANNEL) -> None:
        try:
            self._socket.sendall(encode(packet, channel, _VERSION))
        except OSError:
            self.closed = True

    def ask(self, packet: packets.Packet, channel: int = CHANNEL, timeout_s: float = 5) -> packets.Packet | None:
        """Send, and the answer; None if there is none in time or the connection is gone."""
        self._answers.clear()
        self.send(packet, channel)
        self.wait(lambda: bool(self._answers), timeout_s)
        return self._answers.pop(0) if self._answers else None

    def wait(self, until: Callable[[], bool], timeout_s: float) -> bool:
        """Take packets until the condition holds. False: the time was over first."""
        deadline = time.monotonic() + timeout_s
        while not until():
            left = deadline - time.monotonic()
            if left <= 0 or self.closed:
                return until()
            self.take(left)
        return True

    def take(self, timeout_s: float) -> None:
        """Take what there is, or comes in that time."""
        if self.closed or not select.select([self._socket], [], [], timeout_s)[0]:
            return
        try:
            data = self._socket.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            self.closed = True
            return
        for frame in self._decoder.receive_data(data):
            if isinstance(frame.packet, _UNASKED):
                if not isinstance(frame.packet, packets.Ping):
                    self.unasked.append(frame.packet)
            elif frame.channel_id != 0:
                self._answers.append(frame.packet)

    def close(self) -> None:
        self._socket.close()
