"""The files of an archive: generations, the manifest, and the one rename that publishes a generation.

::

    ARCHIVE/archive.json                     format and version of the schema
    ARCHIVE/lock                             held by the process that writes
    ARCHIVE/data -> generations/00000007-…   the published generation
    ARCHIVE/generations/00000007-…/_manifest.json
    ARCHIVE/generations/00000007-…/date=2026-11-23/address_key=orders-…/….parquet

A generation is made beside the published one: files that stay are hard links. It is published when the link has its
name, so a process that is killed leaves the former generation as it was.

A reader that has resolved the link (``read_archive`` does) may use its generation after a later one was published: the
manifest lists the former generations with the time at which each was replaced, and a run removes those that were
replaced longer ago than they are kept, and unpublished ones. Before it is removed a generation gets another name, so
that a process that is killed meanwhile leaves no generation with missing files.

Imports neither pyspark nor pyarrow. Not here: which messages (``archive_rows``), and the Parquet files
(``archive_files``).
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from understudy.dataclass import dataclass
from understudy.errors import ConfigError
from understudy.spark.base.synced_files import sync_directory, write_synced
from understudy.spark.journal.stream_offsets import StreamOffset, parse_offset

#: Written in ``archive.json`` and in every manifest.
FORMAT: Final = "understudy archive"
#: Version of the layout and of the columns.
SCHEMA_VERSION: Final = 1
#: Where tasks write. Readers skip names that begin with an underscore.
INCOMING: Final = "_incoming"

_MARKER: Final = "archive.json"
_LOCK: Final = "lock"
_LINK: Final = "data"
_GENERATIONS: Final = "generations"
_MANIFEST: Final = "_manifest.json"
_NAME: Final = re.compile(r"([0-9]{8,12})-[0-9a-f]{8}")
#: End of the name of a generation that is being removed.
_REMOVED: Final = ".removed"
_CONTENT_BITS: Final = 64
#: Time in ms for which a replaced generation is kept.
KEEP_MS: Final = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file of the archive."""

    path: str
    """Path of the file below its generation: ``date=.../address_key=.../....parquet``."""
    rows: int
    size: int
    """Size of the file in bytes."""

    @property
    def partition(self) -> str:
        """Directory of the partition below the generation."""
        return self.path.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Former:
    """A generation that was published before."""

    name: str
    """Name of the generation's directory."""
    replaced_ms: int
    """Epoch milliseconds at which the following generation was published."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of a generation."""

    generation: int
    """Number; 0 for an archive without a generation."""
    content: int = 0
    """Sum of the hashes of all keys, modulo 2^64: the same for the same messages, however they lie in files."""
    files: tuple[DataFile, ...] = ()
    positions: tuple[StreamOffset, ...] = ()
    """Up to where the logs of nodes were read by named readers, ordered by node id."""
    former: tuple[Former, ...] = ()
    """Generations that were published before, the oldest first."""

    @property
    def rows(self) -> int:
        """Number of messages in the generation."""
        return sum(each.rows for each in self.files)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(each.size for each in self.files)

    def position(self, node_id: str) -> StreamOffset | None:
        """Up to where the log of a node was read by a named reader."""
        return next((each for each in self.positions if each.node_id == node_id), None)

    def extended(self, content: int, files: Iterable[DataFile], position: StreamOffset | None) -> Manifest:
        """Manifest of the following generation, with more files.

        Args:
            content: Sum of the hashes of the keys that are added.
            files: All files.
            position: Up to where the log of a node was read by a named reader.
        """
        total = (self.content + content) % (1 << _CONTENT_BITS)
        positions = {each.node_id: each for each in (*self.positions, *([] if position is None else [position]))}
        return Manifest(
            self.generation + 1,
            total,
            tuple(sorted(files, key=lambda each: each.path)),
            tuple(positions[node_id] for node_id in sorted(positions)),
        )


@dataclass(frozen=True, slots=True)
class Published:
    """The published generation of an archive."""

    directory: Path
    """Directory of the generation, the link resolved."""
    manifest: Manifest


def check_archive(directory: Path) -> bool:
    """Whether a directory is an archive; false for one that is missing or empty and may become one.

    Raises:
        ConfigError: it has other contents, cannot be read, or is an archive of another version.
    """
    try:
        names = set(os.listdir(directory))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(directory)) from error
    if _MARKER in names:
        _check_version(_read_json(directory / _MARKER), directory / _MARKER)
        return True
    if names - {f"{_MARKER}.new"}:
        raise ConfigError(f"is no archive: it has files and no {_MARKER}", file=str(directory))
    return False


def read_published(directory: Path) -> Published | None:
    """The published generation; None if nothing was published yet.

    Raises:
        ConfigError: the directory is no archive, or one of another version; its manifest cannot be read; a file is
            missing or has another size.
    """
    if not check_archive(directory):
        raise ConfigError(f"is no archive: it has no {_MARKER}", file=str(directory))
    link = directory / _LINK
    if not os.path.lexists(link):
        return None
    generation = Path(os.path.realpath(link))
    if generation.parent != Path(os.path.realpath(directory / _GENERATIONS)):
        raise ConfigError("is no link to a generation of this archive", file=str(link))
    manifest = _parse(_read_json(generation / _MANIFEST), generation / _MANIFEST)
    for each in manifest.files:
        path = generation / each.path
        try:
            size = path.stat().st_size
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}", file=str(path)) from error
        if size != each.size:
            raise ConfigError(f"has {size} bytes, the manifest says {each.size}", file=str(path))
    return Published(generation, manifest)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(path)) from error
    except ValueError as error:
        raise ConfigError("is no JSON", file=str(path)) from error
    if not isinstance(found, dict):
        raise ConfigError("is no JSON object", file=str(path))
    return found


def _check_version(found: dict[str, Any], path: Path) -> None:
    if found.get("format") != FORMAT:
        raise ConfigError("is not of an archive", file=str(path))
    if found.get("schema_version") != SCHEMA_VERSION:
        raise ConfigError(
            f"schema version {found.get('schema_version')!r}, this Understudy has {SCHEMA_VERSION}",
            file=str(path),
            hint="archive into another directory",
        )


def _parse(found: dict[str, Any], path: Path) -> Manifest:
    _check_version(found, path)
    try:
        files = tuple(DataFile(str(each["path"]), int(each["rows"]), int(each["size"])) for each in found["files"])
        positions = tuple(parse_offset(each, str(path)) for each in found.get("positions", []))
        former = tuple(Former(str(each["name"]), int(each["replaced_ms"])) for each in found.get("former", []))
        return Manifest(int(found["generation"]), int(found["content"]), files, positions, former)
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError("is no manifest of an archive", file=str(path)) from error


class Archive:
    """An archive that this process writes to; made by ``open_archive``."""

    def __init__(self, directory: Path, published: Published | None, keep_ms: int, now_ms: Callable[[], int]) -> None:
        self.directory = directory
        self.published = published
        self.removed = 0
        """Former generations that were removed because they were replaced too long ago."""
        self._keep_ms = keep_ms
        self._now_ms = now_ms

    @property
    def manifest(self) -> Manifest:
        """Manifest of the published generation; without files if there is none."""
        return Manifest(0) if self.published is None else self.published.manifest

    def stage(self) -> Path:
        """A new directory for the next generation, with the directory ``INCOMING`` for tasks in it."""
        name = f"{self.manifest.generation + 1:08d}-{secrets.token_hex(4)}"
        path = self.directory / _GENERATIONS / name
        (path / INCOMING).mkdir(parents=True, mode=0o700)
        return path

    def keep(self, stage: Path, files: Sequence[DataFile]) -> None:
        """Link files of the published generation into the next one.

        Raises:
            ConfigError: the file system has no hard links.
        """
        assert self.published is not None or not files
        for each in files:
            assert self.published is not None
            target = stage / each.path
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(self.published.directory / each.path, target)
            except OSError as error:
                raise ConfigError(f"cannot be linked: {error.strerror}", file=str(target)) from error

    def publish(self, stage: Path, manifest: Manifest) -> None:
        """Make a complete generation the published one. Everything in it is synced before.

        Args:
            stage: Stage from ``stage``.
            manifest: Manifest of exactly the files in it.
        """
        shutil.rmtree(stage / INCOMING)
        former = self._kept()
        if self.published is not None:
            former = (*former, Former(self.published.directory.name, self._now_ms()))
        manifest = replace(manifest, former=former)
        write_synced(stage / _MANIFEST, _as_json(manifest).encode(), replace=True)
        for directory, _, _ in os.walk(stage):
            sync_directory(Path(directory))
        sync_directory(stage.parent)
        temporary = self.directory / f"{_LINK}.new"
        os.symlink(f"{_GENERATIONS}/{stage.name}", temporary)
        os.replace(temporary, self.directory / _LINK)
        sync_directory(self.directory)
        self.published = Published(stage, manifest)

    @property
    def former(self) -> int:
        """Former generations that readers may still use."""
        return len(self._kept())

    def _kept(self) -> tuple[Former, ...]:
        """The former generations that are there and were replaced less than ``keep_ms`` ago."""
        now_ms, generations = self._now_ms(), self.directory / _GENERATIONS
        return tuple(
            each
            for each in self.manifest.former
            if now_ms - each.replaced_ms < self._keep_ms and (generations / each.name).is_dir()
        )

    def clean(self) -> None:
        """Remove everything that is neither of the published generation nor of a former one that is kept."""
        (self.directory / f"{_LINK}.new").unlink(missing_ok=True)
        keep = {each.name for each in self._kept()}
        if self.published is not None:
            keep.add(self.published.directory.name)
        former = {each.name for each in self.manifest.former}
        generations = self.directory / _GENERATIONS
        for name in sorted(os.listdir(generations)) if generations.is_dir() else ():
            if name.endswith(_REMOVED) and _NAME.fullmatch(name.removesuffix(_REMOVED)):
                shutil.rmtree(generations / name)
            elif name not in keep and _NAME.fullmatch(name):
                # renamed first: a reader, and a later run that keeps generations longer, see all of its files or none
                os.rename(generations / name, generations / f"{name}{_REMOVED}")
                shutil.rmtree(generations / f"{name}{_REMOVED}")
                self.removed += name in former


def _as_json(manifest: Manifest) -> str:
    head = {"format": FORMAT, "schema_version": SCHEMA_VERSION, "generation": manifest.generation}
    more = {"content": manifest.content, "rows": manifest.rows, "files": [asdict(each) for each in manifest.files]}
    read = {"positions": [each.as_dict() for each in manifest.positions]} if manifest.positions else {}
    before = {"former": [asdict(each) for each in manifest.former]} if manifest.former else {}
    return json.dumps(head | more | read | before, indent=1)


@contextmanager
def open_archive(
    directory: Path, keep_ms: int = KEEP_MS, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
) -> Iterator[Archive]:
    """An archive to write to, locked; made if the directory is missing or empty. Remains of killed runs are removed.

    Args:
        directory: Missing, empty, or an archive of this version.
        keep_ms: Former generations stay so long after they were replaced.
        now_ms: The time.

    Raises:
        ConfigError: the directory is no archive, an archive of another version, damaged, or in use.
    """
    existed = directory.exists()
    if not check_archive(directory):
        _create(directory)
    with _locked(directory / _LOCK):
        archive = Archive(directory, read_published(directory), keep_ms, now_ms)
        try:
            archive.clean()
        except OSError as error:
            raise ConfigError(f"cannot be removed: {error.strerror}", file=str(error.filename)) from error
        try:
            yield archive
        except BaseException:
            _undo(archive, remove_directory=not existed)
            raise


def _undo(archive: Archive, *, remove_directory: bool) -> None:
    """Remove the files of a failed run; an archive without a generation is removed altogether."""
    with suppress(OSError):
        archive.clean()
        if archive.published is None:
            for name in (_LOCK, _MARKER):
                (archive.directory / name).unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                (archive.directory / _GENERATIONS).rmdir()
            if remove_directory:
                archive.directory.rmdir()


def _create(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = directory / f"{_MARKER}.new"
        write_synced(temporary, json.dumps({"format": FORMAT, "schema_version": SCHEMA_VERSION}).encode(), replace=True)
        os.replace(temporary, directory / _MARKER)
        sync_directory(directory)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=str(directory)) from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot be opened: {error.strerror}", file=str(path)) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise ConfigError(f"cannot be locked: {error.strerror}", file=str(path)) from error
            raise ConfigError("another process writes to this archive", file=str(path.parent)) from error
        yield
    finally:
        os.close(descriptor)
