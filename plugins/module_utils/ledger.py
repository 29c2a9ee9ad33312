"""The ledger files that ``understudy produce`` and ``understudy consume`` write, as far as a drill needs them.

A ledger is a file of JSON lines; the rows are those of the broker's own ``ledger.py``. Only counts and moments are
taken from it here. The verdict, whether anything was lost or doubled, is ``understudy ledger check``'s alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

CONFIRMED = "CONFIRMED"


@dataclass(frozen=True, slots=True)
class Gap:
    """A stretch without a confirmation."""

    start_ms: int
    end_ms: int

    @property
    def duration_ms(self) -> int:
        return self.end_ms - self.start_ms


@dataclass(frozen=True, slots=True)
class Moment:
    """One row of a ledger: what happened, and when by the wall clock of the client."""

    kind: str
    at_ms: int


def read_moments(lines: Iterable[bytes]) -> Iterator[Moment]:
    """Kind and time of every row.

    Raises:
        ValueError: a whole line that is no row; names its number. A last line without its line feed is still being
            written, and is left out.
    """
    for number, line in enumerate(lines, start=1):
        if not line.endswith(b"\n"):
            return
        try:
            row = json.loads(line)
            yield Moment(str(row["kind"]).upper(), int(row["at_ms"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"line {number} is no ledger row: {error}") from error


class LedgerTail:
    """Follows a growing ledger and counts its rows by kind, reading each byte once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.counts: dict[str, int] = {}

    def poll(self) -> dict[str, int]:
        """Counts by kind so far; a ledger that does not exist yet has none."""
        try:
            with self._path.open("rb") as source:
                source.seek(self._offset)
                data = source.read()
        except FileNotFoundError:
            return self.counts
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        for moment in read_moments(whole.splitlines(keepends=True)):
            self.counts[moment.kind] = self.counts.get(moment.kind, 0) + 1
        return self.counts


def confirmed_at_ms(lines: Iterable[bytes]) -> list[int]:
    """When each confirmation came, in order of time."""
    return sorted(moment.at_ms for moment in read_moments(lines) if moment.kind == CONFIRMED)


def longest_gap(moments_ms: Sequence[int], start_ms: int, end_ms: int) -> Gap | None:
    """The longest stretch between neighbouring moments that touches ``start_ms``..``end_ms``.

    A gap counts whole even where it began before the window, since the last confirmation before a kill is where the
    outage begins. None if fewer than two moments border the window: there was no load to measure with.
    """
    gaps = (Gap(before, after) for before, after in pairwise(moments_ms))
    touching = [gap for gap in gaps if gap.end_ms >= start_ms and gap.start_ms <= end_ms]
    return max(touching, key=lambda gap: gap.duration_ms, default=None)
