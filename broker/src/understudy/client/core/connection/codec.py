"""How the packets of a connection become bytes, and bytes packets: the protocol at the other end of the transport.

The parts of the client speak in packets of CORE. ``CoreCodec`` writes them as they are. A codec of another protocol
(``client.amqp091``) carries each packet out with the methods of that protocol, and reports the methods of the broker
as the packets that a broker of CORE would have sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final, Protocol

from understudy.client.core.url.options import Connector
from understudy.dataclass import dataclass
from understudy.errors import BrokerError
from understudy.message import Message
from understudy.wire.core.codec import MAGIC, FrameDecoder, encode, encode_send
from understudy.wire.core.packets import VERSION, Packet

#: One packet as its codec keeps it until it is written: bytes of CORE, or whatever another codec makes.
Frame = Any
#: Number of the channel, packet, bytes that it took on the wire.
Arrival = tuple[int, Packet, int]

CONNECTION_CHANNEL: Final = 0
CONTROL_CHANNEL: Final = 1

_NO_TLS: Final = "does that port speak TLS? without sslEnabled a client speaks plain TCP"
#: Words in the errors of OpenSSL, and what to try; the first that fits counts.
_TLS_HINTS: Final = {
    # a handshake that meets a port without TLS, in the blocking and the asyncio client
    "(EOF)": _NO_TLS,
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "closed by the other side": _NO_TLS,
    "Hostname mismatch": "sniHost is the name that the certificate must have in place of the host",
    "IP address mismatch": "sniHost is the name that the certificate must have in place of the host",
    "CERTIFICATE_VERIFY_FAILED": "trustStorePath names the file with the authority of the broker",
    "ALERT_UNKNOWN_CA": "the broker does not trust the certificate in keyStorePath",
    "CERTIFICATE_REQUIRED": "the broker asks for a certificate: keyStorePath",
}


@dataclass(slots=True)
class TransportEnds(Packet):
    """Report of a codec on channel 0: the transport cannot be used any more. It is no packet of the wire."""

    TYPE: ClassVar[int] = 0
    error: BrokerError


@dataclass(slots=True)
class OnDemand(Packet):
    """Notice for a codec whose broker makes no queue for a message: the application uses a queue, or a multicast
    address, that it lets the client make. It is no packet of the wire.
    """

    TYPE: ClassVar[int] = 0
    name: str
    routing_type: int
    sender_id: int | None
    """Number of the producer; None: a consumer."""
    again: bool
    """Whether it may be gone, because the session is a new one at the broker."""


class Decoder(Protocol):
    """Reads the bytes of one transport."""

    def receive_data(self, data: bytes) -> Iterable[Arrival]:
        """The packets that the bytes complete. Raises ProtocolError."""
        ...


class Codec(Protocol):
    """The protocol of a connection, on one transport after the other."""

    version: int
    """Channel version by which packets are made."""
    duplicate_ids: bool
    """Whether messages carry duplicate ids by which the broker drops the second copy of a send."""
    stored_ids: bool
    """Whether a delivery has the id of the stored message."""
    makes_queues: bool
    """Whether the broker makes a queue for a message that finds none; otherwise the codec takes ``OnDemand``."""
    ping_period_ms: int | None
    """Longest time between two pings; None: the options of the connection decide alone."""

    ended_by_broker: bool
    """Whether the broker may have ended the last transport because of a request, as opposed to a link that was cut."""

    @property
    def keeps_sessions(self) -> bool:
        """Whether the broker may still have the sessions after a lost connection and decide requests under way."""
        ...

    @property
    def blocked(self) -> bool:
        """Whether the broker has said that it takes no messages for now."""
        ...

    def opened(self, connector: Connector, can_refuse: Callable[[int], bool]) -> Decoder:
        """Begin the protocol on a new transport.

        Args:
            connector: Place that was dialled.
            can_refuse: Whether a frame beyond the limits on that channel is skipped instead of ending the connection.
        """
        ...

    def lost(self) -> None:
        """The transport is gone."""
        ...

    def leave(self) -> None:
        """The application closes the connection: write a farewell if the protocol has one."""
        ...

    def encode(self, channel_id: int, packet: Packet) -> Frame:
        """The frame of a packet. Raises LocalProtocolError: it cannot be sent."""
        ...

    def encode_send(self, message: Message, channel_id: int, correlation_id: int | None, sender_id: int) -> Frame:
        """The frame that sends a message; it may be written again at a later transport.

        Args:
            message: Message with its address.
            channel_id: Number of the channel of the session.
            correlation_id: Id of the answer; None: no answer is wanted.
            sender_id: Number of the producer.

        Raises:
            LocalProtocolError: it cannot be sent.
        """
        ...

    def write(self, frame: Frame) -> None:
        """Send a frame with the next flush."""
        ...

    def learn_version(self, version: int) -> None:
        """Use that channel version from now on."""
        ...


class CoreCodec:
    """The protocol CORE. Implements ``Codec``."""

    duplicate_ids = True
    stored_ids = True
    makes_queues = True
    ended_by_broker = True
    keeps_sessions = False
    blocked = False
    ping_period_ms: int | None = None

    def __init__(self, write: Callable[[bytes], None]) -> None:
        """``write`` queues bytes for the next flush."""
        self.version = VERSION
        self.write = write
        self._decoder: FrameDecoder | None = None

    def opened(self, connector: Connector, can_refuse: Callable[[int], bool]) -> Decoder:
        self._decoder = decoder = FrameDecoder("client")
        decoder.version = self.version
        decoder.can_refuse = can_refuse
        self.write(MAGIC)
        return decoder

    def lost(self) -> None:
        self._decoder = None

    def leave(self) -> None:
        """Do nothing: CORE has no farewell."""

    def encode(self, channel_id: int, packet: Packet) -> Frame:
        return encode(packet, channel_id, self.version)

    def encode_send(self, message: Message, channel_id: int, correlation_id: int | None, sender_id: int) -> Frame:
        return encode_send(
            message, channel_id, correlation_id is not None, correlation_id or 0, sender_id, self.version
        )

    def learn_version(self, version: int) -> None:
        self.version = version
        if self._decoder is not None:
            self._decoder.version = version


def hint_of_protocol(data: bytes) -> str | None:
    """Advice for a server whose answer begins like that of another protocol; None: it does not."""
    if data.startswith(b"HTTP"):
        return "it speaks HTTP: is that the port of the management?"
    if data.startswith(b"AMQP"):
        return "it speaks AMQP: amqp091://host:port is a URL of AMQP 0-9-1"
    return None


def hint_of_tls(error: str) -> str | None:
    """Advice after an error of TLS, in the words of OpenSSL; None: nothing is known."""
    return next((hint for words, hint in _TLS_HINTS.items() if words in error), None)
