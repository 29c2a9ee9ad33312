"""The note about earlier data, where the active node has trimmed the segments that it shared with it."""

from __future__ import annotations

import pytest
from tests.support.store import NODE_ID

from understudy.ids import uuid_bytes
from understudy.store.log.applier import Applier
from understudy.store.log.chain import EpochStart
from understudy.store.log.operations import Append, CreateSegment, SyncFile
from understudy.store.log.records import RecordType, SegmentEnd, encode_epoch
from understudy.store.log.segment import HEADER_BLOCK_BYTES, SegmentHeader, frame, seed_of
from understudy.store.replication.divergence import Divergence, complete_note, saved_directories, write_note
from understudy.store.replication.epoch_history import write_history
from understudy.store.replication.store_files import StoreDirectories
from understudy.testing.sim.disk import SimDisk, SimVolume

SEGMENT_BYTES = 64 * 1024
SIZE_BYTES = 128


class Copies:
    """The saved copy ``oldreplica.1`` and the present store of one node."""

    def __init__(self) -> None:
        self.disk: SimDisk = SimVolume().disk("a")
        self.store = StoreDirectories(self.disk, "/log", "/bodies")
        self.saved = saved_directories(self.store, 1)
        for path in (self.store.log, self.store.bodies, self.saved.log, self.saved.bodies):
            self.disk.make_directory(path)
        write_note(self.disk, self.saved.log, Divergence())

    def write(self, directory: str, number: int, epoch: int, sequences: range, *, fill: int = 0) -> int:
        """A segment with a record of a message for each sequence; where it ends."""
        header = SegmentHeader(NODE_ID, epoch, number, 0, SEGMENT_BYTES, False)
        created, log = CreateSegment(header), Applier(self.disk, directory)
        log.apply([created])
        at, seed = HEADER_BLOCK_BYTES, seed_of(number, epoch)
        for sequence in sequences:
            parts = frame(RecordType.MESSAGE_ADD, 0, sequence, at, seed, bytes([fill]) * (SIZE_BYTES - 24))
            log.apply([Append(created.name, at, parts, SIZE_BYTES, sequence), SyncFile(created.name)])
            at += SIZE_BYTES
        return at

    def begin_epoch(self, number: int, epoch: int, sequence: int, *ends: SegmentEnd) -> None:
        """The first segment of an epoch of the active node."""
        payload = encode_epoch(uuid_bytes(NODE_ID), epoch, 0, ends)
        record = b"".join(frame(RecordType.EPOCH, 0, sequence, HEADER_BLOCK_BYTES, seed_of(number, epoch), payload))
        header = SegmentHeader(NODE_ID, epoch, number, 0, SEGMENT_BYTES, True)
        Applier(self.disk, self.store.log).apply([CreateSegment(header, record)])

    def note(self, *history: EpochStart) -> Divergence:
        """The completed note, with the history of the log of the active node."""
        found = complete_note(self.disk, self.store, 1, history)
        assert found is not None
        return found


@pytest.fixture
def copies() -> Copies:
    return Copies()


def test_records_that_the_active_node_has_had_and_trimmed_are_no_divergence(copies: Copies) -> None:
    copies.write(copies.saved.log, 1, 1, range(1, 11))
    end = copies.write(copies.saved.log, 2, 1, range(11, 21))
    copies.begin_epoch(3, 2, 21, SegmentEnd(1, 1, end), SegmentEnd(2, 1, end))
    assert copies.note() == Divergence(complete=True)


def test_records_after_the_end_that_the_next_epoch_states_are_the_divergence(copies: Copies) -> None:
    copies.write(copies.saved.log, 1, 1, range(1, 11))
    end = copies.write(copies.saved.log, 2, 1, range(11, 26))
    stated = end - 5 * SIZE_BYTES
    copies.begin_epoch(3, 2, 21, SegmentEnd(2, 1, stated))
    copies.write(copies.saved.log, 3, 1, range(26, 29))
    found = copies.note()
    assert (found.segment, found.offset, found.sequence) == ("segment-000000000002-0000000001.log", stated, 21)
    assert (found.records, found.messages) == (8, 8)


def test_another_log_of_the_same_epoch_stays_a_divergence(copies: Copies) -> None:
    """Both nodes were active in epoch 2: the names of the segments are the same, and the records are not."""
    copies.write(copies.saved.log, 2, 2, range(11, 21))
    other = HEADER_BLOCK_BYTES + 7 * SIZE_BYTES
    copies.begin_epoch(3, 3, 19, SegmentEnd(2, 2, other))
    found = copies.note()
    assert (found.sequence, found.records) == (11, 10)


def test_a_segment_that_is_there_and_differs_stays_a_divergence(copies: Copies) -> None:
    end = copies.write(copies.saved.log, 2, 2, range(11, 21))
    copies.write(copies.store.log, 2, 2, range(11, 21), fill=7)
    copies.begin_epoch(3, 3, 21, SegmentEnd(2, 2, end))
    assert copies.note().records == 10


def test_segments_that_the_log_of_the_active_node_does_not_know_stay_a_divergence(copies: Copies) -> None:
    copies.write(copies.saved.log, 4, 5, range(11, 21))
    copies.begin_epoch(3, 2, 21, SegmentEnd(2, 1, HEADER_BLOCK_BYTES + SIZE_BYTES))
    assert copies.note().records == 10


FIRST = EpochStart(1, 0, 1_000, 1)
SECOND = EpochStart(2, 1, 2_000, 31)
THIRD = EpochStart(3, 2, 3_000, 41)


def test_a_copy_that_ends_before_the_active_node_went_on_has_nothing_of_its_own(copies: Copies) -> None:
    """Goal: a replica that was away raises no alarm about records that it shares with the active node.

    Method: the copy ends in the middle of epoch 1, the active node went on to sequence 30 and has trimmed all of it.
    """
    copies.write(copies.saved.log, 1, 1, range(1, 11))
    copies.write(copies.saved.log, 2, 1, range(11, 21))
    write_history(copies.disk, copies.saved.log, (FIRST,))
    copies.write(copies.store.log, 9, 3, range(41, 51))
    assert copies.note(FIRST, SECOND, THIRD) == Divergence(complete=True)


def test_a_copy_of_the_present_epoch_of_the_active_node_has_nothing_of_its_own(copies: Copies) -> None:
    copies.write(copies.saved.log, 2, 1, range(11, 21))
    write_history(copies.disk, copies.saved.log, (FIRST,))
    copies.write(copies.store.log, 9, 1, range(90, 95))
    assert copies.note(FIRST) == Divergence(complete=True)


def test_records_after_the_end_of_the_common_epoch_are_the_divergence(copies: Copies) -> None:
    """The active node ended in epoch 1 before it had synced the records that its replica has from sequence 31 on."""
    copies.write(copies.saved.log, 2, 1, range(21, 36))
    write_history(copies.disk, copies.saved.log, (FIRST,))
    copies.write(copies.store.log, 9, 3, range(41, 51))
    found = copies.note(FIRST, SECOND, THIRD)
    assert (found.epoch, found.sequence, found.records) == (1, 31, 5)


def test_an_epoch_that_both_nodes_began_is_the_divergence(copies: Copies) -> None:
    copies.write(copies.saved.log, 2, 1, range(21, 31))
    copies.write(copies.saved.log, 3, 2, range(31, 36))
    write_history(copies.disk, copies.saved.log, (FIRST, EpochStart(2, 1, 2_001, 31)))
    copies.write(copies.store.log, 9, 3, range(41, 51))
    found = copies.note(FIRST, SECOND, THIRD)
    assert (found.epoch, found.sequence, found.records) == (2, 31, 5)


@pytest.mark.parametrize("of_copy", [(), (EpochStart(1, 0, 999, 1),)], ids=["none", "other"])
def test_without_a_common_activation_all_records_are_the_divergence(
    copies: Copies, of_copy: tuple[EpochStart, ...]
) -> None:
    copies.write(copies.saved.log, 2, 1, range(11, 21))
    write_history(copies.disk, copies.saved.log, of_copy)
    copies.write(copies.store.log, 9, 3, range(41, 51))
    assert copies.note(FIRST, SECOND, THIRD).records == 10
