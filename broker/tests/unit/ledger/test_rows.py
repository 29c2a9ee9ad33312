"""Goal: lines and rows convert both ways, and an error names file and line of an invalid row."""

from __future__ import annotations

import json

import pytest

from understudy.errors import LedgerDamaged
from understudy.ledger import Kind, LedgerWriter, ReceivedCopy, Row, digest_of, encode, parse, read

ROW = Row(Kind.DELIVERED, "p\n\"ü'", 5, "a", 17, "c", "q", 9, 2, False, 2**63 - 1, "t\n1", "o", 2)
GOOD = '{"kind":"SENT","producer":"p","number":0,"address":"a","at_ms":1}'


def test_a_row_survives_its_line() -> None:
    assert parse(encode(ROW)) == ROW
    assert encode(ROW).isascii()
    assert encode(ROW).count("\n") == 1


def test_defaults_are_left_out() -> None:
    assert json.loads(encode(Row(Kind.SENT, "p", 0, "a", 1))) == json.loads(GOOD) | {"version": 3}
    assert encode(Row(Kind.SENT, "p", 0, "a", 1, version=1)) == GOOD + "\n"


def test_a_line_without_a_version_is_of_version_1() -> None:
    assert parse(GOOD) == Row(Kind.SENT, "p", 0, "a", 1, version=1)
    assert parse(encode(parse(GOOD))).version == 1
    with pytest.raises(LedgerDamaged, match="a newer release wrote it"):
        parse(GOOD.replace("}", ',"version":4}'))


def test_a_digest_is_never_0_and_differs_for_other_bodies() -> None:
    assert len({digest_of(bytes([number])) for number in range(256)}) == 256
    assert all(0 < digest_of(bytes(size)) < 2**63 for size in (0, 1, 5000))


def test_the_writer_writes_what_read_reads() -> None:
    lines: list[str] = []
    writer = LedgerWriter(lines.append)
    writer.sent("p", 1, "a", 10, durable=False, digest=5, transaction="t")
    writer.confirmed("p", 1, "a", 11, transaction="t")
    writer.refused("p", 2, "a", 11, transaction="t")
    writer.delivered("p", 1, "a", 12, ReceivedCopy("c", "q", 7, 5, "r"), delivery_count=1)
    writer.acknowledging("p", 1, "a", 13, ReceivedCopy("c", "q", 7))
    writer.acknowledged("p", 1, "a", 13, ReceivedCopy("c", "q", 7))
    writer.refused("p", 1, "a", 14, ReceivedCopy("c", "q"))
    writer.remaining("p", 1, "a", 15, ReceivedCopy("d", "q", 7, 5, "r"))
    writer.drained("a", 16, consumer="d", queue="q")
    writer.opened(17, consumer="c", queue="q")
    writer.closed(18, consumer="c", queue="q")
    assert list(read(lines)) == [
        Row(Kind.SENT, "p", 1, "a", 10, durable=False, digest=5, transaction="t"),
        Row(Kind.CONFIRMED, "p", 1, "a", 11, transaction="t"),
        Row(Kind.REFUSED, "p", 2, "a", 11, transaction="t"),
        Row(Kind.DELIVERED, "p", 1, "a", 12, "c", "q", 7, 1, digest=5, origin="r"),
        Row(Kind.ACKNOWLEDGING, "p", 1, "a", 13, "c", "q", 7),
        Row(Kind.ACKNOWLEDGED, "p", 1, "a", 13, "c", "q", 7),
        Row(Kind.REFUSED, "p", 1, "a", 14, "c", "q"),
        Row(Kind.REMAINING, "p", 1, "a", 15, "d", "q", 7, digest=5, origin="r"),
        Row(Kind.DRAINED, "", 0, "a", 16, "d", "q"),
        Row(Kind.OPENED, "", 0, "", 17, "c", "q"),
        Row(Kind.CLOSED, "", 0, "", 18, "c", "q"),
    ]


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("nonsense", "Expecting value"),
        ("[]", "no JSON object"),
        ("{}", "kind is missing"),
        (GOOD.replace("SENT", "LOST"), "unknown kind 'LOST'"),
        (GOOD.replace('"p"', "5"), "producer is no text"),
        (GOOD.replace('"number":0', '"number":"0"'), "number is no integer"),
        (GOOD.replace('"number":0', '"number":true'), "number is no integer"),
        (GOOD.replace('"number":0', '"number":1.0'), "number is no integer"),
        (GOOD.replace('"number":0', '"number":-1'), "number -1 is outside"),
        (GOOD.replace('"number":0', f'"number":{2**63}'), "is outside"),
        (GOOD.replace(',"at_ms":1', ""), "at_ms is missing"),
        (GOOD.replace("}", ',"durable":1}'), "durable is neither"),
        (GOOD.replace("}", ',"delivery_count":2147483648}'), "delivery_count 2147483648 is outside"),
        (GOOD.replace("}", ',"x":NaN}'), "NaN is no JSON"),
        (GOOD.replace("}", ',"x":{}}'), "no objects or arrays"),
        (GOOD.replace('"at_ms":1', f'"at_ms":{2**48}'), "is outside"),
        (GOOD + GOOD, "Extra data"),
        (GOOD.replace("p", "\ufffd"), "no UTF-8"),
        ("[" * 100_000, "no ledger row"),
    ],
)
def test_an_invalid_row_is_named(line: str, wrong: str) -> None:
    with pytest.raises(LedgerDamaged, match=r"f\.jsonl:2: no ledger row") as caught:
        list(read([GOOD, line, GOOD], file="f.jsonl"))
    assert wrong in str(caught.value)
    assert (caught.value.file, caught.value.line) == ("f.jsonl", 2)


def test_unknown_keys_and_blank_lines_do_not_matter() -> None:
    assert len(list(read(["\n", GOOD.replace("}", ',"later":1.5}'), "  \r\n", GOOD, "\n"]))) == 2


def test_a_torn_tail_is_tolerated_and_said_or_is_an_error() -> None:
    torn: list[tuple[str, int]] = []
    lines = [GOOD, GOOD, GOOD[:20], "\n"]
    assert len(list(read(lines, file="f", on_torn_tail=lambda file, line: torn.append((file, line))))) == 2
    assert torn == [("f", 3)]
    with pytest.raises(LedgerDamaged, match="f:3"):
        list(read(lines, file="f"))


def test_a_complete_last_line_that_is_no_row_is_no_torn_tail() -> None:
    with pytest.raises(LedgerDamaged, match="kind is missing"):
        list(read([GOOD, "{}"], on_torn_tail=lambda file, line: None))
    with pytest.raises(LedgerDamaged):
        list(read([GOOD[:20], GOOD], on_torn_tail=lambda file, line: None))


def test_rows_come_one_by_one() -> None:
    """Goal: a bad line far down does not keep the rows before it from being seen."""
    rows = read([GOOD, GOOD, "x", GOOD])
    assert next(rows) == next(rows)
    with pytest.raises(LedgerDamaged):
        next(rows)
