"""Goal: tools report the contents and change nothing."""

from __future__ import annotations

import json
import random

import pytest
from tests.support.store import DIRECTORY, NODE_ID, StoreHarness

from understudy.store.log.records import RecordType
from understudy.store.setting_record import SettingKind, SettingRecord
from understudy.tools.inspect import describe, is_store, read_log, verify


@pytest.fixture
def rig() -> StoreHarness:
    rig = StoreHarness(random.Random(2))
    for owner in "ab":
        rig.activate(owner)
        rig.resume_from(rig.model.contents())
        for _ in range(150):
            rig.operate()
            if rig.stream.random() < 0.1:
                rig.settle()
        rig.settle()
        last = rig.store.last_sequence
        rig.die(power_loss=False)
        rig.model.crash(last)
    return rig


def test_a_whole_store(rig: StoreHarness) -> None:
    before = rig.volume.operations
    seen: list[tuple[int, int]] = []
    report = verify(rig.disk("j"), DIRECTORY, lambda done, total: seen.append((done, total)))
    assert rig.volume.operations == before
    assert report.problems == ()
    assert (report.node_id, report.epoch) == (NODE_ID, 2)
    assert report.last_sequence == rig.model.operations[-1][0]
    assert report.live_messages == sum(map(len, rig.model.contents()["messages"].values()))
    assert seen[-1] == (len(report.segments), len(report.segments))
    states = [segment.state for segment in report.segments]
    assert states[-2:] == ["open", "empty"]
    assert "sealed" in states
    assert "ended" in states


def test_every_damaged_byte_of_records_is_located(rig: StoreHarness) -> None:
    stream = random.Random(9)
    whole = verify(rig.disk("j"), DIRECTORY)
    checked = 0
    for segment in whole.segments:
        if segment.state in ("open", "empty"):
            continue
        for _ in range(10):
            offset = stream.randrange(segment.used_bytes)
            rig.volume.flip_bit(segment.file, offset, 3)
            report = verify(rig.disk("j"), DIRECTORY)
            hits = [problem for problem in report.problems if problem.file == segment.file]
            assert hits
            assert hits[0].offset <= offset
            rig.volume.flip_bit(segment.file, offset, 3)
            checked += 1
    assert checked >= 20
    assert verify(rig.disk("j"), DIRECTORY) == whole


def test_a_torn_tail_is_no_damage_and_is_counted(rig: StoreHarness) -> None:
    segment = next(s for s in verify(rig.disk("j"), DIRECTORY).segments if s.state == "open")
    rig.disk("x").open(segment.file).write(segment.used_bytes, (b"\7" * 100,))
    report = verify(rig.disk("j"), DIRECTORY)
    assert report.problems == ()
    assert next(s for s in report.segments if s.state == "open").tail_bytes == 24, "the header"


def test_records_are_described_as_json(rig: StoreHarness) -> None:
    kinds = set()
    for logged in read_log(rig.disk("j"), DIRECTORY):
        values = describe(logged, NODE_ID)
        json.dumps(values)
        kinds.add(values["kind"])
        assert values["offset"] >= 4096
        if values["kind"] == "MESSAGE_ADD":
            assert values["address"] == "x"
            assert "encoded" not in values
    assert {"EPOCH", "SEAL", "MESSAGE_ADD", "ACKNOWLEDGE", "QUEUE_ADD", "ADDRESS_ADD"} <= kinds
    assert kinds <= {kind.name for kind in RecordType}


def test_settings_are_described_with_their_values() -> None:
    rig = StoreHarness(random.Random(1))
    rig.activate("a").store_setting(SettingRecord(SettingKind.ADDRESS, "a.#", {"redeliveryDelay": 5}))
    rig.settle()
    values = [describe(logged, NODE_ID) for logged in read_log(rig.disk("j"), DIRECTORY)]
    (found,) = [each for each in values if each["kind"] == "SETTING"]
    assert (found["scope"], found["match"], found["values"]) == ("address", "a.#", {"redeliveryDelay": 5})
    json.dumps(found)


def test_is_store(rig: StoreHarness) -> None:
    assert is_store(rig.disk("j"), DIRECTORY)
    assert not is_store(rig.disk("j"), "/elsewhere")
