"""``understudy data``: tools for the log of a store. Strictly read-only, except ``compact``, ``restore`` and
``set-aside``, which a running broker refuses.

They can be used while a broker runs; a record that it is writing appears as the open end of the log.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from understudy.cli.data_compact import compact_store
from understudy.cli.data_compare import compare_stores
from understudy.cli.data_replay import replay_messages
from understudy.cli.data_salvage import salvage_store
from understudy.cli.data_transfer import export_messages, import_messages
from understudy.cli.instances import config_of
from understudy.cli.run import read_configuration
from understudy.cli.store_copies.backup import back_up_store
from understudy.cli.store_copies.restore import restore_copy, set_store_aside
from understudy.cli.stores import STORE, open_store
from understudy.cli.tables import console as make_console
from understudy.cli.terminal import echo
from understudy.runtime.disk import RealDisk
from understudy.store.log.records import RecordType
from understudy.tools.inspect import LoggedRecord, VerifyReport, describe, read_log, segment_links, verify
from understudy.units import format_bytes

_DIRECTORY = click.argument("directory", type=STORE)
_JSON = click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")


@click.group()
def data() -> None:
    """Inspect and copy the journal of a broker, running or not; compact, restore and set-aside change one at rest."""


data.add_command(back_up_store)
data.add_command(compact_store)
data.add_command(compare_stores)
data.add_command(export_messages)
data.add_command(import_messages)
data.add_command(replay_messages)
data.add_command(restore_copy)
data.add_command(salvage_store)
data.add_command(set_store_aside)


@data.command("print")
@_DIRECTORY
@_JSON
@click.option(
    "--type",
    "kinds",
    multiple=True,
    type=click.Choice([kind.name for kind in RecordType], case_sensitive=False),
    help="Only records of this type; may be repeated.",
)
@click.option("--queue", "queue_id", type=int, help="Only records that name this queue id.")
@click.option("--message", "message_id", type=int, help="Only records that name this message id.")
@click.option("--transaction", "tx_id", type=int, help="Only records of this transaction id.")
@click.option("--from-sequence", type=click.IntRange(min=1), default=1, help="Leave out earlier records.")
@click.option("--to-sequence", type=click.IntRange(min=1), help="Leave out later records.")
@click.option("--limit", type=click.IntRange(min=1), help="Stop after so many records.")
def print_records(
    directory: str,
    as_json: bool,
    kinds: tuple[str, ...],
    queue_id: int | None,
    message_id: int | None,
    tx_id: int | None,
    from_sequence: int,
    to_sequence: int | None,
    limit: int | None,
) -> None:
    """Print the records of the log in DIRECTORY, one a line, without message bodies."""
    disk = open_store(directory)
    node_id = segment_links(disk, directory)[0].node_id
    wanted = {kind.upper() for kind in kinds}
    shown = 0
    for logged in read_log(disk, directory):
        sequence = logged.frame.sequence
        if to_sequence is not None and sequence > to_sequence:
            break
        if sequence < from_sequence or (wanted and RecordType(logged.frame.kind).name not in wanted):
            continue
        if not _names(logged, queue_id, message_id, tx_id):
            continue
        values = describe(logged, node_id)
        echo(json.dumps(values) if as_json else _line(values))
        shown += 1
        if shown == limit:
            break


def _names(logged: LoggedRecord, queue_id: int | None, message_id: int | None, tx_id: int | None) -> bool:
    """Whether the record names all the ids that are asked for."""
    record = logged.record
    queue_ids = (getattr(record, "queue_id", None), *getattr(record, "queue_ids", ()))
    message_ids = (getattr(record, "message_id", None), *getattr(record, "message_ids", ()))
    return (
        (queue_id is None or queue_id in queue_ids)
        and (message_id is None or message_id in message_ids)
        and (tx_id is None or getattr(record, "tx_id", None) == tx_id)
    )


def _line(values: dict[str, object]) -> str:
    place = f"{values['epoch']}:{values['sequence']} {values['segment']}+{values['offset']}"
    skipped = ("node", "epoch", "sequence", "segment", "offset", "kind")
    rest = " ".join(f"{name}={_text(value)}" for name, value in values.items() if name not in skipped)
    return f"{place} {values['kind']} {rest}"


def _text(value: object) -> str:
    """A value on one line of any terminal; names may hold anything, also lone surrogates."""
    text = str(value)
    return text if text.isascii() and text.isprintable() else ascii(value)


@data.command("verify")
@click.argument("directory", type=STORE, required=False)
@click.option(
    "--instance",
    type=click.Path(path_type=Path, exists=True, file_okay=False, resolve_path=True),
    help="Instead of DIRECTORY: the journal of this instance.",
)
@click.option("--server", help="With --instance: one of several servers, by its name; default: that of core.")
@_JSON
@click.pass_context
def verify_store(
    context: click.Context, directory: str | None, instance: Path | None, server: str | None, as_json: bool
) -> None:
    """Check every byte of the journal in DIRECTORY, and list the entries of its quarantine.

    Exit code 1 if anything is damaged that was not set aside.
    """
    if (directory is None) == (instance is None) or (server is not None and instance is None):
        raise click.UsageError("give DIRECTORY, or --instance and perhaps --server")
    if directory is None:
        assert instance is not None
        directory = read_configuration(config_of(instance), instance, ()).server(server).journal_directory
    disk = open_store(directory)
    report = _verify(disk, directory, show_progress=not as_json and sys.stderr.isatty())
    if as_json:
        echo(json.dumps(asdict(report)))
    else:
        _print_report(report, sys.stdout)
    if report.problems:
        context.exit(1)


def _verify(disk: RealDisk, directory: str, *, show_progress: bool) -> VerifyReport:
    if not show_progress:
        return verify(disk, directory)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=make_console(err=True), transient=True) as bar:
        task = bar.add_task("segments")
        return verify(disk, directory, lambda done, total: bar.update(task, completed=done, total=total))


def _print_report(report: VerifyReport, output: TextIO) -> None:
    # not wrapped when piped, so that every line stays one line
    console = make_console(file=output)
    table = Table(box=None, header_style="bold")
    for name in ("segment", "epoch", "state", "records", "sequences", "used", "size", "tail"):
        table.add_column(name, justify="left" if name in ("segment", "state", "sequences") else "right")
    for segment in report.segments:
        table.add_row(
            os.path.basename(segment.file),
            str(segment.epoch),
            segment.state if segment.part_of_log else f"{segment.state}, not in the log",
            str(segment.records),
            f"{segment.first_sequence}-{segment.last_sequence}" if segment.records else "",
            format_bytes(segment.used_bytes),
            format_bytes(segment.size_bytes),
            format_bytes(segment.tail_bytes) if segment.tail_bytes else "",
        )
    console.print(table)
    for snapshot in report.snapshots:
        state = "damaged" if snapshot.problem is not None else "in use" if snapshot.used else "kept"
        console.print(
            f"{os.path.basename(snapshot.file)}: {state}, {snapshot.references} messages in queues up to sequence"
            f" {snapshot.sequence}, {format_bytes(snapshot.size_bytes)}"
        )
    console.print(
        f"node {report.node_id}, epoch {report.epoch}: {report.records} records up to sequence"
        f" {report.last_sequence}, {report.live_messages} messages in queues"
    )
    for problem in report.problems:
        console.print(f"DAMAGED: {problem.file} at offset {problem.offset}: {problem.message}", soft_wrap=True)
    for entry in report.quarantine:
        queue = f" of queue {entry.queue!r}" if entry.queue else ""
        console.print(f"SET ASIDE: {entry.entry_id}, {entry.kind}{queue}: {entry.reason}", soft_wrap=True, markup=False)
    if not report.problems and not report.quarantine:
        console.print("no damage found")
