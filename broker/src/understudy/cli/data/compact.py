"""``understudy data compact``: free the space of dead records.

Exit codes: 0 done (or planned, with --dry-run), 1 refused or not completed, 2 usage, 3 the journal
is damaged or cannot be read.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import nullcontext
from dataclasses import asdict

import click

from understudy.cli.data.stores import STORE, locked_store, open_store, refuse_running
from understudy.cli.tables import console as make_console
from understudy.cli.terminal import echo
from understudy.errors import BrokerError, DiskFull, JournalCorrupt, StoreVersionUnsupported, WrongNode
from understudy.runtime.base.disk import RealDisk
from understudy.runtime.base.environment import SystemClock
from understudy.store.retention import RetentionSettings
from understudy.tools.compaction import Compaction, CompactionPlan, CompactionReport, plan
from understudy.units import format_bytes


@click.command("compact")
@click.argument("directory", type=STORE)
@click.option(
    "--lock-directory",
    type=STORE,
    help="Where server.lock is (node-manager-lock-directory); by default in DIRECTORY.",
)
@click.option(
    "--percentage",
    "percent",
    type=click.IntRange(0, 75),
    default=75,
    show_default=True,
    help="Copy live records of segments with a smaller live part than this; 0 copies nothing.",
)
@click.option(
    "--retain",
    "retention_directory",
    type=click.Path(file_okay=False, resolve_path=True),
    help="Move dropped segments there (journal-retention-directory) instead of removing them.",
)
@click.option("--dry-run", is_flag=True, help="Only read, and print the steps that would be taken.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")
@click.pass_context
def compact_store(
    context: click.Context,
    directory: str,
    lock_directory: str | None,
    percent: int,
    retention_directory: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Compact the journal in DIRECTORY, of a broker that is not running.

    Drops segments without live records and copies the live records of sparse ones to the end. Takes the
    lock of the store and refuses while a broker holds it, or while a process of this machine uses the store
    without it, as a node of a replicated pair with a lock manager does. May be interrupted at any time and
    restarted.

    \b
    Example: understudy data compact /srv/broker/data/journal
    """
    disk = open_store(directory)
    if retention_directory is not None and os.path.realpath(directory) == os.path.realpath(retention_directory):
        raise click.UsageError("--retain is the journal itself: segments that are dropped need a directory elsewhere")
    try:
        if dry_run:
            planned = plan(disk, directory, percent)
            echo(json.dumps(asdict(planned)) if as_json else _plan_text(planned))
            return
        retention = None if retention_directory is None else RetentionSettings(retention_directory)
        report = _compact(disk, directory, lock_directory or directory, percent, retention, quiet=as_json)
    except WrongNode as error:
        raise click.UsageError(str(error)) from error
    except (JournalCorrupt, StoreVersionUnsupported) as error:
        echo(f"understudy: {error}", err=True)
        context.exit(3)
    except (DiskFull, BrokerError, OSError) as error:
        echo(f"understudy: {error}", err=True)
        context.exit(1)
    echo(json.dumps(asdict(report)) if as_json else _report_text(report))
    if report.trouble is not None:
        context.exit(1)


def _compact(
    disk: RealDisk,
    directory: str,
    lock_directory: str,
    percent: int,
    retention: RetentionSettings | None,
    *,
    quiet: bool,
) -> CompactionReport:
    if not os.path.exists(f"{lock_directory}/server.lock"):
        raise click.UsageError(f"{lock_directory} has no server.lock; --lock-directory says where it is")
    refuse_running(directory)
    with locked_store(disk, lock_directory) as lock:
        # a node that believes to own the store notices that it does not
        lock.touch()
        console = make_console(err=True)
        shown = not quiet and sys.stderr.isatty()
        with console.status("reading the journal") if shown else nullcontext() as status:
            compaction = Compaction(disk, directory, lock.node_id, SystemClock(), percent, retention)

            def progress(segments: int, dropped: int, copied: int) -> None:
                if status is not None:
                    status.update(f"{segments} segments left, {dropped} dropped, {copied} messages copied")

            return compaction.run(progress)


def _plan_text(planned: CompactionPlan) -> str:
    return (
        f"{planned.segments} segments, {format_bytes(planned.size_bytes)} with snapshots,"
        f" {format_bytes(planned.live_bytes)} of it live\n"
        f"would drop {planned.dead_segments} dead segments,"
        f" copy {format_bytes(planned.copy_bytes)} out of {planned.sparse_segments} sparse ones and drop those\n"
        f"would free about {format_bytes(max(planned.free_bytes, 0))}; nothing was changed"
    )


def _report_text(report: CompactionReport) -> str:
    text = (
        f"{report.segments_before} segments, {format_bytes(report.size_bytes_before)}, are now"
        f" {report.segments_after}, {format_bytes(report.size_bytes_after)}; {format_bytes(report.live_bytes)} live\n"
        f"dropped {report.dropped_segments} segments, copied {report.copied_messages} messages;"
        f" epoch {report.epoch}, sequence {report.sequence}"
    )
    return text if report.trouble is None else f"{text}\nnot everything was done: {report.trouble}"
