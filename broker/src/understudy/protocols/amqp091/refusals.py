"""Errors of the broker as reply codes of AMQP 0-9-1."""

from __future__ import annotations

from typing import Final

from understudy.errors import (
    AddressError,
    AddressNotFound,
    BrokerError,
    LimitExceeded,
    NotAuthorized,
    QueueNotFound,
    RemoteProtocolError,
    SecurityError,
    SessionRejected,
    StoreError,
    StoreFormatHeld,
    TransactionError,
)
from understudy.routing.exchanges.errors import ExchangeNotFound, QueueLocked
from understudy.wire.amqp091.codes import Amqp091Error, ReplyCode

#: The first class that an error is an instance of decides.
_CODES: Final[tuple[tuple[type[BrokerError], ReplyCode], ...]] = (
    (NotAuthorized, ReplyCode.ACCESS_REFUSED),
    (SecurityError, ReplyCode.ACCESS_REFUSED),
    (QueueNotFound, ReplyCode.NOT_FOUND),
    (AddressNotFound, ReplyCode.NOT_FOUND),
    (ExchangeNotFound, ReplyCode.NOT_FOUND),
    (QueueLocked, ReplyCode.RESOURCE_LOCKED),
    (AddressError, ReplyCode.PRECONDITION_FAILED),
    (TransactionError, ReplyCode.PRECONDITION_FAILED),
    (LimitExceeded, ReplyCode.PRECONDITION_FAILED),
    (SessionRejected, ReplyCode.CONNECTION_FORCED),
    (StoreFormatHeld, ReplyCode.PRECONDITION_FAILED),
    (StoreError, ReplyCode.RESOURCE_ERROR),
    (RemoteProtocolError, ReplyCode.SYNTAX_ERROR),
)


def refusal(error: BrokerError, text: str) -> Amqp091Error:
    """The error with its reply code.

    Args:
        error: Raised by a request.
        text: The message of the error as clients may see it.
    """
    if isinstance(error, Amqp091Error):
        return error
    for kind, code in _CODES:
        if isinstance(error, kind):
            return Amqp091Error(code, text)
    return Amqp091Error(ReplyCode.INTERNAL_ERROR, text)
