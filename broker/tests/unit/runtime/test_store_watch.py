"""A store that was put back to an older state: the proof by the copy of a replica, and what the copy says."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from understudy.config.model import Configuration
from understudy.ids import NodeId
from understudy.runtime.node.store_watch import StoreWatch
from understudy.store.log.operation_context import OperationContext
from understudy.store.log.records import RecordType
from understudy.store.log.segment import SegmentHeader, create_segment, frame, seed_of
from understudy.store.replication.replica_state import ReplicaState, ReplicaStatus, write_replica_state
from understudy.store.seen import Position, SeenPosition
from understudy.store.state import SegmentUse, StoreState
from understudy.testing.sim.disk import SimDisk, SimVolume

NODE = NodeId("0f1e2d3c-4b5a-4697-8897-a6b5c4d3e2f1")
JOURNAL = "/store/journal"


@pytest.fixture
def disk() -> SimDisk:
    disk = SimVolume().disk("a")
    disk.make_directory(JOURNAL)
    return disk


def watch_of(disk: SimDisk, *, instance: str | None = "/instance", sync: bool = True) -> StoreWatch:
    configuration = Configuration(journal_directory=JOURNAL, journal_datasync=sync)
    return StoreWatch(disk, configuration, instance)


def store_of(durable: int, segments: Mapping[int, tuple[int, int]]) -> Any:
    """A store of which these segments are left: number to epoch and first sequence."""
    state = StoreState()
    state.segments.update({number: SegmentUse(*each) for number, each in segments.items()})
    return SimpleNamespace(state=state, context=OperationContext(durable))


#: Epoch 2 ends at 500, epoch 3 at 640.
SEGMENTS = {1: (1, 1), 2: (2, 301), 3: (2, 400), 4: (3, 501), 5: (4, 641)}


@pytest.mark.parametrize(
    ("epoch", "sequence", "lost"),
    [
        (2, 500, False),
        (2, 501, True),
        (3, 640, False),
        (3, 641, True),
        # the present epoch goes on
        (4, 700, False),
        (4, 701, True),
        # an epoch that never was here
        (6, 701, True),
    ],
)
def test_the_store_was_put_back_if_the_epoch_had_more_records(
    disk: SimDisk, epoch: int, sequence: int, lost: bool
) -> None:
    error = watch_of(disk).put_back(store_of(700, SEGMENTS), epoch, sequence)
    assert (error is not None) == lost
    assert (watch_of(disk).why_not_serve() is not None) == lost


def test_a_trimmed_beginning_makes_the_proof_less_strict(disk: SimDisk) -> None:
    segments = {number: each for number, each in SEGMENTS.items() if number >= 5}
    watch = watch_of(disk)
    assert watch.put_back(store_of(700, segments), 2, 640) is None
    assert watch.put_back(store_of(700, segments), 2, 641) is not None


def test_a_store_that_an_operator_accepted_is_served(disk: SimDisk) -> None:
    SeenPosition(disk, "/instance").accept(Position(NODE, 2, 500))
    watch = watch_of(disk)
    assert watch.put_back(store_of(700, SEGMENTS), 2, 600) is None
    # put back once more, after that
    assert watch.put_back(store_of(700, SEGMENTS), 3, 641) is not None


def test_without_syncs_a_batch_proves_nothing(disk: SimDisk) -> None:
    assert watch_of(disk, sync=False).put_back(store_of(700, SEGMENTS), 2, 501) is None
    assert watch_of(disk, instance=None).put_back(store_of(700, SEGMENTS), 2, 501) is None


def copy_of(disk: SimDisk, status: ReplicaStatus, epoch: int) -> None:
    write_replica_state(disk, JOURNAL, ReplicaState(status, node_id=NODE, epoch=epoch))


def test_a_complete_copy_says_what_its_writer_had_synced(disk: SimDisk) -> None:
    SeenPosition(disk, "/instance").note(Position(NODE, 3, 640))
    watch = watch_of(disk)
    assert watch.had() is None
    copy_of(disk, ReplicaStatus.INCOMPLETE, 3)
    assert watch.had() is None
    copy_of(disk, ReplicaStatus.IN_SYNC, 3)
    assert watch.had() == (NODE, 3, 640)
    assert watch_of(disk, sync=False).had() is None
    # noted before this copy
    copy_of(disk, ReplicaStatus.IN_SYNC, 4)
    assert watch.had() is None


@pytest.mark.parametrize(("last", "said"), [(639, None), (640, (NODE, 3, 640)), (641, (NODE, 3, 640))])
def test_a_copy_that_ends_before_the_noted_position_says_nothing_about_its_writer(
    disk: SimDisk, last: int, said: tuple[str, int, int] | None
) -> None:
    """A note that is wrong, or is all that is left of a copy, stopped the active node, and both nodes waited."""
    SeenPosition(disk, "/instance").note(Position(NODE, 3, 640))
    copy_of(disk, ReplicaStatus.IN_SYNC, 3)
    header = SegmentHeader(NODE, 3, 1, 0, 64 * 1024, first_of_epoch=False)
    records = b"".join(frame(RecordType.TX_COMMIT, 0, last, 4096, seed_of(1, 3), bytes(8)))
    create_segment(disk, JOURNAL, header, records)
    assert watch_of(disk).had() == said
