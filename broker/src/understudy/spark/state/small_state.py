"""The part of a store's state that does not grow with messages: segments, bindings, settings, and when queues went.

The driver replays the few records that say it with ``store.state``, up to a position and up to the end of the log.

Not here: references, transactions and duplicate ids, which are worked out by Spark (``state_rows``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from understudy.dataclass import dataclass
from understudy.errors import JournalCorrupt
from understudy.ports import Disk
from understudy.spark.journal.log_plan import LogPlan, Piece, read_small_state
from understudy.spark.state.effects import SEGMENT
from understudy.store.log.records import RecordType, decode
from understudy.store.log.segment import HEADER_BLOCK_BYTES
from understudy.store.messages.reference import pack_location
from understudy.store.snapshots.snapshot import parse_snapshot_name
from understudy.store.state import StoreState

_FIRST_BYTES: Final = HEADER_BLOCK_BYTES


@dataclass(slots=True)
class Position:
    """The end of a segment."""

    number: int
    epoch: int
    offset: int
    sequence: int
    batch: int


@dataclass(slots=True)
class Removals:
    """Records after which nothing that came before is in a queue."""

    queues: dict[int, int] = field(default_factory=dict)
    """Every queue id that was ever bound to the sequence of the last such record, 0 for none."""
    unbound: int = 0
    """Sequence of the last checkpoint, which removes all queues that it does not list; 0 for none."""


@dataclass(slots=True)
class SmallState:
    """The state at a position, and the queues that later records remove."""

    state: StoreState
    last_sequence: int
    """Last sequence of the log, not of the position."""
    epoch: int
    """Epoch of the log."""
    removed: Removals
    """Removals by records up to the position."""
    removed_later: Removals
    """Removals by records up to the end of the log."""
    duplicate_ids_from: dict[int, int] = field(default_factory=dict)
    """Address id to the sequence from which on its duplicate ids are to be added to those in ``state``."""
    removable: dict[int, int] = field(default_factory=dict)
    """At the end of the log: segments that are no part of it any more."""


def positions(plan: LogPlan, summaries: Mapping[int, Mapping[str, Any]]) -> list[Position]:
    """The ends of finished segments after which more of the log follows, in order.

    A segment is finished if it is sealed, or of an epoch that has ended. As for the broker, the log goes on after it.
    """
    pieces = plan.pieces[plan.in_snapshot :]
    found = []
    for piece in pieces[:-1]:
        row = summaries.get(piece.number)
        if row is None or not row["sequence"]:
            continue
        sealed = piece.digest is not None
        if sealed or piece.epoch < pieces[-1].epoch:
            # a seal is a batch of its own
            found.append(Position(piece.number, piece.epoch, row["offset"], row["sequence"], row["count"]))
    return found


class SmallReplay:
    """Replays the small records of one log."""

    def __init__(self, disk: Disk, plan: LogPlan, rows: Iterable[Mapping[str, Any]], id_cache_size: int) -> None:
        """
        Args:
            disk: Where the log is.
            rows: Rows of ``effects`` with a summary or a small record, in any order.
            id_cache_size: Duplicate ids kept per address.
        """
        self._disk = disk
        self._plan = plan
        self._id_cache_size = id_cache_size
        self.summaries: dict[int, Mapping[str, Any]] = {}
        """Summaries by segment number."""
        self._records: dict[int, list[Mapping[str, Any]]] = {}
        for row in rows:
            if row["kind"] == SEGMENT:
                self.summaries[row["segment"]] = row
            else:
                self._records.setdefault(row["segment"], []).append(row)
        for each in self._records.values():
            each.sort(key=lambda row: int(row["sequence"]))

    def choose(self) -> tuple[Position, SmallState] | None:
        """The last position at which the log can be cut, and the state there; None if there is none."""
        for position in reversed(positions(self._plan, self.summaries)):
            found = self.at(position)
            if found is not None:
                return position, found
        return None

    def at(self, position: Position) -> SmallState | None:
        """The state at a position; None within a checkpoint.

        Raises:
            JournalCorrupt: a record that cannot be.
        """
        early, late = _Walk(self._begin()), _Walk(self._begin())
        for piece in self._plan.pieces[self._plan.in_snapshot :]:
            late.take(piece, self.summaries.get(piece.number), self._records.get(piece.number, ()))
            if piece.number <= position.number:
                early.take(piece, self.summaries.get(piece.number), self._records.get(piece.number, ()))
        if early.state.in_checkpoint:
            return None
        last = self._plan.pieces[-1]
        return SmallState(
            early.state, late.sequence, last.epoch, early.removals, late.removals, early.duplicate_ids_from,
            late.state.removable,
        )  # fmt: skip

    def _begin(self) -> StoreState:
        if self._plan.snapshot is None:
            return StoreState(self._id_cache_size)
        state = read_small_state(self._disk, self._plan.directory, self._plan.snapshot, self._id_cache_size)
        parsed = parse_snapshot_name(self._plan.snapshot)
        assert parsed is not None, "a plan names a snapshot"
        state.sequence = parsed[1]
        return state


class _Walk:
    """One replay of a log in plain Python."""

    def __init__(self, state: StoreState) -> None:
        self.state = state
        self.sequence = 0
        self.removals = Removals(dict.fromkeys(state.queues, 0))
        self.duplicate_ids_from = dict.fromkeys(state.addresses, 0)

    def take(self, piece: Piece, summary: Mapping[str, Any] | None, records: Sequence[Mapping[str, Any]]) -> None:
        """Replay one more segment."""
        if summary is None or not summary["sequence"]:
            return
        state = self.state
        use = state.begin_segment(piece.number, piece.epoch, summary["file_id"])
        use.message_id_min, use.message_id_max = summary["message_id"], summary["address_id"]
        use.end = summary["offset"]
        for row in records:
            place = pack_location(piece.number, row["offset"] or 0, row["length"])
            try:
                record = decode(row["kind"], row["count"], bytes(row["value"]))
            except ValueError as error:
                raise JournalCorrupt(str(error), file=piece.path, offset=_FIRST_BYTES) from error
            state.apply(record, row["sequence"], piece.number, place)
            self._note(row["kind"], row["sequence"], record)
        self.sequence = state.sequence = summary["sequence"]

    def _note(self, kind: int, sequence: int, record: Any) -> None:
        """A record that removes references, or begins the duplicate ids of addresses."""
        state = self.state
        queues = self.removals.queues
        if kind == RecordType.QUEUE_ADD:
            queues.setdefault(record.queue_id, self.removals.unbound)
        elif kind == RecordType.QUEUE_REMOVE:
            queues[record.queue_id] = sequence
        elif kind == RecordType.ADDRESS_ADD:
            self.duplicate_ids_from.setdefault(record.address_id, sequence)
        elif kind == RecordType.ADDRESS_REMOVE:
            self.duplicate_ids_from.pop(record.address_id, None)
        elif kind == RecordType.CHECKPOINT and record.last and not state.in_checkpoint:
            self.removals.unbound = sequence
            for queue_id in state.queues:
                queues.setdefault(queue_id, 0)
            queues.update(dict.fromkeys(queues.keys() - state.queues.keys(), sequence))
            self.duplicate_ids_from = dict.fromkeys(state.addresses, sequence)
