"""The log of a store as it was at an earlier sequence."""

from __future__ import annotations

import random

import pytest
from tests.support.store import DIRECTORY, NODE_ID, StoreHarness

from understudy.store.log.records import AddressRecord
from understudy.store.log.segment import parse_name
from understudy.store.replication.earlier_log import earlier_state
from understudy.testing.sim.disk import SimVolume

ADDRESS = 7


def written(batches: int) -> tuple[SimVolume, int]:
    """A log of several segments, of an active node that was killed, and its last sequence."""
    rig = StoreHarness(random.Random(1))
    store = rig.activate("node")
    store.store_address(AddressRecord(ADDRESS, "orders", (1,)))
    for number in range(batches):
        # two of these records fill most of a segment
        store.store_duplicate_ids(ADDRESS, [bytes([number, each]) * 500 for each in range(25)])
        store.flush()
        rig.settle()
    last = store.last_sequence
    rig.die(power_loss=False)
    return rig.volume, last


@pytest.mark.parametrize("batches", range(1, 8))
def test_a_log_can_be_read_up_to_each_of_its_records(batches: int) -> None:
    """Also where a segment ends with it, whether the next segment has later records or none."""
    volume, last = written(batches)
    disk = volume.disk("reader")
    for sequence in range(2, last + 1):
        state = earlier_state(disk, DIRECTORY, sequence, node_id=NODE_ID, id_cache_size=1000)
        assert state.sequence == sequence


def test_the_logs_of_this_test_have_several_segments() -> None:
    volume, _ = written(7)
    assert len([name for name in volume.disk("reader").list(DIRECTORY) if parse_name(name)]) > 2
