"""Sizes and times as people write them."""

from __future__ import annotations

import pytest

from understudy.units import format_bytes, parse_bytes, parse_duration_ms


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("512", 512),
        ("-1", -1),
        ("9223372036854775807", 2**63 - 1),
        (" 7 ", 7),
        ("7b", 7),
        ("7B", 7),
        ("1k", 1024),
        ("1K", 1024),
        ("1KB", 1024),
        ("1KiB", 1024),
        ("10M", 10 * 1024**2),
        ("10 MiB", 10 * 1024**2),
        ("2g", 2 * 1024**3),
        ("100GiB", 100 * 1024**3),
    ],
)
def test_sizes(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "k", "1.5M", "1T", "1 2", "0x10", "1_000", "٣", "1e3", "9" * 20, "--1", "M10"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(ValueError, match="no size"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0),
        ("500", 500),
        ("500ms", 500),
        ("30s", 30_000),
        (" 5 m ", 300_000),
        ("2h", 7_200_000),
        ("7d", 604_800_000),
    ],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "-1", "1.5s", "1w", "s", "1S", "1 000", "٣s", "1_0", "9" * 20])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="no time"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (-2048, "-2.0 KiB"),
        (10 * 1024**2, "10.0 MiB"),
        (3 * 1024**3, "3.0 GiB"),
        (5 * 1024**4, "5.0 TiB"),
        (5000 * 1024**4, "5000.0 TiB"),
    ],
)
def test_sizes_for_people(count: int, text: str) -> None:
    assert format_bytes(count) == text
