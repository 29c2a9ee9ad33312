"""Data of the messages between members about a session that moves (ADR 0199).

Not here: the messages themselves (``wire.core.packets_cluster.SessionMove``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from understudy.errors import RemoteProtocolError
from understudy.protocols.amqp091.resumption.records import ChannelValues
from understudy.wire.amqp091.codes import Amqp091Error, ReplyCode


class Move(NamedTuple):
    """Where a session moves, as its record has it."""

    away: bool
    """Whether this node gives the session; False: it gets it."""
    node_id: str
    """The other node."""
    token: str
    """Token of the messages about it."""

    @classmethod
    def read(cls, values: Any) -> Move:
        """The move of a record. Raises ValueError, TypeError."""
        away, node_id, token = values
        return cls(away is True, str(node_id), str(token))


class Wanted(NamedTuple):
    """Data of a question: the user for whom the session is sought."""

    user: str
    virtual_host: str
    takes_over: bool
    """Whether the session is taken from a connection that it has."""

    def encode(self) -> bytes:
        """Write it as the data of a message."""
        return json.dumps(self._asdict()).encode()

    @classmethod
    def read(cls, data: bytes) -> Wanted:
        """The question. Raises RemoteProtocolError: it cannot be read."""
        values = _object(data)
        user, virtual_host = values.get("user"), values.get("virtual_host")
        if not isinstance(user, str) or not isinstance(virtual_host, str):
            raise RemoteProtocolError("a session that moves: the question names no user")
        return cls(user, virtual_host, values.get("takes_over") is True)


class Busy(NamedTuple):
    """Data of an answer: why the session cannot be given."""

    code: int
    text: str

    def encode(self) -> bytes:
        """Write it as the data of a message."""
        return json.dumps(self._asdict()).encode()

    @classmethod
    def read(cls, data: bytes) -> Busy:
        """The answer. Raises RemoteProtocolError: it cannot be read."""
        values = _object(data)
        code, text = values.get("code"), values.get("text")
        if code not in (ReplyCode.RESOURCE_LOCKED, ReplyCode.CONNECTION_FORCED) or not isinstance(text, str):
            raise RemoteProtocolError("a session that moves: an answer without a reason")
        return cls(int(code), text)

    def error(self) -> Amqp091Error:
        """The error that the client gets."""
        return Amqp091Error(ReplyCode(self.code), self.text, closes_connection=True)


class Moved(NamedTuple):
    """Data of an answer: the state of a session that is given."""

    values: Mapping[str, Any]
    """User, host, virtual host, timeout and generation, as in its record."""
    channels: Mapping[int, tuple[ChannelValues, int]]
    """Values of each channel and its last number (``ChannelPublisher.last_number``)."""

    def encode(self) -> bytes:
        """Write it as the data of a message."""
        channels = {str(number): [values.values(), last] for number, (values, last) in self.channels.items()}
        return json.dumps({"session": self.values, "channels": channels}).encode()

    @classmethod
    def read(cls, data: bytes) -> Moved:
        """The state. Raises RemoteProtocolError: it cannot be read."""
        values = _object(data)
        try:
            channels = {
                int(number): (ChannelValues.read(each), int(last))
                for number, (each, last) in values["channels"].items()
            }
            return cls({**values["session"]}, channels)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise RemoteProtocolError(f"a session that moves: its state cannot be read: {error!r}") from error


def _object(data: bytes) -> Mapping[str, Any]:
    try:
        values = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RemoteProtocolError(f"a session that moves: data that is no JSON: {error!r}") from error
    if not isinstance(values, dict):
        raise RemoteProtocolError("a session that moves: data that is no object")
    return values
