"""What follows a delivery: the confirmations of sends and the record of an acknowledgement.

Layouts: NULL_RESPONSE frame ``i32 length, b8 type, i64 channel, i64 correlation id``; ACKNOWLEDGE record as in
docs/journal-format.md s. 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, pack
from typing import Final
from zlib import crc32

_NULL_RESPONSE: Final = 21
_RESPONSE = Struct(">ibqq")
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
        correlation_ids: Of the requests.
    """
    length, join = _RESPONSE.size - 4, b"".join
    return join([_RESPONSE.pack(length, _NULL_RESPONSE, channel_id, each) for each in correlation_ids])


def acknowledge_record(
    queue_id: int, transaction_id: int, message_ids: Sequence[int], sequence: int, batch: int, seed: int
) -> bytes:
    """The ACKNOWLEDGE record of messages that have left a queue.

    Args:
        queue_id: The queue.
        transaction_id: Transaction it belongs to; 0 for none.
        message_ids: Ids of the messages.
        sequence: Of the record.
        batch: Offset of the first record of the batch.
        seed: Of the crc of every record in the segment.
    """
    count = len(message_ids)
    length = _HEAD_BYTES + 8 * count
    rest = _REST.pack(length, sequence, batch, _ACKNOWLEDGE, 0, 0, queue_id, transaction_id, count, 0)
    rest += pack(f"<{count}Q", *message_ids)
    return crc32(rest, seed).to_bytes(4, "little") + rest
