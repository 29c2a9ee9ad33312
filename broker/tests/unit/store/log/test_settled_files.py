"""Goal: while nothing changes, each file is listed, opened and read once, and the answers match the disk."""

from __future__ import annotations

from collections import Counter

import pytest

from understudy.ports import File
from understudy.store.log.reading.settled_files import _FILES_MAX, PIECE_BYTES, SettledFiles
from understudy.testing.sim.disk import SimDisk, SimFile, SimVolume

MIB = 1024 * 1024


@pytest.fixture
def disk() -> SimDisk:
    disk = SimVolume().disk("a")
    disk.make_directory("/store")
    for name in ("a", "b"):
        file = disk.open(f"/store/{name}", create=True)
        file.write(0, (name.encode() * 3 * PIECE_BYTES,))
        file.close()
    return disk


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the disk was asked for what."""
    counts: Counter[str] = Counter()
    opening, listing, reading, sizing, closing = SimDisk.open, SimDisk.list, SimFile.read, SimFile.size, SimFile.close

    def opened(self: SimDisk, path: str, *, create: bool = False, read_only: bool = False) -> File:
        counts["open"] += 1
        return opening(self, path, create=create, read_only=read_only)

    def listed(self: SimDisk, directory: str) -> list[str]:
        counts["list"] += 1
        return listing(self, directory)

    def read(self: SimFile, offset: int, length: int) -> bytes:
        counts["read"] += 1
        return reading(self, offset, length)

    def sized(self: SimFile) -> int:
        counts["size"] += 1
        return sizing(self)

    def closed(self: SimFile) -> None:
        counts["close"] += 1
        closing(self)

    monkeypatch.setattr(SimDisk, "open", opened)
    monkeypatch.setattr(SimDisk, "list", listed)
    monkeypatch.setattr(SimFile, "read", read)
    monkeypatch.setattr(SimFile, "size", sized)
    monkeypatch.setattr(SimFile, "close", closed)
    return counts


def test_each_question_is_asked_once(disk: SimDisk, asked: Counter[str]) -> None:
    files = SettledFiles(disk)
    for _ in range(3):
        assert files.list("/store") == ["a", "b"]
        file = files.open("/store/a", read_only=True)
        assert file.path == "/store/a"
        assert file.size() == 3 * PIECE_BYTES
        assert file.read(0, 10) == b"a" * 10
        assert file.read(100, PIECE_BYTES - 100) == b"a" * (PIECE_BYTES - 100)
        assert file.data_ranges(5) == [(5, 3 * PIECE_BYTES)]
        file.close()
    assert asked == {"list": 1, "open": 1, "size": 1, "read": 1}
    files.forget()
    assert asked["close"] == 1


def test_a_file_that_is_not_in_the_directory_is_not_listed(disk: SimDisk, asked: Counter[str]) -> None:
    files = SettledFiles(disk)
    assert files.list("/store/quarantine") == []
    files.list("/store")
    assert files.list("/store/quarantine") == []
    assert asked["list"] == 2
    disk.make_directory("/store/quarantine/x")
    files.forget()
    files.list("/store")
    assert files.list("/store/quarantine") == ["x"]


@pytest.mark.parametrize("offset", [0, 1, PIECE_BYTES - 1, 3 * PIECE_BYTES - 5, 3 * PIECE_BYTES, 4 * PIECE_BYTES])
@pytest.mark.parametrize("length", [0, 1, PIECE_BYTES, 2 * PIECE_BYTES + 1])
def test_reads_are_those_of_the_file(disk: SimDisk, offset: int, length: int) -> None:
    file, twin = SettledFiles(disk).open("/store/b"), disk.open("/store/b", read_only=True)
    for begin in (0, offset, offset // 2, offset):
        assert file.read(begin, length) == twin.read(begin, length)
        assert file.read(begin, 7) == twin.read(begin, 7)


def test_the_end_of_a_file_is_known_once_it_was_read(disk: SimDisk, asked: Counter[str]) -> None:
    file = SettledFiles(disk).open("/store/a")
    end = 3 * PIECE_BYTES
    assert file.read(end - 10, 24) == b"a" * 10
    assert file.read(end - 5, 4 * MIB) == b"a" * 5
    assert file.read(end, 1) == b""
    assert asked["read"] == 1


def test_large_pieces_are_not_kept(disk: SimDisk, asked: Counter[str]) -> None:
    made = disk.open("/store/large", create=True)
    made.write(0, (bytes(4 * MIB),))
    made.close()
    file = SettledFiles(disk).open("/store/large")
    for _ in range(2):
        assert file.read(0, 2 * MIB) == bytes(2 * MIB)
    assert asked["read"] == 2


def test_a_long_log_holds_few_files_open(disk: SimDisk, asked: Counter[str]) -> None:
    files = SettledFiles(disk)
    held = files.open("/store/a")
    for number in range(3 * _FILES_MAX):
        disk.open(f"/store/{number}", create=True).close()
    asked.clear()
    for number in range(3 * _FILES_MAX):
        files.open(f"/store/{number}").close()
    assert asked["open"] - asked["close"] < _FILES_MAX
    assert held.read(0, 1) == b"a", "a file in use stays open"
    files.forget()
    assert asked["open"] == asked["close"]
    assert held.read(PIECE_BYTES * 2, 1) == b"a"
    held.close()
    assert asked["open"] + 1 == asked["close"]
    with pytest.raises(FileNotFoundError):
        files.open("/store/none")
