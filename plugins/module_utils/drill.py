"""The arithmetic of a drill: one row per round, percentiles over the rounds, and which invariants were broken.

Takes what the play collected (the gaps in the confirmations around each part of the event, and the verdict of
``understudy ledger check --json``). Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

INVARIANTS = ("lost", "duplicated", "reordered", "unexplained", "corrupted", "refused", "partial", "unresolved")
"""The counts of a ledger report that must be zero."""

COUNTS = ("lost", "duplicated", "reordered")
"""Counts of ``INVARIANTS`` that the table shows."""

SHARES = ("p50", "p95")


@dataclass(frozen=True, slots=True)
class Round:
    """One event under load, such as a kill with a failback, or a node that leaves."""

    number: int
    messages: int
    counts: Mapping[str, int]
    """Counts of the ledger report by invariant. Unresolved are messages of which the ledgers cannot say whether they
    were lost: the queue was not seen drained."""
    outages_ms: Mapping[str, int]
    """Longest time without a confirmation that any producer saw around each part of the event, by the name of the part.
    """
    times_ms: Mapping[str, int]
    """Durations as the play saw them, such as from a kill to the backup saying that it is active; its own pace is in
    them."""
    load_lasted: bool
    """Confirmations still came after the event, so all outages were measured under load."""
    problems: tuple[str, ...]

    @property
    def measured(self) -> dict[str, int]:
        """All durations in milliseconds by name."""
        return {**{f"{name}_outage_ms": value for name, value in self.outages_ms.items()}, **self.times_ms}

    def as_dict(self) -> dict[str, object]:
        return {
            "number": self.number,
            "messages": self.messages,
            **self.counts,
            **self.measured,
            "load_lasted": self.load_lasted,
            "problems": list(self.problems),
        }


def percentile(values: Sequence[float], share: float) -> float:
    """Linear between closest ranks, as spreadsheets do it.

    Raises:
        ValueError: no values.
    """
    if not values:
        raise ValueError("a percentile needs at least one value")
    ordered = sorted(values)
    position = (len(ordered) - 1) * share
    below = math.floor(position)
    above = math.ceil(position)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def judge_round(record: Mapping[str, object], messages_expected: int) -> Round:
    """One round from what the play collected.

    Raises:
        KeyError: the play or the check left something out; silence is no pass.
        ValueError: a part of the record has another form than expected.
    """
    check = record["check"]
    if not isinstance(check, Mapping) or not isinstance(check.get("counts"), Mapping):
        raise ValueError("check is not what `understudy ledger check --json` prints")
    counts = {name: int(check["counts"][name]) for name in INVARIANTS}
    messages = int(str(record["confirmed"]))
    load_lasted = record["load_lasted"] is True
    outages_ms, unmeasured = _outages_ms(record["gaps"])
    times = record["times"]
    if not isinstance(times, Mapping):
        raise ValueError("times is no mapping of durations by name")
    problems = [f"{number} {name}" for name, number in counts.items() if number]
    if messages < messages_expected:
        problems.append(f"{messages} of at least {messages_expected} messages confirmed")
    if not load_lasted or unmeasured:
        problems.append("the load ended before the event was over")
    if not problems and int(str(record["check_status"])) != 0:
        problems.append(f"understudy ledger check ended with {record['check_status']}")
    return Round(
        number=int(str(record["number"])),
        messages=messages,
        counts=counts,
        outages_ms=outages_ms,
        times_ms={str(name): int(str(value)) for name, value in times.items()},
        load_lasted=load_lasted,
        problems=tuple(problems),
    )


def _outages_ms(gaps: object) -> tuple[dict[str, int], bool]:
    """Longest gap of all producers by part of the event, and whether a producer had no load to measure with.

    Args:
        gaps: of each producer, the gaps that ``ledger_info`` returned.
    """
    if not isinstance(gaps, Sequence) or not gaps or not all(isinstance(each, Mapping) and each for each in gaps):
        raise ValueError("gaps is no list of what ledger_info returned for each producer")
    longest: dict[str, int] = {}
    unmeasured = False
    for producer in gaps:
        for name, gap in producer.items():
            unmeasured = unmeasured or gap is None
            longest[name] = max(longest.get(name, 0), int(gap["duration_ms"]) if gap else 0)
    return longest, unmeasured


def report(records: Sequence[Mapping[str, object]], messages_expected: int) -> dict[str, object]:
    """The whole drill: rounds, summary, table for people, and ``passed``.

    A drill without rounds has not passed.
    """
    rounds = [judge_round(record, messages_expected) for record in records]
    problems = [f"round {entry.number}: {problem}" for entry in rounds for problem in entry.problems]
    if not rounds:
        problems.append("no round was run")
    names = rounds[0].measured if rounds else {}
    summary = {name: _spread([entry.measured[name] for entry in rounds]) for name in names}
    return {
        "passed": not problems,
        "problems": problems,
        "rounds": [entry.as_dict() for entry in rounds],
        "summary": summary,
        "table": _table(rounds, summary),
    }


def _spread(values: Sequence[int]) -> dict[str, int]:
    return {"p50": round(percentile(values, 0.50)), "p95": round(percentile(values, 0.95))}


def _seconds(duration_ms: int) -> str:
    return f"{duration_ms / 1000:.2f} s"


def _table(rounds: Sequence[Round], summary: Mapping[str, Mapping[str, int]]) -> list[str]:
    outages = list(rounds[0].outages_ms) if rounds else []
    titles = ["round", "messages", *COUNTS, *(name.replace("_", " ") for name in outages)]
    if outages:
        titles[2 + len(COUNTS)] = f"without service: {titles[2 + len(COUNTS)]}"
    rows = [
        [
            *map(str, (entry.number, entry.messages, *(entry.counts[name] for name in COUNTS))),
            *(_seconds(entry.outages_ms[name]) for name in outages),
        ]
        for entry in rounds
    ]
    if summary:
        blank = [""] * (1 + len(COUNTS))
        rows += [
            [share, *blank, *(_seconds(summary[f"{name}_outage_ms"][share]) for name in outages)] for share in SHARES
        ]
    widths = [max(len(row[column]) for row in (titles, *rows)) for column in range(len(titles))]

    def line(row: Sequence[str]) -> str:
        return "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip()

    return [line(titles), line(["-" * width for width in widths]), *map(line, rows)]
