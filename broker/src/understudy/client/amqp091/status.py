"""The status of a resumed channel, which the broker states in channel.open-ok (ADR 0195)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from understudy.dataclass import dataclass
from understudy.errors import RemoteProtocolError
from understudy.wire.amqp091.codes import Amqp091Error
from understudy.wire.amqp091.tables import decode_table


@dataclass(frozen=True, slots=True)
class ChannelStatus:
    """State of a channel that the broker has kept."""

    accepted: int = 0
    """Number of the last publish that is durable and decided."""
    returned: tuple[int, ...] = ()
    """Numbers among them that no queue took."""
    rejected: tuple[int, ...] = ()
    """Numbers among them that were not taken."""
    commits: int = 0
    """Number of commits that were carried out since the channel was new."""
    consumers: tuple[str, ...] = ()
    """Tags of its consumers."""


def channel_status(encoded: bytes) -> ChannelStatus | None:
    """The status in the field of channel.open-ok; None: the channel is a new one.

    Raises:
        RemoteProtocolError: it cannot be read, or has a value of another type.
    """
    if not encoded:
        return None
    try:
        table, end = decode_table(encoded, 0, len(encoded))
    except Amqp091Error as error:
        raise RemoteProtocolError(f"the status of a channel: {error}") from error
    if end != len(encoded):
        raise RemoteProtocolError("the status of a channel: bytes after its table")
    channel = _table(table.get("channel", {}), "channel")
    if channel.get("resumed") is not True:
        return None
    publishes, tx = _table(channel.get("publishes", {}), "publishes"), _table(channel.get("tx", {}), "tx")
    consumers = [_table(each, "consumers") for each in _list(channel.get("consumers", []), "consumers")]
    return ChannelStatus(
        _count(publishes.get("accepted", 0), "accepted"),
        tuple(_count(each, "returned") for each in _list(publishes.get("returned", []), "returned")),
        tuple(_count(each, "rejected") for each in _list(publishes.get("rejected", []), "rejected")),
        _count(tx.get("commits", 0), "commits"),
        tuple(tag for each in consumers if isinstance(tag := each.get("tag"), str)),
    )


def _table(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(name)
    return value


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(name)
    return value


def _count(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _wrong(name)
    return value


def _wrong(name: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"the status of a channel: {name} has a value of another type")
