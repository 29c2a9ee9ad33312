"""The note of a replica is replaced atomically; a damaged one counts as incomplete."""

from __future__ import annotations

import logging

import pytest
from tests.support.store import DIRECTORY, NODE_ID, Crashed

from understudy.errors import StoreVersionUnsupported
from understudy.kernel.log import crc32
from understudy.store.replication.replica_state import (
    STATE_NAME,
    ReplicaState,
    ReplicaStatus,
    read_replica_state,
    write_replica_state,
)
from understudy.testing.sim.disk import SimVolume

PATH = f"{DIRECTORY}/{STATE_NAME}"
IN_SYNC = ReplicaState(
    ReplicaStatus.IN_SYNC, node_id=NODE_ID, epoch=7, activation_sequence=-1, active_name="broker é", wall_ms=12
)


@pytest.fixture
def volume() -> SimVolume:
    volume = SimVolume()
    volume.disk("a").make_directory(DIRECTORY)
    return volume


@pytest.mark.parametrize("state", [IN_SYNC, ReplicaState(ReplicaStatus.INCOMPLETE, True, 3), ReplicaState()])
def test_the_state_is_read_as_it_was_written(volume: SimVolume, state: ReplicaState) -> None:
    disk = volume.disk("a")
    assert read_replica_state(disk, DIRECTORY) == ReplicaState()
    write_replica_state(disk, DIRECTORY, ReplicaState(ReplicaStatus.INCOMPLETE))
    write_replica_state(disk, DIRECTORY, state)
    assert read_replica_state(volume.synced_copy().disk("b"), DIRECTORY) == state
    assert disk.list(DIRECTORY) == [STATE_NAME]


def test_a_damaged_file_counts_as_incomplete(volume: SimVolume, caplog: pytest.LogCaptureFixture) -> None:
    disk = volume.disk("a")
    write_replica_state(disk, DIRECTORY, IN_SYNC)
    content = volume.content(PATH)
    for at in range(len(content)):
        file = disk.open(PATH)
        file.write(at, (bytes((content[at] ^ 1,)),))
        with caplog.at_level(logging.WARNING):
            assert read_replica_state(disk, DIRECTORY) == ReplicaState(ReplicaStatus.INCOMPLETE)
        assert caplog.records[-1].file == PATH  # type: ignore[attr-defined]
        file.write(at, (content[at : at + 1],))
    for length in range(len(content)):
        file = disk.open(PATH)
        file.truncate(length)
        assert read_replica_state(disk, DIRECTORY).status is ReplicaStatus.INCOMPLETE
        file.write(0, (content,))


def test_the_file_of_a_newer_version_is_refused(volume: SimVolume) -> None:
    disk = volume.disk("a")
    write_replica_state(disk, DIRECTORY, IN_SYNC)
    newer = bytearray(volume.content(PATH)[:-4])
    newer[8:10] = (2).to_bytes(2, "little")
    file = disk.open(PATH)
    file.write(0, (bytes(newer) + crc32(bytes(newer)).to_bytes(4, "little"),))
    with pytest.raises(StoreVersionUnsupported, match="format version 2"):
        read_replica_state(disk, DIRECTORY)


def test_a_crash_leaves_the_file_before_or_after() -> None:
    incomplete = ReplicaState(ReplicaStatus.INCOMPLETE, True)
    found = set()
    for operations in range(1, 8):
        volume = SimVolume()
        disk = volume.disk("a")
        disk.make_directory(DIRECTORY)
        write_replica_state(disk, DIRECTORY, incomplete)
        left = [operations]

        def crash(operation: str, left: list[int] = left) -> None:
            left[0] -= 1
            if not left[0]:
                raise Crashed(operation)

        volume.before_operation = crash
        try:
            write_replica_state(disk, DIRECTORY, IN_SYNC)
        except Crashed:
            pass
        found.add(read_replica_state(volume.synced_copy().disk("b"), DIRECTORY))
        volume.before_operation = lambda operation: None
        write_replica_state(volume.disk("c"), DIRECTORY, incomplete)
    assert found == {incomplete, IN_SYNC}
