"""Messages that came together, appended to the log in one pass.

What ``MessageStore.store_message`` does for any message, done for several that go to the same queues and need nothing
special (no file of their own), and space in the log for those that are appended later in the same turn. Not
here: which messages these are (``routing.batch``), the bytes of their records (``kernel.log``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from understudy.kernel.log import LogPosition, Run, SendsPart, append_duplicate_ids, append_sends
from understudy.store.log.journal import Journal
from understudy.store.log.operation_context import OperationContext
from understudy.store.log.records import HEADER_BYTES, TWO_IDS
from understudy.store.state import StoreState, TransactionRecord

#: ``LogPosition(...)`` without the Python-level call.
_position: Callable[[tuple[int, int, int, int, int, int]], LogPosition] = partial(tuple.__new__, LogPosition)


def hold_room(journal: Journal, length: int) -> int:
    """Keep the rest of the segment, or of the batch, for records that ``append_run`` appends later.

    Until then the journal appears full, so that every append goes through ``Journal.make_room``, which closes
    ``OperationContext.gathered``.

    Args:
        journal: Journal with nothing gathered.
        length: Length of the first record. Bytes.

    Returns:
        The space that is held, at least ``length``. Each record takes its length and 4 bytes more. Bytes.

    Raises:
        StoreError: the journal has failed or is closed.
    """
    if journal.offset + length > journal.room:
        journal.make_room(length)
    held = journal.room - journal.offset
    journal.room = -1
    return held


def append_run(
    journal: Journal,
    context: OperationContext,
    state: StoreState,
    parts: Sequence[SendsPart],
    count: int,
    first_id: int,
    address_id: int,
    queue_ids: Sequence[int],
    transaction_id: int = 0,
    held: int = 0,
    duplicate_ids: Sequence[bytes] = (),
) -> list[Run]:
    """Append one record for each of the messages of these parts, whose ids begin at ``first_id``.

    Args:
        journal: Gets the records.
        context: Gets the appended sequences.
        state: Likewise.
        parts: The messages, which are alike (``Sends.alike``) and durable.
        count: How many.
        first_id: Id of the first one.
        address_id: Id of the address they were sent to.
        queue_ids: At least one.
        transaction_id: Transaction they belong to; 0 for none.
        held: What ``hold_room`` gave, since when nothing was appended; 0: it was not called.
        duplicate_ids: Duplicate ids of these messages; none if they have none.

    Returns:
        One run for each segment or batch that got some of them.

    Raises:
        StoreError: the journal has failed; records appended before are never released.
    """
    if held:
        journal.room = journal.offset + held
    runs: list[Run] = []
    left, taken = parts, 0
    transaction: TransactionRecord | None = None
    while taken < count:
        position = _position(
            (journal.number, journal.offset, journal.room, journal.sequence, journal.batch, journal.seed)
        )
        run = append_sends(left, first_id + taken, address_id, queue_ids, transaction_id, position)
        added = run.count
        if not added:
            journal.make_room(run.head_bytes + left[0][0].size(left[0][1]))
            continue
        size = len(run.data)
        journal.parts.append(run.data)
        if added == 1:
            journal.offsets.append(journal.offset)
        else:
            journal.offsets.frombytes(run.offsets())
        journal.offset += size
        journal.room -= 4 * added
        journal.sequence += added
        context.appended = journal.sequence
        use, begin_id = journal.use, first_id + taken
        taken += added
        last_id = first_id + taken - 1
        if last_id > use.message_id_max:
            use.message_id_max = last_id
        if not use.message_id_min or begin_id < use.message_id_min:
            use.message_id_min = begin_id
        runs.append(run)
        if transaction_id:
            journal.belong_to_open(journal.sequence - added)
            if transaction is None:
                # the first record of the batch may be this one
                transaction = state.transaction(transaction_id, run.segment)
        if taken < count:
            left = _behind(parts, taken)
    for queue_id in queue_ids:
        if count == 1:
            state.live.add(queue_id, first_id)
        else:
            state.live.add_range(queue_id, first_id, count)
        if transaction is not None:
            transaction.added_ids.extend(queue_id, range(first_id, first_id + count))
    if duplicate_ids:
        if transaction is not None:
            transaction.duplicate_ids += [(address_id, duplicate_id) for duplicate_id in duplicate_ids]
        else:
            state.remember_duplicates(address_id, duplicate_ids)
    return runs


def append_ids(
    journal: Journal, context: OperationContext, state: StoreState, address_id: int, duplicate_ids: Sequence[bytes]
) -> None:
    """Append one DUPLICATE_ID record for each of the ids of messages that the log does not get.

    Args:
        journal: Gets the records.
        context: Gets the appended sequences.
        state: Likewise.
        address_id: Id of the address the messages were sent to.
        duplicate_ids: Duplicate ids in the order of the messages, each of at most ``DUPLICATE_ID_BYTES_MAX`` bytes.

    Raises:
        StoreError: the journal has failed.
    """
    left = duplicate_ids
    while left:
        position = _position(
            (journal.number, journal.offset, journal.room, journal.sequence, journal.batch, journal.seed)
        )
        records, offsets = append_duplicate_ids(left, address_id, position)
        if not records:
            journal.make_room(HEADER_BYTES + TWO_IDS.size + len(left[0]))
            continue
        added = len(offsets) // 4
        journal.parts.append(records)
        journal.offsets.frombytes(offsets)
        journal.offset += len(records)
        journal.room -= 4 * added
        journal.sequence += added
        context.appended = journal.sequence
        left = left[added:]
    state.remember_duplicates(address_id, duplicate_ids)


def _behind(parts: Sequence[SendsPart], taken: int) -> list[SendsPart]:
    """The parts of a run without their first messages."""
    left: list[SendsPart] = []
    for sends, row, count in parts:
        gone = min(taken, count)
        taken -= gone
        if gone < count:
            left.append((sends, row + gone, count - gone))
    return left
