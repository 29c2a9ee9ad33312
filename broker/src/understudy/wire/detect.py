"""Detection of the protocol of a client from its first bytes on a shared port (artemis-core s. 1.3).

Only identifies the protocol; the acceptor decides whether it is supported and what to answer if not.
Unlike Artemis, unknown bytes are not treated as CORE without its magic: every CORE client sends the
magic, and a port scanner gets no response.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class Protocol(Enum):
    """Protocol of the first bytes."""

    CORE = "CORE"
    HTTP = "HTTP"
    """HTTP, also the start of a WebSocket or of a CORE upgrade."""
    AMQP = "AMQP"
    """AMQP of a version other than those of ``AMQP091``."""
    AMQP091 = "AMQP091"
    """AMQP 0-9-1, and 0-9, which differs in nothing that clients use."""
    MQTT = "MQTT"
    STOMP = "STOMP"
    OPENWIRE = "OPENWIRE"
    TLS = "TLS"
    """A TLS handshake on a port that is not configured for TLS."""
    UNKNOWN = "UNKNOWN"
    NEED_MORE = "NEED_MORE"


#: Minimum number of bytes for a decision.
BYTES_NEEDED: Final = 8
#: Number of bytes with which a decision is always possible.
BYTES_MAX: Final = 9

_HTTP_STARTS: Final = frozenset((b"GE", b"PO", b"PU", b"HE", b"OP", b"PA", b"DE", b"TR"))
#: Bytes 4 to 7 of the protocol headers of AMQP 0-9-1 and 0-9.
_AMQP_0_9: Final = frozenset((b"\x00\x00\x09\x01", b"\x01\x01\x00\x09"))
_MQTT_CONNECT: Final = 0x10
_MQTT_LENGTH_BYTES_MAX: Final = 4
_OPENWIRE_WIRE_FORMAT_INFO: Final = 1
_OPENWIRE_MAGIC: Final = b"ActiveMQ"


def detect(data: bytes) -> Protocol:
    """The protocol of a connection that began with ``data``; ``NEED_MORE`` below eight bytes."""
    if len(data) < BYTES_NEEDED:
        return Protocol.NEED_MORE
    head = bytes(data[:BYTES_MAX])
    if head.startswith(b"\x16\x03"):
        return Protocol.TLS
    # Proxy headers and the HTTP/2 preface are not supported; "PR" is not accepted as HTTP below either.
    if head[:2] in _HTTP_STARTS:
        return Protocol.HTTP
    if head.startswith(b"ARTEMIS"):
        return Protocol.CORE
    if head.startswith(b"AMQP"):
        return Protocol.AMQP091 if head[4:8] in _AMQP_0_9 else Protocol.AMQP
    if head[0] == _MQTT_CONNECT:
        mqtt = _detect_mqtt(head)
        if mqtt is not Protocol.UNKNOWN:
            return mqtt
    if head.startswith((b"CONNECT", b"STOMP")):
        return Protocol.STOMP
    if head[4] == _OPENWIRE_WIRE_FORMAT_INFO and _OPENWIRE_MAGIC.startswith(head[5:8]):
        return Protocol.OPENWIRE
    return Protocol.UNKNOWN


def _detect_mqtt(head: bytes) -> Protocol:
    """Whether the bytes are an MQTT CONNECT packet: remaining length of one to four bytes, then "MQTT" or "MQIsdp"."""
    offset = 1
    while head[offset] & 0x80:
        offset += 1
        if offset > _MQTT_LENGTH_BYTES_MAX:
            return Protocol.UNKNOWN
    name = head[offset + 1 : offset + 5]
    if name[0] != 0 or name[1] not in (4, 6) or not b"MQ".startswith(name[2:4]):
        return Protocol.UNKNOWN
    # After a length of four bytes the "Q" is the ninth.
    return Protocol.MQTT if len(name) == 4 else Protocol.NEED_MORE
