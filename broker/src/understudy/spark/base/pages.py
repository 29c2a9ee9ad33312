"""Reports as HTML pages: tables, plots as inline SVG, and the page of an audit. No script, nothing is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from understudy.texts import printable

_WIDTH: Final = 900
_HEIGHT: Final = 180
#: Colours of windows in a plot.
WITHOUT_SERVICE: Final = "#f3c6c6"
UNKNOWN: Final = "#d9d9d9"
_COLOURS: Final = ("#1f6fb4", "#c8501e", "#2a8a4a", "#8a3fa0", "#777777")
_STYLE: Final = (
    "body{font:14px sans-serif;max-width:960px;margin:2em auto;color:#222}table{border-collapse:collapse}"
    "td,th{padding:2px 10px;border-bottom:1px solid #ddd;text-align:left}.bad{color:#b00020;font-weight:bold}"
    ".good{color:#1b7f3b;font-weight:bold}svg{background:#fafafa;border:1px solid #ddd}code{font-size:12px}"
)

Series = Mapping[str, Sequence[tuple[int, float]]]
"""Points by name: time in epoch milliseconds, value."""


def audit_page(
    report: Mapping[str, Any], rates: Series, windows: Sequence[tuple[int, int]], bucket_ms: int, fingerprint: str
) -> str:
    """HTML page of an audit.

    Args:
        report: Report as ``--json`` prints it.
        rates: Rows in each interval by kind.
        windows: Begin and end of the windows without service, epoch milliseconds.
        bucket_ms: Length of an interval.
        fingerprint: Hash of the hash-chained report of the same audit.
    """
    verdict = report["verdict"]
    kept = verdict == "kept" and report["confirmed_by"]["ok"]
    parts = [
        f"<p>Verdict: <span class='{'good' if kept else 'bad'}'>{_escaped(str(verdict))}</span></p>",
        f"<p>Hash of the report: <code>{_escaped(fingerprint)}</code></p>",
        "<h2>Counts</h2>",
        table(("", "number"), [(name, f"{value:,}") for name, value in report["counts"].items()]),
        f"<h2>Rows in {bucket_ms} ms, and windows without service</h2>",
        plot(rates, windows),
        "<h2>Latency</h2>",
        _latencies(report),
        "<h2>Nodes and epochs</h2>",
        table(
            ("node id", "epoch", "nodes", "confirmations"),
            [
                (each["node_id"], each["epoch"], ", ".join(each["nodes"]), f"{each['confirmations']:,}")
                for each in report["confirmed_by"]["epochs"]
            ],
        ),
        *(f"<p class='bad'>{_escaped(text)}</p>" for text in report["confirmed_by"]["findings"]),
        "<h2>Findings</h2>",
        _findings(report),
    ]
    return page("Audit of delivery", parts)


def _escaped(text: str) -> str:
    """Plain text as HTML. Names come from clients: control characters have no place in a page either."""
    return escape(printable(text))


def page(title: str, parts: Sequence[str]) -> str:
    """A whole HTML page.

    Args:
        title: Plain text.
        parts: HTML.
    """
    head = f"<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'><title>{_escaped(title)}</title>"
    body = f"<style>{_STYLE}</style></head><body><h1>{_escaped(title)}</h1>"
    return "\n".join([head, body, *parts, "</body></html>\n"])


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table; cells are plain text."""
    head = "".join(f"<th>{_escaped(each)}</th>" for each in heads)
    body = "".join("<tr>" + "".join(f"<td>{_escaped(str(each))}</td>" for each in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def plot(series: Series, windows: Sequence[tuple[int, int]], shade: str = WITHOUT_SERVICE) -> str:
    """Lines over time, with windows shaded.

    Args:
        series: Points by the plain text of the legend.
        windows: Begin and end, epoch milliseconds.
        shade: Colour of the windows.
    """
    points = [point for line in series.values() for point in line]
    if not points:
        return "<p>no rows</p>"
    low, high = min(at for at, _ in points), max(at for at, _ in points)
    top = max(value for _, value in points) or 1

    def x(at_ms: float) -> float:
        return round(_WIDTH * (min(max(at_ms, low), high) - low) / max(high - low, 1), 1)

    shapes = [
        f"<rect x='{x(begin)}' y='0' width='{max(x(end) - x(begin), 1)}' height='{_HEIGHT}' fill='{shade}'/>"
        for begin, end in windows
    ]
    legend = []
    for index, (name, line) in enumerate(series.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        path = " ".join(f"{x(at)},{round(_HEIGHT - _HEIGHT * value / top, 1)}" for at, value in sorted(line))
        shapes.append(f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='1.5'/>")
        legend.append(f"<span style='color:{colour}'>{_escaped(name)}</span>")
    drawing = "".join(shapes)
    size = f"viewBox='0 0 {_WIDTH} {_HEIGHT}' width='{_WIDTH}' height='{_HEIGHT}'"
    return f"<svg {size}>{drawing}</svg><p>{' '.join(legend)}; highest {top:,.0f}</p>"


def _latencies(report: Mapping[str, Any]) -> str:
    names = ("p50_ms", "p99_ms", "p999_ms", "max_ms")
    rows = [
        (label, *(report[key][name] for name in names))
        for label, key in (("sent to confirmed", "confirm_latency"), ("sent to delivered", "delivery_latency"))
        if report.get(key)
    ]
    return table(("", "p50 ms", "p99 ms", "p99.9 ms", "max ms"), rows) if rows else "<p>none</p>"


def _findings(report: Mapping[str, Any]) -> str:
    rows = [
        (sort, finding["producer"], finding["number"], finding.get("queue", ""), finding["reason"])
        for sort in report["counts"]
        if isinstance(report.get(sort), list)
        for finding in report[sort]
    ]
    return table(("sort", "producer", "number", "queue", "reason"), rows) if rows else "<p>none</p>"
