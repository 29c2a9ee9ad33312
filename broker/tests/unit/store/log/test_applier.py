"""Operations are executed in order; the first error ends a submission, and the errors of bodies are their own."""

from __future__ import annotations

import pytest
from tests.support.store import DIRECTORY, NODE_ID

from understudy.errors import DiskFailed, DiskFull, LockLost, StoreError
from understudy.kernel.log import crc32
from understudy.store.log.applier import Applier
from understudy.store.log.operations import (
    Append,
    BodyEnd,
    CloseFiles,
    CreateFile,
    CreateSegment,
    FinishBodies,
    PruneRetained,
    RemoveFile,
    RenameFile,
    RequireEpoch,
    SealSegment,
    SyncFile,
    WriteBody,
    WriteFile,
)
from understudy.store.log.records import RecordType, SealRecord
from understudy.store.log.segment import HEADER_BLOCK_BYTES, SegmentHeader, frame, read_seal, seed_of
from understudy.store.retention import RetentionSettings
from understudy.testing.sim.disk import SimFile, SimVolume

HEADER = SegmentHeader(NODE_ID, 3, 1, 0, 65536, False)
CREATE = CreateSegment(HEADER)
NAME = CREATE.name


class Files:
    """An applier on a simulated disk."""

    def __init__(self) -> None:
        self.volume = SimVolume()
        self.disk = self.volume.disk("a")
        self.disk.make_directory(DIRECTORY)
        self.applier = Applier(self.disk, DIRECTORY, RetentionSettings("/kept"))
        self.operations: list[str] = []
        self.refuse: dict[str, Exception] = {}
        self.volume.before_operation = self.meet

    def meet(self, operation: str) -> None:
        self.operations.append(operation)
        if operation in self.refuse:
            raise self.refuse.pop(operation)

    def names(self) -> list[str]:
        return self.volume.disk("looker").list(DIRECTORY)


@pytest.fixture
def files() -> Files:
    return Files()


@pytest.mark.parametrize("refused", ["write", "sync"])
def test_a_batch_that_met_a_full_disk_is_replaced_by_its_repetition(files: Files, refused: str) -> None:
    files.applier.apply([CREATE])
    parts = frame(RecordType.TX_COMMIT, 0, 7, HEADER_BLOCK_BYTES, seed_of(1, 3), bytes(8))
    append = Append(NAME, HEADER_BLOCK_BYTES, parts, sum(map(len, parts)), 7)
    files.refuse[refused] = DiskFull("no space")
    with pytest.raises(DiskFull):
        files.applier.apply([append, SyncFile(NAME)])
    files.applier.apply([append, SyncFile(NAME)])
    offsets = HEADER_BLOCK_BYTES.to_bytes(4, "little")
    files.applier.apply([SealSegment(NAME, SealRecord(False, 0, 0, 7, 7, 0, 0, 0, 0, ()), 8, offsets)])
    content = files.volume.content(f"{DIRECTORY}/{NAME}")
    found = read_seal(files.disk.open(f"{DIRECTORY}/{NAME}", read_only=True), HEADER)
    assert found is not None
    assert found[1].digest == crc32(content[: HEADER_BLOCK_BYTES + append.size_bytes])


def test_the_first_error_ends_a_submission(files: Files) -> None:
    files.applier.apply([CREATE, CreateFile("snapshot"), WriteFile("snapshot", 0, b"x")])
    with pytest.raises(LockLost, match="another node"):
        files.applier.apply([RequireEpoch(2), RemoveFile("snapshot")])
    files.applier.apply([RequireEpoch(3), RenameFile("snapshot", "named"), RemoveFile("never made")])
    assert files.names() == ["named", NAME]


def test_a_failed_sync_after_a_removal_is_kept(files: Files) -> None:
    files.applier.apply([CREATE, CloseFiles()])
    files.refuse["sync-directory"] = failure = DiskFailed("no sync")
    with pytest.raises(DiskFailed):
        files.applier.apply([RemoveFile(NAME, sync=True)])
    assert files.applier.unsynced is failure


def test_a_file_that_is_retained_is_moved(files: Files) -> None:
    files.applier.apply([CREATE, CloseFiles(), RemoveFile(NAME, retain=True, sync=True), PruneRetained(0)])
    assert files.names() == []
    assert files.disk.list("/kept") == [NAME]


def test_the_failure_of_one_body_does_not_affect_the_others(files: Files) -> None:
    files.applier.apply([WriteBody("1.large", 0, [b"ab"], False), WriteBody("2.large", 0, [b"cd"], False)])
    files.refuse["write"] = DiskFailed("no write")
    files.applier.apply([FinishBodies((BodyEnd("1.large", 2, [b"x"], True), BodyEnd("2.large", 2, [b"ef"], True)))])
    first, second = files.applier.take_body("1.large"), files.applier.take_body("2.large")
    assert isinstance(first.error, DiskFailed)
    assert (second.error, second.written_bytes, second.crc) == (None, 4, crc32(b"cdef"))
    assert files.names() == ["1.large.tmp", "2.large"]


@pytest.mark.parametrize("error", [DiskFailed("no sync"), DiskFull("no space")], ids=["failed", "full"])
def test_a_body_whose_sync_failed_is_not_complete_and_has_no_checksum(files: Files, error: StoreError) -> None:
    files.refuse["sync"] = error
    ends = (BodyEnd("1.large", 0, [b"ab"], True), BodyEnd("2.large", 0, [b"cd"], True))
    files.applier.apply([FinishBodies(ends)])
    first, second = files.applier.take_body("1.large"), files.applier.take_body("2.large")
    assert (first.error, second.error) == (error, None)
    assert files.applier.checksum_of("1.large") is None
    assert files.applier.checksum_of("2.large") == (2, crc32(b"cd"))
    assert files.applier.positions() == {}


@pytest.mark.parametrize("refused", ["", "write", "rename", "sync"])
def test_the_file_of_a_body_is_closed_however_it_ends(
    files: Files, refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []
    close = SimFile.close

    def noted(file: SimFile) -> None:
        closed.append(file.path)
        close(file)

    monkeypatch.setattr(SimFile, "close", noted)
    files.applier.apply([WriteBody("1.large", 0, [b"ab"], False)])
    if refused:
        files.refuse[refused] = DiskFailed("refused")
    files.applier.apply([FinishBodies((BodyEnd("1.large", 2, [b"cd"], True),))])
    assert (files.applier.take_body("1.large").error is not None) is bool(refused)
    assert closed == [f"{DIRECTORY}/1.large.tmp"]


def test_a_body_that_has_its_name_does_not_grow(files: Files) -> None:
    grown: list[dict[str, int]] = []
    files.volume.before_operation = lambda operation: grown.append(files.applier.positions())
    files.applier.apply([FinishBodies((BodyEnd("1.large", 0, [b"ab"], True),))])
    # create, write, rename, sync, sync-directory: the file does not grow once it has its name
    assert grown == [{}, {"1.large.tmp": 0}, {"1.large.tmp": 2}, {}, {}]


def test_a_body_with_a_missing_piece_is_not_completed(files: Files) -> None:
    files.refuse["write"] = DiskFull("no space")
    with pytest.raises(DiskFull):
        files.applier.apply([WriteBody("1.large", 0, [b"ab"], False)])
    with pytest.raises(DiskFailed, match="an earlier piece was not written"):
        files.applier.apply([WriteBody("1.large", 2, [b"cd"], False)])
    files.applier.apply([FinishBodies((BodyEnd("1.large", 4, [], True),))])
    assert isinstance(files.applier.take_body("1.large").error, DiskFailed)
    assert files.names() == ["1.large.tmp"]
