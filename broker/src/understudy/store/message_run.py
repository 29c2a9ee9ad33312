"""Messages that came together, appended to the log in one pass.

What ``MessageStore.store_message`` does for any message, done for several that go to the same queues and need nothing
special (no schedule or file of their own). Not here: which messages these are
(``routing.plain_sends``), the bytes of their records (``kernel.log``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from understudy.kernel import QUEUE_ID_BYTES, RECORD_HEAD_BYTES, LogPosition, Run, Sends, append_sends
from understudy.store.journal import Journal
from understudy.store.operation_context import OperationContext
from understudy.store.state import StoreState, TransactionRecord

#: ``LogPosition(...)`` without the Python-level call.
_position: Callable[[tuple[int, int, int, int, int, int]], LogPosition] = partial(tuple.__new__, LogPosition)


def append_run(
    journal: Journal,
    context: OperationContext,
    state: StoreState,
    sends: Sends,
    row: int,
    count: int,
    first_id: int,
    address_id: int,
    queue_ids: Sequence[int],
    transaction_id: int = 0,
) -> list[Run]:
    """Append one record for each of ``count`` messages from ``row`` on, whose ids begin at ``first_id``.

    Args:
        journal: Gets the records.
        context: Is told of them.
        state: Likewise.
        sends: The messages, which are alike (``Sends.alike``) and durable.
        row: The first one.
        count: How many.
        first_id: Id of the first one.
        address_id: Of the address they were sent to.
        queue_ids: At least one.
        transaction_id: Transaction they belong to; 0 for none.

    Returns:
        One run for each segment or batch that got some of them.

    Raises:
        StoreError: the journal has failed; what was appended before is never released.
    """
    runs: list[Run] = []
    taken = 0
    head_bytes = RECORD_HEAD_BYTES + QUEUE_ID_BYTES * len(queue_ids) + len(sends.duplicate_id(row))
    transaction: TransactionRecord | None = None
    while taken < count:
        length = sends.size(row + taken) + head_bytes
        if journal.offset + length > journal.room:
            journal.make_room(length)
        position = _position(
            (journal.number, journal.offset, journal.room, journal.sequence, journal.batch, journal.seed)
        )
        run = append_sends(
            sends, row + taken, count - taken, first_id + taken, address_id, queue_ids, transaction_id, position
        )
        journal.parts.append(run.data)
        journal.offsets.frombytes(run.offsets())
        journal.offset += len(run.data)
        journal.room -= 4 * run.count
        journal.sequence += run.count
        context.appended = journal.sequence
        taken += run.count
        journal.use.note_range(run.first_id, first_id + taken - 1)
        runs.append(run)
        if transaction_id and transaction is None:
            # its first record may be this one
            transaction = state.transaction(transaction_id, run.segment)
    for queue_id in queue_ids:
        state.live.add_range(queue_id, first_id, count)
        if transaction is not None:
            transaction.added_ids.extend(queue_id, range(first_id, first_id + count))
    if sends.duplicate_id(row):
        ids = [sends.duplicate_id(number) for number in range(row, row + count)]
        if transaction is not None:
            transaction.duplicate_ids += [(address_id, duplicate_id) for duplicate_id in ids]
        else:
            state.remember_duplicates(address_id, ids)
    return runs
