"""Looking into a log without touching it: for ``understudy data print`` and ``data verify``.

Strictly read-only. Reads what the bytes say, whether or not a node could start from them: every
segment in the directory is walked as far as it goes, also those that are no part of the log.

Not here: how it is shown (``cli.data.commands``); repairing anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import JournalCorrupt, RemoteProtocolError
from understudy.kernel.log import crc32
from understudy.message import Message
from understudy.ports import Disk, File
from understudy.store.log.chain import Chain, Link, read_chain
from understudy.store.log.reading.follower import Follower, recover
from understudy.store.log.reading.replay import Frame, find_later_record, read_frames, unfinished_bytes
from understudy.store.log.records import (
    HEADER_BYTES,
    SEAL_FIXED_BYTES,
    MessageRecord,
    Record,
    RecordType,
    SealRecord,
    decode,
)
from understudy.store.log.segment import HEADER_BLOCK_BYTES, parse_name, read_header, read_seal, seed_of
from understudy.store.quarantine import KnownDamage, QuarantineEntry, read_entries, read_known_damage
from understudy.store.snapshots.snapshot import check_snapshot, parse_snapshot_name, snapshot_names

_READ_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LoggedRecord:
    """One record of the log with its place."""

    number: int
    """Number of the segment that has the record."""
    epoch: int
    frame: Frame
    record: Record


@dataclass(frozen=True, slots=True)
class Problem:
    """Place and description of a damage."""

    file: str
    offset: int
    message: str


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """Findings of ``verify`` in one segment."""

    file: str
    number: int
    epoch: int
    part_of_log: bool
    """False for records that were truncated or written by a zombie."""
    state: str
    """``open``, ``sealed``, ``closed``, ``ended`` (by a newer epoch), ``empty`` or ``damaged``."""
    records: int
    first_sequence: int
    """Sequence of the first record of the segment; 0 if it has none."""
    last_sequence: int
    used_bytes: int
    """Header and valid records that count."""
    size_bytes: int
    tail_bytes: int
    """Bytes that are not zero after the last valid record: a torn tail, or a zombie's."""
    problem: Problem | None


@dataclass(frozen=True, slots=True)
class SnapshotReport:
    """Findings of ``verify`` in one snapshot."""

    file: str
    epoch: int
    """Epoch of the node that wrote it."""
    sequence: int
    """The log up to here is in it."""
    references: int
    size_bytes: int
    used: bool
    """A node that starts now begins with it."""
    problem: Problem | None


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Findings of ``verify`` in a store."""

    node_id: str | None
    epoch: int
    segments: tuple[SegmentReport, ...]
    snapshots: tuple[SnapshotReport, ...]
    """Snapshots of the store, the newest first."""
    records: int
    last_sequence: int
    live_messages: int
    """References in queues; 0 if the log cannot be read to its end."""
    problems: tuple[Problem, ...]
    quarantine: tuple[QuarantineEntry, ...] = ()
    """Entries of the quarantine, the oldest first. Its extents in the log are no problems."""


def segment_links(disk: Disk, directory: str) -> tuple[Chain, list[tuple[Link, bool]]]:
    """The chain, and every complete segment in the directory with whether it is part of it.

    Raises:
        StoreError: the chain cannot be read.
    """
    names = disk.list(directory)
    chain = read_chain(disk, directory, names)
    in_chain = {(link.number, link.epoch): link for link in chain.links}
    found: list[tuple[Link, bool]] = []
    for name in names:
        parsed = parse_name(name)
        if parsed is not None and parsed[2]:
            link = in_chain.get(parsed[:2])
            found.append((link or Link(parsed[0], parsed[1], None), link is not None))
    return chain, found


def read_log(disk: Disk, directory: str) -> Iterator[LoggedRecord]:
    """Every record of the log, in order, until its end or the first bad one.

    Raises:
        JournalCorrupt: a valid record that cannot be understood, or the chain is damaged.
    """
    known = read_known_damage(disk, directory)
    for link in _log_links(disk, directory):
        damaged_at = partial(known.length_at, link.number, link.epoch)
        path = f"{directory}/{link.name}"
        file = disk.open(path, read_only=True)
        try:
            for frame, raw in read_frames(file, seed_of(link.number, link.epoch), link.end, damaged_at):
                try:
                    record = decode(frame.kind, frame.flags, raw[HEADER_BYTES:])
                except ValueError as error:
                    raise JournalCorrupt(str(error), file=path, offset=frame.offset) from error
                yield LoggedRecord(link.number, link.epoch, frame, record)
        finally:
            file.close()


def _log_links(disk: Disk, directory: str) -> list[Link]:
    """The segments of the log, also those that only a snapshot lists."""
    chain = read_chain(disk, directory, disk.list(directory))
    if chain.trimmed or chain.missing:
        with suppress(JournalCorrupt):
            follower = recover(disk, directory)
            follower.close()
            newest = follower.chain.epoch
            return [Link(end.number, end.epoch, end.end if end.epoch < newest else None) for end in follower.ends()]
    return list(chain.links)


def verify(disk: Disk, directory: str, progress: Callable[[int, int], None] = lambda done, total: None) -> VerifyReport:
    """Check every byte of every segment.

    Args:
        disk: Where the store is; only read.
        progress: Gets the numbers of segments done and all segments.

    Raises:
        DiskFailed: something cannot be read.
    """
    problems: list[Problem] = []
    chain: Chain | None = None
    follower: Follower | None = None
    try:
        chain, links = segment_links(disk, directory)
        follower = recover(disk, directory)
        links = _links_of(follower, links)
    except JournalCorrupt as error:
        problems.append(Problem(error.file, error.offset, _bare(error)))
        if chain is None:
            links = [(Link(p[0], p[1], None), False) for p in map(parse_name, disk.list(directory)) if p and p[2]]
    complete = follower.state.complete if follower is not None else 0
    entries = [kept.entry for kept in read_entries(disk, directory)]
    known = KnownDamage(entries)
    reports: list[SegmentReport] = []
    sequence = 0
    last = chain.links[-1] if chain is not None and chain.links else None
    for done, (link, part_of_log) in enumerate(links):
        progress(done, len(links))
        # segments below this one may be missing: a snapshot replaces them
        follows = sequence if part_of_log and link.number > complete else 0
        report = _verify_segment(disk, directory, link, part_of_log, follows, link == last, known)
        if report.problem is not None and not disk.exists(report.file):
            # removed by a running node while it was read, and a later segment is made of the file
            continue
        reports.append(report)
        if report.problem is not None:
            _add(problems, report.problem)
        if part_of_log and report.last_sequence:
            sequence = report.last_sequence
    snapshots = _verify_snapshots(disk, directory, follower)
    for snapshot in snapshots:
        if snapshot.problem is not None:
            _add(problems, snapshot.problem)
    progress(len(links), len(links))
    return VerifyReport(
        chain.node_id if chain is not None else None,
        chain.epoch if chain is not None else 0,
        tuple(reports),
        tuple(snapshots),
        sum(report.records for report in reports if report.part_of_log),
        sequence,
        sum(len(backlog) for backlog in follower.state.references.values()) if follower is not None else 0,
        tuple(problems),
        tuple(sorted((entry for entry in entries if not entry.dropped), key=lambda entry: entry.found_ms)),
    )


def _links_of(follower: Follower, links: list[tuple[Link, bool]]) -> list[tuple[Link, bool]]:
    """The links with the facts of a snapshot: older segments and their ends, and dropped segments."""
    epoch = follower.chain.epoch
    known = {(end.number, end.epoch): end.end if end.epoch < epoch else None for end in follower.ends()}
    dropped = follower.state.removable
    return [
        (
            Link(link.number, link.epoch, known.get((link.number, link.epoch), link.end)),
            (part_of_log and dropped.get(link.number) != link.epoch) or (link.number, link.epoch) in known,
        )
        for link, part_of_log in links
    ]


def _add(problems: list[Problem], problem: Problem) -> None:
    if not any((known.file, known.offset) == (problem.file, problem.offset) for known in problems):
        problems.append(problem)


def _verify_snapshots(disk: Disk, directory: str, follower: Follower | None) -> list[SnapshotReport]:
    reports = []
    for name in snapshot_names(disk.list(directory)):
        path = f"{directory}/{name}"
        file = disk.open(path, read_only=True)
        references = 0
        problem: Problem | None = None
        try:
            references = check_snapshot(file, name).references
        except JournalCorrupt as error:
            problem = Problem(path, error.offset, _bare(error))
        finally:
            size_bytes = file.size()
            file.close()
        rejected = follower.rejected.get(name) if follower is not None else None
        if problem is None and rejected is not None:
            problem = Problem(path, rejected.offset, _bare(rejected))
        used = follower is not None and follower.base is not None and follower.base.name == name
        parsed = parse_snapshot_name(name)
        assert parsed is not None
        reports.append(SnapshotReport(path, parsed[0], parsed[1], references, size_bytes, used, problem))
    return reports


def _bare(error: JournalCorrupt) -> str:
    return str(error).removeprefix(f"{error.file} at offset {error.offset}: ")


def _verify_segment(
    disk: Disk,
    directory: str,
    link: Link,
    part_of_log: bool,
    sequence: int,
    is_last: bool,
    known: KnownDamage,
) -> SegmentReport:
    path = f"{directory}/{link.name}"
    seed = seed_of(link.number, link.epoch)
    file = disk.open(path, read_only=True)
    try:
        problem: Problem | None = None
        try:
            header = read_header(file, link.number, link.epoch)
        except JournalCorrupt as error:
            problem = Problem(path, error.offset, _bare(error))
            header = None
        count = first = last = 0
        used = HEADER_BLOCK_BYTES
        seal: SealRecord | None = None
        offsets: list[int] = []
        damaged_at = partial(known.length_at, link.number, link.epoch)
        damaged = known.touches(link.number, link.epoch)
        for frame, raw in read_frames(file, seed, link.end, damaged_at):
            while sequence and used < frame.offset and damaged_at(used):
                used += damaged_at(used)
                sequence += 1
            if sequence and frame.sequence != sequence + 1:
                problem = problem or Problem(path, frame.offset, f"sequence {frame.sequence} after {sequence}")
                break
            try:
                record = decode(frame.kind, frame.flags, raw[HEADER_BYTES:])
            except ValueError as error:
                problem = problem or Problem(path, frame.offset, str(error))
                break
            problem = problem or _check_message(path, frame, record)
            seal = record if isinstance(record, SealRecord) else None
            if seal is None:
                offsets.append(frame.offset)
            count += 1
            first = first or frame.sequence
            sequence = last = frame.sequence
            used = frame.offset + frame.length
        while damaged_at(used):
            used += damaged_at(used)
            sequence += 1
        size = file.size()
        rest = file.read(used, max(size - used, 0)) if seal is None or link.end is None else b""
        tail_bytes = unfinished_bytes(rest, used, seed, above=sequence)
        if problem is None and seal is not None and not damaged:
            problem = _check_seal(file, path, seal, used, offsets)
        if problem is None and link.end is not None and used != link.end:
            problem = Problem(path, used, f"record {sequence + 1} is damaged or missing")
        elif problem is None and header is not None and part_of_log and link.end is None and seal is None:
            problem = _check_open(path, header.allocated_bytes, size, used, rest, seed, sequence)
            if problem is None and read_seal(file, header) is not None:
                problem = Problem(path, used, "records before a valid seal are damaged")
        state = _state_of(problem, seal, link, count)
        if problem is None and state == "sealed" and is_last:
            problem = Problem(path, used, "the segment is sealed and the next one is missing")
        return SegmentReport(
            path, link.number, link.epoch, part_of_log, state, count, first, last, used, size, tail_bytes, problem
        )
    finally:
        file.close()


def _state_of(problem: Problem | None, seal: SealRecord | None, link: Link, count: int) -> str:
    if problem is not None:
        return "damaged"
    if seal is not None:
        return "closed" if seal.closed else "sealed"
    if not count:
        return "empty"
    return "open" if link.end is None else "ended"


def _check_open(
    path: str, allocated_bytes: int, size: int, used: int, rest: bytes, seed: int, sequence: int
) -> Problem | None:
    """A segment of the newest epoch without a seal: its records may only end in a torn tail."""
    if size < allocated_bytes:
        return Problem(path, used, f"the file has {size} of {allocated_bytes} allocated bytes and no seal")
    if find_later_record(rest, used, seed, above=sequence, after=used) is not None:
        return Problem(path, used, f"record {sequence + 1} is damaged or missing")
    return None


def _check_message(path: str, frame: Frame, record: Record) -> Problem | None:
    if isinstance(record, MessageRecord):
        try:
            Message.decode(record.encoded, trusted=True)
        except RemoteProtocolError as error:
            return Problem(path, frame.offset, f"message {record.message_id} cannot be decoded: {error}")
    return None


def _check_seal(file: File, path: str, seal: SealRecord, used: int, offsets: list[int]) -> Problem | None:
    at = used - SEAL_FIXED_BYTES - 4 * seal.count
    digest = 0
    for start in range(0, at, _READ_BYTES):
        digest = crc32(file.read(start, min(_READ_BYTES, at - start)), digest)
    if digest != seal.digest:
        return Problem(path, at, "the digest in the seal is not that of the segment")
    if list(seal.offsets) != offsets:
        return Problem(path, at, "the offsets in the seal are not those of the records")
    return None


def describe(logged: LoggedRecord, node_id: str | None) -> dict[str, object]:
    """Convert a record to plain values for JSON lines, without the body of a message."""
    frame, record = logged.frame, logged.record
    values: dict[str, object] = {
        "node": node_id,
        "epoch": logged.epoch,
        "sequence": frame.sequence,
        "segment": logged.number,
        "offset": frame.offset,
        "length": frame.length,
        "kind": RecordType(frame.kind).name,
    }
    if isinstance(record, SealRecord):
        fields: dict[str, object] = {"records": record.count, "digest": f"{record.digest:08x}", "closed": record.closed}
        return values | fields
    for name in getattr(type(record), "__slots__", ()):
        value = getattr(record, name)
        if name == "encoded":
            values |= _describe_message(value)
        elif isinstance(value, bytes):
            values[name] = value.hex()
        elif name == "items":
            values[name] = len(value)
        elif name == "ends":
            values[name] = [[end.number, end.epoch, end.end] for end in value]
        elif name == "settings":
            values[name] = dict(value)
        else:
            values[name] = list(value) if isinstance(value, tuple) else value
    return values


def _describe_message(encoded: bytes) -> dict[str, object]:
    try:
        message = Message.decode(encoded, trusted=True)
    except RemoteProtocolError as error:
        return {"size_bytes": len(encoded), "undecodable": str(error)}
    return {"size_bytes": len(encoded), "address": message.address, "timestamp": message.timestamp}


def is_store(disk: Disk, directory: str) -> bool:
    """Whether the directory holds a segment."""
    return any(parse_name(name) for name in disk.list(directory))
