"""The quarantine of a store: damaged records and messages that were set aside (ADR 0020).

Each entry is one file in the directory ``quarantine`` of the journal, ``<entry id>.entry``: a line of JSON
that describes it (``QuarantineEntry``) and after that line the bytes of the record as they were found. So
the list belongs to the store, outlives a restart and a failover, and can be read without a broker.

An entry states the extent of the damage in its segment. As long as that segment is part of the log, a
reader of the log may pass over exactly these bytes (``damage``). Therefore dropping an entry keeps its
description, marked as dropped and without the bytes, until the segment has left the log.

Files are written away from the loop; ``keep`` reports when the entry is on the medium.

Not here: which message of a queue an entry belongs to (``routing.lifecycle.quarantine``).
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields, replace
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import DiskFailed, LimitExceeded, StoreError
from understudy.limits import QUARANTINE_BYTES_MAX, QUARANTINE_ENTRIES_MAX
from understudy.ports import Disk, DiskReader, LogWriter, Operation
from understudy.store.log.operations import CreateFile, MakeDirectory, RemoveFile, RenameFile, SyncDirectory, WriteFile
from understudy.store.messages.large_messages import LargeMessages
from understudy.store.repairs import Repairs, Side
from understudy.store.replication.copy_messages import Directory

log = logging.getLogger(__name__)

DIRECTORY_NAME: Final = "quarantine"
_SUFFIX: Final = ".entry"
_NAME: Final = re.compile(r"([0-9a-z-]{1,80})\.entry", re.ASCII)
#: Longest description that is read. Bytes.
_DESCRIPTION_BYTES_MAX: Final = 64 * 1024

Done = Callable[[BaseException | None], None]


@dataclass(frozen=True, slots=True)
class QuarantineEntry:
    """Facts of one damaged record or message."""

    entry_id: str
    """Unique in the store; the same damage found again gets the same id."""
    kind: str
    """``message``, ``large message``, or what a damaged record of the log seems to have been."""
    reason: str
    """Description of the damage, with file and offset."""
    found_ms: int
    """Wall time, epoch milliseconds."""
    segment: int = 0
    """Number of the segment the bytes lie in; 0 when they are not in the log."""
    epoch: int = 0
    offset: int = 0
    length: int = 0
    """Bytes of the record."""
    sequence: int = 0
    """Sequence of the record, when it was met while the log was read; 0 when a consumer met it."""
    queue: str = ""
    queue_id: int = 0
    address: str = ""
    message_id: int = 0
    """Id of the damaged message; 0 when it is not known."""
    file_id: int = 0
    """File of a large message, whose body is kept as long as the entry; 0 for others."""
    durable: bool = True
    held: bool = False
    """The message is still in its queue, out of reach of consumers, and is tried again at the next activation."""
    nodes: str = ""
    """Names of the nodes of a pair whose copy does not fit, separated by commas; empty without replication."""
    path: str = ""
    """File of the damaged bytes, on each of these nodes; empty when they are in no file of the log."""
    dropped: bool = False
    """An operator dropped the entry: only the extent is still needed."""


@dataclass(frozen=True, slots=True)
class Kept:
    """An entry in memory."""

    entry: QuarantineEntry
    stored: bool
    """Whether the file of the entry is on the medium."""
    bytes: int
    """Size of the file of the entry."""


class KnownDamage:
    """Extents of records that were set aside: what a reader of the log may pass over."""

    def __init__(self, entries: Iterable[QuarantineEntry] = ()) -> None:
        self._segments: dict[tuple[int, int], dict[int, int]] = {}
        self.count = 0
        """Number of damaged extents added so far; rises whenever a new extent is known."""
        for entry in entries:
            self.add(entry)

    def add(self, entry: QuarantineEntry) -> None:
        """The extent of an entry, if it has one in the log."""
        if entry.segment and entry.length and not entry.held:
            extents = self._segments.setdefault((entry.segment, entry.epoch), {})
            self.count += entry.offset not in extents
            extents[entry.offset] = entry.length

    def repaired(self) -> None:
        """Damage that no entry names was repaired: what stopped at it may be tried again."""
        self.count += 1

    def length_at(self, number: int, epoch: int, offset: int) -> int:
        """Length of the damaged record that begins there; 0 if none is known."""
        return self._segments.get((number, epoch), {}).get(offset, 0)

    def touches(self, number: int, epoch: int) -> bool:
        """Whether anything is known of that segment."""
        return (number, epoch) in self._segments


def quarantine_path(directory: str) -> str:
    """Path of the quarantine of a store."""
    return f"{directory}/{DIRECTORY_NAME}"


def entry_names(disk: DiskReader, directory: str) -> list[str]:
    """File names of the entries of a store, sorted; empty if nothing was ever set aside.

    Args:
        disk: Where the store is.
    """
    return [name for name in disk.list(quarantine_path(directory)) if _NAME.fullmatch(name)]


def read_entries(disk: DiskReader, directory: str, names: Sequence[str] | None = None) -> list[Kept]:
    """The entries of a store, dropped ones included. A file that is no entry is skipped with a warning.

    Args:
        disk: Where the store is; only read.
        names: What ``entry_names`` returned; None to ask.

    Raises:
        DiskFailed: an entry cannot be read.
    """
    found: list[Kept] = []
    for name in entry_names(disk, directory) if names is None else names:
        path = f"{quarantine_path(directory)}/{name}"
        try:
            file = disk.open(path, read_only=True)
        except FileNotFoundError:
            # the entry was removed between listing and opening
            continue
        try:
            head, size_bytes = file.read(0, _DESCRIPTION_BYTES_MAX), file.size()
        finally:
            file.close()
        try:
            found.append(Kept(_decode(head, name), True, size_bytes))
        except (ValueError, TypeError, RecursionError) as error:
            log.warning("quarantine entry cannot be read", extra={"file": path, "error": str(error)})
    return found


def read_known_damage(disk: DiskReader, directory: str) -> KnownDamage:
    """The extents that the entries of a store name; raises DiskFailed."""
    return KnownDamage(kept.entry for kept in read_entries(disk, directory))


def _decode(head: bytes, name: str) -> QuarantineEntry:
    line, newline, _ = head.partition(b"\n")
    if not newline:
        raise ValueError("it has no description")
    values = json.loads(line)
    if not isinstance(values, dict):
        raise ValueError("its description is no JSON object")
    known = {field.name: values[field.name] for field in fields(QuarantineEntry) if field.name in values}
    entry = QuarantineEntry(**known)
    for field in fields(QuarantineEntry):
        wanted = {"str": str, "int": int, "bool": bool}[str(field.type)]
        if type(getattr(entry, field.name)) is not wanted:
            raise ValueError(f"{field.name} is no {wanted.__name__}")
        if wanted is int and getattr(entry, field.name) < 0:
            # a negative length would send a reader of the log backwards
            raise ValueError(f"{field.name} is negative")
    if f"{entry.entry_id}{_SUFFIX}" != name:
        raise ValueError(f"it describes {entry.entry_id!r}")
    return entry


def entry_operations(entries: Sequence[tuple[QuarantineEntry, bytes]]) -> list[Operation]:
    """Operations that write entries durably, with the bytes that each is about. An entry of the same id is replaced."""
    operations: list[Operation] = [MakeDirectory(DIRECTORY_NAME, sync=True)]
    for entry, raw in entries:
        name = _name_of(entry.entry_id)
        operations.append(CreateFile(f"{name}.new"))
        operations.append(WriteFile(f"{name}.new", 0, _encode(entry, raw)))
        operations.append(RenameFile(f"{name}.new", name))
    return [*operations, SyncDirectory(DIRECTORY_NAME)]


def _encode(entry: QuarantineEntry, raw: bytes) -> bytes:
    return json.dumps(asdict(entry)).encode("ascii") + b"\n" + raw


def _name_of(entry_id: str) -> str:
    """File of an entry, relative to the directory of the journal."""
    return f"{DIRECTORY_NAME}/{entry_id}{_SUFFIX}"


@dataclass(slots=True)
class _Waiting:
    """An entry that is being written to the medium."""

    entry: QuarantineEntry
    raw: Callable[[], bytes]
    done: Done


class Quarantine:
    """The quarantine of an active node."""

    def __init__(
        self, disk: Disk, directory: str, writer: LogWriter, large: LargeMessages, *, made: bool = True
    ) -> None:
        """Reads the entries that are there.

        Args:
            disk: Where the store is.
            directory: Absolute path of the journal.
            writer: Writes entries away from the loop; its owner closes it.
            large: Bodies of large messages.
            made: Whether the directory of the quarantine may exist; False saves a look.

        Raises:
            DiskFailed: the entries cannot be read.
        """
        self._disk = disk
        self._directory = directory
        self._writer = writer
        self.repairs = Repairs(disk, {Directory.LOG: Side(directory, writer), Directory.BODIES: large.side})
        """Replaces damaged bytes by those of the other node before anything is set aside."""
        found = read_entries(disk, directory) if made else []
        self._kept = {kept.entry.entry_id: kept for kept in found}
        self.known = KnownDamage(kept.entry for kept in self._kept.values())
        self.repairs.on_repaired = self.known.repaired
        self.damage_met: Callable[[int, int], None] = lambda number, offset: None
        """Called with the segment number and offset of a damaged record that the consolidator met. Routing puts a
        search for the messages of that record here."""
        self.set_aside = 0
        """Messages and records set aside since the activation."""
        self._waiting: list[_Waiting] = []
        self._failed: list[_Waiting] = []
        self._under_way = False
        self._closed = False

    def begin(self, segments: Iterable[int], found: int) -> None:
        """Called when the node is active. Entries whose message is in its queue again are removed, and descriptions of
        dropped entries whose segment has left the log.

        Args:
            segments: Numbers of the segments of the log.
            found: Records that were set aside while the log was read.
        """
        self.set_aside += found
        present = set(segments)
        stale = [
            entry_id
            for entry_id, kept in self._kept.items()
            if kept.entry.held or (kept.entry.dropped and kept.entry.segment not in present)
        ]
        for entry_id in stale:
            del self._kept[entry_id]
        if stale:
            self._writer.submit(_removal(stale), lambda error: None)

    def with_files(self, references: dict[int, int]) -> dict[int, int]:
        """References to the files of large messages, and those of the entries in addition."""
        files = Counter(references)
        files.update(entry.file_id for entry in self.entries() if entry.file_id and not entry.held)
        return dict(files)

    def entries(self) -> list[QuarantineEntry]:
        """Entries that are set aside, the oldest first; dropped entries are left out."""
        listed = [kept.entry for kept in self._kept.values() if not kept.entry.dropped]
        return sorted(listed, key=lambda entry: (entry.found_ms, entry.entry_id))

    def as_json(self, start: int, limit: int) -> list[dict[str, object]]:
        """At most ``limit`` entries after the first ``start`` as plain values. ``file`` has the damaged bytes after
        its first line; ``stored`` says whether it is on the medium.
        """
        return [
            asdict(entry) | {"stored": self.is_stored(entry.entry_id), "file": self.path_of(entry.entry_id)}
            for entry in self.entries()[start : start + limit]
        ]

    def is_stored(self, entry_id: str) -> bool:
        """Whether the entry is on the medium."""
        kept = self._kept.get(entry_id)
        return kept is not None and kept.stored

    def path_of(self, entry_id: str) -> str:
        """The file of an entry."""
        return f"{self._directory}/{_name_of(entry_id)}"

    @property
    def count(self) -> int:
        """Entries, without dropped ones."""
        return sum(not kept.entry.dropped for kept in self._kept.values())

    # --- writing --------------------------------------------------------------------------------

    def keep(self, entry: QuarantineEntry, raw: Callable[[], bytes], done: Done) -> None:
        """Keep the bytes of a damaged record or message in the quarantine.

        Args:
            raw: Gets its bytes; called on the writer's thread.
            done: Called with None once the entry is on the medium, else with the reason why it is not (yet): a
                full quarantine, a full or failing disk. After the latter it is tried again by ``retry``, and
                ``done`` is called once more.
        """
        self.set_aside += 1
        used_bytes = sum(kept.bytes for kept in self._kept.values())
        if entry.entry_id not in self._kept:
            if len(self._kept) >= QUARANTINE_ENTRIES_MAX:
                done(LimitExceeded(f"the quarantine holds {len(self._kept)} entries", hint="drop some"))
                return
            if used_bytes + entry.length > QUARANTINE_BYTES_MAX:
                done(LimitExceeded(f"the quarantine holds {used_bytes} bytes", hint="drop entries"))
                return
        self._kept[entry.entry_id] = Kept(entry, False, entry.length)
        self._waiting.append(_Waiting(entry, raw, done))
        self._write()

    def retry(self) -> None:
        """Try again what the disk refused; now and then."""
        if self._failed:
            self._waiting += self._failed
            self._failed = []
            self._write()

    def _write(self) -> None:
        """Write the entries one at a time, as a record may be large; its bytes are read on another thread."""
        if self._under_way or self._closed or not self._waiting:
            return
        self._under_way = True
        waiting = self._waiting.pop(0)
        raw: list[bytes] = []
        self._writer.run(
            lambda: raw.append(_bytes_of(waiting)), lambda error: self._write_entry(waiting, b"".join(raw), error)
        )

    def _write_entry(self, waiting: _Waiting, raw: bytes, error: BaseException | None) -> None:
        if error is not None or self._closed:
            self._written(waiting, 0, error or DiskFailed("the entry was not written"))
            return
        size_bytes = len(_encode(waiting.entry, raw))
        self._writer.submit(
            entry_operations([(waiting.entry, raw)]), lambda failed: self._written(waiting, size_bytes, failed)
        )

    def _written(self, waiting: _Waiting, size_bytes: int, error: BaseException | None) -> None:
        self._under_way = False
        entry = waiting.entry
        if error is None:
            if entry.entry_id in self._kept:
                self._kept[entry.entry_id] = Kept(entry, True, size_bytes)
            self.known.add(entry)
        else:
            self._failed.append(waiting)
        waiting.done(error)
        self._write()

    def drop(self, entry_id: str, done: Done) -> bool:
        """Remove an entry and its bytes; False if there is none of the id. ``done`` is called when it is gone
        from the medium, or with the error.
        """
        kept = self._kept.get(entry_id)
        if kept is None or kept.entry.dropped or not kept.stored:
            return False
        entry = kept.entry
        if entry.segment and not entry.held:
            bare = replace(entry, dropped=True)
            self._kept[entry_id] = Kept(bare, True, 0)
            operations = entry_operations([(bare, b"")])
        else:
            del self._kept[entry_id]
            operations = _removal([entry_id])

        def ended(error: BaseException | None) -> None:
            if error is not None:
                self._kept[entry_id] = kept
            done(error)

        self._writer.submit(operations, ended)
        return True

    def close(self) -> None:
        """Begin nothing any more."""
        self._closed = True
        self.repairs.close()


def _removal(entry_ids: list[str]) -> list[Operation]:
    operations: list[Operation] = [RemoveFile(_name_of(entry_id)) for entry_id in entry_ids]
    return [*operations, SyncDirectory(DIRECTORY_NAME)]


def _bytes_of(waiting: _Waiting) -> bytes:
    try:
        return waiting.raw()
    except (StoreError, OSError) as error:
        # the entry is kept without the bytes
        log.warning("damaged bytes cannot be read", extra={"entry": waiting.entry.entry_id, "error": str(error)})
        return b""
