"""The session that a client asks for in its properties of connection.start-ok (ADR 0195)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from understudy.limits import DETACHED_SESSION_MS_MAX
from understudy.wire.amqp091.codes import Amqp091Error, ReplyCode

#: Client property with the timeout in seconds, and server property with the longest one.
TIMEOUT_PROPERTY: Final = "qpid.session.timeout"
#: Timeout in seconds of a client that asks for none.
_TIMEOUT_S: Final = 60
#: A UUID of version 4, which is random.
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


class RequestKind(Enum):
    """Client properties that ask for a session; their value is its UUID."""

    START = "qpid.session.start"
    """A new session."""
    RESUME = "qpid.session.resume"
    """A session that exists."""
    ATTACH = "qpid.session.attach"
    """A session that exists, or a new one: for clients whose properties never change."""


class SessionRequest(NamedTuple):
    """A request for a session."""

    kind: RequestKind
    uuid: str
    """Text form in lower case. It is a secret: no log line or error has it."""
    timeout_ms: int
    """Time for which the session waits for its client; 0: it ends with its connection."""


def session_request(properties: Mapping[str, object]) -> SessionRequest | None:
    """The request in the properties of a client; None: it asks for no session.

    Raises:
        Amqp091Error: COMMAND_INVALID: more than one request. SYNTAX_ERROR: a UUID or timeout that cannot be read.
    """
    kinds = [each for each in RequestKind if each.value in properties]
    if not kinds:
        return None
    if len(kinds) > 1:
        raise Amqp091Error(ReplyCode.COMMAND_INVALID, " and ".join(each.value for each in kinds))
    kind, uuid = kinds[0], properties[kinds[0].value]
    uuid = uuid.lower() if isinstance(uuid, str) else ""
    if not _UUID.fullmatch(uuid):
        raise Amqp091Error(ReplyCode.SYNTAX_ERROR, f"{kind.value} is no UUID of version 4")
    timeout_ms = _seconds(properties.get(TIMEOUT_PROPERTY, _TIMEOUT_S)) * 1000
    return SessionRequest(kind, uuid, min(timeout_ms, DETACHED_SESSION_MS_MAX))


def _seconds(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20:
        return int(value)
    raise Amqp091Error(ReplyCode.SYNTAX_ERROR, f"{TIMEOUT_PROPERTY} is no number of seconds")
