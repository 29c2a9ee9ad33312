"""The messages of the peer benchmark: their size, and their shape, which is the header that they carry.

The shapes: ``plain`` has a body only. ``properties`` is what a JMS client sends: a user id (which JMS calls the message
id), unique for each message, and three properties. ``jms`` has a duplicate id as well, unique for each message, as
applications set that send again after a failover, and as our own client does by default.

Protocols without these fields carry the nearest that they have: message id and user id of the protocol, headers.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Final

#: Bytes of a message's body; the first eight are its number.
BODY_BYTES: Final = 1024
#: In the body's place until the driver writes the number.
NUMBER: Final = b"number.."
#: In the place of 16 hexadecimal digits that the driver writes.
DIGITS: Final = "0123456789abcdef"


@dataclass(frozen=True)
class Shape:
    """The header of the messages of a run."""

    name: str
    text: str
    properties: bool = False
    """A user id and three properties."""
    duplicate_id: bool = False


PLAIN: Final = Shape("plain", "a body only")
PROPERTIES: Final = Shape("properties", "user id and three properties", properties=True)
JMS: Final = Shape("jms", "user id, three properties and duplicate id", properties=True, duplicate_id=True)
DUPLICATE: Final = Shape("duplicate-id", "duplicate id", duplicate_id=True)
#: Of the peer benchmark.
SHAPES: Final = {shape.name: shape for shape in (PLAIN, PROPERTIES, JMS)}


@dataclass(frozen=True)
class Content:
    """The messages of one producer."""

    shape: Shape = PLAIN
    durable: bool = True
    body_bytes: int = BODY_BYTES

    @property
    def body(self) -> bytes:
        """The body, without its number."""
        return NUMBER + b"x" * (self.body_bytes - len(NUMBER))


def properties(connection: str) -> dict[str, str | int]:
    """A string, a long, and the client id of a connection, as the JMS client of Artemis adds it."""
    return {"region": "north-west", "order": 4_711_000_000_042, "__AMQ_CID": connection}


def connection_name() -> str:
    """36 characters, as a client generates its id."""
    return str(uuid.uuid4())


def unique_text() -> str:
    """36 characters of which the last 16 are ``DIGITS``, to be written over with the number of the message."""
    return f"{uuid.uuid4().hex[:18]}--{DIGITS}"
