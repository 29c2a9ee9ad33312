"""``understudy data``: tools for the log of a store. Strictly read-only, except ``compact``, ``restore`` and
``set-aside``, which a running broker refuses, and ``prune``, which removes old copies only.

They can be used while a broker runs; a record that it is writing appears as the open end of the log.
"""

from __future__ import annotations

import json

import click

from understudy.cli.data.checks.compare import compare_stores
from understudy.cli.data.checks.verify import verify_store
from understudy.cli.data.compact import compact_store
from understudy.cli.data.prune import prune_copies
from understudy.cli.data.replay import replay_messages
from understudy.cli.data.salvage import salvage_store
from understudy.cli.data.store_copies.backup import back_up_store
from understudy.cli.data.store_copies.restore import restore_copy, set_store_aside
from understudy.cli.data.stores import STORE, open_store
from understudy.cli.data.transfer import export_messages, import_messages
from understudy.cli.terminal import Commands, echo
from understudy.store.log.records import RecordType
from understudy.tools.inspect import LoggedRecord, describe, read_log, segment_links

_DIRECTORY = click.argument("directory", type=STORE)
_JSON = click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")


@click.group(cls=Commands)
def data() -> None:
    """Inspect and copy the journal of a broker, running or not; compact, restore and set-aside change one at rest."""


data.add_command(back_up_store)
data.add_command(compact_store)
data.add_command(compare_stores)
data.add_command(export_messages)
data.add_command(import_messages)
data.add_command(prune_copies)
data.add_command(replay_messages)
data.add_command(restore_copy)
data.add_command(salvage_store)
data.add_command(set_store_aside)
data.add_command(verify_store)


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
    """Print the records of the log in DIRECTORY, one a line, without message bodies.

    \b
    Example: understudy data print /srv/broker/data/journal
    """
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
