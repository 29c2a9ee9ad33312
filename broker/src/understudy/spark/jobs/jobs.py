"""Jobs: read, transform, report. No rule lives here; see ``audits`` and ``understudy.ledger``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Row as SparkRow
from pyspark.sql import functions as F  # noqa: N812

from understudy.dataclass import dataclass
from understudy.errors import LedgerDamaged
from understudy.ledger import (
    INTEGER_MAX,
    LISTED_SORTS,
    QUEUES_LISTED_MAX,
    WINDOW_MS,
    WINDOWS_LISTED_MAX,
    Counts,
    EpochReport,
    Finding,
    Kind,
    Latency,
    Reason,
    Report,
    Row,
    Window,
    parse,
    read_remaining,
    row_counts,
)
from understudy.spark.base.driver_rows import frame_of
from understudy.spark.journal.decode import NUMBER, PRODUCER
from understudy.spark.journal.live import REFERENCE, live_references, remaining_of
from understudy.spark.journal.source import read_journal
from understudy.spark.ledger import audits, ledgers
from understudy.spark.ledger.confirmers import check_epochs
from understudy.spark.ledger.source import LedgerFiles, read_ledgers

#: Intervals of the plots of an audit.
INTERVALS: Final = 300
#: Of ledgers, for each part of an audit: half a million rows, which a task groups in memory.
_PART_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Audit:
    """Report of an audit, equal to that of ``understudy.ledger.check``, and the half-written last lines of ledgers."""

    report: Report
    torn: dict[str, int]
    """File -> line."""
    confirmed_by: EpochReport
    """Which node confirmed in which epoch."""
    rates: dict[str, list[tuple[int, int]]]
    """Rows of each kind in intervals of ``bucket_ms``: begin of the interval, number."""
    bucket_ms: int

    @property
    def ok(self) -> bool:
        """Whether every promise was kept."""
        return self.report.ok and self.confirmed_by.ok

    def to_json(self) -> dict[str, object]:
        """The audit as ``understudy ledger check --json`` prints it."""
        return self.report.to_json() | {"torn": self.torn, "confirmed_by": self.confirmed_by.to_json()}


class RemainingMessages(NamedTuple):
    """Where the messages are named that the queues held in the end."""

    listed: Path | None = None
    """File that lists them all; None: there is none."""
    journals: Sequence[str] = ()
    """Journals of all nodes, as they are in the end: their live messages are those that remain."""


NOT_GIVEN: Final = RemainingMessages()


def audit(
    spark: SparkSession,
    paths: Sequence[Path],
    *,
    window_ms: int = WINDOW_MS,
    clock_skew_ms: int = 0,
    remaining: RemainingMessages = NOT_GIVEN,
    members: bool = False,
    with_rates: bool = False,
) -> Audit:
    """Judge ledger files together.

    Args:
        spark: A session of ``open_session``.
        paths: The ledgers.
        window_ms: Pauses between confirmations of a producer longer than this are windows without service.
        clock_skew_ms: How far the clocks of clients differ.
        remaining: The messages that the queues held in the end.
        members: Several members of a cluster have the queues, and messages move between them.
        with_rates: Count rows in intervals, for plots.

    Raises:
        StoreError: a journal cannot be read.
        LedgerDamaged: a line is no row; names file and line.
        ConfigError: a ledger is packed.
        OSError: a file cannot be read.
    """
    kept = _remaining_of_journals(spark, remaining.journals) if remaining.journals else None
    if remaining.listed is not None:
        listed = _remaining(spark, remaining.listed)
        kept = listed if kept is None else kept.unionByName(listed).distinct()
    files = LedgerFiles.of(paths)
    parts_count = max(spark.sparkContext.defaultParallelism, -(-sum(files.sizes) // _PART_BYTES))
    # All rows of a message are in one part, so that nothing that is grouped or joined by messages moves again.
    with (
        _partitions(spark, parts_count),
        _kept(read_ledgers(spark, files).repartition(parts_count, *audits.MESSAGE)) as parsed,
    ):
        torn = _refuse_bad_lines(parsed, paths, files)
        rows = ledgers.rows_of(parsed)
        messages, consumptions = audits.messages(rows), audits.consumptions(rows)
        by_address, by_queue = audits.address_drains(rows), audits.queue_drains(rows)
        with (
            _kept(messages),
            _kept(audits.copies(consumptions)) as copies,
            _kept(audits.suspicious_messages(messages)) as suspicious,
            _kept(audits.suspicious_copies(copies, clock_skew_ms)) as suspicious_copies,
            _kept(audits.spans(rows, clock_skew_ms)) as spans,
        ):
            frames = [audits.incomplete(rows, messages, by_address, kept, clock_skew_ms)]
            # Spark knows the size of a frame that is computed, and joins a small one without sorting the other
            if suspicious.count():
                frames += [
                    audits.undelivered(rows, suspicious, by_address, kept, clock_skew_ms),
                    audits.ghosts(suspicious),
                    audits.corrupted(rows, suspicious),
                    audits.refused(suspicious, kept),
                ]
            if suspicious_copies.count():
                crossed = audits.crossed(consumptions, suspicious_copies, clock_skew_ms)
                frames += [
                    audits.unacknowledged(rows, messages, suspicious_copies, by_queue, kept, clock_skew_ms),
                    audits.unfounded(suspicious_copies),
                    audits.duplicated(suspicious_copies, crossed, members=members),
                    audits.remaining_after_acknowledgement(suspicious_copies, clock_skew_ms),
                ]
            # a message that waited at one member comes after later ones that were sent to another one
            if not members:
                frames.append(audits.reordered(audits.first_deliveries(rows, spans)))
            findings = reduce(DataFrame.unionByName, frames)
            with _kept(findings):
                shared = copies.select("queue").distinct() if members else audits.shared_queues(spans)
                report = _report(rows, messages, copies, shared, findings, window_ms)
        epochs = check_epochs(rows, clock_skew_ms)
        rates, bucket_ms = _rates(rows) if with_rates else ({}, 1)
    return Audit(report, torn, epochs, rates, bucket_ms)


@contextmanager
def _kept(frame: DataFrame) -> Iterator[DataFrame]:
    """Compute a frame that is used several times only once."""
    frame.persist()
    try:
        yield frame
    finally:
        frame.unpersist()


@contextmanager
def _partitions(spark: SparkSession, count: int) -> Iterator[None]:
    """Shuffles have so many partitions meanwhile, of which Spark joins small ones, and cached frames keep theirs."""
    wanted = {
        "spark.sql.shuffle.partitions": str(count),
        # a frame in parts by some columns is in parts by these and further ones, too
        "spark.sql.requireAllClusterKeysForCoPartition": "false",
        "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "false",
    }
    before = {name: str(spark.conf.get(name)) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def _remaining_of_journals(spark: SparkSession, directories: Sequence[str]) -> DataFrame:
    """Producer and number of the messages that live in journals."""
    live = live_references(spark, directories, nodes="many")
    columns = [*REFERENCE, "properties"]
    messages = read_journal(spark, list(directories), "messages", columns, nodes="many")
    return remaining_of(live, messages, PRODUCER, NUMBER)


def _rates(rows: DataFrame) -> tuple[dict[str, list[tuple[int, int]]], int]:
    """Rows by kind in about ``INTERVALS`` equal intervals, for plots; and the length of an interval."""
    kinds = [kind.value for kind in (Kind.SENT, Kind.CONFIRMED, Kind.DELIVERED, Kind.ACKNOWLEDGED)]
    timed = rows.where(F.col("kind").isin(kinds)).select("kind", "at_ms")
    bounds = timed.agg(F.min("at_ms"), F.max("at_ms")).first()
    if bounds is None or bounds[0] is None:
        return {}, 1
    bucket_ms = max((bounds[1] - bounds[0]) // INTERVALS, 1)
    begin = (F.floor((F.col("at_ms") - bounds[0]) / bucket_ms) * bucket_ms + bounds[0]).cast("bigint")
    found: dict[str, list[tuple[int, int]]] = {kind: [] for kind in kinds}
    for row in timed.groupBy("kind", begin.alias("begin_ms")).count().orderBy("begin_ms").collect():
        found[row["kind"]].append((row["begin_ms"], row["count"]))
    return found, bucket_ms


def _remaining(spark: SparkSession, path: Path) -> DataFrame:
    with path.open(encoding="utf-8", errors="replace", newline="\n") as lines:
        found = read_remaining(lines, str(path))
    # a row has no larger number
    return frame_of(spark, "producer string, number bigint", (one for one in found if 0 <= one[1] <= INTEGER_MAX))


def _refuse_bad_lines(parsed: DataFrame, paths: Sequence[Path], files: LedgerFiles) -> dict[str, int]:
    """The torn tails; raises for the first line that is worse."""
    torn: dict[str, int] = {}
    bad = ledgers.bad_lines(parsed).orderBy("torn", "ordinal").limit(len(paths) + 1).collect()
    for one in bad:
        file, line = str(paths[one["file_index"]]), files.line_number(one["file_index"], one["ordinal"])
        if not one["torn"]:
            parse(one["value"], file=file, line=line)  # this raises the error of the line
            raise LedgerDamaged("no ledger row", file=file, line=line)
        torn[file] = line
    return torn


def _report(
    rows: DataFrame, messages: DataFrame, copies: DataFrame, shared: DataFrame, findings: DataFrame, window_ms: int
) -> Report:
    counts = audits.message_counts(messages).first()
    assert counts is not None
    first_deliveries = copies.where("deliveries > 0").count()
    kinds = {Kind(one["kind"]): one["count"] for one in audits.row_counts(rows).collect()}
    totals = dict.fromkeys(LISTED_SORTS, 0)
    reasons: dict[Reason, int] = {}
    for one in findings.groupBy("sort", "reason").count().collect():
        totals[one["sort"]] += one["count"]
        reasons[Reason(one["reason"])] = one["count"]
    windows = audits.windows(rows, window_ms)
    found = _findings(rows, findings) if reasons else {}
    latencies = {one["end"]: _latency(one) for one in audits.latencies(messages).collect()}
    not_judged = shared.orderBy("queue").limit(QUEUES_LISTED_MAX).collect()
    with _kept(windows):
        window_count = windows.count()
        longest = windows.orderBy(F.desc("duration_ms"), "producer", "start_ms").limit(WINDOWS_LISTED_MAX).collect()
    lists: dict[str, Any] = {sort: tuple(found.get(sort, ())) for sort in LISTED_SORTS}
    return Report(
        Counts(
            **row_counts({kind: kinds.get(kind, 0) for kind in Kind}),
            messages=counts["messages"],
            unconfirmed=counts["unconfirmed"],
            redelivered=kinds.get(Kind.DELIVERED, 0) - first_deliveries,
            windows=window_count,
            **totals,
        ),
        **lists,
        reasons=tuple((reason, reasons[reason]) for reason in Reason if reason in reasons),
        confirm_latency=latencies.get("confirmed"),
        delivery_latency=latencies.get("delivered"),
        window_ms=window_ms,
        windows=tuple(Window(one["producer"], one["start_ms"], one["end_ms"]) for one in longest),
        order_not_judged=tuple(one["queue"] for one in not_judged),
    )


def _findings(rows: DataFrame, findings: DataFrame) -> dict[str, list[Finding]]:
    """The listed findings of each sort, in order, with their example rows."""
    with _kept(audits.listed(findings)) as listed:
        heads = listed.orderBy("sort", "place").collect()
        examples = audits.examples(rows, listed).orderBy("sort", "place", "example").collect()
    about: dict[tuple[str, int], list[Row]] = {}
    for one in examples:
        about.setdefault((one["sort"], one["place"]), []).append(_row(one))
    found: dict[str, list[Finding]] = {}
    for head in heads:
        finding = Finding(
            head["producer"],
            head["number"],
            head["queue"],
            Reason(head["reason"]),
            head["after"],
            tuple(about.get((head["sort"], head["place"]), ())),
        )
        found.setdefault(head["sort"], []).append(finding)
    return found


def _row(one: SparkRow) -> Row:
    return Row(
        Kind(one["kind"]),
        one["producer"],
        one["number"],
        one["address"],
        one["at_ms"],
        one["consumer"],
        one["queue"],
        one["message_id"],
        one["delivery_count"],
        one["durable"],
        one["digest"],
        one["transaction"],
        one["origin"],
        one["version"],
        one["node"],
        one["node_id"],
        one["epoch"],
    )


def _latency(one: SparkRow) -> Latency:
    return Latency(one["count"], one["p50_ms"], one["p99_ms"], one["p999_ms"], one["max_ms"])
