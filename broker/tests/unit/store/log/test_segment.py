"""Goal: a segment exists completely or not at all, and its header and seal say what is in it."""

import struct
import zlib
from array import array
from collections.abc import Sequence

import pytest
from tests.support.store import DIRECTORY, NODE_ID

from understudy.errors import DiskFailed, DiskFull, JournalCorrupt, LockLost, StoreVersionUnsupported
from understudy.store.log.format_version import FORMAT_VERSION
from understudy.store.log.records import RecordType, SealRecord
from understudy.store.log.segment import (
    HEADER_BLOCK_BYTES,
    SegmentFile,
    SegmentHeader,
    create_segment,
    decode_header,
    encode_header,
    frame,
    parse_name,
    read_header,
    read_seal,
    seed_of,
    segment_name,
)
from understudy.testing.sim.disk import SimFile, SimVolume

HEADER = SegmentHeader(NODE_ID, 3, 12, 1_700_000_000_000, 8192, True)
PATH = f"{DIRECTORY}/{segment_name(12, 3)}"


@pytest.fixture
def volume() -> SimVolume:
    volume = SimVolume()
    volume.disk("a").make_directory(DIRECTORY)
    return volume


def test_names() -> None:
    assert segment_name(12, 3) == "segment-000000000012-0000000003.log"
    assert parse_name(segment_name(12, 3)) == (12, 3, True)
    assert parse_name(segment_name(12, 3) + ".new") == (12, 3, False)
    for other in ("server.lock", "segment-12-3.log", segment_name(1, 1) + "x", "segment-00000000001２-0000000003.log"):
        assert parse_name(other) is None


def test_header_round_trip() -> None:
    block = encode_header(HEADER)
    assert len(block) == HEADER_BLOCK_BYTES
    assert decode_header(block, "f") == HEADER


@pytest.mark.parametrize("offset", [0, 7, 9, 11, 13, 20, 33, 41, 50, 60, 64, 4095])
def test_any_flip_in_the_header_is_found(offset: int) -> None:
    block = bytearray(encode_header(HEADER))
    block[offset] ^= 4
    with pytest.raises(JournalCorrupt):
        decode_header(bytes(block), "f")


def test_a_newer_format_is_refused_as_such() -> None:
    block = bytearray(encode_header(HEADER))
    struct.pack_into("<H", block, 8, FORMAT_VERSION + 1)
    struct.pack_into("<I", block, 12, 0)
    struct.pack_into("<I", block, 12, zlib.crc32(block))
    with pytest.raises(StoreVersionUnsupported, match=f"version {FORMAT_VERSION + 1}"):
        decode_header(bytes(block), "f")


def test_created_is_allocated_and_durable(volume: SimVolume) -> None:
    disk = volume.disk("a")
    create_segment(disk, DIRECTORY, HEADER).close()
    assert disk.list(DIRECTORY) == [segment_name(12, 3)]
    file = disk.open(PATH, read_only=True)
    assert file.size() == 8192
    assert read_header(file, 12, 3) == HEADER
    with pytest.raises(JournalCorrupt, match="another name"):
        read_header(file, 13, 3)
    with pytest.raises(FileNotFoundError, match="its file is segment 12 of epoch 3"):
        read_header(file, 11, 3)


def test_a_second_maker_of_the_same_segment_loses(volume: SimVolume) -> None:
    create_segment(volume.disk("a"), DIRECTORY, HEADER)
    with pytest.raises(LockLost, match="epoch 3"):
        create_segment(volume.disk("b"), DIRECTORY, HEADER)
    volume.disk("b").open(f"{DIRECTORY}/{segment_name(13, 3)}.new", create=True)
    with pytest.raises(LockLost):
        create_segment(volume.disk("a"), DIRECTORY, SegmentHeader(NODE_ID, 3, 13, 0, 8192, False))


def test_a_full_disk_leaves_no_file(volume: SimVolume) -> None:
    volume.capacity_bytes = 5000
    with pytest.raises(DiskFull):
        create_segment(volume.disk("a"), DIRECTORY, HEADER)
    assert volume.disk("a").list(DIRECTORY) == []


def test_seal_ends_the_file_and_says_what_is_in_it(volume: SimVolume) -> None:
    disk = volume.disk("a")
    segment = create_segment(disk, DIRECTORY, HEADER)
    seed = seed_of(12, 3)
    offsets = array("I")
    position = HEADER_BLOCK_BYTES
    for sequence in (40, 41):
        parts = frame(RecordType.TX_COMMIT, 0, sequence, position, seed, bytes(8))
        offsets.append(position)
        segment.write(position, parts)
        position += sum(map(len, parts))
    segment.seal(SealRecord(False, 0, 0, 40, 41, 5, 6, 7, 8, ()), 42, offsets.tobytes())
    content = volume.content(PATH)
    file = disk.open(PATH, read_only=True)
    found = read_seal(file, HEADER)
    assert found is not None
    at, seal = found
    assert at == position
    assert seal == SealRecord(False, 2, zlib.crc32(content[:position]), 40, 41, 5, 6, 7, 8, tuple(offsets))
    assert content.endswith(b"USTSEAL\n")
    volume.flip_bit(PATH, position + 30, 0)
    assert read_seal(file, HEADER) is None


def test_writing_out_of_order_is_a_bug(volume: SimVolume) -> None:
    segment = create_segment(volume.disk("a"), DIRECTORY, HEADER)
    with pytest.raises(AssertionError):
        segment.write(5000, (b"x",))


@pytest.mark.parametrize("broken", ["write", "sync", "allocate"])
def test_a_file_on_which_the_disk_failed_is_not_asked_again(volume: SimVolume, broken: str) -> None:
    segment = create_segment(volume.disk("a"), DIRECTORY, HEADER)
    asked: list[str] = []

    def fail_once(operation: str) -> None:
        asked.append(operation)
        if asked == [broken]:
            raise DiskFailed(f"cannot {operation} {PATH}")

    volume.before_operation = fail_once
    changes = {
        "write": lambda: segment.write(HEADER_BLOCK_BYTES, (b"x",)),
        "sync": segment.sync,
        "allocate": lambda: segment.allocate(10_000),
        "zero": lambda: segment.zero(HEADER_BLOCK_BYTES + 1, 10),
    }
    first = changes.pop(broken)
    for change in (first, *changes.values()):
        with pytest.raises(DiskFailed, match=f"cannot {broken} {PATH}"):
            change()
    assert asked == [broken]


def test_a_full_disk_is_asked_again(volume: SimVolume) -> None:
    segment = create_segment(volume.disk("a"), DIRECTORY, HEADER)
    room = volume.capacity_bytes
    volume.capacity_bytes = volume.used_bytes()
    with pytest.raises(DiskFull):
        segment.allocate(20_000)
    volume.capacity_bytes = room
    segment.allocate(20_000)
    assert len(volume.content(PATH)) == 20_000


def test_large_buffers_of_a_batch_are_written_without_a_copy(
    volume: SimVolume, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: records that were joined, and records that were not, have the digest of the bytes in the file."""
    segment = create_segment(volume.disk("a"), DIRECTORY, HEADER)
    seed = seed_of(12, 3)
    written: list[list[bytes]] = []
    write = SimFile.write

    def recorded(file: SimFile, offset: int, buffers: Sequence[bytes]) -> None:
        written.append(list(buffers))
        write(file, offset, buffers)

    monkeypatch.setattr(SimFile, "write", recorded)
    sizes = (10, 30, 100_000, 20, 70_000, 65_000, 5, 6)
    batch = [
        b"".join(frame(RecordType.TX_COMMIT, 0, 7 + number, HEADER_BLOCK_BYTES, seed, bytes([number]) * size))
        for number, size in enumerate(sizes)
    ]
    segment.write(HEADER_BLOCK_BYTES, batch)
    (buffers,) = written
    assert [len(each) for each in buffers] == [88, 100_024, 44, 70_024, 65_024, 59]
    assert [each for each in buffers if len(each) > 100] == [each for each in batch if len(each) > 100]
    assert all(any(each is record for record in batch) for each in buffers if len(each) > 100), "not copied"
    at = HEADER_BLOCK_BYTES + sum(map(len, batch))
    content = volume.content(PATH)[:at]
    assert content == encode_header(HEADER) + b"".join(batch)
    state = segment.describe("x")
    assert (state.position, state.digest) == (at, zlib.crc32(content))
    assert SegmentFile.resumed(volume.disk("a").open(PATH), PATH, state).position == at
