"""Goal: Spark sees the same lines, in the same order, and the same rows in them, as the reference reader.

Method: files cut into many pieces. Lines of every shape are in test_ledger_lines.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from understudy.errors import ConfigError, LedgerDamaged
from understudy.ledger import Kind, Row, encode, read
from understudy.spark.ledger import ledgers
from understudy.spark.ledger import source as ledger_source
from understudy.spark.ledger.source import LedgerFiles, LedgerReader, chunks_of, read_ledgers

pytestmark = pytest.mark.spark

GOOD = '{"kind":"SENT","producer":"p","number":0,"address":"a","at_ms":1}'


def rows_and_blank_lines(count: int, producer: str) -> bytes:
    """Rows of different lengths with a blank line after each; the last one has no end."""
    rows = (encode(Row(Kind.SENT, producer, number, "a" * (number % 50), number)).strip() for number in range(count))
    return "\n\n".join(rows).encode()


def test_rows_have_the_order_of_all_files_and_pieces(spark: SparkSession, tmp_path: Path) -> None:
    names = ["z.jsonl", "a b[1]{x}%41*?.jsonl", "_empty.jsonl", "\u00fc,\\.jsonl"]
    paths = [tmp_path / name for name in names]
    expected = []
    for index, (path, count) in enumerate(zip(paths, [20_000, 7, 0, 900], strict=True)):
        path.write_bytes(rows_and_blank_lines(count, str(index)))
        expected += [(index, number) for number in range(count)]
    frame = read_ledgers(spark, LedgerFiles.of(paths))
    assert frame.rdd.getNumPartitions() > 1
    rows = ledgers.rows_of(frame).orderBy("ordinal").collect()
    assert [(int(one["producer"]), one["number"]) for one in rows] == expected
    assert len({one["ordinal"] for one in rows}) == len(expected)


@pytest.mark.parametrize("size", [1, 7, 64, 100, 1000])
def test_each_line_is_in_one_piece(tmp_path: Path, size: int) -> None:
    path = tmp_path / "ledger"
    data = rows_and_blank_lines(12, "p")
    path.write_bytes(data)
    reader = LedgerReader([str(path)] * 2, [len(data)] * 2, size)
    found = [pair for part in reader.partitions() for piece in part.pieces for pair in chunks_of(piece)]
    assert b"".join(chunk for _, chunk in found) == data + data
    assert all(data[at : at + len(chunk)] == chunk for at, chunk in found)
    lines = sum(len(batch) for part in reader.partitions() for batch in reader.read(part))
    assert lines == 24


def test_rows_that_are_written_later_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    path.write_text(f"{GOOD}\n")
    files = LedgerFiles.of([path, path])
    path.write_text(f"{GOOD}\n" * 3)
    reader = LedgerReader([str(one) for one in files.paths], files.sizes, 1000)
    assert [len(batch) for part in reader.partitions() for batch in reader.read(part)] == [1, 1]


def test_a_line_without_end_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_source, "LINE_BYTES_MAX", 100)
    monkeypatch.setattr(ledger_source, "CHUNK_BYTES", 50)
    path = tmp_path / "ledger"
    path.write_text(f"{GOOD}\n{'x' * 1000}\n{GOOD}\n")
    files = LedgerFiles.of([path])
    reader = LedgerReader([str(path)], files.sizes, 1000)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [row["bad"] for row in rows] == [False, True, False]
    assert len(rows[1]["value"]) < 200
    assert [files.line_number(0, row["ordinal"]) for row in rows] == [1, 2, 3]


@pytest.mark.parametrize("name", ["ledger.gz", "ledger.ZST"])
def test_a_packed_file_is_an_error(tmp_path: Path, name: str) -> None:
    paths = [tmp_path / name, tmp_path / "seen.jsonl"]
    for path in paths:
        path.write_text(GOOD)
    with pytest.raises(ConfigError, match=name):
        LedgerFiles.of(paths)


def test_bad_lines_are_named_and_torn_tails_told_apart(spark: SparkSession, tmp_path: Path) -> None:
    torn, bad, odd = tmp_path / "torn", tmp_path / "bad", tmp_path / "odd"
    torn.write_text(f"{GOOD}\n\n{GOOD[:30]}")
    bad.write_text(f"{GOOD}\n{GOOD[:30]}\n{GOOD}\n")
    odd.write_text(f"{GOOD}\n{{}}\n\n")
    files = LedgerFiles.of([torn, bad, odd])
    found = ledgers.bad_lines(read_ledgers(spark, files)).orderBy("file_index").collect()
    places = [(one["file_index"], one["ordinal"]) for one in found]
    lines = [(place[0], files.line_number(*place), one["torn"]) for place, one in zip(places, found, strict=True)]
    assert lines == [
        (0, 3, True),
        (1, 2, False),
        (2, 2, False),
    ]
    for path, is_torn in ((torn, True), (bad, False), (odd, False)):
        seen: list[int] = []
        rows = read(path.read_text().splitlines(), on_torn_tail=lambda file, line, seen=seen: seen.append(line))
        if is_torn:
            assert len(list(rows)) == 1
            assert seen == [3]
        else:
            with pytest.raises(LedgerDamaged, match=":2:"):
                list(rows)
