"""Damaged records of known extent: a start and a follower pass over them if they may."""

from __future__ import annotations

import logging
import random
from dataclasses import replace

import pytest

from support.store import DIRECTORY, StoreHarness
from support.store_model import contents_of
from understudy.errors import JournalCorrupt
from understudy.store.log.applier import Applier
from understudy.store.log.reading.follower import Follower, recover
from understudy.store.log.reading.replay import Frame, read_frames
from understudy.store.log.records import RecordType
from understudy.store.log.segment import parse_name, seed_of
from understudy.store.quarantine import QuarantineEntry, entry_operations, read_entries


def frames(rig: StoreHarness) -> list[tuple[str, Frame]]:
    """Every record of the log with its file."""
    found = []
    for path in rig.segments():
        number, epoch, _ = parse_name(path.rsplit("/", 1)[1]) or (0, 0, False)
        file = rig.disk("look").open(path, read_only=True)
        found += [(path, frame) for frame, _ in read_frames(file, seed_of(number, epoch))]
        file.close()
    return found


def filled(seed: int) -> StoreHarness:
    """A log over several segments and two epochs."""
    rig = StoreHarness(random.Random(seed), id_cache_size=50)
    for _ in range(2):
        store = rig.activate("a")
        for _ in range(60):
            rig.operate()
            store.flush()
            rig.time.advance(10)
        while store.context.durable < store.last_sequence or not rig.idle:
            store.flush()
            rig.time.advance(10)
        rig.die(power_loss=False)
    rig.activate("a")
    rig.die(power_loss=False)
    return rig


def test_every_record_alone() -> None:
    """Damage of any one record: only records that may be missing are skipped, and no neighbour is lost."""
    rig = filled(1)
    whole = recover(rig.disk("judge"), DIRECTORY)
    before = contents_of(whole.state)["messages"]
    last_batch = max(frame.batch for path, frame in frames(rig)[-1:])
    passed: set[str] = set()
    refused: set[str] = set()
    for path, frame in frames(rig):
        if path == rig.segments()[-1] and frame.batch == last_batch:
            continue
        offset = frame.offset + rig.stream.randrange(frame.length)
        if rig.stream.random() < 0.3:
            offset = frame.offset + rig.stream.choice((0, 4, 8, 16, 20, 21))
        kind = RecordType(frame.kind).name
        rig.volume.flip_bit(path, offset, 3)
        with pytest.raises(JournalCorrupt) as caught:
            recover(rig.disk("judge"), DIRECTORY)
        assert f"understudy data salvage {DIRECTORY}" in str(caught.value)
        try:
            follower = recover(rig.disk("judge"), DIRECTORY, quarantine=True)
        except JournalCorrupt:
            refused.add(kind)
        else:
            passed.add(kind)
            assert "--quarantine" in str(caught.value)
            (record,) = follower.damage.passed.values()
            assert (record.offset, record.length, record.sequence) == (frame.offset, frame.length, frame.sequence)
            after = contents_of(follower.state)["messages"]
            lost = {(q, m) for q, entries in before.items() for m in entries} - {
                (q, m) for q, entries in after.items() for m in entries
            }
            assert len({message for _, message in lost}) <= (frame.kind == RecordType.MESSAGE_ADD)
            assert follower.state.sequence == whole.state.sequence
        rig.volume.flip_bit(path, offset, 3)
    assert {"MESSAGE_ADD", "ACKNOWLEDGE", "SEAL", "DUPLICATE_ID", "DELIVERY_COUNT"} <= passed
    assert refused & {"EPOCH", "QUEUE_ADD", "TX_COMMIT", "ADDRESS_ADD"}
    assert not passed & {"EPOCH", "QUEUE_ADD", "QUEUE_REMOVE", "TX_COMMIT", "TX_PREPARE", "ADDRESS_ADD", "CHECKPOINT"}


def damaged(rig: StoreHarness, kind: RecordType = RecordType.MESSAGE_ADD, index: int = 5) -> Frame:
    path, frame = [pair for pair in frames(rig) if pair[1].kind == kind][index]
    rig.volume.flip_bit(path, frame.offset + frame.length - 1, 2)
    return frame


def test_a_start_writes_its_entry_and_the_next_one_needs_no_word(caplog: pytest.LogCaptureFixture) -> None:
    rig = filled(2)
    frame = damaged(rig)
    with pytest.raises(JournalCorrupt):
        rig.activate("b")
    caplog.clear()
    store = rig.activate("b", Follower(rig.disk("b"), DIRECTORY, id_cache_size=50, quarantine=True))
    assert [record.levelno for record in caplog.records if "set aside" in record.message] == [logging.ERROR]
    (entry,) = store.quarantine.entries()
    assert (entry.kind, entry.offset, entry.sequence) == ("MESSAGE_ADD", frame.offset, frame.sequence)
    assert "the message in it is lost" in entry.reason
    assert store.quarantine.set_aside == 1
    rig.die(power_loss=True)
    again = rig.activate("c")
    assert again.quarantine.entries() == [entry]
    assert again.quarantine.set_aside == 0
    found = read_entries(rig.disk("look"), DIRECTORY)
    assert [kept.entry for kept in found] == [entry]


def test_a_passive_node_follows_past_what_the_active_one_has_set_aside() -> None:
    rig = filled(3)
    frame = damaged(rig)
    follower = rig.follower("b")
    with pytest.raises(JournalCorrupt):
        while follower.poll(1 << 20):
            continue
    number, epoch = place_of(rig, frame)
    entry = QuarantineEntry(
        "message-1-1", "message", "x", 1, segment=number, epoch=epoch, offset=frame.offset, length=frame.length
    )
    Applier(rig.disk("a"), DIRECTORY).apply(entry_operations([(entry, b"")]))
    while follower.poll(1 << 20):
        continue
    assert follower.caught_up


def place_of(rig: StoreHarness, frame: Frame) -> tuple[int, int]:
    """The segment in which the record of a frame is damaged."""
    with pytest.raises(JournalCorrupt) as caught:
        recover(rig.disk("judge"), DIRECTORY)
    assert caught.value.offset == frame.offset
    parsed = parse_name(caught.value.file.rsplit("/", 1)[1])
    assert parsed is not None
    return parsed[0], parsed[1]


def test_damage_of_unknown_extent_is_refused() -> None:
    rig = filled(4)
    path, frame = [pair for pair in frames(rig) if pair[1].kind == RecordType.MESSAGE_ADD][5]
    (following,) = [each for where, each in frames(rig) if each.sequence == frame.sequence + 1]
    file = rig.disk("vandal").open(path)
    # the first record and the length of the second: where one ends and the other begins is gone
    file.write(frame.offset, (b"\xff" * 24,))
    file.write(following.offset, (b"\xff" * 24,))
    file.close()
    with pytest.raises(JournalCorrupt) as caught:
        recover(rig.disk("judge"), DIRECTORY, quarantine=True)
    assert "--quarantine" not in str(caught.value)
    assert f"understudy data salvage {DIRECTORY} --to" in str(caught.value)


def test_several_in_a_row() -> None:
    rig = filled(5)
    messages = [pair for pair in frames(rig) if pair[1].kind == RecordType.MESSAGE_ADD]
    at = next(
        index
        for index in range(len(messages) - 1)
        if messages[index][1].sequence + 1 == messages[index + 1][1].sequence
    )
    for path, frame in messages[at : at + 2]:
        rig.volume.flip_bit(path, frame.offset + frame.length - 1, 2)
    follower = recover(rig.disk("judge"), DIRECTORY, quarantine=True)
    assert [record.sequence for record in follower.damage.passed.values()] == [
        frame.sequence for _, frame in messages[at : at + 2]
    ]


def test_a_torn_tail_is_still_cut() -> None:
    rig = StoreHarness(random.Random(6))
    store = rig.activate("a")
    rig.queue()
    for _ in range(5):
        rig.send()
    while store.context.durable < store.last_sequence or not rig.idle:
        store.flush()
        rig.time.advance(10)
    rig.die(power_loss=False)
    path, frame = frames(rig)[-2]
    rig.volume.flip_bit(path, frame.offset + frame.length - 1, 2)
    follower = recover(rig.disk("judge"), DIRECTORY, quarantine=True)
    assert follower.damage.passed == {}
    assert follower.torn is not None


def trimmed_to_a_message() -> tuple[StoreHarness, str, Frame]:
    """A log whose beginning was trimmed, and whose first record is a message that waits; the node has died."""
    rig = StoreHarness(random.Random(4), id_cache_size=50)
    store = rig.activate("a")
    rig.address()
    rig.queue()
    begins = rig.segments()[0]
    while True:
        rig.send()
        if len(rig.live) > 20:
            queue_id, message_id = rig.live.pop(0)
            store.store_acknowledges(queue_id, (message_id,))
        store.flush()
        rig.time.advance(10)
        if rig.segments()[0] == begins:
            continue
        begins = rig.segments()[0]
        path, frame = frames(rig)[0]
        if frame.kind == RecordType.MESSAGE_ADD:
            break
    rig.settle_log()
    rig.die(power_loss=False)
    return rig, path, frame


def test_damage_at_the_beginning_of_a_trimmed_log() -> None:
    """The sequence of the damaged record follows from the next one, and TRIM says that nothing else is missing."""
    rig, path, frame = trimmed_to_a_message()
    rig.volume.flip_bit(path, frame.offset + frame.length - 1, 2)
    with pytest.raises(JournalCorrupt) as caught:
        recover(rig.disk("judge"), DIRECTORY)
    assert "--quarantine" in str(caught.value)
    rig.settings = replace(rig.settings, compact_segments_min=1)
    store = rig.activate("b", Follower(rig.disk("b"), DIRECTORY, id_cache_size=50, quarantine=True))
    (entry,) = store.quarantine.entries()
    assert (entry.kind, entry.offset, entry.sequence) == ("MESSAGE_ADD", frame.offset, frame.sequence)
    rig.die(power_loss=False)
    store = rig.activate("c")
    for _ in range(1000):
        rig.send()
        store.flush()
        rig.time.advance(10)
        if any(name.endswith(".snap") for name in rig.volume.paths()):
            break
    else:
        pytest.fail("no snapshot was made over the damage")
    rig.die(power_loss=False)
    assert recover(rig.disk("judge"), DIRECTORY).damage.passed == {}


def test_a_trimmed_log_that_begins_with_more_damage_than_is_known_is_refused() -> None:
    rig, path, frame = trimmed_to_a_message()
    number, epoch, _ = parse_name(path.rsplit("/", 1)[1]) or (0, 0, False)
    following = [each for where, each in frames(rig) if where == path][1]
    rig.volume.flip_bit(path, frame.offset + frame.length - 1, 2)
    rig.volume.flip_bit(path, following.offset + following.length - 1, 2)
    # one extent for two records: its first sequence contradicts TRIM
    both = QuarantineEntry(
        "message-1-1", "message", "x", 1, segment=number, epoch=epoch, offset=frame.offset,
        length=frame.length + following.length,
    )  # fmt: skip
    Applier(rig.disk("a"), DIRECTORY).apply(entry_operations([(both, b"")]))
    with pytest.raises(JournalCorrupt, match="no record says that earlier ones were trimmed"):
        recover(rig.disk("judge"), DIRECTORY, quarantine=True)
