"""``understudy pipeline flow``: movement of messages in journals, and forecasts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from understudy.cli.spark_job import JSON, MASTER, WORK_DIRECTORY, byte_count, job_session, progress, write_whole
from understudy.cli.stores import STORE, open_store
from understudy.cli.terminal import echo
from understudy.spark.flow_page import duration, flow_page
from understudy.texts import printable
from understudy.units import format_bytes


@click.command("flow")
@click.argument("directories", nargs=-1, required=True, type=STORE, metavar="DIRECTORY...")
@MASTER
@JSON
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
def flow_command(
    directories: tuple[str, ...],
    master: str,
    as_json: bool,
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
) -> None:
    """Measure rates, depths, growth and kept segments of the journals in DIRECTORYs, and forecast full disks and the
    time of a take-over.

    The journals are only read.

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
        from understudy.spark.flows import FORWARDING_PREFIXES, Settings, flow

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
        found = flow(spark, directories, settings, progress(quiet=as_json))
    if html_file is not None:
        write_whole(html_file, flow_page(found.report, found.series))
    if as_json:
        echo(json.dumps(found.report, indent=2))
    else:
        _print(found.report)


def _print(report: dict[str, Any]) -> None:
    echo(
        f"{report['messages']:,} messages, {format_bytes(report['message_bytes'])}, to {report['addresses_in_all']:,}"
        f" addresses in {(report['end_ms'] - report['begin_ms']) / 1000:,.0f} s; {report['depth']:,} in"
        f" {report['queues_in_all']:,} queues now"
    )
    for each in report["addresses"][:5]:
        name, rate, highest = printable(each["address"]), each["messages_per_s"], each["highest_per_s"]
        echo(
            f"address {name}: {each['messages']:,} messages, {rate:,.1f} a second, at most {highest:,.1f};"
            f" {100 * each['share']:.0f} % of the bytes"
        )
    for each in report["queues"][:5]:
        echo(
            f"queue {printable(each['queue'])}: {each['came']:,} came, {each['acknowledged']:,} acknowledged,"
            f" {each['depth']:,} now, at most {each['depth_highest']:,}"
        )
    hops, found, segments = report["redistribution"], report["amplification"], report["segments"]
    echo(f"between nodes: {hops['messages']:,} messages forwarded, {hops['again']:,} of them more than once")
    if found["factor"] is not None:
        echo(f"log: {format_bytes(found['log_bytes'])}, {found['factor']:.2f} bytes for each byte of message")
    echo(
        f"segments: {segments['pinned']:,} of {segments['in_all']:,} have live messages:"
        f" {format_bytes(segments['pinned_bytes'])} for {format_bytes(segments['live_bytes'])}"
    )
    for each in segments["list"][:5]:
        echo(
            f"kept: {each['file']}: {each['live_messages']:,} live messages, {format_bytes(each['live_bytes'])} of"
            f" {format_bytes(each['bytes'])}; oldest: message {each['oldest_message_id']} in"
            f" {printable(str(each['oldest_queue']))}"
        )
    for each in report["forecasts"]:
        disk, take_over, directory = each["disk"], each["take_over"], printable(each["directory"])
        echo(
            f"{directory}: {format_bytes(disk['free_bytes'])} free, full in: {duration(disk['full_in_s'])}, at"
            f" least {duration(disk['full_in_s_at_least'])}; a take-over reads {format_bytes(take_over['tail_bytes'])}"
            f" after the newest snapshot, {take_over['seconds']:.2f} s"
        )
