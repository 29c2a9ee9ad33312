"""Runs of messages whose bodies are in the log only: read from it, or without the messages.

Native twin: ``broker/kernel/src/log/stored.rs``.

``read_run`` makes a run of bytes that were read from a segment, after it has checked each record. ``bare_run`` keeps
the ids, places, sizes and times of a run without its messages, and ``run_columns`` gives them as columns.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import Final
from zlib import crc32

from understudy.kernel.log.runs import RECORD_HEAD_BYTES, Run
from understudy.kernel.sends import GROUPED, SPECIAL, Sends, add_row

#: Of a record: crc, length, sequence, batch, type, flags, zero; message id, transaction id, address id, expiration,
#: scheduled, priority, flags, length of the duplicate id, number of queues.
_HEAD: Final = Struct("<IIQIBBHQQQqqBBHI")
#: Types MESSAGE_ADD and MESSAGE_MOVE.
_MESSAGES: Final = (9, 42)


def read_run(data: bytes, place: tuple[int, int, int], ids: bytes, offsets: bytes, lengths: bytes) -> Run | None:
    """Messages that were read from a segment of the log.

    Args:
        data: Bytes of the segment.
        place: Number of the segment, offset of ``data`` in it, seed of the crc of every record.
        ids: Ids of the messages, as native unsigned 64-bit numbers.
        offsets: Offset of the record of each message in the segment, as native unsigned 32-bit numbers.
        lengths: Length of each record, likewise.

    Returns:
        The messages before the first one whose record is damaged, not whole in ``data``, of another message, of a large
        message or in another encoding than that of CORE, whose id does not rise, or whose message group is no ordinary
        one. None: the first one is such a message, or there is none.

    Raises:
        ValueError: The columns are not equally long.
    """
    segment, origin, seed = place
    rows = [*zip(array("Q", ids), array("I", offsets), array("I", lengths), strict=True)]
    messages: list[bytes] = []
    found_ids: list[int] = []
    starts, expirations = [0], []
    places: list[tuple[int, int]] = []
    groups: list[tuple[int, int]] = []
    grouped = False
    size = last_id = 0
    for message_id, offset, length in rows:
        start = offset - origin
        end = start + length
        if start < 0 or end > len(data) or length < RECORD_HEAD_BYTES or message_id <= last_id:
            break
        crc, found_length, _, _, kind, _, _, found_id, _, _, expiration, _, _, flags, duplicate_bytes, count = (
            _HEAD.unpack_from(data, start)
        )
        begin = start + RECORD_HEAD_BYTES + 8 * count + duplicate_bytes
        if found_length != length or kind not in _MESSAGES or found_id != message_id or flags or begin > end:
            break
        if crc32(memoryview(data)[start + 4 : end], seed) != crc:
            break
        message = data[begin:end]
        parsed = Sends(message, requires_response=False)
        if not add_row(parsed, 0, len(message)):
            break
        traits = parsed._traits[0]
        if traits & GROUPED and traits & SPECIAL:
            break
        grouped = grouped or bool(traits & GROUPED)
        messages.append(message)
        found_ids.append(message_id)
        size += len(message)
        starts.append(size)
        expirations.append(expiration)
        places.append((offset, length))
        groups.append(parsed.group(0))
        last_id = message_id
    if not messages:
        return None
    return Run(
        b"".join(messages),
        starts,
        found_ids[0],
        times=(expirations, []),
        groups=groups if grouped else None,
        head_bytes=0,
        place=(segment, places[0][0]),
        joined=(found_ids if last_id - found_ids[0] >= len(found_ids) else None, places),
    )


def bare_run(run: Run, begin: int, end: int) -> Run:
    """Rows ``begin`` to ``end`` of a run that is in the log, the last one excluded, without their messages and groups.

    Raises:
        ValueError: There are no such rows, or the run is not in the log.
    """
    if not run.segment or not 0 <= begin < end <= run.count:
        raise ValueError(f"rows {begin} to {end} of {run.count} in segment {run.segment}")
    starts = [0]
    for row in range(begin, end):
        starts.append(starts[-1] + run.size(row))
    ids = run.ids(begin, end)
    places = [run.place(row) for row in range(begin, end)]
    return Run(
        b"",
        starts,
        ids[0],
        times=([run.expiration(row) for row in range(begin, end)], run.due_times(begin, end)),
        groups=None,
        head_bytes=0,
        place=(run.segment, places[0][0]),
        joined=(ids if ids[-1] - ids[0] >= len(ids) else None, places),
    )


def run_columns(run: Run, begin: int, end: int) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    """Columns of rows ``begin`` to ``end`` of a run that is in the log, the last one excluded, in the byte order of the
    machine: message ids (u64), offsets of the records in the segment (u32), lengths of the records (u32), bytes of the
    messages (u32), expirations (i64, empty if all are 0).

    Raises:
        ValueError: There are no such rows, or the run is not in the log.
    """
    if not run.segment or not 0 <= begin < end <= run.count:
        raise ValueError(f"rows {begin} to {end} of {run.count} in segment {run.segment}")
    places = [run.place(row) for row in range(begin, end)]
    expirations = array("q", [run.expiration(row) for row in range(begin, end)])
    return (
        array("Q", run.ids(begin, end)).tobytes(),
        array("I", [offset for offset, _ in places]).tobytes(),
        array("I", [length for _, length in places]).tobytes(),
        array("I", [run.size(row) for row in range(begin, end)]).tobytes(),
        expirations.tobytes() if any(expirations) else b"",
    )
