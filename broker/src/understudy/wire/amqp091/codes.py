"""Reply codes of AMQP 0-9-1 (specification, "Reply Code Definitions") and the error that carries one."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from understudy.errors import RemoteProtocolError


class ReplyCode(IntEnum):
    """Reply codes of connection.close, channel.close and basic.return."""

    SUCCESS = 200
    CONTENT_TOO_LARGE = 311
    NO_ROUTE = 312
    NO_CONSUMERS = 313
    CONNECTION_FORCED = 320
    INVALID_PATH = 402
    ACCESS_REFUSED = 403
    NOT_FOUND = 404
    RESOURCE_LOCKED = 405
    PRECONDITION_FAILED = 406
    FRAME_ERROR = 501
    SYNTAX_ERROR = 502
    COMMAND_INVALID = 503
    CHANNEL_ERROR = 504
    UNEXPECTED_FRAME = 505
    RESOURCE_ERROR = 506
    NOT_ALLOWED = 530
    NOT_IMPLEMENTED = 540
    INTERNAL_ERROR = 541

    @property
    def text(self) -> str:
        """Name of the code in close methods, such as ``NOT_FOUND``."""
        return self.name


_SOFT: Final = frozenset(
    {
        ReplyCode.CONTENT_TOO_LARGE,
        ReplyCode.NO_ROUTE,
        ReplyCode.NO_CONSUMERS,
        ReplyCode.ACCESS_REFUSED,
        ReplyCode.NOT_FOUND,
        ReplyCode.RESOURCE_LOCKED,
        ReplyCode.PRECONDITION_FAILED,
    }
)


class Amqp091Error(RemoteProtocolError):
    """A request that is answered by channel.close or connection.close."""

    code = "amqp-0-9-1"

    def __init__(self, reply_code: ReplyCode, message: str, *, closes_connection: bool | None = None) -> None:
        """Args:
        reply_code: Sent to the client.
        message: Text for the client; names no secret.
        closes_connection: Whether the connection ends; None: as the specification says for the code.
        """
        super().__init__(message)
        self.reply_code = reply_code
        self.closes_connection = reply_code not in _SOFT if closes_connection is None else closes_connection
