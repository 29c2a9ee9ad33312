"""Publishes of AMQP 0-9-1 as messages in the form of the log, many at a time.

``split_publishes`` walks neighbouring publishes of one channel whose method frames are equal: one exchange, one routing
key. It raises nothing: it stops before the first one that is cut off, malformed, or more than the ordinary way handles,
and the caller takes that one frame by frame, which gives an error its text. A message has the bytes that
``protocols.amqp091.messages.to_message`` gives it.

Layouts: frames and property lists as in ``wire.amqp091``, messages as in ``understudy.message``.
"""

from __future__ import annotations

import re
from struct import Struct
from typing import Final

from understudy.kernel import names
from understudy.kernel.amqp091 import lists
from understudy.kernel.amqp091.lists import Field, property_places, walk_table
from understudy.kernel.amqp091.values import PublishLimits, PublishTarget
from understudy.kernel.sends import Sends, add_row

_METHOD: Final = 1
_HEADER: Final = 2
_BODY: Final = 3
_FRAME_END: Final = 0xCE
#: Bytes of a frame before its payload, and with its end.
_HEAD_BYTES: Final = 7
_OVERHEAD_BYTES: Final = 8
#: Bytes of the payload of a header frame before the property list.
_HEADER_HEAD_BYTES: Final = 12
_BASIC: Final = 60
#: Body frames of a message beyond those that its size needs, which are fewer than may come (``protocols``).
_BODY_FRAMES_EXTRA: Final = 64
_BODY_FRAME_BYTES: Final = 4088
_BODY_END_BIAS: Final = 13
_CUT: Final = -1
_OTHER: Final = -2

_I32 = Struct(">i")
_U32 = Struct(">I")
_I64 = Struct(">q")
_U64 = Struct(">Q")
_F32 = Struct(">f")
_F64 = Struct(">d")
_HEADER_HEAD = Struct(">HHQ")
_FIELDS = Struct(">bBqqb")
_COUNT = Struct(">bi")
_BYTES_TYPE: Final = 4
_PRIORITY: Final = 4
_PRIORITY_MAX: Final = 9
_PERSISTENT: Final = 2
_TIMESTAMP_MAX: Final = (1 << 63) - 1

#: Types of properties of a message.
_PROPERTY_BOOLEAN: Final = 2
_PROPERTY_BYTES: Final = 4
_PROPERTY_LONG: Final = 7
_PROPERTY_DOUBLE: Final = 9
_PROPERTY_STRING: Final = 10

#: Bits of a number of 32 bits but its sign, and infinity.
_NOT_SIGN: Final = 0x7FFF_FFFF
_INFINITY: Final = 0x7F80_0000
_UUID_CHARACTERS: Final = 36
_UUID_DIGITS: Final = 32
_HEXADECIMAL = re.compile(rb"[0-9a-fA-F-]*")
#: A character that no text has which ``uuid.UUID`` reads.
_NEVER_IN_UUID = re.compile(rb"[G-WYZg-hj-mo-qstvwyz]")
_KEPT_APART: Final = tuple(name.encode() for name in names.AMQP091_KEPT_APART)
_REPLIES: Final = names.AMQP091_REPLIES.encode()


def _name(text: str) -> bytes:
    raw = text.encode("utf-16-le")
    return _I32.pack(len(raw)) + raw


_LIST_NAME: Final = _name(names.AMQP091_PROPERTY_LIST)
_EXCHANGE_NAME: Final = _name(names.AMQP091_EXCHANGE)
_KEY_NAME: Final = _name(names.AMQP091_ROUTING_KEY)
_TEXTS: Final = (
    (lists.CORRELATION_ID, _name(names.CORRELATION_ID)),
    (lists.REPLY_TO, _name(names.REPLY_TO)),
    (lists.TYPE, _name(names.JMS_TYPE)),
)


def split_publishes(
    data: bytes, start: int, limits: PublishLimits, target: PublishTarget, now_ms: int, number: int
) -> tuple[Sends | None, bool]:
    """The publish whose method frame is at ``start``, and those with an equal method frame that follow it.

    Args:
        data: Bytes of one or more reads.
        start: Offset of the first method frame, which is whole and was looked at by the caller.
        limits: Limits of the messages.
        target: Values of the messages.
        now_ms: Wall time, for messages without a timestamp.
        number: Correlation id of the first message; each further one has the next.

    Returns:
        At least one message, or None; ``end`` is the offset in ``data`` after the last one. And whether the next
        publish is like these as far as it has come: more bytes are needed. A message is left that has an expiration,
        CC or BCC, asks for direct replies, or names another user.
    """
    size = _frame(data, start, data[start : start + 3], limits.payload_max)
    if size < 0 or data[start] != _METHOD:
        return None, False
    method = data[start : start + size]
    messages: list[bytes] = []
    offset = start
    cut = False
    while len(messages) < limits.count_max and data.startswith(method, offset):
        message, end = _message(data, offset + size, method[1:3], limits, target, now_ms)
        if end < 0:
            cut = end == _CUT
            break
        messages.append(message)
        offset = end
    if not messages:
        return None, cut
    sends = Sends(b"".join(messages), requires_response=True)
    begin = 0
    for message in messages:
        stop = begin + len(message)
        assert add_row(sends, begin, stop), "a message that was made here is malformed"
        sends.correlation_ids.append(number)
        number += 1
        begin = stop
    sends.end = offset
    return sends, cut


def _frame(data: bytes, offset: int, head: bytes, payload_max: int) -> int:
    """Bytes of the frame at ``offset``; ``_CUT``: it is not whole; ``_OTHER``: it is not the one that is expected.

    Args:
        head: Type and channel of the frame that is expected.
    """
    available = len(data) - offset
    if not head.startswith(data[offset : offset + 3]):
        return _OTHER
    if available < _HEAD_BYTES:
        return _CUT
    size: int = _U32.unpack_from(data, offset + 3)[0]
    if size > payload_max:
        return _OTHER
    size += _OVERHEAD_BYTES
    if size > available:
        return _CUT
    return size if data[offset + size - 1] == _FRAME_END else _OTHER


def _message(
    data: bytes, offset: int, channel: bytes, limits: PublishLimits, target: PublishTarget, now_ms: int
) -> tuple[bytes, int]:
    """The message whose header frame is at ``offset``, and the offset after its last frame; or ``_CUT``, ``_OTHER``."""
    size = _frame(data, offset, bytes((_HEADER,)) + channel, limits.payload_max)
    if size < 0:
        return b"", size
    begin, end = offset + _HEAD_BYTES, offset + size - 1
    if end - begin < _HEADER_HEAD_BYTES:
        return b"", _OTHER
    class_id, weight, body_bytes = _HEADER_HEAD.unpack_from(data, begin)
    if class_id != _BASIC or weight or body_bytes > limits.body_max:
        return b"", _OTHER
    header = _header(data, begin + _HEADER_HEAD_BYTES, end, target, now_ms)
    if header is None:
        return b"", _OTHER
    parts = [_I32.pack(body_bytes + _BODY_END_BIAS)]
    frames_left = body_bytes // _BODY_FRAME_BYTES + _BODY_FRAMES_EXTRA
    head, offset, left = bytes((_BODY,)) + channel, offset + size, body_bytes
    while left:
        size = _frame(data, offset, head, limits.payload_max)
        if size < 0:
            return b"", size
        frames_left -= 1
        left -= size - _OVERHEAD_BYTES
        if frames_left < 0 or left < 0:
            return b"", _OTHER
        parts.append(data[offset + _HEAD_BYTES : offset + size - 1])
        offset += size
    parts.append(header)
    return b"".join(parts), offset


def _header(data: bytes, start: int, end: int, target: PublishTarget, now_ms: int) -> bytes | None:
    """A message without its body, made from the property list in ``data[start:end]``; None: it is left."""
    places = property_places(data, start, end)
    if places is None or lists.EXPIRATION in places:
        return None
    values = {number: data[first:last] for number, (first, last) in places.items()}
    if values.get(lists.USER_ID, target.user) != target.user or values.get(lists.REPLY_TO) == _REPLIES:
        return None
    user_id = _user_id(values.get(lists.MESSAGE_ID, b""))
    if user_id is None:
        return None
    entries = [
        _LIST_NAME + bytes((_PROPERTY_BYTES,)) + _I32.pack(end - start) + data[start:end],
        _EXCHANGE_NAME + _string(target.exchange),
        _KEY_NAME + _string(target.routing_key),
    ]
    entries += [name + _string(_utf16(values[each])) for each, name in _TEXTS if each in values]
    if lists.HEADERS in places:
        fields = walk_table(data, *places[lists.HEADERS])
        if fields is None or not _add_headers(entries, data, fields):
            return None
    priority = target.priority
    if priority < 0:
        priority = min(values[lists.PRIORITY][0], _PRIORITY_MAX) if lists.PRIORITY in values else _PRIORITY
    timestamp = now_ms
    if lists.TIMESTAMP in values:
        timestamp = min(_U64.unpack(values[lists.TIMESTAMP])[0] * 1000, _TIMESTAMP_MAX)
    durable = values.get(lists.DELIVERY_MODE) == bytes((_PERSISTENT,))
    return b"".join((
        _I64.pack(0), b"\1", _I32.pack(len(target.address)), target.address, user_id,
        _FIELDS.pack(_BYTES_TYPE, durable, 0, timestamp, priority),
        _COUNT.pack(1, len(entries)), *entries,
    ))  # fmt: skip


def _user_id(message_id: bytes) -> bytes | None:
    """The encoded user id of a message with this message id: its bytes if it is a UUID of 36 characters; None: that is
    not certain.
    """
    if len(message_id.decode()) != _UUID_CHARACTERS or _NEVER_IN_UUID.search(message_id):
        return b"\0"
    if not _HEXADECIMAL.fullmatch(message_id):
        return None
    digits = message_id.replace(b"-", b"")
    return b"\1" + bytes.fromhex(digits.decode()) if len(digits) == _UUID_DIGITS else b"\0"


def _add_headers(entries: list[bytes], data: bytes, fields: list[Field]) -> bool:
    """Add the headers that become properties. Returns whether the message is not left because of one of them."""
    seen: set[bytes] = set()
    for name, tag, start, end in fields:
        if name in (b"CC", b"BCC") or name in seen:
            return False
        seen.add(name)
        if name.startswith(_KEPT_APART):
            continue
        value = b""
        integer = lists.INTEGERS.get(tag)
        if integer is not None:
            value = bytes((_PROPERTY_LONG,)) + _I64.pack(integer.unpack_from(data, start)[0])
        elif tag == lists.STRING and lists.is_text(data[start:end]):
            value = _string(_utf16(data[start:end]))
        elif tag in (lists.STRING, lists.BINARY):
            value = bytes((_PROPERTY_BYTES,)) + _I32.pack(end - start) + data[start:end]
        elif tag == lists.BOOLEAN:
            value = bytes((_PROPERTY_BOOLEAN, data[start] != 0))
        elif tag == lists.DOUBLE:
            value = bytes((_PROPERTY_DOUBLE,)) + data[start:end]
        elif tag == lists.FLOAT:
            if int.from_bytes(data[start:end], "big") & _NOT_SIGN > _INFINITY:
                # not a number: its bits may change with the conversion
                return False
            value = bytes((_PROPERTY_DOUBLE,)) + _F64.pack(_F32.unpack_from(data, start)[0])
        if value:
            raw = _utf16(name)
            entries += (_I32.pack(len(raw)) + raw + value,)
    return True


def _string(raw: bytes) -> bytes:
    """A value in UTF-16 with its type and its length."""
    return bytes((_PROPERTY_STRING,)) + _I32.pack(len(raw)) + raw


def _utf16(raw: bytes) -> bytes:
    return raw.decode().encode("utf-16-le")
