"""Decoders of what lies on a disk: records, segments, whole logs, spilled blocks, lock files, exports.

A log protects itself by checksums, so bytes that were changed never get far. The target "log"
therefore writes its records with right checksums, as a person would that edits a store on purpose.
"""

from __future__ import annotations

import json
import random
import struct
from dataclasses import asdict
from functools import cache

from fuzz.target import Target
from fuzz.targets_wire import sample_message
from support.routing import World
from support.store import DIRECTORY, NODE_ID, StoreHarness
from understudy.errors import BrokerError, JournalCorrupt, StoreError
from understudy.ids import uuid_bytes
from understudy.routing.restore import restore
from understudy.store.log import records, segment
from understudy.store.log.applier import Applier
from understudy.store.log.reading.follower import recover
from understudy.store.log.reading.replay import read_frames
from understudy.store.log.records import RecordType
from understudy.store.log.segment import HEADER_BLOCK_BYTES, SegmentHeader
from understudy.store.messages.columns import Columns
from understudy.store.messages.large_messages import LargeMessages
from understudy.store.messages.reference import Location, MessageReference, pack_location
from understudy.store.messages.reference_block import Block
from understudy.store.node_lock import NodeLock
from understudy.store.quarantine import QuarantineEntry, quarantine_path, read_entries
from understudy.store.seen import POSITION_FILE, SeenPosition
from understudy.store.state import StoreState
from understudy.testing.manual_time import ManualTime
from understudy.testing.sim.disk import SimDisk, SimVolume
from understudy.testing.sim.writer import SimLogWriter
from understudy.tools.export import ExportHeader, end_line, header_line, parse_line
from understudy.tools.inspect import read_log, verify
from understudy.tools.retained import RetainedCounts, retained_messages

PART = struct.Struct("<BBH")
_EPOCH = records.encode_epoch(uuid_bytes(NODE_ID), 1, 0, ())


def _record(data: bytes) -> None:
    """The first two bytes are type and flags."""
    if len(data) >= 2:
        records.decode(data[0], data[1], data[2:])


@cache
def _real_records() -> tuple[tuple[int, int, bytes], ...]:
    """Type, flags and payload of the records of a store in use."""
    rig = StoreHarness(random.Random(4))
    rig.activate("a")
    for _ in range(120):
        rig.operate()
    rig.settle()
    found = {}
    for path in rig.segments():
        number, epoch, _ = segment.parse_name(path.rsplit("/", 1)[1]) or (0, 0, True)
        file = rig.disk("reader").open(path, read_only=True)
        for frame, raw in read_frames(file, segment.seed_of(number, epoch)):
            found.setdefault((frame.kind, frame.flags, len(raw) // 64), (frame.kind, frame.flags, raw[24:]))
    return tuple(found.values())


def parts_of(entries: list[tuple[int, int, bytes]]) -> bytes:
    return b"".join(PART.pack(kind, flags, len(payload)) + payload for kind, flags, payload in entries)


def volume_of(data: bytes) -> SimVolume:
    """A store whose only segment has these records after its first."""
    entries = [(int(RecordType.EPOCH), 0, _EPOCH)]
    at = 0
    while at + PART.size <= len(data):
        kind, flags, size = PART.unpack_from(data, at)
        at += PART.size
        entries.append((kind, flags, data[at : at + size]))
        at += size
    seed = segment.seed_of(1, 1)
    log = segment.encode_header(SegmentHeader(NODE_ID, 1, 1, 0, HEADER_BLOCK_BYTES, True))
    for sequence, (kind, flags, payload) in enumerate(entries, 1):
        batch = len(log)
        log += b"".join(segment.frame(kind, flags, sequence, batch, seed, payload))  # type: ignore[arg-type]
    return _written(log)


def _written(log: bytes) -> SimVolume:
    volume = SimVolume()
    disk = volume.disk("writer")
    disk.make_directory(DIRECTORY)
    file = disk.open(f"{DIRECTORY}/{segment.segment_name(1, 1)}", create=True)
    file.write(0, (log,))
    file.sync()
    return volume


def _read(volume: SimVolume) -> None:
    """Every reader of a store; what one refuses the others may refuse too."""
    disk = volume.disk("reader")
    verify(disk, DIRECTORY)
    try:
        for _ in read_log(disk, DIRECTORY):
            pass
    except StoreError:
        pass
    try:
        for message in retained_messages(disk, DIRECTORY, RetainedCounts()):
            try:
                message.decode()
            except BrokerError:
                pass
    except StoreError:
        pass
    take_over(disk)


def take_over(disk: SimDisk) -> None:
    """A broker begins with the store."""
    state = recover(disk, DIRECTORY).state
    world, time = World(), ManualTime()
    applier = Applier(disk, f"{DIRECTORY}/large")
    large = LargeMessages(applier, SimLogWriter(time, random.Random(1), applier), time)
    large.begin(world.store.context, state.epoch, state.large_files())
    world.store.large = large
    restore(world.office, state)
    world.resources.restore(state)
    world.turn()


def _log(data: bytes) -> None:
    _read(volume_of(data))


def _segment(data: bytes) -> None:
    """Bytes as they are: a whole segment file."""
    _read(_written(data))


def _segment_seeds() -> list[bytes]:
    whole = volume_of(parts_of(list(_real_records()))).content(f"{DIRECTORY}/{segment.segment_name(1, 1)}")
    return [whole, whole[: HEADER_BLOCK_BYTES + 200], whole[:100]]


def _log_seeds() -> list[bytes]:
    entries = list(_real_records())
    return [parts_of(entries), *(parts_of([entry]) for entry in entries)]


_REFERENCE = MessageReference(1, 4, 0, 0, 100, True, pack_location(1, 128, 128))


class _Page:
    """``BlockPages`` that gives back something else than it was given."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def store(self, data: bytes) -> Location:
        return pack_location(1, 0, len(data))

    def read(self, location: Location) -> bytes:
        return self._data

    def release(self, location: Location) -> None:
        pass


def _block(data: bytes) -> None:
    """Rows that were spilled to a page file."""
    block = Block(Columns.of([_REFERENCE], 4))
    assert block.spill(_Page(data))
    block.open().references()


def _block_seeds() -> list[bytes]:
    plain = [MessageReference(n, 4, 0, 0, 100, True, pack_location(1, n * 128, 128)) for n in range(1, 60)]
    other = [MessageReference(n, 4, n, n, 100, True, pack_location(n % 3, n * 128, 128)) for n in range(1, 60)]
    return [Columns.of(plain, 4).pack(), Columns.of(other, 4).pack()]


class _NoLock:
    def try_acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass

    def verify(self) -> bool:
        return True


class _Entropy:
    def token(self, length_bytes: int) -> bytes:
        return bytes(range(1, length_bytes + 1))


def _lock_file(data: bytes) -> None:
    volume = SimVolume()
    disk = volume.disk("reader")
    disk.make_directory(DIRECTORY)
    disk.open(f"{DIRECTORY}/server.lock", create=True).write(0, (data,))
    lock = NodeLock(disk, DIRECTORY, lambda path: _NoLock(), _Entropy())
    lock.open()
    lock.read_state()


_HEADER = ExportHeader(NODE_ID, 1, 1, "here")


def _export(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    for header in (None, _HEADER):
        try:
            parse_line(text, header)
        except ValueError:
            pass


def _export_seeds() -> list[bytes]:
    body = sample_message()
    lines = [header_line(_HEADER), end_line(5, 1)]
    lines.append(
        '{"message": {"queue": "q", "address": "a", "epoch": 1, "sequence": 2, "id": 3, "delivery_count": 0,'
        ' "type": 4, "durable": true, "priority": 4, "expiration": 0, "timestamp": 0, "user_id": null,'
        ' "properties": [["a", "int", 1], ["b", "bytes", "AA=="], ["c", "double", "0x1p1"]], "body": "AAAA"}}'
    )
    lines.append(
        '{"queue": {"name": "q", "address": "a", "routing_type": "anycast", "filter": null, "durable": true,'
        ' "address_routing_types": ["anycast"]}}'
    )
    assert body.durable
    return [line.encode() for line in lines]


def _state(data: bytes) -> None:
    """Records applied one after another to a state."""
    state = StoreState()
    state.begin_segment(1, 1, 1)
    at, sequence = 0, 1
    while at + PART.size <= len(data):
        kind, flags, size = PART.unpack_from(data, at)
        at += PART.size
        try:
            record = records.decode(kind, flags, data[at : at + size])
        except ValueError:
            return
        state.apply(record, sequence, 1, pack_location(1, at, size))
        at += size
        sequence += 1


def _file(path: str, data: bytes) -> SimDisk:
    """A disk with one file."""
    disk = SimVolume().disk("fuzz")
    disk.make_directory(path.rpartition("/")[0])
    file = disk.open(path, create=True)
    file.write(0, [data])
    file.close()
    return disk


def _position(data: bytes) -> None:
    SeenPosition(_file(f"/node/{POSITION_FILE}", data), "/node").read()


def _quarantine(data: bytes) -> None:
    for kept in read_entries(_file(f"{quarantine_path('/store')}/{_ENTRY.entry_id}.entry", data), "/store"):
        assert kept.entry.length >= 0, "a reader of the log would go backwards"


_ENTRY = QuarantineEntry("message-00000001-00000fff", "message", "crc", 5, segment=1, epoch=1, offset=4096, length=200)
_POSITION = b'{"node_id": "n", "epoch": 3, "sequence": 70}'


def _quarantine_seeds() -> list[bytes]:
    return [json.dumps(asdict(_ENTRY)).encode() + b"\n" + b"x" * 200]


STORE = (
    Target("store-position", _position, (StoreError,), lambda: [_POSITION], memory_floor_bytes=1 << 20),
    Target("quarantine-entry", _quarantine, (), _quarantine_seeds, memory_floor_bytes=1 << 20),
    Target("record", _record, (ValueError,), lambda: [bytes(each[:2]) + each[2] for each in _real_records()]),
    Target("log", _log, (StoreError,), _log_seeds, memory_per_byte=2048, memory_floor_bytes=8 << 20, weight=4),
    Target("segment", _segment, (StoreError,), _segment_seeds, input_bytes_max=16 << 10, memory_floor_bytes=8 << 20),
    # rows that follow from the first one take no bytes; ``columns`` allows 131,072 of them in one block
    Target(
        "block",
        _block,
        (JournalCorrupt,),
        _block_seeds,
        memory_per_byte=4096,
        memory_floor_bytes=32 << 20,
        steps_floor=4_000_000,
    ),
    Target("lock-file", _lock_file, (StoreError,), lambda: [b"L00" + bytes(range(1, 17))], memory_floor_bytes=1 << 20),
    Target("export-line", _export, (), _export_seeds),
)
