"""Log writers and workers: the order of operations, and the time at which their end is reported."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.loops import LOOPS, Place, run, until
from understudy.errors import DiskFailed, DiskFull, LockLost
from understudy.ports import Operation
from understudy.store.log.operations import Append, SyncFile


@pytest.fixture(params=LOOPS)
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def batch_at(offset: int, *parts: bytes) -> list[Operation]:
    """A batch that is written at an offset and synced."""
    return [Append("segment", offset, parts, sum(map(len, parts)), 1), SyncFile("segment")]


class Ends:
    """The ends of jobs, in the order in which they were reported."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.errors: dict[str, BaseException | None] = {}

    def of(self, name: str) -> Callable[[BaseException | None], None]:
        """The ``done`` of a job."""

        def done(error: BaseException | None) -> None:
            assert threading.current_thread() is threading.main_thread()
            self.seen.append(name)
            self.errors[name] = error

        return done


def test_jobs_end_in_their_order_and_never_within_the_call(kind: str, tmp_path: Path) -> None:
    async def case(place: Place) -> None:
        file = place.disk.open(f"{place.directory}/f", create=True)
        writer, ends = place.log_writer(file), Ends()
        sizes: list[int] = []
        for number in range(20):
            name = str(number)
            if number % 3:
                writer.submit(batch_at(number, b"a", b"bc"), ends.of(name))
            else:
                writer.run(lambda: sizes.append(file.size()), ends.of(name))
            assert name not in ends.seen
        await until(lambda: len(ends.seen) == 20)
        assert ends.seen == [str(number) for number in range(20)]
        assert not any(ends.errors.values())
        assert sizes == [0, 5, 8, 11, 14, 17, 20], "a job sees what those before it wrote"
        writer.close()

    run(kind, tmp_path, case)


def test_single_batches_end_after_the_call_too(kind: str, tmp_path: Path) -> None:
    """Also where the disk is fast and nothing else is under way: a real writer writes those at once."""

    async def case(place: Place) -> None:
        file = place.disk.open(f"{place.directory}/f", create=True)
        writer, ends = place.log_writer(file), Ends()
        for number in range(50):
            writer.submit(batch_at(0, b"x"), ends.of(str(number)))
            assert len(ends.seen) == number
            await until(lambda number=number: len(ends.seen) == number + 1)  # type: ignore[misc]
        writer.close()

    run(kind, tmp_path, case)


@pytest.mark.parametrize("error", [DiskFull("full"), DiskFailed("broken"), OSError(5, "input/output error")])
def test_an_error_is_given_to_its_job_alone(kind: str, tmp_path: Path, error: Exception) -> None:
    async def case(place: Place) -> None:
        writer, ends = place.log_writer(), Ends()

        def fail() -> None:
            raise error

        writer.run(lambda: None, ends.of("before"))
        writer.run(fail, ends.of("failing"))
        writer.run(lambda: None, ends.of("after"))
        await until(lambda: len(ends.seen) == 3)
        assert ends.errors == {"before": None, "failing": error, "after": None}
        writer.close()

    run(kind, tmp_path, case)


def test_a_batch_that_cannot_be_written_fails(kind: str, tmp_path: Path) -> None:
    async def case(place: Place) -> None:
        place.disk.open(f"{place.directory}/f", create=True).close()
        writer, ends = place.log_writer(place.disk.open(f"{place.directory}/f", read_only=True)), Ends()
        writer.submit(batch_at(0, b"x"), ends.of("batch"))
        await until(lambda: bool(ends.seen))
        assert isinstance(ends.errors["batch"], DiskFailed)
        writer.close()

    run(kind, tmp_path, case)


def test_held_jobs_begin_when_they_are_released(kind: str, tmp_path: Path) -> None:
    async def case(place: Place) -> None:
        file = place.disk.open(f"{place.directory}/f", create=True)
        writer, ends = place.log_writer(file), Ends()
        other, others = place.log_writer(), Ends()
        writer.hold()
        writer.submit(batch_at(0, b"abc"), ends.of("batch"))
        writer.run(lambda: None, ends.of("job"))
        other.run(lambda: None, others.of("other"))
        await until(lambda: bool(others.seen))
        assert ends.seen == []
        assert file.size() == 0
        writer.release()
        await until(lambda: len(ends.seen) == 2)
        assert ends.seen == ["batch", "job"]
        assert file.size() == 3
        writer.close()
        other.close()

    run(kind, tmp_path, case)


def test_a_writer_that_is_closed_completes_its_submitted_operations(kind: str, tmp_path: Path) -> None:
    async def case(place: Place) -> None:
        file = place.disk.open(f"{place.directory}/f", create=True)
        writer, ends = place.log_writer(file), Ends()
        writer.hold()
        for number in range(5):
            writer.submit(batch_at(number, b"x"), ends.of(str(number)))
        writer.close()
        with pytest.raises(AssertionError):
            writer.run(lambda: None, ends.of("late"))
        await until(lambda: len(ends.seen) == 5)
        assert file.size() == 5

    run(kind, tmp_path, case)


class Objection:
    """A fence whose proof is too old, and which objects. Implements ``ports.Fence``."""

    proved_until_ms = 0

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.asked = 0

    def why_not_confirm(self) -> BaseException | None:
        self.asked += 1
        return self.error


def test_the_fence_is_asked_after_each_batch_that_was_written(kind: str, tmp_path: Path) -> None:
    async def case(place: Place) -> None:
        fence, ends = Objection(), Ends()
        file = place.disk.open(f"{place.directory}/f", create=True)
        writer = place.log_writer(file, fence)
        writer.submit(batch_at(0, b"x"), ends.of("permitted"))
        await until(lambda: len(ends.seen) == 1)
        fence.error = LockLost("another node has it")
        writer.submit(batch_at(1, b"x"), ends.of("fenced"))
        writer.run(lambda: None, ends.of("no batch"))
        await until(lambda: len(ends.seen) == 3)
        assert ends.errors == {"permitted": None, "fenced": fence.error, "no batch": None}
        assert file.size() == 2, "it was written, and is not confirmed"
        assert fence.asked == 2
        writer.close()

    run(kind, tmp_path, case)


def test_a_failed_batch_does_not_ask_the_fence(kind: str, tmp_path: Path) -> None:
    async def case(place: Place) -> None:
        fence, ends = Objection(), Ends()
        place.disk.open(f"{place.directory}/f", create=True).close()
        writer = place.log_writer(place.disk.open(f"{place.directory}/f", read_only=True), fence)
        writer.submit(batch_at(0, b"x"), ends.of("batch"))
        await until(lambda: bool(ends.seen))
        assert isinstance(ends.errors["batch"], DiskFailed)
        assert fence.asked == 0
        writer.close()

    run(kind, tmp_path, case)


def test_an_end_has_a_turn_run(kind: str, tmp_path: Path) -> None:
    """A turn delivers what a job releases, without anything else happening."""

    async def case(place: Place) -> None:
        writer, ends = place.log_writer(), Ends()
        turns: list[int] = []
        place.turn.work = lambda synced: bool(turns.append(len(ends.seen)))
        writer.run(lambda: None, ends.of("job"))
        await until(lambda: bool(turns) and turns[-1] == 1)
        place.turn.work = None
        writer.close()

    run(kind, tmp_path, case)


def test_a_broker_error_of_an_end_goes_to_the_node(kind: str, tmp_path: Path) -> None:
    async def case(place: Place) -> None:
        writer = place.log_writer()
        errors: list[Exception] = []
        place.turn.on_error = errors.append
        refused = DiskFull("no space for the next one")

        def done(error: BaseException | None) -> None:
            raise refused

        writer.run(lambda: None, done)
        await until(lambda: bool(errors))
        assert errors == [refused]
        writer.close()

    run(kind, tmp_path, case)


def test_a_worker_reports_ends_and_errors_on_the_thread_of_the_loop(kind: str, tmp_path: Path) -> None:
    async def case(place: Place) -> None:
        worker, ends = place.worker(), Ends()
        worked: list[int] = []

        def fail() -> None:
            raise DiskFailed("broken")

        for number in range(8):
            worker.run(lambda number=number: worked.append(number), ends.of(str(number)))  # type: ignore[misc]
        worker.run(fail, ends.of("failing"))
        assert ends.seen == []
        await until(lambda: len(ends.seen) == 9)
        assert sorted(worked) == list(range(8))
        assert isinstance(ends.errors.pop("failing"), DiskFailed)
        assert not any(ends.errors.values())
        worker.close()

    run(kind, tmp_path, case)
