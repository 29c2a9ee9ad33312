"""The records of a part of the log without the bodies of messages (docs/journal-format.md s. 4).

Native twin: ``broker/kernel/src/skim.rs``.

The log consolidator needs of every record where it lies and of which message it is, never the message. ``skim_records``
gives that for records whose bytes are known to be right: neither crcs nor sequences are checked.
"""

from __future__ import annotations

import struct
from array import array
from typing import Final

from understudy.kernel.records import BAD, BLANK, ENDED, SHORT, Group, add_duplicate

__all__ = ["Skimmed", "Step", "skim_records"]

Step = tuple[list[Group], list[tuple[int, int, bytes]], list[tuple[int, bytes]]]
"""Records that follow each other. First messages in one queue each, without transaction and not large, by queue and
priority with rising ids, and duplicate ids outside of transactions, those of these messages and those that are recorded
without a message: neighbours of one address and one length together (address id, bytes of each id, the ids). Messages
and ids without a message are at most 1,000 in a step. Then other records: offset in the file and the record; of a
MESSAGE_ADD or MESSAGE_MOVE that is not large only the bytes before the message."""
Skimmed = tuple[int, int, list[Step]]
"""The reason for the end (``ENDED``, ``SHORT``, ``BLANK`` or ``BAD`` of ``kernel.records``), index in the data after
the last record taken, and the contents of the records."""

_LENGTH: Final = struct.Struct("<I")
_HEADER_BYTES: Final = 24
#: Of a MESSAGE_ADD after its header: message id, tx id, address id, expiration, scheduled, priority, flags, length of
#: the duplicate id, number of queues.
_MESSAGE: Final = struct.Struct("<QQQqqBBHI")
_MESSAGE_BYTES: Final = _HEADER_BYTES + _MESSAGE.size
_QUEUE: Final = struct.Struct("<Q")
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

_Columns = tuple["array[int]", "array[int]", "array[int]", "array[int]", "array[int]", "array[int]"]


class _Step:
    """A step that grows."""

    def __init__(self) -> None:
        self.groups: dict[tuple[int, int], _Columns] = {}
        self.duplicates: list[tuple[int, int, bytearray]] = []
        self.others: list[tuple[int, bytes]] = []
        self.rows = 0

    def finished(self) -> Step:
        groups: list[Group] = []
        for (queue_id, priority), (*columns, expirations, scheduled) in self.groups.items():
            ids, offsets, lengths, sizes = (each.tobytes() for each in columns)
            until, not_before = (each.tobytes() if any(each) else b"" for each in (expirations, scheduled))
            groups.append((queue_id, priority, ids, offsets, lengths, sizes, until, not_before))
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
    while at < size:
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
        (
            message_id, tx_id, address_id, expiration, scheduled_ms, priority, large, duplicate_bytes, count,
        ) = _MESSAGE.unpack_from(record, _HEADER_BYTES)  # fmt: skip
        rest = _MESSAGE_BYTES + 8 * count + duplicate_bytes
        if rest <= length and not large:
            plain = count == 1 and not tx_id and priority <= _PRIORITY_MAX and message_id
            if plain and kind == _MESSAGE_ADD:
                key = _QUEUE.unpack_from(record, _MESSAGE_BYTES)[0], priority
                step = _step_for(steps, key, message_id)
                step.rows += 1
                row = message_id, offset, length, length - rest, expiration, scheduled_ms
                for column, value in zip(step.groups[key], row, strict=True):
                    column.append(value)
                if duplicate_bytes:
                    add_duplicate(step.duplicates, address_id, record[rest - duplicate_bytes : rest])
                return
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
        columns = step.groups.get(key)
        if columns is not None and columns[0][-1] < message_id:
            return step
        if columns is None:
            step.groups[key] = _columns()
            return step
    steps.append(step := _Step())
    step.groups[key] = _columns()
    return step


def _columns() -> _Columns:
    return array("Q"), array("I"), array("I"), array("I"), array("q"), array("q")
