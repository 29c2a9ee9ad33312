"""Goal: Spark sees the same lines, in the same order, and the same rows in them, as the reference reader.

Method: files cut into many pieces; lines of every shape, each judged by both readers.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from understudy.errors import ConfigError, LedgerDamaged
from understudy.ledger import Kind, Row, encode, parse, read
from understudy.spark import ledgers

pytestmark = pytest.mark.spark

GOOD = '{"kind":"SENT","producer":"p","number":0,"address":"a","at_ms":1}'
LINES = [
    GOOD,
    f"  {GOOD}\t\r",
    encode(Row(Kind.DELIVERED, 'p\n"\\{}[]ü', 5, "a", 17, "c", "q", 9, 2)).strip(),
    GOOD.replace("}", ',"durable":false}'),
    GOOD.replace("}", ',"later":"x","more":1.5,"none":null}'),
    GOOD.replace('"number":0', f'"number":{2**63 - 1}'),
    GOOD.replace("p", 'an \\"number\\":null and \\"queue\\":5'),
    GOOD.replace("}", ',"message_id":7,"delivery_count":2147483647}'),
    "nonsense",
    "[]",
    "{}",
    "null",
    "5",
    GOOD + GOOD,
    GOOD + " x",
    GOOD[:-1],
    GOOD[1:],
    GOOD.replace('"', "'"),
    GOOD.replace("SENT", "sent"),
    GOOD.replace('"p"', "5"),
    GOOD.replace('"p"', "null"),
    GOOD.replace('"p"', '["p"]'),
    GOOD.replace('"number":0', '"number":"0"'),
    GOOD.replace('"number":0', '"number":true'),
    GOOD.replace('"number":0', '"number":0.0'),
    GOOD.replace('"number":0', '"number":1e2'),
    GOOD.replace('"number":0', '"number":-1'),
    GOOD.replace('"number":0', '"number":null'),
    GOOD.replace('"number":0', '"number":01'),
    GOOD.replace('"number":0', f'"number":{2**63}'),
    GOOD.replace('"at_ms":1', f'"at_ms":{2**48}'),
    GOOD.replace(',"at_ms":1', ""),
    GOOD.replace(',"address":"a"', ""),
    GOOD.replace("}", ',"queue":null}'),
    GOOD.replace("}", ',"durable":1}'),
    GOOD.replace("}", ',"durable":"true"}'),
    GOOD.replace("}", ',"delivery_count":2147483648}'),
    GOOD.replace("}", ',"message_id":-1}'),
    GOOD.replace("}", ',"version":2,"digest":9223372036854775807,"transaction":"t","origin":"q"}'),
    GOOD.replace("}", ',"version":0}'),
    GOOD.replace("}", ',"version":3}'),
    GOOD.replace("}", ',"version":4}'),
    GOOD.replace("}", ',"version":"2"}'),
    GOOD.replace("}", ',"digest":-1}'),
    GOOD.replace("}", ',"digest":"5"}'),
    GOOD.replace("}", ',"transaction":5}'),
    GOOD.replace("}", ',"origin":null}'),
    GOOD.replace("}", ',"x":NaN}'),
    GOOD.replace("}", ',"x":{}}'),
    GOOD.replace("}", ',"x":[1]}'),
    GOOD.replace("p", "\ufffd"),
]


def reference(line: str) -> Row | None:
    try:
        return parse(line)
    except LedgerDamaged:
        return None


def test_a_line_is_a_row_exactly_when_the_reference_says_so(spark: SparkSession) -> None:
    lines = spark.createDataFrame(
        [(0, place, place, text) for place, text in enumerate(LINES)],
        "file_index int, line bigint, ordinal bigint, value string",
    )
    found = {one["ordinal"]: one for one in ledgers.parse_lines(lines).collect()}
    for place, text in enumerate(LINES):
        row, one = reference(text), found[place]
        assert one["bad"] == (row is None), text
        if row is not None:
            names = [name for name in Row.__dataclass_fields__ if name not in ("kind", "durable")]
            assert [one[name] for name in names] == [getattr(row, name) for name in names]
            assert (one["kind"], one["durable"]) == (row.kind.value, row.durable)
    assert 5 < sum(not one["bad"] for one in found.values()) < 10


def test_lines_are_numbered_through_all_files_and_pieces(spark: SparkSession, tmp_path: Path) -> None:
    names = ["z.jsonl", "a b[1]{x}%41*?.jsonl", "empty.jsonl", "ü,\\.jsonl"]
    sizes = [2000, 7, 0, 900]
    paths = [tmp_path / name for name in names]
    expected = []
    for file_index, (path, size) in enumerate(zip(paths, sizes, strict=True)):
        texts = [f"{file_index}-{line} {'x' * (line % 50)}" for line in range(1, size + 1)]
        path.write_text("\n\n".join(texts) + ("\n" if file_index else ""))
        expected += [(file_index, 2 * place + 1, text) for place, text in enumerate(texts)]
    lines = ledgers.read_lines(spark, paths)
    assert lines.rdd.getNumPartitions() > 2
    found = lines.orderBy("ordinal").collect()
    assert [(one["file_index"], one["line"], one["value"]) for one in found] == expected
    assert len({one["ordinal"] for one in found}) == len(expected)


@pytest.mark.parametrize("name", ["_hidden.jsonl", ".hidden.jsonl", "ledger.gz", "ledger.ZST"])
def test_a_file_that_spark_would_hide_or_unpack_is_an_error(spark: SparkSession, tmp_path: Path, name: str) -> None:
    paths = [tmp_path / name, tmp_path / "seen.jsonl"]
    for path in paths:
        path.write_text(GOOD)
    with pytest.raises(ConfigError, match=name):
        ledgers.read_lines(spark, paths)


def test_bad_lines_are_named_and_torn_tails_told_apart(spark: SparkSession, tmp_path: Path) -> None:
    torn, bad, odd = tmp_path / "torn", tmp_path / "bad", tmp_path / "odd"
    torn.write_text(f"{GOOD}\n\n{GOOD[:30]}")
    bad.write_text(f"{GOOD}\n{GOOD[:30]}\n{GOOD}\n")
    odd.write_text(f"{GOOD}\n{{}}\n\n")
    parsed = ledgers.parse_lines(ledgers.read_lines(spark, [torn, bad, odd]))
    found = ledgers.bad_lines(parsed).orderBy("file_index").collect()
    assert [(one["file_index"], one["line"], one["torn"]) for one in found] == [
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
