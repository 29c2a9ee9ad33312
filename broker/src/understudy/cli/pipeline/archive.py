"""``understudy pipeline archive``: messages of journals as Parquet files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from understudy.cli.data.stores import STORE, open_store
from understudy.cli.pipeline.spark_job import JSON, MASTER, WORK_DIRECTORY, byte_count, job_session, progress
from understudy.cli.terminal import echo

if TYPE_CHECKING:
    from understudy.spark.archive.archives import ArchiveReport

_MIB: Final = 1024 * 1024
_INCOMPLETE: Final = 3


@click.command("archive")
@click.argument("directories", nargs=-1, type=STORE, metavar="[DIRECTORY...]")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The archive; made if it is missing or empty.",
)
@MASTER
@JSON
@click.option(
    "--address",
    "addresses",
    multiple=True,
    help="Only messages to this address; * is one word, # any number of words; may be repeated.",
)
@click.option(
    "--nodes",
    type=click.Choice(["one", "many"]),
    default="one",
    show_default=True,
    help="The directories are copies of one node's journal, or journals of many nodes.",
)
@click.option(
    "--retention",
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    help="Retention directory of the journal in DIRECTORY; alone, also of a running broker.",
)
@click.option(
    "--reader",
    help="Archive the records since the last run, through this named reader of the node whose log DIRECTORYs have.",
)
@click.option(
    "--server", "servers", multiple=True, help="Management URL of a node that may be active, for --reader; repeat it."
)
@click.option(
    "--token-file", type=click.Path(exists=True, dir_okay=False), help="File with the management token, for --reader."
)
@click.option(
    "--reader-max-bytes",
    default="20G",
    show_default=True,
    callback=byte_count,
    help="Bytes of log that the node keeps for the reader, when it is registered.",
)
@click.option("--accept-gap", is_flag=True, help="Go on with --reader although records after the last run are gone.")
@click.option(
    "--large-messages",
    "large_directories",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    help="large-messages-directory; may be repeated. Default: large-messages beside each DIRECTORY.",
)
@click.option(
    "--large-mib",
    type=click.IntRange(0, 1024),
    default=64,
    show_default=True,
    help="Bodies of large messages above this are left out.",
)
@click.option(
    "--file-mib", type=click.IntRange(1, 4096), default=64, show_default=True, help="Aimed size of a Parquet file."
)
@click.option(
    "--compact-files",
    type=click.IntRange(min=0),
    default=4,
    show_default=True,
    help="Merge the files of a partition that are below half of --file-mib, if there are so many; 0: never.",
)
@click.option(
    "--keep-hours",
    type=click.FloatRange(min=0, max=24 * 366),
    default=24,
    show_default=True,
    help="Keep generations that a run replaced so long for queries that read them.",
)
@WORK_DIRECTORY
@click.pass_context
def archive_command(
    context: click.Context,
    directories: tuple[str, ...],
    output: Path,
    master: str,
    as_json: bool,
    addresses: tuple[str, ...],
    nodes: str,
    retention: str | None,
    reader: str | None,
    servers: tuple[str, ...],
    token_file: str | None,
    reader_max_bytes: int,
    accept_gap: bool,
    large_directories: tuple[str, ...],
    large_mib: int,
    file_mib: int,
    compact_files: int,
    keep_hours: float,
    work_dir: Path | None,
) -> None:
    """Add the confirmed messages of the journals in DIRECTORYs to an archive of Parquet files.

    Each message is in the archive once, however often this runs, also if it is killed. The journals are only read. The
    journal of a running broker is read with --reader only, up to the end that the active node has confirmed.
    docs/use/pipeline.md describes the columns.

    \b
    Example: understudy pipeline archive /srv/broker/data/journal -o /archive

    Exit codes: 0 done, 1 Spark failed or rows are missing, 2 usage, or a journal or the archive cannot be used, 3 done,
    but the bodies of some large messages could not be archived.
    """
    if len(set(directories)) < len(directories):
        raise click.UsageError("a directory is given twice")
    _check_usage(directories, retention, reader, servers)
    open_store(*directories, *([] if retention is None or reader is not None or directories else [retention]))
    with job_session("archive", master, work_dir) as spark:
        from understudy.spark.archive.archives import Settings, archive
        from understudy.spark.archive.logs import ReaderSettings

        through = None
        if reader is not None:
            urls = tuple(each.rstrip("/") for each in servers)
            through = ReaderSettings(reader, urls, token_file, reader_max_bytes, accept_gap)
        settings = Settings(
            addresses=addresses,
            many_nodes=nodes == "many",
            retention=retention,
            reader=through,
            large_directories=large_directories,
            large_bytes_max=large_mib * _MIB,
            file_bytes=file_mib * _MIB,
            compact_files=compact_files,
            keep_ms=int(keep_hours * 3_600_000),
        )
        report = archive(spark, directories, output, settings, progress(quiet=as_json))
    if as_json:
        echo(json.dumps(report.to_json(), indent=2))
    else:
        _print(report)
    context.exit(0 if report.complete else _INCOMPLETE)


def _check_usage(
    directories: tuple[str, ...], retention: str | None, reader: str | None, servers: tuple[str, ...]
) -> None:
    if not directories and (retention is None or reader is not None):
        raise click.UsageError("Missing argument 'DIRECTORY...', or option '--retention' alone")
    if retention is not None and len(directories) > 1 and reader is None:
        raise click.UsageError("--retention belongs to one DIRECTORY")
    if (reader is None) != (not servers):
        raise click.UsageError("--reader and --server belong together")


def _print(report: ArchiveReport) -> None:
    echo(
        f"journals: {report.found:,} messages: {report.archived:,} archived, {report.known:,} in the archive before,"
        f" {report.unconfirmed:,} not confirmed"
    )
    echo(
        f"archive: {report.archive}: {report.rows:,} messages in {report.files:,} files, {report.size:,} bytes,"
        f" generation {report.generation}{'' if report.changed else ' (unchanged)'}"
    )
    echo(f"files: {report.files_written:,} written, {report.files_merged:,} merged into larger ones")
    echo(f"generations: {report.generations_removed:,} removed, {report.generations_kept:,} former kept")
    if report.reader is not None:
        position, committed = report.reader["position"], "" if report.reader["committed"] else ", not committed yet"
        echo(
            f"reader {report.reader['name']}: read up to sequence {report.reader['until']['sequence']:,}, position"
            f" {position['epoch']}:{position['sequence']}{committed}"
        )
    for state, count in sorted(report.without_body.items()):
        echo(f"bodies {state}: {count:,} large messages are archived without their body")
