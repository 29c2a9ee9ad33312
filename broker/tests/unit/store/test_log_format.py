"""Goal: a log gets a later format version only when a record needs it and every passive node reads it; an earlier
version then refuses the log by the header, and reads everything before (ADR 0088).
"""

from __future__ import annotations

import random

import pytest
from tests.support.store import DIRECTORY, Crashed, StoreHarness

from understudy.errors import DiskFull, StoreFormatHeld
from understudy.store.log.format_version import FORMAT_VERSION_FIRST
from understudy.store.log.reading.follower import recover
from understudy.store.log.records import RecordType
from understudy.store.log.segment import SegmentHeader, decode_header, parse_name
from understudy.store.log_format import ReadableFormat
from understudy.store.messages.message_store import MessageStore
from understudy.store.setting_record import SettingKind, SettingRecord, encode_setting

#: Of the kinds below.
VERSION = 2
ADDRESS = SettingRecord(SettingKind.ADDRESS, "a", {"max-size-bytes": 1})
GROUP = SettingRecord(SettingKind.GROUP, "g", {"queue": "q"})
BRIDGE = SettingRecord(SettingKind.BRIDGE, "b", {"name": "b"})


def rig_of(seed: int = 1) -> tuple[StoreHarness, MessageStore]:
    rig = StoreHarness(random.Random(seed))
    store = rig.activate("a")
    rig.settle_log()
    return rig, store


def headers(rig: StoreHarness) -> list[SegmentHeader]:
    """Headers of all segments, in order."""
    disk = rig.volume.copy().disk("judge")
    found = []
    for path in rig.segments():
        file = disk.open(path, read_only=True)
        found.append(decode_header(file.read(0, 4096), path))
    return found


def versions(rig: StoreHarness) -> list[int]:
    return [header.format_version for header in headers(rig)]


def test_a_log_stays_at_the_first_version_until_a_record_needs_another() -> None:
    rig, store = rig_of()
    store.store_setting(ADDRESS)
    rig.settle_log()
    assert set(versions(rig)) == {FORMAT_VERSION_FIRST}
    before = store.last_sequence
    store.store_setting(GROUP)
    store.store_setting(BRIDGE)
    rig.settle_log()
    assert store.format.version == VERSION
    # the segments that were prepared are made anew, and only the segments before have the first version
    assert versions(rig)[0] == FORMAT_VERSION_FIRST
    assert set(versions(rig)[1:]) == {VERSION}
    assert len(versions(rig)) == len({header.number for header in headers(rig)})
    state = recover(rig.volume.copy().disk("judge"), DIRECTORY).state
    # the seal of the segment before, and the two records
    assert state.sequence == before + 3
    assert (SettingKind.GROUP, "g") in state.settings
    assert state.format_version == VERSION


def test_the_version_lasts_over_activations_and_is_that_of_snapshots() -> None:
    rig, store = rig_of()
    store.store_setting(GROUP)
    rig.settle_log()
    rig.die(power_loss=False)
    store = rig.activate("b")
    rig.settle_log()
    assert store.format.version == VERSION
    assert headers(rig)[-1].epoch == store.epoch
    assert headers(rig)[-1].format_version == VERSION
    store.format.readable = lambda: ReadableFormat(FORMAT_VERSION_FIRST, "the replica r")
    # the log has that version already, so what follows it reads it
    store.store_setting(BRIDGE)


def test_a_passive_node_of_an_earlier_version_holds_the_record_back() -> None:
    rig, store = rig_of()
    rig.settle_log()
    before, files = store.last_sequence, rig.segments()
    store.format.readable = lambda: ReadableFormat(FORMAT_VERSION_FIRST, "the replica r")
    with pytest.raises(StoreFormatHeld, match="group needs format version 2 of the log; the replica r is"):
        store.store_setting(GROUP)
    with pytest.raises(StoreFormatHeld):
        store.readers.register("r", store.readers.confirmed, 1 << 20)
    store.store_setting(ADDRESS)
    rig.settle_log()
    assert store.last_sequence == before + 1
    assert rig.segments() == files
    assert set(versions(rig)) == {FORMAT_VERSION_FIRST}
    assert [kind for kind, _ in store.state.settings] == [SettingKind.ADDRESS]
    assert [reader.name for reader in store.readers] == []
    # it was updated
    store.format.readable = lambda: ReadableFormat(VERSION, "the replica r")
    store.store_setting(GROUP)


def test_kinds_that_the_log_of_an_earlier_version_has_go_on() -> None:
    """A node from before ADR 0088 wrote them into segments of the first version, and its passive nodes read them."""
    rig, store = rig_of()
    store._journal.append(RecordType.SETTING, encode_setting(GROUP))
    rig.settle_log()
    rig.die(power_loss=False)
    store = rig.activate("b")
    store.format.readable = lambda: ReadableFormat(FORMAT_VERSION_FIRST, "the replica r")
    store.store_setting(SettingRecord(SettingKind.GROUP, "other", {"queue": "q"}))
    store.store_setting(SettingRecord(SettingKind.GROUP, "g", None))
    rig.settle_log()
    assert set(versions(rig)) == {FORMAT_VERSION_FIRST}
    with pytest.raises(StoreFormatHeld):
        store.store_setting(BRIDGE)


def test_a_full_disk_holds_the_record_back() -> None:
    _, store = rig_of()
    store._journal.spares.no_space = True
    with pytest.raises(DiskFull, match="format version 2"):
        store.store_setting(GROUP)
    assert store.format.version == FORMAT_VERSION_FIRST


def test_a_connector_needs_the_third_version() -> None:
    rig, store = rig_of()
    store.store_setting(BRIDGE)
    store.store_setting(SettingRecord(SettingKind.CONNECTOR, "c", {"url": "tcp://h:1"}))
    rig.settle_log()
    assert store.format.version == versions(rig)[-1] == 3


@pytest.mark.parametrize("power_loss", [False, True])
@pytest.mark.parametrize("at", range(1, 16))
def test_a_crash_at_any_moment_of_the_change_leaves_a_whole_log(at: int, power_loss: bool) -> None:
    rig, store = rig_of(seed=at)
    store.store_setting(ADDRESS)
    rig.settle_log()
    rig.crash_at(at)
    try:
        store.store_setting(GROUP)
        rig.settle_log()
    except Crashed:
        pass
    rig.die(power_loss=power_loss)
    store = rig.activate("b")
    rig.settle_log()
    assert (SettingKind.ADDRESS, "a") in store.state.settings
    written = (SettingKind.GROUP, "g") in store.state.settings
    # no record lies in a segment whose header does not state its version
    assert not written or store.format.version == VERSION
    store.store_setting(BRIDGE)
    rig.settle_log()
    assert not rig.failures
    assert recover(rig.volume.copy().disk("judge"), DIRECTORY).state.format_version == VERSION
    assert all(parse_name(path.rsplit("/", 1)[1]) is not None for path in rig.segments())
