"""Goal: docs/build/journal-format.md is enough. Method: a reader written from it, with nothing of the store."""

from __future__ import annotations

import random
import struct
import zlib
from typing import Any

from tests.support.store import StoreHarness


def read_segment(name: str, content: bytes) -> tuple[dict[str, Any], list[tuple[int, int, int, int, bytes]]]:
    """Header fields and records (sequence, type, flags, offset, payload), by sections 1 and 2."""
    number, epoch = int(name[8:20]), int(name[21:31])
    magic, version, flags, crc = struct.unpack_from("<8sHHI", content)
    node, header_epoch, header_number, _, allocated = struct.unpack_from("<16sQQqQ", content, 16)
    assert (magic, version) == (b"USTLOG\r\n", 1)
    assert (header_number, header_epoch) == (number, epoch)
    assert zlib.crc32(content[:12] + bytes(4) + content[16:4096]) == crc
    seed = zlib.crc32(struct.pack("<QQ", number, epoch))
    records = []
    offset = 4096
    while offset + 24 <= len(content):
        crc, length, sequence, batch, kind, record_flags, zero = struct.unpack_from("<IIQIBBH", content, offset)
        if length < 24 or offset + length > len(content):
            break
        if zlib.crc32(content[offset + 4 : offset + length], seed) != crc:
            break
        assert 4096 <= batch <= offset
        assert zero == 0
        records.append((sequence, kind, record_flags, offset, content[offset + 24 : offset + length]))
        offset += length
    header = {"first": flags & 1, "node": node, "epoch": epoch, "number": number, "allocated": allocated, "end": offset}
    return header, records


def test_a_reader_made_from_the_document_reads_a_store() -> None:
    rig = StoreHarness(random.Random(5))
    for owner in "ab":
        store = rig.activate(owner)
        rig.resume_from(rig.model.contents())
        for _ in range(300):
            rig.operate()
            store.flush()
            rig.time.advance(3)
        rig.settle()
        last = store.last_sequence
        rig.die(power_loss=False)
        rig.model.crash(last)
    segments = [read_segment(path.rsplit("/", 1)[1], rig.volume.content(path)) for path in rig.segments()]
    newest = max(header["epoch"] for header, _ in segments)
    first = next(header for header, _ in segments if header["epoch"] == newest and header["first"])
    (_, kind, _, offset, payload) = next(records[0] for header, records in segments if header is first)
    assert (kind, offset) == (1, 4096)
    node, epoch, _, count, _ = struct.unpack_from("<16sQqII", payload)
    assert (node, epoch) == (first["node"], newest)
    ends = {(number, of): end for number, of, end in struct.iter_unpack("<QQQ", payload[40:])}
    assert len(ends) == count
    expected = None
    messages: dict[int, bytes] = {}
    sealed = 0
    for header, records in segments:
        if header["epoch"] != newest and (header["number"], header["epoch"]) not in ends:
            continue
        stop = ends.get((header["number"], header["epoch"]), header["end"])
        assert header["end"] >= stop
        for sequence, kind, _, offset, payload in records:
            if offset >= stop:
                break
            assert expected in (None, sequence)
            expected = sequence + 1
            if kind == 9:
                message_id, _, _, _, _, _, _, d, q = struct.unpack_from("<QQQqqBBHI", payload)
                messages[message_id] = payload[48 + 8 * q + d :]
            elif kind == 4:
                sealed += 1
                n, digest = struct.unpack_from("<II", payload)
                content = rig.volume.content(f"/store/segment-{header['number']:012d}-{header['epoch']:010d}.log")
                assert zlib.crc32(content[:offset]) == digest
                assert list(struct.unpack_from(f"<{n}I", payload, 56)) == [record[3] for record in records[:-1]]
                assert content[-8:] == b"USTSEAL\n"
                assert struct.unpack_from("<I", content, len(content) - 16)[0] == offset
    assert sealed > 1
    assert expected == last + 1
    for message_id, encoded in messages.items():
        assert rig.bodies[message_id] == encoded
    assert len(messages) > 50
