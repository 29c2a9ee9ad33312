"""The status of a channel, which channel.open-ok has for a client that asks for it (ADR 0195)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from understudy.limits import AMQP091_UNACKNOWLEDGED_MAX
from understudy.protocols.amqp091.channel import Amqp091Channel
from understudy.protocols.amqp091.sessions import ClientSession
from understudy.wire.amqp091.codes import Amqp091Error, ReplyCode
from understudy.wire.amqp091.tables import encode_table

#: Bytes of a frame with channel.open-ok beside the status, with some left over.
_FRAME_BYTES: Final = 20


def encoded_status(session: ClientSession, channel: Amqp091Channel, numbers: Iterable[int], *, resumed: bool) -> bytes:
    """The status of a channel as an encoded table. If it is too long for a frame, it loses precision, then deliveries
    go back to their queues, then consumers end.

    Args:
        session: Session of the client.
        channel: Channel whose status is wanted.
        numbers: Numbers of the open and kept channels of the session.
        resumed: Whether the channel was kept.

    Raises:
        Amqp091Error: RESOURCE_ERROR: the frames of the client are too small.
    """
    room_bytes = channel.link.peer.frame_max - _FRAME_BYTES
    found = {"session": _session(session, channel, numbers), "channel": _channel(channel, resumed=resumed)}
    deliveries = found["channel"]["deliveries"]
    encoded = encode_table(found)
    if len(encoded) > room_bytes and deliveries["unacked"]:
        deliveries["unacked"] = [deliveries["unacked"][0], deliveries["unacked"][-1]]
        encoded = encode_table(found)
    if len(encoded) > room_bytes:
        found["session"] |= {"channels": [], "queues": []}
        encoded = encode_table(found)
    if len(encoded) > room_bytes:
        channel.lose_deliveries(session.next_generation())
        channel.deliveries.end_consumers("the status is too long")
        found["session"]["generation"] = session.generation
        found["channel"] = _channel(channel, resumed=resumed) | {"consumers": []}
        found["channel"]["deliveries"]["lost"] = True
        encoded = encode_table(found)
    if len(encoded) > room_bytes:
        text = f"the status of the channel has {len(encoded)} bytes, a frame holds {room_bytes}"
        raise Amqp091Error(ReplyCode.RESOURCE_ERROR, text)
    return encoded


def _session(session: ClientSession, channel: Amqp091Channel, numbers: Iterable[int]) -> dict[str, Any]:
    link = channel.link
    return {
        "uuid": session.uuid,
        "timeout": session.timeout_ms // 1000,
        "generation": session.generation,
        "home": link.services.shared.node_id,
        "channels": sorted(numbers),
        "queues": [name.removeprefix(link.peer.host) for name in link.scope.temporary_queues],
    }


def _channel(channel: Amqp091Channel, *, resumed: bool) -> dict[str, Any]:
    publisher, deliveries = channel.publisher, channel.deliveries
    transaction = channel.session.state.transaction
    limit = deliveries.prefetch.limit
    return {
        "resumed": resumed,
        "mode": publisher.mode,
        "prefetch": deliveries.prefetch_count,
        "prefetch-global": 0 if limit == AMQP091_UNACKNOWLEDGED_MAX else limit,
        "consumers": [
            *(each.status(None) for each in deliveries.kept),
            *(each.status(reason) for each, reason in deliveries.cancelled.values()),
        ],
        "publishes": {
            "accepted": publisher.accepted,
            "returned": [*publisher.returned],
            "rejected": [*publisher.rejected],
        },
        "deliveries": {"unacked": ranges(deliveries.outstanding), "lost": channel.lost},
        "tx": {
            "open": transaction is not None and not (transaction.empty and not deliveries.deferred),
            "commits": publisher.commits,
            "rolled-back": publisher.rolled_back,
        },
    }


def ranges(tags: Iterable[int]) -> list[int]:
    """First and last tag of each range of neighbours, one after the other."""
    found: list[int] = []
    for tag in tags:
        if found and tag == found[-1] + 1:
            found[-1] = tag
        else:
            found += (tag, tag)
    return found
