"""The table of faults and rolls: runs its rows, keeps their results, and writes them into the page for operators."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime

from understudy_lab.bed import Bed
from understudy_lab.errors import LabError, run
from understudy_lab.image import DEFAULT_RELEASE, RELEASES
from understudy_lab.pair import RESULTS, ROOT, Load, assert_kept, longest_window_s
from understudy_lab.rolls import PAIRS
from understudy_lab.rows import ROWS, Row

PAGE = ROOT / "docs" / "operate" / "faults-and-rolls.md"
BEGIN, END = "<!-- begin of the table: tests/lab/lab faults --page -->", "<!-- end of the table -->"
STORED = RESULTS / "faults.json"
RATE = 50
"""Messages of each producer in a second."""
PROBLEM_CHARACTERS = 2000
MARGIN_S = 300.0
"""Before the begin of a row, in the journals that explain it."""


@dataclass(frozen=True, slots=True)
class Result:
    """How a row ended."""

    key: str
    name: str
    ok: bool
    """Whether the row went as it must, and every message was judged and none lost or doubled."""
    at: str
    """Begin, in UTC."""
    commit: str
    load_average: float
    """Load average of this machine at the end, over five minutes."""
    seconds: float
    gaps_s: Mapping[str, float] = field(default_factory=dict)
    """The longest time without a confirmation, of each pair's producer."""
    confirmed: int = 0
    lost: int = 0
    doubled: int = 0
    unresolved: int = 0
    cells: Mapping[str, object] = field(default_factory=dict)
    """Further measurements of the row."""
    problem: str = ""
    """Why it is not ok; empty if it is."""
    debian: str = DEFAULT_RELEASE
    """Release of Debian of the hosts."""


def chosen(keys: Sequence[str]) -> list[Row]:
    """The rows with these keys, or whose keys begin with them and a hyphen, in the order of the table; all by default.

    Raises:
        LabError: a key names no row.
    """

    def named(row: Row, key: str) -> bool:
        return row.key == key or row.key.startswith(f"{key}-")

    unknown = [key for key in keys if not any(named(row, key) for row in ROWS)]
    if unknown:
        raise LabError(f"no row is named {', '.join(unknown)}; tests/lab/lab faults --list shows them")
    return [row for row in ROWS if not keys or any(named(row, key) for key in keys)]


def carry_out(bed: Bed, rows: Iterable[Row], say: Callable[[str], None]) -> list[Result]:
    """Runs rows one after the other; the hosts are made anew before the next row if one was not ok.

    Args:
        bed: the hosts, which are deployed.
        rows: which.
        say: is given a line for each step.

    Raises:
        LabError: the hosts could not be made anew.
    """
    rows = list(rows)
    results: list[Result] = []
    for position, row in enumerate(rows, 1):
        if bed.damaged:
            say("the hosts are made anew")
            bed.make_anew()
        say(f"[{position}/{len(rows)}] {row.key}: {row.name}")
        result = _judged(bed, row)
        results.append(result)
        _store(result)
        say(f"    {_in_short(result)}")
        if not result.ok:
            evidence = RESULTS / "faults" / row.key
            bed.keep_evidence(evidence, result.seconds + MARGIN_S)
            say(f"    {result.problem}\n    journals and ledgers: {evidence}")
            bed.damaged = True
    return results


def _judged(bed: Bed, row: Row) -> Result:
    begun, at = time.monotonic(), datetime.now(UTC)
    found: dict[str, object] = {}
    problem = ""
    bed.report = {}
    try:
        row.prepare(bed)
        bed.make_ready()
        load = bed.load = Load(bed.lab, RATE, PAIRS)
        load.await_progress()
        cells = dict(row.act(bed))
        load.await_progress()
        bed.make_ready()
        load.await_progress()
        report = bed.report = load.end()
        counts = report["counts"]
        assert isinstance(counts, dict)
        gaps = {pair: round(longest_window_s(report, pair), 1) for pair in PAIRS}
        found = {
            "gaps_s": cells.pop("gaps_s", gaps),
            "cells": cells,
            "confirmed": counts["confirmed"],
            "lost": counts["lost"],
            "doubled": counts["duplicated"],
            "unresolved": counts["unresolved"],
        }
        assert_kept(report)
    except (LabError, AssertionError, OSError, ValueError, subprocess.TimeoutExpired) as error:
        problem = f"{type(error).__name__}: {error}"[-PROBLEM_CHARACTERS:]
    return Result(
        key=row.key,
        name=row.name,
        ok=not problem,
        at=at.strftime("%Y-%m-%d %H:%M"),
        commit=_commit(),
        load_average=round(os.getloadavg()[1], 1),
        seconds=round(time.monotonic() - begun, 1),
        problem=problem,
        debian=bed.lab.image.release,
        **found,  # type: ignore[arg-type]
    )


def _commit() -> str:
    changed = run(["git", "status", "--porcelain", "--untracked-files=no"], cwd=ROOT).strip()
    return run(["git", "rev-parse", "--short=8", "HEAD"], cwd=ROOT).strip() + ("+" if changed else "")


def _in_short(result: Result) -> str:
    gaps = ", ".join(f"{pair} {gap:.1f} s" for pair, gap in result.gaps_s.items()) or "not measured"
    verdict = f"confirmed {result.confirmed}, lost {result.lost}, doubled {result.doubled}"
    return f"{'ok' if result.ok else 'NOT OK'}: gap {gaps}; {verdict}; {result.seconds:.0f} s"


# --- the page ---


def stored() -> dict[str, dict[str, object]]:
    """The last result of each row, by its key and the release of the hosts (``_place``)."""
    if not STORED.exists():
        return {}
    found = json.loads(STORED.read_text())
    assert isinstance(found, dict)
    return found


def _store(result: Result) -> None:
    STORED.parent.mkdir(parents=True, exist_ok=True)
    written = STORED.with_suffix(".new")
    place = _place(result.key, result.debian)
    written.write_text(json.dumps({**stored(), place: asdict(result)}, indent=2) + "\n")
    written.replace(STORED)


def _place(key: str, release: str) -> str:
    """What names a row on hosts with a release of Debian: its key, with the release if it is not that of all rows."""
    return key if release == DEFAULT_RELEASE else f"{key}, Debian {release}"


def table(results: Mapping[str, Mapping[str, object]], former: str = "") -> str:
    """The table in Markdown: every row, also those that have no result.

    Args:
        results: by ``_place``.
        former: a table whose lines stay for rows without a result, because they were run on another machine.
    """
    kept = {line.split("`")[1]: line for line in former.splitlines() if line.startswith("| `")}
    titles = ["row", "what happens", *(f"gap of `{pair}`" for pair in PAIRS)]
    titles += ["confirmed", "lost", "doubled", "took", "run at (UTC), load"]
    lines = [f"| {' | '.join(titles)} |", "|---|---|---:|---:|---:|---:|---:|---:|---|"]
    for row in ROWS:
        for release in RELEASES:
            place = _place(row.key, release)
            if found := results.get(place):
                lines.append(_line(place, row, found))
            elif place in kept:
                lines.append(kept[place])
            elif release == DEFAULT_RELEASE:
                lines.append(f"| `{place}` | {row.name} | not run | | | | | | |")
    return "\n".join(lines)


def _line(place: str, row: Row, found: Mapping[str, object]) -> str:
    gaps = found["gaps_s"]
    assert isinstance(gaps, Mapping)
    told = [f"{gaps[pair]:.1f} s" if pair in gaps else "" for pair in PAIRS]
    name = row.name if found["ok"] else f"{row.name}: **not ok**"
    counts = [f"{found[count]:,}" for count in ("confirmed", "lost", "doubled")]
    where = f"{found['at']}, {found['load_average']}"
    cells = [f"`{place}`", name, *told, *counts, f"{found['seconds']:.0f} s", where]
    return f"| {' | '.join(cells)} |"


def write_page() -> None:
    """Replaces the lines of the page's table by the last results of this machine.

    Raises:
        LabError: the page has no place for it.
    """
    text = PAGE.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise LabError(f"{PAGE}: the lines {BEGIN} and {END} must be there once each")
    head, rest = text.split(BEGIN)
    former, tail = rest.split(END)
    PAGE.write_text(f"{head}{BEGIN}\n\n{table(stored(), former)}\n\n{END}{tail}")
