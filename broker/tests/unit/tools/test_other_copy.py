"""Damaged and missing parts of a store are taken from another copy of it, and only if they are the same."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from zlib import crc32

import pytest

from support.store import DIRECTORY, NODE_ID, StoreHarness
from support.store_model import contents_of
from understudy.errors import WrongNode
from understudy.ids import NodeId
from understudy.message import large_body_of
from understudy.store.log.reading.follower import recover
from understudy.store.log.records import MESSAGE_LARGE, MessageRecord, RecordType
from understudy.store.log.segment import HEADER_BLOCK_BYTES, decode_header, encode_header, seed_of, segment_name
from understudy.store.messages.reference import unpack_location
from understudy.store.quarantine import QuarantineEntry, quarantine_path
from understudy.store.snapshots.snapshot import snapshot_names
from understudy.tools.inspect import LoggedRecord, read_log
from understudy.tools.other_copy import OtherCopy
from understudy.tools.salvage import Salvage
from understudy.tools.salvaged_store import write
from unit.store.log.test_damage import frames
from unit.tools.test_compaction import compact, store_of
from unit.tools.test_salvage import LARGE, filled, without_prepared_ids

OTHER = "/other"
NEW = "/new/journal"


def copy(rig: StoreHarness, target: str = OTHER) -> None:
    """Copy the directories, as ``rsync`` does."""
    disk = rig.disk("copier")
    for path in rig.volume.paths():
        if path.startswith(f"{DIRECTORY}/"):
            where = f"{target}{path.removeprefix(DIRECTORY)}"
            disk.make_directory(where.rpartition("/")[0])
            put(rig, where, rig.volume.content(path))


def put(rig: StoreHarness, path: str, content: bytes) -> None:
    disk = rig.disk("vandal")
    if disk.exists(path):
        disk.remove(path)
    file = disk.open(path, create=True)
    file.write(0, (content,))
    file.close()


def overwrite(rig: StoreHarness, path: str, offset: int, length: int = 512) -> None:
    content = bytearray(rig.volume.content(path))
    end = min(offset + length, len(content))
    content[offset:end] = rig.stream.randbytes(end - offset)
    put(rig, path, bytes(content))


def salvaged(rig: StoreHarness, *, is_restoring: bool = True) -> tuple[Salvage, dict[str, object]]:
    before = {path: rig.volume.content(path) for path in rig.volume.paths()}
    disk = rig.disk("tool")
    salvage = Salvage(disk, DIRECTORY, LARGE, OtherCopy(disk, OTHER, f"{OTHER}/large") if is_restoring else None)
    salvage.read()
    write(salvage, disk, NEW, "/new/large", rig.time, NODE_ID)
    assert {path: rig.volume.content(path) for path in before} == before, "both copies are only read"
    return salvage, contents_of(recover(rig.disk("look"), NEW).state)


def contents(rig: StoreHarness) -> dict[str, object]:
    return without_prepared_ids(contents_of(recover(rig.disk("look"), DIRECTORY).state))


def path_of(logged: LoggedRecord) -> str:
    return f"{DIRECTORY}/{segment_name(logged.number, logged.epoch)}"


def live_messages(rig: StoreHarness) -> list[LoggedRecord]:
    """Records of messages that are in a queue and in no transaction."""
    state = recover(rig.disk("look"), DIRECTORY).state
    ids = {each.message_id for backlog in state.references.values() for each in backlog.references()}
    logged = read_log(rig.disk("look"), DIRECTORY)
    return [each for each in logged if isinstance(each.record, MessageRecord) and each.record.message_id in ids]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("consolidated", [0, 2])
def test_damaged_records_of_every_type_come_from_the_other_copy(seed: int, consolidated: int) -> None:
    rig = filled(200 + seed, compact_segments_min=consolidated)
    whole = contents(rig)
    places = frames(rig)
    ends = {path: frame.offset + frame.length for path, frame in places}
    copy(rig)
    for path, frame in rig.stream.sample(places, 4):
        overwrite(rig, path, frame.offset, min(512, ends[path] - frame.offset))
    salvage, new = salvaged(rig)
    assert salvage.report.lost == []
    assert without_prepared_ids(new) == whole
    assert sum(salvage.report.restored.values())


def test_the_same_damage_in_both_copies_is_lost_and_named() -> None:
    rig = filled(32)
    (path, offset), *_ = [(path_of(each), each.frame.offset) for each in live_messages(rig)]
    overwrite(rig, path, offset + 30, 8)
    copy(rig)
    salvage, _ = salvaged(rig)
    assert [(lost.file, lost.offset) for lost in salvage.report.lost] == [(path, offset)]
    assert salvage.report.restored == {}


def test_each_copy_has_damage_of_its_own() -> None:
    rig = filled(32)
    whole = contents(rig)
    copy(rig)
    first, second, *_ = live_messages(rig)
    overwrite(rig, path_of(first), first.frame.offset + 30, 8)
    overwrite(rig, path_of(second).replace(DIRECTORY, OTHER, 1), second.frame.offset + 30, 8)
    salvage, new = salvaged(rig)
    assert salvage.report.lost == []
    assert without_prepared_ids(new) == whole


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_missing_segment_comes_from_the_other_copy(index: int) -> None:
    rig = filled(4, compact_segments_min=0)
    whole = contents(rig)
    path = rig.segments()[index]
    copy(rig)
    rig.disk("vandal").remove(path)
    salvage, new = salvaged(rig)
    assert salvage.report.lost == []
    assert salvage.report.restored == {"segment": 1}
    assert without_prepared_ids(new) == whole


def test_the_header_of_the_newest_epoch() -> None:
    rig = filled(7)
    whole = contents(rig)
    newest = max(rig.segments(), key=lambda path: path.rsplit("-", 1)[1])
    copy(rig)
    rig.volume.flip_bit(newest, 3, 1)
    salvage, new = salvaged(rig)
    assert salvage.report.lost == []
    assert salvage.report.restored == {"header": 1}
    assert without_prepared_ids(new) == whole


def test_damaged_snapshots_come_from_the_other_copy() -> None:
    rig = store_of()
    compact(rig.volume)
    whole = contents(rig)
    snapshots = snapshot_names(rig.disk("look").list(DIRECTORY))
    assert snapshots
    copy(rig)
    for name in snapshots:
        rig.volume.flip_bit(f"{DIRECTORY}/{name}", len(rig.volume.content(f"{DIRECTORY}/{name}")) // 2, 1)
    salvage, new = salvaged(rig)
    assert salvage.report.lost == []
    assert salvage.report.restored == {"snapshot": len(snapshots)}
    assert without_prepared_ids(new) == whole


def test_a_copy_from_before_a_compaction_has_the_records_in_other_segments() -> None:
    """A snapshot names copied messages whose records are damaged, of an epoch that the other copy does not have."""
    rig = store_of()
    copy(rig)
    segments = [each for each in rig.segments() if each.startswith(f"{DIRECTORY}/")]
    compact(rig.volume)
    whole = contents(rig)
    state = recover(rig.disk("look"), DIRECTORY).state
    places = {
        unpack_location(reference.location)
        for backlog in state.references.values()
        for reference in backlog.references()
        if reference.location is not None
    }
    added = [each for each in rig.segments() if each.startswith(f"{DIRECTORY}/") and each not in segments]
    damaged = 0
    for path in added:
        for number, offset, length in sorted(places):
            if f"segment-{number:012d}-" in path:
                overwrite(rig, path, offset + length - 4, 4)
                damaged += 1
    assert damaged
    salvage, new = salvaged(rig)
    assert salvage.report.lost == []
    assert salvage.report.restored == {"message": damaged}
    assert without_prepared_ids(new) == whole


def test_an_older_copy_with_fewer_epochs_and_segments() -> None:
    """The other copy ends before the last activation; a record of an earlier one is taken from it."""
    rig, older = next(
        (rig, each)
        for rig in (filled(33 + seed) for seed in range(30))
        for each in live_messages(rig)
        if each.epoch < recover(rig.disk("look"), DIRECTORY).state.epoch
    )
    whole = contents(rig)
    segments = rig.segments()
    copy(rig)
    newest = recover(rig.disk("look"), DIRECTORY).state.epoch
    for path in segments:
        if path.endswith(f"-{newest:010d}.log"):
            rig.disk("vandal").remove(path.replace(DIRECTORY, OTHER, 1))
    overwrite(rig, path_of(older), older.frame.offset + 30, 8)
    salvage, new = salvaged(rig)
    assert salvage.report.lost == []
    assert salvage.report.restored == {"MESSAGE_ADD": 1}
    assert without_prepared_ids(new) == whole


@pytest.mark.parametrize("is_missing", [False, True])
def test_bodies_of_large_messages(is_missing: bool) -> None:
    rig = filled(34)
    large = [each.record for each in live_messages(rig) if each.record.flags & MESSAGE_LARGE]  # type: ignore[union-attr]  # present in this store
    assert large
    copy(rig)
    body = large_body_of(large[0].encoded)  # type: ignore[union-attr]  # present in this store
    path = f"{LARGE}/{body.file_id}.large"
    content = rig.volume.content(path)
    if is_missing:
        rig.disk("vandal").remove(path)
    else:
        rig.volume.flip_bit(path, body.size_bytes // 2, 1)
    salvage, _ = salvaged(rig)
    assert salvage.report.lost == []
    assert salvage.report.restored == {"body": 1}
    assert rig.volume.content(f"/new/large/{body.file_id}.large") == content


def test_a_body_that_fits_in_neither_copy_is_named() -> None:
    rig = filled(34)
    record = next(each.record for each in live_messages(rig) if each.record.flags & MESSAGE_LARGE)  # type: ignore[union-attr]  # present in this store
    body = large_body_of(record.encoded)  # type: ignore[union-attr]  # present in this store
    rig.volume.flip_bit(f"{LARGE}/{body.file_id}.large", 0, 1)
    copy(rig)
    salvage, _ = salvaged(rig)
    assert salvage.report.messages_lost
    assert f"{body.file_id}.large" in salvage.report.lost[0].what


@pytest.mark.parametrize("is_dropped", [False, True])
def test_a_message_of_the_quarantine_is_in_its_queue_again(is_dropped: bool) -> None:
    """The queue has acknowledged the message. An entry that an operator dropped stays away."""
    rig = filled(35)
    state = recover(rig.disk("look"), DIRECTORY).state
    live = {each.message_id for backlog in state.references.values() for each in backlog.references()}
    message, record, queue_id = next(
        (each, each.record, queue_id)
        for each in read_log(rig.disk("look"), DIRECTORY)
        if isinstance(each.record, MessageRecord) and not each.record.flags & MESSAGE_LARGE and not each.record.tx_id
        for queue_id in each.record.queue_ids
        if each.record.message_id not in live and queue_id in state.queues
    )
    entry = QuarantineEntry(
        "entry",
        "message",
        "it is damaged",
        1,
        segment=message.number,
        epoch=message.epoch,
        offset=message.frame.offset,
        length=message.frame.length,
        queue=state.queues[queue_id].name,
        queue_id=queue_id,
        message_id=record.message_id,
        dropped=is_dropped,
    )
    copy(rig)
    overwrite(rig, path_of(message), message.frame.offset + 30, 8)
    rig.disk("vandal").make_directory(quarantine_path(DIRECTORY))
    put(rig, f"{quarantine_path(DIRECTORY)}/entry.entry", json.dumps(asdict(entry)).encode() + b"\n")
    salvage, new = salvaged(rig)
    assert (record.message_id in new["messages"][queue_id]) is not is_dropped  # type: ignore[index]  # present in this store
    assert salvage.report.restored.get("quarantined message", 0) == (not is_dropped)
    assert bool(salvage.report.lost) is is_dropped, "the extent of a dropped entry stays damaged"


def test_a_record_that_lies_elsewhere_in_the_other_copy_is_found_by_its_message_id() -> None:
    """The other copy has only a segment of another number with that record, as consolidation makes it."""
    rig = filled(38)
    logged = next(each for each in live_messages(rig) if each.frame.kind == RecordType.MESSAGE_ADD)
    path, offset, length = path_of(logged), logged.frame.offset, logged.frame.length
    whole = contents(rig)
    raw = rig.volume.content(path)[offset : offset + length]
    header = decode_header(rig.volume.content(path)[:HEADER_BLOCK_BYTES], path)
    elsewhere = replace(header, number=header.number + 1_000, first_of_epoch=False)
    # the batch of a record begins in its segment
    rest = raw[4:16] + HEADER_BLOCK_BYTES.to_bytes(4, "little") + raw[20:]
    crc = crc32(rest, seed_of(elsewhere.number, elsewhere.epoch))
    rig.disk("vandal").make_directory(OTHER)
    name = segment_name(elsewhere.number, elsewhere.epoch)
    put(rig, f"{OTHER}/{name}", encode_header(elsewhere) + crc.to_bytes(4, "little") + rest)
    overwrite(rig, path, offset + length - 4, 4)
    salvage, new = salvaged(rig)
    assert salvage.report.lost == []
    assert salvage.report.restored == {"message": 1}
    assert without_prepared_ids(new) == whole


def test_a_copy_of_another_node_is_refused() -> None:
    rig = filled(36)
    segments = rig.segments()
    copy(rig)
    path = segments[0].replace(DIRECTORY, OTHER, 1)
    content = rig.volume.content(path)
    header = replace(decode_header(content[:HEADER_BLOCK_BYTES], path), node_id=NodeId(NODE_ID.replace("0f", "1f")))
    put(rig, path, encode_header(header) + content[HEADER_BLOCK_BYTES:])
    with pytest.raises(WrongNode, match="another node"):
        salvaged(rig)


def test_nothing_is_taken_from_an_epoch_that_both_copies_began_on_their_own() -> None:
    rig = filled(37)
    messages = live_messages(rig)
    newest = max(each.epoch for each in messages)
    message = next(each for each in messages if each.epoch == newest)
    copy(rig)
    for path in [each for each in rig.segments() if each.startswith(f"{OTHER}/") and f"-{newest:010d}.log" in each]:
        content = rig.volume.content(path)
        header = decode_header(content[:HEADER_BLOCK_BYTES], path)
        put(rig, path, encode_header(replace(header, created_ms=header.created_ms + 1)) + content[HEADER_BLOCK_BYTES:])
    overwrite(rig, path_of(message), message.frame.offset + message.frame.length - 4, 4)
    salvage, _ = salvaged(rig)
    assert salvage.report.restored == {}
    assert salvage.report.lost
