"""Goal: batches that the native thread writes end as those that the applier writes, and keep their place among jobs."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from support.kernels import NATIVE, needs_native
from support.store import NODE_ID
from understudy.errors import DiskFailed, DiskFull
from understudy.kernel.log.batches import DONE, SYNC, WRITE, Batch, Outcome
from understudy.kernel.log.records import digest_records
from understudy.ports import Operation
from understudy.runtime.base import journal_writer
from understudy.runtime.base.disk import RealDisk
from understudy.runtime.base.environment import LoopTimers
from understudy.runtime.base.journal_writer import AT_ONCE_BYTES_MAX, ThreadLogWriter
from understudy.runtime.base.turn import Turn
from understudy.runtime.process.critical_analyzer import CriticalPath
from understudy.store.log.applier import Applier
from understudy.store.log.operations import Append, CreateSegment, SealSegment, SyncFile
from understudy.store.log.records import RecordType, SealRecord
from understudy.store.log.segment import HEADER_BLOCK_BYTES, SegmentHeader, frame, seed_of

SEED = seed_of(2, 1)


class Writing:
    """A log writer on the files of a directory, with the names of the jobs that have ended."""

    def __init__(self, directory: Path) -> None:
        loop = asyncio.get_running_loop()
        self.applier = Applier(RealDisk(), str(directory))
        self.path = CriticalPath("writer")
        self.writer = ThreadLogWriter(loop, Turn(loop, LoopTimers(loop)), self.applier, self.path)
        self.ended: list[str] = []
        self.offset = HEADER_BLOCK_BYTES
        self.sequence = 0

    async def create(self, number: int = 2) -> str:
        header = SegmentHeader(NODE_ID, 1, number, 1_700_000_000_000, 1024 * 1024, False)
        assert await self.end_of([CreateSegment(header)]) is None
        return CreateSegment(header).name

    def batch(self, name: str, size_bytes: int) -> list[Operation]:
        parts = []
        length = 0
        while length < size_bytes:
            self.sequence += 1
            body = os.urandom(100 if size_bytes < 1000 else 20_000)
            parts.append(b"".join(frame(RecordType.TX_COMMIT, 0, self.sequence, self.offset, SEED, bytes(8), body)))
            length += len(parts[-1])
        append = Append(name, self.offset, parts, length, self.sequence)
        self.offset += length
        return [append, SyncFile(name)]

    def submit(self, operations: Sequence[Operation], name: str = "") -> asyncio.Future[BaseException | None]:
        told: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

        def done(error: BaseException | None) -> None:
            self.ended.append(name)
            told.set_result(error)

        self.writer.submit(operations, done)
        return told

    async def end_of(self, operations: Sequence[Operation]) -> BaseException | None:
        return await self.submit(operations)


class Script:
    """A native thread whose outcomes the test gives. Implements ``ports.BatchThread``."""

    def __init__(self, outcome: Callable[[list[bytes], int, int], Outcome]) -> None:
        self.outcome = outcome
        self.given: list[Outcome] = []
        self.event, self.told = os.pipe()

    def fileno(self) -> int:
        return self.event

    def submit(self, descriptor: int, batch: Batch) -> None:
        self.given.append(self.execute(descriptor, batch))

    def execute(self, descriptor: int, batch: Batch) -> Outcome:
        _, buffers, _, _, digest, seed, _ = batch
        return self.outcome(buffers, digest, seed)

    def end(self) -> None:
        os.write(self.told, b"x")

    def take(self) -> Outcome | None:
        os.read(self.event, 1)
        return self.given.pop(0)

    def close(self) -> None:
        os.close(self.event)
        os.close(self.told)


@needs_native
def test_files_digests_and_summaries_are_those_of_the_applier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same records once by the native thread or the loop, once without a native thread."""

    async def write(directory: Path) -> tuple[bytes, object, object]:
        directory.mkdir()
        writing = Writing(directory)
        writing.offset, writing.sequence = HEADER_BLOCK_BYTES, 0
        name = await writing.create()
        for size in (100, 2 * AT_ONCE_BYTES_MAX, 100, 200_000, 100, 100):
            monkeypatch.setattr(os, "urandom", bytes)
            assert await writing.end_of(writing.batch(name, size)) is None
        state = writing.applier.describe_open()
        seal = SealRecord(False, 0, 0, 1, writing.sequence, 1, 2, 0, 0, ())
        assert await writing.end_of([SealSegment(name, seal, writing.sequence + 1, b"")]) is None
        skim = writing.applier.take_skim(name)
        assert skim is not None
        writing.writer.close()
        return (directory / name).read_bytes(), state, (skim.steps, skim.kept_bytes)

    assert NATIVE is not None
    monkeypatch.setattr(journal_writer, "batch_thread", NATIVE.batch_thread)
    native = asyncio.run(write(tmp_path / "native"))
    monkeypatch.setattr(journal_writer, "batch_thread", lambda: None)
    assert asyncio.run(write(tmp_path / "python")) == native


def test_jobs_after_a_batch_wait_for_its_end_and_new_segments_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        script = Script(lambda buffers, digest, seed: (DONE, 0, digest, [None] * len(buffers), 1))
        monkeypatch.setattr(journal_writer, "batch_thread", lambda: script)
        writing = Writing(tmp_path)
        name = await writing.create()
        first = writing.submit(writing.batch(name, 100), "batch")
        assert writing.path.busy_since_ns()
        later = writing.submit([SyncFile(name)], "later")
        last = writing.submit(writing.batch(name, 100), "next batch")
        assert await writing.create(3) != name, "another segment is made meanwhile"
        assert writing.ended == [""] * 2
        script.end()
        assert [await first, await later, await last] == [None] * 3
        assert writing.ended[2:] == ["batch", "later", "next batch"]
        assert writing.path.busy_since_ns() == 0
        writing.writer.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [((WRITE, errno.EIO), DiskFailed), ((SYNC, errno.EIO), DiskFailed), ((SYNC, errno.ENOSPC), DiskFull)],
    ids=["a write that fails", "a sync that fails", "a full disk at the sync"],
)
@pytest.mark.parametrize("at_once", [False, True], ids=["in the thread", "on the loop"])
def test_a_failed_batch_is_final_and_a_full_disk_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: tuple[int, int], kind: type[Exception], at_once: bool
) -> None:
    async def main() -> None:
        failing = [outcome]

        def end(buffers: list[bytes], digest: int, seed: int) -> Outcome:
            failed, number = failing.pop() if failing else (DONE, 0)
            for data in buffers if failed != WRITE else ():
                digest = digest_records(data, digest, seed)
            return failed, number, digest, [None] * len(buffers) if failed != WRITE else [], 1

        script = Script(end)
        monkeypatch.setattr(journal_writer, "batch_thread", lambda: script)
        writing = Writing(tmp_path)
        name = await writing.create()
        if at_once:
            writing.writer._batch_ns = 0
        batch = writing.batch(name, 100)
        told = writing.submit(batch)
        if not at_once:
            script.end()
        error = await told
        assert type(error) is kind
        assert name in str(error), "the present name of the file"
        again = writing.submit(batch)
        if kind is DiskFailed:
            assert await again is error, "asked once only"
        else:
            if not at_once:
                script.end()
            assert await again is None
            (segment,) = writing.applier.describe_open().segments
            assert segment.position == writing.offset
            assert segment.digest == digest_records(b"".join(batch[0].parts), segment.before, SEED)  # type: ignore[attr-defined]
        writing.writer.close()

    asyncio.run(main())


@pytest.mark.parametrize("at_once", [False, True], ids=["in the thread", "on the loop"])
def test_a_write_that_met_a_full_disk_is_repeated_by_the_applier_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    """The applier gives back the kept files first; jobs that came meanwhile follow."""

    async def main() -> None:
        script = Script(lambda buffers, digest, seed: (WRITE, errno.ENOSPC, digest, [], 1))
        monkeypatch.setattr(journal_writer, "batch_thread", lambda: script)
        writing = Writing(tmp_path)
        name = await writing.create()
        if at_once:
            writing.writer._batch_ns = 0
        first = writing.submit(writing.batch(name, 100), "batch")
        later = writing.submit([SyncFile(name)], "later")
        if not at_once:
            script.end()
        assert [await first, await later] == [None] * 2
        assert writing.ended[1:] == ["batch", "later"]
        (segment,) = writing.applier.describe_open().segments
        assert segment.position == writing.offset
        writing.writer.close()

    asyncio.run(main())


@needs_native
def test_the_last_batch_ends_although_the_writer_was_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        assert NATIVE is not None
        monkeypatch.setattr(journal_writer, "batch_thread", NATIVE.batch_thread)
        writing = Writing(tmp_path)
        name = await writing.create()
        batch = writing.submit(writing.batch(name, 2 * AT_ONCE_BYTES_MAX), "batch")
        assert writing.writer._under_way is not None, "the native thread has it"
        later = writing.submit([SyncFile(name)], "later")
        writing.writer.close()
        assert [await batch, await later] == [None] * 2
        assert writing.ended[1:] == ["batch", "later"]

    asyncio.run(main())
