"""``understudy pipeline consolidate``: a journal as a new store that begins with a snapshot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from understudy.cli.data.stores import STORE, open_store
from understudy.cli.pipeline.spark_job import JSON, MASTER, WORK_DIRECTORY, job_session, progress
from understudy.cli.terminal import echo
from understudy.limits import ID_CACHE_SIZE
from understudy.units import format_bytes

if TYPE_CHECKING:
    from understudy.spark.state.consolidations import ConsolidationReport

_INCOMPLETE: Final = 3


@click.command("consolidate")
@click.argument("directory", type=STORE)
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    help="The new store; nothing is there, or an empty directory.",
)
@MASTER
@JSON
@click.option(
    "--segments",
    type=click.Choice(["needed", "all", "none"]),
    default="needed",
    show_default=True,
    help="Segments to copy: those that live messages or the end of the log need, all of them, or only the snapshot.",
)
@click.option("--in-use", is_flag=True, help="Read the journal although a broker runs on it, up to its present end.")
@click.option(
    "--lock-directory",
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    help="Where serverlock.1 is (node-manager-lock-directory); by default in DIRECTORY.",
)
@click.option(
    "--large-messages",
    "large_directories",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    help="large-messages-directory; may be repeated. Default: large-messages beside DIRECTORY.",
)
@click.option(
    "--id-cache-size",
    type=click.IntRange(min=0),
    default=ID_CACHE_SIZE,
    show_default=True,
    help="Duplicate ids kept per address: id-cache-size of the broker.",
)
@WORK_DIRECTORY
@click.pass_context
def consolidate_command(
    context: click.Context,
    directory: str,
    output: Path,
    master: str,
    as_json: bool,
    segments: str,
    in_use: bool,
    lock_directory: str | None,
    large_directories: tuple[str, ...],
    id_cache_size: int,
    work_dir: Path | None,
) -> None:
    """Write the state of the journal in DIRECTORY as a snapshot into a new store, with the segments that it needs.

    A broker that starts from the new store reads the snapshot and the end of the log, not the log from its beginning.
    The journal is only read. A run that is killed leaves the new store complete or not at all.

    \b
    Example: understudy pipeline consolidate /srv/broker/data/journal -o /archive/state

    Exit codes: 0 done, 1 Spark failed or numbers do not agree (nothing was made), 2 usage, or the journal or the output
    cannot be used, 3 done, but bodies of large messages are missing.
    """
    open_store(directory)
    with job_session("consolidate", master, work_dir) as spark:
        from understudy.spark.state.consolidations import Segments, Settings, consolidate

        settings = Settings(Segments(segments), in_use, lock_directory, large_directories, id_cache_size)
        report = consolidate(spark, directory, output, settings, progress(quiet=as_json))
    if as_json:
        echo(json.dumps(report.to_json(), indent=2))
    else:
        _print(report)
    context.exit(0 if report.complete else _INCOMPLETE)


def _print(report: ConsolidationReport) -> None:
    echo(
        f"log: node {report.node_id}, {report.segments:,} segments, {format_bytes(report.log_bytes)}, sequence"
        f" {report.last_sequence:,}"
    )
    echo(
        f"snapshot: {report.snapshot}: {report.references:,} references in {report.queues:,} queues,"
        f" {report.transactions:,} open transactions ({report.prepared:,} prepared),"
        f" {report.duplicate_ids:,} duplicate ids; {format_bytes(report.live_bytes)} live"
    )
    echo(
        f"copied: {report.segments_copied:,} segments and {report.large_messages:,} bodies,"
        f" {format_bytes(report.bytes_copied)}, to {report.output}"
    )
    if report.large_missing:
        echo(f"missing: the bodies of {report.large_missing:,} large messages")
