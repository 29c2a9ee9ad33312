"""How much work the log consolidator does: records decoded, steps of the housekeeper, bytes read."""

from __future__ import annotations

from unittest import mock

from tests.support.store import DIRECTORY
from tests.unit.store.snapshots import test_consolidator
from tests.unit.store.snapshots.test_consolidator import assert_recovered, fill, names, numbers, put, rig_of

from understudy.store.log.reading.follower import recover
from understudy.store.log.records import Record, RecordType, decode
from understudy.store.snapshots.background import Background
from understudy.store.snapshots.relocation import SegmentCopy
from understudy.store.snapshots.snapshot import snapshot_names


def test_duplicate_ids_without_messages_are_not_decoded_one_by_one_for_a_snapshot() -> None:
    """Each message that is not durable leaves such a record."""
    rig = rig_of(id_cache_size=300)
    store = rig.store
    assert store is not None
    put(rig, pinned=True)
    kinds: list[int] = []

    def counted(kind: int, flags: int, payload: bytes) -> Record:
        kinds.append(kind)
        return decode(kind, flags, payload)

    with mock.patch("understudy.store.log.reading.skim.decode", counted):
        for number in range(600):
            store.store_duplicate_ids(rig.address_ids[0], [b"%d/%d" % (number, each) for each in range(20)])
            fill(rig, 1)
    assert snapshot_names(names(rig))
    assert RecordType.DUPLICATE_ID not in kinds
    found = recover(rig.volume.copy().disk("judge"), DIRECTORY).state.duplicate_ids[rig.address_ids[0]]
    assert list(found)[-300:] == [b"%d/%d" % (number, each) for number in range(585, 600) for each in range(20)]


def test_a_snapshot_is_made_in_few_steps_of_the_housekeeper() -> None:
    """Each of them costs two changes of thread. A thousand references take 68,000 bytes."""
    rig = rig_of(percent=0)
    store = rig.store
    assert store is not None
    with mock.patch.object(test_consolidator, "BODY", 40):
        for number in range(12_000):
            put(rig, pinned=True)
            if number % 500 == 0:
                rig.settle()
    rig.settle()
    steps: list[object] = []
    submit = Background._submit

    def counted(background: Background) -> None:
        if background._job is not None:
            steps.append(background._job)
        submit(background)

    before = snapshot_names(names(rig))[0]
    with mock.patch.object(Background, "_submit", counted):
        while snapshot_names(names(rig))[0] == before:
            fill(rig, 1)
    assert len(steps) < 20
    assert_recovered(rig)


def test_a_segment_in_which_nothing_lives_any_more_is_not_read_to_be_copied() -> None:
    rig = rig_of(segments_min=0)
    store = rig.store
    assert store is not None
    pinned = fill(rig, 40, pin_every=2)
    first, *_ = numbers(rig)

    def begins() -> bool:
        copy = SegmentCopy(rig.volume.disk("a"), DIRECTORY, first, mock.Mock(), store.state, mock.Mock(), mock.Mock())
        return next(copy.run(), None) is not None

    assert begins()
    for message_id, _ in pinned:
        store.store_acknowledges(rig.queue_ids[0], (message_id,))
    rig.settle()
    assert not begins()
