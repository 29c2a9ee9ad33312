"""Copies of one node's log against each other: which is newest, where they split, what each has alone.

Newest is decided by epoch and sequence, never by the times of files. Segments whose seals agree are
not read; from the first that differs on, records are compared one by one, by contents and not
by where they lie. A copy that ends earlier than another, also in the middle of a batch, is a prefix
of it.

Strictly read-only. Not here: how it is shown (``cli.data.checks.compare``); changing anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from enum import Enum
from itertools import combinations

from understudy.dataclass import dataclass
from understudy.errors import JournalCorrupt, WrongNode
from understudy.ports import Disk
from understudy.tools.contents import (
    Contents,
    Counterpart,
    LiveMessage,
    Tally,
    beginning_is_missing,
    live_messages,
    read_contents,
    split_at,
    tally,
)
from understudy.tools.inspect import Problem
from understudy.tools.log_copy import CopyState, LogCopy, bare_message


class Relation(Enum):
    """Relation of the log of one copy to that of another."""

    IDENTICAL = "identical"
    PREFIX = "prefix"
    """The left copy is the beginning of the right one."""
    EXTENSION = "extension"
    """The right copy is the beginning of the left one."""
    DIVERGED = "diverged"
    UNKNOWN = "unknown"
    """The copies have no record in common: one begins after the end of the other."""


@dataclass(frozen=True, slots=True)
class Place:
    """Location of a record in one copy of a log."""

    epoch: int
    file: str
    offset: int


@dataclass(frozen=True, slots=True)
class QueueShare:
    """Messages of one queue that one side has alone."""

    queue: str
    address: str
    messages: int
    size_bytes: int


@dataclass(slots=True)
class Side:
    """Contents that only one copy of a pair has."""

    records: int = 0
    messages: int = 0
    acknowledgements: int = 0
    commits: int = 0
    rollbacks: int = 0
    prepares: int = 0
    replay: list[QueueShare] = field(default_factory=list)
    """Live messages that the other copy never had, which are to be brought over to it."""
    sample: list[dict[str, object]] = field(default_factory=list)
    """The first of the messages that only this copy has."""
    settled: int = 0
    """Live messages that the other copy had too and that left their queue there: they come again
    if this copy is the one that goes on."""

    @property
    def replay_messages(self) -> int:
        """Number of messages to send again."""
        return sum(share.messages for share in self.replay)


@dataclass(slots=True)
class Pair:
    """Two copies of a store that are compared."""

    left: int
    """Index of the copy."""
    right: int
    relation: Relation
    sequence: int = 0
    """First sequence at which they differ: of the first record that one of them lacks, or both have
    in two versions; 0 if they are identical or unknown."""
    left_place: Place | None = None
    right_place: Place | None = None
    left_only: Side = field(default_factory=Side)
    right_only: Side = field(default_factory=Side)


@dataclass(slots=True)
class CopyReport:
    """Figures of one copy of a store."""

    directory: str
    node_id: str | None
    epoch: int
    first_sequence: int
    last_sequence: int
    segments: int
    state: str
    problem: Problem | None
    live_messages: int | None = None
    """References in queues; None if nothing asked for them."""
    prepared: int = 0
    """Number of prepared transactions, whose messages do not count as live."""


@dataclass(slots=True)
class Comparison:
    """Verdict of a comparison of two copies."""

    copies: list[CopyReport]
    newest: list[int]
    """Index of the copies with the highest epoch and sequence."""
    pairs: list[Pair]

    @property
    def diverged(self) -> bool:
        """Whether two of the copies have diverged, or may have."""
        return any(pair.relation in (Relation.DIVERGED, Relation.UNKNOWN) for pair in self.pairs)

    @property
    def damaged(self) -> bool:
        """Whether one of the copies is damaged."""
        return any(copy.state == CopyState.DAMAGED.value for copy in self.copies)


Progress = Callable[[str], None]


def compare(
    disk: Disk,
    directories: Sequence[str],
    *,
    full: bool = False,
    sample: int = 0,
    progress: Progress = lambda doing: None,
) -> Comparison:
    """Compare every copy with every other.

    Args:
        disk: Where they are; only read.
        directories: Directories of at least two copies.
        full: Check the bytes of sealed segments against their digests too.
        sample: Messages of each replay set to list.
        progress: Called with each step.

    Raises:
        WrongNode: they are not of one node.
        StoreVersionUnsupported, DiskFailed: one cannot be read.
    """
    copies = []
    for directory in directories:
        progress(f"reading {directory}")
        copies.append(LogCopy(disk, directory, full=full))
    check_same_node(copies)
    while True:
        ends = [copy.last_sequence for copy in copies]
        comparison = _compare(copies, sample, progress)
        if ends == [copy.last_sequence for copy in copies]:
            return comparison
        # damage was found on the way: earlier findings cover more than can be read


def _compare(copies: list[LogCopy], sample: int, progress: Progress) -> Comparison:
    pairs = []
    for left, right in combinations(range(len(copies)), 2):
        progress(f"comparing {copies[left].directory} and {copies[right].directory}")
        pairs.append(_relate(copies, left, right))
    splits: dict[int, set[int]] = {}
    for pair in pairs:
        if pair.relation not in (Relation.IDENTICAL, Relation.UNKNOWN):
            splits.setdefault(pair.left, set()).add(pair.sequence)
            splits.setdefault(pair.right, set()).add(pair.sequence)
    contents: dict[int, Contents] = {}
    for index, sequences in splits.items():
        progress(f"reading what lives in {copies[index].directory}")
        contents[index] = read_contents(copies[index], sorted(sequences))
        if beginning_is_missing(copies[index], contents[index]):
            _note_missing_beginning(copies[index])
    for pair in pairs:
        if pair.relation not in (Relation.IDENTICAL, Relation.UNKNOWN):
            _fill_sides(copies, contents, pair, sample)
    positions = [copy.position for copy in copies]
    reports = [_report(copy, contents.get(index)) for index, copy in enumerate(copies)]
    return Comparison(reports, [i for i, position in enumerate(positions) if position == max(positions)], pairs)


def _report(copy: LogCopy, contents: Contents | None) -> CopyReport:
    return CopyReport(
        copy.directory,
        copy.node_id,
        copy.position[0],
        copy.first_sequence,
        copy.last_sequence,
        len(copy.extents),
        copy.state.value,
        copy.problem,
        sum(map(len, contents.state.references.values())) if contents is not None else None,
        contents.prepared if contents is not None else 0,
    )


def _note_missing_beginning(copy: LogCopy) -> None:
    if copy.state is not CopyState.DAMAGED:
        copy.state = CopyState.DAMAGED
        path = f"{copy.directory}/{copy.extents[0].name}"
        message = (
            f"the log begins with sequence {copy.first_sequence}, but no record says that earlier ones were trimmed"
        )
        copy.problem = Problem(path, 0, message)


def check_same_node(copies: Sequence[LogCopy]) -> None:
    """Raises:
    WrongNode: the copies belong to different nodes.
    """
    known = [copy for copy in copies if copy.node_id is not None]
    for copy in known[1:]:
        if copy.node_id != known[0].node_id:
            raise WrongNode(
                f"{known[0].directory} is of node {known[0].node_id}, {copy.directory} of node {copy.node_id}",
                hint="only copies of one node's store can be compared",
            )


# --- where two copies split -----------------------------------------------------------------------


def first_difference(left: LogCopy, right: LogCopy) -> int | None:
    """The first sequence at which two copies differ, at most the end of the shorter one plus one;
    None when they have no record in common, and so nothing tells where they split.
    """
    if not left.extents or not right.extents:
        return max(left.first_sequence, right.first_sequence, 1)
    sequence = max(left.first_sequence, right.first_sequence)
    first = sequence
    if sequence > min(left.last_sequence, right.last_sequence):
        return None
    # the ends are asked again each time: reading may meet damage
    while sequence <= min(left.last_sequence, right.last_sequence):
        left_extent, right_extent = left.extent_of(sequence), right.extent_of(sequence)
        if left_extent.is_same(right_extent):
            sequence = left_extent.last_sequence + 1
            continue
        stop = min(left_extent.last_sequence, right_extent.last_sequence)
        for mine, theirs in zip(left.read(sequence, stop), right.read(sequence, stop), strict=False):
            if not mine.is_same(theirs):
                # a record that one of the copies has removed may have been different before
                return sequence if sequence > first or first == 1 else None
            sequence += 1
    return min(sequence, min(left.last_sequence, right.last_sequence) + 1)


def _relate(copies: list[LogCopy], left: int, right: int) -> Pair:
    one, other = copies[left], copies[right]
    sequence = first_difference(one, other)
    if sequence is None:
        return Pair(left, right, Relation.UNKNOWN)
    left_more, right_more = one.last_sequence >= sequence, other.last_sequence >= sequence
    if not left_more and not right_more:
        return Pair(left, right, Relation.IDENTICAL)
    one_ends = Relation.EXTENSION if left_more else Relation.PREFIX
    relation = Relation.DIVERGED if left_more and right_more else one_ends
    return Pair(left, right, relation, sequence, _place(one, sequence), _place(other, sequence))


def _place(copy: LogCopy, sequence: int) -> Place | None:
    for entry in copy.read(sequence, sequence):
        return Place(entry.epoch, copy.extent_of(sequence).name, entry.frame.offset)
    return None


# --- what each has alone ----------------------------------------------------------------------------


def _fill_sides(copies: list[LogCopy], contents: dict[int, Contents], pair: Pair, sample: int) -> None:
    one, other = contents[pair.left], contents[pair.right]
    left_open = one.open_at.get(pair.sequence, {})
    right_open = other.open_at.get(pair.sequence, {})
    left_tally = tally(copies[pair.left], pair.sequence, frozenset(left_open))
    right_tally = tally(copies[pair.right], pair.sequence, frozenset(right_open))
    pair.left_only = _side(copies[pair.left], one, other, pair.sequence, left_tally, right_tally, sample)
    pair.right_only = _side(copies[pair.right], other, one, pair.sequence, right_tally, left_tally, sample)


def counterpart(copy: LogCopy, mine: Contents, theirs: Contents, sequence: int, committed: set[int]) -> Counterpart:
    """Records of the other copy of a log that has split, for ``live_messages``."""
    open_here = mine.open_at.get(sequence, {})
    uncommitted = [added for tx_id, added in open_here.items() if tx_id not in committed]
    origins = mine.state.origins or {}
    return Counterpart(split_at(copy, sequence), frozenset().union(*uncommitted), theirs.state, origins)


def _side(
    copy: LogCopy, mine: Contents, theirs: Contents, sequence: int, own: Tally, their: Tally, sample: int
) -> Side:
    facing = counterpart(copy, mine, theirs, sequence, their.committed)
    side = Side(own.records, own.messages, own.acknowledgements, own.commits, own.rollbacks, own.prepares)
    shares: dict[tuple[str, str], tuple[int, int]] = {}
    try:
        for message in live_messages(copy, mine, (facing,)):
            key = (message.queue.name, message.address.name if message.address is not None else "")
            count, size_bytes = shares.get(key, (0, 0))
            shares[key] = (count + 1, size_bytes + message.reference.size_bytes)
            if len(side.sample) < sample:
                side.sample.append(_describe(message))
    except JournalCorrupt as error:
        # the crc of the record was right when it was read before
        copy.state, copy.problem = CopyState.DAMAGED, Problem(error.file, error.offset, bare_message(error))
    side.replay = [QueueShare(*key, *value) for key, value in sorted(shares.items())]
    side.settled = sum(
        facing.common(queue_id, reference) and not facing.lives_there(queue_id, reference.message_id)
        for queue_id, references in mine.state.references.items()
        for reference in references.references()
    )
    return side


def _describe(message: LiveMessage) -> dict[str, object]:
    return {
        "queue": message.queue.name,
        "message_id": message.record.message_id,
        "epoch": message.epoch,
        "sequence": message.sequence,
        "size_bytes": message.reference.size_bytes,
    }


def replay_set(disk: Disk, directory: str, others: Sequence[str]) -> tuple[LogCopy, Contents, list[Counterpart]]:
    """Contents of the other copies, by which ``live_messages`` finds messages that only one copy ever had.

    Raises:
        WrongNode: they are not of one node.
        JournalCorrupt: two of them have no record in common, so no order can be stated.
        StoreVersionUnsupported, DiskFailed: one cannot be read.
    """
    copy = LogCopy(disk, directory)
    rest = [LogCopy(disk, other) for other in others]
    check_same_node([copy, *rest])
    while True:
        end = copy.last_sequence
        sequences = []
        for other in rest:
            sequence = first_difference(copy, other)
            if sequence is None:
                raise JournalCorrupt(
                    f"no record in common with {other.directory}: one begins after the end of the other",
                    file=directory,
                    offset=0,
                )
            sequences.append(sequence)
        mine = read_contents(copy, sequences)
        counterparts = []
        for other, sequence in zip(rest, sequences, strict=True):
            theirs = read_contents(other)
            committed = tally(other, sequence, frozenset(mine.open_at.get(sequence, {}))).committed
            counterparts.append(counterpart(copy, mine, theirs, sequence, committed))
        if copy.last_sequence == end:
            return copy, mine, counterparts
