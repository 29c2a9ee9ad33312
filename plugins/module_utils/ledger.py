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

from ansible_collections.understudy.broker.plugins.module_utils.process import read_record
from ansible_collections.understudy.broker.plugins.module_utils.waiting import Clock, wait_until

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


@dataclass(frozen=True, slots=True)
class Load:
    """A producer at work."""

    ledger: Path
    job: Path | None = None
    """Results file of the asynchronous task that runs the producer."""


@dataclass(frozen=True, slots=True)
class Followed:
    """What became of a load that was waited for."""

    counts: dict[str, int]
    confirmed: int
    elapsed_ms: int
    problem: str
    """Empty if enough messages were confirmed."""


def follow_load(load: Load, wanted: int, timeout_s: float, stall_timeout_s: float | None, clock: Clock) -> Followed:
    """Wait until ``wanted`` messages are confirmed, or until that cannot or does not happen any more.

    Args:
        wanted: number of confirmations.
        timeout_s: longest wait in all.
        stall_timeout_s: longest wait for one further confirmation; None for no such limit.

    Raises:
        ValueError: the ledger has a line that is no row.
    """
    tail = LedgerTail(load.ledger)
    best, changed_s = -1, clock.now_s()

    def ask() -> tuple[dict[str, int], dict[str, object] | None]:
        # The job first: once it has ended, the ledger read afterwards is complete.
        job = ended_job(load.job)
        return dict(tail.poll()), job

    def hopeless(answer: tuple[dict[str, int], dict[str, object] | None]) -> bool:
        nonlocal best, changed_s
        confirmed = answer[0].get(CONFIRMED, 0)
        if confirmed != best:
            best, changed_s = confirmed, clock.now_s()
        stalled = stall_timeout_s is not None and clock.now_s() - changed_s >= stall_timeout_s
        return answer[1] is not None or stalled

    waited = wait_until(ask, lambda answer: answer[0].get(CONFIRMED, 0) >= wanted, timeout_s, clock, hopeless)
    counts, job = waited.answer
    confirmed = counts.get(CONFIRMED, 0)
    problem = ""
    if not waited.met:
        problem = f"{confirmed} of {wanted} messages confirmed after {waited.elapsed_ms / 1000:.0f} s"
        if job is not None:
            problem += f"; the producer ended with {job.get('rc', 'no status')}: {_last_lines(job)}"
        elif waited.elapsed_ms < timeout_s * 1000:
            problem += f"; none in the last {stall_timeout_s:g} s"
    return Followed(counts, confirmed, waited.elapsed_ms, problem)


def ended_job(path: Path | None) -> dict[str, object] | None:
    """The result of an asynchronous task of Ansible, or None while it runs.

    While a job runs its file only says that it was started.
    """
    record = read_record(path) if path is not None else {}
    return record if "rc" in record or "msg" in record else None


def _last_lines(job: dict[str, object]) -> str:
    printed = "\n".join(str(job.get(name) or "") for name in ("msg", "stdout", "stderr"))
    return " | ".join([line for line in printed.splitlines() if line.strip()][-5:]) or "it printed nothing"


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
