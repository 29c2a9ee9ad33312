"""Whether the log really begins and ends where a reader stopped.

Only when no other process writes, as the store's lock is held, or the store is a copy of this node: then unreadable
bytes at the end are a torn tail, which is no part of the log, or damage, which is an error
(docs/build/journal-format.md s. 2.3).

Not here: reading the log up to there (``follower``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from understudy.errors import JournalCorrupt
from understudy.ports import DiskReader
from understudy.store.log.chain import Chain, Link
from understudy.store.log.reading.replay import Cursor, Stop, find_later_record, unfinished_bytes
from understudy.store.log.segment import HEADER_BLOCK_BYTES, parse_name, read_header, seed_of, segment_name
from understudy.store.state import StoreState

Torn = tuple[str, int, int]
"""File, offset and bytes of a truncated tail that was never synced."""


def judge_tail(
    disk: DiskReader,
    directory: str,
    cursor: Cursor,
    stop: Stop | None,
    later_links: Sequence[Link],
    is_blank: Callable[[str, int, int], bool],
) -> Torn | None:
    """Check that the log ends at the cursor.

    Args:
        disk: Where the store is.
        directory: Absolute path of the store.
        cursor: After the last record that was read.
        stop: Why reading ended there.
        later_links: Segments after that of the cursor.
        is_blank: Whether a segment has no record from an offset on, above a sequence (``BlankTails.is_blank``).

    Returns:
        The torn tail; None if there is none.

    Raises:
        JournalCorrupt: a record after the cursor proves that records are damaged or missing.
    """
    torn = None
    if stop not in (Stop.SEALED, Stop.CLOSED):
        torn = _judge_open_segment(disk, cursor, is_blank)
    elif stop is Stop.SEALED and not later_links:
        raise JournalCorrupt(
            "the segment is sealed and the next one is missing", file=cursor.path, offset=cursor.offset
        )
    for later in later_links:
        path = f"{directory}/{later.name}"
        if is_blank(path, HEADER_BLOCK_BYTES, cursor.sequence):
            continue
        data = read_range(disk, path, HEADER_BLOCK_BYTES)
        seed = seed_of(later.number, later.epoch)
        found = find_later_record(data, HEADER_BLOCK_BYTES, seed, above=cursor.sequence, after=-1)
        if found is not None:
            raise JournalCorrupt(
                f"{complaint(cursor)}: {path} has a later one at offset {found}",
                file=cursor.path,
                offset=cursor.offset,
            )
    return torn


def judge_beginning(
    directory: str,
    state: StoreState,
    chain: Chain,
    names: Collection[str],
    cursor: Cursor,
    *,
    from_snapshot: bool,
) -> None:
    """Check that nothing is missing before the records that were read.

    Args:
        directory: Absolute path of the store.
        state: State read from the log.
        chain: The segments of the log.
        names: What the directory holds.
        cursor: Behind the last record that was read.
        from_snapshot: Whether reading began with a snapshot.

    Raises:
        JournalCorrupt: segments are gone that no TRIM or SEGMENTS_DROP gives up. That record is durable before they are
            removed, so either it is damaged or they are lost.
    """
    gone = chain.trimmed or bool(chain.missing)
    if not from_snapshot and (state.first_sequence > state.trimmed_to or (gone and not state.sequence)):
        begins = f"begins with sequence {state.first_sequence}" if state.sequence else "has no valid record"
        raise JournalCorrupt(
            f"the log {begins}, but no record says that earlier ones were trimmed",
            file=cursor.path if not state.sequence else f"{directory}/{chain.links[0].name}",
            offset=HEADER_BLOCK_BYTES,
        )
    present = set(names)
    for number, use in state.segments.items():
        name = segment_name(number, use.epoch)
        if name not in present:
            raise JournalCorrupt(
                "segment is missing, but no record says that it was trimmed", file=f"{directory}/{name}", offset=0
            )


def ends_before(disk: DiskReader, directory: str, epoch: int, sequence: int) -> bool:
    """Whether the records of an epoch end before a sequence.

    False also where no segment shows it, as a snapshot may have all records. Damaged records are passed over: the
    newest segment with a valid record decides, which has the highest sequences.

    Args:
        disk: Where the store is; no other process writes to it.
        directory: Absolute path of the store.
        epoch: Segments of other epochs are not read.
        sequence: The sequence that is looked for.

    Raises:
        DiskFailed: a segment cannot be read.
    """
    named = (parsed for parsed in map(parse_name, disk.list(directory)) if parsed is not None and parsed[2])
    for number in sorted((number for number, of_epoch, _ in named if of_epoch == epoch), reverse=True):
        data = read_range(disk, f"{directory}/{segment_name(number, epoch)}", HEADER_BLOCK_BYTES)
        seed = seed_of(number, epoch)
        if find_later_record(data, HEADER_BLOCK_BYTES, seed, above=sequence - 1, after=-1) is not None:
            return False
        if find_later_record(data, HEADER_BLOCK_BYTES, seed, above=0, after=-1) is not None:
            return True
    return False


def complaint(cursor: Cursor) -> str:
    """Error text for the record at the cursor."""
    return f"record {cursor.sequence + 1} is damaged or missing" if cursor.sequence else "the first record is damaged"


def read_range(disk: DiskReader, path: str, offset: int, length: int | None = None) -> bytes:
    """Part of a file; without a length all from the offset on.

    Raises:
        FileNotFoundError: there is no such file.
        DiskFailed: it cannot be read.
    """
    file = disk.open(path, read_only=True)
    try:
        return file.read(offset, max(file.size() - offset, 0) if length is None else length)
    finally:
        file.close()


def _judge_open_segment(disk: DiskReader, cursor: Cursor, is_blank: Callable[[str, int, int], bool]) -> Torn | None:
    file = disk.open(cursor.path, read_only=True)
    try:
        allocated_bytes = read_header(file, cursor.number, cursor.epoch).allocated_bytes
        size = file.size()
    finally:
        file.close()
    if size < allocated_bytes:
        raise JournalCorrupt(
            f"the file has {size} bytes, {allocated_bytes} were allocated and there is no seal",
            file=cursor.path,
            offset=cursor.offset,
        )
    if is_blank(cursor.path, cursor.offset, cursor.sequence):
        return None
    data = read_range(disk, cursor.path, cursor.offset)
    torn_bytes = unfinished_bytes(data, cursor.offset, cursor.seed, above=cursor.sequence)
    found = find_later_record(data, cursor.offset, cursor.seed, above=cursor.sequence, after=cursor.offset)
    if found is not None:
        raise JournalCorrupt(
            f"{complaint(cursor)}: a later batch follows at offset {found}", file=cursor.path, offset=cursor.offset
        )
    return (cursor.path, cursor.offset, torn_bytes) if torn_bytes else None
