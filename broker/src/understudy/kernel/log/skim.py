"""The records of a part of the log without the bodies of messages (docs/build/journal-format.md s. 4).

Native twin: ``broker/kernel/src/log/skim.rs``.

The log consolidator needs of every record where it lies and of which message it is, never the message. ``skim_records``
gives that for records whose bytes are known to be right: neither crcs nor sequences are checked.
"""

from __future__ import annotations

import struct
from array import array
from typing import Final

from understudy.kernel.log.records import BAD, BLANK, ENDED, SHORT, add_duplicate

__all__ = ["Skimmed", "SkimmedGroup", "Step", "skim_records"]

SkimmedGroup = tuple[int, tuple[int, ...], int, bytes, bytes, bytes, bytes, bytes, bytes]
"""Messages of one transaction (0: of none), in the same queues and of one priority: transaction id, queue ids,
priority, and columns as in ``kernel.log.records.Group``."""
Step = tuple[list[SkimmedGroup], list[tuple[int, int, bytes]], list[tuple[int, bytes]]]
"""Records that follow each other. First messages that are not large, with rising ids in a group, each queue and
priority in one group of a transaction at most; and duplicate ids outside of transactions, those of these messages and
those that are recorded without a message: neighbours of one address and one length together (address id, bytes of each
id, the ids). Messages and ids without a message are at most 1,000 in a step. Then other records: offset in the file and
the record; of a MESSAGE_ADD or MESSAGE_MOVE that is not large only the bytes before the message. A message of a
transaction is among them if it has a duplicate id, or neither the group of the step that was begun last nor the record
after it belongs to that transaction."""
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

#: Queues of a message in a group.
_QUEUES_MAX: Final = 1_024

_Rows = list[tuple[int, int, int, int, int, int]]
"""Message id, offset and length of the record, bytes of the message, expiration, time before which it waits."""
_Key = tuple[int, int, tuple[int, ...]]
"""Transaction id, priority and queue ids of a group."""


class _Step:
    """A step that grows."""

    def __init__(self) -> None:
        self.groups: dict[_Key, _Rows] = {}
        self.owners: dict[tuple[int, int, int], _Key] = {}
        """Transaction id, priority and queue id to the group."""
        self.duplicates: list[tuple[int, int, bytearray]] = []
        self.others: list[tuple[int, bytes]] = []
        self.rows = 0

    def rows_for(self, key: _Key, message_id: int) -> _Rows | None:
        """The rows of a group, if the message can be its next one in this step."""
        if self.others or self.rows >= _STEP_ROWS:
            return None
        rows = self.groups.get(key)
        if rows is not None:
            return rows if rows[-1][0] < message_id else None
        transaction_id, priority, queue_ids = key
        owned = [(transaction_id, priority, queue_id) for queue_id in queue_ids]
        if any(each in self.owners for each in owned):
            return None
        self.owners.update(dict.fromkeys(owned, key))
        rows = self.groups[key] = []
        return rows

    def finished(self) -> Step:
        groups: list[SkimmedGroup] = []
        for (transaction_id, priority, queue_ids), rows in self.groups.items():
            ids, *columns, expirations, scheduled = zip(*rows, strict=True)
            offsets, lengths, sizes = (array("I", each).tobytes() for each in columns)
            until, not_before = (array("q", each).tobytes() if any(each) else b"" for each in (expirations, scheduled))
            packed = array("Q", ids).tobytes()
            groups.append((transaction_id, queue_ids, priority, packed, offsets, lengths, sizes, until, not_before))
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
                if (queue_id, priority) != before or message_id <= last_id or step.rows >= _STEP_ROWS:
                    key = 0, priority, (queue_id,)
                    step = _step_for(steps, key, message_id)
                    rows, before = step.groups[key], (queue_id, priority)
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
        _take(steps, data, at, end, origin + at)
        at = end
    return stop, at, [step.finished() for step in steps]


def _take(steps: list[_Step], data: bytes, at: int, end: int, offset: int) -> None:
    record = data[at:end]
    kind, length = record[20], len(record)
    if offset >= 1 << 32:
        raise OverflowError("an offset does not fit into 32 bits")
    if kind in (_MESSAGE_ADD, _MESSAGE_MOVE) and length >= _MESSAGE_BYTES:
        message_id, tx_id, address_id, expiration, scheduled_ms, priority, large, duplicate_bytes, count = (
            _MESSAGE.unpack_from(record, _HEADER_BYTES)
        )
        rest = _MESSAGE_BYTES + 8 * count + duplicate_bytes
        if rest <= length and not large:
            plain = kind == _MESSAGE_ADD and 0 < count <= _QUEUES_MAX and priority <= _PRIORITY_MAX and message_id
            if plain and not (tx_id and (duplicate_bytes or not _is_among(steps, data, end, tx_id))):
                queue_ids = struct.unpack_from(f"<{count}Q", record, _MESSAGE_BYTES)
                if len(set(queue_ids)) == count:
                    key = tx_id, priority, queue_ids
                    step = _step_for(steps, key, message_id)
                    row = message_id, offset, length, length - rest, expiration, scheduled_ms
                    step.groups[key].append(row)
                    step.rows += 1
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


def _is_among(steps: list[_Step], data: bytes, end: int, tx_id: int) -> bool:
    """Whether the group that was begun last in the step, or the record at ``end``, is of the transaction."""
    if steps and not steps[-1].others and steps[-1].groups and next(reversed(steps[-1].groups))[0] == tx_id:
        return True
    following = data[end : end + _HEADER_BYTES + 16]
    is_whole = len(following) == _HEADER_BYTES + 16
    return is_whole and following[20] == _MESSAGE_ADD and int.from_bytes(following[32:40], "little") == tx_id


def _step_for(steps: list[_Step], key: _Key, message_id: int) -> _Step:
    """The step that takes a message of that group, which it has then."""
    if steps and steps[-1].rows_for(key, message_id) is not None:
        return steps[-1]
    steps.append(step := _Step())
    step.rows_for(key, message_id)
    return step
