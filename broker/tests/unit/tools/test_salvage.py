"""The readable part of a damaged store is written into a new one, and the losses are listed."""

from __future__ import annotations

import random

import pytest

from support.large import Node
from support.routing import callback_of, text
from support.store import DIRECTORY, NODE_ID, StoreHarness
from support.store_model import contents_of, order_of
from understudy.message import Message
from understudy.store.log.reading.follower import recover
from understudy.store.log.records import MessageRecord, RecordType
from understudy.tools.inspect import read_log
from understudy.tools.salvage import Salvage
from understudy.tools.salvaged_store import write
from unit.store.log.test_damage import frames

NEW = "/new/journal"
LARGE = f"{DIRECTORY}/large"


def filled(seed: int, **options: object) -> StoreHarness:
    rig = StoreHarness(random.Random(seed), id_cache_size=50, with_large=True, **options)  # type: ignore[arg-type]
    for _ in range(3):
        store = rig.activate("a")
        rig.resume_from(rig.model.contents())
        for _ in range(80):
            rig.operate()
            store.flush()
            rig.time.advance(10)
        while store.context.durable < store.last_sequence or not rig.idle:
            store.flush()
            rig.time.advance(10)
        rig.die(power_loss=False)
        rig.model.crash(store.last_sequence)
    return rig


def salvaged(rig: StoreHarness) -> tuple[Salvage, dict[str, object]]:
    before = {path: rig.volume.content(path) for path in rig.volume.paths()}
    salvage = Salvage(rig.disk("tool"), DIRECTORY, LARGE)
    salvage.read()
    write(salvage, rig.disk("tool"), NEW, "/new/large", rig.time, NODE_ID)
    assert {path: rig.volume.content(path) for path in before} == before, "the old store is only read"
    return salvage, contents_of(recover(rig.disk("look"), NEW).state)


@pytest.mark.parametrize("index", [0, 2])
def test_a_missing_segment_that_no_trim_gives_up_is_reported(index: int) -> None:
    """Seed 4 has a trimmed beginning, which is no loss; a lost segment after the trimmed ones is."""
    rig = filled(4, compact_segments_min=0)
    first = rig.segments()[0]
    assert "segment-000000000001-" not in first
    rig.disk("vandal").remove(rig.segments()[index])
    salvage, _ = salvaged(rig)
    assert salvage.report.lost
    if index == 0:
        assert "segments before it are missing" in salvage.report.lost[0].what


def without_prepared_ids(contents: dict[str, object]) -> dict[str, object]:
    prepared = contents["prepared"]
    assert isinstance(prepared, dict)
    return contents | {"prepared": sorted(prepared.values(), key=str)}


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("consolidated", [0, 2])
def test_a_whole_store_is_carried_over_whole(seed: int, consolidated: int) -> None:
    rig = filled(seed, compact_segments_min=consolidated)
    whole = contents_of(recover(rig.disk("look"), DIRECTORY).state)
    salvage, new = salvaged(rig)
    assert salvage.report.lost == []
    assert without_prepared_ids(new) == without_prepared_ids(whole)
    assert order_of(new) == order_of(whole)
    state = recover(rig.disk("look"), NEW).state
    assert state.epoch > recover(rig.disk("look"), DIRECTORY).state.epoch
    assert state.node_id == NODE_ID


@pytest.mark.parametrize("seed", range(6))
def test_undamaged_records_are_salvaged(seed: int) -> None:
    """Half a kilobyte somewhere in the records is overwritten: every message outside of it is in the new store."""
    rig = filled(100 + seed)
    whole = contents_of(recover(rig.disk("look"), DIRECTORY).state)["messages"]
    path, frame = rig.stream.choice(frames(rig)[3:])
    begin, end = frame.offset, frame.offset + 512
    hit = {
        each.sequence
        for where, each in frames(rig)
        if where == path and each.offset < end and begin < each.offset + each.length
    }
    kinds = {RecordType(each.kind) for _, each in frames(rig) if each.sequence in hit}
    lost_ids = ids_in(rig, hit)
    file = rig.disk("vandal").open(path)
    file.write(begin, (rig.stream.randbytes(min(512, file.size() - begin)),))
    file.close()
    salvage, new = salvaged(rig)
    assert salvage.report.lost_count
    kept = {(queue, message) for queue, entries in new["messages"].items() for message in entries}  # type: ignore[attr-defined]
    for queue_id, entries in whole.items():
        for message_id in entries:
            if message_id not in lost_ids and not kinds & {RecordType.QUEUE_REMOVE, RecordType.QUEUE_ADD}:
                assert (queue_id, message_id) in kept


def ids_in(rig: StoreHarness, sequences: set[int]) -> set[int]:
    """Messages whose records these are."""
    return {
        getattr(logged.record, "message_id", 0)
        for logged in read_log(rig.disk("look"), DIRECTORY)
        if logged.frame.sequence in sequences
    }


def test_a_damaged_header_of_the_newest_epoch() -> None:
    rig = filled(7)
    whole = contents_of(recover(rig.disk("look"), DIRECTORY).state)
    newest = max(rig.segments(), key=lambda path: path.rsplit("-", 1)[1])
    rig.volume.flip_bit(newest, 3, 1)
    salvage, new = salvaged(rig)
    assert salvage.report.lost_count
    assert new["messages"] == whole["messages"]


def test_dead_letters_delivery_counts_and_settings_of_queues_are_carried_over() -> None:
    rig = StoreHarness(random.Random(7))
    node = Node(rig, "a", {"work": {"dead_letter_address": "DLQ", "max_delivery_attempts": 1}})
    dead, count = node.world.queue("DLQ", ring_size=9, exclusive=True), node.world.queue("count", last_value=True)
    node.world.queue("work")
    for name, times in (("work", 1), ("count", 3)):
        node.world.session().sends.send(text("m", name))
        session = node.world.session(transacted=True)
        for number in range(times):
            session.consumers.create(number, name)
            session.consumers.receive_credits(number, 1)
            node.settle()
            session.acknowledge(number, callback_of(session).delivered[-1][1].message_id)
            session.rollback()
            session.consumers.close(number)
    node.settle()
    before = recover(rig.disk("look"), DIRECTORY).state
    rig.die(power_loss=False)
    salvage = Salvage(rig.disk("tool"), DIRECTORY, LARGE)
    salvage.read()
    write(salvage, rig.disk("tool"), NEW, "/new/large", rig.time, NODE_ID)
    after = recover(rig.disk("look"), NEW).state
    assert {each.name: each.settings for each in after.queues.values()} == {
        each.name: each.settings for each in before.queues.values()
    }
    records = [each.record for each in read_log(rig.disk("look"), NEW) if isinstance(each.record, MessageRecord)]
    (letter,) = [each for each in records if dead.queue_id in each.queue_ids]
    assert Message.decode(letter.encoded).properties["_AMQ_ORIG_QUEUE"] == "work"
    assert [each.delivery_count for each in after.references[count.queue_id].references()] == [3]
