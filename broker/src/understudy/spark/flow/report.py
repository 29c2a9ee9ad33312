"""The report of job ``flow`` from its series: rates, depths, hot addresses, amplification, pinned segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from understudy.dataclass import dataclass
from understudy.spark.journal.log_plan import LogPlan
from understudy.spark.journal.names import Names
from understudy.store.log.records import RecordType

_MESSAGES: Final = (RecordType.MESSAGE_ADD.name, RecordType.MESSAGE_MOVE.name)

Row = Mapping[str, Any]
Points = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Axis:
    """Time that the journals cover, in intervals. Epoch milliseconds."""

    begin_ms: int
    end_ms: int
    bucket_ms: int

    @property
    def seconds(self) -> float:
        """Seconds of the whole time, at least one interval."""
        return max(self.end_ms - self.begin_ms, self.bucket_ms) / 1000

    def begins(self) -> range:
        """Beginnings of the intervals."""
        return range(self.begin_ms, max(self.end_ms, self.begin_ms) + 1, self.bucket_ms)


@dataclass(frozen=True, slots=True)
class Series:
    """Numbers of each interval, by queue and by address."""

    axis: Axis
    queues: list[dict[str, Any]]
    """Rows of ``flow_rows.queue_series``."""
    addresses: list[dict[str, Any]]
    """Rows of ``flow_rows.address_series``."""
    names: Mapping[str, Names]
    """Names by directory."""
    unknown: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """Stretches of time without messages by directory, in which the times of other records are not known."""

    def live_bytes(self, directory: str) -> Points:
        """Bytes of live records at the end of each interval; a message in several queues counts for each."""
        return self.running([row for row in self.queues if row["directory"] == directory], "live_bytes")

    def depth(self, rows: Sequence[Row]) -> Points:
        """Messages in a queue at the end of each interval."""
        deltas = [{"begin_ms": row["begin_ms"], "n": row["came"] + row["held"] - row["gone"]} for row in rows]
        return self.running(deltas, "n")

    def running(self, rows: Sequence[Row], name: str) -> Points:
        """The sum of a column of the rows up to the end of each interval."""
        change: dict[int, int] = {}
        for row in rows:
            change[row["begin_ms"]] = change.get(row["begin_ms"], 0) + row[name]
        found: Points = []
        total = 0
        for begin in self.axis.begins():
            total += change.get(begin, 0)
            found.append((begin + self.axis.bucket_ms, total))
        return found

    def by_queue(self) -> dict[tuple[str, int], list[dict[str, Any]]]:
        """Rows of each queue."""
        return _grouped(self.queues, "queue_id")

    def by_address(self) -> dict[tuple[str, int], list[dict[str, Any]]]:
        """Rows of each address."""
        return _grouped(self.addresses, "address_id")

    def queue_name(self, directory: str, queue_id: int) -> str:
        """Name of a queue; its id if no binding of the log has it."""
        return self.names[directory].queues.get(queue_id, str(queue_id))

    def address_name(self, directory: str, address_id: int) -> str:
        """Name of an address; its id if no binding of the log has it."""
        return self.names[directory].addresses.get(address_id, str(address_id))


def stretches(axis: Axis, known: Mapping[int, bool]) -> list[tuple[int, int]]:
    """Runs of intervals without messages that have other records: begin and end of each.

    Args:
        axis: The intervals.
        known: Begin of each interval with records -> whether a message is in it.
    """
    found: list[tuple[int, int]] = []
    begin, guessed = axis.begin_ms, False
    for each in axis.begins():
        if known.get(each):
            if guessed:
                found.append((begin, each))
            begin, guessed = each + axis.bucket_ms, False
        else:
            guessed = guessed or each in known
    if guessed:
        found.append((begin, axis.begins()[-1] + axis.bucket_ms))
    return found


def _grouped(rows: Sequence[dict[str, Any]], name: str) -> dict[tuple[str, int], list[dict[str, Any]]]:
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["directory"], row[name]), []).append(row)
    return found


def assemble(
    plans: Sequence[LogPlan],
    series: Series,
    kinds: Sequence[Row],
    pins: Sequence[Row],
    hops: Row,
    listed: int,
    forwarding: Sequence[tuple[str, int]],
) -> dict[str, Any]:
    """The report without forecasts.

    Args:
        kinds: Rows of ``flow_rows.bytes_by_kind``.
        pins: Rows of ``flow_rows.pins``.
        hops: The row of ``flow_rows.hops``.
        listed: How many are listed of each, the greatest first.
        forwarding: Directory and id of the store-and-forward queues.
    """
    axis = series.axis
    queues = [_queue(series, key, rows) for key, rows in series.by_queue().items()]
    addresses = [_address(series, key, rows) for key, rows in series.by_address().items()]
    total = sum(each["bytes"] for each in addresses)
    for each in addresses:
        each["share"] = each["bytes"] / total if total else 0.0
    queues.sort(key=lambda each: (-each["depth"], -each["came"], each["queue"]))
    addresses.sort(key=lambda each: (-each["bytes"], -each["messages"], each["address"]))
    passed = [each for each in queues if (each["directory"], each["queue_id"]) in set(forwarding)]
    return {
        "directories": [plan.directory for plan in plans],
        "begin_ms": axis.begin_ms,
        "end_ms": axis.end_ms,
        "bucket_ms": axis.bucket_ms,
        "unknown": {directory: [list(each) for each in found] for directory, found in series.unknown.items()},
        "messages": sum(each["messages"] for each in addresses),
        "message_bytes": total,
        "addresses": addresses[:listed],
        "addresses_in_all": len(addresses),
        "queues": queues[:listed],
        "queues_in_all": len(queues),
        "depth": sum(each["depth"] for each in queues),
        "redistribution": {**hops, "queues": passed[:listed]},
        "amplification": _amplification(kinds, total),
        "segments": _segments(plans, series, pins, listed),
    }


def _queue(series: Series, key: tuple[str, int], rows: Sequence[Row]) -> dict[str, Any]:
    depth = series.depth(rows)
    came, acknowledged = sum(row["came"] for row in rows), sum(row["acknowledged"] for row in rows)
    highest = max(depth, key=lambda point: point[1])
    return {
        "directory": key[0],
        "queue_id": key[1],
        "queue": series.queue_name(*key),
        "came": came,
        "acknowledged": acknowledged,
        "removed_with_queue": sum(row["gone"] for row in rows) - acknowledged,
        "came_per_s": came / series.axis.seconds,
        "acknowledged_per_s": acknowledged / series.axis.seconds,
        "depth": depth[-1][1],
        "depth_highest": highest[1],
        "depth_highest_ms": highest[0],
    }


def _address(series: Series, key: tuple[str, int], rows: Sequence[Row]) -> dict[str, Any]:
    messages, size = sum(row["messages"] for row in rows), sum(row["bytes"] for row in rows)
    busiest = max(rows, key=lambda row: (row["messages"], -row["begin_ms"]))
    return {
        "directory": key[0],
        "address_id": key[1],
        "address": series.address_name(*key),
        "messages": messages,
        "bytes": size,
        "messages_per_s": messages / series.axis.seconds,
        "bytes_per_s": size / series.axis.seconds,
        "highest_per_s": 1000 * busiest["messages"] / series.axis.bucket_ms,
        "highest_ms": busiest["begin_ms"],
    }


def _amplification(kinds: Sequence[Row], message_bytes: int) -> dict[str, Any]:
    log_bytes = sum(row["bytes"] for row in kinds)
    return {
        "log_bytes": log_bytes,
        "message_bytes": message_bytes,
        "factor": log_bytes / message_bytes if message_bytes else None,
        "kinds": {row["kind"]: {"records": row["records"], "bytes": row["bytes"]} for row in _sorted(kinds)},
        "without_messages": sum(row["bytes"] for row in kinds if row["kind"] not in _MESSAGES),
        "copied": sum(row["bytes"] for row in kinds if row["kind"] == RecordType.MESSAGE_MOVE.name),
    }


def _sorted(kinds: Sequence[Row]) -> list[Row]:
    return sorted(kinds, key=lambda row: (-row["bytes"], row["kind"]))


def segment_figures(plans: Sequence[LogPlan], series: Series, pins: Sequence[Row]) -> list[dict[str, Any]]:
    """Segments that messages keep, those with the least live share first."""
    ends = {(plan.directory, piece.number): piece for plan in plans for piece in plan.pieces}
    pinned = []
    for row in pins:
        piece = ends.get((row["directory"], row["segment"]))
        if piece is None:
            continue
        oldest = row["oldest"]
        pinned.append(
            {
                "directory": row["directory"],
                "segment": piece.number,
                "file": piece.name,
                "bytes": piece.end,
                "live_messages": row["live_messages"],
                "live_bytes": row["live_bytes"],
                "oldest_message_id": oldest["message_id"],
                "oldest_queue": series.queue_name(row["directory"], oldest["queue_id"]),
                "oldest_came_ms": oldest["came_ms"],
            }
        )
    return sorted(pinned, key=lambda each: (each["live_bytes"] / each["bytes"], each["directory"], each["segment"]))


def _segments(plans: Sequence[LogPlan], series: Series, pins: Sequence[Row], listed: int) -> dict[str, Any]:
    pinned = segment_figures(plans, series, pins)
    kept = sum(each["bytes"] for each in pinned)
    live = sum(each["live_bytes"] for each in pinned)
    return {
        "in_all": len({(plan.directory, piece.number) for plan in plans for piece in plan.pieces}),
        "pinned": len(pinned),
        "pinned_bytes": kept,
        "live_bytes": live,
        "kept_per_live_byte": kept / live if live else None,
        "list": pinned[:listed],
    }
