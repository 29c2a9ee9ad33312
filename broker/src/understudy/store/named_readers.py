"""Named readers: outside readers of the log for which its segments are kept (ADR 0079).

A reader has a position (epoch, sequence): the last record that it has processed. The segment with the next record and
all later ones stay in the log until the position moves on, the reader is removed, or it holds more than its limit:
then it is dropped. A dropped reader holds nothing and stays listed with the reason, so that its next request fails
with that reason instead of skipping records. Readers are SETTING records of the log (docs/build/journal-format.md s.
4.15), so they survive a restart and a failover, over a shared store and over replication.

Not here: removing segments (``snapshots.truncation``, ``snapshots.consolidator``), reading the log.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import LimitExceeded, ManagementError, ResourceNotFound, StoreError
from understudy.limits import NAMED_READERS_MAX, READER_HELD_BYTES_MAX
from understudy.ports import Clock
from understudy.store.log.journal import Journal
from understudy.store.log.records import RecordType
from understudy.store.setting_record import SettingKind, SettingRecord, encode_setting
from understudy.store.state import StoreState

log = logging.getLogger(__name__)

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


@dataclass(frozen=True, slots=True, order=True)
class LogPosition:
    """A record of the log, the last one that was processed."""

    epoch: int
    """Epoch of the record; 0: it is not known, because its segment is not part of the log any more."""
    sequence: int
    """0: before the first record."""


@dataclass(frozen=True, slots=True)
class NamedReader:
    """A reader of the log."""

    name: str
    position: LogPosition
    bytes_max: int
    """Limit of bytes: a reader that holds more of the log than this is dropped."""
    registered_ms: int
    """Wall time, epoch milliseconds."""
    committed_ms: int
    """Wall time of the last commit; of the registration if there was none."""
    dropped: str | None = None
    """Reason why the reader holds no segments any more; None while it does."""


class NamedReaders:
    """The named readers of one activation."""

    def __init__(
        self, journal: Journal, state: StoreState, clock: Clock, store_setting: Callable[[SettingRecord], object]
    ) -> None:
        """
        Args:
            state: State of the running store: its settings and segments.
            clock: Used for times of registrations and commits.
            store_setting: Appends a record to the log.

        Raises:
            StoreError: a record of a reader in the log is invalid.
        """
        self._journal = journal
        self._state = state
        self._clock = clock
        self._store = store_setting
        self._readers = {
            record.match: _decoded(record) for record in state.settings.values() if record.scope is SettingKind.READER
        }
        self.dropped_count = 0
        """Readers dropped since the activation because they held too much."""
        self.listeners: list[Callable[[NamedReader], object]] = []
        """Called with each reader that is dropped because it held too much."""

    def __iter__(self) -> Iterator[NamedReader]:
        return iter(sorted(self._readers.values(), key=lambda reader: reader.name))

    @property
    def confirmed(self) -> LogPosition:
        """Up to where records are durable at every copy that confirmations wait for: no failover takes them back."""
        sequence = self._journal.context.everywhere
        return LogPosition(self._epoch_of(sequence), sequence)

    @property
    def earliest(self) -> LogPosition:
        """The position before the first record from which on no record is missing."""
        # segments that a reader holds were not dropped either
        whole = min(self._state.complete, self.needed_from or self._state.complete)
        first = next(use for number, use in self._state.segments.items() if number >= whole)
        sequence = first.first_sequence - 1
        return LogPosition(self._epoch_of(sequence), sequence)

    @property
    def needed_from(self) -> int | None:
        """First segment that a reader holds; None if no reader holds any."""
        return min((self._segment_of(each) for each in self._readers.values() if each.dropped is None), default=None)

    def held_bytes(self, reader: NamedReader) -> int:
        """Bytes of the log that may not be removed because of a reader; 0 if it was dropped."""
        if reader.dropped is not None:
            return 0
        first = self._segment_of(reader)
        held_bytes = self._journal.offset
        for number, use in reversed(self._state.segments.items()):
            if number < first:
                break
            if number != self._journal.number:
                held_bytes += use.end
        return held_bytes

    def _segment_of(self, reader: NamedReader) -> int:
        """The segment of the first record after the position."""
        found = 0
        for number, use in reversed(self._state.segments.items()):
            found = number
            if use.first_sequence <= reader.position.sequence + 1:
                break
        return found

    def _epoch_of(self, sequence: int) -> int:
        for use in reversed(self._state.segments.values()):
            if use.first_sequence <= sequence:
                return use.epoch
        return 0

    # --- requests -------------------------------------------------------------------------------

    def get(self, name: str) -> NamedReader:
        """A reader. Raises ResourceNotFound."""
        try:
            return self._readers[name]
        except KeyError:
            raise ResourceNotFound(f"no reader {name!r}") from None

    def register(self, name: str, position: LogPosition, bytes_max: int) -> NamedReader:
        """Hold segments for a reader from a position on. One that exists keeps its position and takes the new limit.

        Args:
            name: Letters, digits and ``._:-``, at most 128.
            position: Last record that the reader does not need.
            bytes_max: Limit of the bytes that it holds.

        Raises:
            ManagementError: invalid name or limit, the reader was dropped, or the position is not in the log.
            LimitExceeded: there are too many readers.
        """
        if _NAME.fullmatch(name) is None:
            raise ManagementError(
                f"{name[:140]!r} is no name of a reader", hint="letters, digits and ._:-, at most 128"
            )
        if not 1 <= bytes_max <= READER_HELD_BYTES_MAX:
            raise ManagementError(
                f"reader {name!r}: the limit of {bytes_max} bytes is not in 1..{READER_HELD_BYTES_MAX}"
            )
        known = self._readers.get(name)
        if known is not None:
            self._check_held(known)
            return known if known.bytes_max == bytes_max else self._keep(replace(known, bytes_max=bytes_max))
        if len(self._readers) >= NAMED_READERS_MAX:
            raise LimitExceeded(f"{len(self._readers)} readers, limit {NAMED_READERS_MAX}")
        self._check_position(name, position)
        now_ms = self._clock.wall_ms()
        log.info("reader registered", extra={"reader": name, "sequence": position.sequence, "bytes_max": bytes_max})
        return self._keep(NamedReader(name, position, bytes_max, now_ms, now_ms))

    def commit(self, name: str, position: LogPosition) -> NamedReader:
        """Called when the reader has processed everything up to the position. An earlier position than the present one
        changes nothing: a retried batch commits again.

        Raises:
            ResourceNotFound: no such reader.
            ManagementError: it was dropped, or the position is not in the log.
        """
        reader = self.get(name)
        self._check_held(reader)
        self._check_position(name, position)
        if position.sequence <= reader.position.sequence:
            return reader
        return self._keep(replace(reader, position=position, committed_ms=self._clock.wall_ms()))

    def remove(self, name: str) -> NamedReader:
        """Forget a reader; segments that only it held may be removed. Raises ResourceNotFound."""
        reader = self.get(name)
        self._store(SettingRecord(SettingKind.READER, name, None))
        del self._readers[name]
        log.info("reader removed", extra={"reader": name, "sequence": reader.position.sequence})
        return reader

    def enforce(self) -> None:
        """Drop the readers that hold more than their limit."""
        for reader in list(self._readers.values()):
            held_bytes = self.held_bytes(reader)
            if held_bytes <= reader.bytes_max:
                continue
            reason = f"it held {held_bytes} bytes of the log, its limit is {reader.bytes_max}"
            dropped = self._keep(replace(reader, dropped=reason))
            self.dropped_count += 1
            log.error(
                "reader dropped: segments that it has not read may be removed",
                extra={"reader": reader.name, "sequence": reader.position.sequence, "reason": reason},
            )
            for listener in self.listeners:
                listener(dropped)

    def _check_held(self, reader: NamedReader) -> None:
        if reader.dropped is not None:
            raise ManagementError(
                f"reader {reader.name!r} was dropped at sequence {reader.position.sequence}: {reader.dropped}",
                hint="remove it and register it again; records after that sequence may be gone",
            )

    def _check_position(self, name: str, position: LogPosition) -> None:
        """Refuse a position of which the log, from the next record on, is not complete, or that is of another log."""
        earliest, confirmed = self.earliest, self.confirmed
        if position.sequence < earliest.sequence:
            raise ManagementError(
                f"reader {name!r}: the records {position.sequence + 1} to {earliest.sequence} are not complete"
                " in the log any more"
            )
        if position.sequence > confirmed.sequence:
            raise ManagementError(
                f"reader {name!r}: sequence {position.sequence} is after the confirmed end, {confirmed.sequence}"
            )
        epoch = self._epoch_of(position.sequence)
        if epoch and position.epoch and position.epoch != epoch:
            raise ManagementError(
                f"reader {name!r}: sequence {position.sequence} is of epoch {epoch}, not {position.epoch}",
                hint="it was read from a copy that is no part of this log",
            )

    def _keep(self, reader: NamedReader) -> NamedReader:
        self._store(_encoded(reader))
        self._readers[reader.name] = reader
        return reader


def _encoded(reader: NamedReader) -> SettingRecord:
    values: dict[str, object] = {
        "epoch": reader.position.epoch,
        "sequence": reader.position.sequence,
        "bytes_max": reader.bytes_max,
        "registered_ms": reader.registered_ms,
        "committed_ms": reader.committed_ms,
    }
    if reader.dropped is not None:
        values["dropped"] = reader.dropped
    return SettingRecord(SettingKind.READER, reader.name, values)


def _decoded(record: SettingRecord) -> NamedReader:
    values = record.values or {}

    def number(name: str) -> int:
        value = values.get(name)
        if type(value) is not int or value < 0:
            raise StoreError(f"the reader {record.match!r} in the log is invalid: {name} is {value!r}")
        return value

    dropped = values.get("dropped")
    if not (dropped is None or isinstance(dropped, str)):
        raise StoreError(f"the reader {record.match!r} in the log is invalid: dropped is {dropped!r}")
    return NamedReader(
        record.match,
        LogPosition(number("epoch"), number("sequence")),
        number("bytes_max"),
        number("registered_ms"),
        number("committed_ms"),
        dropped,
    )


def appended_to(journal: Journal, state: StoreState) -> Callable[[SettingRecord], None]:
    """Appends records of readers that a log has already, which need no other format version, to its journal."""

    def store(record: SettingRecord) -> None:
        journal.append(RecordType.SETTING, encode_setting(record))
        state.apply_setting(record)

    return store
