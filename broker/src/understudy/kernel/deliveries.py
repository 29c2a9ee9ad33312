"""Deliveries of single messages, and what follows: the confirmations of sends, the record of an acknowledgement.

Layouts: SESS_RECEIVE_MSG frame ``i32 length, b8 type, i64 channel, message, i64 consumer, i32 delivery count``;
NULL_RESPONSE frame ``i32 length, b8 type, i64 channel, i64 correlation id``; ACKNOWLEDGE record as in
docs/journal-format.md s. 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, pack
from typing import Final
from zlib import crc32

from understudy.kernel.log import RECEIVE_OVERHEAD_BYTES

_NULL_RESPONSE: Final = 21
_RESPONSE = Struct(">ibqq")
_SESS_RECEIVE_MSG: Final = 75
_RECEIVE_HEAD = Struct(">ibq")
_RECEIVE_TAIL = Struct(">qi")
_ACKNOWLEDGE: Final = 10
#: Of a record, after its crc: length, sequence, batch, type, flags, zero; queue id, transaction id, number of message
#: ids, zero.
_REST = Struct("<IQIBBHQQII")
#: Bytes of such a record before the message ids.
_HEAD_BYTES: Final = 4 + _REST.size


def confirms(channel_id: int, correlation_ids: Sequence[int]) -> bytes:
    """One NULL_RESPONSE frame for each request, in order.

    Args:
        channel_id: Channel of the session.
    """
    length, join = _RESPONSE.size - 4, b"".join
    return join([_RESPONSE.pack(length, _NULL_RESPONSE, channel_id, each) for each in correlation_ids])


def receives(messages: Sequence[bytes], counts: Sequence[int], channel_id: int, consumer_id: int) -> bytes:
    """One SESS_RECEIVE_MSG frame for each message, in order.

    Args:
        messages: Encoded.
        counts: How often each was delivered, this delivery included.
        channel_id: Channel of the session.
        consumer_id: The consumer that gets them.

    Raises:
        ValueError: There are not as many counts as messages.
    """
    if len(messages) != len(counts):
        raise ValueError(f"{len(messages)} messages, {len(counts)} counts")
    parts: list[bytes] = []
    for encoded, count in zip(messages, counts, strict=True):
        head = _RECEIVE_HEAD.pack(len(encoded) + RECEIVE_OVERHEAD_BYTES - 4, _SESS_RECEIVE_MSG, channel_id)
        parts += (head, encoded, _RECEIVE_TAIL.pack(consumer_id, count))
    return b"".join(parts)


def acknowledge_record(
    queue_id: int, transaction_id: int, message_ids: Sequence[int], sequence: int, batch: int, seed: int
) -> bytes:
    """The ACKNOWLEDGE record of messages that have left a queue.

    Args:
        transaction_id: Transaction it belongs to; 0 for none.
        message_ids: Ids of the messages.
        batch: Offset of the first record of the batch.
        seed: Of the crc of every record in the segment.
    """
    count = len(message_ids)
    length = _HEAD_BYTES + 8 * count
    rest = _REST.pack(length, sequence, batch, _ACKNOWLEDGE, 0, 0, queue_id, transaction_id, count, 0)
    rest += pack(f"<{count}Q", *message_ids)
    return crc32(rest, seed).to_bytes(4, "little") + rest
