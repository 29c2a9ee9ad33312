"""Typed properties and SimpleStrings (artemis-core s. 2.1, 2.2)."""

from __future__ import annotations

import math
import struct

import pytest

from understudy import properties as typed
from understudy.errors import LimitExceeded, LocalProtocolError, RemoteProtocolError
from understudy.limits import PROPERTIES_MAX, STRING_UNITS_MAX
from understudy.properties import Properties, PropertyValue, decode_simple_string, encode_simple_string

KEY = "00000002 6b00"  # "k"

WIRE = [
    (typed.NULL, None, "00"),
    (typed.BOOLEAN, True, "02 01"),
    (typed.BOOLEAN, False, "02 00"),
    (typed.BYTE, -1, "03 ff"),
    (typed.BYTES, b"\x01\x02", "04 00000002 0102"),
    (typed.BYTES, b"", "04 00000000"),
    (typed.SHORT, -2, "05 fffe"),
    (typed.INT, 7, "06 00000007"),
    (typed.LONG, -(2**63), "07 8000000000000000"),
    (typed.FLOAT, 1.5, "08 3fc00000"),
    (typed.DOUBLE, -2.0, "09 c000000000000000"),
    (typed.STRING, "hé", "0a 00000004 6800e900"),
    (typed.STRING, "", "0a 00000000"),
    (typed.CHAR, 0xFFFF, "0b ffff"),
]


def decoded(raw: bytes) -> Properties:
    found, end = Properties.decode(raw, 0, len(raw))
    assert end == len(raw)
    return found


@pytest.mark.parametrize(("tag", "value", "wire"), WIRE)
def test_every_type(tag: int, value: PropertyValue, wire: str) -> None:
    raw = bytes.fromhex(f"01 00000001 {KEY} {wire}")
    properties = Properties()
    properties.set_typed("k", tag, value)
    assert properties.encode() == raw
    for _ in range(2):  # the second time from the cache
        found = decoded(raw)
        assert found["k"] == value
        assert type(found["k"]) is type(value)
        assert found.tag("k") == tag
        assert found.encode() == raw


@pytest.mark.parametrize(("tag", "value", "wire"), WIRE)
def test_every_cut_is_refused(tag: int, value: PropertyValue, wire: str) -> None:
    raw = bytes.fromhex(f"01 00000001 {KEY} {wire}")
    for size in range(len(raw)):
        with pytest.raises(RemoteProtocolError):
            Properties.decode(raw[:size], 0, size)
        # There are bytes after the end, which must not be read.
        with pytest.raises(RemoteProtocolError):
            Properties.decode(raw, 0, size)


def test_empty_forms() -> None:
    assert Properties().encode() == b"\0"
    assert len(decoded(b"\0")) == 0
    assert len(decoded(bytes.fromhex("01 00000000"))) == 0


def test_natural_types() -> None:
    properties = Properties({"a": True, "b": 1, "c": 1.0, "d": "s", "e": b"x", "f": None})
    assert [properties.tag(key) for key in "abcdef"] == [
        typed.BOOLEAN,
        typed.LONG,
        typed.DOUBLE,
        typed.STRING,
        typed.BYTES,
        typed.NULL,
    ]
    with pytest.raises(LocalProtocolError):
        properties["g"] = [1]  # type: ignore[assignment]


def test_it_is_a_mapping() -> None:
    properties = Properties({"a": 1, "n": None})
    assert properties.get("a") == 1
    assert properties.get("b") is None
    assert properties.get("b", 5) == 5
    assert properties.get("n", 5) is None
    assert "a" in properties
    assert "b" not in properties
    assert 7 not in properties  # type: ignore[comparison-overlap]
    assert list(properties) == ["a", "n"]
    del properties["n"]
    assert properties == {"a": 1}
    assert repr(properties) == "Properties({'a': 1})"
    with pytest.raises(KeyError):
        properties["n"]
    with pytest.raises(KeyError):
        properties.tag("n")


def test_copies_and_remembered_blocks_are_independent() -> None:
    raw = bytes.fromhex(f"01 00000001 {KEY} 03 01")
    for _ in range(3):
        found = decoded(raw)
        assert found == {"k": 1}
        found["k"] = 2
        found["more"] = 3
    other = found.copy()
    del other["k"]
    assert found == {"k": 2, "more": 3}


def test_a_remembered_block_is_only_taken_whole() -> None:
    raw = bytes.fromhex(f"01 00000001 {KEY} 03 01")
    decoded(raw)
    found, end = Properties.decode(raw + b"behind", 0, len(raw) + 6)
    assert (dict(found), end) == ({"k": 1}, len(raw))
    found, end = Properties.decode(b"in front" + raw, 8, 8 + len(raw))
    assert (dict(found), end) == ({"k": 1}, 8 + len(raw))


def test_the_cache_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed, "_BLOCKS", {})
    monkeypatch.setattr(typed, "_BLOCKS_MAX", 3)
    monkeypatch.setattr(typed, "_KEYS", {})
    monkeypatch.setattr(typed, "_KEYS_MAX", 3)
    for number in range(20):
        assert decoded(Properties({f"k{number}": number}).encode()) == {f"k{number}": number}
        assert 1 <= len(typed._BLOCKS) <= 3
        assert 1 <= len(typed._KEYS) <= 3
    decoded(Properties({"x" * 200: 1}).encode())
    assert all(len(key) <= 128 for key in typed._KEYS)
    assert all(len(block) <= 64 for block in typed._BLOCKS)


@pytest.mark.parametrize(
    ("tag", "value"),
    [
        (typed.BYTE, 128),
        (typed.SHORT, 2**15),
        (typed.INT, 2**31),
        (typed.LONG, 2**63),
        (typed.CHAR, -1),
        (typed.FLOAT, 1e300),
        (typed.STRING, 5),
        (typed.BYTES, "text"),
        (typed.DOUBLE, "x"),
        (99, 1),
    ],
)
def test_values_that_do_not_fit(tag: int, value: PropertyValue) -> None:
    properties = Properties()
    properties.set_typed("k", tag, value)
    with pytest.raises(LocalProtocolError, match="'k'"):
        properties.encode()


def test_nan_survives() -> None:
    assert math.isnan(decoded(Properties({"n": math.nan}).encode())["n"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "raw",
    [
        "01 ffffffff",  # negative count
        f"01 00000001 {KEY} 01",  # tag 1 is a flag, no type
        f"01 00000001 {KEY} 0c",
        f"01 00000001 {KEY} 0a 00000001 61",  # half a character
        f"01 00000001 {KEY} 0a ffffffff",
        f"01 00000001 {KEY} 04 ffffffff",
        f"01 00000001 {KEY} 04 7fffffff",
        "01 00000001 ffffffff 00",
        "01 00000001 80000000 00",
        "01 00000001 00000001 61 00",
        "01 00000001 7ffffffe 61 00",
        f"01 00000002 {KEY} 03 01",  # one of two
    ],
)
def test_junk(raw: str) -> None:
    decoded(bytes.fromhex("01 00000001 00000000 00"))  # an empty name is remembered
    data = bytes.fromhex(raw)
    with pytest.raises(RemoteProtocolError):
        Properties.decode(data, 0, len(data))


def test_limits() -> None:
    for count in (PROPERTIES_MAX + 1, 2**31 - 1):
        with pytest.raises(LimitExceeded, match=str(count)):
            Properties.decode(struct.pack(">bi", 1, count), 0, 5)
    raw = struct.pack(">i", 2 * STRING_UNITS_MAX + 2) + bytes(2 * STRING_UNITS_MAX + 2)
    with pytest.raises(LimitExceeded):
        decode_simple_string(raw, 0, len(raw))


@pytest.mark.parametrize("text", ["", "a", "é€", "\U0001f600", "\ud800", "a\0b"])
def test_simple_strings(text: str) -> None:
    raw = encode_simple_string(text)
    assert decode_simple_string(b"xx" + raw + b"yy", 2, 2 + len(raw)) == (text, 2 + len(raw))
    for end in range(2, 2 + len(raw)):
        with pytest.raises(RemoteProtocolError):
            decode_simple_string(b"xx" + raw + b"yy", 2, end)
