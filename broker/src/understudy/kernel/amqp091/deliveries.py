"""Deliveries of AMQP 0-9-1 from a run: basic.deliver, header and body frames of many messages at once.

Only messages that ``kernel.amqp091.split_publishes`` or ``protocols.amqp091.messages.to_message`` has made are framed
here; the frames of others are made one by one.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from understudy.kernel import names
from understudy.kernel.amqp091 import lists
from understudy.kernel.amqp091.lists import property_places, walk_table
from understudy.kernel.amqp091.values import DeliveryFrame
from understudy.kernel.log.runs import Run

_FRAME_HEAD = Struct(">BHI")
_FRAME_END: Final = b"\xce"
_OVERHEAD_BYTES: Final = 8
#: Bytes of a header frame beside its property list.
_HEADER_BYTES: Final = 20
_METHOD: Final = 1
_HEADER: Final = 2
_BODY: Final = 3
_DELIVER: Final = b"\0\x3c\0\x3c"
_TAG = Struct(">Q?")
_HEADER_HEAD = Struct(">HHQ")
_BASIC: Final = 60
_SHORT_BYTES_MAX: Final = 255
_BODY_END_BIAS: Final = 13
_I32 = Struct(">i")
_TEXT_TYPE: Final = 3
_BYTES: Final = 4
_STRING: Final = 10


def _entry(name: str, tag: int) -> bytes:
    raw = name.encode("utf-16-le")
    return _I32.pack(len(raw)) + raw + bytes((tag,))


#: The first properties of such a message, each with the type of its value.
_ENTRIES: Final = (
    _entry(names.AMQP091_PROPERTY_LIST, _BYTES),
    _entry(names.AMQP091_EXCHANGE, _STRING),
    _entry(names.AMQP091_ROUTING_KEY, _STRING),
)


def run_deliveries(
    run: Run, begin: int, end: int, frame: DeliveryFrame, first_tag: int, redelivered: bool
) -> tuple[bytes, int]:
    """Frames of rows ``begin`` to ``end`` of a run, the last one excluded.

    Args:
        run: The messages.
        begin: First row.
        end: Row after the last one.
        frame: Channel and consumer.
        first_tag: Delivery tag of the first row; each further one has the next.
        redelivered: Whether they may have been delivered before.

    Returns:
        The frames, and the row before which they end: ``end``, or the first one whose message is of another form, or
        whose property list does not fit into a frame.

    Raises:
        ValueError: Frames of ``frame_max`` bytes have no space for a property list.
    """
    channel, frame_max, consumer_tag = frame
    if frame_max < _HEADER_BYTES:
        raise ValueError(f"frames of {frame_max} bytes")
    parts: list[bytes] = []
    step = frame_max - _OVERHEAD_BYTES
    tag = first_tag
    row = begin
    while row < end:
        encoded = run.encoded(row)
        body_end = _I32.unpack_from(encoded)[0] + 4 - _BODY_END_BIAS
        found = _values(encoded, body_end)
        if found is None:
            break
        start, stop, route = found
        if stop - start > frame_max - _HEADER_BYTES:
            break
        method = b"".join((_DELIVER, consumer_tag, _TAG.pack(tag, redelivered), route))
        parts += (
            _FRAME_HEAD.pack(_METHOD, channel, len(method)), method, _FRAME_END,
            _FRAME_HEAD.pack(_HEADER, channel, stop - start + _HEADER_BYTES - _OVERHEAD_BYTES),
            _HEADER_HEAD.pack(_BASIC, 0, body_end - 4), encoded[start:stop], _FRAME_END,
        )  # fmt: skip
        for offset in range(4, body_end, step):
            piece = encoded[offset : min(offset + step, body_end)]
            parts += (_FRAME_HEAD.pack(_BODY, channel, len(piece)), piece, _FRAME_END)
        tag += 1
        row += 1
    return b"".join(parts), row


def _values(encoded: bytes, body_end: int) -> tuple[int, int, bytes] | None:
    """Begin and end of the property list in a message, and its exchange and routing key as short strings; None: it is
    of another form.
    """
    offset = body_end + 9
    if encoded[body_end + 8]:
        offset += 4 + _I32.unpack_from(encoded, offset)[0]
    offset += 17 if encoded[offset] else 1
    kind, block = encoded[offset], offset + 19
    if kind == _TEXT_TYPE or not encoded[block] or _I32.unpack_from(encoded, block + 1)[0] < len(_ENTRIES):
        return None
    offset = block + 5
    places: list[tuple[int, int]] = []
    for entry in _ENTRIES:
        if not encoded.startswith(entry, offset):
            return None
        start = offset + len(entry) + 4
        offset = start + _I32.unpack_from(encoded, start - 4)[0]
        places.append((start, offset))
    start, end = places[0]
    found = property_places(encoded, start, end)
    if found is None or (lists.HEADERS in found and walk_table(encoded, *found[lists.HEADERS]) is None):
        return None
    route = b""
    for first, last in places[1:]:
        try:
            text = encoded[first:last].decode("utf-16-le").encode()
        except UnicodeError:
            return None
        if len(text) > _SHORT_BYTES_MAX:
            return None
        route += bytes((len(text),)) + text
    return start, end, route
