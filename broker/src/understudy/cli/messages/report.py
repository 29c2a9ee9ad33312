"""A ledger report for people; shared by ``ledger check`` and ``pipeline audit``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from understudy.cli.tables import Page
from understudy.ledger import LISTED_SORTS, SORT_OF_REASON, Finding, Latency, Report, Row

#: Findings and windows of one sort shown in full; --json has more.
SHOWN_MAX: Final = 5


def exit_code_of_report(report: Report) -> int:
    """0 every promise kept, 1 one broken, 3 none broken but not everything could be judged."""
    return {"kept": 0, "broken": 1, "unresolved": 3}[report.verdict]


def print_report(report: Report, torn: Mapping[str, int]) -> None:
    """Print the verdict, then numbers, then findings, to standard output."""
    page = Page()
    counts = report.counts
    if counts.findings:
        verdict = f"{counts.findings} findings"
    elif counts.unresolved:
        verdict = f"no promise was broken, {counts.unresolved} messages unresolved"
    else:
        verdict = "no promise was broken"
    page.line(f"Ledger: {verdict}", "bold green" if report.ok else "bold red")
    for file, line in sorted(torn.items()):
        page.line(f"note: {file}:{line}: half-written last line of a killed writer left out")
    names = ("messages", "sent", "confirmed", "delivered", "acknowledged", "unconfirmed", "redelivered")
    figures, styles = {name: f"{getattr(counts, name):,}" for name in names}, dict[str, str]()
    for sort in LISTED_SORTS:
        count = getattr(counts, sort)
        figures[sort], styles[sort] = f"{count:,}", "bold red" if count else "green"
        for reason, number in report.reasons:
            if SORT_OF_REASON.get(reason, "unresolved") == sort:
                figures[f"  {reason.value}"] = f"{number:,}"
    figures["sent to confirmed"] = _latency(report.confirm_latency)
    figures["sent to delivered"] = _latency(report.delivery_latency)
    figures[f"windows over {report.window_ms} ms"] = f"{counts.windows:,}"
    page.figures(figures, styles=styles)
    for window in report.windows[:SHOWN_MAX]:
        start = _time(window.start_ms)
        page.line(f"without service: {window.producer} for {window.duration_ms:,} ms from {start}")
    if report.order_not_judged:
        queues = ", ".join(report.order_not_judged[:SHOWN_MAX])
        page.line(f"note: consumers competed on {queues}: order there was not judged")
    for sort in LISTED_SORTS:
        for finding in getattr(report, sort)[:SHOWN_MAX]:
            _print_finding(page, sort, finding)


def _print_finding(page: Page, sort: str, finding: Finding) -> None:
    place = f" on {finding.queue}" if finding.queue else ""
    after = f" (after {finding.after})" if finding.after >= 0 else ""
    page.line(f"{sort}: {finding.producer} #{finding.number}{place}: {finding.reason.value}{after}", "red")
    for row in finding.rows:
        page.line(f"    {_row(row)}")


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
