"""The history of a log: kept beside it, and compared with that of another log."""

from __future__ import annotations

import pytest

from understudy.limits import EPOCH_HISTORY_BYTES_MAX, EPOCH_HISTORY_MAX
from understudy.store.log.chain import EpochStart
from understudy.store.replication.epoch_history import (
    HISTORY_NAME,
    CommonHistory,
    add_start,
    common_history,
    read_history,
    write_history,
)
from understudy.store.replication.notes import replace_file
from understudy.testing.sim.disk import SimDisk, SimVolume

LOG = "/log"
FIRST = EpochStart(1, 0, 1_000, 1)
SECOND = EpochStart(2, 1, 2_000, 31)
FOURTH = EpochStart(4, 3, 4_000, 61)


@pytest.fixture
def disk() -> SimDisk:
    disk = SimVolume().disk("a")
    disk.make_directory(LOG)
    return disk


def test_activations_are_kept_in_order(disk: SimDisk) -> None:
    assert read_history(disk, LOG) == ()
    add_start(disk, LOG, FIRST)
    add_start(disk, LOG, SECOND)
    assert read_history(disk, LOG) == (FIRST, SECOND)


def test_an_activation_replaces_those_of_epochs_that_are_no_part_of_the_log(disk: SimDisk) -> None:
    write_history(disk, LOG, (FIRST, EpochStart(2, 1, 1_999, 31), FOURTH))
    add_start(disk, LOG, SECOND)
    assert read_history(disk, LOG) == (FIRST, SECOND)


def test_an_empty_history_has_no_file(disk: SimDisk) -> None:
    add_start(disk, LOG, FIRST)
    write_history(disk, LOG, ())
    write_history(disk, LOG, ())
    assert HISTORY_NAME not in disk.list(LOG)


def test_the_oldest_activations_are_forgotten(disk: SimDisk) -> None:
    largest = (1 << 63) - 1
    starts = [EpochStart(largest - EPOCH_HISTORY_MAX - 2 + each, largest, largest, largest) for each in range(503)]
    write_history(disk, LOG, starts)
    assert read_history(disk, LOG) == tuple(starts[3:])
    file = disk.open(f"{LOG}/{HISTORY_NAME}", read_only=True)
    assert file.size() <= EPOCH_HISTORY_BYTES_MAX


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"format": 2, "epochs": []}', b'{"format": 1, "epochs": [[1]]}', b'{"format": 1}']
)
def test_a_damaged_history_proves_nothing(disk: SimDisk, content: bytes) -> None:
    replace_file(disk, LOG, HISTORY_NAME, content)
    assert read_history(disk, LOG) == ()


def test_the_newest_common_activation_decides() -> None:
    third = EpochStart(3, 2, 3_000, 51)
    assert common_history((FIRST, SECOND), (FIRST, SECOND, third, FOURTH)) == CommonHistory(2, 31, 51)
    assert common_history((FIRST, EpochStart(2, 1, 5, 31)), (FIRST, SECOND)) == CommonHistory(1, 1, 31)
    assert common_history((FIRST, SECOND, third), (FIRST, SECOND)) == CommonHistory(2, 31, None)
    assert common_history((FIRST,), ()) is None
    assert common_history((), (FIRST,)) is None


def test_an_activation_that_is_missing_in_between_leaves_only_older_epochs() -> None:
    """Epoch 3 was begun by a version that keeps no history, so the end of epoch 2 is not known."""
    common = common_history((FIRST, SECOND), (FIRST, SECOND, FOURTH))
    assert common == CommonHistory(2, 31, 31)
    assert common.has(1, 30)
    assert not common.has(2, 31)


def test_records_of_an_older_epoch_after_the_common_one_began_are_no_part_of_it() -> None:
    common = CommonHistory(2, 31, 51)
    assert [common.has(1, 30), common.has(1, 31), common.has(2, 50), common.has(2, 51), common.has(3, 40)] == [
        True,
        False,
        True,
        False,
        False,
    ]
