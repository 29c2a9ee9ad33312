"""The records of a part of the log without the bodies of messages (docs/build/journal-format.md s. 4).

Native twin: ``broker/kernel/src/log/skim.rs``.

The log consolidator needs of every record where it lies and of which message it is, never the message. ``skim_records``
gives that for records whose bytes are known to be right: neither crcs nor sequences are checked.
"""

from __future__ import annotations

import struct
from array import array
from typing import Final

from understudy.kernel.log.records import BAD, BLANK, ENDED, SHORT, Group, add_duplicate

__all__ = ["Skimmed", "Step", "skim_records"]

Step = tuple[list[Group], list[tuple[int, int, bytes]], list[tuple[int, bytes]]]
"""Records that follow each other. First messages in one queue each, without transaction and not large, by queue and
priority with rising ids, and duplicate ids outside of transactions, those of these messages and those that are recorded
without a message: neighbours of one address and one length together (address id, bytes of each id, the ids). Messages
and ids without a message are at most 1,000 in a step. Then other records: offset in the file and the record; of a
MESSAGE_ADD or MESSAGE_MOVE that is not large only the bytes before the message."""
Skimmed = tuple[int, int, list[Step]]
"""The reason for the end (``ENDED``, ``SHORT``, ``BLANK`` or ``BAD`` of ``kernel.log.records``), index in the data
after the last record taken, and the contents of the records."""

_LENGTH: Final = struct.Struct("<I")
_HEADER_BYTES: Final = 24
#: Of a MESSAGE_ADD after its header: message id, tx id, address id, expiration, scheduled, priority, flags, length of
#: the duplicate id, number of queues.
_MESSAGE: Final = struct.Struct("<QQQqqBBHI")
_MESSAGE_BYTES: Final = _HEADER_BYTES + _MESSAGE.size
#: A whole MESSAGE_ADD of one queue, without crc, sequence, batch and flags of the record: length, type, the fields of
#: ``_MESSAGE``, queue id.
_OF_ONE_QUEUE: Final = struct.Struct("<4xI12xB3xQQQqqBBHIQ")
_OF_ONE_QUEUE_BYTES: Final = _OF_ONE_QUEUE.size
#: Of a DUPLICATE_ID after its header: address id, tx id; the duplicate id follows.
_DUPLICATE_ID_HEAD: Final = struct.Struct("<QQ")
_DUPLICATE_ID_BYTES: Final = _HEADER_BYTES + _DUPLICATE_ID_HEAD.size
_MESSAGE_ADD: Final = 9
_ACKNOWLEDGE: Final = 10
_DUPLICATE_ID: Final = 12
_MESSAGE_MOVE: Final = 42
_PRIORITY_MAX: Final = 9
#: Messages, and duplicate ids of messages that the log does not have, in one step at most.
_STEP_ROWS: Final = 1_000

_Rows = list[tuple[int, int, int, int, int, int]]
"""Message id, offset and length of the record, bytes of the message, expiration, time before which it waits."""


class _Step:
    """A step that grows."""

    def __init__(self) -> None:
        self.groups: dict[tuple[int, int], _Rows] = {}
        self.duplicates: list[tuple[int, int, bytearray]] = []
        self.others: list[tuple[int, bytes]] = []
        self.rows = 0

    def finished(self) -> Step:
        groups: list[Group] = []
        for (queue_id, priority), rows in self.groups.items():
            ids, *columns, expirations, scheduled = zip(*rows, strict=True)
            offsets, lengths, sizes = (array("I", each).tobytes() for each in columns)
            until, not_before = (array("q", each).tobytes() if any(each) else b"" for each in (expirations, scheduled))
            groups.append((queue_id, priority, array("Q", ids).tobytes(), offsets, lengths, sizes, until, not_before))
        duplicates = [(address_id, length, bytes(ids)) for address_id, length, ids in self.duplicates]
        return groups, duplicates, self.others


def skim_records(data: bytes, origin: int, /) -> Skimmed:
    """Contents of the records at the beginning of ``data``. Acknowledgements without transaction are left out.

    Args:
        data: Part of a segment that begins with a record.
        origin: Offset of ``data`` in the file.

    Raises:
        OverflowError: An offset does not fit into 32 bits.
    """
    steps: list[_Step] = []
    at, size = 0, len(data)
    stop = ENDED
    unpack = _OF_ONE_QUEUE.unpack_from
    # the step, rows and key of the message before; None: the next one begins a step or a group, or finds its own
    step = _Step()
    rows: _Rows = []
    before: tuple[int, int] | None = None
    last_id = 0
    while at < size:
        if at + _OF_ONE_QUEUE_BYTES <= size:
            (
                length, kind, message_id, tx_id, address_id, expiration, scheduled_ms, priority, large, duplicate_bytes,
                count, queue_id,
            ) = unpack(data, at)  # fmt: skip
            rest = _OF_ONE_QUEUE_BYTES + duplicate_bytes
            plain = kind == _MESSAGE_ADD and count == 1 and not tx_id and not large and priority <= _PRIORITY_MAX
            if plain and message_id and rest <= length <= size - at and origin + at < 1 << 32:
                key = queue_id, priority
                if key != before or message_id <= last_id or step.rows >= _STEP_ROWS:
                    step = _step_for(steps, key, message_id)
                    rows, before = step.groups[key], key
                rows.append((message_id, origin + at, length, length - rest, expiration, scheduled_ms))
                step.rows += 1
                last_id = message_id
                if duplicate_bytes:
                    add_duplicate(step.duplicates, address_id, data[at + rest - duplicate_bytes : at + rest])
                at += length
                continue
        before = None
        if at + _HEADER_BYTES > size:
            stop = SHORT
            break
        (length,) = _LENGTH.unpack_from(data, at + 4)
        end = at + length
        if length < _HEADER_BYTES:
            stop = BAD if data[at : at + _HEADER_BYTES].strip(b"\0") else BLANK
            break
        if end > size:
            stop = SHORT
            break
        _take(steps, data[at:end], origin + at)
        at = end
    return stop, at, [step.finished() for step in steps]


def _take(steps: list[_Step], record: bytes, offset: int) -> None:
    kind, length = record[20], len(record)
    if offset >= 1 << 32:
        raise OverflowError("an offset does not fit into 32 bits")
    if kind in (_MESSAGE_ADD, _MESSAGE_MOVE) and length >= _MESSAGE_BYTES:
        *_, large, duplicate_bytes, count = _MESSAGE.unpack_from(record, _HEADER_BYTES)
        rest = _MESSAGE_BYTES + 8 * count + duplicate_bytes
        if rest <= length and not large:
            record = record[:rest]
    elif kind == _ACKNOWLEDGE and length >= _HEADER_BYTES + 16 and record[32:40] == bytes(8):
        return
    elif kind == _DUPLICATE_ID and length > _DUPLICATE_ID_BYTES:
        address_id, tx_id = _DUPLICATE_ID_HEAD.unpack_from(record, _HEADER_BYTES)
        if not tx_id:
            if not steps or steps[-1].others or steps[-1].rows >= _STEP_ROWS:
                steps.append(_Step())
            steps[-1].rows += 1
            add_duplicate(steps[-1].duplicates, address_id, record[_DUPLICATE_ID_BYTES:])
            return
    if not steps:
        steps.append(_Step())
    steps[-1].others.append((offset, record))


def _step_for(steps: list[_Step], key: tuple[int, int], message_id: int) -> _Step:
    """The step that takes a message of that queue and priority."""
    step = steps[-1] if steps else None
    if step is not None and not step.others and step.rows < _STEP_ROWS:
        rows = step.groups.get(key)
        if rows is not None and rows[-1][0] < message_id:
            return step
        if rows is None:
            step.groups[key] = []
            return step
    steps.append(step := _Step())
    step.groups[key] = []
    return step
