"""``understudy pipeline flow``: movement of messages in journals, and forecasts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from understudy.cli.data.stores import STORE, open_store
from understudy.cli.pipeline.spark_job import MASTER, WORK_DIRECTORY, byte_count, job_session, progress, write_whole
from understudy.cli.tables import Column, Kind, Row, Table, View, view_options
from understudy.cli.terminal import echo
from understudy.spark.flow.page import duration, flow_page
from understudy.units import format_bytes


def _rounded(key: str) -> Callable[[Row], float]:
    return lambda row: round(float(row[key]), 1)


def _percent(row: Row) -> int:
    return round(100 * float(row["share"]))


def _disk(key: str) -> Callable[[Row], int]:
    return lambda row: int(row["disk"][key])


def _full_in(key: str) -> Callable[[Row], str]:
    return lambda row: duration(row["disk"][key])


def _tail(row: Row) -> int:
    return int(row["take_over"]["tail_bytes"])


def _take_over_s(row: Row) -> float:
    return round(float(row["take_over"]["seconds"]), 2)


#: Rows of a table that are shown in the report; ``--table`` shows all.
_SHOWN_MAX: Final = 5

TABLES: Final = (
    Table(
        "addresses",
        (
            Column("address", Kind.NAME, "The address."),
            Column("messages", Kind.NUMBER, "Messages to it."),
            Column("messages_per_s", Kind.NUMBER, "Messages a second.", "a second", _rounded("messages_per_s")),
            Column("highest_per_s", Kind.NUMBER, "Most in an interval.", "at most a second", _rounded("highest_per_s")),
            Column("share", Kind.NUMBER, "Its part of all bytes. Percent.", "% of the bytes", _percent),
        ),
        title="addresses",
    ),
    Table(
        "queues",
        (
            Column("queue", Kind.NAME, "The queue."),
            Column("came", Kind.NUMBER, "Messages that came."),
            Column("acknowledged", Kind.NUMBER, "Messages that were acknowledged."),
            Column("depth", Kind.NUMBER, "Messages in it at the end.", title="now"),
            Column("depth_highest", Kind.NUMBER, "Most messages in it.", title="at most"),
        ),
        title="queues",
    ),
    Table(
        "segments",
        (
            Column("file", Kind.NAME, "A segment that live messages keep."),
            Column("live_messages", Kind.NUMBER, "Live messages in it."),
            Column("live_bytes", Kind.BYTES, "Bytes of them.", title="live"),
            Column("bytes", Kind.BYTES, "Size of the segment.", title="size"),
            Column("oldest_message_id", Kind.ID, "Id of the oldest of them.", title="oldest message"),
            Column("oldest_queue", Kind.NAME, "Queue of the oldest of them.", title="in"),
        ),
        title="kept segments",
    ),
    Table(
        "forecasts",
        (
            Column("directory", Kind.NAME, "The journal."),
            Column("free_bytes", Kind.BYTES, "Bytes that it may use.", "free", _disk("free_bytes")),
            Column("full_in_s", Kind.NAME, "Time until it is full.", "full in", _full_in("full_in_s")),
            Column(
                "full_in_s_at_least",
                Kind.NAME,
                "At the highest rate.",
                "at least",
                _full_in("full_in_s_at_least"),
            ),
            Column("tail_bytes", Kind.BYTES, "Log after the newest snapshot.", "a take-over reads", _tail),
            Column("seconds", Kind.NUMBER, "Time of a take-over.", "in s", _take_over_s),
        ),
        title="forecasts",
    ),
)


@click.command("flow")
@click.argument("directories", nargs=-1, required=True, type=STORE, metavar="DIRECTORY...")
@MASTER
@click.option(
    "--nodes",
    type=click.Choice(["one", "many"]),
    default="one",
    show_default=True,
    help="The directories are of one node's journal, or journals of many nodes.",
)
@click.option("--in-use", is_flag=True, help="Read journals although brokers run on them, up to their present ends.")
@click.option(
    "--interval-s", type=click.IntRange(min=1), help="Length of an interval; default: about 300 of them, 1 s at least."
)
@click.option(
    "--capacity",
    callback=byte_count,
    help="Bytes that each journal may use, as 10G; default: the free space of its file system.",
)
@click.option(
    "--replay-rate",
    callback=byte_count,
    help="Bytes that a backup replays in a second, as 500M; default: measured on this machine.",
)
@click.option(
    "--forwarding-prefix",
    "prefixes",
    multiple=True,
    help="Names of store-and-forward queues begin so; default: $.activemq.internal.sf. and $.artemis.internal.sf.",
)
@click.option(
    "--list",
    "listed",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Addresses, queues and segments to list, the greatest first.",
)
@click.option("--html", "html_file", type=click.Path(dir_okay=False, path_type=Path), help="Write a page with plots.")
@click.option(
    "--parquet",
    "tables",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for all figures as Parquet files: queues and addresses over time, segments; made if missing.",
)
@WORK_DIRECTORY
@view_options(*TABLES)
def flow_command(
    directories: tuple[str, ...],
    master: str,
    nodes: str,
    in_use: bool,
    interval_s: int | None,
    capacity: int | None,
    replay_rate: int | None,
    prefixes: tuple[str, ...],
    listed: int,
    html_file: Path | None,
    tables: Path | None,
    work_dir: Path | None,
    view: View,
) -> None:
    """Measure rates, depths, growth and kept segments of the journals in DIRECTORYs, and forecast full disks and the
    time of a take-over.

    The journals are only read.

    \b
    Example: understudy pipeline flow /srv/broker/data/journal --table queues --sort -depth

    Exit codes: 0 done, 1 Spark failed, 2 usage, or a journal cannot be used.
    """
    if len(set(directories)) < len(directories):
        raise click.UsageError("a directory is given twice")
    if tables is not None and not tables.absolute().parent.is_dir():
        raise click.UsageError(f"{tables.absolute().parent} is no directory")
    for directory in directories:
        if tables is not None and Path(directory) in (tables.resolve(), *tables.resolve().parents):
            raise click.UsageError(f"{tables} would lie in {directory}, which is only read")
    open_store(*directories)
    with job_session("flow", master, work_dir) as spark:
        from understudy.spark.flow.flows import FORWARDING_PREFIXES, Settings, flow

        settings = Settings(
            many_nodes=nodes == "many",
            in_use=in_use,
            bucket_ms=None if interval_s is None else 1000 * interval_s,
            capacity=capacity,
            replay_bytes_s=replay_rate,
            forwarding_prefixes=prefixes or FORWARDING_PREFIXES,
            listed=listed,
            tables=tables,
        )
        found = flow(spark, directories, settings, progress(quiet=view.as_json))
    if html_file is not None:
        write_whole(html_file, flow_page(found.report, found.series))
    if view.as_json and view.table is None:
        view.value(found.report)
    else:
        _print(found.report, view)


def _print(report: dict[str, Any], view: View) -> None:
    """Print the report, or one of its tables."""
    rows = {
        "addresses": report["addresses"],
        "queues": report["queues"],
        "segments": report["segments"]["list"],
        "forecasts": report["forecasts"],
    }
    if view.table is None:
        _print_figures(report)
    for table in TABLES:
        if view.table == table.name:
            view.rows(table, rows[table.name])
        elif view.table is None and rows[table.name]:
            view.rows(table, rows[table.name][:_SHOWN_MAX])


def _print_figures(report: dict[str, Any]) -> None:
    echo(
        f"{report['messages']:,} messages, {format_bytes(report['message_bytes'])}, to {report['addresses_in_all']:,}"
        f" addresses in {(report['end_ms'] - report['begin_ms']) / 1000:,.0f} s; {report['depth']:,} in"
        f" {report['queues_in_all']:,} queues now"
    )
    hops, found, segments = report["redistribution"], report["amplification"], report["segments"]
    echo(f"between nodes: {hops['messages']:,} messages forwarded, {hops['again']:,} of them more than once")
    if found["factor"] is not None:
        echo(f"log: {format_bytes(found['log_bytes'])}, {found['factor']:.2f} bytes for each byte of message")
    echo(
        f"segments: {segments['pinned']:,} of {segments['in_all']:,} have live messages:"
        f" {format_bytes(segments['pinned_bytes'])} for {format_bytes(segments['live_bytes'])}"
    )
