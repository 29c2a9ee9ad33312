"""``understudy data verify``: every byte of a journal is checked."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Final

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from understudy.cli.data.stores import STORE, open_store
from understudy.cli.node.instances import config_of
from understudy.cli.node.run import read_configuration
from understudy.cli.tables import Column, Kind, Table, View, console, view_options
from understudy.runtime.base.disk import RealDisk
from understudy.tools.inspect import VerifyReport, verify
from understudy.units import format_bytes

SEGMENTS: Final = Table(
    "segments",
    (
        Column("file", Kind.NAME, "File of the segment.", "segment", lambda row: os.path.basename(row["file"])),
        Column("epoch", Kind.NUMBER, "Epoch of its records.", optional=True),
        Column(
            "state", Kind.NAME, "open, sealed or damaged, and whether it is part of the log.",
            value=lambda row: row["state"] if row["part_of_log"] else f"{row['state']}, not in the log",
        ),
        Column("records", Kind.NUMBER, "Number of its records."),
        Column("first_sequence", Kind.NUMBER, "Sequence of the first record.", title="first", optional=True),
        Column("last_sequence", Kind.NUMBER, "Sequence of the last record.", title="last"),
        Column("used_bytes", Kind.BYTES, "Bytes with records.", title="used"),
        Column("size_bytes", Kind.BYTES, "Size of the file.", title="size"),
        Column("tail_bytes", Kind.BYTES, "Bytes after the last record that are not zero.", title="tail", optional=True),
    ),
)  # fmt: skip


@click.command("verify")
@click.argument("directory", type=STORE, required=False)
@click.option(
    "--instance",
    type=click.Path(path_type=Path, exists=True, file_okay=False, resolve_path=True),
    help="Instead of DIRECTORY: the journal of this instance.",
)
@click.option("--server", help="With --instance: one of several servers, by its name; default: that of core.")
@view_options(SEGMENTS)
@click.pass_context
def verify_store(
    context: click.Context, directory: str | None, instance: Path | None, server: str | None, view: View
) -> None:
    """Check every byte of the journal in DIRECTORY, and list the entries of its quarantine.

    \b
    Example: understudy data verify --instance /srv/broker --filter state!=sealed

    Exit code 1 if anything is damaged that was not set aside.
    """
    if (directory is None) == (instance is None) or (server is not None and instance is None):
        raise click.UsageError("give DIRECTORY, or --instance and perhaps --server")
    if directory is None:
        assert instance is not None
        directory = read_configuration(config_of(instance), instance, ()).server(server).journal_directory
    disk = open_store(directory)
    report = _verify(disk, directory, show_progress=not view.as_json and sys.stderr.isatty())
    if view.as_json:
        segments = [asdict(each) for each in report.segments]
        view.rows(SEGMENTS, segments, shape=lambda rows: {**asdict(report), "segments": rows})
    else:
        _print_report(report, view)
    if report.problems:
        context.exit(1)


def _verify(disk: RealDisk, directory: str, *, show_progress: bool) -> VerifyReport:
    if not show_progress:
        return verify(disk, directory)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console(err=True), transient=True) as bar:
        task = bar.add_task("segments")
        return verify(disk, directory, lambda done, total: bar.update(task, completed=done, total=total))


def _print_report(report: VerifyReport, view: View) -> None:
    view.rows(SEGMENTS, [asdict(each) for each in report.segments])
    for snapshot in report.snapshots:
        state = "damaged" if snapshot.problem is not None else "in use" if snapshot.used else "kept"
        view.page.line(
            f"{os.path.basename(snapshot.file)}: {state}, {snapshot.references} messages in queues up to sequence"
            f" {snapshot.sequence}, {format_bytes(snapshot.size_bytes)}"
        )
    view.page.line(
        f"node {report.node_id}, epoch {report.epoch}: {report.records} records up to sequence"
        f" {report.last_sequence}, {report.live_messages} messages in queues"
    )
    for problem in report.problems:
        view.page.line(f"DAMAGED: {problem.file} at offset {problem.offset}: {problem.message}")
    for entry in report.quarantine:
        queue = f" of queue {entry.queue!r}" if entry.queue else ""
        view.page.line(f"SET ASIDE: {entry.entry_id}, {entry.kind}{queue}: {entry.reason}")
    if not report.problems and not report.quarantine:
        view.page.line("no damage found")
