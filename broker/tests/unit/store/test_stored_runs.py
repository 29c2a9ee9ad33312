"""Runs that are read from the log: one read for all who want the same messages, and a bounded number is kept."""

from __future__ import annotations

from support.sends import sends_of
from understudy.errors import DiskFailed
from understudy.kernel.log import LogPosition, append_sends
from understudy.message import Message
from understudy.store.messages.columns import Columns, rows_of
from understudy.store.messages.reference import RunSlice
from understudy.store.messages.stored_runs import RUNS, RUNS_OF_ADDRESS, StoredRuns

SEGMENT, OFFSET, SEED, FIRST_ID, COUNT = 5, 4096, 77, 1000, 60
MANY = 1 << 20


class Log:
    """Sixty messages back to back in one segment, and a reader of them."""

    def __init__(self, count: int = COUNT) -> None:
        sends = sends_of([Message(f"{number:04d}".encode(), address="a", durable=True) for number in range(count)])
        position = LogPosition(SEGMENT, OFFSET, 1 << 40, 0, 0, SEED)
        run = append_sends([(sends, 0, count)], FIRST_ID, 1, (7,), 0, position)
        self.data = bytearray(run.data)
        self.record_bytes = len(run.data) // count
        self.columns = Columns(4)
        self.columns.extend(SEGMENT, rows_of(RunSlice(run, 0, count, 4, -1)))
        self.runs = StoredRuns(self.fetch, lambda location: location, lambda number: SEED)
        self.fails = False

    def fetch(self, number: int, offset: int, length: int) -> bytes:
        if self.fails:
            raise DiskFailed("no")
        assert number == SEGMENT
        return bytes(self.data[offset - OFFSET : offset - OFFSET + length])

    def find(self, owner: object, row: int, end: int, run_bytes: int = MANY, count: int = MANY) -> list[int] | None:
        """Numbers of the messages that are found."""
        found = self.runs.find(owner, self.columns, row, end, run_bytes, count)
        if found is None:
            return None
        run, first, last = found
        assert run.ids(first, last) == list(range(FIRST_ID + row, FIRST_ID + row + last - first))
        return [int(Message.decode(each).body) for each in run.messages(first, last)]


def test_all_who_want_the_same_messages_share_one_read() -> None:
    log = Log()
    for _ in range(100):
        assert log.find("address", 0, COUNT) == list(range(COUNT))
        assert log.find("address", 7, 20) == list(range(7, 20))
    assert log.runs.reads == 1
    assert log.find("other", 7, 20) == list(range(7, 20))
    assert log.runs.reads == 2


def test_rows_that_a_queue_does_not_have_end_its_rows() -> None:
    log = Log()
    assert log.find("address", 0, COUNT) == list(range(COUNT))
    del log.columns.ids[10], log.columns.offsets[10], log.columns.lengths[10], log.columns.sizes[10]
    found = log.runs.find("address", log.columns, 5, COUNT - 1, MANY, MANY)
    assert found is not None
    assert found[1:] == (5, 10)


def test_limits_of_one_read() -> None:
    log = Log()
    assert log.find("address", 0, COUNT, run_bytes=10 * log.record_bytes) == list(range(10))
    assert log.find("address", 10, COUNT, count=3) == [10, 11, 12]
    assert log.find("address", 13, COUNT, run_bytes=1) == [13]


def test_a_damaged_record_is_left_to_the_reader_of_single_messages() -> None:
    log = Log()
    log.data[20 * log.record_bytes + 30] ^= 1
    assert log.find("address", 0, COUNT) == list(range(20))
    assert log.find("address", 20, COUNT) is None
    assert log.find("address", 21, COUNT) == list(range(21, COUNT))


def test_a_disk_that_fails_is_left_to_it_too() -> None:
    log = Log()
    log.fails = True
    assert log.find("address", 0, COUNT) is None
    log.fails = False
    assert log.find("address", 0, COUNT) == list(range(COUNT))


def test_a_bounded_number_of_runs_is_kept() -> None:
    log = Log()
    for number in range(RUNS_OF_ADDRESS + 1):
        log.find("address", number, number + 1)
    reads = log.runs.reads
    assert log.find("address", RUNS_OF_ADDRESS, COUNT) == [RUNS_OF_ADDRESS]
    assert log.runs.reads == reads
    log.find("address", 0, 1)
    assert log.runs.reads == reads + 1
    for owner in range(RUNS):
        log.find(owner, 0, COUNT)
    reads = log.runs.reads
    log.find(RUNS - 1, 0, COUNT)
    assert log.runs.reads == reads
    log.find("address", 0, 1)
    assert log.runs.reads == reads + 1
    log.runs.forget("address")
    log.find("address", 0, 1)
    assert log.runs.reads == reads + 2
