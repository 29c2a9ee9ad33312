"""Which bytes of which files the journal source reads: the pieces of the logs in some directories.

Everything is read-only. A piece is one segment with the offsets between which records count; the chain of the newest
epoch and the newest fitting snapshot decide that, as for a broker (docs/build/journal-format.md s. 3).

Not here: reading records (``decode``), and what Spark asks (``journal_source``).
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from enum import Enum
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import ConfigError, DiskFailed, JournalCorrupt, StoreInUse, WrongNode
from understudy.limits import ID_CACHE_SIZE
from understudy.local_paths import local_path
from understudy.ports import Disk, File
from understudy.runtime.base.disk import RealDisk
from understudy.spark.journal.stream_offsets import StreamOffset, parse_offset
from understudy.spark.journal.tables import TABLES, Condition, parse_conditions
from understudy.store.log.chain import Link, read_chain
from understudy.store.log.records import HEADER, HEADER_BYTES
from understudy.store.log.segment import HEADER_BLOCK_BYTES, parse_name, read_header, read_seal, segment_name
from understudy.store.snapshots.snapshot import PartType, SnapshotReader, apply_part, read_snapshot_header
from understudy.store.state import StoreState
from understudy.tools.inspect import is_store
from understudy.tools.log_copy import CopyState, LogCopy

#: Bytes of segments in one partition, unless option ``partitionBytes`` says otherwise. A Python task costs about 40 ms.
PARTITION_BYTES: Final = 128 * 1024 * 1024
_F_OFD_GETLK: Final = 36
#: ``struct flock`` with 64-bit offsets: type, whence, start, length, pid.
_FLOCK: Final = struct.Struct("hhqqi4x")


class Mode(Enum):
    """Treatment of damaged records."""

    FAIL = "fail"
    """The query fails with file and offset."""
    QUARANTINE = "quarantine"
    """Table ``records`` has a row with file, offset and length; reading goes on at the next valid record."""


class Layout(Enum):
    """Contents of the directories."""

    STORE = "store"
    """The journal directory of a broker, or a copy of one."""
    RETENTION = "retention"
    """A retention directory: segments that have left the log."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the source, checked."""

    directories: tuple[str, ...]
    table: str = "records"
    columns: str | None = None
    mode: Mode = Mode.FAIL
    layout: Layout = Layout.STORE
    in_use: bool = False
    """Read a store whose broker is running."""
    lock_directory: str | None = None
    """Directory of serverlock.1, if it is not in the directory itself."""
    mixed_nodes: bool = False
    """Accept directories of different node ids."""
    partition_bytes: int = PARTITION_BYTES
    min_partitions: int = 1
    retention: str | None = None
    """Directory of segments that have left the log, which are read as well."""
    range: tuple[StreamOffset, StreamOffset] | None = None
    """Read only the records after the first and up to the second offset of one log."""
    where: tuple[Condition, ...] = ()
    """Conditions of every row; segments without such rows are not read."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Records of one segment that belong to the log."""

    directory: str
    node_id: str
    number: int
    epoch: int
    end: int
    """Offset after the last of them; in mode QUARANTINE, and of retained segments, the end of the file."""
    first_sequence: int
    last_sequence: int
    """0: not known without reading the records."""
    digest: int | None
    """Digest of the bytes before the seal; None if there is no seal."""
    first_ms: int = 0
    """Time in ms at which the first record was appended, by the seal or the header of the file. Epoch milliseconds."""
    sealed_ms: int = 0
    """Time at which the segment was sealed; 0 if it is not sealed."""
    stated: bool = False
    """Something else than the file says that records go on up to ``end``."""
    last: bool = False
    """Whether this is the last segment of the log, which may end in a torn tail."""
    after: int = 0
    """Only records with higher sequences are read."""
    until: int = 0
    """Only records up to this sequence are read; 0 for all."""

    @property
    def name(self) -> str:
        """File name of the segment."""
        return segment_name(self.number, self.epoch)

    @property
    def path(self) -> str:
        """Absolute path of the segment."""
        return f"{self.directory}/{self.name}"


@dataclass(slots=True)
class LogPlan:
    """Segments and snapshots of the log in one directory."""

    directory: str
    node_id: str
    pieces: list[Piece] = field(default_factory=list)
    """Pieces in the order of the log."""
    snapshot: str | None = None
    """File name of the snapshot that stands for the records of the first pieces."""
    in_snapshot: int = 0
    """Number of the pieces that it stands for, and of those that have left the log."""
    retention: str | None = None
    """Directory of segments that have left the log."""


def parse_options(given: Mapping[str, str], more: str = "") -> Options:
    """Options as Spark hands them over: names in any case, values as text. ``more`` is added to the hint of the error.

    Raises:
        ConfigError: an option is unknown or has a value that it cannot have; a directory is missing.
    """
    values = {name.lower(): value for name, value in given.items()}
    # accepted without an effect: queries that were written for it have right answers without it
    _choice(values, "pushfilters", ["false", "true"])
    directories = _directories(values.pop("path", None), values.pop("paths", None))
    table = values.pop("table", "records")
    if table not in TABLES:
        raise ConfigError(f"option table: no table {table!r}", hint=f"tables: {', '.join(TABLES)}")
    options = Options(
        directories=directories,
        table=table,
        columns=values.pop("columns", None),
        mode=Mode(_choice(values, "mode", [each.value for each in Mode])),
        layout=Layout(_choice(values, "layout", [each.value for each in Layout])),
        in_use=_choice(values, "inuse", ["refuse", "read"]) == "read",
        lock_directory=path_option(values, "lockDirectory"),
        mixed_nodes=_choice(values, "nodes", ["one", "many"]) == "many",
        partition_bytes=number_option(values, "partitionbytes", PARTITION_BYTES),
        min_partitions=number_option(values, "minpartitions", 1),
        retention=None if (retention := path_option(values, "retention")) is None else os.path.abspath(retention),
        range=_range(values),
        where=parse_conditions(values.pop("where", None), table),
    )
    if values:
        known = (
            "columns, endingOffset, inUse, layout, lockDirectory, minPartitions, mode, nodes, partitionBytes,"
            " retention, startingOffset, table, where"
        )
        raise ConfigError(f"unknown option {sorted(values)[0]!r}", hint=f"options: {known}{more}")
    _check_together(options)
    return options


def _range(values: dict[str, str]) -> tuple[StreamOffset, StreamOffset] | None:
    """The offsets of options startingOffset and endingOffset; None without them."""
    given = [(name, values.pop(name.lower(), None)) for name in ("startingOffset", "endingOffset")]
    if all(text is None for _, text in given):
        return None
    found = []
    for name, text in given:
        try:
            offset = json.loads(text or "null")
        except ValueError:
            offset = None
        if not isinstance(offset, dict):
            raise ConfigError(f"option {name}: {text!r} is no JSON with node_id, epoch, sequence")
        found.append(parse_offset(offset, f"option {name}"))
    start, end = found
    if start.node_id != end.node_id or end.sequence < start.sequence:
        raise ConfigError(f"option endingOffset: {end} is not after {start}")
    return start, end


def _check_together(options: Options) -> None:
    """Raises ConfigError for options that exclude each other."""
    if options.range is not None:
        if options.table in ("bindings", "changes", "references"):
            raise ConfigError(f"option startingOffset: table {options.table} is not read by offsets")
        if options.mode is not Mode.FAIL or options.mixed_nodes:
            raise ConfigError("option startingOffset: offsets are of one log without damage (mode fail, nodes one)")
    if options.where and options.mode is Mode.QUARANTINE:
        raise ConfigError("option where: conditions would drop the rows of damage (mode quarantine)")
    if options.retention is not None and options.layout is Layout.RETENTION:
        raise ConfigError("option retention belongs to a journal directory, not to layout=retention")


def _choice(values: dict[str, str], name: str, allowed: list[str]) -> str:
    value = values.pop(name, allowed[0])
    if value not in allowed:
        raise ConfigError(f"option {name}: {value!r} is none of {', '.join(allowed)}")
    return value


def number_option(values: dict[str, str], name: str, default: int) -> int:
    """Take a positive number out of the options. Raises ConfigError."""
    value = values.pop(name, str(default))
    if not (value.isascii() and value.isdecimal()) or not 1 <= int(value) <= 1 << 40:
        raise ConfigError(f"option {name}: {value!r} is no positive number")
    return int(value)


def _directories(one: str | None, many: str | None) -> tuple[str, ...]:
    found = json.loads(many) if many is not None else []
    if one is not None:
        found = [one, *found]
    if not found:
        raise ConfigError("no directory is given", hint='load("DIRECTORY") or load(["DIRECTORY", ...])')
    directories = tuple(os.path.abspath(local_path(each, "a directory of the source")) for each in found)
    if len(set(directories)) < len(directories):
        raise ConfigError("a directory is given twice", hint="its records would be read twice")
    return directories


def path_option(values: dict[str, str], name: str) -> str | None:
    """Take a path out of the options. Raises ConfigError for a URL that is none of a local file."""
    value = values.pop(name.lower(), None)
    return None if value is None else local_path(value, f"option {name}")


# --- planning -------------------------------------------------------------------------------------------------------


def plan_logs(options: Options, disk: Disk | None = None) -> list[LogPlan]:
    """The logs of all directories.

    Raises:
        ConfigError: a directory is missing, holds no journal, or cannot be read.
        WrongNode: segments or directories of different nodes.
        StoreInUse: a broker runs on one of the stores.
        StoreVersionUnsupported: written by a newer Understudy.
        JournalCorrupt: damaged, or segments are missing; names file and offset.
    """
    disk = disk or RealDisk()
    if options.retention is not None and len(options.directories) > 1:
        raise ConfigError("option retention: the segments belong to one journal", hint="give one directory")
    plans = []
    for directory in options.directories:
        _check_directory(disk, directory)
        if options.layout is Layout.STORE and not options.in_use:
            _refuse_running(options.lock_directory or directory, directory)
        try:
            plan = _plan(disk, directory, options)
            if options.retention is not None:
                _add_retained(disk, plan, options.retention)
            plans.append(plan)
        except (FileNotFoundError, JournalCorrupt) as error:
            if isinstance(error, JournalCorrupt) and (not options.in_use or os.path.exists(error.file)):
                raise
            raise DiskFailed(
                f"{directory}: a segment disappeared: {error}", hint="a broker is running there"
            ) from error
    if not options.mixed_nodes:
        for plan in plans[1:]:
            if plan.node_id != plans[0].node_id:
                raise WrongNode(
                    f"{plans[0].directory} is of node {plans[0].node_id}, {plan.directory} of node {plan.node_id}",
                    hint="option nodes=many reads stores of different nodes",
                )
    return plans


def _check_directory(disk: Disk, directory: str) -> None:
    try:
        os.listdir(directory)
    except OSError as error:
        raise ConfigError(f"{directory} cannot be read: {error.strerror}") from error
    if not is_store(disk, directory):
        raise ConfigError(f"{directory} holds no journal: no file is named segment-*.log")


def _refuse_running(lock_directory: str, directory: str) -> None:
    """Ask whether the lock of an active node is held, without taking it."""
    path = f"{lock_directory}/serverlock.1"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    try:
        answer = fcntl.fcntl(descriptor, _F_OFD_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOLCK):
            raise ConfigError(f"{path} cannot be asked: {error.strerror}") from error
        return
    finally:
        os.close(descriptor)
    if _FLOCK.unpack(answer)[0] != fcntl.F_UNLCK:
        raise StoreInUse(
            f"{directory} is in use by a running broker",
            hint="copy it, or read it as it is: --in-use of a command, inUse=read as an option of the source",
        )


def _plan(disk: Disk, directory: str, options: Options) -> LogPlan:
    if options.layout is Layout.RETENTION:
        pieces = _bounded(_retained(disk, directory, disk.list(directory)))
        return LogPlan(directory, _one_node(pieces), pieces)
    if options.mode is Mode.QUARANTINE:
        links = list(read_chain(disk, directory, disk.list(directory)).links)
        base = LogCopy(disk, directory).base
        if base is not None:
            known = {link.number for link in links}
            older = [link for link in snapshot_links(disk, directory, base.name) if link.number not in known]
            links = older + links
        pieces = [_piece(disk, directory, link.number, link.epoch, link.end) for link in links]
        return LogPlan(directory, _one_node(pieces), _with_last(pieces))
    return _plan_strictly(disk, directory)


def _retained(disk: Disk, directory: str, names: Sequence[str]) -> list[Piece]:
    parsed = sorted(each[:2] for each in map(parse_name, names) if each and each[2])
    return [_piece(disk, directory, number, epoch, None) for number, epoch in parsed]


def _add_retained(disk: Disk, plan: LogPlan, retention: str) -> None:
    """Put the segments that have left the log in front of it: nothing after its snapshot is among them."""
    try:
        names = disk.list(retention)
    except OSError as error:
        raise ConfigError(f"{retention} cannot be read: {error.strerror}") from error
    present = {(piece.number, piece.epoch) for piece in plan.pieces}
    gone = [piece for piece in _retained(disk, retention, names) if (piece.number, piece.epoch) not in present]
    front = sorted([*plan.pieces[: plan.in_snapshot], *gone], key=lambda piece: (piece.number, piece.epoch))
    plan.pieces = _bounded([*front, *plan.pieces[plan.in_snapshot :]])
    plan.in_snapshot = len(front)
    plan.retention = retention
    _one_node(plan.pieces)


def _bounded(pieces: Sequence[Piece]) -> list[Piece]:
    """Segments without a seal end before the next one begins: bytes of a node that had lost the store come later."""
    found = list(pieces)
    for place, (piece, following) in enumerate(itertools.pairwise(pieces)):
        if piece.digest is None and not piece.stated and following.first_sequence > piece.first_sequence:
            found[place] = replace(piece, until=following.first_sequence - 1)
    return found


def _plan_strictly(disk: Disk, directory: str) -> LogPlan:
    copy = LogCopy(disk, directory)
    pieces = [
        _piece(disk, directory, extent.number, extent.epoch, extent.end, extent.last_sequence)
        for extent in copy.extents
    ]
    if copy.state is CopyState.DAMAGED and copy.problem is not None:
        _explain_gap(disk, copy)
        raise JournalCorrupt(copy.problem.message, file=copy.problem.file, offset=copy.problem.offset)
    plan = LogPlan(directory, "", pieces)
    if copy.base is not None:
        plan.snapshot = copy.base.name
        known = {extent.number for extent in copy.extents}
        older = [link for link in snapshot_links(disk, directory, copy.base.name) if link.number not in known]
        plan.pieces = [_piece(disk, directory, link.number, link.epoch, link.end) for link in older] + pieces
        plan.in_snapshot = len(older)
    plan.pieces = _with_last(plan.pieces)
    plan.node_id = _one_node(plan.pieces) if plan.pieces else str(copy.node_id)
    return plan


def _explain_gap(disk: Disk, copy: LogCopy) -> None:
    """Raise a clearer error if whole segments are missing before the place at which the log seems damaged."""
    problem = copy.problem
    assert problem is not None
    parsed = parse_name(os.path.basename(problem.file))
    if parsed is None or problem.offset != HEADER_BLOCK_BYTES or not copy.extents:
        return
    file = disk.open(problem.file, read_only=True)
    try:
        raw = file.read(HEADER_BLOCK_BYTES, HEADER_BYTES)
    finally:
        file.close()
    sequence = HEADER.unpack(raw)[2] if len(raw) == HEADER_BYTES else 0
    if sequence > copy.last_sequence + 1:
        raise JournalCorrupt(
            f"the records {copy.last_sequence + 1} to {sequence - 1} are missing: no segment between"
            f" {copy.extents[-1].name} and this one",
            file=problem.file,
            offset=problem.offset,
        )


def _with_last(pieces: list[Piece]) -> list[Piece]:
    """The pieces with the mark at the last one that has records, and at prepared segments after it."""
    used = [index for index, piece in enumerate(pieces) if piece.first_sequence]
    last = used[-1] if used else 0
    return [replace(piece, last=index >= last) for index, piece in enumerate(pieces)]


def snapshot_links(disk: Disk, directory: str, name: str) -> list[Link]:
    """The segments that a snapshot lists, as far as they are present."""
    present = {parsed[:2] for parsed in map(parse_name, disk.list(directory)) if parsed and parsed[2]}
    state = read_small_state(disk, directory, name)
    links = [Link(number, use.epoch, use.end or None) for number, use in state.segments.items()]
    return [link for link in links if (link.number, link.epoch) in present]


def read_small_state(disk: Disk, directory: str, name: str, id_cache_size: int = ID_CACHE_SIZE) -> StoreState:
    """Everything in a snapshot that comes before its references: the log, the segments and the bindings.

    Args:
        disk: Where the store is.
        id_cache_size: Duplicate ids kept per address.

    Raises:
        JournalCorrupt: it is damaged.
    """
    file = disk.open(f"{directory}/{name}", read_only=True)
    state = StoreState(id_cache_size)
    try:
        reader = SnapshotReader(file.path, read_snapshot_header(file, name))
        while reader.end is None:
            for kind, payload in reader.feed(file.read(reader.offset, reader.want)):
                if kind in (PartType.TRANSACTION, PartType.REFERENCES):
                    return state
                apply_part(state, kind, payload)
    finally:
        file.close()
    return state


def _piece(
    disk: Disk, directory: str, number: int, epoch: int, end: int | None, last_sequence: int = 0
) -> Piece:  # fmt: skip
    file = disk.open(f"{directory}/{segment_name(number, epoch)}", read_only=True)
    try:
        header = read_header(file, number, epoch)
        size = file.size()
        found = read_seal(file, header) if end in (None, size) else None
        if found is not None:
            _, seal = found
            return Piece(
                directory, str(header.node_id), number, epoch, size, seal.first_sequence, seal.last_sequence + 1,
                seal.digest, seal.first_ms, seal.sealed_ms,
            )  # fmt: skip
        first = _first_sequence(file)
        return Piece(
            directory, str(header.node_id), number, epoch, size if end is None else end, first, last_sequence,
            None, header.created_ms, stated=end is not None,
        )  # fmt: skip
    finally:
        file.close()


def _first_sequence(file: File) -> int:
    raw = file.read(HEADER_BLOCK_BYTES, HEADER_BYTES)
    return HEADER.unpack(raw)[2] if len(raw) == HEADER_BYTES else 0


def _one_node(pieces: Sequence[Piece]) -> str:
    """The node of all these segments. Raises WrongNode if there are two."""
    for piece in pieces[1:]:
        if piece.node_id != pieces[0].node_id:
            raise WrongNode(
                f"{pieces[0].path} belongs to node {pieces[0].node_id}, {piece.path} to node {piece.node_id}",
                hint="segments of two stores were copied into one directory",
            )
    return pieces[0].node_id if pieces else ""


def pack(pieces: Sequence[Piece], partition_bytes: int, min_partitions: int) -> Iterator[tuple[Piece, ...]]:
    """Ranges of segments with about so many bytes each; at least ``min_partitions`` if there are as many segments."""
    total = sum(piece.end for piece in pieces)
    wanted = min(partition_bytes, -(-total // min_partitions) or 1)
    packed: list[Piece] = []
    size = 0
    for piece in pieces:
        if packed and size + piece.end // 2 > wanted:
            yield tuple(packed)
            packed, size = [], 0
        packed.append(piece)
        size += piece.end
    if packed:
        yield tuple(packed)
