"""The note of an active node that a replica may take over: the file ``server.replica.sequence`` of the lock directory.

Eight bytes, a big-endian signed number: the activation sequence of the node when a replica came into sync with it; then
``host:port`` of the connector of that replica, in UTF-8 (missing in files from before ADR 0064). The file is replaced
as a whole, before the replica may believe that it is in sync. A node whose own sequence is higher has gone on without
that replica since, or has taken over itself (ADR 0059).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Final

from understudy.errors import JournalCorrupt
from understudy.ha.locks.replaced_file import read_file, replace_file
from understudy.ports import Disk, Worker

FILE_NAME: Final = "server.replica.sequence"
_LAYOUT: Final = struct.Struct(">q")
#: Longest ``host:port`` in bytes.
_REPLICA_BYTES_MAX: Final = 1_024


class SharedNote:
    """File of one node on a share that both nodes reach."""

    def __init__(self, disk: Disk, directory: str, worker: Worker) -> None:
        """Begin without reading the file.

        Args:
            worker: Carries out the writes.
        """
        self._disk = disk
        self._directory = directory
        self._worker = worker
        self.path = f"{directory}/{FILE_NAME}"
        self.replica: str | None = None
        """``host:port`` of the replica, as ``load`` found it; None: the file does not name it."""

    def load(self) -> int | None:
        """The number in the file; None if there is no file.

        Raises:
            JournalCorrupt: it is too short, too long or not UTF-8.
            DiskFailed: it cannot be read.
        """
        data = read_file(self._disk, self.path, _LAYOUT.size + _REPLICA_BYTES_MAX + 1)
        self.replica = None
        if data is None:
            return None
        if not _LAYOUT.size <= len(data) <= _LAYOUT.size + _REPLICA_BYTES_MAX:
            raise JournalCorrupt(f"{len(data)} bytes, at least {_LAYOUT.size} expected", file=self.path, offset=0)
        try:
            self.replica = data[_LAYOUT.size :].decode() or None
        except UnicodeDecodeError as error:
            raise JournalCorrupt("the name of the replica is not UTF-8", file=self.path, offset=_LAYOUT.size) from error
        value: int = _LAYOUT.unpack_from(data)[0]
        return value

    def write(self, sequence: int, replica: str, done: Callable[[BaseException | None], None]) -> None:
        """Write the note durably, then call ``done`` with None or the error: then it may be written or not.

        Args:
            replica: ``host:port`` of the replica; a longer one than the file can have is left out.
            done: Called at the end.
        """
        name = replica.encode()
        data = _LAYOUT.pack(sequence) + (name if len(name) <= _REPLICA_BYTES_MAX else b"")
        work = partial(replace_file, self._disk, self._directory, FILE_NAME, data)
        self._worker.run(work, done)
