"""Damaged records whose extent is known, and when a reader of the log may pass over them (ADR 0020).

Reading stops at the first bad record. Its extent is known when the lengths of the bad records, added
up, lead to a valid record whose sequence is exactly that many higher; or when a valid record
anywhere after it has the sequence two higher, so that exactly one record lies between. A bad record at the end
of a segment is followed by the first record of the next one.

Extents that the store's quarantine names are passed over by every reader. Others only if the operator asked for
it (``--quarantine``), if records after them prove that they had been synced (else they are a torn tail), and
if records of their probable type may be missing without making the rest of the log mean something else.

What a damaged record was is known for certain when its bytes are valid with another record type, that is when
only the type was damaged. Else it is what its type says if its length fits that type, and unknown if not.

Not here: reading the log (``follower``), the entries (``quarantine``).
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from understudy.dataclass import dataclass
from understudy.kernel.log import crc32
from understudy.limits import RECORD_BYTES_MAX
from understudy.ports import DiskReader
from understudy.store.log.chain import Link
from understudy.store.log.reading.blank_tail import BlankTails
from understudy.store.log.reading.replay import Cursor, Frame, Stop, find_later_record, find_next_record, read_frame
from understudy.store.log.records import HEADER, HEADER_BYTES, SEAL_FIXED_BYTES, RecordType
from understudy.store.log.segment import HEADER_BLOCK_BYTES, seed_of, segment_name
from understudy.store.quarantine import KnownDamage, QuarantineEntry, entry_names, read_entries
from understudy.store.state import StoreState

log = logging.getLogger(__name__)

_LENGTH: Final = struct.Struct("<I")
_ID: Final = struct.Struct("<Q")
_MESSAGE: Final = struct.Struct("<QQQqqBBHI")
_ACKNOWLEDGE: Final = struct.Struct("<QQII")
#: Records in a row that may be damaged.
_RECORDS_MAX: Final = 10_000
_UNKNOWN: Final = "UNKNOWN"

#: Consequence of a missing record of this type. Only records of these types may be missing.
CONSEQUENCES: Final = {
    RecordType.MESSAGE_ADD: "the message in it is lost",
    RecordType.MESSAGE_MOVE: "the message in it is lost",
    RecordType.ACKNOWLEDGE: "messages that it acknowledged may be delivered once more",
    RecordType.DELIVERY_COUNT: "a message may be tried more often than max-delivery-attempts",
    RecordType.DUPLICATE_ID: "a duplicate of one message may be accepted",
    RecordType.SEAL: "nothing is lost",
    RecordType.SNAPSHOT: "nothing is lost",
}


@dataclass(frozen=True, slots=True)
class DamagedRecord:
    """A bad record whose extent is known."""

    number: int
    epoch: int
    offset: int
    length: int
    sequence: int
    kind: str
    """Name of the record's ``RecordType``, or ``UNKNOWN``."""
    known: bool
    """Whether the quarantine names the extent of the record."""
    raw: bytes
    message_id: int = 0
    """Id of a message; as its damaged bytes say."""

    @property
    def may_be_missing(self) -> bool:
        """Whether the rest of the log keeps its meaning without it."""
        return self.kind != _UNKNOWN and RecordType[self.kind] in CONSEQUENCES

    @property
    def consequence(self) -> str:
        """Consequence of the loss of the record, for operators."""
        if not self.may_be_missing:
            return "the records after it cannot be interpreted without it"
        return CONSEQUENCES[RecordType[self.kind]]

    def entry(self, directory: str, found_ms: int) -> QuarantineEntry:
        """The entry of the record in the quarantine."""
        path = f"{directory}/{segment_name(self.number, self.epoch)}"
        return QuarantineEntry(
            entry_id=f"record-{self.number}-{self.epoch}-{self.offset}",
            kind=self.kind,
            reason=f"{path} at offset {self.offset}: record {self.sequence} is damaged; {self.consequence}",
            found_ms=found_ms,
            segment=self.number,
            epoch=self.epoch,
            offset=self.offset,
            length=self.length,
            sequence=self.sequence,
            message_id=self.message_id,
        )


def kind_of(raw: bytes, seed: int, sequence: int) -> str:
    """Probable type of a damaged record: the name of a ``RecordType``, or ``UNKNOWN``.

    Args:
        seed: Crc seed of its segment.
        sequence: That it must have had.
    """
    if len(raw) < HEADER_BYTES:
        return _UNKNOWN
    crc, length, found, *_ = HEADER.unpack_from(raw)
    before, behind = crc32(raw[4:20], seed), raw[21:]
    for kind in RecordType:
        if crc32(behind, crc32(bytes((kind,)), before)) == crc:
            return kind.name
    try:
        kind = RecordType(raw[20])
    except ValueError:
        return _UNKNOWN
    # a header that is right about length and sequence is right about the type, too
    return kind.name if (length, found) == (len(raw), sequence) or _fits(kind, raw) else _UNKNOWN


def _fits(kind: RecordType, raw: bytes) -> bool:
    """Whether a record of that type can be of this length."""
    body = len(raw) - HEADER_BYTES
    if kind in (RecordType.MESSAGE_ADD, RecordType.MESSAGE_MOVE):
        if body < _MESSAGE.size:
            return False
        *_, duplicate_bytes, queues = _MESSAGE.unpack_from(raw, HEADER_BYTES)
        return int(queues) > 0 and _MESSAGE.size + 8 * int(queues) + int(duplicate_bytes) < body
    if kind is RecordType.ACKNOWLEDGE:
        if body < _ACKNOWLEDGE.size:
            return False
        _, _, count, _ = _ACKNOWLEDGE.unpack_from(raw, HEADER_BYTES)
        return body == _ACKNOWLEDGE.size + 8 * int(count)
    if kind is RecordType.DELIVERY_COUNT:
        return body == 24
    if kind is RecordType.DUPLICATE_ID:
        # TX_PREPARE differs by one bit in the type and may be as long
        return False
    if kind is RecordType.SEAL:
        return body > 4 and len(raw) == SEAL_FIXED_BYTES + 4 * _LENGTH.unpack_from(raw, HEADER_BYTES)[0]
    return kind is not RecordType.SNAPSHOT or body == 32


@dataclass(frozen=True, slots=True)
class Passage:
    """The way past damage."""

    records: tuple[DamagedRecord, ...]
    following: Frame | None
    """First valid record after the damaged ones in the same segment; None: the segment ends with them."""

    @property
    def known(self) -> bool:
        """Whether the quarantine names all damaged records of the passage."""
        return all(record.known for record in self.records)

    @property
    def allowed(self) -> bool:
        """Whether an operator may have them passed over."""
        return all(record.known or record.may_be_missing for record in self.records)


def _extent(data: bytes, at: int, cursor: Cursor, known: KnownDamage) -> int:
    """Length of the bad record at ``data[at]``, by the quarantine or by itself; 0 if it cannot be right."""
    length = known.length_at(cursor.number, cursor.epoch, cursor.offset + at)
    if not length:
        length = _LENGTH.unpack_from(data, at + 4)[0] if at + HEADER_BYTES <= len(data) else 0
    return length if HEADER_BYTES <= length <= RECORD_BYTES_MAX and at + length <= len(data) else 0


def sequence_before(data: bytes, cursor: Cursor, known: KnownDamage) -> int:
    """Sequence of the record before a log that begins with bad records, by the first valid record after them.

    Returns:
        0 if none is found. A result that is too high because an extent was wrong is refused later: no TRIM gives up
        records that would be missing (``Follower.finish``).
    """
    at = 0
    for count in range(_RECORDS_MAX):
        frame = read_frame(data, at, cursor.offset, cursor.seed)
        if frame is not None:
            return max(frame.sequence - count - 1, 0)
        length = _extent(data, at, cursor, known)
        if not length:
            break
        at += length
    return 0


def find_passage(
    data: bytes, cursor: Cursor, known: KnownDamage, following_sequence: Callable[[], int | None]
) -> Passage | None:
    """The bad records at a cursor, if their extents are known.

    Args:
        data: Data from the cursor to the end of the records of the segment, or of its file.
        cursor: Cursor in front of the first bad record; ``sequence`` is not 0.
        following_sequence: Gets the sequence of the first record of the next segment, 0 if that is damaged, None if
            there is no next segment.
    """
    origin, seed = cursor.offset, cursor.seed
    at = count = 0
    extents: list[tuple[int, int]] = []
    frame: Frame | None = None
    while count <= _RECORDS_MAX:
        frame = read_frame(data, at, origin, seed)
        if frame is not None and count and frame.sequence == cursor.sequence + 1 + count:
            return _passage(data, cursor, known, extents, frame)
        if at == len(data):
            return _passage_to_end(data, cursor, known, extents, following_sequence()) if count else None
        length = _extent(data, at, cursor, known)
        if not length:
            break
        extents.append((at, length))
        at += length
        count += 1
    found = find_next_record(data, origin, seed, above=cursor.sequence)
    if found is not None and found.sequence == cursor.sequence + 2:
        return _passage(data, cursor, known, [(0, found.offset - origin)], found)
    return None


def _passage_to_end(
    data: bytes, cursor: Cursor, known: KnownDamage, extents: list[tuple[int, int]], following: int | None
) -> Passage | None:
    """Bad records that end their segment: the next segment must continue after them, or the last of them is a seal."""
    passage = _passage(data, cursor, known, extents, None)
    last = passage.records[-1]
    is_last_seal = following is None and last.kind == RecordType.SEAL.name
    return passage if is_last_seal or following == last.sequence + 1 else None


def _passage(
    data: bytes, cursor: Cursor, known: KnownDamage, extents: list[tuple[int, int]], following: Frame | None
) -> Passage:
    records = []
    for index, (at, length) in enumerate(extents):
        raw = data[at : at + length]
        kind = kind_of(raw, cursor.seed, cursor.sequence + 1 + index)
        is_message = kind in (RecordType.MESSAGE_ADD.name, RecordType.MESSAGE_MOVE.name)
        records.append(
            DamagedRecord(
                number=cursor.number,
                epoch=cursor.epoch,
                offset=cursor.offset + at,
                length=length,
                sequence=cursor.sequence + 1 + index,
                kind=kind,
                known=known.length_at(cursor.number, cursor.epoch, cursor.offset + at) == length,
                raw=raw,
                message_id=_ID.unpack_from(raw, HEADER_BYTES)[0] if is_message and length >= HEADER_BYTES + 8 else 0,
            )
        )
    return Passage(tuple(records), following)


def pass_over(state: StoreState, cursor: Cursor, passage: Passage) -> None:
    """Move a cursor, and the state that it belongs to, past damaged records."""
    if cursor.number not in state.segments:
        state.begin_segment(cursor.number, cursor.epoch, cursor.sequence + 1)
    last = passage.records[-1]
    cursor.offset = last.offset + last.length
    cursor.sequence = state.sequence = last.sequence
    if passage.following is None:
        cursor.sealed = Stop.SEALED


def _was_synced(data: bytes, cursor: Cursor) -> bool:
    """Whether a later batch proves that the bytes at the cursor had been on the medium."""
    return find_later_record(data, cursor.offset, cursor.seed, above=cursor.sequence, after=cursor.offset) is not None


class DamageReader:
    """The quarantine of a store that another node may be writing, as the readers of its log need it."""

    def __init__(self, disk: DiskReader, directory: str, *, allow: bool) -> None:
        """Args:
        disk: Where the store is; only read.
        allow: Pass over damaged records of known extent (``--quarantine``).
        """
        self._disk = disk
        self._directory = directory
        self._names: list[str] = []
        self.blank = BlankTails(disk)
        self.allow = allow
        self.known = KnownDamage()
        self.passed: dict[tuple[int, int], DamagedRecord] = {}
        """Records passed over that the quarantine did not name, by segment and offset."""
        self.helps = False
        """The last bad record that was met could have been passed over."""

    def begin(self) -> None:
        """Start a new pass over the log."""
        self.passed.clear()
        self.helps = False
        self.blank.forget()

    def read_with(self, disk: DiskReader) -> None:
        """Replace the disk that bytes are read from."""
        self._disk = disk
        self.blank.forget(disk)

    def refresh(self) -> None:
        """Look whether the active node has set something aside since."""
        names = entry_names(self._disk, self._directory)
        if names != self._names:
            self.known = KnownDamage(kept.entry for kept in read_entries(self._disk, self._directory, names))
            self._names = names

    def length_at(self, cursor: Cursor, offset: int) -> int:
        """Length of the record passed over that begins at an offset of the cursor's segment; 0 for none."""
        record = self.passed.get((cursor.number, offset))
        return record.length if record is not None else self.known.length_at(cursor.number, cursor.epoch, offset)

    def pass_over(self, state: StoreState, cursor: Cursor, links: Sequence[Link], stop: Stop, lock_held: bool) -> bool:
        """Move past the damaged records at the cursor if that is allowed; returns whether it was.

        Args:
            state: State read so far.
            cursor: Cursor in front of something that is no valid record.
            links: The cursor's segment, and the later ones of the log.
            stop: Why reading stopped.
            lock_held: The caller holds the store's lock.
        """
        self.helps = False
        link, following = links[0], links[1] if len(links) > 1 else None
        if stop is not Stop.BAD and not lock_held and link.end is None:
            # while a node writes, what looks unfinished mostly is
            return False
        # a segment prepared ahead proves nothing
        ended = link.end is not None or self._goes_on(following, lock_held, cursor.sequence)
        settled = lock_held or ended
        self.refresh()
        unnamed = not self.known.touches(cursor.number, cursor.epoch)
        if unnamed and not settled:
            return False
        if unnamed and not ended and self.blank.is_blank(cursor.path, cursor.offset, cursor.sequence):
            return False
        data = self._read_from(cursor, link)
        # segments before the damage may have been trimmed
        start = cursor if cursor.sequence else replace(cursor, sequence=sequence_before(data, cursor, self.known))
        passage = find_passage(data, start, self.known, lambda: self._first_sequence(following))
        if passage is None or not start.sequence:
            return False
        if not passage.known:
            if not (settled and passage.allowed and (ended or _was_synced(data, start))):
                return False
            if not self.allow:
                self.helps = True
                return False
            for record in passage.records:
                if not record.known:
                    self.passed[record.number, record.offset] = record
                    log.error("damaged record set aside", extra={"reason": record.entry(self._directory, 0).reason})
        cursor.sequence = start.sequence
        pass_over(state, cursor, passage)
        if passage.following is None and following is None:
            cursor.sealed = Stop.CLOSED
        return True

    def _read_from(self, cursor: Cursor, link: Link) -> bytes:
        """The bytes from the cursor to the end of its segment."""
        file = self._disk.open(cursor.path, read_only=True)
        try:
            return file.read(cursor.offset, max((link.end or file.size()) - cursor.offset, 0))
        finally:
            file.close()

    def _goes_on(self, link: Link | None, lock_held: bool, above: int) -> bool:
        """Whether a segment begins with a valid record, with a sequence above that one."""
        if link is not None and lock_held:
            path = f"{self._directory}/{link.name}"
            if self.blank.is_blank(path, HEADER_BLOCK_BYTES, above):
                return False
        return bool(self._first_sequence(link))

    def _first_sequence(self, link: Link | None) -> int | None:
        if link is None:
            return None
        file = self._disk.open(f"{self._directory}/{link.name}", read_only=True)
        try:
            header = file.read(HEADER_BLOCK_BYTES, HEADER_BYTES)
            length = HEADER.unpack(header)[1] if len(header) == HEADER_BYTES else 0
            if not HEADER_BYTES <= length <= RECORD_BYTES_MAX:
                return 0
            data, seed = file.read(HEADER_BLOCK_BYTES, length), seed_of(link.number, link.epoch)
        finally:
            file.close()
        frame = read_frame(data, 0, HEADER_BLOCK_BYTES, seed)
        return frame.sequence if frame is not None else 0

    def hint(self) -> str:
        """Advice to the operator about the damage."""
        salvage = f"understudy data salvage {self._directory}"
        text = f"'{salvage}' lists the losses, '{salvage} --to NEW_DIRECTORY' writes the rest into a new journal"
        if self.helps:
            text = f"a start with --quarantine sets the damaged record aside and keeps everything else; {text}"
        return text
