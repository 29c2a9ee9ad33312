"""Datagrams in which brokers broadcast their connectors, as Artemis writes them.

Source: artemis-ha s. 7.1. A datagram holds the node id, an id of the broadcaster, a count, and that many connectors;
bytes after them are ignored, because buffers of Java broadcasters may append zeros. A datagram that travels in a
channel (``jgroups-channel``) is preceded by a header with the name of the channel; that form is our own.

Any host of the network can send such a datagram, so everything is limited before it is decoded.
"""

from __future__ import annotations

from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import LimitExceeded, ProtocolError
from understudy.limits import BROADCAST_BYTES_MAX, BROADCAST_CONNECTORS_MAX, BROADCAST_NAME_UNITS_MAX
from understudy.wire.buffer import Reader, Writer
from understudy.wire.core.transport import TransportConfiguration

#: Name and factory of a connector, and its number of parameters.
_CONNECTOR_BYTES_MIN: Final = 12
#: The first bytes of a datagram of a channel. As the length of a string they are far above every limit, so that a
#: reader of plain datagrams rejects it.
_CHANNEL_MAGIC: Final = b"\x7fUSC"


@dataclass(frozen=True, slots=True)
class Broadcast:
    """One datagram of a broadcast group."""

    node_id: str
    broadcaster_id: str
    """New with every start of a broadcaster."""
    connectors: tuple[TransportConfiguration, ...]

    def encode(self) -> bytes:
        """Encode the datagram of the broadcast.

        Raises:
            LimitExceeded: it would be larger than ``BROADCAST_BYTES_MAX``.
        """
        writer = Writer()
        writer.string(self.node_id)
        writer.string(self.broadcaster_id)
        writer.i32(len(self.connectors))
        for each in self.connectors:
            each.write_to(writer)
        data = writer.getvalue()
        if len(data) > BROADCAST_BYTES_MAX or len(self.connectors) > BROADCAST_CONNECTORS_MAX:
            text = f"a broadcast of {len(self.connectors)} connectors with {len(data)} bytes"
            raise LimitExceeded(f"{text}, limits {BROADCAST_CONNECTORS_MAX} and {BROADCAST_BYTES_MAX}")
        return data

    @classmethod
    def decode(cls, data: bytes) -> Broadcast:
        """Decode the bytes of a datagram.

        Raises:
            LimitExceeded: larger than any broadcast of connectors.
            RemoteProtocolError: malformed.
        """
        if len(data) > BROADCAST_BYTES_MAX:
            raise LimitExceeded(f"a broadcast of {len(data)} bytes, limit {BROADCAST_BYTES_MAX}")
        reader = Reader(data)
        node_id = reader.string(BROADCAST_NAME_UNITS_MAX)
        broadcaster_id = reader.string(BROADCAST_NAME_UNITS_MAX)
        count = reader.count(_CONNECTOR_BYTES_MIN, BROADCAST_CONNECTORS_MAX)
        return cls(node_id, broadcaster_id, tuple(TransportConfiguration.read_from(reader) for _ in range(count)))


def to_channel(channel: str, datagram: bytes) -> bytes:
    """The datagram with the head of its JGroups channel."""
    writer = Writer()
    writer.string(channel)
    return _CHANNEL_MAGIC + writer.getvalue() + datagram


def from_channel(channel: str, data: bytes) -> bytes | None:
    """The datagram in ``data``; None if it belongs to another channel or to none."""
    if not data.startswith(_CHANNEL_MAGIC):
        return None
    reader = Reader(data[len(_CHANNEL_MAGIC) :])
    try:
        if reader.string(BROADCAST_NAME_UNITS_MAX) != channel:
            return None
    except ProtocolError:
        return None
    return data[len(data) - reader.remaining :]


def is_usable(connector: TransportConfiguration) -> bool:
    """Whether a connector that another host named leads to a host and a port; that of a Java virtual machine does
    not."""
    host = connector.parameters.get("host")
    if not isinstance(host, str) or not host:
        return False
    try:
        return connector.port > 0
    except ProtocolError:
        return False
