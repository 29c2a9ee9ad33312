"""CORE frames of messages, deliveries and confirmations, many at a time.

``split_sends`` walks neighbouring SESS_SEND frames of one channel. It raises nothing: it stops before the first frame
that is incomplete, malformed or of another kind, and the caller decodes that one on its own, which gives the error its
text.

Layouts: SESS_SEND frame ``i32 length, b8 type, i64 channel, message, bool requires response, i64 correlation id,
i32 sender``; SESS_RECEIVE_MSG frame ``i32 length, b8 type, i64 channel, message, i64 consumer, i32 delivery count``;
NULL_RESPONSE frame ``i32 length, b8 type, i64 channel, i64 correlation id``; SESS_ACKNOWLEDGE frame ``i32 length,
b8 type, i64 channel, i64 consumer, i64 message, bool requires response``; SESS_COMMIT frame without a correlation id
``i32 length, b8 type, i64 channel``.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from understudy.kernel.log.runs import Run
from understudy.kernel.sends import Sends, add_row

#: Bytes of a SESS_RECEIVE_MSG frame beside its message.
RECEIVE_OVERHEAD_BYTES: Final = 25
#: Bytes of a frame before its content: length, type, channel.
_HEAD_BYTES: Final = 13
#: Bytes of a SESS_SEND frame after its message.
_TAIL_BYTES: Final = 13
_I32 = Struct(">i")
_ID = Struct(">q")
_TAIL = Struct(">?qi")
_NULL_RESPONSE: Final = 21
_RESPONSE = Struct(">ibqq")
_SESS_ACKNOWLEDGE: Final = 41
_SESS_COMMIT: Final = 43
_PAIR = Struct(">ibqqq?ibq")
_SESS_RECEIVE_MSG: Final = 75
_RECEIVE_HEAD = Struct(">ibq")
_RECEIVE_TAIL = Struct(">qi")


def split_sends(data: bytes, start: int, limit_bytes: int, count_max: int) -> Sends | None:
    """The SESS_SEND frame at ``start`` and those of the same channel that follow it, as far as they are whole and well
    formed and want a response or none as the first one does.

    Args:
        data: Bytes of one or more reads.
        start: Offset of the first frame, whose type the caller has looked at.
        limit_bytes: Largest frame accepted, with its length field.
        count_max: Most messages; at least 1.

    Returns:
        At least one message, or None: the first frame is not whole or not well formed.
    """
    sends: Sends | None = None
    available = len(data)
    head = data[start + 4 : start + _HEAD_BYTES]
    if len(head) < _HEAD_BYTES - 4:
        return None
    unpack_length, unpack_tail = _I32.unpack_from, _TAIL.unpack_from
    offset = start
    while count_max and data[offset + 4 : offset + _HEAD_BYTES] == head:
        size = unpack_length(data, offset)[0] + 4
        end = offset + size
        begin, stop = offset + _HEAD_BYTES, end - _TAIL_BYTES
        if end > available or size > limit_bytes or stop < begin:
            break
        requires_response, correlation_id, _ = unpack_tail(data, stop)
        if sends is None:
            sends = Sends(data, requires_response=requires_response)
        elif requires_response is not sends.requires_response:
            break
        if not add_row(sends, begin, stop):
            break
        sends.correlation_ids.append(correlation_id)
        sends.end = offset = end
        count_max -= 1
    return sends if sends is not None and sends.correlation_ids else None


def confirms(channel_id: int, correlation_ids: Sequence[int]) -> bytes:
    """Encode one NULL_RESPONSE frame for each request, in order.

    Args:
        channel_id: Channel of the session.
    """
    length, join = _RESPONSE.size - 4, b"".join
    return join([_RESPONSE.pack(length, _NULL_RESPONSE, channel_id, each) for each in correlation_ids])


def receives(messages: Sequence[bytes], counts: Sequence[int], channel_id: int, consumer_id: int) -> bytes:
    """Encode one SESS_RECEIVE_MSG frame for each message, in order.

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


def run_receives(run: Run, begin: int, end: int, channel_id: int, consumer_id: int) -> bytes:
    """SESS_RECEIVE_MSG frames for rows ``begin`` to ``end`` of a run, the last one excluded: first deliveries."""
    tail = _RECEIVE_TAIL.pack(consumer_id, 1)
    parts: list[bytes] = []
    for encoded in run.messages(begin, end):
        head = _RECEIVE_HEAD.pack(len(encoded) + RECEIVE_OVERHEAD_BYTES - 4, _SESS_RECEIVE_MSG, channel_id)
        parts += (head, encoded, tail)
    return b"".join(parts)


def split_confirms(data: bytes, start: int, count_max: int) -> list[int]:
    """The correlation ids of the NULL_RESPONSE frame at ``start`` and of those of the same channel that follow it, as
    far as they are whole and have correlation ids.

    Args:
        data: Bytes of one or more reads.
        start: Offset of the first frame.
        count_max: Most frames.
    """
    found: list[int] = []
    head = data[start : start + _HEAD_BYTES]
    size = _RESPONSE.size
    if head[:5] != _RESPONSE.pack(size - 4, _NULL_RESPONSE, 0, 0)[:5]:
        return found
    offset = start
    while len(found) < count_max and offset + size <= len(data):
        if data[offset : offset + _HEAD_BYTES] != head:
            break
        found.append(_ID.unpack_from(data, offset + _HEAD_BYTES)[0])
        offset += size
    return found


def split_commits(data: bytes, start: int, count_max: int) -> tuple[int, list[int]]:
    """The pairs of a SESS_ACKNOWLEDGE frame that wants no response and a SESS_COMMIT frame without a correlation id at
    ``start``, of the same channel and consumer, as far as they are whole.

    Args:
        data: Bytes of one or more reads.
        start: Offset of the first frame.
        count_max: Most pairs.

    Returns:
        The consumer, and the message of each acknowledgement; no messages if there is no such pair at ``start``.
    """
    found: list[int] = []
    consumer = 0
    offset = start
    while len(found) < count_max and offset + _PAIR.size <= len(data):
        length, kind, channel, consumer_id, message_id, answered, end_length, end_kind, end_channel = _PAIR.unpack_from(
            data, offset
        )
        if (length, kind, answered) != (_PAIR.size - _HEAD_BYTES - 4, _SESS_ACKNOWLEDGE, False):
            break
        if (end_length, end_kind, end_channel) != (_HEAD_BYTES - 4, _SESS_COMMIT, channel):
            break
        if not found:
            consumer, first_channel = consumer_id, channel
        elif consumer_id != consumer or channel != first_channel:
            break
        found.append(message_id)
        offset += _PAIR.size
    return consumer, found
