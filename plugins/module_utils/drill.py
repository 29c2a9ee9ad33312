"""The arithmetic of a drill: one row per round, percentiles over the rounds, and which invariants were broken.

Takes what the play collected (moments of the kill and of the failback, the gaps in the producer's confirmations, and
the verdict of ``understudy ledger check --json``). Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

INVARIANTS = ("lost", "duplicated", "reordered", "unexplained", "corrupted", "refused", "partial", "unresolved")
"""The counts of a ledger report that must be zero."""

OUTAGES = ("kill_outage_ms", "failback_outage_ms")
MEASURED = (*OUTAGES, "takeover_ms", "failback_ms")
SHARES = ("p50", "p95")
TITLES = ("round", "messages", "lost", "duplicated", "reordered", "without service: kill", "failback")


@dataclass(frozen=True, slots=True)
class Round:
    """One kill and one failback under load."""

    number: int
    messages: int
    lost: int
    duplicated: int
    reordered: int
    unexplained: int
    corrupted: int
    refused: int
    partial: int
    unresolved: int
    """Messages of which the ledgers cannot say whether they were lost: the queue was not seen drained."""
    kill_outage_ms: int
    """Longest time without a confirmation around the kill."""
    failback_outage_ms: int
    """Longest time without a confirmation around the failback."""
    takeover_ms: int
    """From the kill to the backup saying that it is active and ready, as the play saw it: its own pace is in it."""
    failback_ms: int
    """From the start of the old primary to primary active and backup following again, likewise."""
    load_lasted: bool
    """Confirmations still came after the failback was done, so both outages were measured under load."""
    problems: tuple[str, ...]


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
    """
    check = record["check"]
    if not isinstance(check, Mapping) or not isinstance(check.get("counts"), Mapping):
        raise ValueError("check is not what `understudy ledger check --json` prints")
    counts = {name: int(check["counts"][name]) for name in INVARIANTS}
    messages = int(str(record["confirmed"]))
    load_lasted = record["load_lasted"] is True
    kill, failback = record["kill_gap"], record["failback_gap"]
    problems = [f"{number} {name}" for name, number in counts.items() if number]
    if messages < messages_expected:
        problems.append(f"{messages} of at least {messages_expected} messages confirmed")
    if not load_lasted or kill is None or failback is None:
        problems.append("the load ended before the failback was done")
    if not problems and int(str(record["check_status"])) != 0:
        problems.append(f"understudy ledger check ended with {record['check_status']}")
    return Round(
        number=int(str(record["number"])),
        messages=messages,
        kill_outage_ms=_duration_ms(kill),
        failback_outage_ms=_duration_ms(failback),
        takeover_ms=int(str(record["takeover_ms"])),
        failback_ms=int(str(record["failback_ms"])),
        load_lasted=load_lasted,
        problems=tuple(problems),
        **counts,
    )


def _duration_ms(gap: object) -> int:
    return int(gap["duration_ms"]) if isinstance(gap, Mapping) else 0


def report(records: Sequence[Mapping[str, object]], messages_expected: int) -> dict[str, object]:
    """The whole drill: rounds, summary, table for people, and ``passed``.

    A drill without rounds has not passed.
    """
    rounds = [judge_round(record, messages_expected) for record in records]
    problems = [f"round {entry.number}: {problem}" for entry in rounds for problem in entry.problems]
    if not rounds:
        problems.append("no round was run")
    summary = {name: _spread([getattr(entry, name) for entry in rounds]) for name in MEASURED if rounds}
    return {
        "passed": not problems,
        "problems": problems,
        "rounds": [{**asdict(entry), "problems": list(entry.problems)} for entry in rounds],
        "summary": summary,
        "table": _table(rounds, summary),
    }


def _spread(values: Sequence[int]) -> dict[str, int]:
    return {"p50": round(percentile(values, 0.50)), "p95": round(percentile(values, 0.95))}


def _seconds(duration_ms: int) -> str:
    return f"{duration_ms / 1000:.2f} s"


def _table(rounds: Sequence[Round], summary: Mapping[str, Mapping[str, int]]) -> list[str]:
    rows = [
        (
            *map(str, (entry.number, entry.messages, entry.lost, entry.duplicated, entry.reordered)),
            *(_seconds(getattr(entry, name)) for name in OUTAGES),
        )
        for entry in rounds
    ]
    if summary:
        rows += [(share, "", "", "", "", *(_seconds(summary[name][share]) for name in OUTAGES)) for share in SHARES]
    widths = [max(len(row[column]) for row in (TITLES, *rows)) for column in range(len(TITLES))]

    def line(row: Sequence[str]) -> str:
        return "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip()

    return [line(TITLES), line(["-" * width for width in widths]), *map(line, rows)]
