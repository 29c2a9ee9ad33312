"""Answers to clients of protocols that are not served, in their own language, so that their errors say it.

Sources: STOMP 1.2 (ERROR), MQTT 3.1.1 s. 3.2 and 5.0 s. 3.2 (CONNACK), AMQP 0-9-1 s. 4.2.2 and 1.0 s. 2.2 (a server
answers a protocol header that it does not accept with the one that it does), RFC 9110 (400).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from understudy.dataclass import dataclass
from understudy.wire.amqp091.frames import PROTOCOL_HEADER
from understudy.wire.detect import Protocol

_NAMES: Final = {Protocol.CORE: "the CORE protocol of ActiveMQ Artemis", Protocol.AMQP091: "AMQP 0-9-1"}
#: No version of AMQP is spoken.
_AMQP: Final = b"AMQP\x00\x00\x00\x00"
_MQTT_LEVELS: Final = {3: "3.1", 4: "3.1.1", 5: "5.0"}
_MQTT_REFUSED: Final = bytes((0x20, 2, 0, 1))
_MQTT5_REFUSED: Final = bytes((0x20, 3, 0, 0x84, 0))
_ACCEPTS: Final = re.compile(rb"\naccept-version:([0-9.,]{1,20})")


@dataclass(frozen=True, slots=True)
class Refusal:
    """The answer to a client."""

    data: bytes
    """Empty: there is no answer in its language."""
    version: str | None
    """Version of the protocol that the client speaks, as far as its first bytes show it."""


def refusal(
    protocol: Protocol, first: bytes, management: str | None, served: Collection[Protocol] = (Protocol.CORE,)
) -> Refusal:
    """The answer to a client whose first bytes are known.

    Args:
        management: URL of the management of the node; None: it has none.
        served: Protocols of the acceptor; AMQP 0-9-1 may be spoken by a client of another version, too, and unknown
            bytes are answered where nothing else is spoken.
    """
    speaks = f"This port speaks {' and '.join(name for each, name in _NAMES.items() if each in served)}"
    if protocol is Protocol.HTTP:
        where = "the node has no management port" if management is None else f"management is at {management}"
        text = f"{speaks}; {where}\n".encode()
        head = f"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\n"
        return Refusal(f"{head}Connection: close\r\n\r\n".encode() + text, None)
    if protocol is Protocol.STOMP:
        found = _ACCEPTS.search(first)
        frame = f"ERROR\nmessage:protocol not served\ncontent-type:text/plain\n\n{speaks}, not STOMP.\n\x00\n"
        return Refusal(frame.encode(), None if found is None else found[1].decode())
    if protocol in (Protocol.AMQP, Protocol.AMQP091) or (protocol is Protocol.CORE and Protocol.AMQP091 in served):
        return Refusal(PROTOCOL_HEADER if Protocol.AMQP091 in served else _AMQP, _amqp_version(first))
    if protocol is Protocol.UNKNOWN and set(served) == {Protocol.AMQP091}:
        return Refusal(PROTOCOL_HEADER, None)
    if protocol is Protocol.MQTT:
        level = _mqtt_level(first)
        return Refusal(_MQTT5_REFUSED if level == 5 else _MQTT_REFUSED, _MQTT_LEVELS.get(level))
    return Refusal(b"", None)


def _amqp_version(first: bytes) -> str | None:
    """``1.0``, ``0-9-1`` and so on, of a protocol header."""
    if len(first) < 8 or not first.startswith(b"AMQP"):
        return None
    if first[4] in (0, 2, 3) and first[5] == 1:
        return "1.0"
    return "-".join(str(each) for each in first[5:8])


def _mqtt_level(first: bytes) -> int:
    """The level after the length and the name of the protocol; 0: it has not come yet."""
    place = 1
    while place < len(first) and first[place] & 0x80:
        place += 1
    place += 1
    if len(first) < place + 2:
        return 0
    place += 2 + int.from_bytes(first[place : place + 2], "big")
    return first[place] if place < len(first) else 0
