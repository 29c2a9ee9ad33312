"""``understudy data salvage``: list the intact records of a damaged journal, and write them to a new one.

Exit codes: 0 nothing is lost, 1 records are lost (listed) or the new journal could not be written,
2 usage, 3 the journal cannot be read at all.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict

import click

from understudy.cli.data.stores import STORE, open_store
from understudy.cli.data.transfer import Chosen, export_copy
from understudy.cli.terminal import echo
from understudy.errors import BrokerError, StoreVersionUnsupported, WrongNode
from understudy.runtime.base.environment import SystemClock
from understudy.tools.other_copy import OtherCopy
from understudy.tools.salvage import Salvage, SalvageReport
from understudy.tools.salvaged_store import write
from understudy.units import format_bytes


@click.command("salvage")
@click.argument("directory", type=STORE)
@click.option(
    "--to",
    "target",
    type=click.Path(file_okay=False, resolve_path=True),
    help="New journal directory, which must not exist or be empty. Without it nothing is written.",
)
@click.option(
    "--large-messages",
    "large_directory",
    type=click.Path(file_okay=False, resolve_path=True),
    help="large-messages-directory; default: large-messages beside DIRECTORY.",
)
@click.option(
    "--large-messages-to",
    "large_target",
    type=click.Path(file_okay=False, resolve_path=True),
    help="Where bodies of large messages are copied; default: large-messages beside the new journal.",
)
@click.option(
    "--from",
    "other_directory",
    type=STORE,
    help="Journal of another copy of this store, such as that of the other node of the pair. Damaged and missing"
    " parts of DIRECTORY are taken from it. Its broker must not run.",
)
@click.option(
    "--large-messages-from",
    "other_large_directory",
    type=click.Path(file_okay=False, resolve_path=True),
    help="large-messages-directory of the other copy; default: large-messages beside its journal.",
)
@click.option(
    "--quarantined",
    "quarantined_file",
    type=click.Path(dir_okay=False, resolve_path=True),
    help="File for the messages of the quarantine that the other copy has, as data export writes it; needs --from and"
    " --to. data import sends them into the running broker.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")
@click.pass_context
def salvage_store(
    context: click.Context,
    directory: str,
    target: str | None,
    large_directory: str | None,
    large_target: str | None,
    other_directory: str | None,
    other_large_directory: str | None,
    quarantined_file: str | None,
    as_json: bool,
) -> None:
    """Read the intact records of the damaged journal in DIRECTORY, and list the lost ones.

    With --to, write the rest into a new journal from which a broker of the same node id can start. DIRECTORY is only
    read. Stop its broker first.

    With --from, records, messages and bodies that are damaged here or in the quarantine are taken from another copy
    of the same node id, which is only read, too. The report counts them; the lost ones are in neither copy.

    Example, with copies that data backup has made of both running nodes of a pair:
    understudy data salvage copy-a/journal --from copy-b/journal --to new/journal --quarantined messages.jsonl
    """
    disk = open_store(directory)
    if quarantined_file is not None and (other_directory is None or target is None):
        raise click.UsageError("--quarantined needs --from, which has the messages, and --to")
    if other_directory is None and other_large_directory is not None:
        raise click.UsageError("--large-messages-from belongs to a copy that --from names")
    if other_directory is not None:
        if other_directory == directory:
            raise click.UsageError("--from names DIRECTORY itself")
        open_store(other_directory)
        other_large_directory = other_large_directory or f"{os.path.dirname(other_directory)}/large-messages"
    if target is not None and os.path.isdir(target) and os.listdir(target):
        raise click.UsageError(f"{target} is not empty")
    large_target = large_target or (f"{os.path.dirname(target)}/large-messages" if target is not None else None)
    large_directory = large_directory or f"{os.path.dirname(directory)}/large-messages"
    if large_target is not None and _same(large_target, large_directory):
        raise click.UsageError(f"{large_target} holds the bodies of the old journal; --large-messages-to names another")
    if large_target is not None and other_large_directory is not None and _same(large_target, other_large_directory):
        raise click.UsageError(f"{large_target} holds the bodies of the other copy; --large-messages-to names another")
    try:
        other = None
        if other_directory is not None and other_large_directory is not None:
            other = OtherCopy(disk, other_directory, other_large_directory)
        salvage = Salvage(disk, directory, large_directory, other)
        salvage.read()
    except WrongNode as error:
        raise click.UsageError(str(error)) from error
    except (StoreVersionUnsupported, BrokerError, OSError) as error:
        echo(f"understudy: {error}", err=True)
        context.exit(3)
    report = salvage.report
    node_id = salvage.node_id
    if node_id is None:
        echo(f"understudy: {directory}: no segment says which node it belongs to", err=True)
        context.exit(3)
    if target is not None and large_target is not None:
        try:
            write(salvage, disk, target, large_target, SystemClock(), node_id)
        except (BrokerError, OSError) as error:
            echo(f"understudy: {target} is not complete and of no use: {error}", err=True)
            context.exit(1)
        if quarantined_file is not None:
            chosen = Chosen(message_ids=salvage.returned_ids)
            export_copy(target, (), quarantined_file, chosen=chosen, large_directory=large_target)
    else:
        salvage.count_messages()
    echo(json.dumps(asdict(report)) if as_json else _text(report, target))
    context.exit(1 if report.lost_count else 0)


def _same(one: str, another: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(another)


def _text(report: SalvageReport, target: str | None) -> str:
    where = " (in neither copy)" if report.other is not None else ""
    lines = [
        f"LOST{where}: {lost.file} at offset {lost.offset}, {format_bytes(lost.bytes)}"
        f"{'' if lost.records is None else f', {lost.records} records'}: {lost.what}"
        for lost in report.lost
    ]
    if report.lost_count > len(report.lost):
        lines.append(f"... and {report.lost_count - len(report.lost)} more")
    if report.doubtful_transactions:
        lines.append(f"{report.doubtful_transactions} transactions without a known outcome: their messages are kept")
    if report.other is not None:
        counts = ", ".join(f"{count} {kind}" for kind, count in report.restored.items()) or "nothing"
        lines.append(f"restored from {report.other}: {counts}")
    done = "are in" if target is not None else "can be salvaged (--to NEW_DIRECTORY writes them)"
    lines.append(
        f"{report.addresses} addresses, {report.queues} queues, {report.messages} messages and"
        f" {report.prepared_transactions} prepared transactions {done}{f' {target}' if target is not None else ''};"
        f" {report.messages_lost} messages cannot be read"
    )
    if target is None:
        lines.append("nothing was changed")
    return "\n".join(lines)
