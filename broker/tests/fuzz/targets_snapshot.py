"""Snapshots, which a store begins with: header and records are changed, and get right checksums again.

An input is the first 88 bytes of the header, then records as in the target "log". It is put beside
the log that the snapshot was made of, in the place of the newest one.
"""

from __future__ import annotations

import random
import struct
import zlib
from functools import cache

from fuzz.target import Target
from fuzz.targets_store import PART, parts_of, take_over
from support.store import DIRECTORY, StoreHarness
from understudy.errors import JournalCorrupt, StoreError
from understudy.message import Message
from understudy.store.log import segment
from understudy.store.log.records import HEADER_BYTES, REST
from understudy.store.log.segment import HEADER_BLOCK_BYTES, seed_of
from understudy.store.snapshots.snapshot import SnapshotReader, read_snapshot, read_snapshot_header, snapshot_names
from understudy.testing.sim.disk import SimVolume
from understudy.tools.inspect import verify

FIELDS_BYTES = 88
_EPOCH = struct.Struct("<Q")


@cache
def _store() -> tuple[dict[str, bytes], bytes]:
    """The log of a store in use, and its newest snapshot."""
    rig = StoreHarness(random.Random(4), compact_segments_min=2, compact_percent=0)
    rig.activate("a")
    rig.queue()
    for number in range(30):
        for _ in range(4):
            rig.operate()
        store = rig.store
        assert store is not None
        message = Message(bytes(12_000), address="x")
        message.assign_id(store.next_id())
        store.store_message(message, rig.address_ids[0], (rig.queue_ids[0],))
        if number % 10:
            store.store_acknowledges(rig.queue_ids[0], (message.message_id,))
        rig.settle()
    files = {path.rsplit("/", 1)[1]: rig.volume.content(path) for path in rig.volume.paths() if DIRECTORY in path}
    newest = snapshot_names(list(files))[0]
    log = {name: content for name, content in files.items() if segment.parse_name(name)}
    return log, files[newest]


def snapshot_volume(data: bytes) -> tuple[SimVolume, str]:
    """The store with a snapshot of this header and these records."""
    block = bytearray(data[:FIELDS_BYTES].ljust(HEADER_BLOCK_BYTES, b"\0"))
    struct.pack_into("<I", block, 12, 0)
    struct.pack_into("<I", block, 12, zlib.crc32(block))
    (epoch,), (sequence,) = _EPOCH.unpack_from(block, 32), _EPOCH.unpack_from(block, 72)
    seed = seed_of(sequence, epoch)
    content = bytes(block)
    at, number = FIELDS_BYTES, 0
    while at + PART.size <= len(data):
        kind, flags, size = PART.unpack_from(data, at)
        at += PART.size
        payload = data[at : at + size]
        at += size
        number += 1
        rest = REST.pack(HEADER_BYTES + len(payload), number, 0, kind, flags, 0) + payload
        content += zlib.crc32(rest, seed).to_bytes(4, "little") + rest
    name = f"snapshot-{sequence:020d}-{epoch:010d}.snap"
    volume = SimVolume()
    disk = volume.disk("writer")
    disk.make_directory(DIRECTORY)
    for path, written in (*_store()[0].items(), (name, content)):
        file = disk.open(f"{DIRECTORY}/{path}", create=True)
        file.write(0, (written,))
        file.sync()
    return volume, name


def _snapshot(data: bytes) -> None:
    """The snapshot for itself, then everything that reads a store with it; what one refuses the others may, too."""
    volume, name = snapshot_volume(data)
    disk = volume.disk("reader")
    file = disk.open(f"{DIRECTORY}/{name}", read_only=True)
    try:
        read_snapshot(file, name)
    except StoreError:
        pass
    finally:
        file.close()
    verify(disk, DIRECTORY)
    take_over(disk)


def _raw(data: bytes) -> None:
    """Bytes as they are."""
    volume = SimVolume()
    disk = volume.disk("writer")
    disk.make_directory(DIRECTORY)
    name = "snapshot-00000000000000000001-0000000001.snap"
    file = disk.open(f"{DIRECTORY}/{name}", create=True)
    file.write(0, (data,))
    read_snapshot(file, name)


def snapshot_seeds() -> list[bytes]:
    content = _store()[1]
    name = f"snapshot-{_EPOCH.unpack_from(content, 72)[0]:020d}-{_EPOCH.unpack_from(content, 32)[0]:010d}.snap"
    volume = SimVolume()
    disk = volume.disk("writer")
    disk.make_directory(DIRECTORY)
    file = disk.open(f"{DIRECTORY}/{name}", create=True)
    file.write(0, (content,))
    reader = SnapshotReader(file.path, read_snapshot_header(file, name))
    entries = [(int(kind), 0, payload) for kind, payload in reader.feed(content[HEADER_BLOCK_BYTES:])]
    assert reader.end is not None
    end = (37, 0, struct.pack("<QQQ", reader.end.needs, reader.end.references, reader.end.live_bytes))
    fields = content[:FIELDS_BYTES]
    return [fields + parts_of([*entries, end]), *(fields + parts_of([entries[0], each, end]) for each in entries)]


SNAPSHOT = (
    Target(
        "snapshot", _snapshot, (StoreError,), snapshot_seeds,
        memory_per_byte=4096, memory_floor_bytes=16 << 20, steps_per_byte=2000, input_bytes_max=16 << 10, weight=4,
    ),
    Target("snapshot-file", _raw, (StoreError, JournalCorrupt), lambda: [_store()[1][:8192]], input_bytes_max=8 << 10),
)  # fmt: skip
