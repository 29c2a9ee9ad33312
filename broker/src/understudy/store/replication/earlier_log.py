"""The log of a store as it was at an earlier sequence: later records and snapshots are not seen.

A replica that takes over has the log of its active node up to one record. What that node had written beyond it, and
had not confirmed, is not part of the store any more.
"""

from __future__ import annotations

from contextlib import closing

from understudy.ids import NodeId
from understudy.ports import DiskReader, FileReader
from understudy.store.log.chain import newest_epoch
from understudy.store.log.reading.end import ends_before
from understudy.store.log.reading.follower import Follower
from understudy.store.log.reading.replay import read_frames
from understudy.store.log.segment import HEADER_BLOCK_BYTES, parse_name, read_header, seed_of
from understudy.store.snapshots.snapshot import parse_snapshot_name
from understudy.store.state import StoreState


def earlier_state(
    disk: DiskReader, directory: str, sequence: int, *, node_id: NodeId, id_cache_size: int
) -> StoreState:
    """The state that a log described at a sequence.

    Args:
        disk: Where the log is.
        directory: Absolute path of the log.
        sequence: Sequence of the last record that counts.
        node_id: Id of the node whose log it must be.
        id_cache_size: Duplicate ids kept per address.

    Raises:
        StoreError, FileNotFoundError: it cannot be read.
    """
    earlier = EarlierLog(disk, directory, sequence)
    follower = Follower(earlier, directory, node_id=node_id, id_cache_size=id_cache_size)
    follower.finish()
    follower.close()
    return follower.state


def lacks_end(disk: DiskReader, directory: str, sequence: int) -> bool:
    """Whether a log ends before a sequence. Raises DiskFailed."""
    return ends_before(disk, directory, newest_epoch(disk.list(directory)), sequence)


class EarlierLog:
    """Reads the files of one directory up to a sequence. Implements ``ports.DiskReader``."""

    def __init__(self, disk: DiskReader, directory: str, sequence: int) -> None:
        """Reads the newest segments, back to the one with the record of that sequence.

        Args:
            disk: Where the log is.
            directory: Absolute path of the log.
            sequence: Sequence of the last record that is seen.

        Raises:
            DiskFailed: a segment cannot be read.
        """
        self._disk = disk
        self._directory = directory
        self._sequence = sequence
        self._hidden: set[str] = set()
        """Names of segments of later epochs."""
        self._ends: dict[str, tuple[int, int]] = {}
        """End of the log in a segment, and the allocated size of the segment, by its name."""
        segments = [(parsed[1], parsed[0], name) for name in disk.list(directory) if (parsed := parse_name(name))]
        later: list[tuple[int, int, str]] = []
        for epoch, number, name in sorted(segments, reverse=True):
            if not self._cut(name, number, epoch):
                later.append((epoch, number, name))
                continue
            for of_epoch, of_number, of_name in later:
                if of_epoch == epoch:
                    # a full segment is followed by one of its epoch, which had no record yet
                    self._hidden.remove(of_name)
                    self._end_at(of_name, of_number, epoch, HEADER_BLOCK_BYTES)
            break

    def _cut(self, name: str, number: int, epoch: int) -> bool:
        """Hide a segment without earlier records, or the later records of one that has some. Whether it has some."""
        file = self._disk.open(f"{self._directory}/{name}", read_only=True)
        with closing(file):
            first = True
            for frame, _ in read_frames(file, seed_of(number, epoch)):
                if frame.sequence > self._sequence:
                    if first:
                        break
                    self._end_at(name, number, epoch, frame.offset)
                    return True
                first = False
        if first:
            self._hidden.add(name)
        return not first

    def _end_at(self, name: str, number: int, epoch: int, end: int) -> None:
        with closing(self._disk.open(f"{self._directory}/{name}", read_only=True)) as file:
            self._ends[name] = end, max(read_header(file, number, epoch).allocated_bytes, file.size())

    def open(self, path: str, *, read_only: bool = False) -> FileReader:
        file = self._disk.open(path, read_only=True)
        directory, _, name = path.rpartition("/")
        end = self._ends.get(name) if directory == self._directory else None
        return file if end is None else _CutFile(file, *end)

    def list(self, directory: str) -> list[str]:
        names = self._disk.list(directory)
        return names if directory != self._directory else [name for name in names if self._sees(name)]

    def _sees(self, name: str) -> bool:
        snapshot = parse_snapshot_name(name)
        return name not in self._hidden if snapshot is None else snapshot[1] <= self._sequence


class _CutFile:
    """A segment whose records end at an offset, as if nothing had been written after it. Implements
    ``ports.FileReader``.
    """

    def __init__(self, file: FileReader, end: int, size_bytes: int) -> None:
        self._file = file
        self._end = end
        self._size_bytes = size_bytes

    @property
    def path(self) -> str:
        return self._file.path

    def size(self) -> int:
        return self._size_bytes

    def read(self, offset: int, length: int) -> bytes:
        data = self._file.read(offset, max(0, min(length, self._end - offset)))
        return data.ljust(max(0, min(length, self._size_bytes - offset)), b"\0")

    def forget_cached(self, offset: int, length: int) -> None:
        self._file.forget_cached(offset, length)

    def data_ranges(self, offset: int) -> list[tuple[int, int]]:
        found = self._file.data_ranges(offset)
        return [(begin, min(end, self._end)) for begin, end in found if begin < self._end]

    def close(self) -> None:
        self._file.close()
