"""Goal: a batch of lines becomes the rows that the reference reads, whichever way it is parsed.

Method: lines of every shape, each alone and among others, judged by ``understudy.ledger.parse``; no Spark.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from understudy.errors import LedgerDamaged
from understudy.ledger import Kind, Row, encode, parse
from understudy.spark.ledger import lines as ledger_lines

pytestmark = pytest.mark.spark

GOOD = '{"kind":"SENT","producer":"p","number":0,"address":"a","at_ms":1}'
#: Each with how Arrow could take it for a row.
WRONG = {
    "null in place of a text": GOOD.replace("}", ',"queue":null}'),
    "null in place of an integer": GOOD.replace("}", ',"epoch":null}'),
    "an integer in quotes": GOOD.replace('"number":0', '"number":"0"'),
    "an integer with a point": GOOD.replace('"number":0', '"number":0.0'),
    "an integer with an exponent": GOOD.replace('"number":0', '"number":1e2'),
    "an integer with a leading zero": GOOD.replace('"number":0', '"number":01'),
    "an integer with a sign": GOOD.replace('"number":0', '"number":+1'),
    "an integer that is too large": GOOD.replace('"number":0', f'"number":{2**63}'),
    "a truth value in place of an integer": GOOD.replace('"number":0', '"number":true'),
    "an integer in place of a truth value": GOOD.replace("}", ',"durable":1}'),
    "a number in place of a text": GOOD.replace('"p"', "5"),
    "an object in an unknown field": GOOD.replace("}", ',"x":{}}'),
    "an array in an unknown field": GOOD.replace("}", ',"x":[1]}'),
    "NaN in an unknown field": GOOD.replace("}", ',"x":NaN}'),
    "Infinity in an unknown field": GOOD.replace("}", ',"x":-Infinity}'),
    "two objects": GOOD + GOOD,
    "text after the object": GOOD + " x",
    "no end": GOOD[:-1],
    "a comma at the end": GOOD.replace("}", ",}"),
    "a comment": GOOD.replace("}", "/* */}"),
    "a control character": GOOD.replace("p", "\x01"),
    "a space of another kind": "\x0c" + GOOD,
    "a byte order mark": "\ufeff" + GOOD,
    "a decoder's replacement": GOOD.replace("p", "\ufffd"),
    "an unknown kind": GOOD.replace("SENT", "sent"),
    "a field is missing": GOOD.replace(',"at_ms":1', ""),
    "a time that is too large": GOOD.replace('"at_ms":1', f'"at_ms":{2**48}'),
    "a newer version": GOOD.replace("}", ',"version":4}'),
    "a half of a pair": GOOD.replace('"number":0', '"number":0,"number":"\\ud800"'),
    "no object": "5",
}
RIGHT = {
    "spaces around it": f"  {GOOD}\t\r",
    "a field twice": GOOD.replace('"number":0', '"number":7,"number":9'),
    "unknown fields": GOOD.replace("}", ',"later":"x","more":1.5,"none":null}'),
    "escapes": encode(Row(Kind.DELIVERED, 'p\n"\\{}[]\u00fc\U0001f600', 5, "a", 17, "c", "q", 9, 2)).strip(),
    "an escaped name": GOOD.replace('"kind"', '"k\\u0069nd"'),
    "an escaped replacement": GOOD.replace('"p"', '"\\ufffd"'),
    "the largest integer": GOOD.replace('"number":0', f'"number":{2**63 - 1}'),
    "a negative zero": GOOD.replace('"number":0', '"number":-0'),
    "a text with a null": GOOD.replace('"p"', '"null"'),
}


def reference(line: str) -> dict[str, Any] | None:
    try:
        row = parse(line)
    except LedgerDamaged:
        return None
    return asdict(row) | {"kind": row.kind.value}


def parsed(lines: Sequence[str]) -> list[dict[str, Any]]:
    """The lines as ``parse_lines`` returns them, their ordinals checked."""
    texts = [line.encode() for line in lines]
    rows: list[dict[str, Any]] = ledger_lines.parse_lines(b"\n".join(texts), 1000).to_pylist()
    places = [1000 + sum(len(text) + 1 for text in texts[:index]) for index in range(len(texts))]
    assert [row.pop("ordinal") for row in rows] == places
    return rows


def check(lines: Sequence[str]) -> None:
    for line, found in zip(lines, parsed(lines), strict=True):
        expected = reference(line)
        assert found.pop("bad") == (expected is None), line
        assert found.pop("value") == (line if expected is None else None)
        if expected is not None:
            assert found == expected


@pytest.mark.parametrize("line", WRONG.values(), ids=WRONG)
def test_a_wrong_line_is_found_alone_and_among_rows(line: str) -> None:
    assert reference(line) is None
    check([line])
    check([GOOD, line, GOOD])


@pytest.mark.parametrize("line", RIGHT.values(), ids=RIGHT)
def test_a_row_is_the_same_alone_and_among_others(line: str) -> None:
    assert reference(line) is not None
    check([line])
    check([GOOD, line, "nonsense", GOOD])


def test_plain_rows_are_parsed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        encode(Row(Kind.SENT, "p\u00fc", 1, "a", 5, transaction="t", digest=7)).strip(),
        encode(Row(Kind.CONFIRMED, "p", 1, "a", 6, durable=False, node="n", node_id="i", epoch=3)).strip(),
        encode(Row(Kind.DELIVERED, "p", 1, "a", 7, "c", "q", 9, 2, origin="o")).strip(),
    ]
    expected = parsed(["nonsense", *lines])[1:]
    monkeypatch.setattr(ledger_lines, "parse", None)
    assert parsed(lines) == expected


def test_bytes_that_are_no_text_make_no_row() -> None:
    found = ledger_lines.parse_lines(f"{GOOD}\n".encode() + GOOD.replace("p", "\xff").encode("latin-1") + b"\n", 0)
    assert found.column("bad").to_pylist() == [False, True]
    assert "\ufffd" in found.column("value")[1].as_py()


@pytest.mark.parametrize(
    ("text", "ordinals"),
    [("", []), ("\n", []), (" \t\r\n\n", []), (f"\n{GOOD}\n\n  \n{GOOD}", [6, 11 + len(GOOD)])],
)
def test_blank_lines_are_left_out(text: str, ordinals: list[int]) -> None:
    found = ledger_lines.parse_lines(text.encode(), 5).to_pylist()
    assert [(row["ordinal"], row["bad"]) for row in found] == [(ordinal, False) for ordinal in ordinals]


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2**64), st.floats(), st.text(max_size=5), st.just([]), st.just({})
)
OBJECTS = st.dictionaries(st.sampled_from([*sorted(Row.__dataclass_fields__), "other"]), VALUES).map(
    lambda more: json.dumps(json.loads(GOOD) | more, ensure_ascii=bool(len(more) % 2))
)


@given(st.lists(st.one_of(OBJECTS, st.just(GOOD)), min_size=1, max_size=4))
@example([GOOD.replace('"p"', '"a\\u0000b"')])
def test_any_objects_are_judged_as_the_reference_does(lines: list[str]) -> None:
    check(lines)
