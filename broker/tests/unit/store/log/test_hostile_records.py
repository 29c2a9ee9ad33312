"""Records that were written on purpose, with right checksums (found by fuzzing): every reader says where."""

from __future__ import annotations

import json
import struct

import pytest

from fuzz.targets_snapshot import FIELDS_BYTES, snapshot_seeds, snapshot_volume
from fuzz.targets_store import PART, parts_of, volume_of
from support.routing import World
from support.store import DIRECTORY
from understudy.errors import JournalCorrupt, StoreError
from understudy.routing.restore import restore
from understudy.store.log.reading.follower import recover
from understudy.store.log.records import RecordType
from understudy.store.log.segment import HEADER_BLOCK_BYTES
from understudy.store.snapshots.snapshot import REFERENCE, read_snapshot
from understudy.tools.retained import RetainedCounts, retained_messages


def address(**changed: object) -> bytes:
    values = {"name": "a", "routing_types": [1], "auto_created": False, "settings": {}} | changed
    return struct.pack("<Q", 1) + json.dumps(values).encode()


def queue(**changed: object) -> bytes:
    values = {"name": "q", "routing_type": 1, "filter": None, "durable": True, "settings": {}} | changed
    return struct.pack("<QQ", 2, 1) + json.dumps(values).encode()


def setting(**changed: object) -> bytes:
    return json.dumps({"kind": "address", "match": "a", "values": {}} | changed).encode()


def message(priority: int) -> bytes:
    return struct.pack("<QQQqqBBHIQ", 1, 0, 1, 0, 0, priority, 0, 0, 1, 2)


HUGE = struct.pack("<QQQqqBBHI", 1, 0, 1, 0, 0, 4, 0, 0, 0xFFFFFFFF)
CASES = {
    "an acknowledgement of nothing": (int(RecordType.ACKNOWLEDGE), 0, b""),
    "an acknowledgement cut short": (int(RecordType.ACKNOWLEDGE), 0, b"12345678901"),
    "a commit of nothing": (int(RecordType.TX_COMMIT), 0, b""),
    "a message for four thousand million queues": (int(RecordType.MESSAGE_ADD), 0, HUGE),
    "a message of nothing": (int(RecordType.MESSAGE_ADD), 0, b""),
    "a message of a priority that there is not": (int(RecordType.MESSAGE_ADD), 0, message(200)),
    "an address of another kind": (int(RecordType.ADDRESS_ADD), 0, address(routing_types=[3])),
    "an address without a name": (int(RecordType.ADDRESS_ADD), 0, address(name=None)),
    "a queue of another kind": (int(RecordType.QUEUE_ADD), 0, queue(routing_type="ANYCAST")),
    "a queue with a number for a filter": (int(RecordType.QUEUE_ADD), 0, queue(filter=5)),
    "a setting of an unknown kind": (int(RecordType.SETTING), 0, setting(kind="tls")),
    "a setting without a match": (int(RecordType.SETTING), 0, setting(match=None)),
    "a setting with a list of values": (int(RecordType.SETTING), 0, setting(values=[1])),
    "a setting that is a list": (int(RecordType.SETTING), 0, b"[]"),
    "a type that does not exist": (99, 0, b"x"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_log_is_refused_where_it_is_wrong(name: str) -> None:
    disk = volume_of(parts_of([CASES[name]])).disk("reader")
    with pytest.raises(JournalCorrupt) as caught:
        recover(disk, DIRECTORY)
    assert caught.value.offset > HEADER_BLOCK_BYTES


@pytest.mark.parametrize("name", ["a commit of nothing", "a message of nothing"])
def test_so_are_retained_segments(name: str) -> None:
    disk = volume_of(parts_of([CASES[name]])).disk("reader")
    with pytest.raises(JournalCorrupt) as caught:
        list(retained_messages(disk, DIRECTORY, RetainedCounts()))
    assert caught.value.offset > HEADER_BLOCK_BYTES


BINDINGS = (
    (int(RecordType.ADDRESS_ADD), 0, address()),
    (int(RecordType.QUEUE_ADD), 0, queue(filter="a = ")),
)
SETTINGS = (
    (int(RecordType.ADDRESS_ADD), 0, address()),
    (int(RecordType.QUEUE_ADD), 0, queue(settings={"max_consumers": True})),
)
DIVERTS = ((int(RecordType.ADDRESS_ADD), 0, address(settings={"diverts": [{"name": "d"}]})),)


@pytest.mark.parametrize("entries", [BINDINGS, SETTINGS, DIVERTS])
def test_bindings_that_no_broker_wrote_are_an_error_of_the_store(entries: tuple[tuple[int, int, bytes], ...]) -> None:
    state = recover(volume_of(parts_of(list(entries))).disk("reader"), DIRECTORY).state
    with pytest.raises(StoreError, match=r"'[aq]'"):
        restore(World().office, state)


def snapshot_parts() -> list[tuple[int, int, bytes]]:
    """A small one: the log, its segments, nothing else, the end."""
    whole = snapshot_seeds()[1]
    return [each for each in split(whole) if each[0] in (32, 33, 37)]


def split(data: bytes) -> list[tuple[int, int, bytes]]:
    entries, at = [], FIELDS_BYTES
    while at < len(data):
        kind, flags, size = PART.unpack_from(data, at)
        at += PART.size
        entries.append((kind, flags, data[at : at + size]))
        at += size
    return entries


REFERENCE_OF_PRIORITY_200 = REFERENCE.pack(2, 5, 0, 0, 1, 4096, 100, 100, 0, 200, 0)


@pytest.mark.parametrize(
    "hostile",
    [
        {37: b"short"},
        {36: REFERENCE_OF_PRIORITY_200},
        {35: struct.pack("<QQIIII", 1, 1, 0, 0, 1, 0) + REFERENCE_OF_PRIORITY_200},
    ],
)
def test_a_snapshot_is_refused_where_it_is_wrong(hostile: dict[int, bytes]) -> None:
    parts = {kind: payload for kind, _, payload in snapshot_parts()} | hostile
    entries = [(kind, 0, payload) for kind, payload in sorted(parts.items())]
    volume, name = snapshot_volume(snapshot_seeds()[0][:FIELDS_BYTES] + parts_of(entries))
    disk = volume.disk("reader")
    file = disk.open(f"{DIRECTORY}/{name}", read_only=True)
    with pytest.raises(JournalCorrupt) as caught:
        read_snapshot(file, name)
    assert caught.value.offset >= HEADER_BLOCK_BYTES
