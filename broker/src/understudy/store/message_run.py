"""Messages that came together, appended to the log in one pass.

What ``MessageStore.store_message`` does for any message, done for several that go to one queue and need nothing special
(no transaction, schedule or file of their own). Not here: which messages these are
(``routing.plain_sends``), the bytes of their records (``kernel.log``).
"""

from __future__ import annotations

from understudy.kernel import RECORD_HEAD_BYTES, LogPosition, Run, Sends, append_sends
from understudy.store.journal import Journal
from understudy.store.operation_context import OperationContext
from understudy.store.state import StoreState


def append_run(
    journal: Journal,
    context: OperationContext,
    state: StoreState,
    sends: Sends,
    row: int,
    count: int,
    first_id: int,
    address_id: int,
    queue_id: int,
) -> list[Run]:
    """Append one record for each of ``count`` messages from ``row`` on, whose ids begin at ``first_id``.

    Returns:
        One run for each segment or batch that got some of them.

    Raises:
        StoreError: the journal has failed; what was appended before is never released.
    """
    runs: list[Run] = []
    taken = 0
    while taken < count:
        length = sends.size(row + taken) + RECORD_HEAD_BYTES + len(sends.duplicate_id(row + taken))
        if journal.offset + length > journal.room:
            journal.make_room(length)
        position = LogPosition(
            journal.number, journal.offset, journal.room, journal.sequence, journal.batch, journal.seed
        )
        run = append_sends(sends, row + taken, count - taken, first_id + taken, address_id, queue_id, position)
        journal.parts.append(run.data)
        journal.offsets.frombytes(run.offsets())
        journal.offset += len(run.data)
        journal.room -= 4 * run.count
        journal.sequence += run.count
        context.appended = journal.sequence
        journal.use.note(run.first_id)
        taken += run.count
        journal.use.note(first_id + taken - 1)
        runs.append(run)
    state.live.add_range(queue_id, first_id, count)
    if sends.duplicate_id(row):
        for number in range(row, row + count):
            state.remember_duplicate(address_id, sends.duplicate_id(number))
    return runs
