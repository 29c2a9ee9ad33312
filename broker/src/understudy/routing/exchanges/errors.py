"""Errors of requests about exchanges of AMQP 0-9-1, and of publishes to them."""

from __future__ import annotations

from understudy.errors import AddressError


class ExchangeNotFound(AddressError):
    """There is no exchange of that name."""

    code = "exchange-not-found"


class ExchangeMismatch(AddressError):
    """An exchange, or a queue of AMQP 0-9-1, exists with other properties, or a property cannot be used."""

    code = "exchange-mismatch"


class ExchangeInUse(AddressError):
    """The exchange has bindings."""

    code = "exchange-in-use"


class QueueLocked(AddressError):
    """The queue belongs to another connection."""

    code = "queue-locked"


class PublishRejected(AddressError):
    """A queue is full and rejects further messages (x-overflow)."""

    code = "publish-rejected"
