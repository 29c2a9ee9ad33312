"""A ledger report for people; shared by ``ledger check`` and ``pipeline audit``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from understudy.cli.tables import console as make_console
from understudy.ledger import LISTED_SORTS, SORT_OF_REASON, Finding, Latency, Report, Row
from understudy.texts import printable

#: Findings and windows of one sort shown in full; --json has more.
SHOWN_MAX: Final = 5


def exit_code_of_report(report: Report) -> int:
    """0 every promise kept, 1 one broken, 3 none broken but not everything could be judged."""
    return {"kept": 0, "broken": 1, "unresolved": 3}[report.verdict]


def print_report(report: Report, torn: Mapping[str, int]) -> None:
    """Print the verdict, then numbers, then findings, to standard output."""
    console = make_console()
    counts = report.counts
    if counts.findings:
        verdict = f"{counts.findings} findings"
    elif counts.unresolved:
        verdict = f"no promise was broken, {counts.unresolved} messages unresolved"
    else:
        verdict = "no promise was broken"
    console.print(Text(f"Ledger: {verdict}", style="bold green" if report.ok else "bold red"))
    for file, line in sorted(torn.items()):
        console.print(_text(f"note: {file}:{line}: half-written last line of a killed writer left out"))
    table = Table(show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name in ("messages", "sent", "confirmed", "delivered", "acknowledged", "unconfirmed", "redelivered"):
        table.add_row(name, f"{getattr(counts, name):,}")
    for sort in LISTED_SORTS:
        count = getattr(counts, sort)
        table.add_row(sort, Text(f"{count:,}", style="bold red" if count else "green"))
        for reason, number in report.reasons:
            if SORT_OF_REASON.get(reason, "unresolved") == sort:
                table.add_row(f"  {reason.value}", f"{number:,}")
    table.add_row("sent to confirmed", _latency(report.confirm_latency))
    table.add_row("sent to delivered", _latency(report.delivery_latency))
    table.add_row(f"windows over {report.window_ms} ms", f"{counts.windows:,}")
    console.print(table)
    for window in report.windows[:SHOWN_MAX]:
        start = _time(window.start_ms)
        console.print(_text(f"without service: {window.producer} for {window.duration_ms:,} ms from {start}"))
    if report.order_not_judged:
        names = ", ".join(report.order_not_judged[:SHOWN_MAX])
        console.print(_text(f"note: consumers competed on {names}: order there was not judged"))
    for sort in LISTED_SORTS:
        for finding in getattr(report, sort)[:SHOWN_MAX]:
            _print_finding(console, sort, finding)


def _print_finding(console: Console, sort: str, finding: Finding) -> None:
    place = f" on {finding.queue}" if finding.queue else ""
    after = f" (after {finding.after})" if finding.after >= 0 else ""
    line = f"{sort}: {finding.producer} #{finding.number}{place}: {finding.reason.value}{after}"
    console.print(_text(line, "red"))
    for row in finding.rows:
        console.print(_text(f"    {_row(row)}"))


def _row(row: Row) -> str:
    parts = [_time(row.at_ms), row.kind.value, f"#{row.number}", row.address]
    if row.consumer:
        parts.append(f"to {row.consumer}")
    if row.queue:
        parts.append(f"from {row.queue}")
    if row.message_id:
        parts.append(f"id {row.message_id}")
    if row.delivery_count:
        parts.append(f"delivery {row.delivery_count}")
    if row.digest:
        parts.append(f"body {row.digest:016x}")
    if row.transaction:
        parts.append(f"in transaction {row.transaction}")
    if row.origin:
        parts.append(f"moved from {row.origin}")
    return " ".join(parts)


def _latency(latency: Latency | None) -> str:
    if latency is None:
        return "none"
    return f"p50 {latency.p50_ms} / p99 {latency.p99_ms} / p99.9 {latency.p999_ms} / max {latency.max_ms} ms"


def _time(at_ms: int) -> str:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"


def _text(line: str, style: str = "") -> Text:
    """Names come from clients: without markup and terminal control characters."""
    return Text(printable(line), style=style)
