"""Views of the columns of the kernel (``Sends`` and ``Run``), and their expected contents."""

from __future__ import annotations

from typing import Any

from support.kernels import NATIVE
from understudy.errors import RemoteProtocolError
from understudy.kernel import Sends
from understudy.kernel.core import frames
from understudy.kernel.log import Run
from understudy.message import Message


def view_of_sends(sends: Sends | None) -> Any:
    """Every attribute, and the result of every method for every row."""
    if sends is None:
        return None
    count = sends.count
    rows = range(count)
    return (
        sends.data,
        sends.end,
        sends.requires_response,
        count,
        list(sends.correlation_ids),
        [
            (
                sends.address(row),
                sends.durable(row),
                sends.priority(row),
                sends.duplicate_id(row),
                sends.expiration(row),
                sends.group(row),
                sends.encoded(row),
                sends.size(row),
            )
            for row in rows
        ],
        list(sends.extents(0, count)),
        [list(sends.extents(row, 2)) for row in rows],
        [[sends.grouped(row, width) for width in (0, 1, 2, count)] for row in rows],
        [[sends.bytes_of(row, width) for width in (0, 1, 2, count)] for row in rows],
        [sends.duplicate_ids(row, width) for row in range(count + 1) for width in (0, 1, 2, count)],
        [[sends.alike(row, 1 << 30, routing_type, 1 << 62, 1 << 62) for routing_type in (0, 1)] for row in rows],
        [[sends.alike(row, 1 << 30, 1, room_bytes, 1 << 62) for room_bytes in (-1, 0, 1, 100, 300)] for row in rows],
        [[sends.alike(row, 1 << 30, 1, 1 << 62, room_count) for room_count in (-1, 0, 1, 2)] for row in rows],
        [sends.alike(row, sends.size(row), 1, 1 << 62, 1 << 62) for row in rows],
        [sends.alike(row, sends.size(row) - 1, 1, 1 << 62, 1 << 62) for row in rows],
    )


def view_of_run(run: Run) -> Any:
    """Every attribute, and the results of every method."""
    rows, bounds = range(run.count), range(run.count + 1)
    pairs = [(begin, end) for begin in bounds for end in bounds[begin:]]
    is_native = NATIVE is not None and isinstance(run, NATIVE.Run)
    run_receives = NATIVE.run_receives if NATIVE is not None and is_native else frames.run_receives
    return (
        run.data,
        run.count,
        run.first_id,
        run.consecutive,
        [list(run.ids(begin, run.count)) for begin in bounds],
        [run.row_of(message_id) for message_id in range(run.first_id - 1, run.first_id + 2 * run.count + 1)],
        run.grouped,
        run.expiring,
        run.earliest_ms,
        [run.expiration(row) for row in rows],
        [run.scheduled(row) for row in rows],
        run.delayed,
        [run.due_times(begin, end) for begin, end in pairs],
        [(run.expiring_between(begin, end), list(run.groups(begin, end))) for begin, end in pairs],
        run.head_bytes,
        run.segment,
        run.offset,
        run.size_bytes,
        [(run.encoded(row), run.size(row), run.place(row)) for row in rows],
        run.messages(0, run.count),
        run.messages(run.count // 2, run.count // 2),
        [run.bytes_between(begin, end) for begin, end in pairs],
        run.offsets(),
        [
            run.fitting(begin, room_bytes, overhead_bytes, now_ms)
            for begin in bounds
            for now_ms in {-1, 0, 1, run.earliest_ms, max(map(run.expiration, rows), default=0)}
            for room_bytes in (-1, 0, 1, 100, 400, run.size_bytes, 1 << 40)
            for overhead_bytes in (0, 25)
        ],
        [run_receives(run, begin, end, 10 + begin, end - (1 << 40)) for begin, end in pairs],
    )


def expected_messages(data: bytes, start: int, limit_bytes: int, count_max: int) -> list[tuple[Message, bool, int]]:
    """The messages that belong together by the words of ``split_sends``, each with what its frame says."""
    found: list[tuple[Message, bool, int]] = []
    offset = start
    while len(found) < count_max and offset + 13 <= len(data):
        size = int.from_bytes(data[offset : offset + 4], signed=True) + 4
        frame = data[offset : offset + size] if size > 0 else b""
        if len(frame) != size or not 26 <= size <= limit_bytes or frame[4:13] != data[start + 4 : start + 13]:
            break
        requires_response = frame[-13] != 0
        if found and requires_response != found[0][1]:
            break
        try:
            message = Message.decode(frame, 13, size - 13)
        except RemoteProtocolError:
            break
        found.append((message, requires_response, int.from_bytes(frame[-12:-4], signed=True)))
        offset += size
    return found
