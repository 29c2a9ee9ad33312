"""The activation sequence of this node's data: the file ``server.activation.sequence`` of the lock directory.

Eight bytes, a big-endian signed number (artemis-ha s. 2.1), written to a new file that replaces the old one, so that a
crash leaves one of the two. It belongs to the data: a replica takes the number of its primary once it has everything,
and a node whose data is moved aside has none.

The file ``server.moved.sequence`` beside it has the number at which all messages had moved to other nodes (ADR 0126):
while both are the same, the data is of no use and does not become active again, except for a copy that was made since
(``ha.replication.standing``).
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from understudy.errors import BrokerError, DiskFailed, JournalCorrupt
from understudy.ha.locks.replaced_file import read_file, replace_file
from understudy.ha.locks.sequence_verdict import SEQUENCE_MAX
from understudy.ports import Disk, Worker

FILE_NAME: Final = "server.activation.sequence"
MOVED_FILE_NAME: Final = "server.moved.sequence"
_LAYOUT: Final = struct.Struct(">q")


class LocalSequence:
    """The number and its file. Calls that write work on another thread and call back."""

    def __init__(self, disk: Disk, directory: str, worker: Worker) -> None:
        """Begin without reading the file.

        Args:
            worker: Carries out the writes.
        """
        self._disk = disk
        self._directory = directory
        self._worker = worker
        self.path = f"{directory}/{FILE_NAME}"
        self.value: int | None = None
        """The number in the file; None: there is no file, the data has no sequence."""
        self._moved: int | None = None
        """The number at which all messages had moved away; None: there is no such file."""
        self._durable = False
        """Whether the files that an earlier process left are durable."""
        self._changes: deque[tuple[Callable[[], None], int | None, Callable[[BaseException | None], None]]] = deque()

    def load(self) -> int | None:
        """Read the files again; the number. An earlier process may have ended with an error between a change and its
        sync, and other nodes rely on what this one says of its number: the first call makes the files durable.

        Raises:
            JournalCorrupt: one has not eight bytes, or the number is negative or above ``SEQUENCE_MAX``.
            DiskFailed: one cannot be read, or made durable.
        """
        self._moved = self._read(f"{self._directory}/{MOVED_FILE_NAME}")
        self.value = self._read(self.path)
        if not self._durable and (self._moved, self.value) != (None, None):
            self._disk.sync_directory(self._directory)
            self._durable = True
        return self.value

    def _read(self, path: str) -> int | None:
        data = read_file(self._disk, path, _LAYOUT.size + 1)
        if data is None:
            return None
        if len(data) != _LAYOUT.size:
            raise JournalCorrupt(f"{len(data)} bytes instead of {_LAYOUT.size}", file=path, offset=0)
        value: int = _LAYOUT.unpack(data)[0]
        if not 0 <= value <= SEQUENCE_MAX:
            raise JournalCorrupt(f"the activation sequence is {value}", file=path, offset=0)
        return value

    @property
    def moved_away(self) -> bool:
        """Whether all messages of the data have moved to other nodes, by the files as they were read last."""
        return self._moved is not None and self._moved == self.value

    def write(self, value: int, done: Callable[[BaseException | None], None]) -> None:
        """Write the number durably, then call ``done`` with None or the error: then it may be written or not."""
        assert 0 <= value <= SEQUENCE_MAX
        self._add(partial(self._replace, FILE_NAME, _LAYOUT.pack(value)), value, done)

    def write_moved(self, done: Callable[[BaseException | None], None]) -> None:
        """Note durably that all messages of the data have moved away, then call ``done`` as ``write`` does."""
        value = self.value
        assert value is not None

        def written(error: BaseException | None) -> None:
            if error is None:
                self._moved = value
            done(error)

        self._add(partial(self._replace, MOVED_FILE_NAME, _LAYOUT.pack(value)), value, written)

    def erase(self, done: Callable[[BaseException | None], None]) -> None:
        """Remove the file: the data is not a complete copy any more."""
        self._add(self._remove, None, done)

    def _add(self, work: Callable[[], None], value: int | None, done: Callable[[BaseException | None], None]) -> None:
        """Changes are carried out one after the other: the threads of a worker keep no order."""
        self._changes.append((work, value, done))
        if len(self._changes) == 1:
            self._worker.run(work, self._changed)

    def _changed(self, error: BaseException | None) -> None:
        _, value, done = self._changes.popleft()
        if error is None:
            self.value = value
        if self._changes:
            self._worker.run(self._changes[0][0], self._changed)
        done(error)

    def _replace(self, name: str, data: bytes) -> None:
        replace_file(self._disk, self._directory, name, data)

    def _remove(self) -> None:
        if self._disk.exists(self.path):
            self._disk.remove(self.path)
            self._disk.sync_directory(self._directory)


def failure_of(path: str, error: BaseException | None) -> BrokerError | None:
    """The error of a write to that file, as an error of the broker."""
    if error is None or isinstance(error, BrokerError):
        return error
    return DiskFailed(f"{path}: {error}")
