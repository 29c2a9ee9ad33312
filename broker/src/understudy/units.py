"""Sizes and times as people write them in broker.xml and on the command line."""

from __future__ import annotations

import re

_SIZE = re.compile(r"\s*(-?[0-9]{1,19})\s*(?:([kKmMgG])(?:i?[bB])?|[bB])?\s*", re.ASCII)
_FACTORS = {"k": 1024, "m": 1024**2, "g": 1024**3}
_DURATION = re.compile(r"\s*([0-9]{1,19})\s*(ms|s|m|h|d)?\s*", re.ASCII)
_DURATION_FACTORS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_bytes(text: str) -> int:
    """Bytes of ``10M``, ``100KiB``, ``512`` or ``-1`` (powers of 1024, as Artemis reads them).

    Raises:
        ValueError: the text is no size.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no size: give bytes, or a number with K, M or G")
    return int(match[1]) * _FACTORS.get((match[2] or "").lower(), 1)


def parse_duration_ms(text: str) -> int:
    """Milliseconds of ``500``, ``500ms``, ``30s``, ``5m``, ``2h`` or ``7d``.

    Raises:
        ValueError: the text is no duration.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no time: give milliseconds, or a number with s, m, h or d")
    return int(match[1]) * _DURATION_FACTORS_MS[match[2] or "ms"]


def format_bytes(count: int) -> str:
    """``1536`` as ``1.5 KiB``, for people."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def format_duration_ms(duration_ms: int) -> str:
    """``350`` as ``350 ms``, ``12345`` as ``12.3 s``, ``7200000`` as ``2.0 h``, for people."""
    size = float(duration_ms)
    if abs(size) < 1000:
        return f"{duration_ms} ms"
    for unit, length, most in (("s", 1000, 120), ("min", 60, 120), ("h", 60, 48)):
        size /= length
        if abs(size) < most:
            return f"{size:.1f} {unit}"
    return f"{size / 24:.1f} d"
