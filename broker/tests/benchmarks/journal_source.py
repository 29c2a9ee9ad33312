"""The journal source of Spark beside Spark's own readers of the same bytes."""

from __future__ import annotations

import json
import os
import statistics
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from understudy.ids import NodeId, uuid_bytes
from understudy.kernel.log import crc32
from understudy.message import Message
from understudy.store.log.records import RecordType, SealRecord, encode_epoch, encode_seal
from understudy.store.log.segment import HEADER_BLOCK_BYTES, SegmentHeader, encode_header, frame, seed_of, segment_name

_NODE = NodeId("0f1e2d3c-4b5a-4697-8897-a6b5c4d3e2f1")
_NOW_MS = 1_700_000_000_000
_BATCH_RECORDS = 64
_NARROW = ["queue_id", "message_id"]
_WIDE = ["sequence", *_NARROW, "timestamp", "priority", "body"]
_MESSAGE = struct.Struct("<QQQqqBBHIQ")


_ACKNOWLEDGE = struct.Struct("<QQII")
_ACKNOWLEDGED_TOGETHER = 50


def make_store(directory: Path, body_bytes: int, segments: int, segment_bytes: int, keep_one_of: int = 1) -> int:
    """Sealed segments of messages in one queue; how many messages there are.

    Args:
        directory: Empty.
        body_bytes: Bytes of the body of each message.
        segments: How many.
        segment_bytes: Size of each segment in bytes.
        keep_one_of: One of so many messages stays; the others are acknowledged soon, 50 together.
    """
    sequence = messages = 0
    gone: list[int] = []
    for number in range(1, segments + 1):
        header = SegmentHeader(_NODE, 1, number, _NOW_MS, segment_bytes, number == 1)
        content = bytearray(encode_header(header))
        seed, offsets, first = seed_of(number, 1), [], sequence + 1
        batch = HEADER_BLOCK_BYTES
        while len(content) < segment_bytes or not offsets:
            if len(offsets) % _BATCH_RECORDS == 0:
                batch = len(content)
            offsets.append(len(content))
            sequence += 1
            if sequence == 1:
                kind, payload = RecordType.EPOCH, encode_epoch(uuid_bytes(_NODE), 1, _NOW_MS, ())
            elif len(gone) == _ACKNOWLEDGED_TOGETHER:
                kind = RecordType.ACKNOWLEDGE
                payload = _ACKNOWLEDGE.pack(7, 0, len(gone), 0) + struct.pack(f"<{len(gone)}Q", *gone)
                gone = []
            else:
                messages += 1
                message = Message(os.urandom(8) + bytes(body_bytes - 8), address="orders", timestamp=_NOW_MS)
                message.assign_id(messages)
                payload = _MESSAGE.pack(messages, 0, 7, 0, 0, 4, 0, 0, 1, 8) + message.encoded
                kind = RecordType.MESSAGE_ADD
                if messages % keep_one_of:
                    gone.append(messages)
            content += b"".join(frame(kind, 0, sequence, batch, seed, payload))
        at = len(content)
        seal = SealRecord(
            False, len(offsets), crc32(bytes(content)), first, sequence, _NOW_MS, _NOW_MS, 1, messages, ()
        )
        sequence += 1
        raw = encode_seal(seal, at, struct.pack(f"<{len(offsets)}I", *offsets))
        closed = int(number == segments)
        content += b"".join(frame(RecordType.SEAL, closed, sequence, at, seed, raw))
        (directory / segment_name(number, 1)).write_bytes(content)
    return messages


def _readers(spark: Any, store: str, parquet: str) -> dict[str, Callable[[], Any]]:
    """Queries by name."""
    from understudy.spark.journal.source import read_journal

    return {
        "messages, six columns with bodies": lambda: read_journal(spark, store, "messages", _WIDE),
        "messages, two columns": lambda: read_journal(spark, store, "messages", _NARROW),
        "records, place only": lambda: read_journal(spark, store, "records", ["sequence", "offset"]),
        "Parquet, the same six columns": lambda: spark.read.parquet(parquet),
        "Parquet, two columns": lambda: spark.read.parquet(parquet).select(_NARROW),
        "binaryFile, whole segments": lambda: spark.read.format("binaryFile").load(store),
    }


@click.command("journal-source")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
@click.option("--megabytes", default=256, show_default=True, help="Size of the journal. MB.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--cores", default=1, show_default=True, help="Tasks of Spark at a time.")
def journal_source(as_json: bool, megabytes: int, rounds: int, cores: int) -> None:
    """The journal source in Spark beside Spark's readers of Parquet and of whole files.

    With one core the figures are those for each core.
    """
    from understudy.spark.journal.source import read_journal
    from understudy.spark.session import open_session

    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCHMARK_DIRECTORY")) as work:
        spark = open_session(f"local[{cores}]", work_directory=f"{work}/spark", name="benchmark")
        for body_bytes in (100, 1024):
            store = Path(work) / f"store{body_bytes}"
            store.mkdir()
            count = make_store(store, body_bytes, max(megabytes // 32, 1), 32 * 1000 * 1000)
            size = sum(path.stat().st_size for path in store.iterdir())
            parquet = f"{work}/parquet{body_bytes}"
            read_journal(spark, str(store), "messages", _WIDE).write.option("compression", "none").parquet(parquet)
            readers = _readers(spark, str(store), parquet)
            times: dict[str, list[float]] = {name: [] for name in readers}
            for _ in range(rounds + 1):
                for name, reader in readers.items():
                    begin = time.perf_counter()
                    reader().write.format("noop").mode("overwrite").save()
                    times[name].append(time.perf_counter() - begin)
            for name, taken in times.items():
                # the first round starts workers and compiles
                seconds = statistics.median(taken[1:])
                found[f"{body_bytes} B: {name}"] = {
                    "records_per_s": count / seconds, "megabytes_per_s": size / seconds / 1e6, "seconds": seconds,
                }  # fmt: skip
        spark.stop()
    if as_json:
        click.echo(json.dumps(found))
        return
    for name, figures in found.items():
        click.echo(f"{name:50} {figures['records_per_s'] / 1e6:8.2f} M rec/s {figures['megabytes_per_s']:8.0f} MB/s")
