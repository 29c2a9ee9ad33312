"""The report of job ``flow`` as one HTML page with plots as inline SVG. No script, nothing is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from understudy.spark.base.pages import UNKNOWN, page, plot, table

if TYPE_CHECKING:  # needs pyarrow; the command's help must be shown without it
    from understudy.spark.flow.report import Points, Series

_HOPS: Final = ("forwarded", "messages", "again")
#: Of the times on the page.
_TIMES: Final = (
    "Records of a journal have no time. A message is drawn at the time that its client gave it, within the time of its"
    " segment; an acknowledgement, a commit or the removal of a queue between the messages beside it in the log. Grey:"
    " no message with a time was written then, and the times of other records in it are not known."
)
#: Lines in one plot.
_LINES: Final = 5


def flow_page(report: Mapping[str, Any], series: Series) -> str:
    """The page.

    Args:
        report: Report as ``--json`` prints it.
    """
    queues, addresses = series.by_queue(), series.by_address()
    deepest = sorted(report["queues"], key=lambda each: -each["depth_highest"])[:_LINES]
    depths = {each["queue"]: series.depth(queues[each["directory"], each["queue_id"]]) for each in deepest}
    hot = report["addresses"][:_LINES]
    rates: dict[str, Points] = {
        each["address"]: _each_interval(series, addresses[each["directory"], each["address_id"]]) for each in hot
    }
    growth = {directory: series.live_bytes(directory) for directory in report["directories"]}
    seconds = report["bucket_ms"] / 1000
    unknown = [each for found in series.unknown.values() for each in found]
    return page(
        "Flow of messages",
        [
            f"<p>{_time(report['begin_ms'])} to {_time(report['end_ms'])}, intervals of {seconds:g} s</p>",
            f"<p>{_TIMES}</p>",
            "<h2>Forecasts</h2>",
            _forecasts(report),
            f"<h2>Messages in {seconds:g} s, by address</h2>",
            plot(rates, unknown, UNKNOWN),
            _listed(report["addresses"], "address", "messages", "bytes", "messages_per_s", "highest_per_s", "share"),
            "<h2>Depth of queues</h2>",
            plot(depths, unknown, UNKNOWN),
            _listed(report["queues"], "queue", "came", "acknowledged", "removed_with_queue", "depth", "depth_highest"),
            "<h2>Bytes of live messages</h2>",
            plot(growth, unknown, UNKNOWN),
            "<h2>Messages between nodes</h2>",
            table(("", ""), [(name, _number(report["redistribution"][name])) for name in _HOPS]),
            _listed(report["redistribution"]["queues"], "queue", "came", "acknowledged", "depth"),
            "<h2>Bytes of log for each byte of message</h2>",
            _amplification(report["amplification"]),
            "<h2>Segments that old messages keep</h2>",
            _listed(
                report["segments"]["list"], "file", "bytes", "live_messages", "live_bytes", "oldest_message_id",
                "oldest_queue",
            ),
        ],
    )  # fmt: skip


def _each_interval(series: Series, rows: Sequence[Mapping[str, Any]]) -> Points:
    """Messages in each interval: an interval without messages has no row, and its value is 0."""
    counted = {row["begin_ms"]: row["messages"] for row in rows}
    return [(begin, counted.get(begin, 0)) for begin in series.axis.begins()]


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(sep=" ", timespec="seconds")


def _number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _listed(rows: list[dict[str, Any]], *names: str) -> str:
    heads = [name.replace("_", " ") for name in names]
    return table(heads, [[_number(row[name]) for name in names] for row in rows]) if rows else "<p>none</p>"


def _amplification(found: Mapping[str, Any]) -> str:
    factor = "no messages" if found["factor"] is None else f"{found['factor']:.2f}"
    kinds = [(name, _number(each["records"]), _number(each["bytes"])) for name, each in found["kinds"].items()]
    return f"<p>{factor}</p>" + table(("record", "records", "bytes"), kinds)


def _forecasts(report: Mapping[str, Any]) -> str:
    rows = []
    for each in report["forecasts"]:
        disk, take_over = each["disk"], each["take_over"]
        sizes = [_number(each) for each in (disk["used_bytes"], disk["free_bytes"])]
        times = [duration(disk[name]) for name in ("full_in_s", "full_in_s_at_least")]
        reads = (_number(take_over["tail_bytes"]), f"{take_over['seconds']:.3g} s")
        rows.append((each["directory"], *sizes, *times, *reads))
    heads = ("journal", "used", "free", "full in", "full in, if nothing is removed", "tail", "take-over reads")
    return table(heads, rows)


def duration(seconds: float | None) -> str:
    """Seconds for people."""
    if seconds is None:
        return "does not grow"
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:.0f} s"
