"""Primitive encodings (artemis-core s. 2), their bounds and their limits."""

from __future__ import annotations

import pytest

from understudy.errors import LimitExceeded, LocalProtocolError, RemoteProtocolError
from understudy.limits import STRING_UNITS_MAX
from understudy.wire.buffer import Reader, Writer


def written(text: str) -> bytes:
    writer = Writer()
    writer.string(text)
    return writer.getvalue()


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ("", "00000000"),
        ("abcdefgh", "00000008 00610062006300640065006600670068"),
        ("abcdefghi", "00000009 0009 616263646566676869"),
        ("\0" * 9, "00000009 0009 000000000000000000"),
        ("é€" + "a" * 7, "00000009 000c c3a9 e282ac 61616161616161"),
        # One character beyond U+FFFF is two units, and two groups of three bytes.
        ("\U0001f600" + "a" * 7, "00000009 000d eda0bd edb880 61616161616161"),
        ("\U0001f600", "00000002 d83dde00"),
    ],
)
def test_string_forms(text: str, raw: str) -> None:
    assert written(text) == bytes.fromhex(raw)
    reader = Reader(bytes.fromhex(raw))
    assert reader.string() == text
    assert reader.remaining == 0


@pytest.mark.parametrize("units", [8, 9, 4094, 4095, 70_000])
@pytest.mark.parametrize("character", ["a", "€", "\U0001f600"])
def test_string_forms_meet_without_a_gap(units: int, character: str) -> None:
    text = character * units
    assert Reader(written(text)).string() == text


def test_long_string_is_a_simple_string() -> None:
    assert written("a" * 4095)[:12] == bytes.fromhex("00000fff 00001ffe 61006100")


@pytest.mark.parametrize(
    "raw",
    [
        "ffffffff",  # negative
        "00000002 0061",  # cut off
        "00000009 0009 6162",  # cut off
        "00000009 0009 ffffffffffffffffff",  # no UTF
        "00000009 0008 6162636465666768",  # eight characters, nine announced
        "00000fff 00000002 6100",  # one character, 4095 announced
        "0000",
        "",
    ],
)
def test_bad_strings(raw: str) -> None:
    with pytest.raises(RemoteProtocolError):
        Reader(bytes.fromhex(raw)).string()


@pytest.mark.parametrize("raw", ["ffffffff", "00000001 61", "00000004 6100", "000000"])
def test_bad_simple_strings(raw: str) -> None:
    with pytest.raises(RemoteProtocolError):
        Reader(bytes.fromhex(raw)).simple_string()


def test_lone_surrogates_survive() -> None:
    assert Reader(written("\ud800")).string() == "\ud800"
    assert Reader(written("\udc00" + "a" * 8)).string() == "\udc00" + "a" * 8


def test_limits_come_before_memory() -> None:
    # The bytes announced are not there: the limit must speak first.
    with pytest.raises(LimitExceeded, match="offset 0"):
        Reader(bytes.fromhex("7ffffffe")).simple_string()
    with pytest.raises(LimitExceeded):
        Reader(bytes.fromhex("7fffffff")).string()
    with pytest.raises(LimitExceeded):
        Reader(bytes.fromhex("00000006 610061006100")).simple_string(units_max=2)
    with pytest.raises(LimitExceeded):
        Reader(bytes.fromhex("00000003 616263")).sized_bytes(2)
    with pytest.raises(LimitExceeded):
        Reader(bytes.fromhex("7fffffff")).count(1)
    with pytest.raises(LocalProtocolError):
        Writer().string("a" * (STRING_UNITS_MAX + 1))


def test_a_list_cannot_be_longer_than_its_bytes() -> None:
    assert Reader(bytes.fromhex("00000002 0000000000000000")).count(4) == 2
    for raw in ("00000003 0000000000000000", "ffffffff 0000"):
        with pytest.raises(RemoteProtocolError, match="list of"):
            Reader(bytes.fromhex(raw)).count(4)


def test_numbers_flags_and_bounds() -> None:
    reader = Reader(bytes.fromhex("ff 8000 80000000 8000000000000000 00 01 ff"))
    assert (reader.i8(), reader.i16(), reader.i32(), reader.i64()) == (-1, -(2**15), -(2**31), -(2**63))
    assert [reader.boolean() for _ in range(3)] == [False, True, True]
    for read in (reader.i8, reader.i16, reader.i32, reader.i64, reader.boolean):
        with pytest.raises(RemoteProtocolError, match="offset 18"):
            read()


def test_a_reader_stays_inside_its_end() -> None:
    reader = Reader(bytes(16), 2, 4)
    with pytest.raises(RemoteProtocolError):
        reader.i32()
    assert reader.raw(2) == b"\0\0"
    with pytest.raises(RemoteProtocolError):
        reader.raw(1)
    with pytest.raises(RemoteProtocolError):
        reader.raw(-1)


def test_nullable_and_rest() -> None:
    reader = Reader(bytes.fromhex("00 01 00000007 aabb"))
    assert reader.nullable(reader.i32) is None
    assert reader.nullable(reader.i32) == 7
    assert reader.rest() == b"\xaa\xbb"


def test_writer_numbers() -> None:
    writer = Writer()
    writer.i8(-1)
    writer.i16(-2)
    writer.i32(-3)
    writer.i64(-4)
    writer.boolean(True)
    writer.boolean(False)
    writer.sized_bytes(b"ab")
    writer.simple_string("é")
    assert writer.getvalue() == bytes.fromhex("ff fffe fffffffd fffffffffffffffc ff 00 00000002 6162 00000002 e900")
