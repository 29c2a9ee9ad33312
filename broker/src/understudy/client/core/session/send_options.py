"""Options of one sent message, and their conversion to its fields.

Not here: bodies and properties (``bodies``), confirmations (``sends``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Final, TypedDict

from understudy.properties import PropertyValue

#: Value of ``json`` if it is not given: None is a JSON document.
NOT_GIVEN: Final = object()


class MessageOptions(TypedDict, total=False):
    """Options of a message to send. None is the same as an option that is left out."""

    json: object
    """A value whose JSON document is the text of the message, instead of a body."""
    properties: Mapping[str, PropertyValue] | None
    """Properties of the message; not for a whole ``Message``, which has its own."""
    durable: bool
    """Whether the broker keeps the message through restarts; the default is True."""
    priority: int
    """0 to 9; higher ones are delivered first. 4."""
    ttl_s: float | None
    """Seconds from now until the message expires; None for never."""
    delay_s: float | None
    """Seconds from now before which it is not delivered."""
    deliver_at: datetime | float | None
    """The time before which it is not delivered: a datetime, or seconds since 1970 as of ``time.time()``. A datetime
    without a time zone is local time."""
    group_id: str | None
    """Message group: its messages go to one consumer, in order. Replaces the URL's groupID."""
    last_value_key: str | None
    """The key of the message that it replaces in a last-value queue."""
    duplicate_id: str | bytes | None
    """The broker drops a message with an id that it knows; in a transaction the commit fails with
    ``DuplicateIdRejected``. Replaces the id that the producer makes."""
    reply_to: str | None
    """Destination of the answer: the name of a queue, or a destination such as ``topic://name``."""
    correlation_id: str | bytes | None
    """Joins a request and its answer (``JMSCorrelationID``)."""


class SendOptions(MessageOptions, total=False):
    """Options of ``Producer.send``."""

    address: str | None
    """Where to send it; needed for a producer without an address. May be a destination as in
    ``ReceivedMessage.reply_to``."""


def json_text(value: object, body: object) -> str:
    """The JSON document of a value, which is sent instead of a body.

    Raises:
        TypeError: there is a body as well, or the value has no JSON document.
        ValueError: the value has a number that JSON does not know.
    """
    if body is not None:
        raise TypeError("a message has a body or json=, not both")
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def delivery_ms(deliver_at: datetime | float | None, delay_s: float | None, now_ms: int) -> int:
    """Epoch milliseconds before which a message is not delivered; 0 for at once.

    Raises:
        ValueError: a negative delay, or a time and a delay.
    """
    if delay_s is not None:
        if deliver_at is not None:
            raise ValueError("a message has deliver_at or delay_s, not both")
        if not 0 <= delay_s < math.inf:
            raise ValueError(f"delay_s of {delay_s}: 0 or more")
        return now_ms + round(delay_s * 1000) if delay_s else 0
    if deliver_at is None:
        return 0
    return round((deliver_at.timestamp() if isinstance(deliver_at, datetime) else deliver_at) * 1000)


def expiration_ms(ttl_s: float | None, now_ms: int) -> int:
    """Epoch milliseconds at which a message expires; 0 for never.

    Raises:
        ValueError: it would expire at once.
    """
    if ttl_s is None:
        return 0
    if not 0 < ttl_s < math.inf:
        raise ValueError(f"ttl_s of {ttl_s}: more than 0, or None for never")
    return now_ms + max(1, round(ttl_s * 1000))


def request_options(given: MessageOptions, place: str, correlation_id: str) -> MessageOptions:
    """The options of a request whose answer comes to this place."""
    options: MessageOptions = {"reply_to": place, "correlation_id": correlation_id}
    options.update(given)
    return options


def reply_options(given: MessageOptions, correlation_id: str | bytes | None) -> MessageOptions:
    """The options of an answer, with the correlation id that its requester expects."""
    options: MessageOptions = {"correlation_id": correlation_id}
    options.update(given)
    return options
